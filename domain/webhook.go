package domain

import (
	"fmt"
	"slices"
	"strings"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Status values of a webhook subscription.
const (
	WebhookActive = "active"
	WebhookPaused = "paused"
)

// limit: client | event types that a subscription names | each that there is, once | 422 `invalid`

// maxWebhooks is how many subscriptions a client may have.
// limit: client | webhook subscriptions | {maxWebhooks} | 409 `too_many_webhooks`
const maxWebhooks = 100

// Webhook is the fold of a subscription's stream.
type Webhook struct {
	ID         id.Webhook
	URL        string
	EventTypes []string
	Paused     bool
	Signed     bool // a secret was set
	Removed    bool

	Disabled    bool     // paused because it failed for long
	HeaderNames []string // of its own headers, sorted
	Controls    event.EndpointControls
}

// Apply folds an event.
func (w *Webhook) Apply(e event.Event) {
	switch e := e.(type) {
	case event.WebhookSubscribed:
		*w = Webhook{ID: e.Webhook, URL: e.Plain(), EventTypes: e.EventTypes, Signed: e.Secret != nil}
	case event.WebhookChanged:
		w.URL, w.EventTypes = e.Plain(), e.EventTypes
	case event.WebhookPaused:
		w.Paused = true
	case event.WebhookDisabled:
		w.Paused, w.Disabled = true, true
	case event.WebhookResumed:
		w.Paused, w.Disabled = false, false
	case event.WebhookHeadersSet:
		w.HeaderNames = e.Names
	case event.WebhookControlsSet:
		w.Controls = e.EndpointControls
	case event.WebhookSecretRotated:
		w.Signed = true
	case event.WebhookRemoved:
		w.Removed = true
	case event.WebhookSnapshotTaken:
		*w = Webhook{
			ID: e.Webhook, URL: e.Plain(), EventTypes: e.EventTypes, Paused: e.Paused, Signed: e.Signed,
			Disabled: e.Disabled, HeaderNames: e.Headers, Controls: e.EndpointControls,
		}
	}
}

// Snapshot is how the subscription stands, for the end of its stream.
func (w *Webhook) Snapshot() event.Event {
	return event.WebhookSnapshotTaken{
		Webhook: w.ID, WebhookAddress: event.At(w.URL), EventTypes: w.EventTypes, Paused: w.Paused, Signed: w.Signed,
		Disabled: w.Disabled, Headers: w.HeaderNames, EndpointControls: w.Controls,
	}
}

// Status is "active" or "paused".
func (w *Webhook) Status() string {
	if w.Paused {
		return WebhookPaused
	}
	return WebhookActive
}

// Subscribe opens a subscription.
// Faults: invalid.
func (w *Webhook) Subscribe(e event.WebhookSubscribed, chosen ControlsChange) ([]event.Event, error) {
	if err := checkSubscription(e.EventTypes, e.Secret); err != nil {
		return nil, err
	}
	controls, err := (&Webhook{ID: e.Webhook}).control(chosen)
	if err != nil {
		return nil, err
	}
	return append([]event.Event{e}, controls...), nil
}

// CheckWebhooks refuses one more subscription to a client who has enough.
// Faults: too_many_webhooks.
func CheckWebhooks(there int) error {
	if there >= maxWebhooks {
		return fault.New(fault.Conflict, "too_many_webhooks", "A client has at most %d webhook subscriptions. Remove one first.", maxWebhooks)
	}
	return nil
}

// WebhookChange is a partial update; what is nil stays.
type WebhookChange struct {
	URL        *string
	EventTypes *[]string
	Status     *string
	Secret     *event.Personal
	ControlsChange
}

// Change updates a subscription. What does not change adds nothing.
// Faults: invalid, webhook_unknown.
func (w *Webhook) Change(change WebhookChange) ([]event.Event, error) {
	if err := w.exists(); err != nil {
		return nil, err
	}
	url := w.URL
	if change.URL != nil {
		url = *change.URL
	}
	changed := event.WebhookChanged{Webhook: w.ID, WebhookAddress: event.At(url), EventTypes: w.EventTypes}
	if change.EventTypes != nil {
		changed.EventTypes = *change.EventTypes
	}
	if err := checkSubscription(changed.EventTypes, change.Secret); err != nil {
		return nil, err
	}
	var events []event.Event
	if url != w.URL || !slices.Equal(changed.EventTypes, w.EventTypes) {
		events = append(events, changed)
	}
	if change.Secret != nil {
		events = append(events, event.WebhookSecretRotated{Webhook: w.ID, Secret: change.Secret})
	}
	controls, err := w.control(change.ControlsChange)
	if err != nil {
		return nil, err
	}
	events = append(events, controls...)
	if change.Status == nil || *change.Status == w.Status() {
		return events, nil
	}
	switch *change.Status {
	case WebhookPaused:
		return append(events, event.WebhookPaused{Webhook: w.ID}), nil
	case WebhookActive:
		return append(events, event.WebhookResumed{Webhook: w.ID}), nil
	}
	return nil, fault.NewInvalid(fault.Field{Pointer: "/status", Detail: "must be active or paused"})
}

// Remove ends the subscription.
// Faults: webhook_unknown.
func (w *Webhook) Remove() ([]event.Event, error) {
	if err := w.exists(); err != nil {
		return nil, err
	}
	return []event.Event{event.WebhookRemoved{Webhook: w.ID}}, nil
}

func (w *Webhook) exists() error {
	if w.ID == "" || w.Removed {
		return fault.UnknownWebhook()
	}
	return nil
}

// maxSecret bounds a signing secret, in bytes.
// limit: client | secret of a webhook | 512 characters, {maxSecret} bytes | 422 `invalid`
const maxSecret = 1024

// checkSubscription refuses event types outside the catalog and secrets that
// are none. The address is checked where the network rules are known.
func checkSubscription(types []string, secret *event.Personal) error {
	if len(types) == 0 {
		return fault.NewInvalid(fault.Field{Pointer: "/event_types", Detail: "must name at least one event type"})
	}
	var wrong []fault.Field
	for i, t := range types {
		pointer := fmt.Sprintf("/event_types/%d", i)
		switch {
		case !event.IsPublic(t):
			wrong = append(wrong, fault.Field{Pointer: pointer, Detail: "is not an event type that can be subscribed to"})
		case slices.Contains(types[:i], t):
			wrong = append(wrong, fault.Field{Pointer: pointer, Detail: "is named twice"})
		}
	}
	if secret != nil {
		if detail := wrongSecret(string(secret.Plain)); detail != "" {
			wrong = append(wrong, fault.Field{Pointer: "/secret", Detail: detail})
		}
	}
	if len(wrong) > 0 {
		return fault.NewInvalid(wrong...)
	}
	return nil
}

// wrongSecret says why a text cannot be a signing secret. One that begins with whsec_ and does
// not go on with base64, the key of Standard Webhooks, is a text as any other.
func wrongSecret(secret string) string {
	encoded, standard := strings.CutPrefix(secret, "whsec_")
	switch {
	case secret == "" || len(secret) > maxSecret:
		return "must have 1 to 1024 bytes"
	case standard && strings.Trim(encoded, "=\r\n") == "":
		return "must go on behind whsec_, as in whsec_a2VlcCB0aGlzIGtlZXAgdGhpcyBrZWVw"
	}
	return ""
}
