package commands

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// WebhookKey is a key pair that signs a client's deliveries, without what is secret.
type WebhookKey struct {
	ID        id.WebhookKey
	PublicKey ed25519.PublicKey
	CreatedAt time.Time
	Outcome   Outcome
}

// RotateWebhookKeys makes a key pair that signs from now on. The ones before sign beside
// it for as long as a rotated secret does.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) RotateWebhookKeys(ctx context.Context, call Call) (WebhookKey, error) {
	outcome, err := c.makeWebhookKey(ctx, call, func(int) bool { return true })
	if err != nil {
		return WebhookKey{}, err
	}
	made := outcome.Recorded[0].Event.(event.WebhookKeyMade)
	return WebhookKey{made.Key, made.PublicKey, outcome.Recorded[0].RecordedAt, outcome}, nil
}

// firstWebhookKey makes a client's first key pair, before a subscription is recorded that
// wants one: who follows the log meets the key first. What is refused makes none.
func (c *Commands) firstWebhookKey(ctx context.Context, call Call, wanted *bool) error {
	if wanted == nil || !*wanted {
		return nil
	}
	_, err := c.makeWebhookKey(ctx, call.unconditional(), func(there int) bool { return there == 0 })
	return err
}

func (c *Commands) makeWebhookKey(ctx context.Context, call Call, needed func(there int) bool) (Outcome, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(c.Entropy, seed); err != nil {
		return Outcome{}, fmt.Errorf("make a webhook key: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	made := event.WebhookKeyMade{
		Key: id.Next[id.WebhookKey](c.ids(call, "webhook key")), PublicKey: private[ed25519.SeedSize:], PrivateKey: event.Private(private),
	}
	return execute[nothing](ctx, c, call, eventstore.WebhookKeysStream(call.Client), false, c.last(call),
		func(_ *nothing, history []eventstore.Recorded) ([]event.Event, error) {
			if !needed(len(history)) {
				return nil, nil
			}
			return []event.Event{made}, nil
		})
}
