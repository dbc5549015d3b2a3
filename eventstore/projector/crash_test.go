package projector_test

import (
	"context"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// TestAKilledServerLosesNoEventOfAProjection kills Postgres under a leader,
// whose last commits did not wait for the disk.
func TestAKilledServerLosesNoEventOfAProjection(t *testing.T) {
	t.Parallel()
	server := pgtest.Durable(t)
	pool, err := postgres.Open(t.Context(), server.URL(), postgres.Options{SearchPath: projector.SearchPath(names{})})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := pgstore.Open(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w := newFixtureOn(pool, store)
	stopListening := background(t, func(ctx context.Context) error { w.progress.Run(ctx); return nil })
	defer stopListening()
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	defer stop()
	for round := range 3 {
		client := id.Client("cli_" + string(rune('a'+round)))
		var last eventstore.Position
		for range 20 {
			last = w.rename(t, client, numbered("x", 5)...)
		}
		w.passed(t, "names_2", w.rename(t, client, "read"))
		server.Kill()
		server.Restart()
		testkit.Eventually(t, "the projection is whole again", func() bool {
			_, err := w.newest(t.Context(), client, true)
			if err != nil {
				return false // the pool has to find out
			}
			got, err := w.newest(t.Context(), client, false)
			return err == nil && got == "read"
		})
		w.passed(t, "names_2", last)
		w.complete(t)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine`); n != 0 {
		t.Errorf("%d clients were quarantined", n)
	}
}

func TestCommitsThatAServerForgotAreDoneAgain(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.rename(t, acme, "kept")
	last := w.rename(t, acme, "forgotten", "forgotten too")
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.passed(t, "names_2", last)
	kept, err := w.log.Store.At(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	// What a crash leaves of commits that had not reached the disk.
	if _, err := w.pool.Exec(t.Context(), `
		WITH forgotten AS (DELETE FROM names_2.renamings WHERE position > $1)
		UPDATE checkpoints SET position = $1, event_id = $2, events = 1`, kept.Position, kept.ID); err != nil {
		t.Fatal(err)
	}
	w.passed(t, "names_2", last) // though nothing more is appended
	w.complete(t)
}
