package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
)

// ErrNotEmpty: what is to be replayed into is another's, or has been used.
var ErrNotEmpty = errors.New("a replay needs an empty database, and an empty event store: this one holds something already")

const (
	selectForeign = `
SELECT to_regclass('public.replay') IS NULL AND EXISTS (
	SELECT FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND schemaname NOT LIKE 'pg\_%')`
	selectMark = `SELECT source, position, events, finished_at FROM replay`
	selectUsed = `
SELECT EXISTS (SELECT FROM events) OR EXISTS (SELECT FROM client_keys) OR EXISTS (SELECT FROM peppers)
	OR EXISTS (SELECT FROM subject_keys) OR EXISTS (SELECT FROM checkpoints)`
	insertMark       = `INSERT INTO replay (source) VALUES ($1)`
	updateMark       = `UPDATE replay SET position = $1, events = $2 WHERE position = $3 AND events = $4 AND finished_at IS NULL`
	finishMark       = `UPDATE replay SET finished_at = now(), through = $1 WHERE finished_at IS NULL`
	selectUnfinished = `SELECT EXISTS (SELECT FROM replay WHERE finished_at IS NULL)`
	selectThrough    = `SELECT coalesce((SELECT through FROM replay), '')`
)

// RefuseForeign looks, before anything is changed, whether a database is another's. It
// fails with ErrNotEmpty where it is.
func RefuseForeign(ctx context.Context, db *pgx.Conn) error {
	var foreign bool
	if err := db.QueryRow(ctx, selectForeign).Scan(&foreign); err != nil {
		return err
	}
	if foreign {
		return ErrNotEmpty
	}
	return nil
}

// Mark is how far a replay into a database has come. It stands there.
type Mark struct {
	Position eventstore.Position // in the source
	Events   int64
}

// Begin goes on with a replay of a source that was broken off, or begins it in what
// must be empty: else it fails with ErrNotEmpty.
func Begin(ctx context.Context, into *pgxpool.Pool, store eventstore.Store, source string) (Mark, error) {
	var (
		mark     Mark
		begun    string
		finished *time.Time
	)
	err := into.QueryRow(ctx, selectMark).Scan(&begun, &mark.Position, &mark.Events, &finished)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Mark{}, begin(ctx, into, store, source)
	case err != nil:
		return Mark{}, fmt.Errorf("read how far the replay has come: %w", err)
	case finished != nil || begun != source:
		return Mark{}, ErrNotEmpty
	}
	return mark, nil
}

func begin(ctx context.Context, into *pgxpool.Pool, store eventstore.Store, source string) error {
	var used bool
	if err := into.QueryRow(ctx, selectUsed).Scan(&used); err != nil {
		return fmt.Errorf("look into the database: %w", err)
	}
	head, err := store.Head(ctx)
	if err != nil {
		return err
	}
	if used || head != eventstore.Start {
		return ErrNotEmpty
	}
	if _, err := into.Exec(ctx, insertMark, source); err != nil {
		return fmt.Errorf("begin the replay: %w", err)
	}
	return nil
}

// Advance notes what was copied, and returns the mark behind it.
func (m Mark) Advance(ctx context.Context, into *pgxpool.Pool, events int, last eventstore.Position) (Mark, error) {
	next := Mark{last, m.Events + int64(events)}
	done, err := into.Exec(ctx, updateMark, next.Position, next.Events, m.Position, m.Events)
	if err != nil {
		return m, fmt.Errorf("note how far the replay has come: %w", err)
	}
	if done.RowsAffected() == 0 {
		return m, errors.New("another process replays into this database")
	}
	return next, nil
}

// Finish lets the second kindred serve, whose log ends at a position.
func Finish(ctx context.Context, into *pgxpool.Pool, end eventstore.Position) error {
	if _, err := into.Exec(ctx, finishMark, end); err != nil {
		return fmt.Errorf("finish the replay: %w", err)
	}
	return nil
}

// Unfinished says whether a replay into a database has not ended well.
func Unfinished(ctx context.Context, db *pgxpool.Pool) (is bool, err error) {
	if err = db.QueryRow(ctx, selectUnfinished).Scan(&is); err != nil {
		err = fmt.Errorf("look for a replay: %w", err)
	}
	return is, err
}

// Through is where the log ends that was replayed into a database; Start where none
// was.
func Through(ctx context.Context, db *pgxpool.Pool) (end eventstore.Position, err error) {
	if err = db.QueryRow(ctx, selectThrough).Scan(&end); err != nil {
		err = fmt.Errorf("look for a replay: %w", err)
	}
	return end, err
}
