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

// ErrShared: a read model has rows that are no client's, so that no client's
// part of it can be told from the rest.
var ErrShared = errors.New("this read model is not divided by client; rebuild the whole")

// limit: models | name of a schema | {maxSchemaName} bytes
const maxSchemaName = 63 // bytes, as Postgres cuts names

// RebuildClient builds one client's part of a read model anew beside the live
// one, and replaces it in one transaction; everybody else's stays as it is, and
// goes on. After a crash it goes on where it was. A quarantine of the client
// is lifted, unless the event that caused it still cannot be applied; then, or
// where events were left out, it fails with ErrIncomplete once the part is in
// place. Where it fails otherwise or is broken off, the part goes on as it was before.
func (r *Runner) RebuildClient(ctx context.Context, m ReadModel, client id.Client, report func(Rebuilding)) error {
	projectionID := ID(m) + "_" + string(client)
	if client == "" || len(projectionID) > maxSchemaName {
		return fmt.Errorf("rebuild %s: %q is no client", m.Name(), client)
	}
	if err := r.divided(ctx, m); err != nil {
		return fmt.Errorf("rebuild %s: %w", m.Name(), err)
	}
	err := r.quiet().buildShadow(ctx, m, projectionID, func(ctx context.Context, whole *shadow) error {
		s := shadowPart{whole}
		s.only = client
		err := s.catchUp(ctx, report)
		if err == nil {
			err = s.replacePart(ctx, report)
		}
		if err != nil && !errors.Is(context.Cause(ctx), ErrLost) { // a leader that lost the lease comes again
			err = errors.Join(err, s.giveUp(ctx))
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.complete(ctx, ID(m), client)
}

// quiet tells nobody how far it is: progress and metrics, which it lacks, are of projections, and name no client.
func (r *Runner) quiet() *Runner {
	return &Runner{
		Pool: r.Pool, Log: r.Log, Name: r.Name, Logger: r.Logger, Now: r.Now, Leases: r.Leases, Renewals: r.Renewals,
		Large: r.Large, Lease: r.Lease, Pause: r.Pause, MaxLeftOut: r.MaxLeftOut, Batch: r.Batch,
	}
}

const selectDivided = `
SELECT bool_and(EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'client' AND NOT a.attisdropped))
FROM pg_class c WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'`

// divided says whether each row of a live model says whose it is.
func (r *Runner) divided(ctx context.Context, m ReadModel) error {
	var divided *bool
	err := r.Pool.QueryRow(ctx, selectDivided, quote(ID(m))).Scan(&divided)
	switch {
	case err != nil:
		return err
	case divided == nil:
		return errors.New("it was never built yet")
	case !*divided:
		return ErrShared
	}
	return nil
}

// shadowPart is a shadow of one client's part (only) of a model (RebuildClient).
type shadowPart struct{ *shadow }

// replacePart puts a client's part in its place. While that takes, the live
// leader passes the client's events over (the client is paused); the part is
// brought to the live place after, and the client resumed. Pauses are in
// the database, so a rebuild that begins again after a crash ends it too.
func (s shadowPart) replacePart(ctx context.Context, report func(Rebuilding)) error {
	projectionID := ID(s.model)
	tell(report, Rebuilding{Phase: Replacing, Events: s.at.events, Expected: s.at.events})
	err := s.inPlaceOf(ctx, projectionID, s.at.epoch, func(ctx context.Context, lead lease, live checkpoint) error {
		if err := verify(ctx, s.Log.Store, live, s.at.epoch); err != nil {
			return s.remedy(ctx, projectionID, s.model, err)
		}
		if live.position < s.at.position { // it was begun anew meanwhile
			return errBehind
		}
		return s.asLeader(ctx, lead, live, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, pauseClient, projectionID, s.only, live.position)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("pause %s: %w", s.only, err)
	}
	// Readers of the live part must not be set back.
	if err := s.catchUp(ctx, nil); err != nil {
		return err
	}
	if err := s.swapPart(ctx); err != nil {
		return fmt.Errorf("put the new rows in place: %w", err)
	}
	if !s.skip[s.only] {
		if err := s.resumePart(ctx, s.at); err != nil {
			return fmt.Errorf("resume %s: %w", s.only, err)
		}
	}
	return s.dropShadow(ctx, s.lease)
}

const (
	pauseClient = `
INSERT INTO quarantine (projection, client, position, event_id, reason, paused) VALUES ($1, $2, $3, '', 'its part is being replaced', true)
ON CONFLICT (projection, client) DO UPDATE SET slow = false, reason = excluded.reason WHERE quarantine.slow`
	keepPaused = `
UPDATE quarantine SET paused = true, slow = false, position = $3, event_id = '', reason = 'its part is being replaced' WHERE projection = $1 AND client = $2`
	movePaused   = `UPDATE quarantine SET position = $4 WHERE projection = $1 AND client = $2 AND paused AND position = $3 AND ` + onServer + ` $5`
	deletePaused = `DELETE FROM quarantine WHERE projection = $1 AND client = $2 AND paused AND position = $3`
	stayStopped  = `
UPDATE quarantine live SET paused = false, position = b.position, event_id = b.event_id, reason = b.reason, at = b.at
FROM quarantine b WHERE live.projection = $1 AND live.client = $2 AND b.projection = $3 AND b.client = $2`
)

// swapPart replaces the rows of the client, which is paused.
func (s shadowPart) swapPart(ctx context.Context) error {
	projectionID := ID(s.model)
	s.lease.reached.Store(nil) // its checkpoint goes
	return pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{BeginQuery: startTransaction}, func(tx pgx.Tx) error {
		if err := exactlyOne(ctx, tx, keepPaused, projectionID, s.only, s.at.position); err != nil {
			return err // the whole model was rebuilt meanwhile
		}
		if err := advance(ctx, tx, s.lease, s.at, s.at); err != nil {
			return err // somebody else rebuilds this part now
		}
		tables, err := tablesOf(ctx, tx, projectionID)
		if err != nil {
			return err
		}
		for _, table := range tables {
			live, shadow := pgx.Identifier{projectionID, table}.Sanitize(), pgx.Identifier{s.projectionID, table}.Sanitize()
			if _, err := tx.Exec(ctx, `DELETE FROM `+live+` WHERE client = $1`, s.only); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `INSERT INTO `+live+` SELECT * FROM `+shadow); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, clearLeftOut, projectionID, s.only); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, copyLeftOut, projectionID, s.only, s.projectionID); err != nil {
			return err
		}
		if s.skip[s.only] {
			if err := exactlyOne(ctx, tx, stayStopped, projectionID, s.only, s.projectionID); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, deleteCheckpoint, s.projectionID)
		return err
	})
}

func exactlyOne(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	done, err := tx.Exec(ctx, sql, args...)
	if err == nil && done.RowsAffected() != 1 {
		err = ErrLost
	}
	return err
}

// resumePart brings the part of a client that is paused from its place to where the
// live model is, by and by, and at last while that stands still.
func (a *applier) resumePart(ctx context.Context, from checkpoint) error {
	part := a.partOf(a.only, from)
	if err := part.catchUp(ctx, nil); err != nil || part.skip[part.only] {
		return err
	}
	return a.inPlaceOf(ctx, part.projectionID, from.epoch, func(ctx context.Context, lead lease, live checkpoint) error {
		// From here on the live leader has passed nothing of the client that is not
		// applied below, and will pass what comes after.
		if err := part.catchUpTo(ctx, live.position, func() {}); err != nil || part.skip[part.only] {
			return err
		}
		return a.asLeader(ctx, lead, live, func(tx pgx.Tx) error {
			if err := exactlyOne(ctx, tx, deletePaused, part.projectionID, part.only, part.at.position); err != nil {
				return err
			}
			return a.fence(ctx, tx, a.lease) // else the pause is that of whoever took it
		})
	})
}

// part applies the events of a client (only) that is paused, and stands at its quarantine row: a slow client, or one
// that RebuildClient or Resume lets go on. It has no lease, but the server of that of whoever has it.
type part struct{ applier }

// partOf is the part of a client in the live projection.
func (a *applier) partOf(client id.Client, from checkpoint) *part {
	p := &part{newApplier(a.quiet(), a.projection, ID(a.projection), lease{server: a.lease.server})}
	p.role, p.only, p.at, p.throttle = p, client, from, a.throttle
	p.Large = nil // slices are one at a time as it is
	return p
}

func (p *part) take(ctx context.Context, items []item) error {
	if p.skip[p.only] {
		return nil // it has stopped, and is paused no more
	}
	return p.transact(ctx, items, p.together)
}

// moveWith moves the row first: it may end as a quarantine.
func (p *part) moveWith(ctx context.Context, tx pgx.Tx, to checkpoint, apply func() error) error {
	if err := exactlyOne(ctx, tx, movePaused, p.projectionID, p.only, p.at.position, to.position, p.lease.server); err != nil {
		return Transient(err)
	}
	return apply()
}

func (p *part) page(ctx context.Context, items []item) error {
	return p.throttle.step(ctx, func() error { return p.applyItems(ctx, items) })
}

const giveUpTime = 5 * time.Second

const (
	selectPaused = `SELECT position FROM quarantine WHERE projection = $1 AND client = $2 AND paused AND NOT slow`
	stopPaused   = `
UPDATE quarantine SET paused = false, reason = 'its part could not be replaced; rebuild it' WHERE projection = $1 AND client = $2 AND paused AND NOT slow`
)

// giveUp resumes a client that was paused for a rebuild that failed: whatever rows
// it has are those of its place. Where even that fails, it is quarantined, for
// everybody to see, instead of paused for ever. It waits a moment for a database
// that is away; when ctx has ended, all takes no longer than that.
func (s shadowPart) giveUp(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), giveUpTime)
		defer cancel()
	}
	moment, done := context.WithTimeout(ctx, giveUpTime)
	defer done()
	var rest backoff.Backoff
	err := s.resumePaused(ctx)
	for isAway(err) && rest.Wait(moment) == nil {
		err = s.resumePaused(ctx)
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	stopErr := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, stopPaused, ID(s.model), s.only); err != nil {
			return err
		}
		return s.fence(ctx, tx, s.lease)
	})
	return fmt.Errorf("resume %s: %w", s.only, errors.Join(err, stopErr))
}

// resumePaused resumes the client, if it is paused, from the position of its part.
func (s shadowPart) resumePaused(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	var at eventstore.Position
	err := s.Pool.QueryRow(asked, selectPaused, ID(s.model), s.only).Scan(&at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return s.resumePart(ctx, checkpoint{epoch: s.at.epoch, position: at})
}

// asLeader changes what is paused, which the next leader of the projection must see.
func (r *Runner) asLeader(ctx context.Context, lead lease, at checkpoint, change func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if err := change(tx); err != nil {
			return err
		}
		return advance(ctx, tx, lead, at, at)
	})
}

const selectReached = `SELECT coalesce((SELECT position FROM checkpoints WHERE name = $1), '')`

// target is how far to catch up: to the end of the log; one client's part to
// where the live model is, which must not pass anything twice.
func (a *applier) target(ctx context.Context) (eventstore.Position, error) {
	if a.only == "" {
		return a.Log.Store.Head(ctx)
	}
	var live eventstore.Position // Start where there is none
	err := a.Pool.QueryRow(ctx, selectReached, ID(a.projection)).Scan(&live)
	return live, err
}

// next reads at most limit events of what is to be applied, up to a position at
// the least; of one client's events alone, up to exactly there.
func (a *applier) next(ctx context.Context, after, upTo eventstore.Position, limit int) ([]eventstore.Record, error) {
	if a.only == "" {
		return a.Log.Store.ReadAll(ctx, after, limit)
	}
	if store, ok := a.Log.Store.(eventstore.ClientReader); ok {
		return store.ReadClient(ctx, a.only, after, upTo, limit)
	}
	page, err := a.Log.Store.ReadAll(ctx, after, limit)
	if beyond := slices.IndexFunc(page, func(r eventstore.Record) bool { return r.Position > upTo }); beyond >= 0 {
		page = page[:beyond]
	}
	return page, err
}
