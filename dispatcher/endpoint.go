package dispatcher

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// endpoint is the dispatcher's copy of a subscription.
type endpoint struct {
	Webhook          id.Webhook
	Client           id.Client
	Address          address
	EventTypes       []string
	State            string
	Secrets          []secret // the newest first
	Headers          *sealed  // its own headers; nil: none
	Controls         event.EndpointControls
	CancelledThrough eventstore.Position
	DroppedTypes     map[string]eventstore.Position // the same for one type, while it was not wanted
	Skipped          int64                          // what this batch adds
	Filtered         int64                          // the same

	changedAt time.Time // zero where this batch did not change it
}

const (
	active  = "active"
	paused  = "paused"
	removed = "removed"
)

// sealed is a sealed field of a subscription, and where it was sealed.
type sealed struct {
	Stream string     `json:"stream"`
	Event  id.Event   `json:"event"`
	Box    *event.Box `json:"box"`
}

// secret is a signing secret, or a key pair, and until when it signs.
type secret struct {
	sealed
	Key   *publicKey `json:"key,omitempty"`   // of a key pair
	Until *time.Time `json:"until,omitempty"` // nil: it is the newest
}

// publicKey is what everybody may know of a key pair.
type publicKey struct {
	ID     id.WebhookKey     `json:"id"`
	Public ed25519.PublicKey `json:"public"`
	Made   time.Time         `json:"made"`
}

// signs says whether a secret or key signs at a time. One that was replaced by a clock
// that was ahead does not sign until that time has come.
func (s secret) signs(at time.Time) bool {
	return s.Until == nil || at.Before(*s.Until) && !event.Ahead(s.Until.Add(-rotation), at)
}

// rotated puts a new secret before those that still sign beside it.
func rotated(old []secret, newest secret, at time.Time) []secret {
	until := at.Add(rotation)
	kept := []secret{newest}
	for _, s := range old {
		if s.Until == nil {
			s.Until = &until
		}
		if s.Until.After(at) && len(kept) < maxSecrets {
			kept = append(kept, s)
		}
	}
	return kept
}

// address is where deliveries go: sealed, or in the clear as old events have it.
type address struct {
	Sealed *sealed
	Clear  string
}

func addressOf(rec eventstore.Recorded, a event.WebhookAddress) address {
	if a.URL == nil {
		return address{Clear: a.ClearURL}
	}
	return address{Sealed: &sealed{Stream: string(rec.Stream), Event: rec.ID, Box: a.URL.Box}}
}

const (
	// limit: kept | the old secret of a webhook, the old Ed25519 key of a client | {rotation} after a rotation
	rotation = 24 * time.Hour // how long a rotated secret signs beside the new one
	// limit: webhooks | secrets of a webhook, or Ed25519 keys of a client, that sign at a time | {maxSecrets}
	maxSecrets = 4 // that sign at a time
)

// rotate makes the secret of an event the newest at a time; nil ends signing.
func (e *endpoint) rotate(rec eventstore.Recorded, p *event.Personal, at time.Time) {
	if p == nil {
		e.Secrets = nil
		return
	}
	e.Secrets = rotated(e.Secrets, secret{sealed: sealed{Stream: string(rec.Stream), Event: rec.ID, Box: p.Box}}, at)
}

// stop pauses or removes: nothing that follows is queued, and what waits is cancelled.
func (e *endpoint) stop(rec eventstore.Recorded, state string) {
	e.State = state
	e.CancelledThrough = rec.Position
}

// choose changes the types. What waits of one that is no longer wanted is cancelled, even if
// the type comes back. It says whether there is such a type.
func (e *endpoint) choose(rec eventstore.Recorded, types []string) (dropped bool) {
	for _, t := range e.EventTypes {
		if !slices.Contains(types, t) {
			e.DroppedTypes[t] = rec.Position
			dropped = true
		}
	}
	e.EventTypes = types
	return dropped
}

func (e *endpoint) wants(eventType string) bool { return slices.Contains(e.EventTypes, eventType) }

const selectEndpoints = `
SELECT webhook, client, sealed_url, url, event_types, state, secrets, headers, respect_retry_after, disable_after_seconds,
	max_per_second, ordered, ed25519, filter, cancelled_through, dropped_types
FROM dispatch_endpoints
WHERE client = ANY($1) AND state <> 'removed'
ORDER BY client, webhook`

func scanEndpoint(row pgx.CollectableRow) (*endpoint, error) {
	e := new(endpoint)
	err := row.Scan(&e.Webhook, &e.Client, &e.Address.Sealed, &e.Address.Clear, &e.EventTypes, &e.State, &e.Secrets, &e.Headers,
		&e.Controls.RespectRetryAfter, &e.Controls.DisableAfter, &e.Controls.MaxPerSecond, &e.Controls.Ordered, &e.Controls.Ed25519, &e.Controls.Filter, &e.CancelledThrough, &e.DroppedTypes)
	return e, err
}

const upsertEndpoint = `
INSERT INTO dispatch_endpoints (webhook, client, url, event_types, state, secrets, cancelled_through, sweeping, skipped, changed_at, sealed_url,
	headers, respect_retry_after, disable_after_seconds, max_per_second, ordered, ed25519, filter, filtered, dropped_types)
VALUES ($1, $2, $3, $4, $5, $6, $7, $5 <> 'active', $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (client, webhook) DO UPDATE SET
	url = excluded.url, sealed_url = excluded.sealed_url, event_types = excluded.event_types, state = excluded.state, secrets = excluded.secrets,
	headers = excluded.headers, respect_retry_after = excluded.respect_retry_after, disable_after_seconds = excluded.disable_after_seconds,
	max_per_second = excluded.max_per_second, ordered = excluded.ordered, ed25519 = excluded.ed25519, filter = excluded.filter, held_until = NULL,
	sweeping = dispatch_endpoints.sweeping OR excluded.cancelled_through <> dispatch_endpoints.cancelled_through
		OR excluded.dropped_types <> dispatch_endpoints.dropped_types,
	cancelled_through = excluded.cancelled_through, dropped_types = excluded.dropped_types,
	skipped = dispatch_endpoints.skipped + excluded.skipped, filtered = dispatch_endpoints.filtered + excluded.filtered, changed_at = excluded.changed_at`

const addSkipped = `
UPDATE dispatch_endpoints e SET skipped = e.skipped + s.skipped, filtered = e.filtered + s.filtered
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS s (client, webhook, skipped, filtered)
WHERE e.client = s.client AND e.webhook = s.webhook`

// lockEndpoints locks rows in the order in which those lock them who claim and note, so
// that no two wait for each other.
const lockEndpoints = `
SELECT FROM dispatch_endpoints e JOIN unnest($1::text[], $2::text[]) AS t (client, webhook) ON e.client = t.client AND e.webhook = t.webhook
ORDER BY e.client, e.webhook FOR NO KEY UPDATE OF e`

// storeEndpoints writes what a batch changed. A removed one keeps neither its
// address nor its secrets or headers. A change ends what its receiver asked to wait.
func storeEndpoints(ctx context.Context, tx pgx.Tx, endpoints []*endpoint) error {
	var (
		batch             pgx.Batch
		clients           []id.Client
		idle              []id.Webhook
		skipped, filtered []int64
		owners, touched   []string
	)
	for _, e := range endpoints {
		if !e.changedAt.IsZero() || e.Skipped+e.Filtered > 0 {
			owners, touched = append(owners, string(e.Client)), append(touched, string(e.Webhook))
		}
	}
	if len(touched) == 0 {
		return nil
	}
	batch.Queue(lockEndpoints, owners, touched)
	for _, e := range endpoints {
		if e.changedAt.IsZero() {
			if e.Skipped+e.Filtered > 0 {
				clients, idle = append(clients, e.Client), append(idle, e.Webhook)
				skipped, filtered = append(skipped, e.Skipped), append(filtered, e.Filtered)
			}
			continue
		}
		if e.State == removed {
			e.Address, e.Secrets, e.Headers = address{}, nil, nil
		}
		if e.Secrets == nil {
			e.Secrets = []secret{}
		}
		secrets, err := json.Marshal(e.Secrets)
		if err != nil {
			return fmt.Errorf("write endpoint %s: %w", e.Webhook, err)
		}
		batch.Queue(upsertEndpoint, e.Webhook, e.Client, e.Address.Clear, e.EventTypes, e.State, secrets,
			e.CancelledThrough, e.Skipped, e.changedAt, e.Address.Sealed,
			e.Headers, e.Controls.RespectRetryAfter, e.Controls.DisableAfter, e.Controls.MaxPerSecond, e.Controls.Ordered, e.Controls.Ed25519, e.Controls.Filter, e.Filtered, e.DroppedTypes)
	}
	if len(idle) > 0 {
		batch.Queue(addSkipped, clients, idle, skipped, filtered)
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("write endpoints: %w", err)
	}
	return nil
}
