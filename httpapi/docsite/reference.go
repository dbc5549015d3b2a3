package docsite

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// reference is where the API reference is served.
const reference = home + "/api"

//go:embed reference.html.tmpl
var referenceTemplate string

// The reference is drawn from the contract, so it says what the server does.
type (
	group struct {
		Name       string
		Operations []operation
	}
	operation struct {
		ID, Method, Path, Summary, Description, Access string
		Parameters, Fields                             []field
		Request                                        string // an example of the body
		Call                                           string // the same as a command
		Answers                                        []answer
	}
	field struct {
		Name, Where, Type, Limits, Description string
		Required                               bool
	}
	answer struct {
		Status, Name, Description, Example string
		Problem                            bool
	}
)

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// operations lists what a contract has, by tag and path.
func operations(doc *openapi3.T) []group {
	groups := make([]group, len(doc.Tags))
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
			i := slices.IndexFunc(groups, func(g group) bool { return g.Name == op.Tags[0] })
			groups[i].Operations = append(groups[i].Operations, describe(doc, method, path, item.Parameters, op))
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g.Operations, func(a, b operation) int { return strings.Compare(a.Path, b.Path) })
	}
	return groups
}

func drawReference(doc *openapi3.T, groups []group) (template.HTML, error) {
	page, err := template.New("reference").Funcs(template.FuncMap{"prose": prose, "slug": slug}).Parse(referenceTemplate)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Intro": intro(doc.Info.Description), "Groups": groups, "Problem": pretty(nil, doc.Components.Schemas["Problem"].Value),
		"Headers": deliveryHeaders(doc), "Deliveries": deliveries(doc),
	})
	return template.HTML(out.String()), err //nolint:gosec // escaped by the template
}

// intro is what a contract says of all operations, without its lists of codes by
// status: the page of errors explains each.
func intro(description string) string {
	var kept []string
	for paragraph := range strings.SplitSeq(description, "\n\n") {
		if !regexp.MustCompile(`^\d{3} `).MatchString(strings.TrimSpace(paragraph)) {
			kept = append(kept, strings.ReplaceAll(paragraph, " The codes, by status:", ""))
		}
	}
	return strings.Join(kept, "\n\n")
}

// operationsIndex lists the operations at the end of the home page, under the
// anchors that they had when the reference stood there.
func operationsIndex(groups []group) template.HTML {
	var out strings.Builder
	out.WriteString("<h2 id=\"operations\">All operations</h2>\n<div class=\"index\">\n")
	for _, g := range groups {
		fmt.Fprintf(&out, "<section id=\"%s\"><h3>%s</h3><ul>\n", slug(g.Name), template.HTMLEscapeString(g.Name))
		for _, op := range g.Operations {
			fmt.Fprintf(&out, "<li id=\"%s\"><a href=\"%s#%[1]s\">%[3]s</a></li>\n", op.ID, reference, template.HTMLEscapeString(op.Summary))
		}
		out.WriteString("</ul></section>\n")
	}
	out.WriteString("</div>\n")
	return template.HTML(out.String()) //nolint:gosec // escaped above
}

// referenceSections is what a search finds of the reference.
func referenceSections(groups []group) []section {
	var list []section
	for _, g := range groups {
		for _, op := range g.Operations {
			words := []string{op.Method, op.Path, op.Description}
			for _, f := range slices.Concat(op.Parameters, op.Fields) {
				words = append(words, f.Name, f.Description)
			}
			for _, a := range op.Answers {
				if !a.Problem { // those are the same for all
					words = append(words, a.Description)
				}
			}
			text := strings.ReplaceAll(strings.Join(words, " "), "`", "")
			list = append(list, section{page: "API reference", title: op.Summary, url: reference + "#" + op.ID, text: text})
		}
	}
	return list
}

func describe(doc *openapi3.T, method, path string, shared openapi3.Parameters, op *openapi3.Operation) operation {
	d := operation{
		ID: op.OperationID, Method: method, Path: path,
		Summary: op.Summary, Description: op.Description, Access: access(doc, op),
	}
	for _, p := range slices.Concat(shared, op.Parameters) {
		schema := p.Value.Schema.Value
		d.Parameters = append(d.Parameters, field{
			Name: p.Value.Name, Where: p.Value.In, Type: typeName(schema), Limits: bounds(schema),
			Description: p.Value.Description, Required: p.Value.Required,
		})
	}
	mediaType := ""
	if op.RequestBody != nil {
		for name, content := range op.RequestBody.Value.Content {
			mediaType = name
			d.Fields = fields(nil, "", content.Schema.Value)
			d.Request = pretty(content.Example, content.Schema.Value)
		}
	}
	d.Call = call(d, mediaType, len(*op.Security) > 0)
	for _, status := range slices.Sorted(maps.Keys(op.Responses.Map())) {
		response := op.Responses.Value(status).Value
		a := answer{Status: status, Description: *response.Description, Problem: status[0] != '2'}
		if a.Problem {
			a.Name = "problem"
		}
		if content := response.Content["application/json"]; content != nil {
			a.Example = pretty(content.Example, content.Schema.Value)
		}
		d.Answers = append(d.Answers, a)
	}
	return d
}

// call writes a request as a command for the variables that the guide sets.
func call(d operation, mediaType string, token bool) string {
	var parts []string
	path := strings.NewReplacer("{client_id}", "$CLIENT", "{user_id}", "ext:u1").Replace(d.Path)
	path = regexp.MustCompile(`\{(\w+?)(_id)?\}`).ReplaceAllStringFunc(path, func(name string) string {
		return "$" + strings.ToUpper(strings.TrimSuffix(strings.Trim(name, "{}"), "_id"))
	})
	if strings.Contains(d.Path, "external_id") {
		path = strings.Replace(path, "$EXTERNAL", "u1", 1)
	}
	var query []string
	for _, p := range d.Parameters {
		if p.Where == "query" && p.Required {
			query = append(query, p.Name+"=…")
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	first := `curl -s "$B` + path + `"`
	switch {
	case d.Method == http.MethodPost && d.Request != "", d.Method == http.MethodGet:
	default:
		first = "curl -s -X " + d.Method + ` "$B` + path + `"`
	}
	parts = append(parts, first)
	if token {
		parts = append(parts, `-H "Authorization: Bearer $TOKEN"`)
	}
	if d.Request != "" {
		parts = append(parts, `-H "Content-Type: `+mediaType+`"`)
		if mediaType == "application/json" {
			parts = append(parts, "-d '"+strings.ReplaceAll(d.Request, "'", `'\''`)+"'")
		} else {
			parts = append(parts, "--data-binary @users.ndjson")
		}
	}
	return strings.Join(parts, " \\\n  ")
}

// deliveries describes the body of each event that webhooks receive.
func deliveries(doc *openapi3.T) []operation {
	var list []operation
	for _, one := range doc.Components.Schemas["EventDelivery"].Value.OneOf {
		list = append(list, operation{
			ID:          fmt.Sprint(one.Value.Properties["event_type"].Value.Enum[0]),
			Description: one.Value.Description, Fields: fields(nil, "", one.Value), Request: pretty(nil, one.Value),
		})
	}
	return list
}

// deliveryHeaders describes the headers of a delivery.
func deliveryHeaders(doc *openapi3.T) []field {
	var list []field
	event := doc.Paths.Find("/api/v1/clients/{client_id}/webhooks").Post.Callbacks["event"].Value
	for _, item := range event.Map() {
		for _, p := range item.Post.Parameters {
			list = append(list, field{
				Name: p.Value.Name, Type: typeName(p.Value.Schema.Value), Description: p.Value.Description, Required: p.Value.Required,
			})
		}
	}
	return list
}

// bounds says what a value is where it is left out, and its limits.
func bounds(schema *openapi3.Schema) string {
	var out []string
	if schema.Default != nil {
		out = append(out, fmt.Sprintf("%v by default", schema.Default))
	}
	if schema.Min != nil {
		out = append(out, fmt.Sprintf("at least %.17g", *schema.Min))
	}
	if schema.Max != nil {
		out = append(out, fmt.Sprintf("at most %.17g", *schema.Max))
	}
	if schema.MaxLength != nil {
		out = append(out, fmt.Sprintf("up to %d characters", *schema.MaxLength))
	}
	if schema.MaxItems != nil {
		out = append(out, fmt.Sprintf("up to %d", *schema.MaxItems))
	}
	return strings.Join(out, ", ")
}

// access says in words which token an operation takes.
func access(doc *openapi3.T, op *openapi3.Operation) string {
	var ways []string
	for _, names := range *op.Security {
		var needs []string
		for _, name := range slices.Sorted(maps.Keys(names)) {
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
func fields(rows []field, prefix string, schema *openapi3.Schema) []field {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		child := schema.Properties[name].Value
		rows = append(rows, field{
			Name: prefix + name, Type: typeName(child), Limits: bounds(child), Description: child.Description,
			Required: slices.Contains(schema.Required, name),
		})
		rows = fields(rows, prefix+name+".", child)
	}
	return rows
}

func typeName(schema *openapi3.Schema) string {
	switch {
	case len(schema.Enum) > 0:
		return "one of " + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(schema.Enum), "[]")), ", ")
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
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
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
