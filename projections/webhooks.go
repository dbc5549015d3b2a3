package projections

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Webhooks is the read model of webhook subscriptions.
type Webhooks struct{ Reader }

// Webhook is a subscription.
type Webhook struct {
	ID         id.Webhook
	URL        string
	EventTypes []string
	Paused     bool
	Signed     bool // a secret was set
	Revision   eventstore.Revision
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Born       eventstore.Position
}

// Name of the read model.
func (Webhooks) Name() string { return "webhooks" }

// Wants says which events the model is made of.
func (Webhooks) Wants(t string) bool { return strings.HasPrefix(t, "webhook.") }

// Version of the read model's tables.
func (Webhooks) Version() int { return 1 }

// Schema of the read model.
func (Webhooks) Schema() string {
	return `
CREATE TABLE webhooks (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	born        log_position NOT NULL,
	url         text NOT NULL,
	event_types text[] NOT NULL,
	paused      boolean NOT NULL DEFAULT false,
	signed      boolean NOT NULL,
	revision    bigint NOT NULL,
	created_at  timestamptz NOT NULL,
	updated_at  timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX webhooks_listed ON webhooks (client, born);`
}

const (
	insertWebhook = `
INSERT INTO webhooks (client, id, born, url, event_types, signed, revision, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT DO NOTHING`
	changeWebhook = `UPDATE webhooks SET url = $3, event_types = $4 WHERE client = $1 AND id = $2`
	pauseWebhook  = `UPDATE webhooks SET paused = $3 WHERE client = $1 AND id = $2`
	signWebhook   = `UPDATE webhooks SET signed = true WHERE client = $1 AND id = $2`
	reviseWebhook = `UPDATE webhooks SET revision = $3, updated_at = $4 WHERE client = $1 AND id = $2`
	deleteWebhook = `DELETE FROM webhooks WHERE client = $1 AND id = $2`
)

// Apply changes the model by a batch of events.
func (Webhooks) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		applyWebhook(&b, r)
	}
	return send(ctx, tx, "webhooks", &b)
}

func applyWebhook(b *pgx.Batch, r eventstore.Recorded) {
	var webhook id.Webhook
	switch e := r.Event.(type) {
	case event.WebhookSubscribed:
		b.Queue(insertWebhook, string(r.Client), string(e.Webhook), string(r.Position), e.URL, e.EventTypes,
			e.Secret != nil, int64(r.Revision), r.RecordedAt)
		return
	case event.WebhookRemoved:
		b.Queue(deleteWebhook, string(r.Client), string(e.Webhook))
		return
	case event.WebhookChanged:
		webhook = e.Webhook
		b.Queue(changeWebhook, string(r.Client), string(webhook), e.URL, e.EventTypes)
	case event.WebhookPaused:
		webhook = e.Webhook
		b.Queue(pauseWebhook, string(r.Client), string(webhook), true)
	case event.WebhookResumed:
		webhook = e.Webhook
		b.Queue(pauseWebhook, string(r.Client), string(webhook), false)
	case event.WebhookSecretRotated:
		webhook = e.Webhook
		b.Queue(signWebhook, string(r.Client), string(webhook))
	default:
		return
	}
	b.Queue(reviseWebhook, string(r.Client), string(webhook), int64(r.Revision), r.RecordedAt)
}

const webhookColumns = `
SELECT w.id, w.url, w.event_types, w.paused, w.signed, w.revision, w.created_at, w.updated_at, w.born FROM webhooks w `

const (
	listWebhooks = webhookColumns + `
WHERE w.client = $1 AND w.born > $2 AND ($4::boolean IS NULL OR w.paused = $4) ORDER BY w.born LIMIT $3`
	getWebhook = webhookColumns + `WHERE w.client = $1 AND w.id = $2`
)

func scanWebhook(w *Webhook) []any {
	return []any{
		text(&w.ID), text(&w.URL), &w.EventTypes, &w.Paused, &w.Signed, &w.Revision,
		&w.CreatedAt, &w.UpdatedAt, text(&w.Born),
	}
}

// List returns the subscriptions of a client in order of creation; paused
// selects those that are paused or are not, nil both.
func (m Webhooks) List(ctx context.Context, client id.Client, eventual bool, paused *bool, page Page) ([]Webhook, error) {
	return query(ctx, m.Reader, m, client, eventual, listWebhooks, []any{string(page.After), page.Limit, paused}, scanWebhook)
}

// Get returns one subscription, or fails with a fault of kind Missing.
func (m Webhooks) Get(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook) (Webhook, error) {
	found, err := query(ctx, m.Reader, m, client, eventual, getWebhook, []any{string(webhook)}, scanWebhook)
	return only(found, err, fault.New(fault.Missing, "webhook_unknown", "There is no such webhook subscription."))
}

const countWebhooks = `SELECT count(*) AS n FROM webhooks w WHERE w.client = $1`

const countBefore = `
SELECT count(*) AS n FROM webhooks w JOIN webhooks own ON own.client = w.client AND own.id = $2
WHERE w.client = $1 AND w.born < own.born`

// Before counts the subscriptions of a client that were made before one of them.
func (m Webhooks) Before(ctx context.Context, client id.Client, webhook id.Webhook) (int, error) {
	return count(ctx, m.Reader, m, client, false, countBefore, string(webhook))
}

// Count counts the subscriptions of a client, as far as the model has come.
func (m Webhooks) Count(ctx context.Context, client id.Client) (int, error) {
	return count(ctx, m.Reader, m, client, true, countWebhooks)
}
