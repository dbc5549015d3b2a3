package httpapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEachCodeHasAPageThatItsProblemsLeadTo(t *testing.T) {
	e := serve(t, nil)
	for _, code := range loadContract(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		answer, page := e.send("GET", "/docs/errors/"+code.(string), nil)
		if answer.StatusCode != http.StatusOK || !strings.Contains(page, "<h1") || !strings.Contains(page, code.(string)) ||
			!strings.Contains(page, "/docs/errors#"+code.(string)) {
			t.Errorf("%s: %d", code, answer.StatusCode)
		}
	}
	for _, one := range explained(t) {
		status, code, _ := strings.Cut(one, " ")
		if _, page := e.send("GET", "/docs/errors/"+code, nil); !strings.Contains(page, `<h2 id="`+status+`-`) {
			t.Errorf("the page of %s does not explain its %s", code, status)
		}
	}
	answer, _ := e.send("GET", "/api/v1/nowhere", nil)
	if link := answer.Header.Get("Link"); link != `</docs/errors/no_such_path>; rel="help"` {
		t.Errorf("a problem leads to %q", link)
	}
}

func TestTheEventsAreDescribedAsAsyncAPI(t *testing.T) {
	e := serve(t, nil)
	answer, body := e.send("GET", "/asyncapi.json", nil)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s", answer.StatusCode, answer.Header)
	}
	var doc struct {
		AsyncAPI string `json:"asyncapi"`
		Info     struct{ Title, Version string }
		Channels map[string]struct {
			Messages map[string]map[string]string
		}
		Operations map[string]struct {
			Action  string
			Channel map[string]string
		}
		Components struct {
			Messages map[string]struct {
				Name    string
				Payload map[string]string
			}
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	types := slices.Sorted(slices.Values(eventTypes(t)))
	if doc.AsyncAPI != "3.0.0" || doc.Info.Title == "" || doc.Info.Version == "" || !slices.Equal(slices.Sorted(maps.Keys(doc.Components.Messages)), types) {
		t.Errorf("%s %+v: EventDelivery in httpapi/openapi.yaml tells of %q, EventType of %q", doc.AsyncAPI, doc.Info, slices.Sorted(maps.Keys(doc.Components.Messages)), types)
	}
	for kind, message := range doc.Components.Messages {
		schema := doc.Components.Schemas[strings.TrimPrefix(message.Payload["$ref"], "#/components/schemas/")]
		if message.Name != kind || !slices.Equal(schema.Properties["event_type"].Enum, []string{kind}) {
			t.Errorf("%s: %+v, %+v", kind, message, schema)
		}
	}
	for name, channel := range doc.Channels {
		if !slices.Equal(slices.Sorted(maps.Keys(channel.Messages)), types) {
			t.Errorf("%s tells %q", name, slices.Sorted(maps.Keys(channel.Messages)))
		}
	}
	for name, operation := range doc.Operations {
		if _, known := doc.Channels[strings.TrimPrefix(operation.Channel["$ref"], "#/channels/")]; !known || operation.Action != "send" {
			t.Errorf("%s: %+v", name, operation)
		}
	}
	var headers []string
	for _, event := range loadContract(t).Paths.Find("/api/v1/clients/{client_id}/webhooks").Post.Callbacks["event"].Value.Map() {
		for _, p := range event.Post.Parameters {
			headers = append(headers, p.Value.Name)
		}
	}
	slices.Sort(headers)
	if told := slices.Sorted(maps.Keys(doc.Components.Schemas["DeliveryHeaders"].Properties)); !slices.Equal(told, headers) {
		t.Errorf("a delivery has the headers %q, told are %q", headers, told)
	}
	var tree any
	if err := json.Unmarshal([]byte(body), &tree); err != nil {
		t.Fatal(err)
	}
	eachReference(tree, func(ref string) {
		at := tree
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			inner, _ := at.(map[string]any)
			at = inner[part]
		}
		if at == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
}

func eachReference(node any, found func(string)) {
	switch node := node.(type) {
	case map[string]any:
		if ref, ok := node["$ref"].(string); ok {
			found(ref)
		}
		for _, child := range node {
			eachReference(child, found)
		}
	case []any:
		for _, child := range node {
			eachReference(child, found)
		}
	}
}

func TestModelsFindTheDocumentationAsText(t *testing.T) {
	e := serve(t, nil)
	_, list := e.send("GET", "/llms.txt", nil)
	text := list
	if !strings.HasPrefix(text, "# kindred\n\n> Matching") || !strings.Contains(text, "\n## Build on it\n\n- [Guarantees") && !strings.Contains(text, "\n## Build on it\n\n- [What to rely on") {
		t.Errorf("%.400s", text)
	}
	answer, full := e.send("GET", "/llms-full.txt", nil)
	if answer.Header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(full, "### user_exists") || !strings.Contains(full, "# Command line") {
		t.Errorf("%s, %d bytes", answer.Header.Get("Content-Type"), len(full))
	}
	for _, link := range regexp.MustCompile(`\]\(([^)\s]+\.(?:md|svg|png)|#)`).FindAllStringSubmatch(full, -1) {
		if !strings.HasPrefix(link[1], "http") && !strings.HasPrefix(link[1], "/docs/") {
			t.Errorf("a link leads to %s", link[1])
		}
	}
	var paths []string
	for _, after := range strings.Split(text, "](")[1:] {
		path, _, _ := strings.Cut(after, ")")
		paths = append(paths, path)
	}
	for _, link := range regexp.MustCompile(`\]\((/docs[^)#]*)`).FindAllStringSubmatch(full, -1) {
		paths = append(paths, link[1])
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		if answer, _ := e.send("GET", path, nil); answer.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, answer.StatusCode)
		}
	}
}
