package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"kindred/domain/fault"
)

// maxFields bounds how many things an answer says are wrong.
// limit: requests | faults that one answer names | {maxFields} | the rest is left out
const maxFields = 50

// validateBody checks JSON against a schema and refuses it with all that is wrong,
// after what checkJSON has told of it, if anything.
func validateBody(schema *openapi3.Schema, body []byte, told error) error {
	if told != nil && !fault.Of(told, fault.Invalid) {
		return told // nobody can read it
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return fault.New(fault.Unreadable, "invalid_json", "The body is not valid JSON.")
	}
	var wrong []fault.Field
	for _, part := range partsOf(schema) {
		if err := part.VisitJSON(value, openapi3.MultiErrors()); err != nil {
			wrong = describe(wrong, nil, err)
		}
	}
	if len(wrong) == 0 {
		return told
	}
	return also(told, wrong)
}

// partsOf is a schema without its alternatives, and these: the validator names no field where
// none of them fits.
func partsOf(schema *openapi3.Schema) []*openapi3.Schema {
	if len(schema.OneOf) == 0 {
		return []*openapi3.Schema{schema}
	}
	fields := *schema
	fields.OneOf = nil
	return []*openapi3.Schema{&fields, {OneOf: schema.OneOf, Description: schema.Description}}
}

// also is what is told already, and what is wrong at other places.
func also(told error, wrong []fault.Field) error {
	if told == nil {
		return fault.NewInvalid(wrong...)
	}
	first := fault.As(told).Fields
	wrong = slices.DeleteFunc(wrong, func(w fault.Field) bool {
		return slices.ContainsFunc(first, func(f fault.Field) bool { return f.Pointer == w.Pointer })
	})
	all := slices.Concat(first, wrong)
	return fault.NewInvalid(all[:min(len(all), maxFields)]...)
}

// validateQuery checks the query of a request. Parameters that the operation
// does not know are refused by name.
func validateQuery(r *http.Request, op *operation) error {
	if r.URL.RawQuery == "" && !slices.ContainsFunc(op.query, func(p *openapi3.Parameter) bool { return p.Required }) {
		return nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fault.New(fault.Unreadable, "invalid_query", "The query string cannot be read.")
	}
	var wrong []fault.Field
	for _, name := range sortedKeys(query) {
		known := slices.ContainsFunc(op.query, func(p *openapi3.Parameter) bool { return p.Name == name })
		text := query[name][0]
		if name == "filter" { // a rule may stand on several lines, as it may in a body
			text = layout.Replace(text)
		}
		switch {
		case !known:
			wrong = append(wrong, fault.Field{Pointer: clip(name), Detail: "is not a known parameter"})
		case len(query[name]) > 1:
			wrong = append(wrong, fault.Field{Pointer: name, Detail: "is given more than once"})
		case !clean(text):
			wrong = append(wrong, fault.Field{Pointer: name, Detail: "holds control characters or is not valid UTF-8"})
		}
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, QueryParams: query,
		Options: &openapi3filter.Options{MultiError: true, SkipSettingDefaults: true},
	}
	for _, p := range op.query {
		if err := openapi3filter.ValidateParameter(r.Context(), input, p); err != nil {
			wrong = append(wrong, describeParameter(p, err)...)
		}
	}
	if len(wrong) > 0 {
		return fault.NewInvalid(wrong[:min(len(wrong), maxFields)]...)
	}
	return nil
}

// layout takes out what rules may be laid out with.
var layout = strings.NewReplacer("\n", "", "\r", "", "\t", "")

func describeParameter(p *openapi3.Parameter, err error) []fault.Field {
	if _, ok := errors.AsType[*openapi3.SchemaError](err); !ok {
		detail := "must not be empty"
		if _, ok := errors.AsType[*openapi3filter.ParseError](err); ok {
			detail = mustBe(p.Schema.Value)
		} else if errors.Is(err, openapi3filter.ErrInvalidRequired) {
			detail = "is required"
		}
		return []fault.Field{{Pointer: p.Name, Detail: detail}}
	}
	fields := describe(nil, nil, errors.Unwrap(err))
	for i, f := range fields {
		fields[i].Pointer = p.Name + f.Pointer
	}
	return fields
}

// describe appends what a failed validation found, in words that repeat no
// value of the caller's.
func describe(fields []fault.Field, base []string, err error) []fault.Field {
	if len(fields) == maxFields {
		return fields
	}
	switch err := err.(type) { //nolint:errorlint // the validator's own tree, which wraps nothing
	case openapi3.MultiError:
		for _, e := range err {
			fields = describe(fields, base, e)
		}
		return fields
	case *openapi3.SchemaError:
		if err.SchemaField == "oneOf" && chosen(err.Origin) {
			return fields
		}
		path, detail := explain(err)
		return append(fields, fault.Field{Pointer: pointer(append(base, path...)), Detail: detail})
	default:
		return append(fields, fault.Field{Pointer: pointer(base), Detail: "is not valid"})
	}
}

// chosen says whether what fits no branch of a union has the fields of one of them: what is wrong is then in these, and is
// told of them.
func chosen(branches error) bool {
	failed, _ := errors.AsType[openapi3.MultiError](branches)
	return slices.ContainsFunc(failed, func(branch error) bool { return !hasOtherFields(branch) })
}

// hasOtherFields says whether a branch of a union failed since a field is missing, or there is one that it does not take.
func hasOtherFields(branch error) bool {
	switch err := branch.(type) { //nolint:errorlint // as in describe
	case openapi3.MultiError:
		return slices.ContainsFunc(err, hasOtherFields)
	case *openapi3.SchemaError:
		return err.SchemaField == "required" || err.SchemaField == "not"
	}
	return true
}

// explain says where and what is wrong.
func explain(err *openapi3.SchemaError) (path []string, detail string) {
	path, schema := err.JSONPointer(), err.Schema
	switch err.SchemaField {
	case "required":
		return path, "is required"
	case "properties": // the name stands in the reason only
		quoted, _, _ := strings.Cut(strings.TrimPrefix(err.Reason, "property "), " is unsupported")
		if name, err := strconv.Unquote(quoted); err == nil {
			path = append(path, name)
		}
		return path, "is not a known field"
	case "type", "format":
		return path, mustBe(schema)
	case "nullable":
		return path, "must not be null"
	case "enum":
		return path, "must be one of " + oneOf(schema.Enum)
	case "minLength", "minItems":
		least := max(schema.MinLength, schema.MinItems)
		if least == 1 {
			return path, "must not be empty"
		}
		return path, fmt.Sprintf("must have at least %d %s", least, units(schema))
	case "maxLength":
		return path, fmt.Sprintf("must have at most %d %s", *schema.MaxLength, units(schema))
	case "maxItems":
		return path, fmt.Sprintf("must have at most %d items", *schema.MaxItems)
	case "maxProperties":
		return path, fmt.Sprintf("must have at most %d fields", *schema.MaxProps)
	case "uniqueItems":
		return path, "must not hold an item twice"
	case "minimum":
		return path, "must be at least " + strconv.FormatFloat(*schema.Min, 'f', -1, 64)
	case "maximum":
		return path, "must be at most " + strconv.FormatFloat(*schema.Max, 'f', -1, 64)
	case "pattern":
		if schema.Pattern == plainText {
			return path, "holds control characters"
		}
		if schema.Description != "" {
			return path, "must be " + asClause(schema.Description)
		}
	case "oneOf":
		if schema.Description != "" {
			return path, asClause(schema.Description)
		}
	}
	return path, "is not valid"
}

// plainText is the pattern of texts without control characters.
const plainText = `^[^\x00-\x1f\x7f-\x9f]*$`

// asClause makes a description go on with a sentence.
func asClause(description string) string {
	first, size := utf8.DecodeRuneInString(description)
	return string(unicode.ToLower(first)) + strings.TrimSuffix(description[size:], ".")
}

func mustBe(schema *openapi3.Schema) string {
	types := schema.Type.Slice()
	switch {
	case schema.Format == "date-time":
		return "must be a time as in 2026-01-31T12:00:00Z"
	case len(types) != 1:
		return "is not valid"
	case schema.Type.Is(openapi3.TypeInteger) && schema.Min != nil && schema.Max != nil:
		return fmt.Sprintf("must be an integer from %.0f to %.0f", *schema.Min, *schema.Max)
	case strings.ContainsRune("aio", rune(types[0][0])):
		return "must be an " + types[0]
	default:
		return "must be a " + types[0]
	}
}

func units(schema *openapi3.Schema) string {
	if unit, ok := schema.Extensions["x-unit"].(string); ok {
		return unit // by which it is bounded, too
	}
	if schema.Type.Is(openapi3.TypeArray) {
		return "items"
	}
	return "characters"
}

func oneOf(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		if words[i] = fmt.Sprint(v); v == nil {
			words[i] = "null"
		}
	}
	return strings.Join(words, ", ")
}

// unbound turns what the generated code could not decode into a fault. The
// validation has passed it before, so it is a whole number written as 1e2.
func unbound(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fault.NewInvalid(fault.Field{
			Pointer: pointer(strings.Split(e.Field, ".")),
			Detail:  "must be an integer, in digits",
		})
	}
	if e, ok := errors.AsType[*InvalidParamFormatError](err); ok {
		return fault.NewInvalid(fault.Field{Pointer: e.ParamName, Detail: "does not have the right form"})
	}
	return fault.New(fault.Invalid, "invalid", "The request cannot be read.")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// clean says whether s is text without control characters.
func clean(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
