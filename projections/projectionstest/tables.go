package projectionstest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// modelTables are the empty tables of a model in a transaction that is never
// committed.
type modelTables struct {
	TX    pgx.Tx
	Model projector.ReadModel
	log   *eventstore.Log
	names []string
}

func EmptyTables(t *testing.T, w *Fixture, model projector.ReadModel) modelTables {
	t.Helper()
	tx, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	for _, ddl := range []string{`CREATE SCHEMA trial`, `SET LOCAL search_path TO trial, public`, model.Schema()} {
		if _, err := tx.Exec(t.Context(), ddl); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = 'trial' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	return modelTables{tx, model, w.EventLog, testkit.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)}
}

// After returns every row, as text, once a history was applied in batches of
// these sizes. The tables are empty again then.
func (m modelTables) After(t *testing.T, sizes []int, history []eventstore.Recorded) map[string][]string {
	t.Helper()
	tx, err := m.TX.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	for _, n := range sizes {
		if err := projector.Apply(t.Context(), m.Model, tx, m.log, history[:n]); err != nil {
			t.Fatal(err)
		}
		history = history[n:]
	}
	found := map[string][]string{}
	for _, name := range m.names {
		rows, err := tx.Query(t.Context(), `SELECT t::text FROM `+pgx.Identifier{name}.Sanitize()+` t ORDER BY 1`)
		if err != nil {
			t.Fatal(err)
		}
		found[name] = testkit.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	}
	return found
}
