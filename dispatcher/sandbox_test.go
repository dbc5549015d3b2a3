package dispatcher

import (
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// However much has failed, a move of the clock writes none of it: the transaction is
// everybody's. Here a row is locked that it would have to wait for.
func TestAMovedClockMakesDueWhatHasFailedAndWaitsForNoneOfIt(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	sandbox, live := r.client(), r.client()
	webhook, subscribed := r.subscribe(sandbox, "http://a.example", "")
	_, beside := r.subscribe(live, "http://b.example", "")
	r.apply(subscribed, beside)
	r.apply(append(r.matches(sandbox, 3), r.match(live))...)
	ahead := time.Duration(0)
	move := func(by time.Duration) {
		ahead += by
		r.apply(r.recorded(sandbox, event.ClockMoved{Client: sandbox, MovedMicros: by.Microseconds(), AheadMicros: ahead.Microseconds()}))
	}
	fail := func(in time.Duration) {
		t.Helper()
		all := outcomes(failed, r.claim(10)...)
		if len(all) == 0 {
			t.Fatal("nothing is due")
		}
		for i := range all {
			all[i].retryIn = in
		}
		r.noteAll(all, false)
	}
	due := func() (n int) {
		for _, c := range r.claim(10) {
			if c.Client != sandbox {
				t.Errorf("%s is due, though its clock was not moved", c.Client)
			}
			n++
		}
		r.exec(`UPDATE dispatch_queue SET leased_until = NULL, holder = NULL WHERE leased_until IS NOT NULL`)
		return n
	}
	fail(time.Hour)
	tx := testkit.Must(r.pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM dispatch_queue WHERE client = $1 ORDER BY made LIMIT 1 FOR UPDATE`, sandbox); err != nil {
		t.Fatal(err)
	}
	move(59 * time.Minute)
	if n := due(); n != 0 {
		t.Errorf("a minute early %d are due", n)
	}
	move(time.Minute)
	if n := due(); n != 2 {
		t.Errorf("%d of those that nobody holds are due, not 2", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What fails later waits from there on, and lists tell it by the machine's clock.
	fail(time.Hour)
	if n := due(); n != 0 {
		t.Errorf("%d are due right after they failed", n)
	}
	log := Log{Pool: r.pool, Progress: projector.NewProgress(r.pool, r.Logger)}
	listed, _, err := log.List(t.Context(), sandbox, webhook, true, Query{Limit: 10})
	if err != nil || len(listed) != 3 {
		t.Fatalf("%d are listed: %v", len(listed), err)
	}
	for _, d := range listed {
		if d.NextAttemptAt == nil || time.Until(*d.NextAttemptAt) > time.Hour || time.Until(*d.NextAttemptAt) < 30*time.Minute {
			t.Errorf("the next attempt is at %v, not in an hour", d.NextAttemptAt)
		}
	}
	move(time.Hour)
	if n := due(); n != 3 {
		t.Errorf("%d are due, not 3", n)
	}
}

func TestAMovedClockEndsAHold(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	sandbox := r.client()
	_, subscribed := r.subscribe(sandbox, "http://a.example", "")
	r.apply(subscribed, r.match(sandbox))
	asked := outcomes(failed, r.claim(1)...)
	asked[0].hold = 3 * time.Hour
	r.noteAll(asked, false)
	for _, moved := range []struct {
		to time.Duration
		n  int
	}{{2 * time.Hour, 0}, {4 * time.Hour, 1}} {
		r.apply(r.recorded(sandbox, event.ClockMoved{Client: sandbox, AheadMicros: moved.to.Microseconds()}))
		if n := len(r.claim(1)); n != moved.n {
			t.Errorf("%s later %d are claimed, not %d", moved.to, n, moved.n)
		}
	}
}
