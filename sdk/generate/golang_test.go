package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// TestConstantsOfEnumerationsHaveTheContractsValues holds what Go programs send.
func TestConstantsOfEnumerationsHaveTheContractsValues(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../httpapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := read(doc)
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	written := c.golang()
	for _, n := range c.byName {
		for _, v := range n.Values {
			checked++
			if want := n.Name + exported(words(v)) + " " + n.Name + ` = "` + v + `"`; !strings.Contains(written, want) {
				t.Errorf("there is no %s", want)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d values were found", checked)
	}
}

func TestNoNameInPythonIsAKeyword(t *testing.T) {
	t.Parallel()
	c := &contract{byName: map[string]*named{}}
	c.Types = []*named{{Name: "Span", Fields: []field{{Name: "from", Type: &typ{}, Required: true}, {Name: "class", Type: &typ{}}}}}
	written := c.pythonTypes()
	for _, m := range regexp.MustCompile(`(?m)^    (\w+): `).FindAllStringSubmatch(written, -1) {
		if keywords[m[1]] {
			t.Errorf("%s is a field", m[1])
		}
	}
	if !strings.Contains(written, `"from": "str"`) || !strings.Contains(written, `"class": NotRequired["str"]`) {
		t.Errorf("written is %s", written)
	}
}

// TestPublicEventsAreToldApartLikeDeliveries holds what type checkers know of an event.
func TestPublicEventsAreToldApartLikeDeliveries(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("../../httpapi/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := read(doc)
	if err != nil {
		t.Fatal(err)
	}
	of := func(union, name string) (types []string) {
		for _, member := range c.byName[union].Union {
			for _, f := range c.byName[member.Name].Fields {
				if f.Name == name {
					types = append(types, typescriptName(f.Type))
				}
			}
		}
		return types
	}
	for _, name := range []string{"event_type", "data", "timestamp"} {
		if events, deliveries := of("PublicEvent", name), of("EventDelivery", name); len(events) == 0 || !slices.Equal(events, deliveries) {
			t.Errorf("%s of events is %q, of deliveries %q", name, events, deliveries)
		}
	}
	if ids := of("PublicEvent", "id"); len(ids) != len(of("EventDelivery", "data")) {
		t.Errorf("ids are %q", ids)
	}
}
