package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// eventSections are the sections of the events on the page about webhooks.
var eventSections = regexp.MustCompile(`(?s)\n### .*?\n## `)

// webhooksPage is docs/webhooks.md, with a section for each event of the contract.
func webhooksPage(doc *openapi3.T) (string, error) {
	page, err := os.ReadFile("docs/webhooks.md")
	if err != nil {
		return "", err
	}
	var sections strings.Builder
	for _, kind := range stringsOf(doc.Components.Schemas["EventType"].Value.Enum) {
		body := doc.Components.Schemas["EventDelivery"].Value.Discriminator.Mapping[kind].Ref
		schema := doc.Components.Schemas[body[strings.LastIndex(body, "/")+1:]]
		if schema == nil {
			return "", fmt.Errorf("EventDelivery says nothing of %s", kind)
		}
		data := schema.Value.Properties["data"].Value
		fmt.Fprintf(&sections, "\n### %s\n%s", kind, about("", sentence(schema.Value.Description)))
		for _, name := range slices.Sorted(maps.Keys(data.Properties)) {
			if !slices.Contains(data.Required, name) {
				sections.WriteString("\n" + about("", "`"+name+"`: "+sentence(data.Properties[name].Value.Description)))
			}
		}
		fmt.Fprintf(&sections, "\n```json event\n{\n  \"event_type\": %q,\n  \"data\": {\n", kind)
		for i, name := range data.Required {
			value, err := example(data.Properties[name].Value)
			if err != nil {
				return "", fmt.Errorf("%s of %s: %w", name, kind, err)
			}
			end := ","
			if i == len(data.Required)-1 {
				end = ""
			}
			fmt.Fprintf(&sections, "    %q: %s%s\n", name, value, end)
		}
		at, err := example(schema.Value.Properties["timestamp"].Value)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&sections, "  },\n  \"timestamp\": %s\n}\n```\n", at)
	}
	found := eventSections.FindIndex(page)
	if found == nil {
		return "", fmt.Errorf("docs/webhooks.md has no place for the events")
	}
	return string(page[:found[0]]) + sections.String() + "\n## " + string(page[found[1]:]), nil
}

// example is a value of a schema, as JSON on one line.
func example(s *openapi3.Schema) (string, error) {
	switch {
	case s.Example != nil:
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(s.Example)
		return strings.TrimSpace(b.String()), err
	case s.Type.Is("array"):
		one, err := example(s.Items.Value)
		return "[" + one + "]", err
	case len(s.Required) > 0:
		var parts []string
		for _, name := range s.Required {
			one, err := example(s.Properties[name].Value)
			if err != nil {
				return "", err
			}
			parts = append(parts, fmt.Sprintf("%q: %s", name, one))
		}
		return "{" + strings.Join(parts, ", ") + "}", nil
	}
	return "", fmt.Errorf("it has no example")
}
