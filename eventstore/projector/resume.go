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
	err := r.alone(ctx, projectionID+"_"+string(client), fmt.Errorf("somebody else does so already: %w", ErrLed), func(ctx context.Context, lead lease) error {
		return r.resume(ctx, p, projectionID, client, lead)
	})
	if err != nil {
		return fmt.Errorf("resume %q in %s: %w", client, projectionID, err)
	}
	return nil
}

// resumption applies what a client (only) has stopped at, and what was left out of it. Its lease is that of Resume.
type resumption struct{ applier }

func (r *Runner) resume(ctx context.Context, p Projection, projectionID string, client id.Client, lead lease) error {
	epoch, err := r.Log.Store.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("read the log's epoch: %w", err)
	}
	s := &resumption{newApplier(r, p, projectionID, lead)}
	s.only, s.at.epoch = client, epoch
	var paused bool
	err = r.Pool.QueryRow(ctx, selectStop, projectionID, client).Scan(&s.at.position, &s.at.event, nil, &paused)
	found := !errors.Is(err, pgx.ErrNoRows)
	if err != nil && found {
		return err
	}
	left, err := leftOutOf(ctx, r.Pool, projectionID, client)
	if err == nil && (!found && len(left) == 0 || client == "") {
		err = errors.New("it is not quarantined, and nothing was left out of it")
	}
	if err != nil {
		return err
	}
	if !found {
		if err := s.pauseLive(ctx); err != nil {
			return fmt.Errorf("pause it: %w", err)
		}
	}
	for _, out := range left {
		if err := s.retry(ctx, out); err != nil {
			return err
		}
	}
	if found && !paused {
		if err := s.applyStop(ctx); err != nil {
			return err
		}
	}
	if !s.skip[client] {
		if err := s.resumePart(ctx, s.at); err != nil {
			return err
		}
	}
	return r.complete(ctx, projectionID, client)
}

// pauseLive pauses the client where the projection is.
func (s *resumption) pauseLive(ctx context.Context) error {
	return s.inPlaceOf(ctx, s.projectionID, s.at.epoch, func(ctx context.Context, lead lease, live checkpoint) error {
		s.at = live
		return s.asLeader(ctx, lead, live, func(tx pgx.Tx) error {
			// One that is slow stays where it is, behind the projection.
			return tx.QueryRow(ctx, pauseClient+` RETURNING position`, s.projectionID, s.only, live.position).Scan(&s.at.position)
		})
	})
}

// selectStop is where a client stands: before the event at the position where it is
// quarantined, behind it where it is paused.
const selectStop = `SELECT position, event_id, reason, paused FROM quarantine WHERE projection = $1 AND client = $2 AND NOT slow`

const pauseStopped = `
UPDATE quarantine SET paused = true, event_id = '', reason = 'it is being resumed'
WHERE projection = $1 AND client = $2 AND position = $3 AND NOT paused AND ` + onServer + ` $4`

// applyStop applies the event that a client has stopped at, or leaves it out, and
// holds the client there; where too many were left out, it stays stopped.
func (s *resumption) applyStop(ctx context.Context) error {
	if err := verify(ctx, s.Log.Store, s.at, s.at.epoch); err != nil {
		return err
	}
	record, err := s.Log.Store.At(ctx, s.at.position)
	if err != nil {
		return fmt.Errorf("read the event that it stopped at: %w", err)
	}
	items, unknown := s.decode([]eventstore.Record{record})
	if unknown != nil {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, maxTimeouts*batchTimeout)
	defer cancel()
	var all []refused
	err = pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{BeginQuery: startTransaction}, func(tx pgx.Tx) (err error) {
		if err = exactlyOne(ctx, tx, pauseStopped, s.projectionID, s.only, s.at.position, s.lease.server); err == nil {
			all, err = s.singly(ctx, tx, items)
		}
		return err
	})
	s.skip[s.only] = len(all) == 1 && all[0].stops
	return err
}
