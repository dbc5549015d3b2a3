package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// contract is what openapi.yaml says, as the three emitters need it.
type contract struct {
	Resources []resource
	Types     []*named
	Codes     []string // of problems
	byName    map[string]*named
}

// resource groups the operations of one tag.
type resource struct {
	Words      []string // of its name, in lower case
	About      string
	Operations []operation
}

// operation is one method of a resource.
type operation struct {
	ID, Method, Path string
	Words            []string // of its method's name
	Summary, About   string

	PathParameters []parameter // without the client's id, which the token tells
	Query          []parameter // without cursor and limit for lists
	Body           *typ
	BodyRequired   bool
	Lines          bool // the body is a stream of lines
	Answer         *typ // nil where there is none
	Later          *typ // the answer with async=true
	Item           *typ // what a list holds
	Pulls          bool // a page goes on behind the last id of the one before
	Streams        bool // the answer is Server-Sent Events
	Exports        bool // the answer may be a stream of lines
	CSV            bool // the answer may be CSV

	Errors []string // the statuses of its documented refusals

	TakesKey, IfMatch, IfNoneMatch, Eventual, Open bool
}

// ofCSV are the parameters that an answer of CSV takes: it has no pages.
func (o operation) ofCSV() []parameter {
	return slices.DeleteFunc(slices.Clone(o.Query), func(p parameter) bool { return p.Name == "limit" || p.Name == "cursor" })
}

type parameter struct {
	Name, About string
	Type        *typ
	Required    bool
}

// typ is a type in place. Exactly one of its kinds holds.
type typ struct {
	Kind     kind
	Name     string   // of a named type
	Values   []string // of an enumeration in place
	Element  *typ     // of an array or a map
	Nullable bool
}

type kind int

const (
	text kind = iota
	integer
	number
	boolean
	timestamp
	anything
	array
	dictionary
	reference
)

// named is a type with a name: an object, an enumeration or a union.
type named struct {
	Name, About string
	Fields      []field
	Values      []string
	Union       []*typ
	ofUnion     bool // it is a member of PublicEvent
}

type field struct {
	Name, About string
	Type        *typ
	Required    bool
}

// nouns are what a method's name leaves out, since its resource says it.
var nouns = map[string][]string{
	"History":     {"History"},
	"Projections": {"Projections", "Projection"},
	"Client":      {"Client"},
	"Members":     {"Members", "Member"},
	"API keys":    {"APIKeys", "APIKey"},
	"Webhooks":    {"Webhooks", "Webhook"},
	"Users":       {"Users", "User"},
	"Matches":     {"Matches"},
	"Feed":        {"Feed"},
	"Consent":     {"Consents", "Consent"},
	"Sandboxes":   {"Sandboxes", "Sandbox"},
	"Segments":    {"Segments", "Segment"},
	"Traits":      {"Traits"},
	"Campaigns":   {"Campaigns", "Campaign"},
	"Clusters":    {"Clusters", "Cluster"},
	"Events":      {"Events"},
}

// renamed are the methods whose short name another one has.
var renamed = map[string]string{"grantConsents": "grantMany", "withdrawConsents": "withdrawMany"}

func read(doc *openapi3.T) (*contract, error) {
	c := &contract{byName: map[string]*named{}}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		c.declare(name, doc.Components.Schemas[name].Value)
	}
	c.Codes = stringsOf(doc.Components.Schemas["ProblemCode"].Value.Enum)
	for _, tag := range doc.Tags {
		r := resource{Words: words(tag.Name), About: tag.Description}
		if err := c.operations(doc, tag.Name, &r); err != nil {
			return nil, err
		}
		c.Resources = append(c.Resources, r)
	}
	c.tellEventsApart()
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		c.Types = append(c.Types, c.byName[name])
	}
	return c, nil
}

// tellEventsApart makes PublicEvent a union with a member for each of EventDelivery:
// the contract leaves open what its data is, which event_type says.
func (c *contract) tellEventsApart() {
	event := c.byName["PublicEvent"]
	for _, body := range c.byName["EventDelivery"].Union {
		delivery := c.byName[body.Name]
		n := &named{Name: strings.TrimSuffix(body.Name, "Delivery") + "Event", About: delivery.About, ofUnion: true}
		for _, f := range event.Fields {
			for _, of := range delivery.Fields {
				if of.Name == f.Name {
					f.Type = of.Type
				}
			}
			n.Fields = append(n.Fields, f)
		}
		c.byName[n.Name] = n
		event.Union = append(event.Union, &typ{Kind: reference, Name: n.Name})
	}
}

func (c *contract) operations(doc *openapi3.T, tag string, r *resource) error {
	taken := map[string]string{}
	for _, path := range doc.Paths.InMatchingOrder() {
		item := doc.Paths.Value(path)
		for method, o := range item.Operations() {
			if !slices.Contains(o.Tags, tag) {
				continue
			}
			one, err := c.operation(method, path, tag, item, o)
			if err != nil {
				return fmt.Errorf("%s: %w", o.OperationID, err)
			}
			name := strings.Join(one.Words, " ")
			if taken[name] != "" {
				return fmt.Errorf("%s and %s are both called %s", taken[name], o.OperationID, name)
			}
			taken[name] = o.OperationID
			r.Operations = append(r.Operations, one)
		}
	}
	slices.SortFunc(r.Operations, func(a, b operation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return nil
}

// streams says whether an operation answers Server-Sent Events.
func streams(o *openapi3.Operation) bool {
	ok := o.Responses.Value("200")
	return ok != nil && ok.Value.Content["text/event-stream"] != nil
}

func (c *contract) operation(method, path, tag string, item *openapi3.PathItem, o *openapi3.Operation) (operation, error) {
	one := operation{
		ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, About: o.Description,
		Words: methodWords(tag, o.OperationID), Streams: streams(o), Open: o.Security != nil && len(*o.Security) == 0,
	}
	for _, ref := range slices.Concat(item.Parameters, o.Parameters) {
		p := ref.Value
		typed := parameter{p.Name, p.Description, c.typeOf(p.Schema, o.OperationID+exported(words(p.Name))), p.Required}
		switch p.In + " " + p.Name {
		case "path client_id":
		case "header X-Kindred-Consistency":
			one.Eventual = true
		case "header Idempotency-Key":
			one.TakesKey = true
		case "header Last-Event-ID": // sent by what reads the stream
		case "header If-Match":
			one.IfMatch = true
		case "header If-None-Match":
			one.IfNoneMatch = true
		default:
			switch p.In {
			case "path":
				one.PathParameters = append(one.PathParameters, typed)
			case "query":
				one.Query = append(one.Query, typed)
			default:
				return one, fmt.Errorf("the header %s is known to no emitter", p.Name)
			}
		}
	}
	order := regexp.MustCompile(`{(\w+)}`).FindAllString(path, -1)
	slices.SortFunc(one.PathParameters, func(a, b parameter) int {
		return cmp.Compare(slices.Index(order, "{"+a.Name+"}"), slices.Index(order, "{"+b.Name+"}"))
	})
	if o.RequestBody != nil {
		body := o.RequestBody.Value
		one.BodyRequired = body.Required
		if media := body.Content["application/json"]; media != nil {
			one.Body = c.typeOf(media.Schema, exported(words(o.OperationID))+"Body")
		} else if body.Content["application/x-ndjson"] != nil {
			one.Lines = true
		} else {
			return one, fmt.Errorf("its body is of a type that is known to no emitter")
		}
	}
	c.answers(&one, o)
	if one.Later != nil {
		one.Query = slices.DeleteFunc(one.Query, func(p parameter) bool { return p.Name == "async" })
	}
	return one, nil
}

func (c *contract) answers(one *operation, o *openapi3.Operation) {
	for _, status := range slices.Sorted(maps.Keys(o.Responses.Map())) {
		if status[0] == '4' || status[0] == '5' {
			one.Errors = append(one.Errors, status)
		}
	}
	for _, status := range []string{"200", "201", "202"} {
		ref := o.Responses.Value(status)
		if ref == nil {
			continue
		}
		if ref.Value.Content["application/x-ndjson"] != nil {
			one.Exports = true
		}
		one.CSV = one.CSV || ref.Value.Content["text/csv"] != nil
		media := ref.Value.Content["application/json"]
		if media == nil {
			continue
		}
		t := c.typeOf(media.Schema, exported(words(o.OperationID))+"Answer")
		switch {
		case one.Answer == nil:
			one.Answer = t
		case t.Name != one.Answer.Name:
			one.Later = t
		}
	}
	if one.Answer == nil || one.Answer.Kind != reference {
		return
	}
	paged := false
	var item *typ
	for _, f := range c.byName[one.Answer.Name].Fields {
		paged = paged || f.Name == "next_cursor"
		one.Pulls = one.Pulls || f.Name == "last_id"
		if f.Name == "data" && f.Type.Kind == array {
			item = f.Type.Element
		}
	}
	if paged {
		one.Item = item
	}
}

// declare adds a schema of the contract that needs a name.
func (c *contract) declare(name string, s *openapi3.Schema) {
	if name == "ProblemCode" || c.byName[name] != nil || !needsName(s) {
		return
	}
	n := &named{Name: name, About: s.Description, Values: stringsOf(s.Enum)}
	c.byName[name] = n
	if s.Type == nil && len(s.OneOf) > 0 {
		for _, one := range s.OneOf {
			n.Union = append(n.Union, c.typeOf(one, ""))
		}
		return
	}
	for _, property := range slices.Sorted(maps.Keys(s.Properties)) {
		ref := s.Properties[property]
		n.Fields = append(n.Fields, field{
			property, ref.Value.Description, c.typeOf(ref, name+exported(words(property))),
			slices.Contains(s.Required, property),
		})
	}
	slices.SortStableFunc(n.Fields, func(a, b field) int {
		return cmp.Compare(one(b.Required), one(a.Required))
	})
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func needsName(s *openapi3.Schema) bool {
	return len(s.Properties) > 0 || s.Type.Is("string") && len(s.Enum) > 0 || s.Type == nil && len(s.OneOf) > 0
}

// typeOf is the type of a schema in place; within is the name that an object
// without one gets.
func (c *contract) typeOf(ref *openapi3.SchemaRef, within string) *typ {
	s := ref.Value
	t := &typ{Nullable: s.Nullable}
	name := ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]
	switch {
	case name == "ProblemCode":
		t.Kind, t.Name = reference, name
	case name != "" && needsName(s):
		c.declare(name, s)
		t.Kind, t.Name = reference, name
	case len(s.Properties) > 0:
		c.declare(within, s)
		t.Kind, t.Name = reference, within
	case s.Type.Is("string"):
		t.Values = stringsOf(s.Enum)
		if s.Format == "date-time" {
			t.Kind = timestamp
		}
	case s.Type.Is("integer"):
		t.Kind = integer
	case s.Type.Is("number"):
		t.Kind = number
	case s.Type.Is("boolean"):
		t.Kind = boolean
	case s.Type.Is("array"):
		t.Kind, t.Element = array, c.typeOf(s.Items, within+"Item")
	case s.Type.Is("object"):
		t.Kind, t.Element = dictionary, &typ{Kind: anything}
		if s.AdditionalProperties.Schema != nil {
			t.Element = c.typeOf(s.AdditionalProperties.Schema, within+"Value")
		}
	default:
		t.Kind = anything
	}
	return t
}

func stringsOf(values []any) []string {
	var list []string
	for _, v := range values {
		if s, ok := v.(string); ok {
			list = append(list, s)
		}
	}
	return list
}

func methodWords(tag, id string) []string {
	if name := renamed[id]; name != "" {
		return words(name)
	}
	for _, noun := range nouns[tag] {
		at := strings.Index(id, noun)
		end := at + len(noun)
		if at > 0 && (end == len(id) || id[end] >= 'A' && id[end] <= 'Z') {
			return words(id[:at] + id[end:])
		}
	}
	return words(id)
}

var wordPattern = regexp.MustCompile(`[A-Z]+(?:[^A-Za-z0-9]|$)|API(?:s\b)?|JWKS|[A-Z]?[a-z0-9]+|[A-Z]+`)

// words splits a name of any form.
func words(name string) []string {
	var list []string
	for _, w := range wordPattern.FindAllString(name, -1) {
		list = append(list, strings.ToLower(strings.Trim(w, "_- .")))
	}
	return list
}

// exported writes words as Go names what is exported.
func exported(list []string) string {
	var b strings.Builder
	for _, w := range list {
		switch w {
		case "id", "url", "api", "jwks", "eta", "k", "ip":
			b.WriteString(strings.ToUpper(w))
		case "ids":
			b.WriteString("IDs")
		default:
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	return b.String()
}

func camel(list []string) string {
	name := list[0]
	for _, w := range list[1:] {
		name += strings.ToUpper(w[:1]) + w[1:]
	}
	return name
}

func snake(list []string) string { return strings.Join(list, "_") }
