package httpapi

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestALaneLetsAFewWaitForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLane(1, 3, prometheus.NewCounter(prometheus.CounterOpts{Name: "shed"}))
		turns := make(chan bool, 2)
		wait := func(ctx context.Context) {
			go func() { turns <- l.enter(ctx, "a") }()
			synctest.Wait()
		}
		if !l.enter(t.Context(), "a") {
			t.Fatal("nobody is there, yet there is no slot")
		}

		began := time.Now()
		wait(t.Context())
		wait(t.Context())
		if l.enter(t.Context(), "a") || time.Since(began) > 0 {
			t.Error("a third one waits")
		}
		l.leave("a")
		if !<-turns || time.Since(began) > 0 {
			t.Error("the turn of the first who waits has not come")
		}
		if <-turns || time.Since(began) != waitForTurn {
			t.Errorf("the second one was let in, or waited for %s", time.Since(began))
		}

		ctx, goAway := context.WithCancel(t.Context())
		wait(ctx)
		goAway()
		if <-turns {
			t.Error("who has gone away was let in")
		}
		l.leave("a")
		if !l.enter(t.Context(), "a") {
			t.Error("the slot is lost")
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

func TestAnswersOutsideTheLaneAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLane(8, 8, prometheus.NewCounter(prometheus.CounterOpts{Name: "shed"}))
		take, part := make(chan struct{}), make([]byte, maxUntaken/2)
		var answers sync.WaitGroup
		for range 3 {
			if !l.enter(t.Context(), "a") {
				t.Fatal("the lane is full")
			}
			answers.Go(func() {
				rec := &recorder{ResponseWriter: hung{take: take}, lane: l, client: "a"}
				defer rec.leave()
				_, _ = rec.Write(part)
			})
		}
		synctest.Wait()
		if inside, _ := l.Count(); inside != 1 {
			t.Errorf("%d are inside, not the third alone", inside)
		}
		close(take)
		answers.Wait()
		if inside, untaken := held(l), l.untaken.Load(); inside != 0 || untaken != 0 {
			t.Errorf("afterwards %d are inside, and %d bytes outside", inside, untaken)
		}
	})
}

func TestOnlyWhatStreamsTakesThePlaceOfAStream(t *testing.T) {
	t.Parallel()
	a := Handler(nil, Options{Metrics: prometheus.NewRegistry()}).(*admission)
	name := map[*lane]string{nil: "none", a.reads: "reads", a.writes: "writes"}
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
		{"GET", "/api/v1/users/import", lines, "reads"},
		{"POST", "/auth/token", lines, "writes"},
		{"POST", "/api/v1/users", lines, "writes"},
		{"GET", "/api/v1/users", lines, "reads"},
		{"GET", "/healthz", lines, "none"},
	} {
		if got := name[a.lane(tt.method, tt.path, tt.accept)]; got != tt.want {
			t.Errorf("%s %s of who accepts %q: %s; want %s", tt.method, tt.path, tt.accept, got, tt.want)
		}
	}
}

// TestWhatWaitsLongerThanItsRequestTakesNoPlace ends a request while something
// of it waits outside.
func TestWhatWaitsLongerThanItsRequestTakesNoPlace(t *testing.T) {
	t.Parallel()
	l := newLane(1, 1, prometheus.NewCounter(prometheus.CounterOpts{Name: "shed"}))
	if !l.enter(t.Context(), "a") {
		t.Fatal("the lane is full")
	}
	x := &exchange{rec: &recorder{lane: l, client: "a"}}
	if err := WaitOutside(context.WithValue(t.Context(), exchangeKey{}, x), func(context.Context) error {
		x.rec.leave()
		return nil
	}); err != nil {
		t.Error(err)
	}
	if inside := held(l); inside != 0 {
		t.Errorf("%d are inside", inside)
	}
}

func held(l *lane) int {
	n, _ := l.Count()
	return n
}
