package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Resume lets a client go on in a follower that is no read model: the events
// that were left out come first, then, where it is quarantined, the event that it
// stopped at and in order what was passed over since, while everybody else's goes
// on. Each is applied once. Broken off, it goes on where it was when it is called
// again; until then the client is paused. It fails where there is nothing to apply,
// and with ErrIncomplete where some events are left out again, or the client had
// to stop again, which leaves it quarantined at that event.
func (r *Runner) Resume(ctx context.Context, p Projection, client id.Client) error {
	projectionID := ID(p)
	if _, isModel := p.(ReadModel); isModel {
		return fmt.Errorf("resume %q in %s: it is a read model, which can be rebuilt instead", client, projectionID)
	}
	err := r.alone(ctx, projectionID+"_"+string(client), errors.New("somebody else does so already"), func(ctx context.Context, lead lease) error {
		return r.resume(ctx, p, projectionID, client, lead)
	})
	if err != nil {
		return fmt.Errorf("resume %q in %s: %w", client, projectionID, err)
	}
	return nil
}

func (r *Runner) resume(ctx context.Context, p Projection, projectionID string, client id.Client, lead lease) error {
	epoch, err := r.Log.Store.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("read the log's epoch: %w", err)
	}
	q, found, err := r.stopOf(ctx, projectionID, client)
	if err != nil {
		return err
	}
	left, err := leftOutOf(ctx, r.Pool, projectionID, client)
	if err == nil && (!found && len(left) == 0 || client == "") {
		err = errors.New("it is not quarantined, and nothing was left out of it")
	}
	if err != nil {
		return err
	}
	l := &leader{applier: applier{
		Runner: r, projection: p, projectionID: projectionID, lease: lead, only: client, throttle: newThrottle(r.Pool), skip: map[id.Client]bool{},
		spending: unbounded, forget: forgetAll, at: checkpoint{epoch: epoch, position: q.position, event: q.event},
	}}
	if !found {
		if err := l.pauseLive(ctx); err != nil {
			return fmt.Errorf("pause it: %w", err)
		}
	}
	for _, out := range left {
		if err := l.retry(ctx, out); err != nil {
			return err
		}
	}
	if found && !q.paused {
		if err := l.applyStop(ctx); err != nil {
			return err
		}
	}
	if !l.skip[client] {
		if err := l.resumePart(ctx, l.at); err != nil {
			return err
		}
	}
	return r.complete(ctx, projectionID, client)
}

// pauseLive pauses the client where the projection is.
func (l *leader) pauseLive(ctx context.Context) error {
	return l.inPlaceOf(ctx, l.projectionID, l.at.epoch, func(ctx context.Context, lead lease, live checkpoint) error {
		l.at = live
		return l.asLeader(ctx, l.projectionID, lead, live, func(tx pgx.Tx) error {
			// One that is slow stays where it is, behind the projection.
			return tx.QueryRow(ctx, pauseClient+` RETURNING position`, l.projectionID, l.only, live.position).Scan(&l.at.position)
		})
	})
}

// stop is where a client stands: before the event at the position where it is
// quarantined, behind it where it is paused.
type stop struct {
	position eventstore.Position
	event    id.Event
	reason   string
	paused   bool
}

const selectStop = `SELECT position, event_id, reason, paused FROM quarantine WHERE projection = $1 AND client = $2 AND NOT slow`

func (r *Runner) stopOf(ctx context.Context, projectionID string, client id.Client) (q stop, found bool, err error) {
	err = r.Pool.QueryRow(ctx, selectStop, projectionID, client).Scan(&q.position, &q.event, &q.reason, &q.paused)
	if errors.Is(err, pgx.ErrNoRows) {
		return q, false, nil
	}
	return q, err == nil, err
}

const pauseStopped = `
UPDATE quarantine SET paused = true, event_id = '', reason = 'it is being resumed'
WHERE projection = $1 AND client = $2 AND position = $3 AND NOT paused AND ` + onServer + ` $4`

// applyStop applies the event that a client has stopped at, or leaves it out, and
// holds the client there; where too many were left out, it stays stopped.
func (l *leader) applyStop(ctx context.Context) error {
	if err := verify(ctx, l.Log.Store, l.at, l.at.epoch); err != nil {
		return err
	}
	record, err := l.Log.Store.At(ctx, l.at.position)
	if err != nil {
		return fmt.Errorf("read the event that it stopped at: %w", err)
	}
	items, unknown := l.decode([]eventstore.Record{record})
	if unknown != nil {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, maxTimeouts*batchTimeout)
	defer cancel()
	var all []refused
	err = pgx.BeginTxFunc(ctx, l.Pool, pgx.TxOptions{BeginQuery: startTransaction}, func(tx pgx.Tx) (err error) {
		if err = exactlyOne(ctx, tx, pauseStopped, l.projectionID, l.only, l.at.position, l.lease.server); err == nil {
			all, err = l.singly(ctx, tx, items)
		}
		return err
	})
	for _, r := range all {
		l.skip[l.only] = l.skip[l.only] || r.stops
	}
	return err
}
