package commands

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// Subscribe is what is said to be told about events.
type Subscribe struct {
	URL        string
	EventTypes []string
	Secret     *string // nil: deliveries are not signed
	Controls   domain.ControlsChange
}

// ChangeWebhook is a partial update; what is nil stays.
type ChangeWebhook struct {
	URL        *string
	EventTypes *[]string
	Status     *string
	Secret     *string
	Controls   domain.ControlsChange
}

// Webhook is a subscription as it is after a command.
type Webhook struct {
	domain.Webhook
	CreatedAt time.Time
	UpdatedAt time.Time
	Outcome   Outcome
}

// Subscribe opens a webhook subscription.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale,
// too_many_webhooks, webhook_unknown.
func (c *Commands) Subscribe(ctx context.Context, call Call, in Subscribe) (Webhook, error) {
	if err := cmp.Or(c.CheckURL(in.URL), c.checkFilter(ctx, call.Client, in.Controls.Filter)); err != nil {
		return Webhook{}, err
	}
	webhook := id.Next[id.Webhook](c.ids(call, "webhook"))
	outcome, err := execute[domain.Webhook](ctx, c, call, eventstore.WebhookStream(call.Client, webhook), call.Seed == nil, c.webhook(),
		func(w *domain.Webhook, _ []eventstore.Recorded) ([]event.Event, error) {
			there, err := c.CountWebhooks(ctx, call.Client)
			if err != nil && !fault.Of(err, fault.Unavailable) {
				return nil, err
			}
			if err := domain.CheckWebhooks(there); err != nil {
				return nil, err
			}
			events, err := w.Subscribe(event.WebhookSubscribed{
				Webhook: webhook, WebhookAddress: event.At(in.URL), EventTypes: in.EventTypes, Secret: secret(in.Secret),
			}, in.Controls)
			if err != nil {
				return nil, err
			}
			return events, c.firstWebhookKey(ctx, call, in.Controls.Ed25519)
		})
	switch {
	case err != nil:
	case outcome.Repeated:
		err = c.stillSubscribed(ctx, call.Client, webhook)
	default:
		err = c.boundWebhooks(ctx, call, webhook)
	}
	return c.webhookAfter(ctx, outcome, err)
}

// stillSubscribed refuses a subscription that was removed since, or was taken back at once.
func (c *Commands) stillSubscribed(ctx context.Context, client id.Client, webhook id.Webhook) error {
	last, err := latest[domain.Webhook](ctx, c, eventstore.WebhookStream(client, webhook))
	if err == nil && last.Removed {
		err = fault.UnknownWebhook()
	}
	return err
}

// checkFilter refuses a filter that is no rule of events; an empty one is none.
func (c *Commands) checkFilter(ctx context.Context, client id.Client, filter *string) error {
	if filter == nil || *filter == "" {
		return nil
	}
	_, err := c.readRule(ctx, client, "/filter", *filter, rule.Events)
	return err
}

// boundWebhooks takes back a subscription that was made at the same time as
// others, and is beyond the bound: those that were made before it stay.
func (c *Commands) boundWebhooks(ctx context.Context, call Call, webhook id.Webhook) error {
	before, err := c.WebhooksBefore(ctx, call.Client, webhook)
	if fault.Of(err, fault.Unavailable) {
		return nil // it is recorded, and only the bound is not known
	}
	if err == nil {
		err = domain.CheckWebhooks(before)
	}
	if fault.Is(err, "too_many_webhooks") {
		if _, removed := c.RemoveWebhook(ctx, call.unconditional(), webhook); removed != nil {
			return removed
		}
	}
	return err
}

// ChangeWebhook updates a subscription; pausing and resuming are changes of
// its status.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale,
// webhook_unknown.
func (c *Commands) ChangeWebhook(ctx context.Context, call Call, webhook id.Webhook, in ChangeWebhook) (Webhook, error) {
	if in.URL != nil {
		if err := c.CheckURL(*in.URL); err != nil {
			return Webhook{}, err
		}
	}
	if err := c.checkFilter(ctx, call.Client, in.Controls.Filter); err != nil {
		return Webhook{}, err
	}
	outcome, err := execute[domain.Webhook](ctx, c, call, eventstore.WebhookStream(call.Client, webhook), false, c.webhook(),
		func(w *domain.Webhook, history []eventstore.Recorded) ([]event.Event, error) {
			events, err := w.Change(domain.WebhookChange{
				URL: in.URL, EventTypes: in.EventTypes, Status: in.Status, Secret: secret(in.Secret), ControlsChange: in.Controls,
			})
			if err != nil || len(events) == 0 {
				return nil, err
			}
			if call.IfMatch != nil && history[len(history)-1].Revision != *call.IfMatch {
				return nil, errStale()
			}
			return events, c.firstWebhookKey(ctx, call, in.Controls.Ed25519)
		})
	return c.webhookAfter(ctx, outcome, keyLost(err))
}

// keyLost: nothing can be sealed any more for a subscription whose key was lost, with an epoch that was
// given up or because it came here without. It can be removed.
func keyLost(err error) error {
	if errors.Is(err, seal.ErrErased) {
		return fault.UnknownWebhook()
	}
	return err
}

// DisableWebhook pauses a subscription that has failed since a time for as long as its
// owner allows. asOf is its last change that is known where that was found out, by the
// machine's clock: one that was changed later is left alone.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) DisableWebhook(ctx context.Context, client id.Client, webhook id.Webhook, since, asOf time.Time) error {
	ahead, err := c.Log.AheadOf(ctx, client)
	if errors.Is(err, eventstore.ErrDeleted) {
		return nil // so are its subscriptions
	}
	if err != nil {
		return err
	}
	call := Call{Client: client, Actor: "policy:endpoints"}
	_, err = execute[domain.Webhook](ctx, c, call, eventstore.WebhookStream(client, webhook), false, c.webhook(),
		func(w *domain.Webhook, history []eventstore.Recorded) ([]event.Event, error) {
			if n := len(history); n == 0 || history[n-1].RecordedAt.Add(-ahead).After(asOf) {
				return nil, nil
			}
			return w.Disable(since), nil
		})
	return err
}

// RotateSecret makes a secret the one that signs: the chosen one, or a new one.
// A repeated request is told that the new one was shown already.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, secret_already_shown,
// stale, webhook_unknown.
func (c *Commands) RotateSecret(ctx context.Context, call Call, webhook id.Webhook, chosen *string) (Webhook, string, error) {
	made := chosen == nil
	if made {
		raw, err := c.newSecret()
		if err != nil {
			return Webhook{}, "", err
		}
		chosen = &raw
	}
	outcome, err := execute[domain.Webhook](ctx, c, call, eventstore.WebhookStream(call.Client, webhook), false, c.webhook(),
		func(w *domain.Webhook, _ []eventstore.Recorded) ([]event.Event, error) {
			return w.Change(domain.WebhookChange{Secret: secret(chosen)})
		})
	if err != nil {
		return Webhook{}, "", keyLost(err)
	}
	if made && outcome.Repeated {
		return Webhook{}, "", fault.New(fault.Conflict, "secret_already_shown",
			"This request replaced the secret of %s before; the new one was shown then and cannot be shown again. Rotate it anew if it is lost.", webhook)
	}
	// It may be that of another run of the same request, which was first.
	recorded, err := c.open(ctx, outcome.Recorded[0], "secret")
	if err != nil {
		return Webhook{}, "", err
	}
	after, err := c.webhookAfter(ctx, outcome, nil)
	return after, string(recorded), err
}

const secretSize = 32 // bytes of randomness

// newSecret makes a signing secret in the form of Standard Webhooks.
func (c *Commands) newSecret() (string, error) {
	raw := make([]byte, secretSize)
	if _, err := io.ReadFull(c.Entropy, raw); err != nil {
		return "", fmt.Errorf("make a signing secret: %w", err)
	}
	return "whsec_" + base64.StdEncoding.EncodeToString(raw), nil
}

// RemoveWebhook ends a subscription.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale, webhook_unknown.
func (c *Commands) RemoveWebhook(ctx context.Context, call Call, webhook id.Webhook) (Outcome, error) {
	return execute[domain.Webhook](ctx, c, call, eventstore.WebhookStream(call.Client, webhook), false, c.webhook(),
		func(w *domain.Webhook, _ []eventstore.Recorded) ([]event.Event, error) { return w.Remove() })
}

// secret makes a sealed field of a secret; a field that was given stays given,
// also where it is empty.
func secret(s *string) *event.Personal {
	if s == nil {
		return nil
	}
	return &event.Personal{Plain: []byte(*s)}
}

// webhook reads a subscription's stream as far back as needed, and opens its address.
func (c *Commands) webhook() load {
	read := c.backTo(statePage, isSnapshot)
	return func(ctx context.Context, stream eventstore.Stream, upTo eventstore.Revision) (loaded, error) {
		l, err := read(ctx, stream, upTo)
		return l, cmp.Or(err, c.openAddress(ctx, l.history))
	}
}

// openAddress opens the last address that a subscription's events carry. One whose
// key was destroyed stays unknown.
func (c *Commands) openAddress(ctx context.Context, history []eventstore.Recorded) error {
	for _, r := range slices.Backward(history) {
		carries, ok := r.Event.(interface{ Address() event.WebhookAddress })
		if !ok {
			continue
		}
		url := carries.Address().URL
		if url == nil || url.Plain != nil {
			return nil
		}
		plain, err := c.open(ctx, r, "url")
		if errors.Is(err, seal.ErrErased) {
			return nil
		}
		url.Plain = plain
		return err
	}
	return nil
}

func (c *Commands) webhookAfter(ctx context.Context, outcome Outcome, err error) (Webhook, error) {
	if err != nil || len(outcome.History) == 0 {
		return Webhook{Outcome: outcome}, err
	}
	if err := c.openAddress(ctx, outcome.History); err != nil {
		return Webhook{Outcome: outcome}, err
	}
	after := Webhook{Webhook: *fold[domain.Webhook](outcome.History), Outcome: outcome}
	first := outcome.History[0]
	after.UpdatedAt = outcome.History[len(outcome.History)-1].RecordedAt
	if first.Revision > 0 {
		there, err := c.Log.ReadBack(ctx, first.Stream, 0, 1)
		if err != nil {
			return after, err
		}
		first = there[0]
	}
	after.CreatedAt = first.RecordedAt
	return after, nil
}
