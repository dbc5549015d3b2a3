package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/eventstore/seal"
	"kindred/httpapi"
	"kindred/httpapi/auth"
	"kindred/httpapi/httpapitest"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

var patience = testkit.Patience() // until something that takes moments counts as never

// service is a whole kindred that serves in this process. What it answers is
// held against the contract.
type service struct {
	testing.TB
	URL    string
	Config app.Config // as it serves
	Logs   *logBuffer

	base   *http.Transport
	client *http.Client
	end    context.CancelFunc
	ended  chan struct{} // closed once serve has returned
	err    error         // what it returned
}

// startService serves on a database of its own, unless changes name another,
// until the test ends.
func startService(t testing.TB, changes ...func(*app.Config)) *service {
	t.Helper()
	config := testConfig(t)
	for _, change := range changes {
		change(&config)
	}
	if config.DatabaseURL == "" {
		config.DatabaseURL = pgtest.URL(t)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &service{
		TB: t, Logs: new(logBuffer), end: end, ended: make(chan struct{}),
		base: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}, // before the service does
	}
	s.client = httpapitest.Client(t, s.base)
	s.client.Timeout = time.Minute
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("the end of what %s logged:\n%s", s.URL, s.Logs.end())
		}
	})

	logger := slog.New(slog.NewTextHandler(s.Logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	hashing := app.Hashing{Cost: auth.Cost{MemoryKiB: 8, Passes: 1}, Cores: runtime.NumCPU()} // these tests are not about guessing passwords
	serving := make(chan app.Config, 1)
	go func() {
		defer close(s.ended)
		s.err = app.Serve(ctx, config, logger, hashing, func(at app.Config) { serving <- at })
	}()
	select {
	case s.Config = <-serving:
		s.URL = "http://" + s.Config.Listen
	case <-s.ended:
		t.Fatalf("not started: %v\n%s", s.err, s.Logs)
	case <-time.After(patience):
		t.Fatalf("not started within %s\n%s", patience, s.Logs)
	}
	return s
}

// testConfig is what the environment is by default, on any free port, with a
// fresh master key, deliveries to this machine and no rate limit.
func testConfig(t testing.TB) app.Config {
	t.Helper()
	config, err := app.ReadConfig(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	config.MasterKey, err = seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	config.Listen = "127.0.0.1:0"
	config.DataDir = t.TempDir()
	config.DatabaseConns = 16 // each that is opened parses and plans all statements anew: 36 of them take a tenth to a quarter more of the processors
	config.RateLimit = false
	config.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return config
}

// forMany is for a service that many tests use at a time: with 16 connections ten pages of a feed, five
// times under writes, took 130 to 138 s where three such services share two processors, and 88 to 93
// with the default.
func forMany(c *app.Config) { c.DatabaseConns = 0 }

// pooled puts PgBouncer in session mode before a service's database. It stands before the
// stories that use all that a session of Postgres is used for: prepared statements,
// notifications, advisory locks, settings, schemas beside the live ones.
func pooled(t testing.TB) func(*app.Config) {
	t.Helper()
	return func(c *app.Config) { c.DatabaseURL = pgtest.Pooled(t) }
}

// replicaOf makes a service share all that replicas share with another.
func replicaOf(s *service) func(*app.Config) {
	return func(c *app.Config) {
		c.DatabaseURL, c.EventStoreURL = s.Config.DatabaseURL, s.Config.EventStoreURL
		c.MasterKey, c.PublicURL, c.EpochDir = s.Config.MasterKey, s.Config.PublicURL, s.Config.EpochKeys()
	}
}

// stop ends the service in order and waits until it has. It may be called
// again.
func (s *service) stop() {
	s.Helper()
	s.base.CloseIdleConnections()
	s.end()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.Errorf("not stopped within %s\n%s", patience, s.Logs)
		return
	}
	if s.err != nil {
		s.Errorf("it ended with: %v\n%s", s.err, s.Logs)
	}
	if leaked := s.Logs.leaked(); len(leaked) > 0 {
		s.Errorf("the log holds secrets: %q", leaked)
	}
}

// database connects to that of the service until the test ends.
func (s *service) database() *pgx.Conn {
	s.Helper()
	conn, err := pgx.Connect(s.Context(), s.Config.DatabaseURL)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close(context.WithoutCancel(s.Context())) })
	return conn
}

// answer is an HTTP answer that has arrived whole.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// option changes a request before it is sent.
type option func(*http.Request)

func header(name, value string) option {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = []string{value} }
}

func bearer(token string) option { return header("Authorization", "Bearer "+token) }

func idempotent(key string) option { return header("Idempotency-Key", key) }

func eventual() option { return header("X-Kindred-Consistency", "eventual") }

// try sends a request: a body of text, bytes or a reader as it is, anything
// else as JSON. It is for services that may be gone, and for any goroutine.
func (s *service) try(method, path string, body any, options ...option) (answer, error) {
	var content io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(body)
	case []byte:
		content = bytes.NewReader(body)
	case io.Reader:
		content = body
	default:
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(s.Context(), method, s.URL+path, content)
	if err != nil {
		return answer{}, err
	}
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, o := range options {
		o(r)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{Status: resp.StatusCode, Header: resp.Header}
	a.Body, err = io.ReadAll(resp.Body)
	return a, err
}

// send is try for a service that must answer. From a goroutine of its own the
// zero answer tells that it did not. Where the database is too busy to say
// within a second what was revoked, a request is refused by design; it comes
// back, as callers are told to.
func (s *service) send(method, path string, body any, options ...option) answer {
	s.Helper()
	for end := time.Now().Add(patience); ; {
		a, err := s.try(method, path, body, options...)
		if err != nil {
			s.Errorf("%s %s: %v", method, path, err)
		}
		if !unsure(a) || time.Now().After(end) || !rewound(s, body) {
			return a
		}
		time.Sleep(time.Millisecond) // between two tries, for the service to find out
	}
}

// rewound says whether a body can be sent again, and makes it ready for that.
func rewound(t testing.TB, body any) bool {
	t.Helper()
	reader, streams := body.(io.Reader)
	seeker, rewinds := reader.(io.Seeker)
	if rewinds {
		if _, err := seeker.Seek(0, io.SeekStart); err != nil {
			t.Error(err)
		}
	}
	return rewinds || !streams
}

func unsure(a answer) bool {
	return a.Status == http.StatusServiceUnavailable && bytes.Contains(a.Body, []byte(`"unverifiable"`))
}

// want decodes an answer that must have a status.
func want[T any](t testing.TB, status int, a answer) T {
	t.Helper()
	var out T
	if a.Status != status {
		t.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	if status == http.StatusNoContent {
		return out
	}
	if err := json.Unmarshal(a.Body, &out); err != nil {
		t.Fatalf("%v: %s", err, a.Body)
	}
	return out
}

// wantDone is want for answers without a body.
func wantDone(t testing.TB, a answer) {
	t.Helper()
	want[struct{}](t, http.StatusNoContent, a)
}

// wantProblem checks that an answer is a problem with a status and a code.
func wantProblem(t testing.TB, status int, code string, a answer) httpapi.Problem {
	t.Helper()
	var p httpapi.Problem
	if err := json.Unmarshal(a.Body, &p); err != nil {
		t.Fatalf("status %d: %v: %.300s", a.Status, err, a.Body)
	}
	if a.Status != status || p.Code != code {
		t.Errorf("answered %d %s, want %d %s: %.300s", a.Status, p.Code, status, code, a.Body)
	}
	if p.Status != a.Status || p.Type == "" || p.Title == "" || p.Detail == "" || p.RequestID != a.Header.Get("X-Request-Id") {
		t.Errorf("an incomplete problem: %s", a.Body)
	}
	return p
}

// together runs work n times at once and returns what each returned.
func together[T any](n int, work func(i int) T) []T {
	out := make([]T, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			out[i] = work(i)
		})
	}
	close(start)
	all.Wait()
	return out
}

// logBuffer keeps what a service logs.
type logBuffer struct {
	mu     sync.Mutex
	text   bytes.Buffer
	secret []string
}

// keepOut names what must never stand in the log.
func (b *logBuffer) keepOut(words ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.secret = append(b.secret, words...)
}

// leaked returns what stands in the log and must not.
func (b *logBuffer) leaked() []string {
	text := b.String()
	return slices.DeleteFunc(slices.Clone(b.secret), func(word string) bool { return !strings.Contains(text, word) })
}

// end returns the last of what is kept.
func (b *logBuffer) end() string {
	text := b.String()
	return text[max(0, len(text)-16<<10):]
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
