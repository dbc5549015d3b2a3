package dispatcher

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
func (l Log) Failing(ctx context.Context, client id.Client, limit int) ([]FailingEndpoint, error) {
	rows, err := l.Pool.Query(ctx, selectFailing, client, limit, maxWaiting)
	if err != nil {
		return nil, fmt.Errorf("list failing endpoints: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[FailingEndpoint])
	if err != nil {
		return nil, fmt.Errorf("list failing endpoints: %w", err)
	}
	return found, nil
}
