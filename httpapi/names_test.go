package httpapi_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred/domain/id"
	"kindred/golden"
	"kindred/httpapi"
)

func TestOperationsTheirScopesAndTheirParametersStay(t *testing.T) {
	var lines []string
	doc := loadContract(t)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			at := method + " " + path
			lines = append(lines, at+" is "+op.OperationID)
			for _, ways := range *op.Security {
				var needs []string
				for _, name := range slices.Sorted(maps.Keys(ways)) {
					if scope := doc.Components.SecuritySchemes[name].Value.Extensions["x-scope"]; scope != nil {
						name = fmt.Sprint("scope ", scope)
					}
					needs = append(needs, name)
				}
				lines = append(lines, at+" allowed to "+strings.Join(needs, " and "))
			}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				lines = append(lines, fmt.Sprintf("%s takes %s %s", at, p.Value.In, p.Value.Name))
			}
			if op.RequestBody != nil {
				for media := range op.RequestBody.Value.Content {
					lines = append(lines, at+" takes "+media)
				}
			}
			for status, response := range op.Responses.Map() {
				for header := range response.Value.Headers {
					lines = append(lines, "some answers "+status+" have "+header)
				}
				if status[0] != '2' {
					continue // a problem
				}
				lines = append(lines, at+" answers "+status)
				for media := range response.Value.Content {
					lines = append(lines, at+" answers "+status+" "+media)
				}
				for header := range response.Value.Headers {
					lines = append(lines, at+" answers "+status+" with "+header)
				}
			}
		}
	}
	golden.Check(t, "operations.txt", lines)
}

// What a body is called in the contract may change; where its fields are may not.
func TestFieldsOfBodiesStay(t *testing.T) {
	var lines []string
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			at := method + " " + path
			if op.RequestBody != nil {
				for _, content := range op.RequestBody.Value.Content {
					lines = append(lines, fieldsOf(at+" takes ", content.Schema.Value, 0)...)
				}
			}
			for status, response := range op.Responses.Map() {
				for _, content := range response.Value.Content {
					if status[0] == '2' {
						lines = append(lines, fieldsOf(at+" answers ", content.Schema.Value, 0)...)
					}
				}
			}
		}
	}
	problem := loadContract(t).Components.Schemas["Problem"].Value
	for _, line := range fieldsOf("problem ", problem, 0) {
		if !strings.HasPrefix(line, "problem code = ") { // see codes.txt
			lines = append(lines, line)
		}
	}
	golden.Check(t, "fields.txt", lines)
}

// fieldsOf lists the fields of a value with their types, and the words that they
// may hold; an array counts as one of its items.
func fieldsOf(at string, s *openapi3.Schema, depth int) (lines []string) {
	if depth > 12 {
		return nil // it holds itself
	}
	for _, word := range s.Enum {
		lines = append(lines, fmt.Sprintf("%s = %v", strings.TrimSuffix(at, "."), word))
	}
	for name, child := range s.Properties {
		kind := "any"
		if child.Value.Type != nil {
			kind = strings.Join(child.Value.Type.Slice(), "|")
		}
		lines = append(lines, at+name+" "+kind)
		lines = append(lines, fieldsOf(at+name+".", child.Value, depth+1)...)
	}
	if s.Items != nil {
		lines = append(lines, fieldsOf(at, s.Items.Value, depth+1)...)
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		lines = append(lines, fieldsOf(at, part.Value, depth+1)...)
	}
	if s.AdditionalProperties.Schema != nil {
		lines = append(lines, fieldsOf(at+"*.", s.AdditionalProperties.Schema.Value, depth+1)...)
	}
	return lines
}

// TestTheContractNamesEveryCode says that the contract lists what the code makes.
func TestCodesOfProblemsAndTheirStatusesStay(t *testing.T) {
	var lines []string
	for code := range namedCodes(t) {
		lines = append(lines, code)
	}
	golden.Check(t, "codes.txt", lines)
}

func TestCursorsAndEntityTagsStay(t *testing.T) {
	c := httpapi.Cursors{Key: bytes.Repeat([]byte{7}, 32)}
	golden.Check(t, "cursors.txt", []string{
		"cursor " + c.Encode(id.From[id.Client]([16]byte{7}), "users", "0000000000000007"),
		"entity tag of revision 7 " + httpapi.ETag(7),
	})
}

// What was enough once is enough for ever: a line that would go is a request that
// was taken and would be refused.
func TestWhatRequestsMustHaveAndMayHaveStay(t *testing.T) {
	var lines []string
	for path, item := range loadContract(t).Paths.Map() {
		for method, op := range item.Operations() {
			at := method + " " + path
			enough := []string{}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				if p.Value.Required && p.Value.In != "path" {
					enough = append(enough, p.Value.In+" "+p.Value.Name)
				}
				lines = append(lines, boundsOf(at+" "+p.Value.In+" "+p.Value.Name, p.Value.Schema.Value, 0)...)
			}
			if op.RequestBody != nil {
				if op.RequestBody.Value.Required {
					enough = append(enough, "a body")
				}
				for _, content := range op.RequestBody.Value.Content {
					lines = append(lines, boundsOf(at+" body", content.Schema.Value, 0)...)
				}
			}
			slices.Sort(enough)
			lines = append(lines, at+" is enough with ["+strings.Join(enough, ", ")+"]")
		}
	}
	golden.Check(t, "demands.txt", lines)
}

func boundsOf(at string, s *openapi3.Schema, depth int) (lines []string) {
	if depth > 6 {
		return nil
	}
	if len(s.Properties) > 0 && len(s.OneOf) == 0 {
		lines = append(lines, at+" is enough with ["+strings.Join(slices.Sorted(slices.Values(s.Required)), ", ")+"]")
	}
	for name, bound := range map[string]*uint64{"characters": s.MaxLength, "items": s.MaxItems, "fields": s.MaxProps} {
		if bound != nil {
			lines = append(lines, fmt.Sprintf("%s takes up to %d %s", at, *bound, name))
		}
	}
	if s.Max != nil {
		lines = append(lines, fmt.Sprintf("%s takes up to %v", at, *s.Max))
	}
	if s.Min != nil {
		lines = append(lines, fmt.Sprintf("%s takes down to %v", at, *s.Min))
	}
	if s.MinLength > 0 || s.MinItems > 0 {
		lines = append(lines, fmt.Sprintf("%s takes %d or more", at, max(s.MinLength, s.MinItems)))
	}
	if s.Pattern != "" {
		lines = append(lines, at+" matches "+s.Pattern)
	}
	for name, property := range s.Properties {
		lines = append(lines, boundsOf(at+" "+name, property.Value, depth+1)...)
	}
	if s.Items != nil {
		lines = append(lines, boundsOf(at+" each", s.Items.Value, depth+1)...)
	}
	return lines
}
