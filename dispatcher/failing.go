package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
)

// FailingEndpoint is a webhook whose receiver did not accept the last attempt.
type FailingEndpoint struct {
	Webhook id.Webhook
	Since   time.Time
	Waiting int // deliveries, counted up to maxWaiting
}

// maxWaiting bounds what is counted for each of many endpoints.
// limit: client | deliveries that wait for a failing endpoint, as `attention` counts them | {maxWaiting} | the rest is not counted
const maxWaiting = 1_000

const selectFailing = `
SELECT h.webhook, h.failing_since, least($3,
	(SELECT count(*) FROM (SELECT FROM dispatch_queue WHERE client = $1 AND webhook = h.webhook AND failed = 0 LIMIT $3) q) +
	(SELECT count(*) FROM (SELECT FROM dispatch_queue WHERE client = $1 AND webhook = h.webhook AND failed > 0 LIMIT $3) q))
FROM dispatch_health h JOIN dispatch_endpoints e ON e.client = h.client AND e.webhook = h.webhook
WHERE h.client = $1 AND h.failing_since IS NOT NULL AND e.state = 'active'
ORDER BY h.failing_since, h.webhook LIMIT $2`

// Failing returns the active endpoints of a client that fail, those that have failed
// for longest first, as far as the dispatcher has come.
func (l Log) Failing(ctx context.Context, client id.Client, limit int) (found []FailingEndpoint, err error) {
	err = sendAfresh(ctx, l.Pool, func(b *pgx.Batch) {
		b.Queue(selectFailing, client, limit, maxWaiting).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[FailingEndpoint])
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list failing endpoints: %w", err)
	}
	return found, nil
}

// EndpointsLog records that endpoints were disabled.
type EndpointsLog interface {
	// DisableWebhook pauses a subscription that fails since a time, unless it was changed
	// after asOf.
	DisableWebhook(ctx context.Context, client id.Client, webhook id.Webhook, since, asOf time.Time) error
}

// limit: deliveries | endpoints that one look disables | {maxDisabled}
const maxDisabled = 100

// A failure disables, and not silence: the last one has to lie that long after the
// first. A change of the subscription begins the time anew. Clients take turns, and
// theirs come in no order, so that those which cannot be paused keep back no other.
const selectToDisable = `
SELECT h.client, h.webhook, h.failing_since, e.changed_at
FROM dispatch_health h JOIN dispatch_endpoints e ON e.client = h.client AND e.webhook = h.webhook
WHERE h.failing_since IS NOT NULL AND e.state = 'active' AND e.disable_after_seconds > 0
	AND h.last_failure_at >= greatest(h.failing_since, e.changed_at) + make_interval(secs => e.disable_after_seconds)
ORDER BY row_number() OVER (PARTITION BY left(h.client, $2) ORDER BY random()) LIMIT $1`

// DisableFailing has endpoints paused that have failed for as long as their owners
// allow. What fails for one keeps no other waiting.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func DisableFailing(ctx context.Context, pool *pgxpool.Pool, log EndpointsLog) error {
	rows, _ := pool.Query(ctx, selectToDisable, maxDisabled, id.OwnerSize) // what it fails with, its rows end with
	type failing struct {
		Client      id.Client
		Webhook     id.Webhook
		Since, AsOf time.Time
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[failing])
	if err != nil {
		return fmt.Errorf("list endpoints to disable: %w", err)
	}
	var errs []error
	for _, f := range found {
		errs = append(errs, log.DisableWebhook(ctx, f.Client, f.Webhook, f.Since, f.AsOf))
	}
	return errors.Join(errs...)
}
