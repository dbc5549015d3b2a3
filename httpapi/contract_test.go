package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"kindred/testkit"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestTheContractIsValid(t *testing.T) {
	doc := loadContract(t)
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	if doc.OpenAPI != "3.0.3" {
		t.Errorf("version %s", doc.OpenAPI) // 3.1 compiles every schema anew per request
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Responses.Default() == nil {
				t.Errorf("%s %s does not say how it answers problems", method, path)
			}
			if strings.HasPrefix(path, "/api/v1/") == (len(*op.Security) == 0) {
				t.Errorf("%s %s asks for %d tokens", method, path, len(*op.Security))
			}
		}
	}
	for name, schema := range doc.Components.Schemas {
		closed, of := schema.Value.AdditionalProperties.Has, schema.Value.AdditionalProperties.Schema
		if schema.Value.Type.Is("object") && name != "Traits" && of == nil && (closed == nil || *closed) {
			t.Errorf("%s takes anything", name)
		}
		for of, property := range schema.Value.Properties {
			var said map[string]any
			if err := json.Unmarshal(testkit.Must(property.MarshalJSON())(t), &said); err != nil {
				t.Fatal(err)
			}
			if property.Ref != "" && len(said) > 1 {
				t.Errorf("%s.%s says %v beside a $ref, which nobody reads", name, of, said)
			}
		}
	}
}

func TestPages(t *testing.T) {
	e := serve(t, nil)
	doc := loadContract(t)
	answer, page := e.send("GET", "/docs/api", nil)
	if answer.StatusCode != 200 || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if !strings.Contains(page, `>`+method+`</b> <span>`+path+`</span></p>`) || !strings.Contains(page, `id="`+op.OperationID+`"`) {
				t.Errorf("the page lacks %s %s", method, path)
			}
		}
	}
	for path, want := range map[string]string{
		"/docs": "<h1", "/docs/errors": "in_flight", "/docs/search?q=in_flight": "<mark>", "/docs/search?q=%3Cb%3E": "&lt;b&gt;", "/docs/style.css": ":root", "/docs/icon.svg": "<svg",
	} {
		answer, body := e.send("GET", path, nil)
		if answer.StatusCode != 200 || !strings.Contains(body, want) || !strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v %.300s", path, answer.StatusCode, answer.Header, body)
		}
	}
	for _, path := range []string{"/docs", "/docs/guide"} {
		_, want := e.send("GET", path, nil)
		if answer, got := e.send("GET", path+"/", nil); answer.StatusCode != 200 || got != want {
			t.Errorf("%s/: %d %.300s", path, answer.StatusCode, got)
		}
	}
	if answer, page := e.send("GET", "/docs/nowhere", nil); answer.StatusCode != 404 || !strings.Contains(page, "<h1>There is no such page</h1>") {
		t.Errorf("/docs/nowhere: %d %.300s", answer.StatusCode, page)
	}

	_, spec := e.send("GET", "/openapi.json", nil)
	if strings.Contains(spec, "x-go-") || !json.Valid([]byte(spec)) {
		t.Error("the public contract holds what is meant for the generator")
	}
	public := testkit.Must(openapi3.NewLoader().LoadFromData([]byte(spec)))(t)
	if got, want := public.Paths.Len(), doc.Paths.Len(); got != want {
		t.Errorf("the public contract has %d paths, want %d", got, want)
	}

	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`} {
		if answer, body := e.send("GET", path, nil); answer.StatusCode != 200 || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %s", path, answer.StatusCode, body)
		}
	}
}
