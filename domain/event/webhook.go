package event

import "kindred/domain/id"

type (
	// WebhookSubscribed: the client wants these events at this address.
	WebhookSubscribed struct {
		fact
		Webhook    id.Webhook `json:"webhook_id"`
		URL        string     `json:"url"`
		EventTypes []string   `json:"event_types"`
		Secret     *Personal  `json:"secret,omitempty"` // nil: deliveries are not signed
	}
	// WebhookChanged carries the address and the types as they are from now on.
	WebhookChanged struct {
		fact
		Webhook    id.Webhook `json:"webhook_id"`
		URL        string     `json:"url"`
		EventTypes []string   `json:"event_types"`
	}
	// WebhookPaused: nothing that follows is delivered or queued.
	WebhookPaused struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
	}
	// WebhookResumed: what follows is delivered again.
	WebhookResumed struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
	}
	// WebhookSecretRotated: a new secret signs; the old one signs beside it
	// for a day.
	WebhookSecretRotated struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
		Secret  *Personal  `json:"secret"`
	}
	// WebhookRemoved ends the subscription.
	WebhookRemoved struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
	}
	// WebhookSnapshotTaken says how the subscription stood when it was recorded:
	// who reads the stream backwards can stop here.
	WebhookSnapshotTaken struct {
		fact
		Webhook    id.Webhook `json:"webhook_id"`
		URL        string     `json:"url"`
		EventTypes []string   `json:"event_types"`
		Paused     bool       `json:"paused"`
		Signed     bool       `json:"signed"` // a secret was set
	}
)

func (e WebhookSubscribed) Subject() string      { return string(e.Webhook) }
func (e WebhookSubscribed) Personal() []Field    { return []Field{{"secret", e.Secret}} }
func (e WebhookSecretRotated) Subject() string   { return string(e.Webhook) }
func (e WebhookSecretRotated) Personal() []Field { return []Field{{"secret", e.Secret}} }

var webhookEvents = []definition{
	define[WebhookSubscribed]("webhook.subscribed", 1),
	define[WebhookChanged]("webhook.changed", 1),
	define[WebhookPaused]("webhook.paused", 1),
	define[WebhookResumed]("webhook.resumed", 1),
	define[WebhookSecretRotated]("webhook.secret_rotated", 1),
	define[WebhookRemoved]("webhook.removed", 1),
	define[WebhookSnapshotTaken]("webhook.snapshot_taken", 1),
}
