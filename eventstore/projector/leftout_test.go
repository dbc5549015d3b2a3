package projector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// lenient is a runner that leaves out as many events of a client.
func (w *fixture) lenient(name string, most int) *projector.Runner {
	r := w.runner(name)
	r.MaxLeftOut = most
	return r
}

// leftOut lists what stands left out of a projection.
func (w *fixture) leftOut(t *testing.T, projectionID string) (all []projector.LeftOut) {
	t.Helper()
	list, err := projector.List(t.Context(), w.pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == projectionID {
			all = s.LeftOut
		}
	}
	return all
}

func TestAnEventThatCannotBeAppliedIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var logged syncBuffer
	live := w.lenient("live", 0)
	live.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
	broken := names{before: always("bad", func() error { return errTest })}
	stop := background(t, func(ctx context.Context) error { return live.Run(ctx, broken) })
	w.rename(t, acme, "good")
	bad := w.rename(t, acme, "bad")
	w.rename(t, acme, "better")
	w.passed(t, "names_2", w.rename(t, bolt, "x"))
	named := func(err error) bool {
		return errors.Is(err, projector.ErrIncomplete) && strings.Contains(err.Error(), string(acme)) &&
			strings.Contains(err.Error(), string(bad)) && strings.Contains(err.Error(), errTest.Error())
	}
	check := func() {
		t.Helper()
		if got, err := w.newest(t.Context(), acme, false); err != nil || got != "better" {
			t.Errorf("reading the client's part: %q, %v", got, err)
		}
		left := w.leftOut(t, "names_2")
		if len(left) != 1 || left[0].Client != acme || left[0].Position != bad || left[0].Event == "" ||
			left[0].Type != "client.renamed" || left[0].Reason != errTest.Error() {
			t.Errorf("left out: %+v", left)
		}
		if n := w.one(t, `SELECT count(*) FROM renamings WHERE client = $1`, acme); n != 2 {
			t.Errorf("%d events of the client are applied", n)
		}
		if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
			t.Errorf("%d clients quarantined", n)
		}
	}
	check()
	testkit.Eventually(t, "it is told", func() bool { return strings.Count(logged.String(), `"event left out"`) == 1 })

	if err := w.lenient("a", 0).RebuildClient(t.Context(), broken, acme, nil); !named(err) {
		t.Errorf("rebuild of the part: %v", err)
	}
	check()
	if err := w.lenient("a", 0).RebuildClient(t.Context(), broken, bolt, nil); err != nil {
		t.Errorf("rebuild of another's part: %v", err)
	}
	if err := w.lenient("a", 0).Rebuild(t.Context(), broken, nil); !named(err) {
		t.Errorf("rebuild: %v", err)
	}
	check()
	checked, err := w.lenient("a", 0).Verify(t.Context(), broken, nil, func(d projector.Difference) { t.Errorf("it differs: %+v", d) })
	if err != nil || !named(checked.Incomplete) {
		t.Errorf("verify: %v, %v", checked.Incomplete, err)
	}
	check()
	stop()

	background(t, func(ctx context.Context) error { return w.lenient("repaired", 0).Run(ctx, names{}) })
	if err := w.lenient("a", 0).RebuildClient(t.Context(), names{}, acme, nil); err != nil {
		t.Error(err)
	}
	if left := w.leftOut(t, "names_2"); len(left) != 0 {
		t.Errorf("left out by the repaired release: %+v", left)
	}
	w.complete(t)
}

func TestAClientOfWhichTooManyEventsAreLeftOutStops(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	broken := names{before: always("bad", func() error { return errTest })}
	background(t, func(ctx context.Context) error { return w.lenient("live", 2).Run(ctx, broken) })
	w.rename(t, acme, "bad", "good", "bad", "good", "bad", "not reached")
	w.rename(t, bolt, "bad", "good")
	w.passed(t, "names_2", w.rename(t, bolt, "x"))
	if n := w.one(t, `SELECT count(*) FROM renamings WHERE client = $1`, acme); n != 2 {
		t.Errorf("%d events of the client are applied", n)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND (SELECT count(*) FROM quarantine) = 1`, acme); n != 1 {
		t.Errorf("%d quarantines", n)
	}
	if left := w.leftOut(t, "names_2"); len(left) != 3 {
		t.Errorf("left out: %+v", left)
	}
}

// faithful is names whose rows rest on every event before.
type faithful struct{ names }

func (faithful) Options() projector.Options { return projector.Options{Gapless: true} }

func TestAProjectionWithoutGapsStopsAtOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	broken := faithful{names{before: always("bad", func() error { return errTest })}}
	background(t, func(ctx context.Context) error { return w.lenient("live", 0).Run(ctx, broken) })
	w.rename(t, acme, "good", "bad", "not reached")
	w.passed(t, "names_2", w.rename(t, bolt, "x"))
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE client = $1 AND NOT EXISTS (SELECT FROM left_out)`, acme); n != 1 {
		t.Errorf("%d quarantines", n)
	}
}

// TestWhatWasLeftOutIsResumed while everybody goes on, the client included, and
// after a crash at every commit on the way.
func TestWhatWasLeftOutIsResumed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	if _, err := w.pool.Exec(t.Context(), `CREATE TABLE public.ledger (n bigint GENERATED ALWAYS AS IDENTITY, client text NOT NULL, name text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	stop := background(t, func(ctx context.Context) error { return w.lenient("broken", 0).Run(ctx, ledger{cannot: "bad"}) })
	w.rename(t, acme, "good", "bad", "better", "bad")
	w.passed(t, "ledger", w.rename(t, bolt, "x"))
	w.noted(t, acme, "good", "better")
	if err := w.lenient("a", 0).Resume(t.Context(), ledger{cannot: "bad"}, acme); !errors.Is(err, projector.ErrIncomplete) {
		t.Errorf("got %v", err)
	}
	w.passed(t, "ledger", w.rename(t, acme, "best"))
	w.noted(t, acme, "good", "better", "best")
	if left := w.leftOut(t, "ledger"); len(left) != 2 {
		t.Errorf("left out: %+v", left)
	}
	stop()
	reached := w.crashes(t, func(r *projector.Runner) error { return r.Resume(t.Context(), ledger{}, acme) })
	if t.Logf("crashed %d times", reached); reached < 4 {
		t.Error("it hardly ever crashed on the way")
	}
	background(t, func(ctx context.Context) error { return w.lenient("live", 0).Run(ctx, ledger{}) })
	w.passed(t, "ledger", w.rename(t, acme, "last"))
	w.noted(t, acme, "good", "better", "best", "bad", "bad", "last")
	if left := w.leftOut(t, "ledger"); len(left) != 0 {
		t.Errorf("left out: %+v", left)
	}
	if err := w.builder().Resume(t.Context(), ledger{}, acme); err == nil {
		t.Error("a client is resumed of which nothing was left out")
	}
}

func TestThrowAwayTablesLackWhatTheLiveOnesLack(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.lenient("live", 0).Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "good", "forbidden", "better"))
	records, err := w.log.Store.ReadAll(t.Context(), eventstore.Start, 10)
	if err != nil {
		t.Fatal(err)
	}
	err = w.runner("a").Scratch(t.Context(), []projector.ReadModel{names{}}, func(ctx context.Context, schema string) error {
		return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL search_path TO `+schema); err != nil {
				return err
			}
			if err := projector.Fold(ctx, tx, w.log, names{}, records); err != nil {
				return err
			}
			var n int
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM renamings`).Scan(&n); err != nil || n != 2 {
				return fmt.Errorf("%d events are applied: %w", n, err)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
