package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/eventstoretest"
	"kindred/eventstore/pgstore"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// TestConformance runs the suite on a server that flushes as in production, and
// that the suite may kill.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := pgtest.Durable(t)
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		t.Helper()
		url := server.Another(t)
		another := func(t testing.TB) eventstore.Store {
			t.Helper()
			return open(t, connect(t, url))
		}
		side := connect(t, url)
		t.Cleanup(func() { wantSound(t, side) })
		return eventstoretest.Harness{
			Store:   another(t),
			Another: another,
			Cut: func(t testing.TB) {
				t.Helper()
				cut(t, side)
			},
			KeyOf: func(t testing.TB, client id.Client, subject string) (key string) {
				t.Helper()
				const find = `SELECT coalesce(max(id), '') FROM subject_keys WHERE client = $1 AND subject = $2`
				if err := side.QueryRow(t.Context(), find, client, subject).Scan(&key); err != nil {
					t.Fatal(err)
				}
				return key
			},
			Restart: func(testing.TB) {
				server.Kill()
				server.Restart()
			},
		}
	})
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool := testkit.Must(postgres.Open(t.Context(), url, postgres.Options{MaxConns: 8}))(t)
	t.Cleanup(pool.Close)
	return pool
}

func open(t testing.TB, pool *pgxpool.Pool) *pgstore.Store {
	t.Helper()
	store := testkit.Must(pgstore.Open(t.Context(), pool, nil))(t)
	t.Cleanup(store.Close)
	return store
}

// cut ends every other connection of the database.
func cut(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	const others = `
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`
	var n int
	if err := pool.QueryRow(ctx, others).Scan(&n); err != nil {
		t.Errorf("cut connections: %v", err)
	}
}

func TestPagesOfTheLogEndWhereEventsAreLarge(t *testing.T) {
	t.Parallel()
	store := open(t, pgtest.New(t))
	const events = 50
	for range events {
		large := newEvent()
		large.Data = make([]byte, eventstore.MaxEventSize-len(large.Meta))
		if err := appendEvent(t.Context(), store, newStream(), eventstore.NoStream, large); err != nil {
			t.Fatal(err)
		}
	}
	head := headOf(t, store)
	for name, read := range map[string]func(eventstore.Position) ([]eventstore.Record, error){
		"all": func(after eventstore.Position) ([]eventstore.Record, error) {
			return store.ReadAll(t.Context(), after, 1000)
		},
		"client": func(after eventstore.Position) ([]eventstore.Record, error) {
			return store.ReadClient(t.Context(), client, after, head, 1000)
		},
	} {
		after, n := eventstore.Start, 0
		for after < head {
			page, err := read(after)
			if err != nil || len(page) == 0 || len(page) > 32 {
				t.Fatalf("%s: a page of %d events of half a MiB, %v", name, len(page), err)
			}
			after, n = page[len(page)-1].Position, n+len(page)
		}
		if n != events {
			t.Errorf("%s: %d of %d events were read", name, n, events)
		}
	}
}

func TestOfAClientIsReadWhatStandsBehindOnePositionAndUpToAnother(t *testing.T) {
	t.Parallel()
	store := open(t, pgtest.New(t))
	for i := range 8 {
		e := newEvent()
		if i%2 == 1 {
			e.Client = "cli_00000000000000000000000001"
		}
		if err := appendEvent(t.Context(), store, newStream(), eventstore.NoStream, e); err != nil {
			t.Fatal(err)
		}
	}
	read := func(after, upTo eventstore.Position, limit int) []eventstore.Record {
		t.Helper()
		return testkit.Must(store.ReadClient(t.Context(), client, after, upTo, limit))(t)
	}
	all := read(eventstore.Start, headOf(t, store), 10)
	if n := testkit.Must(store.CountClient(t.Context(), client))(t); n != 4 || len(all) != 4 {
		t.Fatalf("%d events are counted, and %d read, of 4", n, len(all))
	}
	for limit, want := range map[int][]eventstore.Record{10: all[1:3], 1: all[1:2]} {
		if diff := cmp.Diff(want, read(all[0].Position, all[2].Position, limit)); diff != "" {
			t.Errorf("at most %d: %s", limit, diff)
		}
	}
}
