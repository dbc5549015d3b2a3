package auditing_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/feed"
	"kindred/eventstore/pgstore"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/auditing"
)

// open keeps secrets as they are.
type open struct{}

func (open) SealSecret(_ context.Context, _ string, plain []byte) ([]byte, error) { return plain, nil }

func (open) OpenSecret(_ context.Context, _ string, box []byte) ([]byte, error) { return box, nil }

func TestClientsWhoseHistoryCannotBeReadKeepNoOtherFromBeingSigned(t *testing.T) {
	pool, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{SearchPath: feed.SearchPath(projections.History{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgstore.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	log := &eventstore.Log{Store: store, Registry: event.All(), Now: time.Now}
	logger := slog.New(slog.DiscardHandler)
	history := projections.History{Reader: projections.Reader{Pool: pool, Progress: feed.NewProgress(pool, logger)}}
	follow(t, history, log)

	var clients []id.Client
	for n := range 8 {
		client := id.Client(fmt.Sprint("cli_", n))
		stream := eventstore.ClientStream(client)
		if _, err := log.Append(t.Context(), eventstore.NewTip(stream), eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader),
			event.ClientRenamed{Client: client, Name: "A"}); err != nil {
			t.Fatal(err)
		}
		if _, err := history.Tree(t.Context(), client, false); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	quarantined, stale, others := clients[:2], clients[2:4], clients[4:]
	exec(t, pool, `INSERT INTO quarantine (projection, client, position, event_id, reason) SELECT $1, unnest($2::text[]), '', '', ''`,
		feed.Slot(history), quarantined)
	exec(t, pool, `UPDATE heads SET position = 'ffffffffffffffff' WHERE client = ANY($1)`, stale)

	auditor := &auditing.Auditor{History: history, Log: log, Secrets: open{}, Now: time.Now, Entropy: rand.Reader, Logger: logger}
	if err := auditor.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := auditor.SignAll(t.Context()); !fault.Is(err, "stale") {
		t.Errorf("got %v", err)
	}
	rows, err := pool.Query(t.Context(), `SELECT client FROM audit_heads ORDER BY client`)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := pgx.CollectRows(rows, pgx.RowTo[id.Client])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(others, signed); diff != "" {
		t.Errorf("signed (-want +got):\n%s", diff)
	}
}

// follow keeps a model up to date until the test ends.
func follow(t *testing.T, history projections.History, log *eventstore.Log) {
	t.Helper()
	runner := &feed.Runner{
		Pool: history.Pool, Log: log, Name: "test", Logger: slog.New(slog.DiscardHandler), Now: time.Now, Progress: history.Progress,
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var following sync.WaitGroup
	following.Go(func() { history.Progress.Run(ctx) })
	following.Go(func() {
		if err := runner.Run(ctx, history); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); following.Wait() })
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}
