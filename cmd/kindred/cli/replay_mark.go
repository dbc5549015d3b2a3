package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres"
)

// replayMark is how far a replay has come.
type replayMark struct {
	position eventstore.Position // in the source
	events   int64
}

var errNotEmpty = errors.New("a replay needs an empty database, and an empty event store: this one holds something already")

const selectForeign = `
SELECT to_regclass('public.replay') IS NULL AND EXISTS (
	SELECT FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND schemaname NOT LIKE 'pg\_%')`

// refuseForeign looks, before anything is changed, whether a database is
// another's.
func refuseForeign(ctx context.Context, url string) error {
	conn, err := postgres.Connect(ctx, url, projector.ToolName)
	if err != nil {
		return fmt.Errorf("reach the database of --into: %w", err)
	}
	var foreign bool
	err = conn.QueryRow(ctx, selectForeign).Scan(&foreign)
	switch err := errors.Join(err, conn.Close(ctx)); {
	case err != nil:
		return fmt.Errorf("look into the database of --into: %w", err)
	case foreign:
		return errNotEmpty
	}
	return nil
}

const (
	selectMark = `SELECT source, position, events, finished_at FROM replay`
	selectUsed = `
SELECT EXISTS (SELECT FROM events) OR EXISTS (SELECT FROM client_keys) OR EXISTS (SELECT FROM peppers)
	OR EXISTS (SELECT FROM subject_keys) OR EXISTS (SELECT FROM checkpoints)`
	insertMark = `INSERT INTO replay (source) VALUES ($1)`
	updateMark = `UPDATE replay SET position = $1, events = $2 WHERE position = $3 AND events = $4 AND finished_at IS NULL`
	finishMark = `UPDATE replay SET finished_at = now(), through = $1 WHERE finished_at IS NULL`
)

// begin goes on with a replay of a source that was broken off, or begins it in
// what must be empty.
func (r *replaying) begin(ctx context.Context, source string) error {
	var (
		begun    string
		finished *time.Time
	)
	err := r.to.Pool.QueryRow(ctx, selectMark).Scan(&begun, &r.mark.position, &r.mark.events, &finished)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return r.beginAnew(ctx, source)
	case err != nil:
		return fmt.Errorf("read how far the replay has come: %w", err)
	case finished != nil || begun != source:
		return errNotEmpty
	}
	return nil
}

func (r *replaying) beginAnew(ctx context.Context, source string) error {
	var used bool
	if err := r.to.Pool.QueryRow(ctx, selectUsed).Scan(&used); err != nil {
		return fmt.Errorf("look into the database of --into: %w", err)
	}
	head, err := r.to.Log.Store.Head(ctx)
	if err != nil {
		return err
	}
	if used || head != eventstore.Start {
		return errNotEmpty
	}
	if _, err := r.to.Pool.Exec(ctx, insertMark, source); err != nil {
		return fmt.Errorf("begin the replay: %w", err)
	}
	return nil
}

// note notes what was copied.
func (r *replaying) note(ctx context.Context, events int, last eventstore.Position) error {
	next := replayMark{last, r.mark.events + int64(events)}
	done, err := r.to.Pool.Exec(ctx, updateMark, next.position, next.events, r.mark.position, r.mark.events)
	if err != nil {
		return fmt.Errorf("note how far the replay has come: %w", err)
	}
	if done.RowsAffected() == 0 {
		return errors.New("another process replays into this database")
	}
	r.mark = next
	return nil
}

// finish lets the second kindred serve.
func (r *replaying) finish(ctx context.Context) error {
	end, err := r.to.Log.Store.Head(ctx)
	if err != nil {
		return err
	}
	if _, err := r.to.Pool.Exec(ctx, finishMark, end); err != nil {
		return fmt.Errorf("finish the replay: %w", err)
	}
	_, err = fmt.Fprintln(r.out, "equal")
	return err
}

const selectExpected = `SELECT coalesce(max(events), 0) FROM checkpoints`

// expectedEvents is how many events a kindred has followed.
func expectedEvents(ctx context.Context, pool *pgxpool.Pool) (n int64, err error) {
	err = pool.QueryRow(ctx, selectExpected).Scan(&n)
	return n, err
}
