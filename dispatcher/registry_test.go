package dispatcher

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kindred/eventstore"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// worker registers a process that delivers, as far as others can tell.
func (r *fixture) worker() *registry {
	r.Helper()
	m := &registry{queue: r.queue(time.Minute)}
	if err := m.register(r.Context()); err != nil {
		r.Fatal(err)
	}
	return m
}

// holder is a worker that holds all that is queued: some deliveries to one webhook.
func (r *fixture) holder(deliveries int) *registry {
	r.Helper()
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(append([]eventstore.Recorded{subscribed}, r.matches(client, deliveries)...)...)
	m := r.worker()
	if n := len(r.claimBy(m.queue, deliveries)); n != deliveries {
		r.Fatal("claimed", n)
	}
	return m
}

// heartbeat has a worker give a sign of life, and returns how many deliveries it set free.
func (r *fixture) heartbeat(m *registry) int64 {
	r.Helper()
	freed, err := m.heartbeat(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return freed
}

// What was leased, or put off, by a clock that was hours ahead does not wait for hours.
func TestNothingWaitsForAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	m := r.holder(3)
	m.longest = time.Hour
	r.heartbeat(m)
	for _, sql := range []string{
		`UPDATE dispatch_queue SET leased_until = leased_until + interval '9 hours'`,
		`UPDATE dispatch_queue SET failed = 1, leased_until = NULL, due_at = now() + interval '9 hours'
		WHERE delivery = (SELECT min(delivery) FROM dispatch_queue)`,
		`UPDATE dispatch_endpoints SET held_until = now() + interval '9 hours'`,
	} {
		if _, err := r.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	late := func() int {
		return r.count(`SELECT (SELECT count(*) FROM dispatch_queue WHERE due_at > now() + interval '2 hours' OR leased_until > now() + interval '2 minutes')
			+ (SELECT count(*) FROM dispatch_endpoints WHERE held_until > now() + interval '2 hours')`)
	}
	if r.heartbeat(m); late() != 4 {
		t.Error("what waits is changed while the clock goes on")
	}
	m.told = m.told.Add(9 * time.Hour)
	if r.heartbeat(m); late() != 0 {
		t.Errorf("%d wait for hours", late())
	}
	// By the clock of a sandbox, which is a day ahead, this is due in half an hour.
	r.exec(`INSERT INTO dispatch_clients (client, ahead_us) SELECT client, 86400e6 FROM dispatch_endpoints`)
	r.exec(`UPDATE dispatch_queue SET due_at = now() + interval '24 hours 30 minutes' WHERE failed > 0`)
	m.told = m.told.Add(9 * time.Hour)
	if r.heartbeat(m); r.count(`SELECT count(*) FROM dispatch_queue WHERE due_at > now() + interval '24 hours 20 minutes'`) != 1 {
		t.Error("what waits in a sandbox is taken for late")
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE leased_until IS NULL`); n != 1 {
		t.Errorf("%d are held by nobody", n)
	}
}

func TestADeadProcessIsTakenOverLongBeforeItsLeasesEnd(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 10)...)
	dead := r.worker()
	dead.queue.lease = time.Hour
	claims := r.claimBy(dead.queue, 10)
	if len(claims) != 10 {
		t.Fatal("claimed", len(claims))
	}
	r.Config.Lease = time.Hour
	r.start(r.Dispatcher)
	seen := map[string]bool{}
	for range claims {
		seen[rx.next(t).header.Get("X-Kindred-Delivery")] = true
	}
	r.ended("delivered", 10)
	for _, c := range claims {
		if !seen[string(c.Delivery)] {
			t.Errorf("%s was not delivered", c.Delivery)
		}
	}
}

func TestAProcessThatGivesSignsOfLifeKeepsWhatItHolds(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 6)...)
	slow, quick := r.worker(), r.worker()
	held := r.claimBy(slow.queue, 3)
	r.claimBy(quick.queue, 3)

	// However fast another one's clock runs, and if the database is away in between.
	for range 3 {
		for range deadAfter {
			if freed := r.heartbeat(quick); freed != 0 {
				t.Fatalf("%d deliveries of a living process were set free", freed)
			}
		}
		r.heartbeat(slow)
	}
	var freed int64
	for range deadAfter + 1 {
		freed += r.heartbeat(quick)
	}
	if freed != 3 {
		t.Fatalf("%d deliveries of a dead process were set free, not 3", freed)
	}
	before := slow.queue.holder.Load()
	r.heartbeat(slow) // it was only held up
	if slow.queue.holder.Load() == before {
		t.Error("it claims under the name of the dead")
	}
	taken := r.claimBy(quick.queue, 10)
	if len(taken) != 3 || taken[0].Token != 2 {
		t.Fatalf("claimed %d of what was set free", len(taken))
	}
	if states := r.note(delivered, held...); len(states) != 0 {
		t.Errorf("a process that was reaped still decides: %v", states)
	}
	for range 3 * deadAfter {
		if freed := r.heartbeat(slow) + r.heartbeat(quick); freed != 0 {
			t.Fatalf("%d deliveries were set free twice", freed)
		}
	}
}

func TestAProcessThatStopsKeepsWhatItHoldsUntilThatHasEnded(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	release := make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	rx := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(open)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 3)...)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); open(); running.Wait() })
	for range 3 {
		rx.next(t)
	}
	other := r.worker()
	cancel()
	counted := func() int {
		return r.count(`SELECT coalesce(max(heartbeats), 0) FROM dispatch_workers WHERE id <> $1`, other.queue.holder.Load())
	}
	for range 3 { // of which one may have been on its way before
		last := counted()
		testkit.Eventually(r.TB, "it gives a sign of life", func() bool { return counted() > last })
		for range deadAfter {
			if freed := r.heartbeat(other); freed != 0 {
				t.Fatalf("%d deliveries of a stopping process were set free", freed)
			}
		}
	}
	open()
	running.Wait()
	r.ended("delivered", 3)
	if n := len(rx.got); n != 0 {
		t.Errorf("%d were sent twice", n)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_workers WHERE id <> $1`, other.queue.holder.Load()); n != 0 {
		t.Error("it is still expected to live")
	}
}

func TestWhatADeadProcessHoldsIsFreeWhenItsLeasesEndWhereItCannotBeFreedBefore(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	dead, lives := r.holder(2), r.worker()
	release := pgtest.Lock(t, r.pool, `dispatch_queue IN EXCLUSIVE MODE`)
	ctx, timeOut := context.WithCancel(t.Context())
	var reaping sync.WaitGroup
	reaping.Go(func() {
		if _, err := lives.reap(ctx, dead.queue.holder.Load(), 0); err == nil {
			t.Error("set free what it could not")
		}
	})
	waiting := func() int {
		return r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	}
	testkit.Eventually(r.TB, "it waits", func() bool { return waiting() == 1 })
	timeOut()
	reaping.Wait()
	testkit.Eventually(r.TB, "it waits no more", func() bool { return waiting() == 0 })
	release()
	if n := len(r.claimBy(lives.queue, 2)); n != 0 {
		t.Errorf("%d are claimed before their leases have ended", n)
	}
	r.endLeases()
	if n := len(r.claimBy(lives.queue, 2)); n != 2 {
		t.Errorf("%d of 2 are free after their leases have ended", n)
	}
}

// A process that reaps many gives heartbeats all the same: it reaps one at a time.
func TestAWorkerThatReapsTheDeadIsNotTakenForDead(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	lives := r.worker()
	for range 2 {
		r.holder(2)
	}
	pgtest.Lock(t, r.pool, `dispatch_queue IN EXCLUSIVE MODE`)
	for range deadAfter {
		r.heartbeat(lives)
	}
	for range 2 {
		bounded, cancel := context.WithTimeout(t.Context(), dbTimeout)
		began := time.Now()
		_, err := lives.heartbeat(bounded)
		cancel()
		if err == nil {
			t.Fatal("set free what it could not")
		}
		if silent := time.Since(began) + heartbeatEvery; silent >= deadAfter*heartbeatEvery {
			t.Fatalf("gave no sign of life for %s", silent)
		}
	}
	if freed := r.heartbeat(lives); freed != 0 {
		t.Errorf("%d deliveries were set free", freed)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_workers`); n != 1 {
		t.Errorf("%d workers are registered", n)
	}
}

// What could not be noted is free once its worker is deregistered.
func TestAWorkerThatDeregistersSetsFreeWhatItHolds(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	stopping, stays := r.holder(2), r.worker()
	r.heartbeat(stopping)
	for range 2 { // again: there is nothing to deregister
		if err := stopping.deregister(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.claimBy(stays.queue, 2)); n != 2 {
		t.Errorf("%d of 2 are free", n)
	}
}

func TestHeartbeatsThatGoOnFailingAreLoggedOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	lives := r.worker()
	r.pool.Close()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		w := &worker{Dispatcher: r.replica(Config{}), config: Config{RetryDelays: []time.Duration{time.Second}}, queue: lives.queue}
		w.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w.keepAlive(ctx)
		if n := bytes.Count(logged.Bytes(), []byte("\n")); n != 1 {
			t.Errorf("%d lines of the log in a minute, want 1:\n%s", n, logged.String())
		}
	})
}
