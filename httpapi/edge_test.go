package httpapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/httpapi/httpapitest"
)

const (
	mine   = "cli_00000000000000000000000001"
	theirs = "cli_00000000000000000000000002"
	member = "mem_00000000000000000000000001"
	key    = "key_00000000000000000000000001"
	user   = "usr_00000000000000000000000001"
)

// tokens are the scopes of a token, and "key" for one of an API key.
type tokens map[string][]string

func (t tokens) Authenticate(_ context.Context, bearer string) (httpapi.Principal, error) {
	scopes, ok := t[bearer]
	switch {
	case strings.HasPrefix(bearer, "cli_"): // of any client
		return httpapi.Principal{Client: id.Client(bearer), Member: member, Scopes: []string{"admin"}, TokenID: bearer}, nil
	case bearer == "unknowable":
		return httpapi.Principal{}, fault.New(fault.Unavailable, "unverifiable", "Cannot know.")
	case !ok:
		return httpapi.Principal{}, fault.New(fault.Unauthenticated, "invalid_token", "The token is not valid.")
	}
	p := httpapi.Principal{Client: mine, Member: member, Scopes: scopes, TokenID: bearer}
	if strings.HasPrefix(bearer, "key-") {
		p.Key = key
	}
	return p, nil
}

// service is the fake behind the edge: what a test does not set panics.
type service struct {
	httpapi.StrictServerInterface
	listUsers  func(context.Context, httpapi.ListUsersRequestObject) error
	createUser func(context.Context, *httpapi.NewUser) error
	imports    func(context.Context, io.Reader) error
	export     func(io.Writer) error
	events     func(context.Context) error
	logIn      func(context.Context)
	traits     json.RawMessage // of the user
	userID     string
	mu         sync.Mutex // guards call
	call       httpapi.Call
	apiKey     string
}

func (s *service) ListUsers(ctx context.Context, r httpapi.ListUsersRequestObject) (httpapi.ListUsersResponseObject, error) {
	s.mu.Lock()
	s.call = httpapi.CallFrom(ctx)
	s.mu.Unlock()
	if s.listUsers != nil {
		if err := s.listUsers(ctx, r); err != nil {
			return nil, err
		}
	}
	return httpapi.ListUsers200JSONResponse{Data: []httpapi.User{}}, nil
}

func (s *service) ListEvents(ctx context.Context, _ httpapi.ListEventsRequestObject) (httpapi.ListEventsResponseObject, error) {
	return nil, s.events(ctx)
}

func (s *service) CreateUser(ctx context.Context, r httpapi.CreateUserRequestObject) (httpapi.CreateUserResponseObject, error) {
	s.mu.Lock()
	s.call = httpapi.CallFrom(ctx)
	s.mu.Unlock()
	if s.createUser != nil {
		if err := s.createUser(ctx, r.Body); err != nil {
			return nil, err
		}
	}
	return httpapi.CreateUser201JSONResponse{
		Body: s.user(r.Body.Traits),
		Headers: httpapi.CreateUser201ResponseHeaders{
			Location: "/api/v1/users/" + user, ETag: httpapi.ETag(1), XKindredPosition: "00000000000000ff",
		},
	}, nil
}

func (s *service) user(traits json.RawMessage) httpapi.User {
	if traits == nil {
		traits = json.RawMessage(`{}`)
	}
	at := httpapi.Time{Time: time.Date(2026, 1, 31, 12, 0, 0, 1000, time.FixedZone("CET", 3600))}
	return httpapi.User{ID: user, ExternalID: "a", Traits: traits, CreatedAt: at, UpdatedAt: at}
}

func (s *service) GetUser(_ context.Context, r httpapi.GetUserRequestObject) (httpapi.GetUserResponseObject, error) {
	s.userID = r.UserID
	return httpapi.GetUser200JSONResponse{Body: s.user(s.traits), Headers: httpapi.GetUser200ResponseHeaders{ETag: httpapi.UserETag(user, 3)}}, nil
}

func (s *service) EraseUser(ctx context.Context, _ httpapi.EraseUserRequestObject) (httpapi.EraseUserResponseObject, error) {
	s.mu.Lock()
	s.call = httpapi.CallFrom(ctx)
	s.mu.Unlock()
	return httpapi.EraseUser204Response{Headers: httpapi.EraseUser204ResponseHeaders{XKindredPosition: "00000000000000ff"}}, nil
}

func (s *service) RetireSegment(ctx context.Context, _ httpapi.RetireSegmentRequestObject) (httpapi.RetireSegmentResponseObject, error) {
	s.mu.Lock()
	s.call = httpapi.CallFrom(ctx)
	s.mu.Unlock()
	return httpapi.RetireSegment204Response{Headers: httpapi.RetireSegment204ResponseHeaders{XKindredPosition: "00000000000000ff"}}, nil
}

func (s *service) ImportUsers(ctx context.Context, r httpapi.ImportUsersRequestObject) (httpapi.ImportUsersResponseObject, error) {
	if err := s.imports(ctx, r.Body); err != nil {
		return nil, err
	}
	return httpapi.ImportUsers200JSONResponse{Body: httpapi.ImportResult{Errors: []httpapi.ImportError{}}}, nil
}

func (s *service) ListHistory(context.Context, httpapi.ListHistoryRequestObject) (httpapi.ListHistoryResponseObject, error) {
	return httpapi.Export{Now: time.Now, Write: s.export}, nil
}

func (s *service) RevokeAPIKey(context.Context, httpapi.RevokeAPIKeyRequestObject) (httpapi.RevokeAPIKeyResponseObject, error) {
	return httpapi.RevokeAPIKey204Response{Headers: httpapi.RevokeAPIKey204ResponseHeaders{XKindredPosition: "00000000000000ff"}}, nil
}

func (s *service) ListWebhooks(context.Context, httpapi.ListWebhooksRequestObject) (httpapi.ListWebhooksResponseObject, error) {
	return httpapi.ListWebhooks200JSONResponse{Data: []httpapi.Webhook{}}, nil
}

func (s *service) ExchangeAPIKey(_ context.Context, r httpapi.ExchangeAPIKeyRequestObject) (httpapi.ExchangeAPIKeyResponseObject, error) {
	s.apiKey = r.Body.APIKey
	return nil, fault.New(fault.Unauthenticated, "invalid_api_key", "The API key is not valid.")
}

func (s *service) LogIn(ctx context.Context, _ httpapi.LogInRequestObject) (httpapi.LogInResponseObject, error) {
	if s.logIn != nil {
		s.logIn(ctx)
	}
	return nil, fault.New(fault.Unauthenticated, "invalid_credentials", "Wrong.")
}

// edge is a served handler and what a test can see of it.
type edge struct {
	t       *testing.T
	service *service
	handler http.Handler
	client  *http.Client
	url     string
	log     *lockedBuffer
	metrics *prometheus.Registry
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newEdge makes a handler that nobody serves yet.
func newEdge(t *testing.T, change func(*httpapi.Options)) *edge {
	t.Helper()
	e := &edge{t: t, service: &service{}, log: &lockedBuffer{}, metrics: prometheus.NewRegistry()}
	o := httpapi.Options{
		Authenticator: tokens{
			"full": {"admin"}, "viewer": {"read"}, "none": {},
			"key-write": {"read", "write"}, "key-user": {"read:user"}, "key-admin": {"admin"}, "key-erase": {"erase"},
		},
		Secret:  bytes.Repeat([]byte{1}, 32),
		Logger:  slog.New(slog.NewJSONHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Metrics: e.metrics,
		Now:     time.Now,
		Entropy: rand.Reader,
	}
	if change != nil {
		change(&o)
	}
	e.handler = httpapi.Handler(e.service, o)
	return e
}

func serve(t *testing.T, change func(*httpapi.Options)) *edge {
	t.Helper()
	e := newEdge(t, change)
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.NewServer("", e.handler)
	server.Start()
	t.Cleanup(server.Close)
	e.client, e.url = httpapitest.Client(t, nil), server.URL
	return e
}

// with is the same for a part of the test.
func (e *edge) with(t *testing.T) *edge {
	t.Helper()
	part := *e
	part.t = t
	return &part
}

// answer is a response without its body.
type answer struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
	Close         bool // nothing follows over the connection
}

// send makes a request; headers are name, value, name, value …
func (e *edge) send(method, path string, body io.Reader, headers ...string) (answer, string) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := e.client.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, response.ContentLength, response.Close}, string(got)
}

func token(name string) []string { return []string{"Authorization", "Bearer " + name} }

// problem makes a request that is refused, and returns the problem.
func (e *edge) problem(status int, code, method, path, body string, headers ...string) httpapi.Problem {
	e.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	answer, got := e.send(method, path, reader, headers...)
	var p httpapi.Problem
	if err := json.Unmarshal([]byte(got), &p); err != nil {
		e.t.Fatalf("%d: not a problem: %s", answer.StatusCode, got)
	}
	if answer.StatusCode != status || p.Status != status || p.Code != code {
		e.t.Fatalf("got %d %s, want %d %s: %s", answer.StatusCode, p.Code, status, code, got)
	}
	if p.RequestID != answer.Header.Get("X-Request-Id") {
		e.t.Errorf("request id %q in the body, %q in the header", p.RequestID, answer.Header.Get("X-Request-Id"))
	}
	if challenge := answer.Header.Get("WWW-Authenticate"); (status == 401) != (challenge != "") {
		e.t.Errorf("%d with WWW-Authenticate %q", status, challenge)
	}
	if after := answer.Header.Get("Retry-After"); (status == 429 || status == 503) && after == "" {
		e.t.Errorf("%d without Retry-After", status)
	}
	return p
}
