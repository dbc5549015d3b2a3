package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
	"kindred/semaphore"
)

func newClass(places, waiting int) *class {
	return &class{
		Semaphore: &semaphore.Semaphore{Places: places, Waiting: waiting, Patience: waitForPlace},
		shed:      prometheus.NewCounter(prometheus.CounterOpts{Name: "shed"}),
	}
}

func TestAFewWaitForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClass(1, 2)
		enter := func(ctx context.Context) bool { return (&place{class: c, client: "a"}).enter(ctx) }
		turns := make(chan bool, 2)
		wait := func(ctx context.Context) {
			go func() { turns <- enter(ctx) }()
			synctest.Wait()
		}
		if !enter(t.Context()) {
			t.Fatal("nobody is there, yet there is no slot")
		}

		began := time.Now()
		wait(t.Context())
		wait(t.Context())
		if enter(t.Context()) || time.Since(began) > 0 {
			t.Error("a third one waits")
		}
		c.Give("a")
		if !<-turns || time.Since(began) > 0 {
			t.Error("the turn of the first who waits has not come")
		}
		if <-turns || time.Since(began) != waitForPlace {
			t.Errorf("the second one was let in, or waited for %s", time.Since(began))
		}

		ctx, goAway := context.WithCancel(t.Context())
		wait(ctx)
		goAway()
		if <-turns {
			t.Error("who has gone away was let in")
		}
		c.Give("a")
		if !enter(t.Context()) {
			t.Error("the slot is lost")
		}
	})
}

func TestAReadThatHadToWaitForItsPlaceMayUseIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClass(1, 1)
		c.toleratedFor = readTolerated
		enter := func(client string) *place {
			p := &place{class: c, client: client, end: func() {}}
			if !p.enter(t.Context()) {
				t.Fatalf("%s got no place", client)
			}
			return p
		}
		first := enter("a")
		time.AfterFunc(waitForPlace*3/4, first.leave)
		second := enter("b")
		third, wait := &place{class: c, client: "c", end: func() {}}, make(chan bool)
		go func() { wait <- third.enter(t.Context()) }()
		time.Sleep(readTolerated * 3 / 4)
		synctest.Wait()
		if second.ended() {
			t.Error("what it waited for its place counts as if it had held it")
		}
		time.Sleep(readTolerated)
		if !second.ended() {
			t.Error("a read that holds its place for long gives way to nobody")
		}
		second.leave()
		if !<-wait {
			t.Error("the third one got no place")
		}
	})
}

// Whose place was given to another has not gone away, though its context has ended: it takes
// no other place, of which it would not be known.
func TestWhoHadToGiveWayTakesNoOtherPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClass(1, 1)
		c.toleratedFor = readTolerated
		ctx, end := context.WithCancel(t.Context())
		slow := &place{class: c, client: "a", end: end}
		slow.enter(ctx)
		time.Sleep(readTolerated)
		other := &place{class: c, client: "b", end: func() {}}
		go func() {
			other.enter(t.Context())
			other.leave()
		}()
		synctest.Wait()
		err := slow.without(ctx, "a", func() error {
			synctest.Wait()
			return nil
		})
		if f := fault.As(err); f == nil || f.Code != "overloaded" || !slow.ended() {
			t.Errorf("it is told %v, and has ended: %t", err, slow.ended())
		}
	})
}

// hung takes what is written when it is told to.
type hung struct {
	http.ResponseWriter
	take chan struct{}
}

func (h hung) Write(p []byte) (int, error) {
	<-h.take
	return len(p), nil
}

func TestAnswersWithoutAPlaceAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClass(8, 0)
		take, part := make(chan struct{}), make([]byte, maxWritten/2)
		var answers sync.WaitGroup
		for range 3 {
			rec := &recorder{ResponseWriter: hung{take: take}, place: place{class: c, client: "a"}}
			if !rec.enter(t.Context()) {
				t.Fatal("all places are held")
			}
			answers.Go(func() {
				defer rec.leave()
				_, _ = rec.Write(part)
			})
		}
		synctest.Wait()
		if held, _ := c.Count(); held != 1 {
			t.Errorf("%d hold a place, not the third alone", held)
		}
		close(take)
		answers.Wait()
		if held, _ := c.Count(); held != 0 || c.written.Load() != 0 {
			t.Errorf("afterwards %d hold a place, and %d bytes are written", held, c.written.Load())
		}
	})
}

func TestTheMediaTypeThatIsWantedMostIsAnswered(t *testing.T) {
	op := &operation{exports: mediaCSV}
	for accept, want := range map[string]bool{
		"": false, "text/html": false, "*/*": false, "application/json": false,
		"text/csv": true, "Text/CSV; charset=utf-8": true, "text/csv;": true, "text/html, text/csv;q=0.5": true,
		"text/csv;q=0": false, "text/csv; Q=0.000": false, "text/csv;q=most": false, "text/csv;q=NaN": false,
		"application/json, text/csv;q=0.1": false, "text/csv;q=0.1, application/json": false, "text/csv;q=0.9, */*;q=0.8": true,
		"application/json;q=0.5, text/csv": true, "application/json;q=0, text/csv;q=0.1": true,
		"text/csv, application/json": true, "application/json, text/csv": false,
	} {
		if got := op.wantsExport([]string{accept}); got != want {
			t.Errorf("%s: %t", accept, got)
		}
	}
	if op.wantsExport([]string{"application/json", "text/csv;q=0.1"}) {
		t.Error("a second header is not measured by the first")
	}
}

func TestEachRequestHasItsClass(t *testing.T) {
	t.Parallel()
	a := Handler(nil, Options{Metrics: prometheus.NewRegistry()}).(*admission)
	name := map[*class]string{nil: "none", a.reads: "reads", a.lookUps: "lookups", a.writes: "writes", a.hashes: "hashes"}
	lines := []string{"text/html, application/x-ndjson;q=0.5"}
	for _, tt := range []struct {
		method, path string
		accept       []string
		want         string
	}{
		{"GET", "/api/v1/clients/cli_1/history", lines, "none"},
		{"HEAD", "/api/v1/clients/cli_1/history", lines, "none"},
		{"GET", "/api/v1/clients/cli_1/history", nil, "reads"},
		{"GET", "/api/v1/clients/cli_1/history/state", lines, "reads"},
		{"GET", "/api/v1/clients", lines, "reads"},
		{"POST", "/api/v1/users/import", nil, "none"},
		{"GET", "/api/v1/users/import", lines, "lookups"},
		{"GET", "/api/v1/users/usr_1", nil, "lookups"},
		{"HEAD", "/api/v1/users/usr_1", nil, "lookups"},
		{"GET", "/api/v1/users/usr_1/consents", nil, "reads"},
		{"GET", "/api/v1/users/", nil, "reads"},
		{"POST", "/auth/token", lines, "hashes"},
		{"POST", "/auth/exchange", lines, "writes"},
		{"POST", "/api/v1/clients/cli_1/members", nil, "hashes"},
		{"GET", "/api/v1/clients/cli_1/members", nil, "reads"},
		{"GET", "/api/v1/events", lines, "reads"},
		{"GET", "/api/v1/events?wait=0", nil, "reads"},
		{"GET", "/api/v1/events?wait=00", nil, "reads"},
		{"GET", "/api/v1/events?limit=3&wait=3", nil, "none"},
		{"GET", "/api/v1/events/stream", nil, "none"},
		{"GET", "/metrics", nil, "none"},
		{"GET", "/readyz", nil, "none"},
		{"POST", "/api/v1/users", lines, "writes"},
		{"GET", "/api/v1/users", lines, "reads"},
		{"GET", "/healthz", lines, "none"},
	} {
		path, query, _ := strings.Cut(tt.path, "?")
		if got := name[a.class(tt.method, path, query, tt.accept)]; got != tt.want {
			t.Errorf("%s %s of who accepts %q: %s; want %s", tt.method, tt.path, tt.accept, got, tt.want)
		}
	}
}

// A route is found by the path as it was sent, in which a slash of an id is escaped: so is the class.
func TestASlashOfAnIDDividesNoPath(t *testing.T) {
	t.Parallel()
	a := Handler(nil, Options{Metrics: prometheus.NewRegistry()}).(*admission)
	var got *class
	a.next = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w.(*recorder).class })
	for path, want := range map[string]*class{
		"/api/v1/users/ext:shop%2F7": a.lookUps, "/api/v1/segments/seg_1/members": nil, "/api/v1/segments/seg_1%2Fmembers": a.reads,
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", mediaCSV)
		if a.ServeHTTP(httptest.NewRecorder(), r); got != want {
			t.Errorf("%s takes a place of %v, not of %v", path, got, want)
		}
	}
}
