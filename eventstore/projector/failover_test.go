package projector_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// An asynchronous standby that is promoted lacks the last commits, and so does a
// volume that is restored to what it held a moment before. Others take their
// positions while the leases of the followers still hold.
func TestFollowersGoByTheLogThatIsThereAfterAFailover(t *testing.T) {
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
	defer background(t, func(ctx context.Context) error { w.progress.Run(ctx); return nil })()

	amid, failedOver := make(chan struct{}), make(chan struct{})
	hang := onceAt("lost 0", func(ctx context.Context, _ pgx.Tx) error {
		close(amid)
		select {
		case <-failedOver:
		case <-ctx.Done():
		}
		return errors.Join(context.Canceled, errTest) // as where the connection broke
	})
	runner := w.runner("a")
	runner.Lease = 8 * time.Second // longer than the failover takes
	defer background(t, func(ctx context.Context) error { return runner.Run(ctx, names{before: hang}) })()
	policy := subscribe(t, &projector.Subscriber{Runner: runner, Wants: func(r eventstore.Record) bool { return r.Type == "client.renamed" }})

	kept := w.rename(t, acme, "kept")
	next(t, policy).Ack()
	w.passed(t, "names_2", kept)
	w.passed(t, "policy_match", kept)
	first := w.progress.Server()
	server.Keep()
	testkit.Eventually(t, "the server is met again", func() bool { return w.progress.Server() != first })
	second := w.progress.Server()

	w.rename(t, acme, "lost 0", "lost 1", "lost 2")
	lost := next(t, policy)
	if name := nameOf(t, lost); name != "lost 0" {
		t.Fatalf("the policy is given %q", name)
	}
	<-amid
	server.Lose()
	last := w.rename(t, bolt, "instead 0", "instead 1", "instead 2", "instead 3")
	close(failedOver)
	lost.Ack()
	for _, want := range []string{"instead 0", "instead 1", "instead 2", "instead 3"} {
		m := next(t, policy)
		if name := nameOf(t, m); name != want {
			t.Errorf("the policy is given %q, want %q", name, want)
		}
		m.Ack()
	}
	w.passed(t, "names_2", last)
	w.complete(t)
	if n := w.one(t, `SELECT count(*) FROM renamings WHERE name LIKE 'lost%'`); n != 0 {
		t.Errorf("%d events that the log does not hold were applied", n)
	}
	if now := w.progress.Server(); now == second || now == 0 {
		t.Errorf("the server is numbered %d, as the one that was lost", now)
	}
}
