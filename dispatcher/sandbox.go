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

// What has failed is due by the client's clock: where that is moved, as much earlier by
// the machine's. A lease is none of it.
const bringForward = `
WITH ended AS (
	UPDATE dispatch_endpoints SET held_until = held_until - $2::interval WHERE client = $1 AND held_until IS NOT NULL
)
UPDATE dispatch_queue SET due_at = due_at - $2::interval WHERE client = $1 AND failed > 0 AND leased_until IS NULL`

// moveClocks brings forward what waits in sandboxes whose clocks were moved. That is in the
// transaction of the checkpoint: each move counts once.
func (b *enqueuing) moveClocks(ctx context.Context, tx pgx.Tx) error {
	if len(b.moved) == 0 {
		return nil
	}
	err := sendAfresh(ctx, tx, func(batch *pgx.Batch) {
		for _, moved := range b.moved {
			batch.Queue(bringForward, moved.Client, moved.Moved())
		}
	})
	if err != nil {
		return fmt.Errorf("bring deliveries forward: %w", err)
	}
	return nil
}

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
