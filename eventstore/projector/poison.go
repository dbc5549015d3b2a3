package projector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
)

// transientError is trouble that says nothing about the events.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// Transient marks an error of Apply as trouble that says nothing about the
// events, such as a key table that cannot be reached, so that the batch is
// tried again. The database's own trouble is known without it.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return transientError{err}
}

// dataClasses are the SQLSTATE classes that blame the data: cardinality, data
// exceptions, integrity, WITH CHECK OPTION, program limits, raised in PL/pgSQL.
// A missing table or a full disk would stop every client, so it stops none.
const dataClasses = "21 22 23 44 54 P0"

// isPoison says whether an error lies with the events that were applied.
func isPoison(err error) bool {
	switch {
	case err == nil, errors.As(err, new(transientError)), errors.As(err, new(slowError)),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, eventstore.ErrUnavailable), pgconn.SafeToRetry(err), pgconn.Timeout(err):
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return len(pg.Code) == 5 && strings.Contains(dataClasses, pg.Code[:2])
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return false
	}
	return true
}

// reason is an error in words that hold no value of a row.
func reason(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.TrimSpace(fmt.Sprintf("SQLSTATE %s %s %s %s", pg.Code, pg.TableName, pg.ColumnName, pg.ConstraintName))
	}
	return err.Error()
}

// together applies all items at once, those of quarantined clients excepted.
func (a *applier) together(ctx context.Context, tx pgx.Tx, items []item) ([]refused, error) {
	batch := make([]eventstore.Recorded, 0, len(items))
	for _, it := range items {
		passes, err := a.passes(ctx, tx, it, a.skip[it.Client])
		if err != nil {
			return nil, err
		}
		if passes {
			continue
		}
		if it.err != nil {
			return nil, it.err
		}
		batch = append(batch, it.Recorded)
	}
	if len(batch) == 0 {
		return nil, nil
	}
	return nil, a.call(ctx, tx, batch)
}

// singly applies items one by one, and leaves out those that cannot be applied.
// A client of which too many were left out stops.
func (a *applier) singly(ctx context.Context, tx pgx.Tx, items []item) (all []refused, err error) {
	stops := map[id.Client]bool{}
	for _, it := range items {
		passes, err := a.passes(ctx, tx, it, a.skip[it.Client] || stops[it.Client])
		if err != nil {
			return nil, err
		}
		if passes {
			continue
		}
		err = it.err
		if err == nil {
			err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
				return a.call(ctx, tx, []eventstore.Recorded{it.Recorded})
			})
		}
		if err == nil {
			continue
		}
		if !isPoison(err) || tx.Conn().IsClosed() {
			return nil, Transient(err)
		}
		r := refused{at: it.Record, reason: reason(err)}
		if err := r.store(ctx, tx, a.projectionID, a.allowed()); err != nil {
			return nil, Transient(err)
		}
		stops[it.Client], all = r.stops, append(all, r)
	}
	return all, nil
}

// endStopped forgets what stopped a client, unless that is only paused: then it comes to
// its end by itself.
const endStopped = `
WITH noted AS (
	DELETE FROM left_out WHERE projection = $1 AND client = $2
		AND EXISTS (SELECT FROM quarantine WHERE projection = $1 AND client = $2 AND NOT paused)
)
DELETE FROM quarantine WHERE projection = $1 AND client = $2 AND NOT paused`

// passes says whether an event is passed over: it is not wanted, or its client has
// stopped. The deletion of a client is not: what stopped it goes with it.
func (a *applier) passes(ctx context.Context, tx pgx.Tx, it item, stopped bool) (bool, error) {
	if it.passed || !stopped || it.Type != clientDeleted {
		return it.passed || stopped, nil
	}
	ended, err := tx.Exec(ctx, endStopped, a.projectionID, it.Client)
	if err != nil {
		return false, Transient(fmt.Errorf("end the quarantine of %s: %w", it.Client, err))
	}
	return ended.RowsAffected() == 0, nil
}

// call applies a batch; a panic becomes an error.
func (a *applier) call(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (err error) {
	defer panics.Catch(&err)
	return applyForgetting(ctx, a.projection, tx, a.Log, batch, a.spending, a.forget, a.over)
}

// refused is an event that cannot be applied. It is left out, or its client stops
// at it.
type refused struct {
	at     eventstore.Record
	reason string
	stops  bool
}

const insertQuarantine = `
INSERT INTO quarantine AS q (projection, client, position, event_id, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (projection, client) DO UPDATE SET
	position = excluded.position, event_id = excluded.event_id, reason = excluded.reason, at = excluded.at, paused = false, slow = false
WHERE q.paused`

// limit: models | what a read model says of an event that it leaves out | {maxReason} bytes
const maxReason = 1000 // bytes

// legible is a reason that a text column can hold.
func legible(reason string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(reason[:min(len(reason), maxReason)], "\x00", ""), "")
}

// store leaves the event out, or stops its client where so many are already.
func (r *refused) store(ctx context.Context, tx pgx.Tx, projectionID string, allowed int) error {
	done, err := tx.Exec(ctx, insertLeftOut, projectionID, r.at.Client, r.at.Position, r.at.ID, r.at.Type, legible(r.reason), allowed)
	if err != nil {
		return fmt.Errorf("leave out an event of %s: %w", r.at.Client, err)
	}
	if r.stops = done.RowsAffected() == 0; !r.stops {
		return nil
	}
	if _, err := tx.Exec(ctx, insertQuarantine, projectionID, r.at.Client, r.at.Position, r.at.ID, legible(r.reason)); err != nil {
		return fmt.Errorf("quarantine %s: %w", r.at.Client, err)
	}
	return nil
}

// report tells of what could not be applied, once that is committed.
func (a *applier) report(ctx context.Context, all []refused) {
	for _, r := range all {
		logger := a.Logger.With("projection", a.projectionID, "client", r.at.Client,
			"position", r.at.Position, "event_id", r.at.ID, "type", r.at.Type, "reason", r.reason)
		if r.stops {
			a.skip[r.at.Client] = true
			logger.ErrorContext(ctx, "client quarantined")
		} else {
			a.leftOut++
			logger.ErrorContext(ctx, "event left out")
		}
	}
	a.tellRefused()
}

// tellRefused tells the metrics what was refused, and who is slow: that is passed over,
// but not stopped.
func (a *applier) tellRefused() {
	a.Metrics.refused(a.projectionID, len(a.skip)-a.slow, a.slow, a.leftOut)
}

const selectQuarantined = `SELECT client FROM quarantine WHERE projection = $1`

func (a *applier) findQuarantined(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, selectQuarantined, a.projectionID) // what it fails with, its rows end with
	var client id.Client
	_, err := pgx.ForEachRow(rows, []any{&client}, func() error {
		a.skip[client] = true
		return nil
	})
	return err
}
