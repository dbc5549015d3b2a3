package postgres_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/golden"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// files maps names of migrations to their statements.
func files(pairs ...string) fs.FS {
	found := fstest.MapFS{"migrations/README.md": {Data: []byte("not a migration")}}
	for i := 0; i < len(pairs); i += 2 {
		found["migrations/"+pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return found
}

// emptyDatabase returns the URL of a database that was never migrated.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	url := pgtest.URL(t)
	query[string](t, url, `DROP SCHEMA public CASCADE; CREATE SCHEMA public`)
	return url
}

// query runs statements without a result, or one that yields a column.
func query[T any](t *testing.T, url, sql string) []T {
	t.Helper()
	conn := testkit.Must(pgx.Connect(t.Context(), url))(t)
	defer conn.Close(t.Context())
	if !strings.HasPrefix(sql, "SELECT") {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	rows := testkit.Must(conn.Query(t.Context(), sql))(t)
	return testkit.Must(pgx.CollectRows(rows, pgx.RowTo[T]))(t)
}

func applied(t *testing.T, url string) []string {
	t.Helper()
	return query[string](t, url, `SELECT name FROM schema_migration ORDER BY name`)
}

func TestMigrationsRunOnceInOrderAndMayHaveGaps(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	one := []string{"001_a.sql", `CREATE TABLE steps (n int); INSERT INTO steps VALUES (1)`}
	two := []string{"007_b.sql", `INSERT INTO steps VALUES (7)`}
	three := []string{"010_c.sql", `INSERT INTO steps SELECT 10 WHERE EXISTS (SELECT FROM steps WHERE n = 7)`}
	for _, set := range [][]string{nil, one, append(one, two...), append(append(one, two...), three...)} {
		for range 2 {
			if err := postgres.MigrateFrom(t.Context(), url, files(set...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := query[int](t, url, `SELECT n FROM steps ORDER BY n`)
	if diff := cmp.Diff([]int{1, 7, 10}, got); diff != "" {
		t.Error(diff)
	}
}

func TestManyProcessesMigrateAtTheSameTime(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	set := files("001_a.sql", `CREATE TABLE a (n int)`, "002_b.sql", `ALTER TABLE a ADD COLUMN m int`)
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = postgres.MigrateFrom(t.Context(), url, set) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestAnUnknownHistoryIsRefusedAndNothingChanges(t *testing.T) {
	t.Parallel()
	const a, b = `CREATE TABLE a (n int)`, `CREATE TABLE b (n int)`
	for name, ours := range map[string]fs.FS{
		"newer":     files("001_a.sql", a, "003_c.sql", b),
		"different": files("001_a.sql", `CREATE TABLE a (n bigint)`, "002_b.sql", b, "003_c.sql", b),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := emptyDatabase(t)
			if err := postgres.MigrateFrom(t.Context(), url, files("001_a.sql", a, "002_b.sql", b)); err != nil {
				t.Fatal(err)
			}
			err := postgres.MigrateFrom(t.Context(), url, ours)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("the migration says: %v", err)
			}
			if diff := cmp.Diff([]string{"001_a.sql", "002_b.sql"}, applied(t, url)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAMigrationThatFailsLeavesNothingOfItself(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	err := postgres.MigrateFrom(t.Context(), url, files(
		"001_a.sql", `CREATE TABLE a (n int)`,
		"002_b.sql", `CREATE TABLE b (n int); SELECT 1/0`,
		"003_c.sql", `CREATE TABLE c (n int)`))
	if err == nil || !strings.Contains(err.Error(), "002_b.sql") {
		t.Errorf("the migration says: %v", err)
	}
	if diff := cmp.Diff([]string{"001_a.sql"}, applied(t, url)); diff != "" {
		t.Error(diff)
	}
	tables := query[string](t, url, `SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`)
	if diff := cmp.Diff([]string{"a", "schema_migration"}, tables); diff != "" {
		t.Error(diff)
	}
}

func TestARepeatableMigrationRunsAfterTheOthersWheneverItHasChanged(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	one, two := []string{"001_a.sql", `CREATE TABLE steps (n int)`}, []string{"002_b.sql", `INSERT INTO steps VALUES (2)`}
	first, second := []string{"functions.sql", `INSERT INTO steps VALUES (10)`}, []string{"functions.sql", `INSERT INTO steps VALUES (20)`}
	for _, set := range [][]string{append(first, one...), append(first, one...), append(append(second, one...), two...), append(append(first, one...), two...)} {
		if err := postgres.MigrateFrom(t.Context(), url, files(set...)); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int{10, 2, 20, 10}, query[int](t, url, `SELECT n FROM steps ORDER BY ctid`)); diff != "" {
		t.Error(diff)
	}
}

func TestAnEarlierEditionOfTheFunctionsLeavesALaterOneAlone(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	for i, functions := range []string{
		`CREATE TABLE steps (n int)`, `INSERT INTO steps VALUES (1)`, // of before there were editions
		"-- Edition 2.\nINSERT INTO steps VALUES (2)", `INSERT INTO steps VALUES (3)`,
		"-- Edition 1.\nINSERT INTO steps VALUES (4)", "-- Edition 2.\nINSERT INTO steps VALUES (5)", // of a branch
		"-- Edition 10.\nINSERT INTO steps VALUES (6)", "-- Edition 9.\nINSERT INTO steps VALUES (7)",
	} {
		if err := postgres.MigrateFrom(t.Context(), url, files("functions.sql", functions)); err != nil {
			t.Fatal(i, err)
		}
	}
	if diff := cmp.Diff([]int{1, 2, 5, 6}, query[int](t, url, `SELECT n FROM steps ORDER BY ctid`)); diff != "" {
		t.Error(diff)
	}
}

// Whoever changes functions.sql counts its edition up, and names what both are now.
func TestTheFunctionsOfAnEditionStandAsTheyAre(t *testing.T) {
	t.Parallel()
	const edition, sum = 2, "a757273d936fc5ebe958d509118e93da21f819d070917f4b8c98734c9fb299c0"
	functions := testkit.Must(os.ReadFile("migrations/functions.sql"))(t)
	if first := fmt.Sprintf("-- Edition %d.\n", edition); !strings.HasPrefix(string(functions), first) || fmt.Sprintf("%x", sha256.Sum256(functions)) != sum {
		t.Errorf("functions.sql has changed, or does not begin with %q: count the edition in its first line up, and name it here with sha256 %x", first, sha256.Sum256(functions))
	}
}

func TestADatabaseOfBeforeTheFirstReleaseIsRefused(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	if err := postgres.MigrateFrom(t.Context(), url, files("001_log.sql", `CREATE TABLE events (n int)`)); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), url); err == nil || !strings.Contains(err.Error(), "before the first release") {
		t.Errorf("the migration says: %v", err)
	}
	if diff := cmp.Diff([]string{"001_log.sql"}, applied(t, url)); diff != "" {
		t.Error(diff)
	}
}

func TestADatabaseOfAnotherEncodingIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	name := query[string](t, url, `SELECT current_database() || '_latin1'`)[0]
	query[string](t, url, `CREATE DATABASE "`+name+`" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	defer query[string](t, url, `DROP DATABASE "`+name+`"`)
	config := testkit.Must(pgx.ParseConfig(url))(t)
	latin1 := strings.Replace(url, config.Database, name, 1)
	if err := postgres.Migrate(t.Context(), latin1); err == nil || !strings.Contains(err.Error(), "LATIN1: make one with createdb --encoding=UTF8") {
		t.Errorf("the migration says: %v", err)
	}
	if tables := query[string](t, latin1, `SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'`); len(tables) > 0 {
		t.Errorf("it has made %v", tables)
	}
}

func TestTheEmbeddedMigrationsApplyTwice(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t) // once
	if err := postgres.Migrate(t.Context(), url); err != nil {
		t.Error(err)
	}
}

// A database refuses a migration that it has in another wording.
func TestMigrationsThatRunOnceStay(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, file := range testkit.Must(filepath.Glob("migrations/[0-9]*.sql"))(t) {
		lines = append(lines, fmt.Sprintf("%s %x", filepath.Base(file), sha256.Sum256(testkit.Must(os.ReadFile(file))(t))))
	}
	golden.Check(t, "migrations.txt", lines)
}

// A dump holds each table until it ends. Whoever would change one waits for that, and whoever comes then waits for both.
func TestAMigrationGivesWayToWhoeverReadsWhileSomethingHoldsATable(t *testing.T) {
	t.Parallel()
	url := emptyDatabase(t)
	first, second := []string{"001_a.sql", `CREATE TABLE a (n int)`}, []string{"002_b.sql", `ALTER TABLE a ADD COLUMN m int`}
	if err := postgres.MigrateFrom(t.Context(), url, files(first...)); err != nil {
		t.Fatal(err)
	}
	dump, reader := testkit.Must(pgx.Connect(t.Context(), url))(t), testkit.Must(pgx.Connect(t.Context(), url))(t)
	defer dump.Close(t.Context())
	defer reader.Close(t.Context())
	testkit.Must(dump.Exec(t.Context(), `BEGIN; LOCK TABLE a IN ACCESS SHARE MODE`))(t)
	migrated := make(chan error, 1)
	go func() { migrated <- postgres.MigrateFrom(t.Context(), url, files(append(first, second...)...)) }()
	testkit.Eventually(t, "the migration waits", func() bool {
		return query[int](t, url, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'`)[0] > 0
	})
	if _, err := reader.Exec(t.Context(), `SET statement_timeout = '15s'; SELECT FROM a`); err != nil {
		t.Errorf("a reader: %v", err)
	}
	testkit.Must(dump.Exec(t.Context(), `COMMIT`))(t)
	if err := <-migrated; err != nil {
		t.Errorf("the migration: %v", err)
	}
}

// Notifications, locks and settings would be anybody's.
func TestADatabaseBehindAPoolerOfTransactionsIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	if err := postgres.Migrate(t.Context(), pgtest.PooledByTransaction(t, url)); err == nil || !strings.Contains(err.Error(), "pool_mode = session") {
		t.Errorf("%v", err)
	}
	if migrated, err := postgres.Migrated(t.Context(), url); migrated || err != nil {
		t.Errorf("migrated: %t, %v", migrated, err)
	}
}
