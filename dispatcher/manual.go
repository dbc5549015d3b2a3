package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Manual makes deliveries that somebody asks for by hand. A seed, where there
// is one, is its caller's name for the request: made again, it makes nothing
// more, and the same name for something else makes that.
type Manual struct {
	Log
	Now     func() time.Time
	Entropy io.Reader // for identifiers
}

// ids hands out the identifiers of a request for just this.
func (m Manual) ids(seed []string, request ...string) *id.Source {
	if seed == nil {
		return id.Random(m.Entropy)
	}
	return id.Derived(slices.Concat(seed, request)...)
}

// checkActive refuses what a paused webhook is to be sent.
func (s state) checkActive() error {
	if s.name != nil && *s.name == paused {
		return errPaused()
	}
	return nil
}

func errPaused() error {
	return fault.New(fault.Conflict, "webhook_paused", "The subscription is paused and receives nothing. Set its status to active first.")
}

const lockDelivery = `SELECT pg_advisory_xact_lock(hashtextextended('kindred delivery by hand ' || $1, 0))`

// once makes a delivery, unless the same request has made it before, or makes it just now. What
// insert looks up in the queue is planned afresh, since collect is in the same transaction.
func (m Manual) once(ctx context.Context, client id.Client, webhook id.Webhook, delivery id.Delivery, insert func(pgx.Tx) (int64, error)) (Delivery, error) {
	var made bool
	err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockDelivery, delivery); err != nil {
			return err
		}
		found, err := collect(ctx, tx, getDelivery, client, webhook, delivery)
		if made = len(found) > 0; made || err != nil {
			return err
		}
		n, err := insert(tx)
		if err != nil {
			return fmt.Errorf("queue a delivery: %w", err)
		}
		if made = n > 0; made {
			_, err = tx.Exec(ctx, notifyQueue)
		}
		return err
	})
	if err != nil {
		return Delivery{}, err
	}
	if !made { // it was paused, or removed, just now
		return Delivery{}, errPaused()
	}
	return m.get(ctx, client, webhook, delivery)
}

const insertTest = `
INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, test, trace)
SELECT $3, e.client, e.webhook, $4, e.cancelled_through, $5, $6, $7, true, $8
FROM dispatch_endpoints e WHERE e.client = $1 AND e.webhook = $2 AND e.state = 'active'`

// testMessage is the body of a test: what marks it is signed with it.
type testMessage struct {
	event.Message
	Test bool `json:"test"`
}

const (
	lockTests  = `SELECT pg_advisory_xact_lock(hashtextextended('kindred webhook tests ' || $1, 0))`
	countTests = `
SELECT count(*), coalesce(min(queued_at) + $2::interval - now(), $2::interval) FROM (
	SELECT queued_at FROM dispatch_queue WHERE client = $1 AND test AND queued_at > now() - $2::interval
	UNION ALL
	SELECT queued_at FROM dispatch_deliveries WHERE client = $1 AND test AND queued_at > now() - $2::interval
) q`
	// limit: webhooks | test events of a client, sent again or not | {maxTests} in {testsTime} (429 `too_many_tests`)
	maxTests  = 20 // of a client in testsTime: each is a request to a host of its choice
	testsTime = time.Minute
)

// limitTests refuses more tests of a client than may be in a time.
func limitTests(ctx context.Context, tx pgx.Tx, client id.Client) error {
	if _, err := tx.Exec(ctx, lockTests, client); err != nil {
		return err
	}
	var made int
	var until time.Duration
	if err := tx.QueryRow(ctx, countTests, client, testsTime).Scan(&made, &until); err != nil {
		return err
	}
	if made >= maxTests {
		return fault.New(fault.Limited, "too_many_tests", "A client sends at most %d test events a minute.", maxTests).After(until)
	}
	return nil
}

// Test sends an event that never happened, of any type of the catalog, marked
// as a test in its body and by its header.
// Faults: building, delivery_unknown, quarantined, stale, too_many_tests, webhook_paused, webhook_unknown.
func (m Manual) Test(ctx context.Context, client id.Client, webhook id.Webhook, eventType string, seed []string) (Delivery, error) {
	s, err := m.state(ctx, client, webhook, false)
	if err != nil {
		return Delivery{}, err
	}
	ids := m.ids(seed, "test", string(webhook), eventType)
	delivery, eventID := id.Next[id.Delivery](ids), id.Next[id.Event](ids)
	at := m.Now().UTC().Truncate(time.Microsecond)
	body, err := json.Marshal(testMessage{event.MessageOf(event.Example(eventType, ids), eventType, client, at), true})
	if err != nil {
		return Delivery{}, fmt.Errorf("write a test: %w", err)
	}
	return m.once(ctx, client, webhook, delivery, func(tx pgx.Tx) (int64, error) {
		if err := s.checkActive(); err != nil {
			return 0, err
		}
		if err := limitTests(ctx, tx, client); err != nil {
			return 0, err
		}
		tag, err := tx.Exec(ctx, insertTest, client, webhook, delivery, eventID, eventType, body, at, eventstore.TraceOf(ctx))
		return tag.RowsAffected(), err
	})
}

// A delivery that did not arrive counts as recovered once it is sent again by hand, so that a
// recovery does not send it as well.
const insertRedelivery = `
WITH source AS (
	SELECT event, event_type, body, occurred_at, test, external_ids FROM dispatch_queue
	WHERE delivery = $3 AND client = $1 AND webhook = $2
	UNION ALL
	SELECT event, event_type, body, occurred_at, test, external_ids FROM dispatch_deliveries
	WHERE delivery = $3 AND client = $1 AND webhook = $2
	LIMIT 1
), made AS (
	INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, test, external_ids, redelivery_of, trace)
	SELECT $4, e.client, e.webhook, s.event, greatest(e.cancelled_through, e.dropped_types ->> s.event_type), s.event_type, s.body, s.occurred_at, s.test, s.external_ids, $3, $5
	FROM source s, dispatch_endpoints e WHERE e.client = $1 AND e.webhook = $2 AND e.state = 'active'
	RETURNING redelivery_of
), known AS (
	UPDATE dispatch_deliveries d SET recovered = true FROM made m
	WHERE d.client = $1 AND d.delivery = m.redelivery_of AND d.state <> 'delivered' AND NOT d.recovered
)
SELECT count(*) FROM made`

// Redeliver sends a delivery once more, whatever became of it, under an id of its own; its
// webhook-id stays the event's. An event that occurred while the webhook was paused has no
// delivery, so it cannot be sent again. A test that is sent again counts as a test.
// Faults: building, delivery_unknown, event_type_not_subscribed, quarantined, stale, too_many_tests,
// webhook_paused, webhook_unknown.
func (m Manual) Redeliver(ctx context.Context, client id.Client, webhook id.Webhook, delivery id.Delivery, seed []string) (Delivery, error) {
	s, err := m.state(ctx, client, webhook, false)
	if err != nil {
		return Delivery{}, err
	}
	first, err := m.get(ctx, client, webhook, delivery)
	if err != nil {
		return Delivery{}, err
	}
	again := id.Next[id.Delivery](m.ids(seed, "redelivery", string(delivery)))
	return m.once(ctx, client, webhook, again, func(tx pgx.Tx) (n int64, err error) {
		if err := s.checkActive(); err != nil {
			return 0, err
		}
		if !first.Test && !slices.Contains(s.eventTypes, first.EventType) {
			return 0, fault.New(fault.Conflict, "event_type_not_subscribed",
				"The subscription does not name %s any more. Add it to its event_types first.", first.EventType)
		}
		if first.Test {
			if err := limitTests(ctx, tx, client); err != nil {
				return 0, err
			}
		}
		err = tx.QueryRow(ctx, insertRedelivery, client, webhook, delivery, again, eventstore.TraceOf(ctx)).Scan(&n)
		return n, err
	})
}

// Recovery says what a recovery did.
type Recovery struct {
	Recovered int
	More      bool // there is more to recover: ask again
}

const (
	recoverBatch = 1_000
	// limit: webhooks | deliveries that one `recover` takes | {recoverBatch * recoverBatches}
	recoverBatches = 10 // of one request
)

const (
	openRecovery = `
INSERT INTO dispatch_recoveries AS r (client, request) VALUES ($1, $2)
ON CONFLICT (client, request) DO UPDATE SET at = r.at
RETURNING recovered, more, done`

	noteRecovery = `UPDATE dispatch_recoveries SET recovered = $3, more = $4, done = $5 WHERE client = $1 AND request = $2`

	selectRecoverable = `
SELECT delivery FROM dispatch_deliveries
WHERE client = $1 AND webhook = $2 AND state <> 'delivered' AND NOT recovered AND NOT test AND occurred_at >= $3
	AND event_type = ANY ((SELECT event_types FROM dispatch_endpoints e WHERE e.client = $1 AND e.webhook = $2)::text[])
ORDER BY occurred_at, made LIMIT $4 FOR UPDATE SKIP LOCKED`

	insertRecovered = `
WITH taken AS (
	UPDATE dispatch_deliveries d SET recovered = true
	FROM unnest($3::text[], $4::text[]) AS t (delivery, again), dispatch_endpoints e
	WHERE d.delivery = t.delivery AND d.client = $1 AND d.webhook = $2 AND e.client = $1 AND e.webhook = $2 AND e.state = 'active'
	RETURNING t.again, d.client, d.webhook, d.event, greatest(e.cancelled_through, e.dropped_types ->> d.event_type) AS position, d.event_type, d.body, d.occurred_at, d.external_ids, d.delivery, d.made
)
INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, external_ids, redelivery_of, trace)
SELECT again, client, webhook, event, position, event_type, body, occurred_at, external_ids, delivery, $5
FROM taken ORDER BY occurred_at, made`
)

// Recover queues again what was dropped or cancelled of the events since a
// time, each once however often it is asked: what fails anew can be recovered
// anew. It takes at most 10,000, and every thousand is safe on its own.
// Faults: building, quarantined, stale, webhook_paused, webhook_unknown.
func (m Manual) Recover(ctx context.Context, client id.Client, webhook id.Webhook, since time.Time, seed []string) (Recovery, error) {
	s, err := m.state(ctx, client, webhook, false)
	if err != nil {
		return Recovery{}, err
	}
	return m.recover(ctx, client, webhook, s, since, seed)
}

func (m Manual) recover(ctx context.Context, client id.Client, webhook id.Webhook, s state, since time.Time, seed []string) (r Recovery, err error) {
	request := string(id.Next[id.Request](m.ids(seed, "recovery", string(webhook), since.UTC().Format(time.RFC3339Nano))))
	for done := false; !done; {
		err := pgx.BeginFunc(ctx, m.Pool, func(tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, openRecovery, client, request).Scan(&r.Recovered, &r.More, &done); err != nil || done {
				return err
			}
			if err := s.checkActive(); err != nil {
				return err
			}
			n, err := recoverSome(ctx, tx, client, webhook, since)
			if err != nil {
				return err
			}
			r.Recovered += n
			r.More = n == recoverBatch
			done = !r.More || r.Recovered >= recoverBatch*recoverBatches
			_, err = tx.Exec(ctx, noteRecovery, client, request, r.Recovered, r.More, done)
			return err
		})
		if err != nil {
			return Recovery{}, fmt.Errorf("recover deliveries: %w", err)
		}
	}
	return r, nil
}

// recoverSome queues again as many as one transaction takes, and returns how many.
func recoverSome(ctx context.Context, tx pgx.Tx, client id.Client, webhook id.Webhook, since time.Time) (int, error) {
	rows, _ := tx.Query(ctx, selectRecoverable, client, webhook, since, recoverBatch) // what it fails with, its rows end with
	old, err := pgx.CollectRows(rows, pgx.RowTo[id.Delivery])
	if err != nil || len(old) == 0 {
		return 0, err
	}
	again := make([]id.Delivery, len(old))
	for i, d := range old {
		again[i] = id.Next[id.Delivery](id.Derived("recovery", string(d)))
	}
	tag, err := tx.Exec(ctx, insertRecovered, client, webhook, old, again, eventstore.TraceOf(ctx))
	if err != nil {
		return 0, err
	}
	if int(tag.RowsAffected()) < len(old) { // the webhook was paused, or removed, just now
		return 0, errPaused()
	}
	_, err = tx.Exec(ctx, notifyQueue)
	return len(old), err
}
