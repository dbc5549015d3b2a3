package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"pgregory.net/rapid"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/httpapi/pipetest"
	"kindred/testkit"
)

func TestCursors(t *testing.T) {
	ours := httpapi.Cursors{Key: []byte("0123456789abcdef0123456789abcdef")}
	rapid.Check(t, func(t *rapid.T) {
		client := id.Client(rapid.String().Draw(t, "client"))
		list, position := rapid.String().Draw(t, "list"), rapid.String().Draw(t, "position")
		cursor := ours.Encode(client, list, position)
		if got, err := ours.Decode(client, list, cursor); err != nil || got != position {
			t.Fatalf("got %q, %v", got, err)
		}
		for name, decode := range map[string]func() (string, error){
			"another client": func() (string, error) { return ours.Decode(client+"x", list, cursor) },
			"another list":   func() (string, error) { return ours.Decode(client, list+"x", cursor) },
			"moved border":   func() (string, error) { return ours.Decode(client+id.Client(list), "", cursor) },
			"another key":    func() (string, error) { return httpapi.Cursors{Key: []byte("x")}.Decode(client, list, cursor) },
			"a longer one":   func() (string, error) { return ours.Decode(client, list, cursor+"AAAA") },
			"a cut one":      func() (string, error) { return ours.Decode(client, list, cursor[:len(cursor)-2]) },
			"nothing":        func() (string, error) { return ours.Decode(client, list, "") },
		} {
			if name == "moved border" && list == "" {
				continue
			}
			if got, err := decode(); !fault.Is(err, "bad_cursor") || got != "" {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
	})
}

func TestUserLines(t *testing.T) {
	lines := httpapi.NewUserLines()
	u, err := lines.Decode([]byte(`{"external_id":"a","traits":{"n":1e400}}`))
	if err != nil || u.ExternalID != "a" || string(u.Traits) != `{"n":1e400}` {
		t.Errorf("got %+v, %v", u, err)
	}
	for line, code := range map[string]string{
		``: "invalid_json", `{`: "invalid_json", `{"external_id":"a","x":1}`: "invalid", `{"external_id":"\u0000"}`: "invalid",
		"\x1aline 2 has 1 columns, and the header 2": "invalid_csv",
	} {
		if _, err := lines.Decode([]byte(line)); !fault.Is(err, code) {
			t.Errorf("%s: %v, want %s", line, err, code)
		}
	}
	for line, code := range map[string]string{`[`: "invalid_json", `[{"external_id":"a"},`: "invalid_json", `[{"external_id":"a"}]`: "invalid"} {
		if _, err := lines.Decode([]byte(line)); !fault.Is(err, code) || !strings.Contains(err.Error(), "Write one object a line") {
			t.Errorf("%s: %v, want %s", line, err, code)
		}
	}
	for _, line := range []string{"{", "{ \r"} {
		if _, err := lines.Decode([]byte(line)); !fault.Is(err, "invalid_json") || !strings.Contains(err.Error(), "Write each object in one line") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// However a line looks, it is read as the schema and encoding/json do.
func TestUserLinesAreReadAsBodiesAre(t *testing.T) {
	lines := httpapi.NewUserLines()
	blank := rapid.SampledFrom([]string{"", "", " ", "\t \r"})
	value := rapid.SampledFrom([]string{
		`{}`, `{"a":"}\\\"{"}`, `{"a":{"b":[{"c":1e400}]},"d":{}}`, `{"\u007d":{"}":"\\\\"}}`, `[]`, `null`, `"{}"`, `1`, `{ "é" : "\ud83d\ude00" }`,
	})
	text := rapid.OneOf(
		rapid.StringMatching(`[ -~]{0,8}`), rapid.StringMatching(`a{255,257}`), rapid.StringMatching(`é{128,129}`),
		rapid.SampledFrom([]string{`""`, `"\n"`, `"a\"`, `" a "`, `"\u0041"`, "\x7f", "\u0085"}))
	rapid.Check(t, func(t *rapid.T) {
		b := func() string { return blank.Draw(t, "blank") }
		id := `"` + text.Draw(t, "id") + `"`
		members := []string{b() + `"external_id"` + b() + `:` + b() + id + b()}
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			name := rapid.SampledFrom([]string{"traits", "traits", "external_id", "x", "tr\\u0061its"}).Draw(t, "name")
			members = append(members, b()+`"`+name+`"`+b()+`:`+b()+value.Draw(t, "value")+b())
		}
		if rapid.Bool().Draw(t, "reversed") {
			slices.Reverse(members)
		}
		line := []byte(b() + `{` + strings.Join(members, ",") + `}` + b())
		got, gotErr := lines.Decode(line)
		want, wantErr := lines.DecodeBySchema(line)
		if diff := cmp.Diff(want, got); diff != "" || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("%s: %v, want %v\n%s", line, gotErr, wantErr, diff)
		}
	})
}

// Imports outlive the deadlines of other requests as long as they move.
func TestImportDeadlines(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pause  time.Duration
		answer string
	}{
		{"moves", 20 * time.Second, "HTTP/1.1 200 OK"},
		{"stands still", 31 * time.Second, "HTTP/1.1 400 Bad Request"},
		{"moves for too long", 29 * time.Second, "HTTP/1.1 413 Request Entity Too Large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testImportDeadline(t, tt.pause, tt.answer) })
		})
	}
}

func testImportDeadline(t *testing.T, pause time.Duration, want string) {
	t.Helper()
	lines := 10
	if strings.Contains(want, "413") {
		lines = int(time.Hour/pause) + 1
	}
	e := newEdge(t, nil)
	e.service.imports = func(_ context.Context, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}
	near := serveOne(t, e)

	var sender sync.WaitGroup
	sender.Go(func() { // the server stops reading when it refuses
		fmt.Fprintf(near, "POST /api/v1/users/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\n"+
			"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range lines {
			time.Sleep(pause)
			if _, err := fmt.Fprintf(near, "1\r\n\n\r\n"); err != nil {
				return
			}
		}
		fmt.Fprintf(near, "0\r\n\r\n")
	})
	answer, err := bufio.NewReader(near).ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != want {
		t.Errorf("got %q, %v; want %s", answer, err, want)
	}
	near.Close()
	sender.Wait()
}

// Exports outlive the deadlines of other requests as long as they are read.
func TestExportDeadlines(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pause time.Duration
		whole bool
	}{
		{"is read", 29 * time.Second, true},
		{"is not read", 61 * time.Second, false},
		{"is read for too long", 29 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testExportDeadline(t, tt.pause, tt.whole) })
		})
	}
}

func testExportDeadline(t *testing.T, pause time.Duration, whole bool) {
	t.Helper()
	pieces := int(time.Hour/pause) - 2
	if !whole {
		pieces += 4
	}
	e := newEdge(t, nil)
	e.service.export = func(w io.Writer) error {
		for range pieces {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return err
			}
		}
		return nil
	}
	near := serveOne(t, e)
	fmt.Fprintf(near, "GET /api/v1/clients/%s/history HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer full\r\nAccept: application/x-ndjson\r\n\r\n", mine)
	answer, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for err == nil {
		time.Sleep(pause)
		_, err = io.CopyN(io.Discard, answer.Body, 64<<10)
	}
	if errors.Is(err, io.EOF) != whole {
		t.Errorf("it ends with %v", err)
	}
	near.Close()
}

// What has begun cannot be answered otherwise any more: the log alone says why it ends.
func TestWhyAnExportIsBrokenOffIsLoggedOnce(t *testing.T) {
	for sent, want := range map[int]string{0: `"code":"building"`, 256 << 10: "unexpected EOF"} {
		e := serve(t, nil)
		e.service.export = func(w io.Writer) error {
			if _, err := w.Write(bytes.Repeat([]byte("x"), sent)); err != nil {
				return err
			}
			return fault.New(fault.Unavailable, "building", "The model is away.")
		}
		r := testkit.Must(http.NewRequestWithContext(t.Context(), "GET", e.url+"/api/v1/clients/"+mine+"/history", nil))(t)
		r.Header.Set("Authorization", "Bearer full")
		r.Header.Set("Accept", "application/x-ndjson")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if came := fmt.Sprint(string(got), err); !strings.Contains(came, want) {
			t.Errorf("after %d bytes it ends with %s", sent, came[max(0, len(came)-200):])
		}
		if n := strings.Count(e.log.String(), "The model is away."); n != min(sent, 1) {
			t.Errorf("after %d bytes why is logged %d times", sent, n)
		}
	}
}

// serveOne is a connection to an edge.
func serveOne(t *testing.T, e *edge) net.Conn {
	t.Helper()
	listener, near := pipetest.Listen()
	server := httpapi.NewServer("", e.handler)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		near.Close()
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return near
}

// spans remembers what spans were called in the end.
type (
	spans struct {
		noop.TracerProvider
		name chan string
	}
	tracer struct {
		noop.Tracer
		name chan string
	}
	span struct {
		noop.Span
		name chan string
	}
)

func (s *spans) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{name: s.name} }

func (t tracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	return ctx, span{name: t.name}
}

func (s span) SetName(name string) { s.name <- name }

func TestSpansAreNamedByRoute(t *testing.T) {
	s := &spans{name: make(chan string, 1)}
	e := serve(t, func(o *httpapi.Options) { o.Tracing = s })
	e.send("GET", users+"/ext:ada", nil, token("full")...)
	if got := <-s.name; got != "GET /api/v1/users/{user_id}" {
		t.Errorf("span %q", got)
	}
}

func TestSpansTellWhatFailed(t *testing.T) {
	ended := tracetest.NewSpanRecorder()
	e := newEdge(t, func(o *httpapi.Options) { o.Tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)) })
	e.service.listUsers = func(context.Context, httpapi.ListUsersRequestObject) error { panic("ada") }
	for path, want := range map[string]codes.Code{users: codes.Error, "/api/v1/nothing": codes.Unset} {
		ended.Reset()
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer full")
		e.handler.ServeHTTP(httptest.NewRecorder(), r)
		spans := ended.Ended()
		if len(spans) != 1 || spans[0].Status().Code != want || len(spans[0].Events()) > 0 {
			t.Errorf("%s: %+v", path, spans)
		}
	}
}
