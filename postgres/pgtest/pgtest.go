// Package pgtest gives every test a PostgreSQL database of its own, with the schema
// in place, on a server that the whole run shares. Nothing outlives the run.
//
// KINDRED_TEST_DATABASE_URL names the server (scripts/testpg sets it); without it, each
// test binary starts a private one. KINDRED_TEST_POOLED=1 puts PgBouncer before it.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/postgres"
)

// timeout bounds each step: making the template, making a database, dropping it.
const timeout = 2 * time.Minute

// New returns a pool on a fresh, migrated database. Both go when the test ends; a
// connection that the test has not given back by then fails it.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), URL(t), postgres.Options{AppName: "kindred test"})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// Lock locks a table, "name IN … MODE", until it is released or the test ends.
func Lock(t testing.TB, db interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, table string,
) (release func()) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // it may have been released
	if _, err := tx.Exec(t.Context(), `LOCK TABLE `+table); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
}

func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Errorf("pgtest: %d connections were not given back", pool.Stat().AcquiredConns())
	}
}

// URL returns the URL of a fresh, migrated database, which is dropped when the test
// ends, whoever is still connected to it.
func URL(t testing.TB) string {
	t.Helper()
	if os.Getenv(envPooled) != "" {
		return Pooled(t)
	}
	return direct(t)
}

// direct is the URL of such a database without PgBouncer, whatever the environment says.
func direct(t testing.TB) string {
	t.Helper()
	template, err := sharedTemplate()
	if err != nil {
		t.Fatalf("pgtest: make the template database: %v", err)
	}
	return cloneShared(t, template)
}

// Empty returns the URL of a fresh database that holds nothing.
func Empty(t testing.TB) string {
	t.Helper()
	return cloneShared(t, "template0")
}

func cloneShared(t testing.TB, template string) string {
	t.Helper()
	server, err := sharedServer()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return clone(t, server, template, "file_copy") // a third of the work of the default
}

// clone makes a database of a server from another, until the test ends.
func clone(t testing.TB, server, template, strategy string) string {
	t.Helper()
	name := "kindred_test_" + strings.ToLower(rand.Text())
	create := `CREATE DATABASE ` + name + ` TEMPLATE ` + template + ` STRATEGY ` + strategy
	if err := admin(t.Context(), server, create); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		drop := `DROP DATABASE IF EXISTS ` + name + ` WITH (FORCE)`
		if err := admin(context.WithoutCancel(t.Context()), server, drop); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return withDatabase(server, name)
}

// makeTemplate makes the database that tests clone, unless somebody has. It is made
// under another name and renamed when it is complete.
func makeTemplate(ctx context.Context, server string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // which also gives the lock back

	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('kindred pgtest', 0))`); err != nil {
		return "", err
	}
	name = "kindred_template_" + postgres.Fingerprint()
	var made bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&made)
	if err != nil || made {
		return name, err
	}
	half := name + "_half"
	for _, step := range []func() error{
		func() error { return run(ctx, conn, `DROP DATABASE IF EXISTS `+half+` WITH (FORCE)`) },
		func() error { return run(ctx, conn, `CREATE DATABASE `+half+` TEMPLATE template0`) },
		func() error { return postgres.Migrate(ctx, withDatabase(server, half)) },
		func() error { return run(ctx, conn, `ALTER DATABASE `+half+` ALLOW_CONNECTIONS false`) },
		func() error { return run(ctx, conn, `ALTER DATABASE `+half+` RENAME TO `+name) },
	} {
		if err := step(); err != nil {
			return "", err
		}
	}
	return name, nil
}

func admin(ctx context.Context, server, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	return errors.Join(run(ctx, conn, sql), conn.Close(ctx))
}

func run(ctx context.Context, conn *pgx.Conn, sql string) error {
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// withDatabase returns the server's URL with another database's name in it.
func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic("pgtest: the server's URL cannot be parsed") // it was, to connect
	}
	u.Path = "/" + name
	return u.String()
}
