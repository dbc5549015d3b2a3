// Package httpapitest holds answers against the contract: a test that talks
// through its client fails when an answer is not what openapi.yaml says.
package httpapitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"kindred/httpapi"
)

// Client returns a client that checks every answer; base may be nil.
func Client(t testing.TB, base http.RoundTripper) *http.Client {
	t.Helper()
	router, err := loadRouter()
	if err != nil {
		t.Fatal(err)
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &http.Client{Transport: &checked{t: t, base: base, router: router}}
}

// loadRouter reads the contract, once for all clients.
var loadRouter = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromData(httpapi.Contract())
	if err != nil {
		return nil, err
	}
	doc.Servers = nil // whatever the host
	return gorillamux.NewRouter(doc)
})

type checked struct {
	t      testing.TB
	base   http.RoundTripper
	router routers.Router
}

func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := readAnswer(answer)
	_ = answer.Body.Close()
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if err := c.check(r, answer, body); err != nil {
		c.t.Errorf("%s %s answered %d against the contract: %v\n%.2000s", r.Method, r.URL.Path, answer.StatusCode, err, body)
	}
	return answer, nil
}

// readAnswer reads the whole of an answer, and the beginning of a stream of events,
// which has no end.
func readAnswer(answer *http.Response) ([]byte, error) {
	if answer.Header.Get("Content-Type") != "text/event-stream" {
		return io.ReadAll(answer.Body)
	}
	begin := make([]byte, 64<<10)
	n, err := answer.Body.Read(begin)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return begin[:n], err
}

// ofNoOperation are the statuses that every operation leaves to its default
// answer: our own failures, and what is no HTTP that we read.
var ofNoOperation = map[int]bool{
	http.StatusInternalServerError: true, http.StatusNotImplemented: true, http.StatusRequestHeaderFieldsTooLarge: true,
}

func (c *checked) check(r *http.Request, answer *http.Response, body []byte) error {
	if answer.Header.Get("X-Request-Id") == "" {
		return fmt.Errorf("no X-Request-Id")
	}
	if answer.StatusCode >= 400 && !strings.HasPrefix(r.URL.Path, "/docs/") && !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") {
		return fmt.Errorf("a problem in %s", answer.Header.Get("Content-Type"))
	}
	route, vars, err := c.router.FindRoute(r)
	if _, ok := errors.AsType[*routers.RouteError](err); ok {
		return nil // not in the contract: a wrong path, or a page of the service's own
	}
	if err != nil {
		return err
	}
	status := fmt.Sprint(answer.StatusCode)
	if !ofNoOperation[answer.StatusCode] && route.Operation.Responses.Value(status) == nil {
		return fmt.Errorf("the contract has no answer %s", status)
	}
	if answer.StatusCode == http.StatusNoContent && len(body) > 0 {
		return fmt.Errorf("a body")
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: vars, Route: route},
		Status:                 answer.StatusCode,
		Header:                 answer.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{MultiError: true, IncludeResponseStatus: true},
	})
}
