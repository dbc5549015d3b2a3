package event_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// moves is a read model that opens what it keeps.
type moves struct{ log *eventstore.Log }

func (moves) Name() string { return "moves" }
func (moves) Version() int { return 1 }
func (moves) Schema() string {
	return `CREATE TABLE moves (client text PRIMARY KEY, place text NOT NULL, note text NOT NULL)`
}

func (m moves) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	for _, r := range batch {
		note, err := m.log.Open(ctx, r, "note")
		switch {
		case errors.Is(err, seal.ErrErased):
			note = []byte("erased")
		case err != nil:
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO moves (client, place, note) VALUES ($1, $2, $3)`,
			r.Client, r.Event.(event.Moved).Place, string(note))
		if err != nil {
			return err
		}
	}
	return nil
}

// Of an event whose key was destroyed the rest is still upcast.
func TestARebuildLiftsWhatIsLeftOfAnErasedSubject(t *testing.T) {
	pool := pgtest.New(t)
	master := keystest.NewMaster(t)
	log := &eventstore.Log{
		Store: memstore.New("first"), Vault: seal.New(keystest.NewMemory(), master, rand.Reader),
		Registry: event.FirstRegistry(), Now: time.Now,
	}
	for client, note := range map[id.Client]string{"cli_here": "HI", "cli_gone": "SECRET"} {
		_, err := log.Append(t.Context(), eventstore.NewStreamVersion(eventstore.Stream("move-"+client)),
			eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader),
			event.MovedFirst{City: "Bern", Note: event.Private([]byte(note))})
		if err != nil {
			t.Fatal(err)
		}
	}
	gone := event.MovedFirst{}.Subject()
	if err := log.Vault.Destroy(t.Context(), "cli_gone", gone); err != nil {
		t.Fatal(err)
	}

	log.Registry = event.NewestRegistry()
	runner := &projector.Runner{Pool: pool, Log: log, Name: "test", Logger: slog.New(slog.DiscardHandler), Now: time.Now}
	for range 2 { // the second one replaces the first
		if err := runner.Rebuild(t.Context(), moves{log}, nil); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := pool.Query(t.Context(), `
SELECT client || ' ' || place || ' ' || note FROM moves_1.moves
UNION ALL SELECT client || ' is quarantined: ' || reason FROM quarantine ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	got := testkit.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	want := []string{"cli_gone Bern erased", "cli_here Bern HI"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rebuilt model differs (-want +got):\n%s", diff)
	}
}
