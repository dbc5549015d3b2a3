package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"kindred/projections"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
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
