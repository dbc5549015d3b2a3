package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
	"kindred/eventstore/eventstoretest"
	"kindred/eventstore/pgstore"
	"kindred/postgres"
	"kindred/postgres/pgtest"
)

func TestConformance(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness { return harness(t, pgtest.URL(t), nil) })
}

func TestConformanceOnAServerThatIsKilled(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		server := pgtest.Durable(t)
		return harness(t, server.URL(), func(testing.TB) {
			server.Kill()
			server.Restart()
		})
	})
}

func harness(t testing.TB, url string, restart func(testing.TB)) eventstoretest.Harness {
	t.Helper()
	another := func(t testing.TB) eventstore.Store {
		t.Helper()
		return open(t, connect(t, url))
	}
	side := connect(t, url)
	return eventstoretest.Harness{
		Store:   another(t),
		Another: another,
		Cut:     func(t testing.TB) { cut(t, side) },
		Restart: restart,
	}
}

func connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), url, postgres.Options{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func open(t testing.TB, pool *pgxpool.Pool) *pgstore.Store {
	t.Helper()
	store, err := pgstore.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// cut ends every other connection of the database.
func cut(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	const others = `
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`
	var n int
	if err := pool.QueryRow(ctx, others).Scan(&n); err != nil {
		t.Errorf("cut connections: %v", err)
	}
}
