package httpapi_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func TestEverythingInTheContractIsDescribed(t *testing.T) {
	doc := loadContract(t)
	walkContract(t, func(where string, schema *openapi3.Schema) {
		if strings.HasSuffix(where, "|") {
			return // its properties are described where the choice stands
		}
		for name, property := range schema.Properties {
			if property.Value.Description == "" {
				t.Errorf("the property %s.%s is not described", where, name)
			}
		}
	})
	parameter := func(where string, p *openapi3.ParameterRef) {
		if p.Value.Description == "" {
			t.Errorf("the parameter %s of %s is not described", p.Value.Name, where)
		}
	}
	header := func(where string, headers openapi3.Headers) {
		for name, h := range headers {
			if h.Value.Description == "" {
				t.Errorf("the header %s of %s is not described", name, where)
			}
		}
	}
	for name, p := range doc.Components.Parameters {
		parameter(name, p)
	}
	for _, tag := range doc.Tags {
		if tag.Description == "" {
			t.Errorf("the tag %s is not described", tag.Name)
		}
	}
	for _, op := range contractOperations(doc) {
		if op.Summary == "" || op.Description == "" {
			t.Errorf("%s is not described", op.OperationID)
		}
		for _, p := range slices.Concat(op.shared, op.Parameters) {
			parameter(op.OperationID, p)
		}
		if op.RequestBody != nil {
			for _, media := range op.RequestBody.Value.Content {
				for name, property := range media.Schema.Value.Properties {
					if property.Value.Default != nil { // openapi-typescript would ask for it
						t.Errorf("%s in the body of %s has a default, which its description is to tell", name, op.OperationID)
					}
				}
			}
		}
		for status, response := range op.Responses.Map() {
			if response.Value.Description == nil || *response.Value.Description == "" {
				t.Errorf("%s of %s is not described", status, op.OperationID)
			}
			header(op.OperationID, response.Value.Headers)
		}
	}
}

// TestOperationsDeclareTheAnswersOfTheirParts asks of each operation what the
// edge answers by the parts of a request. What operations answer by
// themselves, httpapitest finds.
func TestOperationsDeclareTheAnswersOfTheirParts(t *testing.T) {
	for _, op := range contractOperations(loadContract(t)) {
		wants := []string{"400", "422", "429", "503", "default"} // a query that nobody knows is refused everywhere
		if len(*op.Security) > 0 {
			wants = append(wants, "401", "403")
		}
		if strings.Contains(op.path, "{") {
			wants = append(wants, "404")
		}
		if op.RequestBody != nil {
			wants = append(wants, "413", "415")
		}
		for _, p := range slices.Concat(op.shared, op.Parameters) {
			switch p.Value.Name {
			case "If-Match", "If-None-Match":
				wants = append(wants, "412")
			case "Idempotency-Key":
				wants = append(wants, "409")
			}
		}
		for _, status := range wants {
			if op.Responses.Value(status) == nil {
				t.Errorf("%s does not declare %s", op.OperationID, status)
			}
		}
	}
}

// TestOperationsAreNamedLikeMethods holds the names against what generators
// make of them: a verb and a noun, or a verb with its particle.
func TestOperationsAreNamedLikeMethods(t *testing.T) {
	verbs := regexp.MustCompile(`^((add|assign|cancel|change|check|compute|create|delete|erase|exchange|follow|get|grant|import|list|move|preview|prove|put|rebuild|record|recover|` +
		`remove|repeat|retire|revoke|rotate|start|test|withdraw)[A-Z]\w+|signUp|logIn)$`)
	seen := map[string]bool{}
	for _, op := range contractOperations(loadContract(t)) {
		if lower := strings.ToLower(op.OperationID); seen[lower] {
			t.Errorf("%s is not the only one of its name", op.OperationID)
		} else {
			seen[lower] = true
		}
		if !verbs.MatchString(op.OperationID) {
			t.Errorf("%s is not a verb, of those above, and a noun", op.OperationID)
		}
	}
}

// A schema that is called as something that generators declare themselves makes a client that does
// not compile: these are oapi-codegen's.
func TestNoSchemaIsCalledAsWhatGeneratedClientsDeclare(t *testing.T) {
	doc := loadContract(t)
	taken := []string{"Client", "ClientInterface", "ClientOption", "ClientWithResponses", "ClientWithResponsesInterface", "HttpRequestDoer", "RequestEditorFn"}
	for _, op := range contractOperations(doc) {
		name := strings.ToUpper(op.OperationID[:1]) + op.OperationID[1:]
		taken = append(taken, name+"Params", name+"JSONBody", name+"JSONRequestBody", name+"Response")
	}
	for name := range doc.Components.Schemas {
		if slices.Contains(taken, name) {
			t.Errorf("%s", name)
		}
	}
}

// Who reads one of several kinds of objects is told by which property, and each of its values, which
// it is: generated clients do not try one after the other.
func TestKindsOfObjectsAreToldApart(t *testing.T) {
	found := 0
	walkContract(t, func(where string, schema *openapi3.Schema) {
		values := map[string][]any{} // of properties that have a list of values in each kind
		for i, kind := range schema.OneOf {
			listed := map[string][]any{}
			for name, property := range kind.Value.Properties {
				if slices.Contains(kind.Value.Required, name) && (i == 0 || values[name] != nil) && len(property.Value.Enum) > 0 {
					listed[name] = append(values[name], property.Value.Enum...)
				}
			}
			values = listed
		}
		if len(values) == 0 {
			return
		}
		found++
		if schema.Discriminator == nil {
			t.Errorf("%s has no discriminator", where)
			return
		}
		for _, value := range values[schema.Discriminator.PropertyName] {
			if _, known := schema.Discriminator.Mapping[value.(string)]; !known {
				t.Errorf("%s does not say what %s: %v is", where, schema.Discriminator.PropertyName, value)
			}
		}
		if len(values[schema.Discriminator.PropertyName]) == 0 {
			t.Errorf("%s is told apart by %s, which is no list of values", where, schema.Discriminator.PropertyName)
		}
	})
	if found < 2 {
		t.Errorf("%d choices were found", found)
	}
}
