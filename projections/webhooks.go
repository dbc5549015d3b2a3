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
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// Webhooks is the read model of webhook subscriptions.
type Webhooks struct{ readmodel.Reader }

// Webhook is a subscription.
type Webhook struct {
	ID         id.Webhook
	URL        string
	EventTypes []string
	Paused     bool
	Signed     bool // a secret was set
	Disabled   bool // paused because it failed for long
	// HeaderNames are those of its own headers, sorted.
	HeaderNames     []string
	Controls        event.EndpointControls
	Revision        eventstore.Revision
	CreatedAt       time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position
}

// Name of the read model.
func (Webhooks) Name() string { return "webhooks" }

// Wants says which events the model is made of.
func (Webhooks) Wants(t string) bool { return strings.HasPrefix(t, "webhook.") }

// Version of the read model's tables.
func (Webhooks) Version() int { return 7 }

// Schema of the read model.
func (Webhooks) Schema() string {
	return `
CREATE TABLE webhooks (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	url         bytea, -- sealed, by the event that carried it
	url_event   text COLLATE "C" NOT NULL,
	clear_url   text NOT NULL, -- where the log has it in the clear
	event_types text[] NOT NULL,
	paused      boolean NOT NULL DEFAULT false,
	signed      boolean NOT NULL,
	disabled    boolean NOT NULL DEFAULT false, -- paused because it failed for long
	header_names          text[] NOT NULL DEFAULT '{}',
	respect_retry_after   boolean NOT NULL DEFAULT false,
	disable_after_seconds integer NOT NULL DEFAULT 0,
	max_per_second        integer NOT NULL DEFAULT 0,
	ordered               boolean NOT NULL DEFAULT false,
	ed25519               boolean NOT NULL DEFAULT false,
	filter                text NOT NULL DEFAULT '',
	revision    bigint NOT NULL,
	created_at  timestamptz NOT NULL,
	updated_at  timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX webhooks_listed ON webhooks (client, created_position);`
}

const (
	insertWebhook = `
INSERT INTO webhooks (client, id, created_position, url, url_event, clear_url, event_types, signed, revision, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10) ON CONFLICT DO NOTHING`
	changeWebhook = `UPDATE webhooks SET url = $3, url_event = $4, clear_url = $5, event_types = $6 WHERE client = $1 AND id = $2`
	pauseWebhook  = `UPDATE webhooks SET paused = $3, disabled = $4 WHERE client = $1 AND id = $2`
	signWebhook   = `UPDATE webhooks SET signed = true WHERE client = $1 AND id = $2`
	setHeaders    = `UPDATE webhooks SET header_names = coalesce($3::text[], '{}') WHERE client = $1 AND id = $2`
	setControls   = `UPDATE webhooks SET respect_retry_after = $3, disable_after_seconds = $4, max_per_second = $5, ordered = $6, ed25519 = $7, filter = $8 WHERE client = $1 AND id = $2`
	reviseWebhook = `UPDATE webhooks SET revision = $3, updated_at = $4 WHERE client = $1 AND id = $2`
	deleteWebhook = `DELETE FROM webhooks WHERE client = $1 AND id = $2`
)

// Apply changes the model by a batch of events.
func (Webhooks) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		if err := applyWebhook(&b, r); err != nil {
			return err
		}
	}
	return readmodel.Send(ctx, tx, "webhooks", &b)
}

func applyWebhook(b *pgx.Batch, r eventstore.Recorded) error {
	var webhook id.Webhook
	switch e := r.Event.(type) {
	case event.WebhookSubscribed:
		url, err := readmodel.SealedOf(r, e.URL)
		b.Queue(insertWebhook, string(r.Client), string(e.Webhook), string(r.Position), url.Box, string(url.Event), e.ClearURL, e.EventTypes,
			e.Secret != nil, int64(r.Revision), r.RecordedAt)
		return err
	case event.WebhookRemoved:
		b.Queue(deleteWebhook, string(r.Client), string(e.Webhook))
		return nil
	case event.WebhookChanged:
		url, err := readmodel.SealedOf(r, e.URL)
		if err != nil {
			return err
		}
		webhook = e.Webhook
		b.Queue(changeWebhook, string(r.Client), string(webhook), url.Box, string(url.Event), e.ClearURL, e.EventTypes)
	case event.WebhookPaused:
		webhook = e.Webhook
		b.Queue(pauseWebhook, string(r.Client), string(webhook), true, false)
	case event.WebhookDisabled:
		webhook = e.Webhook
		b.Queue(pauseWebhook, string(r.Client), string(webhook), true, true)
	case event.WebhookResumed:
		webhook = e.Webhook
		b.Queue(pauseWebhook, string(r.Client), string(webhook), false, false)
	case event.WebhookHeadersSet:
		webhook = e.Webhook
		b.Queue(setHeaders, string(r.Client), string(webhook), e.Names)
	case event.WebhookControlsSet:
		webhook = e.Webhook
		b.Queue(setControls, string(r.Client), string(webhook), e.RespectRetryAfter, e.DisableAfter, e.MaxPerSecond, e.Ordered, e.Ed25519, e.Filter)
	case event.WebhookSecretRotated:
		webhook = e.Webhook
		b.Queue(signWebhook, string(r.Client), string(webhook))
	default:
		return nil
	}
	b.Queue(reviseWebhook, string(r.Client), string(webhook), int64(r.Revision), r.RecordedAt)
	return nil
}

const webhookColumns = `
SELECT w.id, w.url, w.url_event, w.clear_url, w.event_types, w.paused, w.signed, w.disabled, w.header_names, w.respect_retry_after,
	w.disable_after_seconds, w.max_per_second, w.ordered, w.ed25519, w.filter, w.revision, w.created_at, w.updated_at, w.created_position,
	k.id AS key, k.client_key, k.wrapped
FROM webhooks w LEFT JOIN subject_keys k ON k.client = w.client AND k.subject = w.id `

const (
	listWebhooks = webhookColumns + `
WHERE w.client = $1 AND w.created_position > $2 AND ($4::boolean IS NULL OR w.paused = $4) ORDER BY w.created_position LIMIT $3`
	getWebhook = webhookColumns + `WHERE w.client = $1 AND w.id = $2`
)

// storedWebhook is a subscription as it is read.
type storedWebhook struct {
	Webhook
	url readmodel.Sealed
	key seal.WrappedKey
}

func scanWebhook(w *storedWebhook) []any {
	return []any{
		readmodel.Text(&w.ID), &w.url.Box, readmodel.Text(&w.url.Event), readmodel.Text(&w.URL), &w.EventTypes, &w.Paused, &w.Signed, &w.Disabled, &w.HeaderNames,
		&w.Controls.RespectRetryAfter, &w.Controls.DisableAfter, &w.Controls.MaxPerSecond, &w.Controls.Ordered, &w.Controls.Ed25519, &w.Controls.Filter, &w.Revision,
		&w.CreatedAt, &w.UpdatedAt, readmodel.Text(&w.CreatedPosition), readmodel.Text(&w.key.ID), readmodel.Text(&w.key.Under), &w.key.Wrapped,
	}
}

// read queries subscriptions, and opens their addresses. One whose key was
// destroyed is empty.
func (m Webhooks) read(ctx context.Context, client id.Client, eventual bool, sql string, args ...any) ([]Webhook, error) {
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, sql, args, scanWebhook)
	if err != nil {
		return nil, err
	}
	found := make([]Webhook, len(rows))
	for i, r := range rows {
		if r.url.Box != nil {
			url, err := m.Open(ctx, r.key, string(r.ID), r.url, client, eventstore.WebhookStream(client, r.ID), "url")
			if err != nil {
				return nil, err
			}
			r.URL = string(url)
		}
		found[i] = r.Webhook
	}
	return found, nil
}

// List returns the subscriptions of a client in order of creation; paused
// selects those that are paused or are not, nil both.
// Faults: building, overloaded, quarantined, stale.
func (m Webhooks) List(ctx context.Context, client id.Client, eventual bool, paused *bool, page readmodel.Page) ([]Webhook, error) {
	return m.read(ctx, client, eventual, listWebhooks, string(page.After), page.Limit, paused)
}

// Get returns one subscription, or fails with a fault of kind Missing.
// Faults: building, overloaded, quarantined, stale, webhook_unknown.
func (m Webhooks) Get(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook) (Webhook, error) {
	found, err := m.read(ctx, client, eventual, getWebhook, string(webhook))
	return readmodel.Only(found, err, fault.UnknownWebhook())
}

const countWebhooks = `SELECT count(*) AS n FROM webhooks w WHERE w.client = $1`

const countBefore = `
SELECT count(*) AS n FROM webhooks w JOIN webhooks own ON own.client = w.client AND own.id = $2
WHERE w.client = $1 AND w.created_position < own.created_position`

// Before counts the subscriptions of a client that were made before one of them.
// Faults: building, overloaded, quarantined, stale.
func (m Webhooks) Before(ctx context.Context, client id.Client, webhook id.Webhook) (int, error) {
	return readmodel.Count(ctx, m.Reader, m, client, false, countBefore, string(webhook))
}

// Count counts the subscriptions of a client, as far as the model has come.
// Faults: building, overloaded, quarantined, stale.
func (m Webhooks) Count(ctx context.Context, client id.Client) (int, error) {
	return readmodel.Count(ctx, m.Reader, m, client, true, countWebhooks)
}
