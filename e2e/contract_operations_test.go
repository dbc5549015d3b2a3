package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred/httpapi"
)

// declared is an operation of the contract, on a client's own path but
// otherwise on what is not there.
type declared struct {
	method, path string
	*openapi3.Operation
}

var inPath = regexp.MustCompile(`\{\w+\}`)

func contract(a account) (all []declared) {
	a.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(httpapi.Contract())
	if err != nil {
		a.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		path = inPath.ReplaceAllString(strings.ReplaceAll(path, "{client_id}", string(a.Client.ID)), "x")
		for method, op := range item.Operations() {
			all = append(all, declared{method, path, op})
		}
	}
	return all
}

// body is the JSON that an operation takes, or nil.
func (d declared) body() *openapi3.RequestBody {
	if d.RequestBody == nil || d.RequestBody.Value.Content.Get("application/json") == nil {
		return nil
	}
	return d.RequestBody.Value
}

// opens says whether who holds these words may use an operation: each word of
// one requirement is needed, any requirement will do.
func (d declared) opens(words []string) bool {
	holds := func(word string) bool {
		return slices.Contains(words, word) ||
			(word == "read" || word == "write" || word == "webhooks") && slices.Contains(words, "admin") || word == "read_user" && slices.Contains(words, "read:user")
	}
	return slices.ContainsFunc(*d.Security, func(all openapi3.SecurityRequirement) bool {
		for word := range all {
			if word == "login" && len(all) == 1 {
				word = "member" // of whatever role
			}
			if !holds(word) {
				return false
			}
		}
		return true
	})
}

func TestEveryOperationRefusesWhatIsNotItsBody(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	s.Logs.keepOut(canary)
	for _, op := range contract(a) {
		body := op.body()
		if body == nil {
			continue
		}
		for _, tt := range badBodies(`{"a":"` + canary + `"}`) {
			got := a.send(op.method, op.path, tt.body, tt.options...)
			wantProblem(t, tt.status, tt.code, got)
			if strings.Contains(string(got.Body), canary) {
				t.Errorf("the answer repeats a value: %s", got.Body)
			}
			if t.Failed() {
				t.Fatalf("%s %s, %s: %d", op.method, op.path, tt.name, got.Status)
			}
		}
		if body.Required {
			wantProblem(t, http.StatusBadRequest, "body_missing", a.send(op.method, op.path, ""))
		}
	}
}
