package projector_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const (
	acme = id.Client("cli_acme")
	bolt = id.Client("cli_bolt")
)

// names is a read model of every renaming, one row for each event.
type names struct {
	before func(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error // Apply writes
	after  func(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error // Apply has written
}

func (names) Name() string { return "names" }
func (names) Version() int { return 2 }
func (names) Schema() string {
	return `CREATE TABLE renamings (
		position text COLLATE "C" PRIMARY KEY, client text NOT NULL, name text NOT NULL CHECK (name <> 'forbidden'));
		CREATE INDEX ON renamings (client, position)`
}

func (n names) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	if n.before != nil {
		if err := n.before(ctx, tx, batch); err != nil {
			return err
		}
	}
	todo := &pgx.Batch{}
	for _, r := range batch {
		if e, ok := r.Event.(event.ClientRenamed); ok {
			todo.Queue(`INSERT INTO renamings (position, client, name) VALUES ($1, $2, $3)`, r.Position, r.Client, e.Name)
		}
	}
	if err := tx.SendBatch(ctx, todo).Close(); err != nil {
		return err
	}
	if n.after != nil {
		return n.after(ctx, tx, batch)
	}
	return nil
}

// onceAt runs do when the renaming to name comes by for the first time.
func onceAt(name string, do func(context.Context, pgx.Tx) error) func(context.Context, pgx.Tx, []eventstore.Recorded) error {
	var did atomic.Bool
	return func(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
		for _, r := range batch {
			if e, ok := r.Event.(event.ClientRenamed); ok && e.Name == name && !did.Swap(true) {
				return do(ctx, tx)
			}
		}
		return nil
	}
}

// fixture is a database with a log in it.
type fixture struct {
	pool     *pgxpool.Pool
	log      *eventstore.Log
	progress *projector.Progress
	ids      *id.Source
	ends     map[id.Client]eventstore.StreamVersion
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pool, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{AppName: "kindred test", SearchPath: projector.SearchPath(names{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgstore.Open(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := newFixtureOn(pool, store)
	background(t, func(ctx context.Context) error { w.progress.Run(ctx); return nil })
	return w
}

func newFixtureOn(pool *pgxpool.Pool, store eventstore.Store) *fixture {
	return &fixture{
		pool: pool, progress: projector.NewProgress(pool, slog.New(slog.DiscardHandler)),
		log:  &eventstore.Log{Store: store, Registry: event.All(), Now: time.Now},
		ids:  id.Random(rand.Reader),
		ends: map[id.Client]eventstore.StreamVersion{},
	}
}

func (w *fixture) runner(name string) *projector.Runner {
	return &projector.Runner{
		Pool: w.pool, Log: w.log, Name: name, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Progress: w.progress, Lease: 600 * time.Millisecond, Pause: 50 * time.Millisecond, MaxLeftOut: -1,
	}
}

// builder is a runner that keeps its leases also where others take all of the
// machine.
func (w *fixture) builder() *projector.Runner {
	r := w.runner("builder")
	r.Lease = 10 * time.Second
	return r
}

// rename appends one event for each name, and returns the last one's position.
func (w *fixture) rename(t testing.TB, client id.Client, to ...string) eventstore.Position {
	t.Helper()
	var last eventstore.Position
	for _, name := range to {
		data, err := json.Marshal(map[string]any{"client_id": client, "name": name})
		if err != nil {
			t.Fatal(err)
		}
		last = w.append(t, client, "client.renamed", 1, data)
	}
	return last
}

// append stores an event as it is given, readable or not.
func (w *fixture) append(t testing.TB, client id.Client, name string, version int, data []byte) eventstore.Position {
	t.Helper()
	end, found := w.ends[client]
	if !found {
		end = eventstore.NewStreamVersion(eventstore.Stream("client-" + string(client)))
	}
	appended, err := w.log.Store.Append(t.Context(), end.Stream, end.Revision, []eventstore.Proposed{{
		ID: id.Next[id.Event](w.ids), Type: name, Version: version, Client: client,
		RecordedAt: time.Now(), Data: data, Meta: []byte(`{}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	end.Revision = appended.Revision
	w.ends[client] = end
	return appended.Position
}

// background runs work until the test or stop ends it. What it returns by
// itself is an error of the test.
func background(t testing.TB, work func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := work(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("in the background: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

func (w *fixture) one(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	if err := w.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// passed waits until the projection has passed a position.
func (w *fixture) passed(t testing.TB, projectionID string, at eventstore.Position) {
	t.Helper()
	testkit.Eventually(t, projectionID+" passes "+string(at), func() bool {
		return w.one(t, `SELECT count(*) FROM checkpoints WHERE name = $1 AND position >= $2`, projectionID, at) == 1
	})
}

// complete checks that the read model holds each renaming of the log exactly
// once, but those of the clients left out.
func (w *fixture) complete(t testing.TB, without ...id.Client) {
	t.Helper()
	logged := w.one(t, `SELECT count(*) FROM events WHERE type = 'client.renamed' AND NOT client = ANY($1)`, without)
	stored := w.one(t, `
		SELECT count(*) FROM events e JOIN names_2.renamings r ON r.position = position_text(e.position) AND r.client = e.client
		WHERE type = 'client.renamed' AND NOT e.client = ANY($1)`, without)
	if logged != stored {
		t.Errorf("%d renamings in the log, %d of them in the read model", logged, stored)
	}
}

func numbered(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(prefix, " ", i)
	}
	return list
}

// newest reads a client's newest name, fresh.
func (w *fixture) newest(ctx context.Context, client id.Client, eventual bool) (name string, err error) {
	reader := projector.Reader{Of: names{}, Progress: w.progress}
	err = reader.Read(ctx, eventual, func(ctx context.Context) (at projector.At, err error) {
		var found *string
		err = w.pool.QueryRow(ctx, `WITH `+projector.Fresh(names{})+`
			SELECT f.reached, f.head, f.quarantined,
				(SELECT name FROM renamings WHERE client = $1 ORDER BY position DESC LIMIT 1)
			FROM fresh f`, client).Scan(&at.Reached, &at.Head, &at.Quarantined, &found)
		if found != nil {
			name = *found
		}
		return at, err
	})
	return name, err
}

var errTest = errors.New("the test says so")
