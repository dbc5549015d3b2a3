package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func killSelf(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
	return err
}

func TestABatchAndItsCheckpointAreOne(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]names{
		"nothing goes wrong":                      {},
		"the connection dies before the writes":   {before: onceAt("acme 7", killSelf)},
		"the connection dies after the writes":    {after: onceAt("acme 7", killSelf)},
		"the time is up within a batch":           {after: onceAt("acme 7", func(context.Context, pgx.Tx) error { return context.DeadlineExceeded })},
		"the log is not reachable within a batch": {after: onceAt("acme 7", func(context.Context, pgx.Tx) error { return eventstore.ErrUnavailable })},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.rename(t, acme, numbered("acme", 5)...)
			background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, p) })
			w.rename(t, bolt, numbered("bolt", 5)...)
			last := w.rename(t, acme, numbered("acme", 10)[5:]...)
			w.passed(t, "names_2", last)
			w.complete(t)
			if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
				t.Errorf("%d clients were quarantined for the database's trouble", n)
			}
			if n := w.one(t, `SELECT events FROM checkpoints WHERE name = 'names_2'`); n != 15 {
				t.Errorf("%d events were counted", n)
			}
		})
	}
}

func TestManyRunnersThatComeAndGoApplyEachEventOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stopWriting := make(chan struct{})
	var last eventstore.Position
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stopWriting:
				return
			default:
				last = w.rename(t, acme, "again")
			}
		}
	})
	for range 8 {
		a := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
		b := background(t, func(ctx context.Context) error { return w.runner("b").Run(ctx, names{}) })
		before := w.one(t, `SELECT coalesce(max(events), 0) FROM checkpoints`)
		testkit.Eventually(t, "progress", func() bool { return w.one(t, `SELECT coalesce(max(events), 0) FROM checkpoints`) > before })
		a()
		b()
	}
	close(stopWriting)
	writing.Wait()
	background(t, func(ctx context.Context) error { return w.runner("c").Run(ctx, names{}) })
	w.passed(t, "names_2", last)
	w.complete(t)
}

// A server that lost commits may have given another holder the same epoch.
func TestALeaseOfTheSameEpochThatIsAnothersIsNotRenewed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	lost := make(chan struct{})
	var once sync.Once
	background(t, func(ctx context.Context) error {
		return w.runner("a").Lead(ctx, "work", func(ctx context.Context) error {
			if n := w.one(t, `WITH e AS (UPDATE leases SET holder = 'b', expires_at = now() + interval '59 seconds' RETURNING 1) SELECT count(*) FROM e`); n != 1 {
				t.Errorf("%d leases", n)
			}
			<-ctx.Done()
			once.Do(func() { close(lost) })
			return ctx.Err()
		})
	})
	select {
	case <-lost:
	case <-time.After(testkit.Patience()):
		t.Error("it goes on under the lease of another")
	}
	if n := w.one(t, `SELECT count(*) FROM leases WHERE holder = 'b' AND expires_at > now() + interval '10 seconds'`); n != 1 {
		t.Error("the lease of another was changed")
	}
}

// Whoever led died as the server's clock was set back by hours.
func TestALeaseOfAClockThatWasAheadKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO leases (name, holder, epoch, expires_at)
		VALUES ('names_2', 'dead', 7, clock_timestamp() + interval '3 hours')`); err != nil {
		t.Fatal(err)
	}
	if served, err := projector.Served(t.Context(), w.pool); err != nil || served {
		t.Errorf("somebody serves: %t, %v", served, err)
	}
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "after"))
}

// TestADumpOfAServiceServesNobody has a lease that a dump took along, and nobody renews.
func TestADumpOfAServiceServesNobody(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO leases (name, holder, epoch, expires_at)
		VALUES ('names_2', 'dumped', 7, clock_timestamp() + interval '500 milliseconds')`); err != nil {
		t.Fatal(err)
	}
	if served, err := projector.Served(t.Context(), w.pool); err != nil || served {
		t.Errorf("a dump: somebody serves: %t, %v", served, err)
	}
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "after"))
	if served, err := projector.Served(t.Context(), w.pool); err != nil || !served {
		t.Errorf("a service: somebody serves: %t, %v", served, err)
	}
}

func TestAPausedLeaderCannotWriteLate(t *testing.T) {
	t.Parallel()
	for name, afterWrites := range map[string]bool{"before its writes": false, "with its writes open": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			paused, goOn := make(chan struct{}), make(chan struct{})
			pause := onceAt("first", func(context.Context, pgx.Tx) error {
				close(paused)
				<-goOn
				return nil
			})
			slow := names{before: pause}
			if afterWrites {
				slow = names{after: pause}
			}
			late := w.runner("paused")
			late.Lease = time.Hour // so it renews nothing meanwhile
			background(t, func(ctx context.Context) error { return late.Run(ctx, slow) })
			defer sync.OnceFunc(func() { close(goOn) })()
			w.rename(t, acme, "first")
			<-paused
			if n := w.one(t, `WITH e AS (UPDATE leases SET expires_at = now() RETURNING 1) SELECT count(*) FROM e`); n != 1 {
				t.Fatalf("%d leases", n)
			}
			background(t, func(ctx context.Context) error { return w.runner("next").Run(ctx, names{}) })
			last := w.rename(t, acme, "second")
			w.passed(t, "names_2", last)
			goOn <- struct{}{}
			last = w.rename(t, bolt, "third")
			w.passed(t, "names_2", last)
			w.complete(t)
			if n := w.one(t, `SELECT count(*) FROM renamings`); n != 3 {
				t.Errorf("%d rows for 3 events", n)
			}
			if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
				t.Errorf("the late leader quarantined %d clients", n)
			}
			if n := w.one(t, `SELECT events FROM checkpoints`); n != 3 {
				t.Errorf("%d events counted", n)
			}
		})
	}
}

func TestADeadLeadersLeaseRunsOut(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO leases (name, holder, epoch, expires_at)
		VALUES ('names_2', 'dead', 41, clock_timestamp() + interval '700 ms')`); err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error { return w.runner("heir").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "x"))
	if n := w.one(t, `SELECT count(*) FROM leases WHERE holder = 'heir' AND epoch = 42`); n != 1 {
		t.Error("the heir does not hold the next epoch")
	}
	if n := w.one(t, `SELECT count(*) FROM leases l JOIN checkpoints c ON c.lease_epoch = l.epoch
		WHERE c.updated_at >= l.expires_at - interval '1 second'`); n != 1 {
		t.Error("the checkpoint is not the heir's")
	}
}

func TestWhoStopsWhileItWaitsForALeaseWarnsOfNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var logged syncBuffer
	runner := w.runner("a")
	runner.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
	release := pgtest.Lock(t, w.pool, `leases IN ACCESS EXCLUSIVE MODE`)
	stop := background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	testkit.Eventually(t, "it waits", func() bool {
		return w.one(t, `SELECT count(*) FROM pg_locks WHERE relation = 'leases'::regclass AND NOT granted`) == 1
	})
	stop()
	release()
	if text := logged.String(); strings.Contains(text, `"WARN"`) {
		t.Errorf("logged %s", text)
	}
}

func TestWhoLosesTheLeaseOftenLeadsAgainAtOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, bolt, "first"))
	const seize = `UPDATE leases SET epoch = epoch + 1, expires_at = clock_timestamp(); UPDATE checkpoints SET lease_epoch = lease_epoch + 1`
	for i := range 12 {
		if _, err := w.pool.Exec(t.Context(), seize); err != nil {
			t.Fatal(err)
		}
		w.rename(t, bolt, "more")
		if _, err := w.newest(t.Context(), bolt, false); err != nil {
			t.Fatalf("after %d losses: %v", i+1, err)
		}
	}
}

func TestALeaseIsNotTakenBeforeItEnds(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	lead := func(name string) {
		r := w.runner(name)
		r.Lease = 2 * time.Second // longer than a machine stands still
		background(t, func(ctx context.Context) error { return r.Run(ctx, names{}) })
	}
	lead("first")
	w.passed(t, "names_2", w.rename(t, acme, "x"))
	lead("second")
	var ends time.Time
	if err := w.pool.QueryRow(t.Context(), `SELECT expires_at FROM leases`).Scan(&ends); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the first lease would have run out twice", func() bool {
		w.passed(t, "names_2", w.rename(t, acme, "y"))
		if n := w.one(t, `SELECT count(*) FROM leases WHERE holder = 'first'`); n != 1 {
			t.Fatal("another leads")
		}
		return w.one(t, `SELECT count(*) FROM leases WHERE clock_timestamp() > $1::timestamptz + interval '2 seconds'`, ends) == 1
	})
}

func TestARestoredLogIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	original := newFixtureOn(pool, memstore.New("epoch"))
	last := original.rename(t, acme, "one", "two", "three")
	stop := background(t, func(ctx context.Context) error { return original.runner("a").Run(ctx, names{}) })
	original.passed(t, "names_2", last)
	stop()

	shorter := newFixtureOn(pool, memstore.New("epoch"))
	shorter.rename(t, acme, "one", "two")
	other := newFixtureOn(pool, memstore.New("epoch"))
	other.rename(t, acme, "one", "two", "another three", "four")
	anew := newFixtureOn(pool, memstore.New("another epoch"))
	anew.rename(t, acme, "one", "two", "three", "four")

	for name, w := range map[string]*fixture{"a shorter log": shorter, "other events": other, "another log": anew} {
		err := w.runner("a").Run(t.Context(), names{})
		if !errors.Is(err, projector.ErrRestored) || !strings.Contains(err.Error(), "kindred projections rebuild names") {
			t.Errorf("%s: %v", name, err)
		}
		if n := original.one(t, `SELECT count(*) FROM names_2.renamings`); n != 3 {
			t.Errorf("%s: the tables were touched", name)
		}
	}
	if err := shorter.runner("a").Rebuild(t.Context(), names{}, nil); err != nil {
		t.Fatalf("rebuild: %v", err)
	}
	if n := original.one(t, `SELECT count(*) FROM names_2.renamings`); n != 2 {
		t.Errorf("after the rebuild there are %d rows", n)
	}
	background(t, func(ctx context.Context) error { return shorter.runner("a").Run(ctx, names{}) })
	shorter.passed(t, "names_2", shorter.rename(t, acme, "another way"))
}

// What was never written: version 1 always had settings, to which its upcaster adds one.
const panicType, panicData = "client.settings_changed", `{"client_id":"cli_acme","settings":null}`

func TestAPoisonEventStopsOneClient(t *testing.T) {
	t.Parallel()
	renaming := func(name string) []byte {
		data, _ := json.Marshal(map[string]any{"client_id": acme, "name": name})
		return data
	}
	for name, c := range map[string]struct {
		projection names
		eventType  string
		data       []byte
	}{
		"an error of the projection":  {names{before: always("bad", func() error { return errTest })}, "client.renamed", renaming("bad")},
		"a panic":                     {names{before: always("bad", func() error { panic("index out of range") })}, "client.renamed", renaming("bad")},
		"a panic while it is read":    {names{}, panicType, []byte(panicData)},
		"a constraint":                {names{}, "client.renamed", renaming("forbidden")},
		"a NUL that text cannot hold": {names{}, "client.renamed", renaming("a\x00b")},
		"data that cannot be read":    {names{}, "client.renamed", []byte(`{"name": 7`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			var logged syncBuffer
			runner := w.runner("a")
			runner.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
			w.rename(t, acme, "good")
			w.rename(t, bolt, numbered("bolt", 3)...)
			poison := w.append(t, acme, c.eventType, 1, c.data)
			w.rename(t, acme, "not reached")
			w.rename(t, bolt, numbered("bolt", 3)...)
			stop := background(t, func(ctx context.Context) error { return runner.Run(ctx, c.projection) })
			told := func() int { return strings.Count(logged.String(), `"client quarantined"`) }
			w.passed(t, "names_2", w.rename(t, bolt, "on"))
			testkit.Eventually(t, "the quarantine is told", func() bool { return told() == 1 }) // after its commit
			stop()
			third := id.Client("cli_third")
			w.rename(t, acme, "not reached either")
			w.append(t, third, c.eventType, 1, c.data)
			last := w.rename(t, bolt, "and on")
			background(t, func(ctx context.Context) error { return runner.Run(ctx, c.projection) }) // remembers
			w.passed(t, "names_2", last)

			w.complete(t, acme, third)
			if n := w.one(t, `SELECT count(*) FROM renamings WHERE client = $1`, acme); n != 1 {
				t.Errorf("%d events of the client were applied, not the one before the poison", n)
			}
			if n := w.one(t, `SELECT count(*) FROM quarantine WHERE projection = 'names_2' AND client = $1 AND position = $2
				AND (SELECT count(*) FROM quarantine) = 2`, acme, poison); n != 1 {
				t.Error("not exactly the two clients are quarantined, each at its event")
			}
			testkit.Eventually(t, "the second one is told", func() bool { return told() >= 2 })
			if n := told(); n != 2 {
				t.Errorf("logged %d times: %s", n, logged.String())
			}
			if _, err := w.newest(t.Context(), acme, true); !fault.Is(err, "quarantined") {
				t.Errorf("reading the client's part: %v", err)
			}
			if got, err := w.newest(t.Context(), bolt, false); err != nil || got != "and on" {
				t.Errorf("reading another's: %q, %v", got, err)
			}
			list, err := projector.List(t.Context(), w.pool)
			if err != nil || len(list) != 1 || list[0].Leader != "a" ||
				len(list[0].Quarantined) != 2 || list[0].Quarantined[1].Client != acme {
				t.Errorf("listed %+v, %v", list, err)
			}
		})
	}
}

func always(name string, do func() error) func(context.Context, pgx.Tx, []eventstore.Recorded) error {
	return func(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) error {
		for _, r := range batch {
			if strings.Contains(string(r.Data), `"`+name+`"`) {
				return do()
			}
		}
		return nil
	}
}

func TestABatchThatTakesTooLongIsAppliedInParts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	runner := w.runner("a")
	runner.Batch = 300 * time.Millisecond
	stall := func(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
		if len(batch) <= 4 {
			return nil
		}
		_, err := tx.Exec(ctx, `SELECT pg_sleep(60)`)
		return err
	}
	w.rename(t, acme, numbered("acme", 9)...)
	last := w.rename(t, bolt, numbered("bolt", 10)...)
	background(t, func(ctx context.Context) error { return runner.Run(ctx, names{before: stall}) })
	w.passed(t, "names_2", last)
	w.complete(t)
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
}

func TestAnEventThatTakesLongIsGivenMoreTime(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	runner := w.runner("a")
	runner.Batch = 200 * time.Millisecond
	long := func(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
		if !slices.ContainsFunc(batch, func(r eventstore.Recorded) bool { return strings.Contains(string(r.Data), `"long"`) }) {
			return nil
		}
		_, err := tx.Exec(ctx, `SELECT pg_sleep(1)`)
		return err
	}
	w.rename(t, acme, "short", "long", "short again")
	last := w.rename(t, bolt, "bolt")
	background(t, func(ctx context.Context) error { return runner.Run(ctx, names{before: long}) })
	w.passed(t, "names_2", last)
	w.complete(t)
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
}

func TestADeploymentsTroubleQuarantinesNobody(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var logged syncBuffer
	runner := w.runner("a")
	runner.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
	once, tries := onceAt("w", func(context.Context, pgx.Tx) error { return projector.Transient(errTest) }), atomic.Int32{}
	background(t, func(ctx context.Context) error {
		return runner.Run(ctx, names{before: func(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
			tries.Add(1)
			return once(ctx, tx, batch)
		}})
	})
	w.passed(t, "names_2", w.rename(t, acme, "w"))
	rename := func(from, to string) {
		if _, err := w.pool.Exec(t.Context(), `ALTER TABLE names_2.renamings RENAME COLUMN `+from+` TO `+to); err != nil {
			t.Fatal(err)
		}
	}
	rename("name", "nom")
	last := w.rename(t, acme, "x")
	before := tries.Load()
	testkit.Eventually(t, "it fails a few times", func() bool { return tries.Load() > before+2 })
	rename("nom", "name")
	w.passed(t, "names_2", last)
	w.complete(t)
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
	if lines := strings.Count(logged.String(), "batch not applied"); lines != 1 {
		t.Errorf("told %d times at once:\n%s", lines, logged.String())
	}
}

func TestAnUnknownVersionEndsLeadershipOnly(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.rename(t, acme, "known")
	w.append(t, acme, "client.renamed", 99, []byte(`{}`))
	w.rename(t, bolt, "after")
	runner := w.runner("old release")
	runner.Pause = time.Hour
	background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	w.passed(t, "names_2", before)
	testkit.Eventually(t, "the lease is given back", func() bool {
		return w.one(t, `SELECT count(*) FROM leases WHERE expires_at <= clock_timestamp()`) == 1
	})
	if n := w.one(t, `SELECT count(*) FROM checkpoints WHERE position = $1`, before); n != 1 {
		t.Error("the checkpoint is not right before the unknown event")
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
	// A release that knows it would lead now; this one stands in for it.
	if _, err := w.pool.Exec(t.Context(), `UPDATE events SET version = 1, data = '{"name":"lifted"}' WHERE version = 99`); err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.Open(t.Context(), w.pool, nil) // of a process that has not read it before
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := *w.log
	log.Store = store
	newer := w.runner("new release")
	newer.Log = &log
	defer background(t, func(ctx context.Context) error { return newer.Run(ctx, names{}) })()
	w.passed(t, "names_2", w.rename(t, id.Client("cli_third"), "x"))
	w.complete(t)
}

// counter is a projection that is no read model, as the dispatcher is.
type counter struct{ seen *[]eventstore.Position }

func (counter) Name() string { return "counter" }
func (counter) Version() int { return 7 }
func (c counter) Apply(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) error {
	for _, r := range batch {
		*c.seen = append(*c.seen, r.Position)
	}
	return nil
}

// choosy is a projection that only the founding of clients concerns.
type choosy struct{ counter }

func (choosy) Wants(eventType string) bool { return eventType == "client.signed_up" }

func TestWhatAProjectionDoesNotWantIsPassedOverUnread(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "one")
	var seen []eventstore.Position
	wanted := w.append(t, acme, "client.signed_up", 1, []byte(`{"client_id":"cli_acme"}`))
	w.append(t, acme, "client.renamed", 99, []byte(`{}`))          // no release knows it
	w.append(t, bolt, "client.renamed", 1, []byte(`not readable`)) // nor can it be read
	last := w.rename(t, bolt, "two")
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, choosy{counter{&seen}}) })
	w.passed(t, "counter", last)
	stop()
	if !slices.Equal(seen, []eventstore.Position{wanted}) {
		t.Errorf("applied %v, not %v alone", seen, wanted)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
}

// unending is a log to which more is written whenever its end is looked for.
type unending struct{ eventstore.Store }

func (u unending) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	sub, err := u.Store.Subscribe(ctx, after)
	return neverCaughtUp{sub}, err
}

type neverCaughtUp struct{ eventstore.Subscription }

func (s neverCaughtUp) Next(ctx context.Context, limit int) (eventstore.Batch, error) {
	batch, err := s.Subscription.Next(ctx, limit)
	batch.CaughtUp = false
	return batch, err
}

func TestWhatIsWrittenWithoutEndIsGathered(t *testing.T) {
	t.Parallel()
	const batches = 6
	store := memstore.New("log")
	w := newFixtureOn(pgtest.New(t), store)
	w.log.Store = unending{store}
	var applied atomic.Int64
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, counted{&applied}) })
	pace := time.NewTicker(time.Millisecond) // no batch is full
	defer pace.Stop()
	var last eventstore.Position
	writes := func() { last = w.rename(t, acme, "one"); <-pace.C }
	for applied.Load() == 0 {
		writes()
	}
	began := time.Now()
	for applied.Load() < batches {
		writes()
	}
	if took, least := time.Since(began), (batches-2)*projector.Patience(false, true, 1); took < least {
		t.Errorf("%d batches were applied within %s: what comes meanwhile is gathered, for %s at least", batches, took, least)
	}
	w.passed(t, "counted", last)
	stop()
}

// counted counts batches.
type counted struct{ batches *atomic.Int64 }

func (counted) Name() string { return "counted" }
func (counted) Version() int { return 1 }
func (c counted) Apply(context.Context, pgx.Tx, []eventstore.Recorded) error {
	c.batches.Add(1)
	return nil
}

func TestSkipGoesOnFromTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	var seen []eventstore.Position
	old := newFixtureOn(pool, memstore.New("old"))
	last := old.rename(t, acme, "one", "two", "three")
	stop := background(t, func(ctx context.Context) error { return old.runner("a").Run(ctx, counter{&seen}) })
	old.passed(t, "counter", last)
	stop()
	for _, name := range []string{"behind", "names_1", "names_2", "policy_a", "users_10"} { // that had come as far
		if _, err := pool.Exec(t.Context(), `INSERT INTO checkpoints SELECT $1, epoch, position, event_id, events, 1 FROM checkpoints WHERE name = 'counter'`, name); err != nil {
			t.Fatal(err)
		}
	}
	restored := newFixtureOn(pool, memstore.New("new"))
	restored.rename(t, acme, "one", "two")
	if _, err := pool.Exec(t.Context(), `UPDATE checkpoints SET position = '', epoch = 'new' WHERE name = 'behind'`); err != nil {
		t.Fatal(err)
	}
	err := restored.runner("a").Run(t.Context(), counter{&seen})
	const ways = "kindred projections skip counter. So do others: kindred projections rebuild names users; kindred projections skip policy_a"
	if !errors.Is(err, projector.ErrRestored) || !strings.HasSuffix(err.Error(), ways) {
		t.Fatalf("got %v", err)
	}
	if err := restored.runner("a").Skip(t.Context(), "counter"); err != nil {
		t.Fatal(err)
	}
	seen = nil
	stop = background(t, func(ctx context.Context) error { return restored.runner("a").Run(ctx, counter{&seen}) })
	last = restored.rename(t, acme, "three")
	restored.passed(t, "counter", last)
	stop()
	if err := restored.runner("a").Rebuild(t.Context(), names{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := restored.runner("a").Skip(t.Context(), "names_2"); err == nil {
		t.Error("a read model can be skipped")
	}
	if err := restored.runner("a").Skip(t.Context(), "countre"); err == nil || !strings.Contains(err.Error(), "countre") {
		t.Errorf("what there is not was skipped: %v", err)
	}
	if n := restored.one(t, `SELECT (SELECT count(*) FROM leases WHERE name = 'countre') + (SELECT count(*) FROM checkpoints WHERE name = 'countre')`); n != 0 {
		t.Errorf("%d rows were made for it", n)
	}
	if len(seen) != 1 || seen[0] != last {
		t.Errorf("saw %v", seen)
	}
}

func TestHeadsBeyondARestoredLogAreLowered(t *testing.T) {
	t.Parallel()
	for way, work := range map[string]func(*projector.Runner) error{
		"rebuild": func(r *projector.Runner) error { return r.Rebuild(t.Context(), names{}, nil) },
		"skip":    func(r *projector.Runner) error { return r.Skip(t.Context(), "counter") },
	} {
		t.Run(way, func(t *testing.T) {
			w := newFixtureOn(pgtest.New(t), memstore.New("restored"))
			const note = `INSERT INTO heads (client, position) VALUES ($1, $2)`
			end := w.rename(t, acme, "one", "two")
			for client, head := range map[id.Client]eventstore.Position{acme: end + "f", bolt: end, "cli_first": position(1)} {
				if _, err := w.pool.Exec(t.Context(), note, client, head); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.pool.Exec(t.Context(), `INSERT INTO checkpoints (name, epoch, position, event_id, events, lease_epoch) VALUES ('counter', '', '', '', 0, 0)`); err != nil {
				t.Fatal(err)
			}
			if err := work(w.runner("operator")); err != nil {
				t.Fatal(err)
			}
			if n := w.one(t, `SELECT count(*) FROM heads WHERE position = $1`, end); n != 2 {
				t.Errorf("%d heads are at the end of the log", n)
			}
		})
	}
}

func TestWhoIsPromptGathersBehindAnImportAlone(t *testing.T) {
	t.Parallel()
	const moment = 5 * time.Millisecond
	for _, n := range []int{1, 8, 500} {
		if p := projector.Patience(true, true, n); p > moment {
			t.Errorf("what concerns it is gathered for %s behind %d", p, n)
		}
	}
	if p := projector.Patience(true, false, 8); p > moment {
		t.Errorf("gathers for %s behind a few that others appended", p)
	}
	if p := projector.Patience(true, false, 64); p <= moment {
		t.Errorf("gathers for %s behind an import", p)
	}
}

type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
