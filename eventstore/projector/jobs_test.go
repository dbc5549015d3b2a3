package projector_test

import (
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// TestWhatSomebodyElseRebuildsIsAskedForNowAndThen has an operator's tool rebuild
// the same part.
func TestWhatSomebodyElseRebuildsIsAskedForNowAndThen(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	const theirs = `
INSERT INTO leases (name, holder, epoch, expires_at) VALUES ('names_2_cli_acme', 'a tool', 1, clock_timestamp() + interval '1 minute')`
	if _, err := w.pool.Exec(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	jobs := projector.Jobs{Runner: w.builder(), Models: []projector.ReadModel{names{}}}
	job, err := jobs.Request(t.Context(), id.Next[id.Rebuild](w.ids), "names", acme, "operator")
	if err != nil {
		t.Fatal(err)
	}
	background(t, jobs.Run)
	tried := func() (at time.Time) {
		if err := w.pool.QueryRow(t.Context(), `SELECT tried_at FROM rebuilds WHERE id = $1`, job.ID).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	last := tried()
	for i := range 3 {
		testkit.Eventually(t, "it is tried", func() bool { return tried().After(last) })
		again := tried()
		if rest := again.Sub(last); i > 0 && rest < time.Second {
			t.Errorf("tried again after %s", rest)
		}
		last = again
	}
	if _, err := w.pool.Exec(t.Context(), `UPDATE leases SET expires_at = clock_timestamp() WHERE holder = 'a tool'`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the part is rebuilt", func() bool { return w.wrong(t, acme) == 0 })
}

// Whatever is rebuilt fails here, for want of read models: what counts is the order.
func TestTheRebuildsOfOneClientDelayThoseOfAnotherByOne(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	const ask = `INSERT INTO rebuilds (id, client, model, requested_by) SELECT $1 || n, $1, 'model ' || n, '' FROM generate_series(1, $2) n`
	const due = `INSERT INTO jobs (client, kind) VALUES ($1, 'rebuilds')`
	for _, asked := range []struct {
		client id.Client
		models int
	}{{acme, 20}, {bolt, 2}} {
		if _, err := w.pool.Exec(t.Context(), ask, asked.client, asked.models); err != nil {
			t.Fatal(err)
		}
		if _, err := w.pool.Exec(t.Context(), due, asked.client); err != nil {
			t.Fatal(err)
		}
	}
	background(t, projector.Jobs{Runner: w.builder()}.Run)
	const turns = `SELECT handed FROM jobs WHERE kind = 'rebuilds' AND client = $1`
	testkit.Eventually(t, "the other's first is tried twice", func() bool { return w.one(t, turns, bolt) >= 2 })
	if n := w.one(t, turns, acme); n > 3 {
		t.Errorf("%d turns came before", n)
	}
}
