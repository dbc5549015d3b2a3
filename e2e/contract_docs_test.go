package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred/httpapi"
)

// TestTheExamplesOfTheReferenceAreTaken sends each body that /docs/api shows as it
// stands there: none may be refused for what it says. What it shows of answers
// is what the contract says.
func TestTheExamplesOfTheReferenceAreTaken(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	a.createUser("u1", map[string]any{"age": 31})
	a.createUser("u2", map[string]any{"age": 32})
	names := strings.NewReplacer(
		"{client_id}", string(a.Client.ID), "{user_id}", "ext:u1", "{webhook_id}", string(a.subscribe("http://127.0.0.1:1/", "a secret").ID),
		"{consent_layer_id}", string(a.createLayer("age").ID), "{campaign_id}", string(a.run(nil).ID),
	)
	doc, err := openapi3.NewLoader().LoadFromData(httpapi.Contract())
	if err != nil {
		t.Fatal(err)
	}
	page := string(s.send("GET", "/docs/api", nil).Body)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			_, section, _ := strings.Cut(page, `<section class="operation" id="`+op.OperationID+`">`)
			section, _, _ = strings.Cut(section, `</section>`)
			request, answers, _ := strings.Cut(section, `<div data-status=`)
			if op.RequestBody != nil && op.RequestBody.Value.Content["application/json"] != nil {
				body := bodyOf(firstExample(request))
				if got := a.send(method, names.Replace(path), body); got.Status == http.StatusBadRequest || got.Status == http.StatusUnprocessableEntity {
					t.Errorf("%s: %d %s\nof the example %s", op.OperationID, got.Status, got.Body, body)
				}
			}
			for status, response := range op.Responses.Map() {
				content := response.Value.Content["application/json"]
				if content == nil || status[0] != '2' {
					continue
				}
				_, answer, _ := strings.Cut(`<div data-status=`+answers, `<div data-status="`+status+`">`)
				var value any
				err := json.Unmarshal([]byte(firstExample(answer)), &value)
				if err == nil {
					err = content.Schema.Value.VisitJSON(value, openapi3.MultiErrors())
				}
				if err != nil {
					t.Errorf("%s: the example of %s: %v", op.OperationID, status, fmt.Sprintf("%.300s", err))
				}
			}
		}
	}
}

// firstExample is what a part of the page shows first.
func firstExample(part string) string {
	found := regexp.MustCompile(`(?s)<pre tabindex="0"><code>(.*?)</code></pre>`).FindStringSubmatch(part)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

// bodyOf is the body that a command sends.
func bodyOf(command string) string {
	_, body, _ := strings.Cut(command, "\n  -d '")
	return strings.ReplaceAll(strings.TrimSuffix(body, "'"), `'\''`, "'")
}

// loadContract reads the contract, once for all receivers.
var loadContract = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(httpapi.Contract())
})

// checkEvent holds the body of a delivery against what the contract says of its
// event, and returns the event's type.
func checkEvent(body []byte) (eventType string, err error) {
	doc, err := loadContract()
	if err != nil {
		return "", err
	}
	var value map[string]any
	if err := json.Unmarshal(body, &value); err != nil {
		return "", err
	}
	eventType = fmt.Sprint(value["event_type"])
	_, name, _ := strings.Cut(doc.Components.Schemas["EventDelivery"].Value.Discriminator.Mapping[eventType].Ref, "schemas/")
	schema := doc.Components.Schemas[name]
	if schema == nil {
		return "", fmt.Errorf("the contract does not describe the event %s", eventType)
	}
	return eventType, schema.Value.VisitJSON(value, openapi3.MultiErrors())
}

// checkDelivery holds what a receiver got against the contract: the body, and
// the service's own headers.
func checkDelivery(header http.Header, body []byte) error {
	eventType, err := checkEvent(body)
	if err != nil {
		return err
	}
	doc, err := loadContract()
	if err != nil {
		return err
	}
	if got := header.Get("X-Service-Event"); got != eventType {
		return fmt.Errorf("the header says %s, the body %s", got, eventType)
	}
	declared := map[string]bool{}
	for _, event := range doc.Paths.Find("/api/v1/clients/{client_id}/webhooks").Post.Callbacks["event"].Value.Map() {
		for _, p := range event.Post.Parameters {
			name := http.CanonicalHeaderKey(p.Value.Name)
			declared[name] = true
			if p.Value.Required && header.Get(name) == "" {
				return fmt.Errorf("%s lacks the header %s", eventType, name)
			}
		}
	}
	for name := range header {
		if (strings.HasPrefix(name, "X-") || strings.HasPrefix(name, "Webhook-")) && !declared[name] {
			return fmt.Errorf("the contract does not describe the header %s", name)
		}
	}
	return nil
}
