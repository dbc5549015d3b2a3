package dispatcher

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
)

const dbTimeout = 10 * time.Second // of one statement of the queue

// queue is the durable queue; its table explains why a claim stays cheap.
type queue struct {
	pool    *pgxpool.Pool
	control *pgxpool.Pool // for what must not wait behind the work
	lease   time.Duration
	now     func() time.Time
	holder  atomic.Int64 // whose claims these are
}

// The queue is empty now and has a million rows a minute later. A plan that was made while
// it was empty, or from statistics of that time, would read all of them. Until the
// transaction ends, statements are planned by indexes alone, and each time anew, or by plans
// that their connection keeps for keepPlans: to plan a claim of few deliveries takes longer
// than to make it, and what the worst of these plans reads in vain is what came since.
const (
	planAfresh = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true)` + byIndexes
	planOnce   = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true)` + byIndexes
	byIndexes  = `, set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

	keepPlans = time.Second
)

// A claim that a crash of the database forgets was never made: no need to wait for the disk.
const commitLazily = `SELECT set_config('synchronous_commit', 'off', true)`

// attemptKind is first attempts or retries. Each has a budget of its own, so that
// neither starves the other.
type attemptKind int

const (
	firstAttempt attemptKind = iota
	retryAttempt
	attemptKinds
)

func (k attemptKind) String() string { return [attemptKinds]string{"first", "retry"}[k] }

// claim is a delivery that this process holds.
type claim struct {
	Delivery  id.Delivery
	Token     int
	Kind      attemptKind
	Failed    int // attempts before this one
	Client    id.Client
	Webhook   id.Webhook
	EventType string
	Body      []byte
	Test      bool
	Cancelled bool // see isCancelled
	External  bool // its users are to be named by the client's own ids
	Address   address
	URL       string // once its address is opened
	Secrets   []secret
	Pairs     []secret             // key pairs that sign, too
	Keys      []ed25519.PrivateKey // the same once they are opened
	Headers   *sealed              // the endpoint's own
	Own       map[string]string    // the same once they are opened
	Waits     bool                 // for as long as a receiver asks
	Ordered   bool                 // it is not attempted before its predecessor has ended
	Most      int                  // attempts a second to its endpoint; 0: no bound
	Age       time.Duration        // since the event was recorded
	Queued    time.Duration        // since it came into the queue
	Made      int64                // its place among all that were queued
	Event     id.Event
	Trace     string // of the request that caused it; empty where no collector gets that

	read time.Time // when its subscription was, or a little earlier
}

// isCancelled is SQL that tells of a delivery q and its endpoint e whether the delivery is
// cancelled: a pause or a removal came after its event, or its type is not subscribed to
// any more, or was not for a time.
const isCancelled = `(q.position < e.cancelled_through OR NOT q.test
	AND (q.event_type <> ALL (e.event_types) OR q.position < coalesce(e.dropped_types ->> q.event_type, '')))`

// ownEndpoints makes a worker the owner of endpoints that are ordered or have a rate,
// unless their owner is alive. The rows are locked until the claim is made, so that the
// claim reads what the former owner left.
const ownEndpoints = `
WITH mine AS (
	SELECT e.client, e.webhook, e.owner FROM unnest($1::text[], $2::text[]) AS t (webhook, client)
	JOIN dispatch_endpoints e ON e.client = t.client AND e.webhook = t.webhook
	WHERE (e.ordered OR e.max_per_second > 0) AND (e.owner IS NULL OR e.owner = $3 OR NOT EXISTS (SELECT FROM dispatch_workers w WHERE w.id = e.owner))
	ORDER BY e.client, e.webhook FOR NO KEY UPDATE OF e
)
UPDATE dispatch_endpoints e SET owner = $3 FROM mine m WHERE e.client = m.client AND e.webhook = m.webhook AND m.owner IS DISTINCT FROM $3`

// isFree is SQL that tells whether a delivery can be claimed: nobody holds it, or its lease
// has ended and its holder is this worker or dead.
const isFree = `(leased_until IS NULL OR leased_until <= now() AND (holder = $5 OR NOT EXISTS (SELECT FROM dispatch_workers w WHERE w.id = holder)))`

// Many deliveries of an ordered endpoint are claimed at a time and attempted one after the
// other. With one a claim, each would wait until the outcome of the one before is noted.
const (
	// limit: deliveries | deliveries of an ordered endpoint that are claimed at a time | {maxChain}
	maxChain = 500
	// limit: deliveries | bodies of an ordered endpoint that are claimed at a time | {maxChainBytes B}, or one
	maxChainBytes = 1 << 20
)

// claimQueue takes deliveries in these steps:
//
//	quotas  how many each endpoint may begin, of those that do not ask for rest and whose owner
//	        is this worker, where they have one
//	first   deliveries that were never attempted, the oldest first
//	retry   deliveries that failed and are due; of an ordered endpoint one
//	chain   instead of first, of an ordered endpoint: its oldest deliveries, up to the first that
//	        is held, and up to maxChainBytes. While one waits for its retry, it takes none.
//	picked  all of these, which are marked as held by this worker until the lease ends
//
// An example: a quota of 3 first attempts takes the deliveries made 5, 6 and 8 where another
// worker holds 7. If the endpoint is ordered, it takes 5 and 6 alone.
//
// It reads the state of the subscription in the statement that takes the delivery, right before
// it is sent. Whatever the clock says, it takes nothing from another process that lives.
// $1, $7, $2, $3 and $6 are the quotas: webhook, client, first, retry and made; $4 is the lease,
// $5 the worker, $8 and $9 are the bounds of a chain.
const claimQueue = `
WITH quotas AS (
	SELECT t.*, e.ordered, ` + clockOf + ` AS clock, CASE WHEN e.max_per_second > 0 THEN least(e.max_per_second, $8) ELSE $8 END AS chain
	FROM unnest($1::text[], $2::int[], $3::int[], $6::bigint[], $7::text[]) AS t (webhook, first, retry, made, client)
	JOIN dispatch_endpoints e ON e.client = t.client AND e.webhook = t.webhook
	WHERE (e.held_until IS NULL OR e.held_until <= ` + clockOf + `) AND (e.owner = $5 OR NOT e.ordered AND e.max_per_second = 0)
), first AS (
	SELECT q.client, q.delivery FROM quotas t CROSS JOIN LATERAL (
		SELECT client, delivery FROM dispatch_queue
		WHERE webhook = t.webhook AND failed = 0 AND made >= t.made AND ` + isFree + `
		ORDER BY made LIMIT t.first FOR UPDATE SKIP LOCKED) q
	WHERE NOT t.ordered
), retry AS (
	SELECT q.client, q.delivery FROM quotas t CROSS JOIN LATERAL (
		SELECT client, delivery FROM dispatch_queue
		WHERE webhook = t.webhook AND failed > 0 AND due_at <= t.clock AND ` + isFree + `
		ORDER BY due_at LIMIT CASE WHEN t.ordered THEN least(t.retry, 1) ELSE t.retry END FOR UPDATE SKIP LOCKED) q
), chain AS (
	SELECT q.client, q.delivery FROM quotas t CROSS JOIN LATERAL (
		SELECT client, delivery, bool_and(free) OVER before AS reached, sum(bytes) OVER before - bytes AS bytes FROM (
			SELECT client, delivery, made, octet_length(body) AS bytes, ` + isFree + ` AS free FROM dispatch_queue
			WHERE webhook = t.webhook AND failed = 0 ORDER BY made LIMIT t.chain) head WINDOW before AS (ORDER BY made)) q
	WHERE t.ordered AND t.first > 0 AND q.reached AND q.bytes < $9 AND NOT EXISTS (SELECT FROM dispatch_queue f WHERE f.webhook = t.webhook AND f.failed > 0)
), picked AS (
	SELECT client, delivery, 0 AS kind FROM first UNION ALL SELECT client, delivery, 1 FROM retry UNION ALL SELECT client, delivery, 0 FROM chain
)
UPDATE dispatch_queue q SET token = q.token + 1, leased_until = now() + $4, holder = $5
FROM picked p, dispatch_endpoints e
WHERE q.client = p.client AND q.delivery = p.delivery AND e.client = q.client AND e.webhook = q.webhook
RETURNING q.delivery, q.token, p.kind, q.failed, q.client, q.webhook, q.event_type, q.body, q.test,
	` + isCancelled + `, q.external_ids, e.sealed_url, e.url, e.secrets, e.headers, e.respect_retry_after, e.ordered, e.max_per_second,
	now() - q.occurred_at, now() - q.queued_at, q.made, q.event, q.trace, ` + pairsOf

// pairsOf is SQL for the key pairs that sign for an endpoint e; null where it wants none.
const pairsOf = `CASE WHEN e.ed25519 THEN (SELECT c.keys FROM dispatch_clients c WHERE c.client = e.client) END`

const rereadQueue = `
SELECT t.i - 1, ` + isCancelled + `, e.sealed_url, e.url, e.secrets, e.headers, e.respect_retry_after, ` + pairsOf + `
FROM unnest($1::text[], $2::text[], $3::int[]) WITH ORDINALITY AS t (client, delivery, token, i)
JOIN dispatch_queue q ON q.client = t.client AND q.delivery = t.delivery AND q.token = t.token
JOIN dispatch_endpoints e ON e.client = q.client AND e.webhook = q.webhook`

// reread reads the state of the claims' subscriptions again, as of a time. A claim that this
// worker holds no longer keeps the state that it has.
func (q *queue) reread(ctx context.Context, claims []claim, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	clients, deliveries, tokens := make([]id.Client, len(claims)), make([]id.Delivery, len(claims)), make([]int, len(claims))
	for i, c := range claims {
		clients[i], deliveries[i], tokens[i] = c.Client, c.Delivery, c.Token
	}
	return q.send(ctx, func(b *pgx.Batch) {
		b.Queue(rereadQueue, clients, deliveries, tokens).Query(func(rows pgx.Rows) error {
			var (
				i    int
				read claim
			)
			_, err := pgx.ForEachRow(rows, []any{&i, &read.Cancelled, &read.Address.Sealed, &read.Address.Clear, &read.Secrets, &read.Headers, &read.Waits, &read.Pairs}, func() error {
				c := &claims[i]
				c.Cancelled, c.Address, c.Secrets, c.Headers, c.Waits, c.Pairs = read.Cancelled, read.Address, read.Secrets, read.Headers, read.Waits, read.Pairs
				c.read, read = at, claim{}
				return nil
			})
			return err
		})
	})
}

// quota is how many deliveries of each kind an endpoint may begin. Those that have never
// failed are looked for from made on, since all before that are held.
type quota struct {
	client  id.Client
	webhook id.Webhook
	n       [attemptKinds]int
	made    int64
}

// claim takes what is ready, up to each quota, under a lease.
func (q *queue) claim(ctx context.Context, quotas []quota) ([]claim, error) {
	webhooks, first, retry := make([]string, len(quotas)), make([]int32, len(quotas)), make([]int32, len(quotas))
	made, clients := make([]int64, len(quotas)), make([]string, len(quotas))
	for i, t := range quotas {
		webhooks[i], first[i], retry[i] = string(t.webhook), int32(t.n[firstAttempt]), int32(t.n[retryAttempt]) //nolint:gosec // bounded by the budgets
		made[i], clients[i] = t.made, string(t.client)
	}
	var claims []claim
	err := q.send(ctx, func(b *pgx.Batch) {
		b.Queue(commitLazily)
		b.Queue(ownEndpoints, webhooks, clients, q.holder.Load())
		b.Queue(claimQueue, webhooks, first, retry, q.lease, q.holder.Load(), made, clients, maxChain, maxChainBytes).Query(func(rows pgx.Rows) (err error) {
			claims, err = pgx.CollectRows(rows, scanClaim)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	return claims, nil
}

func scanClaim(row pgx.CollectableRow) (c claim, err error) {
	err = row.Scan(&c.Delivery, &c.Token, &c.Kind, &c.Failed, &c.Client, &c.Webhook, &c.EventType, &c.Body, &c.Test,
		&c.Cancelled, &c.External, &c.Address.Sealed, &c.Address.Clear, &c.Secrets, &c.Headers, &c.Waits, &c.Ordered, &c.Most, &c.Age, &c.Queued, &c.Made, &c.Event, &c.Trace, &c.Pairs)
	return c, err
}

// plannedAt is where a connection notes when it began to keep plans.
const plannedAt = "kindred: plans of the queue"

// send runs statements in one transaction and one round trip, by plans that are kept.
func (q *queue) send(ctx context.Context, queue func(*pgx.Batch)) error {
	conn, err := q.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var b pgx.Batch
	known := conn.Conn().PgConn().CustomData()
	now := q.now()
	if at, kept := known[plannedAt].(time.Time); !kept || now.Sub(at) >= keepPlans {
		known[plannedAt] = now
		b.Queue(`DISCARD PLANS`)
	}
	b.Queue(planOnce)
	queue(&b)
	return conn.SendBatch(ctx, &b).Close()
}

// sender is a pool or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// sendAfresh sends statements that look into the queue, behind planAfresh.
func sendAfresh(ctx context.Context, db sender, queue func(*pgx.Batch)) error {
	var b pgx.Batch
	b.Queue(planAfresh)
	queue(&b)
	return db.SendBatch(ctx, &b).Close()
}

// Each finds the webhooks of the queue by one index probe for each: the first entry of a
// webhook, then the first of the next one, and so on.
const (
	discoverFirst = `
WITH RECURSIVE found AS (
	(SELECT client, webhook, queued_at, made FROM dispatch_queue
	 WHERE failed = 0 AND webhook > $1 AND (leased_until IS NULL OR leased_until <= now()) ORDER BY webhook, made LIMIT 1)
	UNION ALL
	SELECT n.client, n.webhook, n.queued_at, n.made FROM found f CROSS JOIN LATERAL (
		SELECT client, webhook, queued_at, made FROM dispatch_queue
		WHERE failed = 0 AND webhook > f.webhook AND (leased_until IS NULL OR leased_until <= now()) ORDER BY webhook, made LIMIT 1) n
)
SELECT webhook, client, now() - queued_at, made FROM found LIMIT $2`

	discoverRetry = `
WITH RECURSIVE found AS (
	(SELECT client, webhook, due_at FROM dispatch_queue
	 WHERE failed > 0 AND webhook > $1 AND (leased_until IS NULL OR leased_until <= now()) ORDER BY webhook, due_at LIMIT 1)
	UNION ALL
	SELECT n.client, n.webhook, n.due_at FROM found f CROSS JOIN LATERAL (
		SELECT client, webhook, due_at FROM dispatch_queue
		WHERE failed > 0 AND webhook > f.webhook AND (leased_until IS NULL OR leased_until <= now()) ORDER BY webhook, due_at LIMIT 1) n
)
SELECT webhook, client, ` + clockOf + ` - ` + dueFrom + `, 0::bigint FROM found e LIMIT $2`
)

// dueFrom is when a delivery e that has failed is tried again: at its time, and not before its
// endpoint's wait has ended. Both are by its client's clock.
const dueFrom = `greatest(due_at, (SELECT h.held_until FROM dispatch_endpoints h WHERE h.client = e.client AND h.webhook = e.webhook))`

// waiting is an endpoint that has something in the queue.
type waiting struct {
	Webhook id.Webhook
	Client  id.Client
	Overdue time.Duration // of its first entry that is not held; negative where that is not due yet
	Made    int64         // the place of that entry; 0 for retries
}

// maxDiscovered bounds the endpoints of one look; the next look goes on behind them.
// limit: deliveries | endpoints of one look for work | {maxDiscovered}
const maxDiscovered = 2_000

// discover lists the endpoints that have something to do, from one webhook on.
func (q *queue) discover(ctx context.Context, after [attemptKinds]id.Webhook) (found [attemptKinds][]waiting, err error) {
	err = q.send(ctx, func(b *pgx.Batch) {
		for kind, sql := range [attemptKinds]string{discoverFirst, discoverRetry} {
			b.Queue(sql, after[kind], maxDiscovered).Query(func(rows pgx.Rows) (err error) {
				found[kind], err = pgx.CollectRows(rows, pgx.RowToStructByPos[waiting])
				return err
			})
		}
	})
	if err != nil {
		return found, fmt.Errorf("look at the queue: %w", err)
	}
	return found, nil
}

// sweepQueue makes the cancelled retries of endpoints due, so that they are
// claimed and end now instead of at their time. What is leased is left to
// the worker that holds it, and what another holds locked to the next sweep. Up to
// 100 endpoints share a sweep ($1), since claims wait for its end.
const sweepQueue = `
WITH stopped AS (
	SELECT client, webhook, cancelled_through, event_types, dropped_types, ` + clockOf + ` AS clock
	FROM dispatch_endpoints e WHERE sweeping ORDER BY client, webhook LIMIT 100
), share AS (
	SELECT $1::int / greatest(count(*), 1) AS most FROM stopped
), waiting AS (
	SELECT e.client, w.delivery, e.clock FROM stopped e CROSS JOIN LATERAL (
		SELECT delivery FROM dispatch_queue q
		WHERE webhook = e.webhook AND failed > 0 AND due_at > e.clock AND leased_until IS NULL AND ` + isCancelled + `
		ORDER BY due_at LIMIT (SELECT most FROM share) FOR UPDATE SKIP LOCKED) w
), pulled AS (
	UPDATE dispatch_queue q SET due_at = w.clock FROM waiting w WHERE q.client = w.client AND q.delivery = w.delivery RETURNING q.webhook
)
UPDATE dispatch_endpoints e SET sweeping = false FROM stopped s
WHERE e.client = s.client AND e.webhook = s.webhook AND e.cancelled_through = s.cancelled_through AND e.dropped_types = s.dropped_types
	AND (SELECT count(*) FROM pulled p WHERE p.webhook = s.webhook) = (
		SELECT count(*) FROM (SELECT FROM dispatch_queue q
			WHERE webhook = e.webhook AND failed > 0 AND due_at > s.clock AND leased_until IS NULL AND ` + isCancelled + ` LIMIT (SELECT most + 1 FROM share)) waits)`

// limit: deliveries | retries of paused or removed subscriptions that one look for work cancels | {maxSwept}
const maxSwept = 2_000

func (q *queue) sweep(ctx context.Context) error {
	err := q.send(ctx, func(b *pgx.Batch) { b.Queue(sweepQueue, maxSwept) })
	if err != nil {
		return fmt.Errorf("cancel what waits: %w", err)
	}
	return nil
}

// verdict is how a claim ended.
type verdict string

const (
	delivered verdict = "delivered"
	failed    verdict = "failed"    // tried again, or dropped
	cancelled verdict = "cancelled" // never sent
	forgotten verdict = "forgotten" // cancelled for good: it names a user who was erased
	returned  verdict = "returned"  // never sent, through no fault of the endpoint: tried again, and not counted
)

// outcome is a claim's end.
type outcome struct {
	claim   claim
	verdict verdict
	retryIn time.Duration // for failed and returned; negative: the schedule is exhausted
	hold    time.Duration // how long its receiver asks for nothing; 0: it does not
	latency time.Duration // of the attempt
	began   time.Time     // when it was taken up
	status  int           // 0: there was no answer
	err     string
	answer  []byte
}

// completeQueue ends claims. A verdict leads to a state, and this says where the delivery goes:
//
//	verdict              state      the delivery
//	delivered            delivered  goes (gone, ended)
//	cancelled            cancelled  goes
//	forgotten            cancelled  goes, and counts as recovered, so that no recovery queues it again
//	failed, no retry_in  dropped    goes
//	failed, returned     cancelled  goes, where the subscription has cancelled it meanwhile
//	failed               failed     waits for its retry, and has failed once more (again)
//	returned             returned   is held for so long, and then tried as if it had not been (again)
//
// Only the last claim of a delivery decides about it, once: held are those whose token is the
// newest. It logs every attempt that took place (attempt), tells of each end but of tests (telling),
// and keeps what the receiver asked for: nothing for a while (holding, quiet). It locks rows in
// one order, so that two completions cannot wait for each other.
const completeQueue = `
WITH done AS (
	SELECT * FROM unnest($1::text[], $2::int[], $3::text[], $4::interval[], $5::int[], $6::interval[], $7::bigint[], $8::int[], $9::text[], $10::bytea[], $11::text[], $12::interval[])
		AS d (delivery, token, verdict, retry_in, attempt, began, latency_us, status, error, answer, client, hold)
), attempt AS (
	INSERT INTO dispatch_attempts (client, delivery, attempt, at, latency_us, status, error, answer)
	SELECT client, delivery, attempt, now() - began, latency_us, status, error, answer FROM done
	WHERE verdict IN ('delivered', 'failed')
), held AS (
	SELECT q.client, q.delivery, q.webhook, d.hold, d.retry_in, d.attempt, d.verdict = 'forgotten' AS forgotten,
		CASE WHEN d.verdict IN ('delivered', 'cancelled') THEN d.verdict
			WHEN d.verdict = 'forgotten' THEN 'cancelled'
			WHEN d.verdict = 'failed' AND d.retry_in IS NULL THEN 'dropped'
			WHEN ` + isCancelled + ` THEN 'cancelled'
			ELSE d.verdict END AS state
	FROM (SELECT * FROM done ORDER BY client, delivery) d
	JOIN dispatch_queue q ON q.client = d.client AND q.delivery = d.delivery AND q.token = d.token
	JOIN dispatch_endpoints e ON e.client = q.client AND e.webhook = q.webhook
	FOR UPDATE OF q
), holding AS (
	SELECT e.client, e.webhook, h.hold FROM (SELECT client, webhook, max(hold) AS hold FROM held WHERE hold > '0' GROUP BY client, webhook) h
	JOIN dispatch_endpoints e ON e.client = h.client AND e.webhook = h.webhook
	ORDER BY e.client, e.webhook FOR UPDATE OF e
), quiet AS (
	UPDATE dispatch_endpoints e SET held_until = greatest(e.held_until, ` + clockOf + ` + h.hold) FROM holding h
	WHERE e.client = h.client AND e.webhook = h.webhook
), again AS (
	UPDATE dispatch_queue q
	SET token = q.token + 1, failed = q.failed + (e.state = 'failed')::int, due_at = ` + clockOf + ` + e.retry_in,
		leased_until = CASE WHEN e.state = 'returned' THEN now() + e.retry_in END
	FROM held e WHERE q.client = e.client AND q.delivery = e.delivery AND e.state IN ('failed', 'returned')
	RETURNING q.delivery, e.state
), gone AS (
	DELETE FROM dispatch_queue q USING held h
	WHERE q.client = h.client AND q.delivery = h.delivery AND h.state NOT IN ('failed', 'returned')
	RETURNING q.delivery, q.client, q.webhook, q.event, q.event_type, q.body, q.occurred_at, q.queued_at, q.test, q.made,
		q.redelivery_of, q.external_ids, h.forgotten, h.state, CASE WHEN h.attempt > 0 THEN h.attempt ELSE q.failed END AS attempts
), ended AS (
	INSERT INTO dispatch_deliveries (delivery, client, webhook, event, event_type, body, occurred_at, queued_at, test, made,
		redelivery_of, external_ids, recovered, attempts, state, ended_at)
	SELECT delivery, client, webhook, event, event_type, body, occurred_at, queued_at, test, made,
		redelivery_of, external_ids, forgotten, attempts, state, now()
	FROM gone
), telling AS (
	INSERT INTO dispatch_endings (client, webhook, delivery, event, state, attempts, ended_at)
	SELECT client, webhook, delivery, event, state, attempts, now() FROM gone WHERE NOT test
)
SELECT delivery, state FROM again UNION ALL SELECT delivery, state FROM gone`

// A completion whose answer was lost may be committed, or be in a moment. These statements
// wait for that, and delete the attempts that it logged, which are then logged anew.
const (
	lockQueue = `
SELECT FROM dispatch_queue WHERE (client, delivery) IN (SELECT * FROM unnest($1::text[], $2::text[])) ORDER BY client, delivery FOR UPDATE`
	unlogAttempt = `
DELETE FROM dispatch_attempts a USING unnest($1::text[], $2::text[], $3::int[], $4::bigint[]) AS d (client, delivery, attempt, latency_us)
WHERE a.client = d.client AND a.delivery = d.delivery AND a.attempt = d.attempt AND a.latency_us = d.latency_us`
)

// complete notes how claims ended and returns what became of each delivery: delivered,
// dropped, cancelled, failed (it waits for its retry) or returned. A delivery that another
// worker took over is missing.
//
// Times are passed as durations until now, and the database makes times of them. repeated
// says that the answer to an earlier try was lost; the outcomes still count once.
func (q *queue) complete(ctx context.Context, outcomes []outcome, now time.Time, repeated bool) (map[id.Delivery]string, error) {
	n := len(outcomes)
	var (
		deliveries, verdicts = make([]string, n), make([]string, n)
		clients              = make([]string, n)
		tokens, attempts     = make([]int32, n), make([]int32, n)
		retries              = make([]*time.Duration, n)
		began, holds         = make([]time.Duration, n), make([]time.Duration, n)
		latencies            = make([]int64, n)
		statuses             = make([]pgtype.Int4, n)
		errs                 = make([]pgtype.Text, n)
		answers              = make([][]byte, n)
	)
	for i, o := range outcomes {
		clients[i], holds[i] = string(o.claim.Client), o.hold
		deliveries[i], verdicts[i], tokens[i] = string(o.claim.Delivery), string(o.verdict), int32(o.claim.Token) //nolint:gosec // counted from 0
		began[i], latencies[i] = min(max(0, now.Sub(o.began)), time.Hour), max(0, o.latency).Microseconds()
		if o.verdict == delivered || o.verdict == failed {
			attempts[i] = int32(o.claim.Failed + 1) //nolint:gosec // at most the schedule's length
		}
		if o.retryIn >= 0 { // it counts from the attempt's end, not from now
			since := now.Sub(o.began.Add(o.latency))
			if since < 0 || since > dbTimeout { // the clock has jumped
				since = 0
			}
			left := max(0, o.retryIn-since)
			retries[i] = &left
		}
		statuses[i] = pgtype.Int4{Int32: int32(o.status), Valid: o.status != 0} //nolint:gosec // three digits
		errs[i] = pgtype.Text{String: o.err, Valid: o.err != ""}
		answers[i] = o.answer
	}
	states := make(map[id.Delivery]string, n)
	err := q.send(ctx, func(b *pgx.Batch) {
		if repeated {
			b.Queue(lockQueue, clients, deliveries)
			b.Queue(unlogAttempt, clients, deliveries, attempts, latencies)
		}
		b.Queue(completeQueue, deliveries, tokens, verdicts, retries, attempts, began, latencies, statuses, errs, answers, clients, holds).
			Query(func(rows pgx.Rows) error {
				var (
					delivery id.Delivery
					state    string
				)
				_, err := pgx.ForEachRow(rows, []any{&delivery, &state}, func() error {
					states[delivery] = state
					return nil
				})
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("note %d outcomes: %w", n, err)
	}
	return states, nil
}
