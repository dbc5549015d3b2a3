package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/postgres/pgtest"
)

func TestEveryTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	one, two := pgtest.New(t), pgtest.New(t)
	if _, err := one.Exec(t.Context(), `CREATE TABLE mine (n int)`); err != nil {
		t.Fatal(err)
	}
	var there bool
	const exists = `SELECT to_regclass('mine') IS NOT NULL`
	if err := two.QueryRow(t.Context(), exists).Scan(&there); err != nil || there {
		t.Errorf("the other database has the table: %t, %v", there, err)
	}
}

func TestTheDatabaseIsMigrated(t *testing.T) {
	t.Parallel()
	var n int
	err := pgtest.New(t).QueryRow(t.Context(), `SELECT count(*) FROM schema_migration`).Scan(&n)
	if err != nil {
		t.Error(err)
	}
}

func TestTheDatabaseGoesWithTheTest(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("inner", func(t *testing.T) {
		url = pgtest.URL(t)
		if _, err := pgx.Connect(context.Background(), url); err != nil { // never closed
			t.Fatal(err)
		}
	})
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("the database is still there")
	}
}

func TestADurableServerKeepsWhatWasCommittedWhenItIsKilled(t *testing.T) {
	t.Parallel()
	server := pgtest.Durable(t)
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `CREATE TABLE kept AS SELECT 42 AS n`); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("a killed server answers")
	}
	server.Restart()
	conn, err = pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT n FROM kept`).Scan(&n); err != nil || n != 42 {
		t.Errorf("kept: %d, %v", n, err)
	}
}
