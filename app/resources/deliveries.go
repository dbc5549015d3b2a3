// Package resources shows what stands outside of the read models (deliveries, imports,
// rebuilds) in the words of the contract, to those who read it and those who ask for it.
package resources

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kindred/dispatcher"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections/readmodel"
	"kindred/readapi"
)

// Deliveries puts the dispatcher's log into the words of the contract.
type Deliveries struct {
	Log     dispatcher.Log
	Checker dispatcher.Checker
}

// List implements [readapi.Deliveries].
// Faults: building, quarantined, stale, webhook_unknown.
func (l Deliveries) List(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook, status string, newest bool, page readmodel.Page) ([]readapi.Delivery, int64, error) {
	q := dispatcher.Query{Status: status, Newest: newest, Limit: page.Limit}
	if page.After != eventstore.Start {
		after, err := strconv.ParseInt(string(page.After), 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("read the place of a delivery: %w", err)
		}
		q.After = after
	}
	found, skipped, err := l.Log.List(ctx, client, webhook, eventual, q)
	out := make([]readapi.Delivery, len(found))
	for i, d := range found {
		out[i] = readapi.Delivery{Delivery: deliveryBody(d), Place: eventstore.Position(strconv.FormatInt(d.Made, 10))}
	}
	return out, skipped, err
}

// Get implements [readapi.Deliveries].
// Faults: building, delivery_unknown, quarantined, stale, webhook_unknown.
func (l Deliveries) Get(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook, delivery id.Delivery) (httpapi.Delivery, error) {
	found, err := l.Log.Get(ctx, client, webhook, delivery, eventual)
	return deliveryBody(found), err
}

// Health implements [readapi.Deliveries].
// Faults: building, quarantined, stale, webhook_unknown.
func (l Deliveries) Health(ctx context.Context, client id.Client, eventual bool, webhook id.Webhook) (httpapi.WebhookHealth, error) {
	h, err := l.Log.Health(ctx, client, webhook, eventual)
	return httpapi.WebhookHealth{
		Pending: h.Pending, Skipped: h.Skipped, Filtered: httpapi.OrNull(h.Filtered),
		LastSuccessAt: httpapi.TimeOrNull(h.LastSuccessAt), LastFailureAt: httpapi.TimeOrNull(h.LastFailureAt), FailingSince: httpapi.TimeOrNull(h.FailingSince),
	}, err
}

// Check implements [readapi.Deliveries].
// Faults: building, quarantined, stale.
func (l Deliveries) Check(ctx context.Context, client id.Client, eventual bool, header http.Header, body, sent []byte) (httpapi.DeliveryCheck, error) {
	found, err := l.Checker.Check(ctx, client, eventual, dispatcher.Received{Header: header, Body: body, Sent: sent})
	out := httpapi.DeliveryCheck{Verified: found.Verified, Steps: []httpapi.DeliveryCheckStep{}}
	if found.Webhook != "" {
		out.WebhookID = new(string(found.Webhook))
	}
	for _, s := range found.Steps {
		out.Steps = append(out.Steps, httpapi.DeliveryCheckStep{
			Name: httpapi.DeliveryCheckStepName(s.Name), Status: httpapi.DeliveryCheckStepStatus(s.Status), Detail: s.Detail,
		})
	}
	return out, err
}

// Keys implements [readapi.Deliveries].
// Faults: building, quarantined, stale.
func (l Deliveries) Keys(ctx context.Context, client id.Client, eventual bool) ([]httpapi.WebhookKey, error) {
	found, err := l.Log.Keys(ctx, client, eventual, l.Checker.Now())
	out := make([]httpapi.WebhookKey, len(found))
	for i, k := range found {
		out[i] = httpapi.WebhookKey{
			ID: k.ID, PublicKey: httpapi.PublicKey(k.Public), CreatedAt: httpapi.Time{Time: k.Made}, SignsUntil: httpapi.TimeOrNull(k.Until),
		}
	}
	return out, err
}

// Failing implements [readapi.Deliveries].
func (l Deliveries) Failing(ctx context.Context, client id.Client, limit int) ([]readapi.FailingEndpoint, error) {
	found, err := l.Log.Failing(ctx, client, limit)
	out := make([]readapi.FailingEndpoint, len(found))
	for i, e := range found {
		out[i] = readapi.FailingEndpoint(e)
	}
	return out, err
}

// ManualDeliveries likewise, for those that are made by hand.
type ManualDeliveries struct{ dispatcher.Manual }

// Test implements [writeapi.Deliveries].
// Faults: building, delivery_unknown, quarantined, stale, too_many_tests, webhook_paused, webhook_unknown.
func (m ManualDeliveries) Test(ctx context.Context, client id.Client, webhook id.Webhook, eventType string, seed []string) (httpapi.Delivery, error) {
	made, err := m.Manual.Test(ctx, client, webhook, eventType, seed)
	return deliveryBody(made), err
}

// Redeliver implements [writeapi.Deliveries].
// Faults: building, delivery_unknown, event_type_not_subscribed, quarantined, stale, too_many_tests,
// webhook_paused, webhook_unknown.
func (m ManualDeliveries) Redeliver(ctx context.Context, client id.Client, webhook id.Webhook, delivery id.Delivery, seed []string) (httpapi.Delivery, error) {
	made, err := m.Manual.Redeliver(ctx, client, webhook, delivery, seed)
	return deliveryBody(made), err
}

// Recover implements [writeapi.Deliveries].
// Faults: building, quarantined, stale, webhook_paused, webhook_unknown.
func (m ManualDeliveries) Recover(ctx context.Context, client id.Client, webhook id.Webhook, since time.Time, seed []string) (httpapi.Recovery, error) {
	r, err := m.Manual.Recover(ctx, client, webhook, since, seed)
	return httpapi.Recovery{Recovered: r.Recovered, More: r.More}, err
}

func deliveryBody(d dispatcher.Delivery) httpapi.Delivery {
	body := httpapi.Delivery{
		ID: d.ID, WebhookID: d.Webhook, EventID: string(d.Event), EventType: httpapi.EventType(d.EventType),
		Status: httpapi.DeliveryStatus(d.Status), Test: d.Test, RedeliveryOf: (*string)(d.RedeliveryOf),
		OccurredAt: httpapi.Time{Time: d.OccurredAt}, CreatedAt: httpapi.Time{Time: d.CreatedAt},
		NextAttemptAt: httpapi.TimeOrNull(d.NextAttemptAt), EndedAt: httpapi.TimeOrNull(d.EndedAt),
		Attempts: make([]httpapi.DeliveryAttempt, len(d.Attempts)),
	}
	for i, a := range d.Attempts {
		body.Attempts[i] = httpapi.DeliveryAttempt{
			At: httpapi.Time{Time: a.At}, Status: a.Status, Error: a.Error,
			LatencyMs: float64(a.Latency.Microseconds()) / 1000,
			Answer:    strings.ToValidUTF8(string(a.Answer), "\uFFFD"),
		}
	}
	return body
}
