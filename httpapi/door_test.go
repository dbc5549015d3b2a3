package httpapi

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/httpapi/pipetest"
)

// behindDoor is a connection to a server whose handler echoes bodies, with what
// admits to it.
func behindDoor(t *testing.T) (net.Conn, *bufio.Reader, *admission, <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return behind(t, listener)
}

func behind(t *testing.T, listener net.Listener) (net.Conn, *bufio.Reader, *admission, <-chan struct{}) {
	t.Helper()
	a, came := echoes(t, listener)
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	in := bufio.NewReader(c)
	// The first request of a connection meets no door.
	if answer, _ := ask(t, c, in, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"); answer.StatusCode != http.StatusOK {
		t.Fatal(answer.StatusCode)
	}
	<-came
	return c, in, a, came
}

// echoes serves with a handler that echoes bodies.
func echoes(t *testing.T, listener net.Listener) (*admission, <-chan struct{}) {
	t.Helper()
	came := make(chan struct{}, 8)
	e := &edge{o: Options{
		Limits: Limits{InFlight: 1}, Metrics: prometheus.NewRegistry(), Now: time.Now, Entropy: rand.Reader, Logger: slog.New(slog.DiscardHandler),
	}}
	a := e.admission(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		_, _ = io.Copy(w, r.Body)
	}))
	server := NewServer("", a)
	go func() { _ = server.Serve(Door(listener, a)) }()
	t.Cleanup(func() { _ = server.Close() })
	return a, came
}

// mute is a connection that does not take answers once it is told.
type mute struct {
	net.Conn
	now *atomic.Bool
}

func (m mute) Write(p []byte) (int, error) {
	if m.now.Load() {
		return 0, net.ErrClosed
	}
	return m.Conn.Write(p)
}

type muteListener struct {
	net.Listener
	now *atomic.Bool
}

func (l muteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return mute{c, l.now}, err
}

func TestWhoCannotBeAnsweredIsHungUp(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var deaf atomic.Bool
	c, in, a, _ := behind(t, muteListener{listener, &deaf})
	deaf.Store(true)
	fill(a.reads)
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /api/v1/users HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v, not the end", err)
	}
}

func TestWhoAsksAndHangsUpAtOnceIsHungUp(t *testing.T) {
	t.Parallel()
	for range 50 { // the end comes with the request, or right after
		c, in, a, _ := behindDoor(t)
		fill(a.reads)
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /api/v1/users HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if answer, _ := hear(t, in); answer.StatusCode != http.StatusServiceUnavailable {
			t.Fatal(answer.StatusCode)
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Fatalf("%v, not the end", err)
		}
	}
}

// TestWhoWasTurnedAwayHasItsTimeLater asks in pieces on a connection that has
// heard nothing but that there is too much, for longer than a request may take.
func TestWhoWasTurnedAwayHasItsTimeLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener, c := pipetest.Listen()
		a, _ := echoes(t, listener)
		in := bufio.NewReader(c)
		const head, body = "POST /api/v1/users HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", "{}"
		fill(a.writes)
		for range 2 {
			if answer, _ := ask(t, c, in, head+body); answer.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("one too many: %d", answer.StatusCode)
			}
			time.Sleep(20 * time.Second)
		}
		empty(a.writes)
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		if answer, echo := ask(t, c, in, body); answer.StatusCode != http.StatusOK || echo != body {
			t.Errorf("%d %q", answer.StatusCode, echo)
		}
	})
}

// fill takes all places of lanes with nowhere to wait, as the caller at the door.
func fill(lanes ...*lane) {
	for _, l := range lanes {
		for l.Try("127.0.0.1") {
		}
	}
}

func empty(lanes ...*lane) {
	for _, l := range lanes {
		for held(l) > 0 {
			l.Give("127.0.0.1")
		}
	}
}

// heard is the head of an answer.
type heard struct {
	StatusCode int
	Header     http.Header
}

func ask(t *testing.T, c net.Conn, in *bufio.Reader, request string) (heard, string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return hear(t, in)
}

func hear(t *testing.T, in *bufio.Reader) (heard, string) {
	t.Helper()
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return heard{answer.StatusCode, answer.Header}, string(body)
}

func TestTheDoorAnswersAsAdmissionDoes(t *testing.T) {
	t.Parallel()
	c, in, a, came := behindDoor(t)
	const get = "GET /api/v1/users HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n"
	fill(a.reads)
	atDoor, said := ask(t, c, in, get+"\r\n")
	inside, same := ask(t, c, in, get+"Expect: \r\n\r\n") // not plain
	if said != same || atDoor.StatusCode != http.StatusServiceUnavailable || inside.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%d %s, and inside %d %s", atDoor.StatusCode, said, inside.StatusCode, same)
	}
	for name := range inside.Header {
		if got, want := atDoor.Header.Get(name), inside.Header.Get(name); got != want && name != "Date" || got == "" {
			t.Errorf("%s: %q, and inside %q", name, got, want)
		}
	}
	var p Problem
	answer, body := ask(t, c, in, "GET /api/v1/users HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.RequestID == "" || p.RequestID != answer.Header.Get("X-Request-Id") {
		t.Errorf("%s: %v", body, err)
	}
	if _, err := http.ParseTime(answer.Header.Get("Date")); err != nil || len(came) != 0 {
		t.Error(err, len(came))
	}
	const post = "POST /api/v1/users HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
	if answer, body := ask(t, c, in, post); answer.StatusCode != http.StatusOK || body != "{}" {
		t.Errorf("a write beside a full lane of reads: %d %s", answer.StatusCode, body)
	}
	fill(a.writes)
	if answer, _ := ask(t, c, in, post); answer.StatusCode != http.StatusServiceUnavailable || len(came) != 1 {
		t.Errorf("a write too many: %d", answer.StatusCode)
	}
	if answer, _ := ask(t, c, in, "GET /other HTTP/1.1\r\nHost: x\r\n\r\n"); answer.StatusCode != http.StatusOK {
		t.Errorf("a page of the service's own: %d", answer.StatusCode)
	}
	empty(a.reads)
	if answer, _ := ask(t, c, in, get+"\r\n"); answer.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", answer.StatusCode)
	}
}

// TestTheDoorNeverCutsARequest sends requests in pieces and in a row, some of
// which hold what looks like others.
func TestTheDoorNeverCutsARequest(t *testing.T) {
	t.Parallel()
	c, in, a, _ := behindDoor(t)
	fill(a.reads)
	const get = "GET /api/v1/users HTTP/1.1\r\nHost: x\r\n\r\n"
	head := "POST /api/v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 39\r\n\r\n"
	if len(get) != 39 {
		t.Fatal(len(get))
	}
	if _, err := io.WriteString(c, strings.TrimSuffix(head, "\r\n")+"Expect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the rest comes after the head was read
		if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") && line != "\r\n" {
			t.Fatal(line, err)
		}
	}
	if answer, body := ask(t, c, in, get); answer.StatusCode != http.StatusOK || body != get {
		t.Errorf("the body was cut: %d %q", answer.StatusCode, body)
	}
	if answer, body := ask(t, c, in, head+get+get+head+get); answer.StatusCode != http.StatusOK || body != get {
		t.Errorf("the first of three: %d %q", answer.StatusCode, body)
	}
	if answer, _ := hear(t, in); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the second: %d", answer.StatusCode)
	}
	if answer, body := hear(t, in); answer.StatusCode != http.StatusOK || body != get {
		t.Errorf("the third: %d %q", answer.StatusCode, body)
	}
}

func TestOnlyPlainRequestsEndAtTheDoor(t *testing.T) {
	t.Parallel()
	const get, end = "GET /api/v1/users HTTP/1.1\r\nHost: x\r\n", "\r\n"
	for _, whole := range []string{
		get + end, get + "Connection: keep-alive\r\nAccept: */*\r\n" + end,
		strings.Replace(get, "GET", "DELETE", 1) + "content-length: 3\r\n" + end + "abc",
	} {
		if p, ok := plain([]byte(whole)); !ok {
			t.Errorf("%+v: is plain: %q", p, whole)
		}
	}
	for _, other := range []string{
		"", get, get + end + "G", "X" + get + end, get + "Content-Length: 2\r\n" + end + "a", get + "Content-Length: 1\r\nContent-Length: 1\r\n" + end + "a",
		get + "Content-Length: +1\r\n" + end + "a", get + "Content-Length : 1\r\n" + end + "a", get + "Transfer-Encoding: chunked\r\n" + end, get + "Connection: close\r\n" + end,
		get + "Expect: 100-continue\r\n" + end, get + "Accept: application/x-NDJSON\r\n" + end, get + "A: b\nC: d\r\n" + end, get + " folded: x\r\n" + end,
		get + "Host: y\r\n" + end, "GET /api/v1/users HTTP/1.1\r\nA: b\r\n" + end, strings.Replace(get, "1.1", "1.0", 1) + end, strings.Replace(get, "GET", "HEAD", 1) + end,
		strings.Replace(get, "/api/v1", "", 1) + end, strings.Replace(get, "/users", "/a b", 1) + end,
	} {
		if p, ok := plain([]byte(other)); ok {
			t.Errorf("%+v: is not plain: %q", p, other)
		}
	}
}
