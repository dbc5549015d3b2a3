package feed

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Resume lets a quarantined client go on in a follower that is no read model:
// the event that could not be applied comes first, then in order what was passed
// over since, while everybody else's goes on. Each is applied once. Broken off,
// it goes on where it was when it is called again; until then the client is
// held. It fails where the client is not quarantined, and where it had to stop
// again, which leaves it quarantined at that event.
func (r *Runner) Resume(ctx context.Context, p Projection, client id.Client) error {
	slot := Slot(p)
	if _, isModel := p.(ReadModel); isModel {
		return fmt.Errorf("resume %q in %s: it is a read model, which can be rebuilt instead", client, slot)
	}
	err := r.alone(ctx, slot+"_"+string(client), errors.New("somebody else does so already"), func(ctx context.Context, lead lease) error {
		return r.resume(ctx, p, slot, client, lead)
	})
	if err != nil {
		return fmt.Errorf("resume %q in %s: %w", client, slot, err)
	}
	return nil
}

func (r *Runner) resume(ctx context.Context, p Projection, slot string, client id.Client, lead lease) error {
	epoch, err := r.Log.Store.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("read the log's epoch: %w", err)
	}
	q, found, err := r.stopOf(ctx, slot, client)
	if err == nil && (!found || client == "") {
		err = errors.New("it is not quarantined")
	}
	if err != nil {
		return err
	}
	l := &leader{
		Runner: r, projection: p, slot: slot, lease: lead, only: client, polite: newCourtesy(r.Pool),
		at: checkpoint{epoch: epoch, position: q.position, event: q.event},
	}
	if !q.held {
		if err := l.applyStop(ctx); err != nil {
			return err
		}
	}
	if err := l.letGo(ctx, p, slot, l.at); err != nil {
		return err
	}
	q, found, err = r.stopOf(ctx, slot, client)
	if err == nil && found {
		err = fmt.Errorf("it stopped again at event %s, position %s: %s", q.event, q.position, q.reason)
	}
	return err
}

// stop is where a client stands: before the event at the position where it is
// quarantined, behind it where it is held.
type stop struct {
	position eventstore.Position
	event    id.Event
	reason   string
	held     bool
}

const selectStop = `SELECT position, event_id, reason, held FROM quarantine WHERE projection = $1 AND client = $2`

func (r *Runner) stopOf(ctx context.Context, slot string, client id.Client) (q stop, found bool, err error) {
	err = r.Pool.QueryRow(ctx, selectStop, slot, client).Scan(&q.position, &q.event, &q.reason, &q.held)
	if errors.Is(err, pgx.ErrNoRows) {
		return q, false, nil
	}
	return q, err == nil, err
}

const holdStopped = `
UPDATE quarantine SET held = true, event_id = '', reason = 'it is being resumed'
WHERE projection = $1 AND client = $2 AND position = $3 AND NOT held AND ` + onServer + ` $4`

// applyStop applies the event that a client has stopped at, and holds the
// client there.
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
	return pgx.BeginTxFunc(ctx, l.Pool, pgx.TxOptions{BeginQuery: startTransaction}, func(tx pgx.Tx) error {
		if err := exactlyOne(ctx, tx, holdStopped, l.slot, l.only, l.at.position, l.lease.server); err != nil {
			return err
		}
		_, err := l.together(ctx, tx, items)
		if isPoison(err) {
			err = fmt.Errorf("event %s at position %s still cannot be applied: %s", record.ID, record.Position, reason(err))
		}
		return err
	})
}
