package dispatcher

import (
	"cmp"
	"sync"
	"time"

	"kindred/domain/id"
)

const (
	healthEvery = time.Second
	countEvery  = 15        // healthEvery
	failingLong = time.Hour // until an endpoint that fails is worth a warning
	// limit: deliveries | endpoints that have failed for an hour that the log names at a time, those that failed last | {maxNamed}
	maxNamed = 100
	// limit: deliveries | endpoints whose state waits to be written | {maxHealth}
	maxHealth = 10_000
)

// health collects how receivers answered, until it is written down.
type health struct {
	mu     sync.Mutex
	recent map[endpointKey]*answered
}

// endpointKey names an endpoint: a client's webhook.
type endpointKey struct {
	client  id.Client
	webhook id.Webhook
}

// answered is what one receiver did since the last writing; nil is nothing.
type answered struct{ success, failure, failing *time.Time }

func newHealth() *health { return &health{recent: map[endpointKey]*answered{}} }

func (h *health) observe(by endpointKey, accepted bool, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.recent[by]
	if a == nil {
		if len(h.recent) >= maxHealth {
			return // its next answer tells as much
		}
		a = new(answered)
		h.recent[by] = a
	}
	if accepted {
		a.success, a.failing = &at, nil
		return
	}
	a.failure = &at
	if a.failing == nil {
		a.failing = &at
	}
}

func (h *health) take() map[endpointKey]*answered {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.recent
	h.recent = map[endpointKey]*answered{}
	return taken
}

// giveBack keeps what could not be written down, beside what came since.
func (h *health) giveBack(taken map[endpointKey]*answered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for by, before := range taken {
		since := h.recent[by]
		switch {
		case since != nil:
			if since.success == nil && before.failing != nil {
				since.failing = before.failing
			}
			since.success, since.failure = cmp.Or(since.success, before.success), cmp.Or(since.failure, before.failure)
		case len(h.recent) < maxHealth:
			h.recent[by] = before
		}
	}
}

const (
	// Rows are locked in one order. What is older than what was told or written down before
	// changes nothing of it.
	upsertHealth = `
INSERT INTO dispatch_health AS h (client, webhook, last_success_at, last_failure_at, failing_since)
SELECT client, webhook, success, failure, (
	SELECT min(failed.at) FROM (VALUES (failing), (failure)) AS failed (at) WHERE failed.at > coalesce(success, '-infinity'))
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[]) AS a (client, webhook, success, failure, failing)
ORDER BY client, webhook
ON CONFLICT (client, webhook) DO UPDATE SET
	last_success_at = greatest(h.last_success_at, excluded.last_success_at),
	last_failure_at = greatest(h.last_failure_at, excluded.last_failure_at),
	failing_since = (
		SELECT min(failed.at) FROM (VALUES (h.failing_since), (excluded.failing_since), (greatest(h.last_failure_at, excluded.last_failure_at))) AS failed (at)
		WHERE failed.at > coalesce(greatest(h.last_success_at, excluded.last_success_at), '-infinity'))`

	selectFailingLong = `
SELECT h.client, h.webhook, h.failing_since, count(*) OVER ()
FROM dispatch_health h JOIN dispatch_endpoints e ON e.client = h.client AND e.webhook = h.webhook
WHERE h.failing_since < $1 AND e.state = 'active' ORDER BY h.failing_since DESC LIMIT $2`
)
