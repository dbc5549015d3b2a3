package dispatcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/projector"
)

// Name names the projection's checkpoint.
func (d *Dispatcher) Name() string { return "dispatcher" }

// Version counts the shapes of what the projection keeps.
func (d *Dispatcher) Version() int { return 1 }

// Wants says which events concern deliveries: those that are delivered, those
// of the subscriptions, how a client has its users named, with which keys it signs, its
// clock and its end.
func (d *Dispatcher) Wants(eventType string) bool {
	return strings.HasPrefix(eventType, "webhook.") || eventType == "webhook_key.made" || eventType == "client.settings_changed" ||
		eventType == "client.clock_moved" || eventType == "client.deleted" ||
		event.IsPublic(eventType)
}

// Options of the projection. Receivers wait for it.
func (d *Dispatcher) Options() projector.Options { return projector.Options{Prompt: true} }

// Apply follows the subscriptions and queues one delivery for each public event
// and each subscription that is active at that place of the log and wants it.
// tx also holds the checkpoint, so each event is applied once.
func (d *Dispatcher) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	_, err := d.apply(ctx, tx, batch, false, func(int) error { return nil })
	return err
}

// stepsOfDelivery is what it takes to queue a delivery, or to judge whether to, as
// [projector.Spend] counts: a client may have 2,000 of a batch in which others wait.
// limit: deliveries | deliveries of one client that are queued, or left out by a filter, in a batch that all are in, before its events are applied in slices | {projector.BatchSteps / stepsOfDelivery}
const stepsOfDelivery = 1_000

// ApplyTogether implements [projector.PerClient]: of one round of reads, those clients that
// can have no more deliveries than others may wait for, and whose filters are kept.
func (d *Dispatcher) ApplyTogether(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (rest []eventstore.Recorded, err error) {
	return d.apply(ctx, tx, batch, true, func(int) error { return nil })
}

// ApplyClient implements [projector.PerClient]: a client with many subscriptions and many
// events keeps nobody else's deliveries waiting.
func (d *Dispatcher) ApplyClient(ctx context.Context, tx pgx.Tx, _ *eventstore.Log, _ id.Client, batch []eventstore.Recorded, spend projector.Spend) error {
	_, err := d.apply(ctx, tx, batch, false, spend)
	return err
}

// apply is Apply of all clients, or of those that go together; the events of others are the rest.
func (d *Dispatcher) apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded, together bool, spend projector.Spend) (rest []eventstore.Recorded, err error) {
	clients := concerned(batch)
	if len(clients) == 0 {
		return nil, nil
	}
	b, err := d.loadEnqueuing(ctx, tx, clients)
	if err != nil {
		return nil, err
	}
	var beyond map[id.Client]bool
	if together {
		beyond = b.beyond(batch)
	}
	for _, rec := range batch {
		if beyond[rec.Client] {
			rest = append(rest, rec)
			continue
		}
		if b.follow(rec) {
			continue
		}
		public, ok := rec.Event.(event.Public)
		if !ok {
			continue
		}
		before := len(b.rows)
		leftOut, err := b.enqueue(rec, public, spend)
		if err != nil {
			return nil, err
		}
		if rec.Position <= d.SilentThrough {
			b.rows = b.rows[:before]
		}
		if err := spend((len(b.rows) - before + leftOut) * stepsOfDelivery); err != nil {
			return nil, err
		}
		if len(b.rows) >= maxInsert {
			if err := b.flush(ctx, tx); err != nil {
				return nil, err
			}
		}
	}
	return rest, b.store(ctx, tx)
}

// store writes what a batch has come to.
func (b *enqueuing) store(ctx context.Context, tx pgx.Tx) error {
	if err := b.flush(ctx, tx); err != nil {
		return err
	}
	if err := storeEndpoints(ctx, tx, b.endpoints); err != nil {
		return err
	}
	if err := b.naming.store(ctx, tx); err != nil {
		return err
	}
	if err := b.keys.store(ctx, tx); err != nil {
		return err
	}
	if err := b.dropDeleted(ctx, tx); err != nil {
		return err
	}
	if b.stopped {
		if _, err := tx.Exec(ctx, notifyQueue); err != nil {
			return fmt.Errorf("wake the workers: %w", err)
		}
	}
	return nil
}

const (
	channel     = "kindred_deliveries"
	notifyQueue = `SELECT pg_notify('` + channel + `', '')` // look for yourselves
	// limit: deliveries | deliveries of one INSERT | {maxInsert}
	maxInsert = 5_000 // rows of one INSERT
)

// concerned lists the clients whose subscriptions a batch needs.
func concerned(batch []eventstore.Recorded) []id.Client {
	var clients []id.Client
	seen := map[id.Client]bool{}
	for _, rec := range batch {
		_, public := rec.Event.(event.Public)
		_, settings := rec.Event.(event.ClientSettingsChanged)
		_, key := rec.Event.(event.WebhookKeyMade)
		if (public || settings || key || isOfSandbox(rec.Event) || webhookOf(rec.Event) != "") && !seen[rec.Client] {
			seen[rec.Client] = true
			clients = append(clients, rec.Client)
		}
	}
	return clients
}

// webhookOf names the subscription that an event is about, or is empty.
func webhookOf(e event.Event) id.Webhook {
	switch e := e.(type) {
	case event.WebhookSubscribed:
		return e.Webhook
	case event.WebhookChanged:
		return e.Webhook
	case event.WebhookPaused:
		return e.Webhook
	case event.WebhookResumed:
		return e.Webhook
	case event.WebhookSecretRotated:
		return e.Webhook
	case event.WebhookHeadersSet:
		return e.Webhook
	case event.WebhookControlsSet:
		return e.Webhook
	case event.WebhookDisabled:
		return e.Webhook
	case event.WebhookRemoved:
		return e.Webhook
	}
	return ""
}

// enqueuing is one batch on its way into the queue.
type enqueuing struct {
	filters   *filters
	traced    bool
	endpoints []*endpoint
	byWebhook map[id.Webhook]*endpoint
	byClient  map[id.Client][]*endpoint
	naming    naming
	keys      keys

	rows    []queued
	deleted []id.Client
	stopped bool
}

type queued struct {
	delivery   id.Delivery
	endpoint   *endpoint
	event      id.Event
	position   eventstore.Position
	eventType  string
	body       []byte
	occurredAt time.Time
	external   bool
	trace      string
}

// loadEnqueuing reads, in one round trip, what is known of some clients.
func (d *Dispatcher) loadEnqueuing(ctx context.Context, tx pgx.Tx, clients []id.Client) (*enqueuing, error) {
	b := &enqueuing{filters: &d.filters, traced: d.Tracing != nil, byWebhook: map[id.Webhook]*endpoint{}, byClient: map[id.Client][]*endpoint{}, naming: newNaming(), keys: keys{}}
	var loads pgx.Batch
	loads.Queue(selectEndpoints, clients).Query(func(rows pgx.Rows) error {
		endpoints, err := pgx.CollectRows(rows, scanEndpoint)
		for _, e := range endpoints {
			b.add(e)
		}
		return err
	})
	loads.Queue(selectNaming, clients).Query(b.naming.read)
	loads.Queue(selectKeys, clients).Query(b.keys.read)
	if err := tx.SendBatch(ctx, &loads).Close(); err != nil {
		return nil, fmt.Errorf("read the subscriptions: %w", err)
	}
	return b, nil
}

// beyond are the clients whose events and subscriptions may make more deliveries than others may wait
// for, or have filters parsed: a tenant may have more of these than are kept, and each takes some 10 ms.
func (b *enqueuing) beyond(batch []eventstore.Recorded) map[id.Client]bool {
	events, subscriptions, parses := map[id.Client]int{}, map[id.Client]int{}, map[id.Client]bool{}
	for _, rec := range batch {
		if _, public := rec.Event.(event.Public); public {
			events[rec.Client]++
		}
		switch e := rec.Event.(type) {
		case event.WebhookSubscribed:
			subscriptions[rec.Client]++
		case event.WebhookControlsSet:
			parses[rec.Client] = parses[rec.Client] || !b.filters.kept(e.Filter)
		}
	}
	beyond := map[id.Client]bool{}
	for client, n := range events {
		beyond[client] = n*(len(b.byClient[client])+subscriptions[client])*stepsOfDelivery > projector.BatchSteps || parses[client] ||
			slices.ContainsFunc(b.byClient[client], func(e *endpoint) bool { return e.State == active && !b.filters.kept(e.Controls.Filter) })
	}
	return beyond
}

func (b *enqueuing) add(e *endpoint) {
	b.endpoints = append(b.endpoints, e)
	b.byWebhook[e.Webhook] = e
	b.byClient[e.Client] = append(b.byClient[e.Client], e)
}

// follow keeps the subscriptions and settings up to date. It says whether rec
// was about them.
func (b *enqueuing) follow(rec eventstore.Recorded) bool {
	switch e := rec.Event.(type) {
	case event.ClientSettingsChanged:
		b.naming.change(e)
		return true
	case event.WebhookKeyMade:
		b.keys.rotate(rec, e, b.really(rec))
		return true
	case event.ClockMoved:
		b.naming.move(e)
		b.stopped = true
		return true
	case event.ClientDeleted:
		b.delete(rec)
		return true
	}
	webhook := webhookOf(rec.Event)
	if webhook == "" {
		return false
	}
	e := b.byWebhook[webhook]
	if subscribed, ok := rec.Event.(event.WebhookSubscribed); ok && e == nil {
		e = &endpoint{
			Webhook: webhook, Client: rec.Client, State: active,
			Address: addressOf(rec, subscribed.WebhookAddress), EventTypes: subscribed.EventTypes, changedAt: b.really(rec),
			DroppedTypes: map[string]eventstore.Position{},
		}
		e.rotate(rec, subscribed.Secret, b.really(rec))
		b.add(e)
		return true
	}
	if e == nil || e.State == removed {
		return true // what is over does not begin again
	}
	e.changedAt = b.really(rec)
	switch changed := rec.Event.(type) {
	case event.WebhookChanged:
		e.Address = addressOf(rec, changed.WebhookAddress)
		b.stopped = e.choose(rec, changed.EventTypes) || b.stopped
	case event.WebhookHeadersSet:
		e.Headers = nil
		if changed.Headers != nil {
			e.Headers = &sealed{Stream: string(rec.Stream), Event: rec.ID, Box: changed.Headers.Box}
		}
	case event.WebhookControlsSet:
		e.Controls = changed.EndpointControls
	case event.WebhookPaused, event.WebhookDisabled:
		e.stop(rec, paused)
		b.stopped = true
	case event.WebhookResumed:
		e.State = active
	case event.WebhookSecretRotated:
		e.rotate(rec, changed.Secret, b.really(rec))
	case event.WebhookRemoved:
		e.stop(rec, removed)
		b.stopped = true
	}
	return true
}

// enqueue adds the deliveries of a public event, and says how many filters left one out. It spends
// what it takes to parse these.
func (b *enqueuing) enqueue(rec eventstore.Recorded, public event.Public, spend projector.Spend) (leftOut int, err error) {
	var body []byte
	var facts *rule.Facts
	var trace string
	for _, e := range b.byClient[rec.Client] {
		switch {
		case !e.wants(rec.Type), e.State == removed:
			continue
		case e.State == paused:
			e.Skipped++
			continue
		}
		if body == nil {
			if body, err = event.Body(public, rec.Type, rec.Client, rec.RecordedAt); err != nil {
				return leftOut, err
			}
			if b.traced {
				trace = rec.Trace()
			}
		}
		if e.Controls.Filter != "" {
			if facts == nil {
				if facts, err = factsOf(body, rec.RecordedAt); err != nil {
					return leftOut, err
				}
			}
			var named bool
			if named, err = b.filters.names(e.Controls.Filter, facts, spend); err != nil {
				return leftOut, err
			}
			if !named {
				e.Filtered++
				leftOut++
				continue
			}
		}
		b.rows = append(b.rows, queued{
			delivery:   deliveryOf(rec.ID, e.Webhook),
			endpoint:   e,
			event:      rec.ID,
			position:   rec.Position,
			eventType:  rec.Type,
			body:       body,
			occurredAt: rec.RecordedAt,
			external:   b.naming.external[rec.Client],
			trace:      trace,
		})
	}
	return leftOut, nil
}

// deliveryOf names the delivery of an event to a webhook: the same at every
// attempt and on every replica.
func deliveryOf(e id.Event, w id.Webhook) id.Delivery {
	return id.Next[id.Delivery](id.Derived("delivery", string(e), string(w)))
}

// insertQueue tells the workers what is new, or, where that is more than a
// notification holds, to look for themselves.
const insertQueue = `
WITH new AS (
	INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, external_ids, trace)
	SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::timestamptz[], $9::boolean[], $10::text[])
	ON CONFLICT (client, delivery) DO NOTHING
	RETURNING client, webhook, made
), told AS (
	SELECT string_agg(concat_ws(' ', client, webhook, made), ',') AS what
	FROM (SELECT client, webhook, min(made) AS made FROM new GROUP BY client, webhook) n
)
SELECT pg_notify('` + channel + `', CASE WHEN length(what) < 7000 THEN what ELSE '' END) FROM told WHERE what IS NOT NULL`

// flush writes the rows gathered so far.
func (b *enqueuing) flush(ctx context.Context, tx pgx.Tx) error {
	n := len(b.rows)
	if n == 0 {
		return nil
	}
	var (
		deliveries, clients, webhooks = make([]string, n), make([]string, n), make([]string, n)
		events, positions, types      = make([]string, n), make([]string, n), make([]string, n)
		bodies                        = make([][]byte, n)
		times                         = make([]time.Time, n)
		external                      = make([]bool, n)
		traces                        = make([]string, n)
	)
	for i, r := range b.rows {
		deliveries[i], clients[i], webhooks[i] = string(r.delivery), string(r.endpoint.Client), string(r.endpoint.Webhook)
		events[i], positions[i], types[i] = string(r.event), string(r.position), r.eventType
		bodies[i], times[i], external[i] = r.body, r.occurredAt, r.external
		traces[i] = r.trace
	}
	if _, err := tx.Exec(ctx, insertQueue, deliveries, clients, webhooks, events, positions, types, bodies, times, external, traces); err != nil {
		return fmt.Errorf("queue deliveries: %w", err)
	}
	b.rows = b.rows[:0]
	return nil
}
