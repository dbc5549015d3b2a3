package projector

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres"
)

// ErrRestored: the log is not the one that the checkpoint was made on. The
// error that wraps it says what to do.
var ErrRestored = errors.New("the event log was restored to an earlier state, or is another one")

// checkpoint is how far a follower has come.
type checkpoint struct {
	epoch    string // of the log
	position eventstore.Position
	event    id.Event
	events   int64
}

// A batch of an older leader that is about to commit holds the row, so the
// claim waits for it and sees where it ended; a later one finds its epoch gone.
const claimCheckpoint = `
INSERT INTO checkpoints (name, epoch, position, event_id, events, lease_epoch) SELECT $1, $3, '', '', 0, $2 WHERE ` + onServer + ` $4
ON CONFLICT (name) DO UPDATE SET lease_epoch = excluded.lease_epoch,
	epoch = CASE WHEN checkpoints.position = '' THEN excluded.epoch ELSE checkpoints.epoch END
WHERE checkpoints.lease_epoch <= excluded.lease_epoch
RETURNING epoch, position, event_id, events`

// claim reads the checkpoint of the lease's name, and keeps every older leader from writing it.
func claim(ctx context.Context, tx pgx.Tx, l lease, logEpoch string) (checkpoint, error) {
	var c checkpoint
	err := tx.QueryRow(ctx, claimCheckpoint, l.name, l.epoch, logEpoch, l.server).
		Scan(&c.epoch, &c.position, &c.event, &c.events)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, ErrLost
	}
	return c, err
}

// onServer begins the condition that a statement runs on the server of a lease.
// A checkpoint alone does not tell that the events which were read stand in the
// log: where a server lost them, others may stand at their positions.
const onServer = postgres.Run + ` =`

const advanceCheckpoint = `
UPDATE checkpoints SET position = $4, event_id = $5, events = $6, epoch = $7, updated_at = now()
WHERE name = $1 AND lease_epoch = $2 AND position = $3 AND ` + onServer + ` $8`

// inMemory, at the end of a condition, lets a statement that is a transaction of
// its own wait for the disk no more than any other does (see startTransaction).
const inMemory = ` AND set_config('synchronous_commit', 'off', true) = 'off'`

const passCheckpoint = advanceCheckpoint + inMemory

// pass advances a checkpoint on its own, past events that change nothing else.
func pass(ctx context.Context, pool *pgxpool.Pool, l lease, from, to checkpoint) error {
	return move(ctx, pool, passCheckpoint, l, from, to)
}

// advance moves a checkpoint on from where its leader knows it. It fails with
// ErrLost when it is elsewhere, or another's, or on another server.
func advance(ctx context.Context, tx pgx.Tx, l lease, from, to checkpoint) error {
	return move(ctx, tx, advanceCheckpoint, l, from, to)
}

func move(ctx context.Context, db interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, l lease, from, to checkpoint,
) error {
	tag, err := db.Exec(ctx, sql, l.name, l.epoch,
		from.position, to.position, to.event, to.events, to.epoch, l.server)
	if err != nil {
		return fmt.Errorf("advance the checkpoint: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return ErrLost
	}
	return nil
}

// after is the checkpoint once records have been passed.
func (c checkpoint) after(n int, last eventstore.Record) checkpoint {
	c.position, c.event, c.events = last.Position, last.ID, c.events+int64(n)
	return c
}

// verify makes sure that the log still holds the event at the checkpoint.
func verify(ctx context.Context, store eventstore.Store, c checkpoint, epoch string) error {
	if c.position == eventstore.Start {
		return nil
	}
	if c.epoch != epoch {
		return fmt.Errorf("%w: the checkpoint was made on the log %s, and this is %s", ErrRestored, c.epoch, epoch)
	}
	at, err := store.At(ctx, c.position)
	switch {
	case errors.Is(err, eventstore.ErrNotFound):
		return fmt.Errorf("%w: it does not hold event %s at position %s", ErrRestored, c.event, c.position)
	case err != nil:
		return fmt.Errorf("read the event at the checkpoint: %w", err)
	case at.ID != c.event:
		return fmt.Errorf("%w: at position %s stands event %s, not %s", ErrRestored, c.position, at.ID, c.event)
	}
	return nil
}

const (
	headsBeyond = `SELECT client, position FROM heads WHERE position > $1`
	lowerHeads  = `
UPDATE heads SET position = $1 FROM unnest($2::text[], $3::text[]) AS beyond (client, position)
WHERE heads.client = beyond.client AND heads.position = beyond.position AND heads.position > $1`
)

// lowerHeads brings heads of clients that stand beyond the end of the log back
// to it: where the log alone was restored, readers would wait for what is gone.
// A head is noted once its event is in the log, so one that was read before the
// end is not beyond that by right.
func (r *Runner) lowerHeads(ctx context.Context) error {
	end, err := r.Log.Store.Head(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	var (
		clients, heads []string
		client, head   string
	)
	rows, _ := r.Pool.Query(ctx, headsBeyond, end) // what it fails with, its rows end with
	_, err = pgx.ForEachRow(rows, []any{&client, &head}, func() error {
		clients, heads = append(clients, client), append(heads, head)
		return nil
	})
	if err == nil && len(clients) > 0 {
		if end, err = r.Log.Store.Head(ctx); err == nil {
			_, err = r.Pool.Exec(ctx, lowerHeads, end, clients, heads)
		}
	}
	if err != nil {
		return fmt.Errorf("bring heads beyond the log back to its end: %w", err)
	}
	return nil
}

const restoredToo = `SELECT name FROM checkpoints WHERE name <> $1 AND (position > $2 OR epoch <> $3) ORDER BY name`

var versionOfModel = regexp.MustCompile(`_[0-9]+$`)

// remedy adds to ErrRestored what to do about it, for all projections that stand beyond the end
// of the log: each refuses to run in turn. The model is nil for what is none.
func (r *Runner) remedy(ctx context.Context, projectionID string, model ReadModel, err error) error {
	if !errors.Is(err, ErrRestored) {
		return err
	}
	way := "let it go on from the end of the log, without what it has not seen: kindred projections skip " + projectionID
	if model != nil {
		way = "build it anew: kindred projections rebuild " + model.Name()
	}
	return fmt.Errorf("%s refuses to run: %w; restore the rest of the database to the same moment, or %s%s", projectionID, err, way, r.others(ctx, projectionID))
}

// others says what to do about the other projections; nothing where they cannot be found.
func (r *Runner) others(ctx context.Context, than string) string {
	end, err := r.Log.Store.Head(ctx)
	if err != nil {
		return ""
	}
	epoch, err := r.Log.Store.Epoch(ctx)
	if err != nil {
		return ""
	}
	rows, _ := r.Pool.Query(ctx, restoredToo, than, end, epoch) // what it fails with, its rows end with
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		return ""
	}
	var models, commands []string
	for _, name := range found {
		if model := versionOfModel.ReplaceAllString(name, ""); model != name {
			models = append(models, model)
		} else {
			commands = append(commands, "kindred projections skip "+name)
		}
	}
	if len(models) > 0 {
		commands = slices.Insert(commands, 0, "kindred projections rebuild "+strings.Join(slices.Compact(models), " "))
	}
	return ". So do others: " + strings.Join(commands, "; ")
}
