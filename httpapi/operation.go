package httpapi

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// loadContract reads openapi.yaml, once. Nobody may change what it returns.
var loadContract = sync.OnceValues(func() (*openapi3.T, error) {
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewCallbackValidator(checkTime))
	doc, err := openapi3.NewLoader().LoadFromData(contract)
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	return doc, nil
})

// publicContract is the contract as callers get it: JSON, without what is
// meant for the generator alone.
func publicContract(doc *openapi3.T) ([]byte, error) {
	raw, err := doc.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	dropExtensions(tree)
	return json.Marshal(tree)
}

func dropExtensions(tree any) {
	switch node := tree.(type) {
	case map[string]any:
		for name, child := range node {
			if strings.HasPrefix(name, "x-go-") || name == "x-enum-varnames" {
				delete(node, name)
				continue
			}
			dropExtensions(child)
		}
	case []any:
		for _, child := range node {
			dropExtensions(child)
		}
	}
}

// operation is what the contract asks of the requests to one route.
type operation struct {
	method, path string
	access       []requirement // any of them will do; none: no token is needed
	query        []*openapi3.Parameter

	body         *openapi3.Schema       // nil: no JSON body
	plain        func(body []byte) bool // tells what fits the schema at a glance; nil: nothing does
	bodyRequired bool
	bodyLimit    int64
	streams      bool   // an NDJSON body of any length
	exports      string // the media type of any length that callers may accept, too; "": none
	live         bool   // answers with Server-Sent Events
	waits        bool   // may be asked to wait for something

	repeatable  bool // takes an Idempotency-Key
	conditional bool // takes an If-Match
	ofUser      bool // its path names a user
	making      bool // takes an If-None-Match
	reads       bool // takes an X-Kindred-Consistency
	looksUp     bool // shares statements with others of its kind
	hashes      bool // hashes a password
	records     bool // a GET that is counted, so that HEAD will not do instead
}

// requirement is what a token must have: a scope, or to be from signup or
// login, or both.
type requirement struct {
	scope string
	login bool
}

// operations returns the contract's operations by route name, which is the
// method and the path.
func operations(doc *openapi3.T) (map[string]*operation, error) {
	all := make(map[string]*operation)
	for path, item := range doc.Paths.Map() {
		for method, spec := range item.Operations() {
			op, err := newOperation(doc, method, path, item.Parameters, spec)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			all[method+" "+path] = op
		}
	}
	return all, nil
}

func newOperation(doc *openapi3.T, method, path string, shared openapi3.Parameters, spec *openapi3.Operation) (*operation, error) {
	op := &operation{method: method, path: path, bodyLimit: maxBody}
	if strings.HasPrefix(path, "/auth/") {
		op.bodyLimit = maxAuthBody
	}
	op.records = spec.Extensions["x-records"] == true
	op.looksUp = spec.Extensions["x-looks-up"] == true
	op.hashes = spec.Extensions["x-hashes"] == true
	if spec.Security == nil {
		return nil, fmt.Errorf("says nothing of its security")
	}
	for _, names := range *spec.Security {
		r, err := newRequirement(doc, names)
		if err != nil {
			return nil, err
		}
		op.access = append(op.access, r)
	}
	for _, p := range slices.Concat(shared, spec.Parameters) {
		switch {
		case p.Value.In == openapi3.ParameterInQuery:
			op.query = append(op.query, p.Value)
			op.waits = op.waits || p.Value.Name == queryWait
		case p.Value.In == openapi3.ParameterInPath: // its route reads it
			op.ofUser = op.ofUser || p.Value.Name == "user_id"
		case p.Value.Name == headerIdempotencyKey:
			op.repeatable = true
		case p.Value.Name == headerIfMatch:
			op.conditional = true
		case p.Value.Name == headerIfNoneMatch:
			op.making = true
		case p.Value.Name == headerConsistency:
			op.reads = true
		case p.Value.Name == "Last-Event-ID": // its handler reads it
		default:
			return nil, fmt.Errorf("nobody reads the parameter %s", p.Value.Name)
		}
	}
	if ok := spec.Responses.Status(http.StatusOK); ok != nil && ok.Value.Content[mediaLines] != nil {
		op.exports = mediaLines
	} else if ok != nil && ok.Value.Content[mediaCSV] != nil {
		op.exports = mediaCSV
	} else if ok != nil && ok.Value.Content[mediaEvents] != nil {
		op.live, op.records = true, true // HEAD will not do instead
	}
	if spec.RequestBody != nil {
		body := spec.RequestBody.Value
		op.bodyRequired = body.Required
		if content := body.Content["application/json"]; content != nil {
			op.body = content.Schema.Value
			if op.body == doc.Components.Schemas["NewUser"].Value {
				op.plain = isPlainUser
			}
		} else if body.Content[mediaLines] != nil {
			op.streams = true
		} else {
			return nil, fmt.Errorf("nobody reads its body")
		}
	}
	return op, nil
}

func newRequirement(doc *openapi3.T, names openapi3.SecurityRequirement) (r requirement, err error) {
	for name := range names {
		scheme := doc.Components.SecuritySchemes[name]
		switch {
		case scheme == nil || scheme.Value == nil:
			return r, fmt.Errorf("there is no security scheme %s", name)
		case name == "login":
			r.login = true
		default:
			scope, ok := scheme.Value.Extensions["x-scope"].(string)
			if !ok || r.scope != "" {
				return r, fmt.Errorf("the security scheme %s does not name one scope", name)
			}
			r.scope = scope
		}
	}
	return r, nil
}

const mediaLines = "application/x-ndjson"

// wantsExport says whether a caller that sent these asks for the whole, where the
// operation has that: more than JSON, by q, or as much and named before it.
func (op *operation) wantsExport(accept []string) (export bool) {
	if op.exports == "" {
		return false
	}
	most := 0.0
	for one := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, parameters, _ := mime.ParseMediaType(one)
		q := 1.0
		if text, given := parameters["q"]; given {
			q, _ = strconv.ParseFloat(text, 64) // what is no number is a refusal
		}
		switch media {
		case op.exports, "application/json", "application/*", "*/*":
			if q > most {
				most, export = q, media == op.exports
			}
		}
	}
	return export
}

// header names that the contract shares between operations.
const (
	headerIdempotencyKey = "Idempotency-Key"
	headerIfMatch        = "If-Match"
	headerIfNoneMatch    = "If-None-Match"
	headerConsistency    = "X-Kindred-Consistency"
	headerLivemode       = "X-Kindred-Livemode"
	headerRequestID      = "X-Request-Id"
)

// mediaType says whether a Content-Type is want, in UTF-8 where it says so.
func mediaType(contentType, want string) bool {
	base, _, _ := strings.Cut(contentType, ";")
	if !strings.EqualFold(strings.TrimSpace(base), want) {
		return false
	}
	_, parameters, _ := mime.ParseMediaType(contentType) // those that cannot be read say nothing
	charset, given := parameters["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}

// queryWait is the query parameter of an operation that may be asked to wait.
const queryWait = "wait"

const mediaEvents = "text/event-stream"

// follows says whether a request lasts: it asks for a stream, or is to wait.
func (op *operation) follows(query string) bool {
	if !op.waits {
		return op.live
	}
	values, err := url.ParseQuery(query)
	wait, _ := strconv.Atoi(values.Get(queryWait)) // what is no number is refused
	return err == nil && wait > 0
}
