package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/app"
	"kindred/cmd/kindred/demo"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// global are the tables that belong to no client, and why.
func global() map[string]string {
	return map[string]string{
		"public.audit_keys":       "the service signs with them, for all clients",
		"public.checkpoints":      "a follower reads the log of all clients in one order",
		"public.dispatch_workers": "processes that deliver",
		"public.epoch_directory":  "one for the database",
		"public.epochs":           "an epoch's key wraps the keys of many clients' subjects",
		"public.leases":           "processes that lead",
		"public.log":              "one for the database",
		"public.replay":           "one for the database",
		"public.schema_migration": "one for the database",
		"public.signing_keys":     "the service signs with them, for all clients",
		"public.throttles":        "counts those who have not proved yet whose they are",
		"claims.open_claims":      "addresses and slugs are unique across clients",
	}
}

// otherwise are the tables of clients without a primary key, and the unique indexes
// on them that the client does not lead, and why.
func otherwise() map[string]string {
	return map[string]string{
		"public.dispatch_attempts":   "partitioned by day: a unique index would have to hold the time, and prove nothing",
		"public.dispatch_deliveries": "partitioned by day: a unique index would have to hold the time, and prove nothing",
		"public.events_stream_once":  "hashes of a stream's name, 20 bytes an event; a client's id before them takes 32 more",
		"public.request_log":         "partitioned by day, and what is in it is told apart by nothing",
		"public.subject_keys_pkey":   "with the client first, a join may be planned to read all keys of a client",
	}
}

const selectTables = `
SELECT n.nspname, c.relname,
	EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'client' AND NOT a.attisdropped),
	EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
	ARRAY (SELECT i.indexrelid::regclass::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique
		AND pg_get_indexdef(i.indexrelid, 1, true) <> 'client')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'
ORDER BY 1, 2`

func TestTheClientLeadsEveryUniqueIndexOfEveryTable(t *testing.T) {
	t.Parallel()
	s := startService(t)
	s.signUp().importUsers(3, func(int) string { return `{}` })
	f := openApp(t, s.Config)
	caughtUp(t, f)
	check := func() {
		t.Helper()
		rows, err := f.Pool.Query(t.Context(), selectTables)
		if err != nil {
			t.Fatal(err)
		}
		var (
			schema, table     string
			divided, keyed    bool
			odd               []string
			shared, unlike    []string
			tables, followers int
		)
		_, err = pgx.ForEachRow(rows, []any{&schema, &table, &divided, &keyed, &odd}, func() error {
			tables++
			if schema != "public" {
				followers++
				schema = schema[:strings.LastIndex(schema, "_")] // without its version
			}
			if !divided {
				shared = append(shared, schema+"."+table)
				return nil
			}
			if !keyed {
				unlike = append(unlike, schema+"."+table)
			}
			for _, index := range odd {
				unlike = append(unlike, schema+"."+index[strings.LastIndex(index, ".")+1:])
			}
			return nil
		})
		if err != nil || tables < 40 || followers < 20 {
			t.Fatalf("%d tables, %d of read models, %v", tables, followers, err)
		}
		slices.Sort(shared)
		slices.Sort(unlike)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(global())), shared); diff != "" {
			t.Errorf("tables that are not divided by client (- the list, + found): %s", diff)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(otherwise())), unlike); diff != "" {
			t.Errorf("tables and unique indexes that the client does not lead (- the list, + found): %s", diff)
		}
	}
	check()
	if _, err := tool(t, s.Config, append([]string{"projections", "rebuild"}, projections.Names()...)...); err != nil {
		t.Fatal(err)
	}
	check()
}

// ofAll are the statements on tables of clients that name none, by words that they hold,
// and why.
func ofAll() map[string]string {
	return map[string]string{
		"FROM public.epochs e WHERE":                  "an epoch's key wraps the keys of many clients' subjects",
		"UPDATE public.epochs SET closing_at":         "an epoch's key wraps the keys of many clients' subjects",
		"DELETE FROM quarantine WHERE projection":     "a projection that was rebuilt begins anew for all clients",
		"count(*) FROM left_out WHERE projection":     "a rebuild counts what all clients' parts left out",
		"DELETE FROM idempotency WHERE ctid":          "what is kept for a day goes, whose it ever was",
		"DELETE FROM imports WHERE NOT keyed":         "what is kept for days goes, whose it ever was",
		"DELETE FROM public.rebuilds WHERE ended_at":  "what is kept for days goes, whose it ever was",
		"DELETE FROM dispatch_recoveries WHERE at":    "what is kept for days goes, whose it ever was",
		"DELETE FROM request_omissions WHERE day":     "what is kept for days goes, whose it ever was",
		"FROM public.events e ORDER BY e.position":    "the end of the log",
		"max(position), $1) FROM public.events":       "the end of the log",
		"WHERE hashtextextended(e.stream,":            "a stream is one client's; appends that share a commit look several up",
		"FROM dispatch_queue f WHERE f.webhook":       "a webhook is one client's; its deliveries are found by it",
		"FROM dispatch_queue q\n\t\tWHERE webhook":    "a webhook is one client's; its deliveries are found by it",
		"FROM public.revocation_notes WHERE noted_at": "a process follows the revocations of all clients, whose tokens it may meet",
	}
}

// The demo's statements, those within functions too, name the client of whom they read or
// write, for each table, but for a list: no query can meet another client's rows by a mistake
// in an id.
func TestEachStatementOnATableOfClientsNamesTheClient(t *testing.T) {
	t.Parallel()
	server, err := pgtest.StartServer(t.Context(), "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all")
	if err != nil {
		t.Fatal(err) // Debian's package has the library
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `CREATE EXTENSION pg_stat_statements`); err != nil {
		t.Fatal(err)
	}
	s := startService(t, func(c *app.Config) { c.DatabaseURL = server.URL() })
	var out strings.Builder
	if err := demo.Run(t.Context(), demo.Options{URL: s.URL, Out: &out, Users: 60, Seed: 1, Patience: patience}); err != nil {
		t.Fatalf("%v, after:\n%s", err, &out)
	}
	texts := func(sql string) []string {
		rows, err := pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	tenancy := pgtest.TenancyOf(t.Context(), t, pool)
	statements := texts(`SELECT DISTINCT query FROM pg_stat_statements`)
	looked, listed := 0, map[string]bool{}
	for _, statement := range statements {
		of, touches, unbound := tenancy.Unbound(statement)
		if touches {
			looked++
		}
		if !unbound {
			continue
		}
		known := false
		for w := range ofAll() {
			if strings.Contains(statement, w) {
				known, listed[w] = true, true
			}
		}
		if !known {
			t.Errorf("names no client, of %q: %s", of, statement)
		}
	}
	for w, why := range ofAll() {
		if !listed[w] {
			t.Errorf("no statement has %q any more (%s)", w, why)
		}
	}
	if looked < 100 {
		t.Errorf("%d statements were looked at, of %d", looked, len(statements))
	}
}
