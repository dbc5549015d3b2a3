package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
)

// maxLeftOut bounds the events that a projection leaves out of one client.
// limit: models | events of a client that a read model leaves out | {maxLeftOut}
const maxLeftOut = 1000

// LeftOut is an event that a projection could not apply, and went on without.
type LeftOut struct {
	Client   id.Client
	Position eventstore.Position
	Event    id.Event
	Type     string
	Reason   string
	At       time.Time
}

// ErrIncomplete: what was to be applied is, but not all of it could be. The error
// that wraps it names how much, and an example.
var ErrIncomplete = errors.New("not every event could be applied")

const leftOutColumns = `client, position, event_id, type, reason, at`

const (
	// insertLeftOut inserts nothing where the client has as many as are allowed.
	insertLeftOut = `
INSERT INTO left_out (projection, client, position, event_id, type, reason) SELECT $1, $2, $3, $4, $5, $6
WHERE (SELECT count(*) FROM left_out WHERE projection = $1 AND client = $2) < $7
ON CONFLICT (projection, client, position) DO UPDATE SET reason = excluded.reason, at = excluded.at`
	countLeftOut   = `SELECT count(*) FROM left_out WHERE projection = $1`
	deleteLeftOut  = `DELETE FROM left_out WHERE projection = $1 AND client = $2 AND position = $3`
	explainLeftOut = `UPDATE left_out SET reason = $4, at = now() WHERE projection = $1 AND client = $2 AND position = $3`
	selectLeftOut  = `SELECT ` + leftOutColumns + ` FROM left_out WHERE projection = $1 AND client = $2 ORDER BY position`
	clearLeftOut   = `DELETE FROM left_out WHERE projection = $1 AND client = $2`
	copyLeftOut    = `
INSERT INTO left_out (projection, ` + leftOutColumns + `)
SELECT $1, ` + leftOutColumns + ` FROM left_out WHERE projection = $3 AND client = $2`
)

// allowed is how many events of a client may be left out.
func (a *applier) allowed() int {
	if OptionsOf(a.projection).Gapless || a.MaxLeftOut < 0 {
		return 0
	}
	if a.MaxLeftOut > 0 {
		return a.MaxLeftOut
	}
	return maxLeftOut
}

const (
	incompleteEvents = `
SELECT count(*), coalesce((array_agg(format('event %s (%s) of client %s at position %s: %s', event_id, type, client, position, reason)
	ORDER BY position))[1], '')
FROM left_out WHERE projection = $1 AND ($2 = '' OR client = $2)`
	incompleteClients = `
SELECT count(*), coalesce((array_agg(format('client %s at event %s, position %s: %s', client, event_id, position, reason)
	ORDER BY position))[1], '')
FROM quarantine WHERE projection = $1 AND ($2 = '' OR client = $2) AND NOT paused`
)

// complete fails with ErrIncomplete where a projection left events out or stopped for
// a client; without one, for any.
func (r *Runner) complete(ctx context.Context, projectionID string, client id.Client) error {
	var events, clients int
	var event, stopped string
	err := r.Pool.QueryRow(ctx, incompleteEvents, projectionID, client).Scan(&events, &event)
	if err == nil {
		err = r.Pool.QueryRow(ctx, incompleteClients, projectionID, client).Scan(&clients, &stopped)
	}
	switch {
	case err != nil:
		return fmt.Errorf("read what was left out of %s: %w", projectionID, err)
	case clients > 0:
		return fmt.Errorf("%w: %d events left out of %s, %d clients quarantined, such as %s", ErrIncomplete, events, projectionID, clients, stopped)
	case events > 0:
		return fmt.Errorf("%w: %d left out of %s, such as %s", ErrIncomplete, events, projectionID, event)
	}
	return nil
}

// leftOutOf lists what a projection left out of a client, in the order of the log.
func leftOutOf(ctx context.Context, pool *pgxpool.Pool, projectionID string, client id.Client) ([]LeftOut, error) {
	rows, _ := pool.Query(ctx, selectLeftOut, projectionID, client) // what it fails with, its rows end with
	return pgx.CollectRows(rows, pgx.RowToStructByPos[LeftOut])
}

// retry applies an event that was left out of the client, which is passed
// over meanwhile. What still cannot be applied stays left out.
func (s *resumption) retry(ctx context.Context, out LeftOut) error {
	ctx, cancel := context.WithTimeout(ctx, maxTimeouts*batchTimeout)
	defer cancel()
	record, err := s.Log.Store.At(ctx, out.Position)
	gone := errors.Is(err, eventstore.ErrNotFound) || err == nil && record.ID != out.Event // the log was restored
	if err != nil && !gone {
		return fmt.Errorf("read the event at %s: %w", out.Position, err)
	}
	items, unknown := s.decode([]eventstore.Record{record})
	if unknown != nil && !gone {
		return unknown
	}
	err = pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{BeginQuery: startTransaction}, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, deleteLeftOut, s.projectionID, s.only, out.Position)
		if err == nil && !gone && done.RowsAffected() == 1 {
			_, err = s.together(ctx, tx, items)
		}
		return err
	})
	if isPoison(err) {
		_, err = s.Pool.Exec(ctx, explainLeftOut, s.projectionID, s.only, out.Position, legible(reason(err)))
	}
	return err
}
