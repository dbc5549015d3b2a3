package kindred

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// ProblemCode names why the service refuses. Decide by it, never by Detail.
type ProblemCode string

// Error is a refusal of the service.
type Error struct {
	Status    int          `json:"status"`
	Code      ProblemCode  `json:"code"` // empty where something on the way has answered
	Title     string       `json:"title"`
	Detail    string       `json:"detail"`
	RequestID string       `json:"request_id"`
	Errors    []FieldError `json:"errors"` // each place of the input that is wrong

	RetryAfter time.Duration `json:"-"`
	Attempts   int           `json:"-"` // how often the request was sent
}

func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "kindred: %d %s: %s", e.Status, e.Code, e.Detail)
	for _, f := range e.Errors {
		fmt.Fprintf(&text, "; %s %s", f.Pointer, f.Detail)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&text, " (%s)", e.RequestID)
	}
	return text.String()
}

// Is says whether an error is a refusal with a code.
func Is(err error, code ProblemCode) bool {
	var refusal *Error
	return errors.As(err, &refusal) && refusal.Code == code
}

// Faults that are not a refusal of the service. errors.Is finds them.
var (
	// ErrConnection: nothing, or half an answer, came back.
	ErrConnection = errors.New("kindred: the connection broke")
	// ErrTimeout: the call took longer than it may.
	ErrTimeout = errors.New("kindred: the call took too long")
	// ErrAnswer: what came back is not an answer of kindred.
	ErrAnswer = errors.New("kindred: the answer cannot be read")
	// ErrNoCredentials: neither an API key nor a token is given.
	ErrNoCredentials = errors.New("kindred: no API key is given, nor KINDRED_API_KEY")
)

// fault is one of the above, with what it is about.
type fault struct {
	kind  error
	cause error
}

func (f *fault) Error() string {
	if f.cause == nil {
		return f.kind.Error()
	}
	return f.kind.Error() + ": " + f.cause.Error()
}

func (f *fault) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

func refusal(resp *http.Response, body []byte) *Error {
	e := &Error{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	if mediaOf(resp) == "application/problem+json" && (!utf8.Valid(body) || json.Unmarshal(body, e) != nil) {
		*e = Error{RequestID: e.RequestID}
	}
	e.Status = resp.StatusCode
	e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if e.Detail == "" {
		e.Detail = "something on the way to kindred has answered"
	}
	return e
}
