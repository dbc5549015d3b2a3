package dispatcher

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore/projector"
)

// Log shows what became of deliveries. It knows those that are still to be
// made, and those that ended within the retention.
type Log struct {
	Pool     *pgxpool.Pool
	Progress *projector.Progress
	AtOnce   bool // as that of projector.Reader
}

// Status values of a delivery.
const (
	StatusPending   = "pending"
	StatusDelivered = string(delivered)
	StatusDropped   = "dropped"
	StatusCancelled = string(cancelled)
)

// Delivery is one event on its way to one webhook, or how that ended.
type Delivery struct {
	Made          int64 // its place in lists
	ID            id.Delivery
	Webhook       id.Webhook
	Event         id.Event
	EventType     string
	Test          bool
	RedeliveryOf  *id.Delivery
	OccurredAt    time.Time // of the event
	CreatedAt     time.Time
	Status        string
	NextAttemptAt *time.Time // of a pending one that has failed
	EndedAt       *time.Time
	Attempts      []Attempt
}

// Attempt is one request to a receiver.
type Attempt struct {
	Number  int // 1 is the first
	At      time.Time
	Latency time.Duration
	Status  *int    // of the answer; nil where there was none
	Error   *string // nil where it was accepted
	Answer  []byte  // the first 4 KiB of the body
}

// Health is how deliveries to a webhook go.
type Health struct {
	Pending       int        // counted up to MaxPending
	Skipped       int64      // events that occurred while it was paused
	Filtered      int64      // events that its filter left out
	LastSuccessAt *time.Time // of an attempt
	LastFailureAt *time.Time
	FailingSince  *time.Time // nil while the last attempt was accepted
}

// MaxPending bounds what Health counts.
// limit: webhooks | pending deliveries that `health` counts | {MaxPending}
const MaxPending = 10_000

// state is the dispatcher's copy of a subscription, as far as it is asked for.
type state struct {
	name       *string // nil: there is none
	skipped    int64
	filtered   int64
	eventTypes []string
}

const readState = `
SELECT f.reached, f.head, f.quarantined, e.state, coalesce(e.skipped, 0), coalesce(e.filtered, 0), e.event_types
FROM fresh f LEFT JOIN dispatch_endpoints e ON e.client = $1 AND e.webhook = $2`

// state waits until the dispatcher has seen what the client was told, and reads
// a subscription.
func (l Log) state(ctx context.Context, client id.Client, webhook id.Webhook, eventual bool) (s state, err error) {
	reader := projector.Reader{Of: (*Dispatcher)(nil), Progress: l.Progress, AtOnce: l.AtOnce}
	sql := `WITH ` + projector.Fresh(reader.Of) + readState
	err = reader.Read(ctx, eventual, func(ctx context.Context) (at projector.At, err error) {
		err = l.Pool.QueryRow(ctx, sql, client, webhook).Scan(&at.Reached, &at.Head, &at.Quarantined, &s.name, &s.skipped, &s.filtered, &s.eventTypes)
		return at, err
	})
	if err != nil {
		return s, fmt.Errorf("read the state of a webhook: %w", err)
	}
	if s.name == nil || *s.name == removed {
		return s, fault.UnknownWebhook()
	}
	return s, nil
}

// freshFor is how long what was read of a subscription holds good. An attempt
// begins within it or reads again, and a change of the subscription is answered
// that much after it counts: no attempt that begins after the answer goes by
// what was before.
const freshFor = 100 * time.Millisecond

// Follow waits until every attempt that begins goes by what the webhook's client
// was told, but not for long: where the dispatcher is late, or has stopped for the
// client, they do so once it has come there.
func (l Log) Follow(ctx context.Context, client id.Client, webhook id.Webhook) {
	_, _ = l.state(ctx, client, webhook, false) // what was told is recorded, whatever keeps it waiting
	_ = backoff.Sleep(ctx, freshFor)            // the caller looks at ctx
}

const selectHealth = `
SELECT (SELECT count(*) FROM (SELECT FROM dispatch_queue WHERE client = $1 AND webhook = $2 AND failed = 0 LIMIT $3) q),
	(SELECT count(*) FROM (SELECT FROM dispatch_queue WHERE client = $1 AND webhook = $2 AND failed > 0 LIMIT $3) q),
	h.last_success_at, h.last_failure_at, h.failing_since
FROM (SELECT) one LEFT JOIN dispatch_health h ON h.client = $1 AND h.webhook = $2`

// Health says how deliveries to a webhook go.
// Faults: building, quarantined, stale, webhook_unknown.
func (l Log) Health(ctx context.Context, client id.Client, webhook id.Webhook, eventual bool) (Health, error) {
	s, err := l.state(ctx, client, webhook, eventual)
	if err != nil {
		return Health{}, err
	}
	h, tried := Health{Skipped: s.skipped, Filtered: s.filtered}, 0
	err = sendAfresh(ctx, l.Pool, func(b *pgx.Batch) {
		b.Queue(selectHealth, client, webhook, MaxPending).QueryRow(func(row pgx.Row) error {
			return row.Scan(&h.Pending, &tried, &h.LastSuccessAt, &h.LastFailureAt, &h.FailingSince)
		})
	})
	if err != nil {
		return Health{}, fmt.Errorf("read the health of a webhook: %w", err)
	}
	h.Pending = min(h.Pending+tried, MaxPending)
	return h, nil
}

// The parts of a list, each in the order of its own index, up to the limit.
const (
	deliveryColumns = `made, delivery, webhook, event, event_type, test, redelivery_of, occurred_at, queued_at AS created_at, `
	pendingColumns  = deliveryColumns + `'pending' AS state, CASE WHEN failed > 0 AND leased_until IS NULL THEN ` + dueFrom + ` - ` + aheadOf + ` END AS next_at, NULL::timestamptz AS ended_at FROM dispatch_queue e `
	endedColumns    = deliveryColumns + `state, NULL::timestamptz AS next_at, ended_at FROM dispatch_deliveries `

	listFresh   = `(SELECT ` + pendingColumns + `WHERE client = $1 AND webhook = $2 AND made > $3 AND failed = 0 ORDER BY made LIMIT $4)`
	listTried   = `(SELECT ` + pendingColumns + `WHERE client = $1 AND webhook = $2 AND made > $3 AND abs(failed) > 0 ORDER BY made LIMIT $4)`
	listEnded   = `(SELECT ` + endedColumns + `WHERE client = $1 AND webhook = $2 AND made > $3 ORDER BY made LIMIT $4)`
	listArrived = `(SELECT ` + endedColumns + `WHERE client = $1 AND webhook = $2 AND made > $3 AND state = $5 ORDER BY made LIMIT $4)`
	listFailed  = `(SELECT ` + endedColumns + `WHERE client = $1 AND webhook = $2 AND made > $3 AND state <> 'delivered' AND state = $5 ORDER BY made LIMIT $4)`

	listPending = listFresh + ` UNION ALL ` + listTried + ` ORDER BY made LIMIT $4`
	listAll     = listEnded + ` UNION ALL ` + listPending
)

// newestFirst turns a list around.
var newestFirst = strings.NewReplacer(`made > $3`, `made < $3`, `ORDER BY made`, `ORDER BY made DESC`)

// Query selects deliveries of a webhook.
type Query struct {
	Status string // "" for all
	After  int64  // Made of the last one before; 0: from the beginning, or the newest on
	Newest bool   // first
	Limit  int
}

// List returns deliveries in the order in which they were made, or the newest first,
// and how many events were skipped while the webhook was paused.
// Faults: building, quarantined, stale, webhook_unknown.
func (l Log) List(ctx context.Context, client id.Client, webhook id.Webhook, eventual bool, q Query) ([]Delivery, int64, error) {
	s, err := l.state(ctx, client, webhook, eventual)
	if err != nil {
		return nil, 0, err
	}
	sql, args := listAll, []any{client, webhook, q.After, q.Limit}
	switch q.Status {
	case "":
	case StatusPending:
		sql = listPending
	case StatusDelivered:
		sql, args = listArrived, append(args, q.Status)
	default:
		sql, args = listFailed, append(args, q.Status)
	}
	if q.Newest {
		sql = newestFirst.Replace(sql)
		if q.After == 0 {
			args[2] = int64(math.MaxInt64)
		}
	}
	found, err := collect(ctx, l.Pool, sql, args...)
	if err != nil {
		return nil, 0, err
	}
	return found, s.skipped, l.attempts(ctx, client, found)
}

func collect(ctx context.Context, db sender, sql string, args ...any) (found []Delivery, err error) {
	err = sendAfresh(ctx, db, func(b *pgx.Batch) {
		b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, scanDelivery)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	return found, nil
}

func scanDelivery(row pgx.CollectableRow) (d Delivery, err error) {
	err = row.Scan(&d.Made, &d.ID, &d.Webhook, &d.Event, &d.EventType, &d.Test, &d.RedeliveryOf, &d.OccurredAt, &d.CreatedAt,
		&d.Status, &d.NextAttemptAt, &d.EndedAt)
	return d, err
}

const selectAttempts = `
SELECT delivery, attempt, at, latency_us, status, error, answer FROM dispatch_attempts
WHERE client = $1 AND delivery = ANY($2) ORDER BY delivery, at`

// attempts adds the attempts of deliveries.
func (l Log) attempts(ctx context.Context, client id.Client, of []Delivery) error {
	index, ids := make(map[id.Delivery]int, len(of)), make([]id.Delivery, len(of))
	for i, d := range of {
		index[d.ID], ids[i] = i, d.ID
	}
	rows, _ := l.Pool.Query(ctx, selectAttempts, client, ids) // what it fails with, its rows end with
	var (
		delivery id.Delivery
		a        Attempt
		latency  int64
	)
	_, err := pgx.ForEachRow(rows, []any{&delivery, &a.Number, &a.At, &latency, &a.Status, &a.Error, &a.Answer}, func() error {
		a.Latency = time.Duration(latency) * time.Microsecond
		d := &of[index[delivery]]
		d.Attempts = append(d.Attempts, a)
		a = Attempt{}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	return nil
}

// getDelivery finds a delivery in the queue or, once it has ended, in the log: a statement sees
// it in one of them.
const (
	getDelivery = `SELECT ` + pendingColumns + theDelivery + ` UNION ALL SELECT ` + endedColumns + theDelivery
	theDelivery = `WHERE delivery = $3 AND client = $1 AND webhook = $2`
)

// Get returns a delivery, or fails with a fault of kind Missing.
// Faults: building, delivery_unknown, quarantined, stale, webhook_unknown.
func (l Log) Get(ctx context.Context, client id.Client, webhook id.Webhook, delivery id.Delivery, eventual bool) (Delivery, error) {
	if _, err := l.state(ctx, client, webhook, eventual); err != nil {
		return Delivery{}, err
	}
	return l.get(ctx, client, webhook, delivery)
}

func (l Log) get(ctx context.Context, client id.Client, webhook id.Webhook, delivery id.Delivery) (Delivery, error) {
	found, err := collect(ctx, l.Pool, getDelivery, client, webhook, delivery)
	if err != nil {
		return Delivery{}, err
	}
	if len(found) == 0 {
		return Delivery{}, fault.New(fault.Missing, "delivery_unknown",
			"There is no such delivery, or it ended longer ago than deliveries are kept.")
	}
	err = l.attempts(ctx, client, found)
	return found[0], err
}
