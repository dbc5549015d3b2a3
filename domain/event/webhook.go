package event

import (
	"encoding/json"
	"time"

	"kindred/domain/id"
)

// WebhookAddress is where deliveries go. It is sealed, for a URL often has a secret
// in it.
type WebhookAddress struct {
	URL *Personal `json:"url,omitempty"`
	// ClearURL is that of an event of version 1, which was not sealed.
	ClearURL string `json:"clear_url,omitempty"`
}

// At makes the address of a URL.
func At(url string) WebhookAddress { return WebhookAddress{URL: Private([]byte(url))} }

// Address is that of an event that carries one.
func (a WebhookAddress) Address() WebhookAddress { return a }

// Plain is the URL as far as it is known: empty where it was sealed, and is not
// opened yet.
func (a WebhookAddress) Plain() string {
	if a.URL == nil {
		return a.ClearURL
	}
	return string(a.URL.Plain)
}

// EndpointControls is what an owner chose about deliveries to an endpoint. Zero is
// the contract's behaviour.
type EndpointControls struct {
	RespectRetryAfter bool `json:"respect_retry_after,omitempty"`
	DisableAfter      int  `json:"disable_after_seconds,omitempty"` // of failing; 0: never
	MaxPerSecond      int  `json:"max_per_second,omitempty"`        // attempts; 0: no bound
	Ordered           bool `json:"ordered,omitempty"`               // nothing is attempted before its predecessor has ended
	Ed25519           bool `json:"ed25519,omitempty"`               // the client's key pair signs, too
	// Filter is a rule of which events are delivered; "": all. It reads what deliveries
	// carry, which names nobody, so it is no more personal than that.
	Filter string `json:"filter,omitempty"`
}

type (
	// WebhookSubscribed: the client wants these events at this address.
	WebhookSubscribed struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
		WebhookAddress
		EventTypes []string  `json:"event_types"`
		Secret     *Personal `json:"secret,omitempty"` // nil: deliveries are not signed
	}
	// WebhookChanged carries the address and the types as they are from now on.
	WebhookChanged struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
		WebhookAddress
		EventTypes []string `json:"event_types"`
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
	// WebhookHeadersSet carries the headers that deliveries have from now on, beside
	// those that every delivery has.
	WebhookHeadersSet struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
		Names   []string   `json:"names"`             // sorted
		Headers *Personal  `json:"headers,omitempty"` // a JSON object of names and values; nil: none
	}
	// WebhookControlsSet carries the controls as they are from now on.
	WebhookControlsSet struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
		EndpointControls
	}
	// WebhookKeyMade: a key pair signs deliveries to the client's subscriptions that want
	// Ed25519; the one before signs beside it for a day.
	WebhookKeyMade struct {
		fact
		Key        id.WebhookKey `json:"webhook_key_id"`
		PublicKey  []byte        `json:"public_key"`
		PrivateKey *Personal     `json:"private_key"` // seed and public key, as RFC 8032 and Go have it
	}
	// WebhookDisabled: it has failed for as long as its owner allows, and is paused.
	WebhookDisabled struct {
		fact
		Webhook      id.Webhook `json:"webhook_id"`
		FailingSince time.Time  `json:"failing_since"`
	}
	// WebhookRemoved ends the subscription.
	WebhookRemoved struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
	}
	// WebhookSnapshotTaken says how the subscription stood when it was recorded:
	// a reader that comes backwards can stop here.
	WebhookSnapshotTaken struct {
		fact
		Webhook id.Webhook `json:"webhook_id"`
		WebhookAddress
		EventTypes []string `json:"event_types"`
		Paused     bool     `json:"paused"`
		Signed     bool     `json:"signed"` // a secret was set
		Disabled   bool     `json:"disabled,omitempty"`
		Headers    []string `json:"header_names,omitempty"`
		EndpointControls
	}
)

func (e WebhookSubscribed) Subject() string      { return string(e.Webhook) }
func (e WebhookSubscribed) Personal() []Field    { return []Field{{"url", e.URL}, {"secret", e.Secret}} }
func (e WebhookChanged) Subject() string         { return string(e.Webhook) }
func (e WebhookChanged) Personal() []Field       { return []Field{{"url", e.URL}} }
func (e WebhookSnapshotTaken) Subject() string   { return string(e.Webhook) }
func (e WebhookSnapshotTaken) Personal() []Field { return []Field{{"url", e.URL}} }
func (e WebhookHeadersSet) Subject() string      { return string(e.Webhook) }
func (e WebhookHeadersSet) Personal() []Field    { return []Field{{"headers", e.Headers}} }
func (e WebhookKeyMade) Subject() string         { return string(e.Key) }
func (e WebhookKeyMade) Personal() []Field       { return []Field{{"private_key", e.PrivateKey}} }
func (e WebhookSecretRotated) Subject() string   { return string(e.Webhook) }
func (e WebhookSecretRotated) Personal() []Field { return []Field{{"secret", e.Secret}} }

var webhookEvents = []definition{
	define[WebhookSubscribed]("webhook.subscribed", 2, upcast(1, upcastClearURL)),
	define[WebhookChanged]("webhook.changed", 2, upcast(1, upcastClearURL)),
	define[WebhookPaused]("webhook.paused", 1),
	define[WebhookResumed]("webhook.resumed", 1),
	define[WebhookSecretRotated]("webhook.secret_rotated", 1),
	define[WebhookRemoved]("webhook.removed", 1),
	define[WebhookHeadersSet]("webhook.headers_set", 1),
	define[WebhookControlsSet]("webhook.controls_set", 4),
	define[WebhookDisabled]("webhook.disabled", 1),
	define[WebhookKeyMade]("webhook_key.made", 1),
	define[WebhookSnapshotTaken]("webhook.snapshot_taken", 6, upcast(1, upcastClearURL)),
}

// upcastClearURL: version 1 kept the address in the clear.
func upcastClearURL(data json.RawMessage) (json.RawMessage, error) {
	var old map[string]json.RawMessage
	if err := json.Unmarshal(data, &old); err != nil {
		return nil, err
	}
	old["clear_url"] = old["url"]
	delete(old, "url")
	return json.Marshal(old)
}
