package projections_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
	"kindred/eventstore/projector"
)

// built is a read model's tables, as text, after events were applied in
// batches of some size.
func built(t *testing.T, pool *pgxpool.Pool, m projector.ReadModel, events []eventstore.Recorded, size func() int, tables ...string) string {
	t.Helper()
	var dump strings.Builder
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `CREATE SCHEMA built; SET LOCAL search_path TO built, public; `+m.Schema()); err != nil {
			return err
		}
		for rest := events; len(rest) > 0; {
			n := min(size(), len(rest))
			if err := m.Apply(t.Context(), tx, rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		for _, table := range tables {
			if err := dumpTable(t.Context(), tx, table, &dump); err != nil {
				return err
			}
		}
		_, err := tx.Exec(t.Context(), `DROP SCHEMA built CASCADE`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return dump.String()
}

func dumpTable(ctx context.Context, tx pgx.Tx, table string, into *strings.Builder) error {
	rows, err := tx.Query(ctx, `SELECT t::text FROM `+table+` t ORDER BY 1`)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	fmt.Fprintf(into, "%s\n%s\n", table, strings.Join(lines, "\n"))
	return err
}

// wantSplitIndependent builds a model one by one, at once and in random
// batches, and returns the tables, which must be the same each time.
func wantSplitIndependent(t *testing.T, pool *pgxpool.Pool, m projector.ReadModel, events []eventstore.Recorded, tables ...string) string {
	t.Helper()
	one := built(t, pool, m, events, func() int { return 1 }, tables...)
	random := rand.New(rand.NewPCG(1, 2))
	for name, size := range map[string]func() int{
		"at once": func() int { return len(events) }, "in random batches": func() int { return 1 + random.IntN(7) },
	} {
		if diff := cmp.Diff(one, built(t, pool, m, events, size, tables...)); diff != "" {
			t.Errorf("%s (-one by one +%s):\n%s", name, name, diff)
		}
	}
	return one
}
