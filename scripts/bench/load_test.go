package main

import (
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answers plays a server whose answers take every form that net/http gives them.
func answers(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestTheDriverReadsEveryAnswerToItsEnd(t *testing.T) {
	t.Parallel()
	addr := answers(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"a":1}` || r.Header.Get("Authorization") != "Bearer token" || r.Header.Get(headerClient) != "client" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		switch r.URL.Path {
		case "/short":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "short")
		case "/chunked":
			_, _ = io.WriteString(w, strings.Repeat("long", 20_000))
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
		case "/shed":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/last":
			w.Header().Set("Connection", "close")
		}
	})
	c, err := dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range []struct {
		path string
		answer
	}{
		{"/chunked", answer{status: http.StatusOK}},
		{"/short", answer{status: http.StatusCreated}},
		{"/empty", answer{status: http.StatusNoContent}},
		{"/shed", answer{status: http.StatusServiceUnavailable, retryAfter: true}},
		{"/last", answer{status: http.StatusOK, closed: true}},
	} {
		got, err := c.do(request(nil, "POST", want.path, "token", "client", []byte(`{"a":1}`)))
		if err != nil || got != want.answer {
			t.Errorf("%s: %+v, %v", want.path, got, err)
		}
	}
}

func TestALoopCountsWhatIsAnsweredAndFailsByWhatIsNotExpected(t *testing.T) {
	t.Parallel()
	addr := answers(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	to := func(path string) workload {
		return workload{http.StatusOK, func(_ *rand.Rand, buf []byte) []byte { return request(buf, "GET", path, "", "", nil) }}
	}
	got, err := requests(t.Context(), addr, to("/there"), pace{workers: 2, warm: 10 * time.Millisecond, length: 50 * time.Millisecond})
	if err != nil || got.PerSecond < 20 || got.P50 <= 0 || got.P99 < got.P50 || got.P99 > 60 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := requests(t.Context(), addr, to("/gone"), pace{workers: 2, length: 50 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("answers of 404: %v", err)
	}
}

// A service that answers every second request, and sheds the others in every
// way that there is.
func TestAnOpenLoopTellsTheGoodFromTheShedAndTheWrong(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	addr := answers(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable) // without Retry-After
		}
	})
	w := workload{http.StatusOK, func(_ *rand.Rand, buf []byte) []byte { return request(buf, "GET", "/", "", "", nil) }}
	f, err := newFlood(addr, w, openConnections)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	all, err := f.run(t.Context(), 1000, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	got := count(all, http.StatusOK)
	if len(all) != 100 || got.good+got.late < 40 || got.good > 50 || got.shed > 25 || got.wrong > 25 || got.good+got.shed+got.wrong+got.late != 100 {
		t.Errorf("of %d: %+v", len(all), got)
	}
}

func TestRecoveryEndsWithTheLastThatIsNotAsItShouldBe(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(seconds int, status int, took time.Duration) arrival {
		return arrival{due: start.Add(time.Duration(seconds) * time.Second), took: took, answer: answer{status: status}}
	}
	all := []arrival{at(0, 503, 0), at(1, 200, time.Minute), at(2, 200, time.Second), at(3, 200, 0)}
	for patience, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: 0, 0: 2 * time.Second} {
		if got := recovered(all, 200, patience); got != want {
			t.Errorf("with a patience of %s: %s, want %s", patience, got, want)
		}
	}
}
