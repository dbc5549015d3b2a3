package projector_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
)

// ledger is no read model: it notes every renaming as it comes by.
type ledger struct {
	cannot string // name a client so
}

func (ledger) Name() string { return "ledger" }
func (ledger) Version() int { return 1 }

func (l ledger) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	for _, r := range batch {
		e, ok := r.Event.(event.ClientRenamed)
		if !ok {
			continue
		}
		if e.Name == l.cannot {
			return errTest
		}
		if _, err := tx.Exec(ctx, `INSERT INTO public.ledger (client, name) VALUES ($1, $2)`, r.Client, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// stuck is a fixture whose ledger has stopped at an event of acme, and what acme
// was named in all.
func stuck(t *testing.T) (w *fixture, named []string) {
	t.Helper()
	w = newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE public.ledger (n bigint GENERATED ALWAYS AS IDENTITY, client text NOT NULL, name text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	stop := background(t, func(ctx context.Context) error { return w.runner("broken").Run(ctx, ledger{cannot: "bad"}) })
	named = append([]string{"good", "bad"}, numbered("passed over", 900)...)
	w.rename(t, acme, named...)
	w.passed(t, "ledger", w.rename(t, bolt, numbered("bolt", 20)...))
	stop()
	w.noted(t, acme, "good")
	return w, named
}

// noted checks what a ledger holds of a client, in order.
func (w *fixture) noted(t *testing.T, client id.Client, want ...string) {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), `SELECT name FROM public.ledger WHERE client = $1 ORDER BY n`, client)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("%d entries of %s that are not the %d wanted: %.200q", len(got), client, len(want), got)
	}
}

// TestAQuarantinedClientIsResumed while everybody goes on, the client included.
func TestAQuarantinedClientIsResumed(t *testing.T) {
	t.Parallel()
	w, named := stuck(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, ledger{}) })
	other := newFixtureOn(w.pool, w.log.Store)
	other.ends[acme] = w.ends[acme]
	written := make(chan string, 1000)
	stop := background(t, func(ctx context.Context) error {
		defer close(written)
		for i := 0; ctx.Err() == nil && i < cap(written); i++ {
			name := fmt.Sprint("meanwhile ", i)
			other.rename(t, acme, name)
			written <- name
		}
		return nil
	})
	if err := w.builder().Resume(t.Context(), ledger{}, acme); err != nil {
		t.Fatal(err)
	}
	stop()
	for name := range written {
		named = append(named, name)
	}
	w.ends[acme] = other.ends[acme]
	w.passed(t, "ledger", w.rename(t, acme, "last"))
	w.noted(t, acme, append(named, "last")...)
	w.noted(t, bolt, numbered("bolt", 20)...)
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
	if err := w.builder().Resume(t.Context(), ledger{}, acme); err == nil {
		t.Error("a client is resumed that has not stopped")
	}
}

// TestAResumedClientStopsAgain at the same event, or a later one, where the
// release cannot apply that either.
func TestAResumedClientStopsAgain(t *testing.T) {
	t.Parallel()
	w, named := stuck(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, ledger{}) })
	if err := w.builder().Resume(t.Context(), ledger{cannot: "bad"}, acme); err == nil || !strings.Contains(err.Error(), errTest.Error()) {
		t.Errorf("got %v", err)
	}
	w.noted(t, acme, "good")
	const later = 150 // of those that were passed over
	if err := w.builder().Resume(t.Context(), ledger{cannot: named[later]}, acme); err == nil || !strings.Contains(err.Error(), errTest.Error()) {
		t.Errorf("got %v", err)
	}
	w.noted(t, acme, named[:later]...)
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND NOT paused`, acme); n != 1 {
		t.Errorf("%d quarantines", n)
	}
	if err := w.builder().Resume(t.Context(), ledger{}, acme); err != nil {
		t.Fatal(err)
	}
	w.noted(t, acme, named...)
}

// TestAClientIsResumedAfterACrash crashes at every commit on the way.
func TestAClientIsResumedAfterACrash(t *testing.T) {
	t.Parallel()
	w, named := stuck(t)
	reached := w.crashes(t, func(r *projector.Runner) error { return r.Resume(t.Context(), ledger{}, acme) })
	if t.Logf("crashed %d times", reached); reached < 4 {
		t.Error("it hardly ever crashed on the way")
	}
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, ledger{}) })
	w.passed(t, "ledger", w.rename(t, acme, "last"))
	w.noted(t, acme, append(named, "last")...)
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined", n)
	}
}

func TestAReadModelIsRebuiltInsteadOfResumed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if err := w.runner("a").Resume(t.Context(), names{}, acme); err == nil || !strings.Contains(err.Error(), "rebuil") {
		t.Errorf("got %v", err)
	}
	if err := w.runner("a").Resume(t.Context(), ledger{}, ""); err == nil {
		t.Error("nobody is resumed")
	}
}

// unevenLedger is a ledger in which a name that begins with "slow" takes a whole batch.
type unevenLedger struct {
	ledger
	stands chan struct{} // closed once a client is applied in slices, which then never ends; nil: it does
}

func (unevenLedger) ApplyTogether(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) ([]eventstore.Recorded, error) {
	return batch, nil
}

func (l unevenLedger) ApplyClient(ctx context.Context, tx pgx.Tx, _ *eventstore.Log, _ id.Client, batch []eventstore.Recorded, spend projector.Spend) error {
	for _, r := range batch {
		if e, ok := r.Event.(event.ClientRenamed); !ok || !strings.HasPrefix(e.Name, "slow") {
			continue
		}
		if err := spend(projector.BatchSteps + 1); err != nil {
			return err
		}
		if l.stands != nil {
			close(l.stands)
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return l.Apply(ctx, tx, batch)
}

// slowed is a fixture whose ledger has passed over what is slow of acme, which is yet to be applied.
func slowed(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE public.ledger (n bigint GENERATED ALWAYS AS IDENTITY, client text NOT NULL, name text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	model := unevenLedger{ledger: ledger{cannot: "bad"}, stands: make(chan struct{})}
	patient := w.runner("a")
	patient.MaxLeftOut = 1
	stop := background(t, func(ctx context.Context) error { return patient.Run(ctx, model) })
	w.passed(t, "ledger", w.rename(t, acme, "fast", "bad", "good"))
	w.passed(t, "ledger", w.rename(t, acme, "slow 1", "behind"))
	<-model.stands
	w.passed(t, "ledger", w.rename(t, bolt, "bolt"))
	stop()
	w.noted(t, acme, "fast", "good")
	w.noted(t, bolt, "bolt")
	return w
}

func TestASlowClientIsResumedWhereItIs(t *testing.T) {
	t.Parallel()
	w := slowed(t)
	if err := w.builder().Resume(t.Context(), unevenLedger{}, acme); err != nil {
		t.Fatal(err)
	}
	w.noted(t, acme, "fast", "good", "bad", "slow 1", "behind")
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, unevenLedger{}) })
	w.passed(t, "ledger", w.rename(t, acme, "last"))
	w.noted(t, acme, "fast", "good", "bad", "slow 1", "behind", "last")
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients are apart", n)
	}
}

func TestASlowClientThatHasLeftNothingOutIsNotResumed(t *testing.T) {
	t.Parallel()
	w := slowed(t)
	if _, err := w.pool.Exec(t.Context(), `DELETE FROM left_out`); err != nil {
		t.Fatal(err)
	}
	if err := w.builder().Resume(t.Context(), unevenLedger{}, acme); err == nil {
		t.Error("a client is resumed that has not stopped")
	}
	background(t, func(ctx context.Context) error { return w.hurried(w.runner("a")).Run(ctx, unevenLedger{}) })
	w.returned(t)
	w.noted(t, acme, "fast", "good", "slow 1", "behind")
}

func TestWhatIsSkippedIsSkippedOfSlowClientsToo(t *testing.T) {
	t.Parallel()
	w := slowed(t)
	if err := w.runner("a").Skip(t.Context(), "ledger"); err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, unevenLedger{}) })
	w.passed(t, "ledger", w.rename(t, acme, "last"))
	w.noted(t, acme, "fast", "good", "last")
}

// A log that was restored may lack what a client has stopped at, or hold another event there.
func TestWhoStoppedAtWhatARestoredLogLacksGoesOnOnceItIsSkipped(t *testing.T) {
	t.Parallel()
	for name, since := range map[string][]string{"beyond the end": nil, "another event": {"else", "more"}} {
		t.Run(name, func(t *testing.T) {
			pool := pgtest.New(t)
			if _, err := pool.Exec(t.Context(), `CREATE TABLE public.ledger (n bigint GENERATED ALWAYS AS IDENTITY, client text NOT NULL, name text NOT NULL)`); err != nil {
				t.Fatal(err)
			}
			restored := func(log string) *fixture {
				w := newFixtureOn(pool, memstore.New(log))
				w.ids = id.Random(rand.NewChaCha8([32]byte{})) // the same events have the same ids
				w.rename(t, acme, "good", "bad")
				w.rename(t, bolt, "good")
				return w
			}
			old := restored("old")
			stop := background(t, func(ctx context.Context) error { return old.runner("a").Run(ctx, ledger{cannot: "bad"}) })
			old.passed(t, "ledger", old.rename(t, bolt, "bad", "gone"))
			stop()
			w := restored("new")
			w.ids = id.Random(rand.NewChaCha8([32]byte{1})) // others from here on
			w.rename(t, acme, since...)
			if err := w.runner("a").Skip(t.Context(), "ledger"); err != nil {
				t.Fatal(err)
			}
			background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, ledger{}) })
			w.passed(t, "ledger", w.rename(t, bolt, "last"))
			w.noted(t, bolt, "good", "last")
			w.noted(t, acme, "good")
			if err := w.builder().Resume(t.Context(), ledger{}, acme); err != nil {
				t.Fatal(err)
			}
			w.noted(t, acme, append([]string{"good", "bad"}, since...)...)
		})
	}
}
