package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/eventstore"
)

// clientDeleted is the type of a client's last event: with it go the client's rows in
// every read model that does not keep them (Options.KeepsDeleted).
const clientDeleted = "client.deleted"

// forgets says whether a client's rows go from a projection with the client.
func forgets(p Projection) bool {
	_, model := p.(ReadModel)
	return model && !OptionsOf(p).KeepsDeleted
}

// over are clients that were deleted. What was on its way then may stand behind their last
// event, and no read model has rows of it. Each has the position of that event; Start where it
// is only known to be passed.
type over map[id.Client]eventstore.Position

// limit: models | clients that were deleted, of which what was recorded later is passed over | {maxOver}, then none
const maxOver = 10_000 // that is behind by moments

func (o over) add(client id.Client, at eventstore.Position) {
	if len(o) >= maxOver {
		clear(o)
	}
	o[client] = at
}

// applyForgetting applies a batch, and deletes the rows of each client at the place at
// which it was deleted, or has it noted that they are to be.
func applyForgetting(ctx context.Context, p Projection, tx pgx.Tx, log *eventstore.Log, batch []eventstore.Recorded, spending func(id.Client) Spend,
	forget func(context.Context, pgx.Tx, id.Client) error, gone over,
) error {
	if !forgets(p) {
		return apply(ctx, p, tx, log, batch, spending)
	}
	for len(batch) > 0 {
		at := slices.IndexFunc(batch, func(r eventstore.Recorded) bool { return r.Type == clientDeleted })
		before := batch
		if at >= 0 {
			before = batch[:at]
		}
		if before = gone.leaveOut(before); len(before) > 0 {
			if err := apply(ctx, p, tx, log, before, spending); err != nil {
				return err
			}
		}
		if at < 0 {
			return nil
		}
		if err := forget(ctx, tx, batch[at].Client); err != nil {
			return fmt.Errorf("delete the rows of %s: %w", batch[at].Client, err)
		}
		gone.add(batch[at].Client, batch[at].Position)
		batch = batch[at+1:]
	}
	return nil
}

// leaveOut returns a batch without what is of clients that were deleted.
func (o over) leaveOut(batch []eventstore.Recorded) []eventstore.Recorded {
	late := func(r eventstore.Recorded) bool { _, is := o[r.Client]; return is }
	if len(o) == 0 || !slices.ContainsFunc(batch, late) {
		return batch
	}
	return slices.DeleteFunc(slices.Clone(batch), late)
}

// A live model has a deleted client's rows deleted beside the others' events: nothing is
// recorded of it any more, and nobody has a token to read it with.

const (
	// limit: models | rows of a deleted client that are deleted in one transaction | {deletedAtOnce}
	deletedAtOnce = 5_000
	deletionRest  = 20 * time.Millisecond // between two of those
	// lastWrites is for how long a client that was deleted may still be written of, in the log
	// or beside it: its tokens end within a second, and what was asked is listed a second later.
	lastWrites = 3 * time.Second

	// The tables come as they were made: a client's own row is in the first, and locked before
	// its others by whoever still writes them, who would wait for this one, and it for them.
	selectOwn = `
SELECT coalesce(current_schema()::text, ''), ARRAY(
	SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'client' AND NOT a.attisdropped
	WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY c.oid)`
	deleteSome     = `DELETE FROM %[1]s WHERE client = $1 AND ctid = ANY (ARRAY(SELECT ctid FROM %[1]s WHERE client = $1 LIMIT $2))`
	noteDeletion   = `INSERT INTO public.deletions (client, projection) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	allDeletions   = `SELECT client FROM public.deletions WHERE projection = $1`
	forgetDeletion = `DELETE FROM public.deletions WHERE client = $1 AND projection = $2`
)

// forgetAll deletes the rows of a client from the tables of the read model whose schema
// comes first.
func forgetAll(ctx context.Context, tx pgx.Tx, client id.Client) error {
	for {
		if n, err := forgetSome(ctx, tx, client); err != nil || n < deletedAtOnce {
			return err
		}
	}
}

// forgetSome deletes some deletedAtOnce rows, those in tables of others at last, and says how
// many there were.
func forgetSome(ctx context.Context, tx pgx.Tx, client id.Client, others ...string) (deleted int64, err error) {
	var schema string
	var tables []string // quoted where that is needed
	if err := tx.QueryRow(ctx, selectOwn).Scan(&schema, &tables); err != nil {
		return 0, err
	}
	if schema == "" || schema == "public" { // the model's was dropped: the log is next in the path
		return 0, Transient(errors.New("the schema of the read model is not there"))
	}
	for _, table := range append(tables, others...) {
		tag, err := tx.Exec(ctx, fmt.Sprintf(deleteSome, table), client, deletedAtOnce-deleted)
		if deleted += tag.RowsAffected(); err != nil || deleted >= deletedAtOnce {
			return deleted, err
		}
	}
	return deleted, err
}

// deletions are what the leader of a live model has to delete.
type deletions struct {
	leader *leader
	more   chan struct{} // of capacity 1
}

// findDeleted finds the clients that were deleted under an earlier leader and whose rows are yet to go: more
// of them may be on its way.
func (l *leader) findDeleted(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, allDeletions, l.projectionID) // what it fails with, its rows end with
	var client id.Client
	_, err := pgx.ForEachRow(rows, []any{&client}, func() error {
		l.over.add(client, eventstore.Start)
		return nil
	})
	return err
}

// noteOver notes the clients whose end is behind where the live model stands, which this one takes the place
// of: there are rows of theirs in tables of others, and more of them may be on its way.
func (s *shadow) noteOver(ctx context.Context, tx pgx.Tx, live eventstore.Position) error {
	for client, at := range s.over {
		if at > live {
			if _, err := tx.Exec(ctx, noteDeletion, client, ID(s.model)); err != nil {
				return err
			}
		}
	}
	return nil
}

// note has the rows of a client deleted later on.
func (d *deletions) note(ctx context.Context, tx pgx.Tx, client id.Client) error {
	_, err := tx.Exec(ctx, noteDeletion, client, d.leader.projectionID)
	return err
}

// applied looks for a client in what was applied that is to be deleted.
func (d *deletions) applied(records []eventstore.Record) {
	if slices.ContainsFunc(records, func(r eventstore.Record) bool { return r.Type == clientDeleted }) {
		signal(d.more)
	}
}

// run deletes what is noted until ctx ends, also what an earlier leader left.
func (d *deletions) run(ctx context.Context) {
	var failed backoff.Backoff
	for ctx.Err() == nil {
		more, err := d.noted(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			d.leader.undeleted.Do(func() {
				d.leader.Logger.WarnContext(ctx, "rows of deleted clients, if there are any, not deleted, trying again",
					"projection", d.leader.projectionID, "error", reason(err))
			})
			_ = failed.Wait(ctx) // the loop looks at ctx
		case more:
			failed.Reset()
		default:
			select {
			case <-ctx.Done():
			case <-d.more:
			}
		}
	}
}

// noted deletes the rows of the clients that are noted by now, once nothing is written of them
// any more; more is false where none is.
func (d *deletions) noted(ctx context.Context) (more bool, err error) {
	l := d.leader
	rows, _ := l.Pool.Query(ctx, allDeletions, l.projectionID) // what it fails with, its rows end with
	clients, err := pgx.CollectRows(rows, pgx.RowTo[id.Client])
	if err != nil || len(clients) == 0 {
		return false, err
	}
	if err := backoff.Sleep(ctx, lastWrites); err != nil {
		return true, err
	}
	if err := d.passed(ctx); err != nil {
		return true, err
	}
	for _, client := range clients {
		for left := true; left; {
			if left, err = d.some(ctx, client); err != nil {
				return true, err
			}
			if err := backoff.Sleep(ctx, deletionRest); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// passed waits until the leader has passed what the log holds by now: one that follows it knows
// who was deleted by what is noted alone.
func (d *deletions) passed(ctx context.Context) error {
	end, err := d.leader.Log.Store.Head(ctx)
	if err != nil {
		return fmt.Errorf("read the head of the log: %w", err)
	}
	for *d.leader.lease.reached.Load() < end {
		if err := backoff.Sleep(ctx, deletionRest); err != nil {
			return err
		}
	}
	return nil
}

// some deletes some rows of a client in a transaction, with the last of them what was noted; left
// says whether there are more.
func (d *deletions) some(ctx context.Context, client id.Client) (left bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	l := d.leader
	err = pgx.BeginFunc(ctx, l.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL search_path TO `+quote(l.projectionID)+`, public`); err != nil {
			return err
		}
		deleted, err := forgetSome(ctx, tx, client, OptionsOf(l.projection).AlsoForgets...)
		if left = deleted == deletedAtOnce; err == nil && !left {
			_, err = tx.Exec(ctx, forgetDeletion, client, l.projectionID)
		}
		return err
	})
	return left, err
}
