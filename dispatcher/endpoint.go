package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// endpoint is the dispatcher's copy of a subscription.
type endpoint struct {
	Webhook          id.Webhook
	Client           id.Client
	URL              string
	EventTypes       []string
	State            string
	Secrets          []secret // the newest first
	CancelledThrough eventstore.Position
	Skipped          int64 // what this batch adds

	changedAt time.Time // zero where this batch did not change it
}

const (
	active  = "active"
	paused  = "paused"
	removed = "removed"
)

// secret is a signing secret: where it was sealed, and until when it signs.
type secret struct {
	Stream string     `json:"stream"`
	Event  id.Event   `json:"event"`
	Until  *time.Time `json:"until,omitempty"` // nil: it is the newest
	Box    *event.Box `json:"box"`
}

func (s secret) place(client id.Client) seal.Place {
	return seal.Place{Client: client, Stream: s.Stream, Event: s.Event, Field: "secret"}
}

const (
	rotation   = 24 * time.Hour // how long a rotated secret signs beside the new one
	maxSecrets = 4              // that sign at a time
)

// rotate makes the secret of an event the newest; nil ends signing.
func (e *endpoint) rotate(rec eventstore.Recorded, p *event.Personal) {
	if p == nil {
		e.Secrets = nil
		return
	}
	until := rec.RecordedAt.Add(rotation)
	kept := []secret{{Stream: string(rec.Stream), Event: rec.ID, Box: p.Box}}
	for _, old := range e.Secrets {
		if old.Until == nil {
			old.Until = &until
		}
		if old.Until.After(rec.RecordedAt) && len(kept) < maxSecrets {
			kept = append(kept, old)
		}
	}
	e.Secrets = kept
}

// stop pauses or removes: nothing that follows is queued, and what waits is cancelled.
func (e *endpoint) stop(rec eventstore.Recorded, state string) {
	e.State = state
	e.CancelledThrough = rec.Position
}

func (e *endpoint) wants(eventType string) bool { return slices.Contains(e.EventTypes, eventType) }

const selectEndpoints = `
SELECT webhook, client, url, event_types, state, secrets, cancelled_through, 0::bigint
FROM dispatch_endpoints
WHERE client = ANY($1) AND state <> 'removed'
ORDER BY client, webhook`

func scanEndpoint(row pgx.CollectableRow) (*endpoint, error) {
	e := new(endpoint)
	err := row.Scan(&e.Webhook, &e.Client, &e.URL, &e.EventTypes, &e.State, &e.Secrets, &e.CancelledThrough, &e.Skipped)
	return e, err
}

const upsertEndpoint = `
INSERT INTO dispatch_endpoints (webhook, client, url, event_types, state, secrets, cancelled_through, sweeping, skipped, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $5 <> 'active', $8, $9)
ON CONFLICT (webhook) DO UPDATE SET
	url = excluded.url, event_types = excluded.event_types, state = excluded.state, secrets = excluded.secrets,
	sweeping = dispatch_endpoints.sweeping OR excluded.cancelled_through <> dispatch_endpoints.cancelled_through,
	cancelled_through = excluded.cancelled_through,
	skipped = dispatch_endpoints.skipped + excluded.skipped, changed_at = excluded.changed_at`

const addSkipped = `
UPDATE dispatch_endpoints e SET skipped = e.skipped + s.skipped
FROM unnest($1::text[], $2::bigint[]) AS s (webhook, skipped)
WHERE e.webhook = s.webhook`

// storeEndpoints writes what a batch changed. A removed one keeps neither its
// address nor its secrets.
func storeEndpoints(ctx context.Context, tx pgx.Tx, endpoints []*endpoint) error {
	var (
		batch   pgx.Batch
		idle    []id.Webhook
		skipped []int64
	)
	for _, e := range endpoints {
		if e.changedAt.IsZero() {
			if e.Skipped > 0 {
				idle, skipped = append(idle, e.Webhook), append(skipped, e.Skipped)
			}
			continue
		}
		if e.State == removed {
			e.URL, e.Secrets = "", nil
		}
		if e.Secrets == nil {
			e.Secrets = []secret{}
		}
		secrets, err := json.Marshal(e.Secrets)
		if err != nil {
			return fmt.Errorf("write endpoint %s: %w", e.Webhook, err)
		}
		batch.Queue(upsertEndpoint, e.Webhook, e.Client, e.URL, e.EventTypes, e.State, secrets,
			e.CancelledThrough, e.Skipped, e.changedAt)
	}
	if len(idle) > 0 {
		batch.Queue(addSkipped, idle, skipped)
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return nil
}
