package projector

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

// clientDeleted is the type of a client's last event: with it go the client's rows in
// every read model that is not Lasting.
const clientDeleted = "client.deleted"

// Lasting is a read model of which a client's rows stay when the client is deleted.
type Lasting interface{ Lasting() }

// forgets says whether a client's rows go from a projection with the client.
func forgets(p Projection) bool {
	_, model := p.(ReadModel)
	_, lasting := p.(Lasting)
	return model && !lasting
}

// applyForgetting applies a batch, and deletes the rows of each client at the place at
// which it was deleted.
func applyForgetting(ctx context.Context, p Projection, tx pgx.Tx, log *eventstore.Log, batch []eventstore.Recorded, most int) error {
	if !forgets(p) {
		return apply(ctx, p, tx, log, batch, most)
	}
	for len(batch) > 0 {
		at := slices.IndexFunc(batch, func(r eventstore.Recorded) bool { return r.Type == clientDeleted })
		if at < 0 {
			return apply(ctx, p, tx, log, batch, most)
		}
		if at > 0 {
			if err := apply(ctx, p, tx, log, batch[:at], most); err != nil {
				return err
			}
		}
		if err := forget(ctx, tx, batch[at].Client); err != nil {
			return fmt.Errorf("delete the rows of %s: %w", batch[at].Client, err)
		}
		batch = batch[at+1:]
	}
	return nil
}

const selectOwn = `
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'client' AND NOT a.attisdropped
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY 1`

// forget deletes the rows of a client from the tables of the read model whose schema comes
// first.
func forget(ctx context.Context, tx pgx.Tx, client id.Client) error {
	rows, err := tx.Query(ctx, selectOwn)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string]) // quoted where that is needed
	if err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE client = $1`, client); err != nil {
			return err
		}
	}
	return nil
}
