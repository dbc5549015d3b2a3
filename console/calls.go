package console

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	kindred "kindred/sdk/go"
)

// maxCalls bounds what a page shows of the calls that it made.
// limit: edge | calls that a page of the console shows | {maxCalls}
const maxCalls = 20

// calls are those that a page made of the API.
type calls struct {
	mu   sync.Mutex
	made []Call
}

// Call is one of them, as its reader could make it.
type Call struct {
	Method, Path string // with the query
	Status       int
}

// Curl is the call as a command.
func (c Call) Curl() string {
	command := `curl -s "$KINDRED_URL` + strings.NewReplacer(`"`, `%22`, "$", "%24", "`", "%60", `\`, "%5C").Replace(c.Path) + `" -H "Authorization: Bearer $KINDRED_TOKEN"`
	if c.Method != http.MethodGet {
		command = strings.Replace(command, "curl -s", "curl -s -X "+c.Method, 1)
	}
	return command
}

func (c *calls) add(one Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.made) < maxCalls && !strings.HasPrefix(one.Path, "/auth/") {
		c.made = append(c.made, one)
	}
}

// transport calls the API in this process on behalf of the browser that asked for a
// page, which is throttled by its own address.
type transport struct {
	api   http.Handler
	proxy []string // headers that are passed on
	from  *http.Request
	calls *calls
	conn  *connection // whose deadlines the API moves; nil: none
}

// connection is a browser's, for as long as its page is made: it is then for the next request.
type connection struct {
	of *http.ResponseController

	mu   sync.Mutex
	over bool
}

// move sets a deadline, unless the page is made.
func (c *connection) move(set func(*http.ResponseController, time.Time) error, to time.Time) error {
	if c == nil {
		return http.ErrNotSupported
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return net.ErrClosed
	}
	return set(c.of, to)
}

// end says that the page is made.
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// RoundTrip implements [http.RoundTripper]. The body can be read while the API writes it.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := r.Clone(r.Context())
	inner.RemoteAddr, inner.RequestURI, inner.Host = t.from.RemoteAddr, r.URL.RequestURI(), t.from.Host
	for _, name := range t.proxy {
		if values := t.from.Header.Values(name); len(values) > 0 {
			inner.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	body, writes := io.Pipe()
	w := &response{header: http.Header{}, body: writes, begun: make(chan struct{}), conn: t.conn}
	go func() {
		defer func() {
			if p := recover(); p != nil { // the API has logged it, and cut the answer
				w.fail(errors.New("the answer was cut"))
				return
			}
			w.WriteHeader(http.StatusOK)
			_ = writes.Close() // it never fails
		}()
		t.api.ServeHTTP(w, inner)
	}()
	stop := context.AfterFunc(r.Context(), func() { w.fail(context.Cause(r.Context())) }) //nolint:contextcheck // it is the request's
	select {
	case <-w.begun:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if w.failed != nil {
		return nil, w.failed
	}
	t.calls.add(Call{r.Method, r.URL.RequestURI(), w.status})
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: closing{body, stop}, ContentLength: -1, Request: r,
	}, nil
}

type closing struct {
	*io.PipeReader
	stop func() bool
}

func (c closing) Close() error {
	c.stop()
	return c.PipeReader.Close()
}

// response takes what the API answers.
type response struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	begun  chan struct{}
	status int
	sent   http.Header
	failed error
	conn   *connection
}

func (w *response) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if status < http.StatusOK { // such as 100 Continue
		return
	}
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements [http.Flusher]: what is written is read at once.
func (w *response) Flush() { w.WriteHeader(http.StatusOK) }

// SetReadDeadline lets the API give each piece of a file its time: the server gives all of a
// request 15 s.
func (w *response) SetReadDeadline(to time.Time) error {
	return w.conn.move((*http.ResponseController).SetReadDeadline, to)
}

// SetWriteDeadline is SetReadDeadline for what is downloaded, of which all has a minute.
func (w *response) SetWriteDeadline(to time.Time) error {
	return w.conn.move((*http.ResponseController).SetWriteDeadline, to)
}

func (w *response) fail(err error) {
	w.once.Do(func() {
		w.failed = err
		close(w.begun)
	})
	_ = w.body.CloseWithError(err) // it never fails
}

// client calls the API with a token, or without one for what is open to all.
func (s *Console) client(r *http.Request, made *calls, token string) (*kindred.Client, error) {
	return clientOf(transport{s.API, s.ProxyHeaders, r, made, nil}, token)
}

// streaming calls the API with what the browser sends for as long as that takes.
func (p *page) streaming() (*kindred.Client, error) {
	return clientOf(transport{p.API, p.ProxyHeaders, p.r, p.calls, p.conn}, p.token)
}

func clientOf(t transport, token string) (*kindred.Client, error) {
	return kindred.New(kindred.Config{Token: token, BaseURL: "http://localhost", MaxRetries: -1, HTTPClient: &http.Client{Transport: t}})
}
