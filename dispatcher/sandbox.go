package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/eventstore"
)

// really is when an event was recorded by the machine's clock, which secrets and keys
// go by.
func (b *enqueuing) really(rec eventstore.Recorded) time.Time {
	return rec.RecordedAt.Add(-b.naming.ahead[rec.Client])
}

// What has failed is due by its client's clock, and an endpoint is held by that: a move of the
// clock makes them due, and writes none of them. A lease is none of it. Both are of the
// client of a row e.
const (
	aheadOf = `coalesce((SELECT c.ahead_us * interval '1 microsecond' FROM dispatch_clients c WHERE c.client = e.client), '0')`
	clockOf = `(now() + ` + aheadOf + `)`
)

const deleteClients = `DELETE FROM dispatch_clients WHERE client = ANY($1)`

// dropDeleted drops what is known of clients as a whole that were deleted.
func (b *enqueuing) dropDeleted(ctx context.Context, tx pgx.Tx) error {
	if len(b.deleted) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, deleteClients, b.deleted); err != nil {
		return fmt.Errorf("drop deleted clients: %w", err)
	}
	return nil
}

// delete removes the subscriptions of a client that was deleted.
func (b *enqueuing) delete(rec eventstore.Recorded) {
	b.deleted = append(b.deleted, rec.Client)
	for _, e := range b.byClient[rec.Client] {
		if e.State != removed {
			e.changedAt = b.really(rec)
			e.stop(rec, removed)
		}
	}
	b.stopped = true
}

// isOfSandbox says whether an event is about a sandbox as a whole.
func isOfSandbox(e event.Event) bool {
	switch e.(type) {
	case event.ClockMoved, event.ClientDeleted:
		return true
	}
	return false
}
