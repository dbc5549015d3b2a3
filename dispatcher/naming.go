package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
)

// naming is how clients have their users named, and how far their clocks are ahead of the
// machine's, at a place of the log. A body in the queue holds usr_… ids only; the client's
// own ids are put in when it is sent. An external id never changes, so every attempt sends
// the same bytes. Once a user is erased, the queue tells nothing of the user, and what names
// the user is not sent.
type naming struct {
	external map[id.Client]bool
	ahead    map[id.Client]time.Duration
	changed  map[id.Client]bool
}

const selectNaming = `SELECT client, external_ids, ahead_us FROM dispatch_clients WHERE client = ANY($1)`

func newNaming() naming {
	return naming{map[id.Client]bool{}, map[id.Client]time.Duration{}, map[id.Client]bool{}}
}

func (n naming) read(rows pgx.Rows) error {
	var (
		client   id.Client
		external bool
		ahead    int64
	)
	_, err := pgx.ForEachRow(rows, []any{&client, &external, &ahead}, func() error {
		n.external[client], n.ahead[client] = external, time.Duration(ahead)*time.Microsecond
		return nil
	})
	return err
}

func (n naming) change(e event.ClientSettingsChanged) {
	n.external[e.Client] = e.Settings.WebhookUserIDs == "external_id"
	n.changed[e.Client] = true
}

func (n naming) move(e event.ClockMoved) {
	n.ahead[e.Client] = e.Ahead()
	n.changed[e.Client] = true
}

const upsertNaming = `
INSERT INTO dispatch_clients (client, external_ids, ahead_us) VALUES ($1, $2, $3)
ON CONFLICT (client) DO UPDATE SET external_ids = excluded.external_ids, ahead_us = excluded.ahead_us`

func (n naming) store(ctx context.Context, tx pgx.Tx) error {
	for client := range n.changed {
		if _, err := tx.Exec(ctx, upsertNaming, client, n.external[client], n.ahead[client].Microseconds()); err != nil {
			return fmt.Errorf("write how users are named: %w", err)
		}
	}
	return nil
}

const lookupTimeout = 4 * time.Second // under what a lease leaves beside an attempt

// named is the body with its users named as their client does. erased says that
// one of them is gone; then there is nothing to send.
func (w *worker) named(ctx context.Context, c claim) (body []byte, erased bool, err error) {
	users := event.UsersOf(c.Body)
	if len(users) == 0 {
		return c.Body, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	names, err := w.ExternalIDs(ctx, c.Client, users)
	if err != nil {
		return nil, false, err
	}
	body, whole := event.NameUsers(c.Body, names)
	return body, !whole, nil
}

const (
	// limit: deliveries | time for which a delivery waits for its users' external ids | {unnamedFor}, then it is cancelled
	unnamedFor  = 24 * time.Hour
	unnamedRest = 5 * time.Minute // at most, between two looks for them
)

// unnamed bounds how often a delivery is put back whose users are not known, and how long it
// holds up what follows in order. Some are never known: the read model may have left out that they
// were created. So it looks for them ever less often, and is cancelled at last.
func unnamed(o outcome, err error) outcome {
	if !errors.Is(err, event.ErrUnnamed) {
		return o
	}
	o.retryIn = min(max(o.retryIn, o.claim.Queued/10), unnamedRest)
	if o.claim.Queued >= unnamedFor {
		o.verdict = cancelled
	}
	return o
}
