package pgstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/testkit"
)

// client owns every event of these tests.
const client id.Client = "cli_00000000000000000000000000"

func newStream() eventstore.Stream {
	return eventstore.Stream("user-" + id.Next[id.User](id.Random(rand.Reader)))
}

func newEvent() eventstore.Proposed {
	return eventstore.Proposed{
		ID: id.Next[id.Event](id.Random(rand.Reader)), Type: "user.created", Version: 1, Client: client,
		RecordedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Data:       make([]byte, largeEnough), Meta: []byte("{}"),
	}
}

func appendEvent(ctx context.Context, store *pgstore.Store, stream eventstore.Stream, expected eventstore.Revision, e eventstore.Proposed) error {
	_, err := store.Append(ctx, stream, expected, []eventstore.Proposed{e})
	return err
}

func mustAppend(t *testing.T, store *pgstore.Store, stream eventstore.Stream, expected eventstore.Revision) {
	t.Helper()
	if err := appendEvent(t.Context(), store, stream, expected, newEvent()); err != nil {
		t.Fatal(err)
	}
}

// appendLater appends in the background.
func appendLater(t *testing.T, store *pgstore.Store, stream eventstore.Stream) <-chan error {
	t.Helper()
	done, ctx := make(chan error, 1), t.Context()
	go func() { done <- appendEvent(ctx, store, stream, eventstore.NoStream, newEvent()) }()
	return done
}

// together makes n appends of which all but the first come into one batch.
func together(t *testing.T, pool *pgxpool.Pool, store *pgstore.Store, n int, change func(int, *eventstore.Proposed)) []error {
	t.Helper()
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), lockLog); err != nil {
		t.Fatal(err)
	}
	outcomes := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		e := newEvent()
		if change != nil {
			change(i, &e)
		}
		group.Go(func() { outcomes[i] = appendEvent(t.Context(), store, newStream(), eventstore.NoStream, e) })
		if i == 0 {
			awaitLockWaiters(t, pool, 1)
		}
	}
	testkit.Eventually(t, "the appends wait", func() bool { return store.Waiting() == n-1 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	return outcomes
}

// awaitLockWaiters waits until so many appends are held back by the log's lock.
func awaitLockWaiters(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	const waiters = `
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	testkit.Eventually(t, "an append waits for the lock", func() bool {
		var n int
		if err := pool.QueryRow(t.Context(), waiters).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == want
	})
}

// awaitListening waits until so many stores listen to what others append.
func awaitListening(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	const listeners = `
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND query = 'LISTEN kindred_log' AND state = 'idle'`
	testkit.Eventually(t, "the stores listen", func() bool {
		var n int
		if err := pool.QueryRow(t.Context(), listeners).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == want
	})
}

// listen returns a connection that hears what stores tell of their commits.
func listen(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	conn := testkit.Must(pool.Acquire(t.Context()))(t)
	t.Cleanup(conn.Release)
	if _, err := conn.Exec(t.Context(), `LISTEN kindred_log`); err != nil {
		t.Fatal(err)
	}
	return conn.Conn()
}

// hear listens until it hears of a position, and returns how often it was told
// of one. Each must be beyond the one before.
func hear(t *testing.T, listener *pgx.Conn, of eventstore.Position) (told int) {
	t.Helper()
	for last := ""; last != string(of); told++ {
		n, err := listener.WaitForNotification(t.Context())
		if err != nil {
			t.Fatalf("waiting to hear of %s after %q: %v", of, last, err)
		}
		if n.Payload <= last {
			t.Errorf("%s was told after %s", n.Payload, last)
		}
		last = n.Payload
	}
	return told
}

func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := testkit.Must(pool.Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // where the test has not ended it
	return tx
}

func subscribe(t *testing.T, store *pgstore.Store, after eventstore.Position) eventstore.Subscription {
	t.Helper()
	s := testkit.Must(store.Subscribe(t.Context(), after))(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func next(t *testing.T, s eventstore.Subscription) []eventstore.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	batch := testkit.Must(s.Next(ctx, 1000))(t)
	return batch.Records
}

func headOf(t *testing.T, store *pgstore.Store) eventstore.Position {
	t.Helper()
	return testkit.Must(store.Head(t.Context()))(t)
}

func epochOf(t *testing.T, store *pgstore.Store) string {
	t.Helper()
	return testkit.Must(store.Epoch(t.Context()))(t)
}

// streamsOf lists the streams of all events, in the log's order.
func streamsOf(t *testing.T, store *pgstore.Store) []eventstore.Stream {
	t.Helper()
	records := testkit.Must(store.ReadAll(t.Context(), eventstore.Start, 1000))(t)
	var streams []eventstore.Stream
	for _, r := range records {
		streams = append(streams, r.Stream)
	}
	return streams
}

// copyTable copies a table's rows from one database to another, as a dump does.
func copyTable(t *testing.T, table string, from, to *pgxpool.Pool) {
	t.Helper()
	var rows bytes.Buffer
	copyOn(t, from, func(c *pgconn.PgConn) error {
		_, err := c.CopyTo(t.Context(), &rows, "COPY "+table+" TO STDOUT")
		return err
	})
	copyOn(t, to, func(c *pgconn.PgConn) error {
		_, err := c.CopyFrom(t.Context(), &rows, "COPY "+table+" FROM STDIN")
		return err
	})
}

func copyOn(t *testing.T, pool *pgxpool.Pool, work func(*pgconn.PgConn) error) {
	t.Helper()
	err := pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error { return work(c.Conn().PgConn()) })
	if err != nil {
		t.Fatal(err)
	}
}

// wantSound fails unless the log has no gap and the tables beside it agree.
func wantSound(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	pool.Reset() // a server that was killed has taken its connections along
	for what, query := range map[string]string{
		"gaps in the log":         `SELECT coalesce(max(position), 0) - count(*) FROM events`,
		"events that stand twice": `SELECT count(*) - count(DISTINCT event_id) FROM events`,
		"streams with gaps": `
SELECT count(*) FROM (SELECT max(revision) AS revision, count(*) AS events FROM events GROUP BY stream) e WHERE e.events <> e.revision + 1`,
		"streams that go backwards": `
SELECT count(*) FROM (SELECT revision - lag(revision) OVER (PARTITION BY stream ORDER BY position) AS step FROM events) e
WHERE step <> 1`,
		"clients whose head is not their last event": `
SELECT count(*) FROM (SELECT client, position_text(max(position)) AS position FROM events WHERE client <> '' GROUP BY client) e
FULL JOIN heads h USING (client) WHERE e.position IS DISTINCT FROM h.position`,
	} {
		var n int
		if err := pool.QueryRow(context.WithoutCancel(t.Context()), query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d %s (%v)", n, what, err)
		}
	}
}
