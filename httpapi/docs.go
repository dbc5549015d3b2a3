package httpapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed docs.html.tmpl
var docsTemplate string

// The page is drawn from the contract, so it says what the server does.
type (
	docsGroup struct {
		Name       string
		Operations []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, Description, Access string
		Parameters, Fields                             []docsField
		Request                                        string // an example
		Answers                                        []docsAnswer
	}
	docsField struct {
		Name, Where, Type, Description string
		Required                       bool
	}
	docsAnswer struct {
		Status, Description, Example string
		Problem                      bool
	}
)

// renderDocs draws the API reference, a page that loads nothing else.
func renderDocs(doc *openapi3.T) ([]byte, error) {
	groups := make([]docsGroup, len(doc.Tags))
	for i, tag := range doc.Tags {
		groups[i].Name = tag.Name
	}
	for _, path := range doc.Paths.InMatchingOrder() {
		item := doc.Paths.Value(path)
		for _, method := range methods {
			op := item.GetOperation(method)
			if op == nil {
				continue
			}
			i := slices.IndexFunc(groups, func(g docsGroup) bool { return g.Name == op.Tags[0] })
			groups[i].Operations = append(groups[i].Operations, describeOperation(doc, method, path, item.Parameters, op))
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g.Operations, func(a, b docsOperation) int { return strings.Compare(a.Path, b.Path) })
	}
	page, err := template.New("docs").Funcs(template.FuncMap{"prose": prose, "slug": slug}).Parse(docsTemplate)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Info": doc.Info, "Groups": groups, "Problem": pretty(nil, doc.Components.Schemas["Problem"].Value),
		"Headers": deliveryHeaders(doc), "Deliveries": deliveries(doc),
	})
	return out.Bytes(), err
}

func describeOperation(doc *openapi3.T, method, path string, shared openapi3.Parameters, op *openapi3.Operation) docsOperation {
	d := docsOperation{
		ID: op.OperationID, Method: method, Path: path,
		Summary: op.Summary, Description: op.Description, Access: access(doc, op),
	}
	for _, p := range slices.Concat(shared, op.Parameters) {
		d.Parameters = append(d.Parameters, docsField{
			Name: p.Value.Name, Where: p.Value.In, Type: typeName(p.Value.Schema.Value) + bounds(p.Value.Schema.Value),
			Description: p.Value.Description, Required: p.Value.Required,
		})
	}
	if op.RequestBody != nil {
		for _, content := range op.RequestBody.Value.Content {
			d.Fields = fields(nil, "", content.Schema.Value)
			d.Request = pretty(content.Example, content.Schema.Value)
		}
	}
	for _, status := range sortedKeys(op.Responses.Map()) {
		response := op.Responses.Value(status).Value
		answer := docsAnswer{Status: status, Description: *response.Description, Problem: status[0] != '2'}
		if content := response.Content["application/json"]; content != nil {
			answer.Example = pretty(content.Example, content.Schema.Value)
		}
		d.Answers = append(d.Answers, answer)
	}
	return d
}

// deliveries describes the body of each event that webhooks receive.
func deliveries(doc *openapi3.T) []docsOperation {
	var list []docsOperation
	for _, one := range doc.Components.Schemas["EventDelivery"].Value.OneOf {
		list = append(list, docsOperation{
			ID:          fmt.Sprint(one.Value.Properties["event_type"].Value.Enum[0]),
			Description: one.Value.Description, Fields: fields(nil, "", one.Value), Request: pretty(nil, one.Value),
		})
	}
	return list
}

// deliveryHeaders describes the headers of a delivery.
func deliveryHeaders(doc *openapi3.T) []docsField {
	var list []docsField
	event := doc.Paths.Find("/api/v1/clients/{client_id}/webhooks").Post.Callbacks["event"].Value
	for _, item := range event.Map() {
		for _, p := range item.Post.Parameters {
			list = append(list, docsField{
				Name: p.Value.Name, Type: typeName(p.Value.Schema.Value), Description: p.Value.Description, Required: p.Value.Required,
			})
		}
	}
	return list
}

// bounds says what a value is where it is left out, and its limits.
func bounds(schema *openapi3.Schema) string {
	var out string
	if schema.Default != nil {
		out += fmt.Sprintf(", %v by default", schema.Default)
	}
	if schema.Min != nil {
		out += fmt.Sprintf(", at least %.17g", *schema.Min)
	}
	if schema.Max != nil {
		out += fmt.Sprintf(", at most %.17g", *schema.Max)
	}
	if schema.MaxLength != nil {
		out += fmt.Sprintf(", up to %d characters", *schema.MaxLength)
	}
	if schema.MaxItems != nil {
		out += fmt.Sprintf(", up to %d", *schema.MaxItems)
	}
	return out
}

// access says in words which token an operation takes.
func access(doc *openapi3.T, op *openapi3.Operation) string {
	var ways []string
	for _, names := range *op.Security {
		var needs []string
		for _, name := range sortedKeys(names) {
			needs = append(needs, doc.Components.SecuritySchemes[name].Value.Description)
		}
		ways = append(ways, strings.ToLower(strings.TrimSuffix(strings.Join(needs, " and "), ".")))
	}
	if len(ways) == 0 {
		return "no token"
	}
	return strings.ReplaceAll(strings.Join(ways, ", or "), ". and a token", ", which is")
}

// fields lists what a body may hold; nested names are joined by dots.
func fields(rows []docsField, prefix string, schema *openapi3.Schema) []docsField {
	for _, name := range sortedKeys(schema.Properties) {
		child := schema.Properties[name].Value
		rows = append(rows, docsField{
			Name: prefix + name, Type: typeName(child) + bounds(child), Description: child.Description,
			Required: slices.Contains(schema.Required, name),
		})
		rows = fields(rows, prefix+name+".", child)
	}
	return rows
}

func typeName(schema *openapi3.Schema) string {
	switch {
	case len(schema.Enum) > 0:
		return oneOf(schema.Enum)
	case schema.Type.Is(openapi3.TypeArray):
		return "array of " + typeName(schema.Items.Value)
	case schema.Format == "date-time":
		return "time"
	case len(schema.Type.Slice()) == 1:
		return schema.Type.Slice()[0]
	}
	return "any"
}

// pretty writes an example: the given one, or one made up from the schema.
func pretty(given any, schema *openapi3.Schema) string {
	if text, ok := given.(string); ok {
		return strings.TrimSpace(text)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if given == nil {
		given = example(schema)
	}
	if err := encoder.Encode(given); err != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}

func example(schema *openapi3.Schema) any {
	switch {
	case schema.Example != nil:
		return schema.Example
	case len(schema.Enum) > 0:
		return schema.Enum[0]
	case schema.Nullable:
		return nil
	case schema.Type.Is(openapi3.TypeObject):
		object := make(map[string]any, len(schema.Properties))
		for _, name := range sortedKeys(schema.Properties) {
			if schema.MaxProps == nil || uint64(len(object)) < *schema.MaxProps {
				object[name] = example(schema.Properties[name].Value)
			}
		}
		return object
	case schema.Type.Is(openapi3.TypeArray):
		return []any{example(schema.Items.Value)}
	case schema.Type.Is(openapi3.TypeBoolean):
		return true
	case schema.Type.Is(openapi3.TypeInteger), schema.Type.Is(openapi3.TypeNumber):
		if schema.Min != nil {
			return max(1, *schema.Min)
		}
		return 1
	}
	return "…"
}

// prose draws the little Markdown that the contract uses.
func prose(text string) template.HTML {
	code := regexp.MustCompile("`([^`]+)`")
	bold := regexp.MustCompile(`\*\*([^*]+)\*\*`)
	var out strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		safe := template.HTMLEscapeString(paragraph)
		safe = code.ReplaceAllString(safe, "<code>$1</code>")
		safe = bold.ReplaceAllString(safe, "<strong>$1</strong>")
		fmt.Fprintf(&out, "<p>%s</p>\n", safe)
	}
	return template.HTML(out.String()) //nolint:gosec // escaped above, and our own words
}

func slug(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "-") }
