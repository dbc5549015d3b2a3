package projector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

func TestARebuildSwapsUnderReadersAndWriters(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, bolt, numbered("bolt", 1500)...))

	stop := make(chan struct{})
	var all sync.WaitGroup
	var reads [4]int
	for r := range reads {
		mine := newFixtureOn(w.pool, w.log.Store)
		mine.progress = w.progress
		all.Go(func() { // writes, and always reads what it has just written
			client := id.Client(fmt.Sprint("cli_", r))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				want := fmt.Sprint(r, " writes ", i)
				mine.rename(t, client, want)
				if got, err := mine.newest(t.Context(), client, false); err != nil || got != want {
					t.Errorf("reader %d got %q, %v; want %q", r, got, err, want)
					return
				}
				reads[r]++
			}
		})
	}
	all.Go(func() { // reads whatever there is, and never less than before
		var before eventstore.Position
		for {
			select {
			case <-stop:
				return
			default:
			}
			var reached, stored eventstore.Position
			err := w.pool.QueryRow(t.Context(), `WITH `+projector.Fresh(names{})+`
				SELECT f.reached, (SELECT max(position) FROM renamings) FROM fresh f`, acme).Scan(&reached, &stored)
			if err != nil || reached < before || reached != stored {
				t.Errorf("the checkpoint went from %s to %s, and the tables hold %s: %v", before, reached, stored, err)
				return
			}
			before = reached
		}
	})
	for range 5 {
		var last projector.Rebuilding
		if err := w.builder().Rebuild(t.Context(), names{}, func(r projector.Rebuilding) { last = r }); err != nil {
			t.Error(err)
		}
		if last.Events < 1500 || last.Expected < 1500 {
			t.Errorf("reported %+v", last)
		}
	}
	close(stop)
	all.Wait()
	t.Logf("reads meanwhile: %v", reads)
	w.passed(t, "names_2", w.rename(t, acme, "last"))
	w.complete(t)
	if n := w.one(t, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'names%'`); n != 1 {
		t.Errorf("%d schemas are left", n)
	}
	if n := w.one(t, `SELECT count(*) FROM checkpoints`); n != 1 {
		t.Errorf("%d checkpoints are left", n)
	}
	if counted, logged := w.one(t, `SELECT events FROM checkpoints`), w.one(t, `SELECT count(*) FROM events`); counted != logged {
		t.Errorf("%d events counted of %d", counted, logged)
	}
}

func TestTheLiveModelGoesOnUntilARebuildHasCaughtUp(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, bolt, "before"))
	var leaders []string
	note := onceAt("meanwhile", func(ctx context.Context, _ pgx.Tx) error {
		var leader string
		err := w.pool.QueryRow(ctx, `SELECT holder FROM leases WHERE name = 'names_2'`).Scan(&leader)
		leaders = append(leaders, leader)
		return err
	})
	var write sync.Once // once all was applied that there was, before the indexes are made
	report := func(projector.Rebuilding) { write.Do(func() { w.rename(t, bolt, "meanwhile") }) }
	if err := w.builder().Rebuild(t.Context(), names{before: note}, report); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(leaders, []string{"live"}) {
		t.Errorf("what came while the indexes were made was applied while %v led the live model", leaders)
	}
	w.passed(t, "names_2", w.rename(t, bolt, "after"))
	w.complete(t)
}

// Plans that were made while the tables were small are made anew.
func TestTheTablesOfARebuildAreAnalyzedAsTheyGrow(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, numbered("acme", 3000)...)
	analyzed := false
	err := w.builder().Rebuild(t.Context(), names{}, func(now projector.Rebuilding) {
		rows := w.one(t, `SELECT coalesce(max(reltuples), -1)::bigint FROM pg_class WHERE relname = 'renamings' AND relnamespace = to_regnamespace('names_2_rebuild')`)
		analyzed = analyzed || now.Phase == projector.Building && rows >= 2000
	})
	if err != nil {
		t.Fatal(err)
	}
	if !analyzed {
		t.Error("while they were filled, nobody knew how many rows they held")
	}
}

func TestTheTablesOfALiveModelAreAnalyzedAsTheyGrow(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, numbered("acme", 2500)...))
	testkit.Eventually(t, "it is known how many rows they hold", func() bool {
		return w.one(t, `SELECT reltuples::bigint FROM pg_class WHERE relname = 'renamings' AND relnamespace = to_regnamespace('names_2')`) >= 2000
	})
}

func TestARebuildGoesOnWhereItWasBrokenOff(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, numbered("acme", 2500)...))
	stop()

	ctx, crash := context.WithCancel(t.Context())
	err := w.runner("crashes").Rebuild(ctx, names{}, func(projector.Rebuilding) { crash() })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if n := w.one(t, `SELECT count(*) FROM renamings`); n != 2500 {
		t.Fatalf("the live tables hold %d rows", n)
	}
	applied := 0
	count := names{before: func(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) error {
		applied += len(batch)
		return nil
	}}
	if err := w.runner("goes on").Rebuild(t.Context(), count, nil); err != nil {
		t.Fatal(err)
	}
	if applied != 2400 {
		t.Errorf("%d events were applied after the crash; want 2400", applied)
	}
	w.complete(t)
}

func TestARebuildTakesFewEventsAtOnceWhereTheyAreLarge(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	long := strings.Repeat("x", 200<<10)
	w.rename(t, acme, slices.Repeat([]string{long}, 50)...)
	var batches []int
	count := names{before: func(_ context.Context, _ pgx.Tx, batch []eventstore.Recorded) error {
		batches = append(batches, len(batch))
		return nil
	}}
	if err := w.builder().Rebuild(t.Context(), count, nil); err != nil {
		t.Fatal(err)
	}
	if len(batches) < 2 || slices.Max(batches) > 3<<20/len(long) {
		t.Errorf("batches of %d events", batches)
	}
	w.complete(t)
}

func TestARebuildGivesQuarantinedClientsAnotherChance(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	broken := names{before: always("bad", func() error { return errTest })}
	stop := background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, broken) })
	w.rename(t, acme, "good", "bad", "better")
	w.passed(t, "names_2", w.rename(t, bolt, "x"))
	stop()
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 1 {
		t.Fatalf("%d clients quarantined", n)
	}
	if err := w.runner("a").Rebuild(t.Context(), broken, nil); !errors.Is(err, projector.ErrIncomplete) || !strings.Contains(err.Error(), string(acme)) {
		t.Fatalf("got %v", err)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE projection = 'names_2'`); n != 1 {
		t.Errorf("%d clients quarantined by the same release", n)
	}
	if err := w.runner("a").Rebuild(t.Context(), names{}, nil); err != nil {
		t.Fatal(err)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients quarantined by the repaired release", n)
	}
	w.complete(t)
}

func TestOneRebuildAtATime(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "x")
	var second error
	err := w.runner("first").Rebuild(t.Context(), names{}, func(projector.Rebuilding) {
		second = w.runner("second").Rebuild(t.Context(), names{}, nil)
	})
	if err != nil || !errors.Is(second, projector.ErrRebuilding) {
		t.Errorf("first %v, second %v", err, second)
	}
}

// TestWhoCatchesUpTakesALostLeaseAgain loses it as a machine does that is too
// busy to prolong it.
func TestWhoCatchesUpTakesALostLeaseAgain(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "x")
	tries := 0
	slow := names{before: func(ctx context.Context, _ pgx.Tx, _ []eventstore.Recorded) error {
		if tries++; tries > 1 {
			return nil
		}
		if _, err := w.pool.Exec(ctx, `UPDATE leases SET epoch = epoch + 1, expires_at = clock_timestamp()`); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	if err := w.builder().CatchUp(t.Context(), slow, nil); err != nil {
		t.Fatal(err)
	}
	w.complete(t)
}
