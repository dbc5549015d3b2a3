package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/testkit"
)

// outcomes end claims with one verdict.
func outcomes(v verdict, claims ...claim) []outcome {
	all := make([]outcome, len(claims))
	for i, c := range claims {
		all[i] = outcome{claim: c, verdict: v, began: time.Now(), latency: time.Millisecond, retryIn: time.Minute, status: 200}
	}
	return all
}

// note completes claims with one verdict.
func (r *fixture) note(v verdict, claims ...claim) map[id.Delivery]string {
	r.Helper()
	return r.noteAll(outcomes(v, claims...), false)
}

func (r *fixture) noteAll(outcomes []outcome, repeated bool) map[id.Delivery]string {
	r.Helper()
	states, err := r.queue(time.Minute).complete(r.Context(), outcomes, time.Now(), repeated)
	if err != nil {
		r.Fatal(err)
	}
	return states
}

func (r *fixture) endLeases() {
	r.exec(`UPDATE dispatch_queue SET leased_until = now() WHERE leased_until IS NOT NULL`)
}

func TestALeaseKeepsOthersOffAndEnds(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	dead := r.claim(10)
	if len(dead) != 1 || len(r.claim(10)) != 0 {
		t.Fatal("claimed by two at once, or by nobody")
	}
	r.endLeases()
	taken := r.claim(10)
	if len(taken) != 1 || taken[0].Failed != 0 || taken[0].Delivery != dead[0].Delivery {
		t.Fatalf("not taken over as it was: %v", taken)
	}
	if states := r.note(failed, dead[0]); len(states) != 0 {
		t.Errorf("whoever lost the lease still decides: %v", states)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE leased_until IS NOT NULL AND failed = 0`); n != 1 {
		t.Error("the taken-over delivery was touched")
	}
	if states := r.note(delivered, taken[0]); states[taken[0].Delivery] != "delivered" {
		t.Errorf("states %v", states)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_attempts`); n != 2 {
		t.Errorf("%d attempts logged, not both", n)
	}
}

// logged is how many attempts of a delivery are in the log.
func (r *fixture) logged(d id.Delivery) int {
	r.Helper()
	return r.count(`SELECT count(*) FROM dispatch_attempts WHERE delivery = $1`, d)
}

// The answer to a completion may be lost after its commit, and not before.
func TestAnOutcomeThatIsNotedAgainCountsOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 4)...)
	claims := r.claim(4)
	noted := slices.Concat(outcomes(failed, claims[0]), outcomes(returned, claims[1]), outcomes(delivered, claims[2]))
	if states := r.noteAll(noted, false); len(states) != 3 {
		t.Fatalf("noted %v", states)
	}
	if states := r.noteAll(append(noted, outcomes(failed, claims[3])...), true); len(states) != 1 || states[claims[3].Delivery] != "failed" {
		t.Errorf("noted again %v", states)
	}
	for i, want := range []int{1, 0, 1, 1} {
		if n := r.logged(claims[i].Delivery); n != want {
			t.Errorf("%d attempts of delivery %d are logged, not %d", n, i, want)
		}
	}
	if n := r.count(`SELECT max(failed) FROM dispatch_queue`); n != 1 {
		t.Errorf("one attempt counts %d times", n)
	}
	r.endLeases()
	r.exec(`UPDATE dispatch_queue SET due_at = now()`)
	for _, c := range r.claim(4) {
		if states := r.note(delivered, c); states[c.Delivery] != "delivered" {
			t.Errorf("the next attempt cannot be noted: %v", states)
		}
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endings`); n != 4 {
		t.Errorf("%d ends are told, not 4", n)
	}
}

// The completion whose answer is awaited no more may still be under way.
func TestAnOutcomeIsNotedAgainBehindItsFirstNote(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	claims := r.claim(1)
	held, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.Background()) }()
	if _, err := held.Exec(t.Context(), `SELECT FROM dispatch_queue FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	noted := outcomes(failed, claims...)
	var noting sync.WaitGroup
	for n, repeated := range []bool{false, true} {
		noting.Go(func() {
			if _, err := r.queue(time.Minute).complete(t.Context(), noted, time.Now(), repeated); err != nil {
				t.Error(err)
			}
		})
		testkit.Eventually(r.TB, "it waits", func() bool {
			return r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == n+1
		})
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	noting.Wait()
	if n := r.logged(claims[0].Delivery); n != 1 {
		t.Errorf("%d attempts are logged, not 1", n)
	}
	if n := r.count(`SELECT failed FROM dispatch_queue`); n != 1 {
		t.Errorf("one attempt counts %d times", n)
	}
}

func TestWhatIsReturnedDoesNotCountAsAFailure(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	claims := r.claim(1)
	if states := r.note(returned, claims...); states[claims[0].Delivery] != "returned" {
		t.Fatalf("states %v", states)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE failed = 0 AND leased_until > now()`); n != 1 {
		t.Error("not handed back as it was")
	}
	if n := r.count(`SELECT count(*) FROM dispatch_attempts`); n != 0 {
		t.Error("an attempt was logged that was never made")
	}
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	if err := r.queue(time.Minute).sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.endLeases() // its time has come
	if claims = r.claim(1); len(claims) != 1 || !claims[0].Cancelled {
		t.Fatalf("not cancelled: %v", claims)
	}
	if states := r.note(cancelled, claims...); states[claims[0].Delivery] != "cancelled" {
		t.Fatalf("states %v", states)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE sweeping`); n != 0 {
		t.Error("still sweeping")
	}
}

func TestAFailureAfterAPauseEndsTheDelivery(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 3)...)
	claims := r.claim(3)
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}), r.recorded(client, event.WebhookResumed{Webhook: webhook}))
	for v, want := range map[verdict]string{failed: "cancelled", returned: "cancelled", delivered: "delivered"} {
		if states := r.note(v, claims[0]); states[claims[0].Delivery] != want {
			t.Errorf("what %s after a pause is %v, not %s", v, states, want)
		}
		claims = claims[1:]
	}
}

func TestAResumedWebhookKeepsItsPauseForWhatWaited(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	r.note(failed, r.claim(1)...)
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	r.apply(r.recorded(client, event.WebhookResumed{Webhook: webhook}), r.match(client))
	r.note(failed, r.claim(1)...) // of the second event
	if err := r.queue(time.Minute).sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if claims := r.claim(10); len(claims) != 1 || !claims[0].Cancelled {
		t.Errorf("claimed %v, want only the first, cancelled", claims)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE leased_until IS NULL AND failed = 1 AND due_at > now()`); n != 1 {
		t.Error("the retry of the second event does not wait for its time")
	}
}

// Claims wait for a sweep, which is to end however much is to be cancelled.
func TestASweepTakesPartOfWhatManyEndpointsHaveCancelled(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	var all []id.Webhook
	for range 5 {
		webhook, subscribed := r.subscribe(client, "http://a.example", "")
		r.apply(subscribed)
		all = append(all, webhook)
	}
	r.apply(r.match(client))
	r.exec(`INSERT INTO dispatch_queue (client, delivery, webhook, event, position, event_type, body, occurred_at)
		SELECT client, 'dlv_' || webhook || n, webhook, event, position, event_type, body, occurred_at FROM dispatch_queue, generate_series(1, 999) n`)
	r.exec(`UPDATE dispatch_queue SET failed = 1, due_at = now() + interval '1 hour'`)
	for _, webhook := range all {
		r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	}
	for _, want := range []struct{ due, sweeping int }{{2_000, 5}, {4_000, 5}, {5_000, 0}} {
		if err := r.queue(time.Minute).sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		due := r.count(`SELECT count(*) FROM dispatch_queue WHERE due_at <= now()`)
		sweeping := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE sweeping`)
		if due != want.due || sweeping != want.sweeping {
			t.Errorf("%d are due and %d endpoints have more, not %+v", due, sweeping, want)
		}
	}
}

// The lock is that of another process, as of one that sweeps and is then broken off.
func TestACancelledRetryThatIsLockedIsSweptOnceItIsNot(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	r.note(failed, r.claim(1)...)
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	held, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.Background()) }()
	if _, err := held.Exec(t.Context(), `SELECT FROM dispatch_queue FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		t.Helper()
		if err := r.queue(time.Minute).sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sweep()
	if claims := r.claim(10); len(claims) != 1 || !claims[0].Cancelled {
		t.Errorf("claimed %v, want what is cancelled", claims)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE sweeping`); n != 0 {
		t.Error("still sweeping")
	}
}

// explained is a node of a plan, as EXPLAIN (FORMAT JSON) writes it.
type explained struct {
	Type  string      `json:"Node Type"`
	Table string      `json:"Relation Name"`
	Index string      `json:"Index Name"`
	Rows  float64     `json:"Actual Rows"`
	Loops float64     `json:"Actual Loops"`
	Gone  float64     `json:"Rows Removed by Filter"`
	Gone2 float64     `json:"Rows Removed by Index Recheck"`
	Hits  float64     `json:"Shared Hit Blocks"`
	Reads float64     `json:"Shared Read Blocks"`
	Plans []explained `json:"Plans"`
}

func (e explained) each(visit func(explained)) {
	visit(e)
	for _, p := range e.Plans {
		p.each(visit)
	}
}

func TestWorkOnTheQueueStaysFlatAsItGrows(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	_, other := r.subscribe(client, "http://b.example", "")
	r.apply(subscribed, other)
	// When it was last analysed, each webhook had one entry.
	r.exec(`
INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, failed, token, due_at)
SELECT n, 'c', 'v' || n, n, n, 'match.computed', '{}', now(), n % 2, 1, now() + interval '1 day' FROM generate_series(1, 4000) n`)
	r.exec(`ANALYZE`)
	now := time.Now()
	q := &queue{pool: r.oneConnection(), now: func() time.Time { return now }}
	run := func(sql string) (text string) {
		t.Helper()
		err := q.send(t.Context(), func(b *pgx.Batch) {
			b.Queue(sql).Query(func(rows pgx.Rows) error {
				for rows.Next() {
					if values := rows.RawValues(); len(values) > 0 {
						text = string(values[0])
					}
				}
				return rows.Err()
			})
		})
		if err != nil {
			t.Fatalf("%v: %s", err, sql)
		}
		return text
	}
	one := "'{" + string(webhook) + "}'"
	statements := map[string]struct {
		sql, args string
		most      float64 // blocks
	}{
		"claim":    {claimQueue, one + `, '{10}', '{10}', '1 min', 1, '{0}', '{` + string(client) + `}', 200, 1048576`, 800},
		"first":    {discoverFirst, `'', 2000`, 100},
		"retries":  {discoverRetry, `'', 2000`, 100},
		"reread":   {rereadQueue, `'{` + string(client) + `}', '{d1` + string(webhook) + `}', '{1}'`, 50},
		"complete": {completeQueue, `'{d1` + string(webhook) + `}', '{1}', '{delivered}', '{NULL}', '{1}', '{0}', '{5}', '{200}', '{NULL}', '{NULL}', '{` + string(client) + `}', '{1h}'`, 300},
	}
	// Plans are made while the queue is empty: the worst case. Those are not kept for long.
	r.exec(`DELETE FROM dispatch_queue`)
	r.exec(`VACUUM dispatch_queue`)
	for name, s := range statements {
		run("PREPARE " + name + " AS " + s.sql)
		for range 10 {
			run("EXECUTE " + name + "(" + s.args + ")")
		}
	}
	r.exec(`
INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at, failed, token, due_at)
SELECT 'd' || n || webhook, client, webhook, 'e' || n, lpad(to_hex(n), 16, '0'), 'match.computed', '{}', now(), n % 2, 1, now() + (n - 1000) * interval '1 s'
FROM generate_series(1, 100000) n, dispatch_endpoints`)
	now = now.Add(keepPlans)
	for name, s := range statements {
		t.Run(name, func(t *testing.T) {
			text := run("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE " + name + "(" + s.args + ")")
			var plans []struct {
				Plan explained
			}
			if err := json.Unmarshal([]byte(text), &plans); err != nil {
				t.Fatal(err)
			}
			scans := 0
			plans[0].Plan.each(func(e explained) {
				if !strings.HasPrefix(e.Table, "dispatch_queue") || e.Type == "ModifyTable" {
					return
				}
				scans++
				if e.Type != "Index Scan" && e.Type != "Index Only Scan" {
					t.Errorf("a %s", e.Type)
				}
				if read := (e.Rows + e.Gone + e.Gone2) * e.Loops; read > 30 {
					t.Errorf("%s on %s reads %g rows", e.Type, e.Index, read)
				}
			})
			if blocks := plans[0].Plan.Hits + plans[0].Plan.Reads; scans == 0 || blocks > s.most {
				t.Errorf("%d scans, %g blocks, which is over %g", scans, blocks, s.most)
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

// oneConnection is a pool of one connection, whose plans can be looked at.
func (r *fixture) oneConnection() *pgxpool.Pool {
	r.Helper()
	config := r.pool.Config()
	config.MinConns, config.MaxConns = 0, 1
	pool, err := pgxpool.NewWithConfig(r.Context(), config)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(pool.Close)
	return pool
}

// neverPlans fails where the connection of a pool has made plans of a kind (generic_plans,
// which are kept, or custom_plans) for one of its statements about the queue, of which there
// are so many with parameters.
func (r *fixture) neverPlans(pool *pgxpool.Pool, kind string, statements int) {
	r.Helper()
	rows, err := pool.Query(r.Context(), `
SELECT statement, `+kind+` FROM pg_prepared_statements WHERE statement LIKE '%dispatch_queue%' AND cardinality(parameter_types) > 0`)
	if err != nil {
		r.Fatal(err)
	}
	var statement string
	var made int
	tag, err := pgx.ForEachRow(rows, []any{&statement, &made}, func() error {
		if made > 0 {
			r.Errorf("%d %s: %s", made, kind, statement)
		}
		return nil
	})
	if err != nil || tag.RowsAffected() != int64(statements) {
		r.Errorf("%d statements, %v", tag.RowsAffected(), err)
	}
}

// The sixth time, a statement may go by a plan that is kept until the connection ends.
const oftenEnough = 10

func TestPlansOfWorkOnTheQueueAreKept(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	pool := r.oneConnection()
	q := &queue{pool: pool, lease: time.Minute, now: time.Now}
	c := claim{Client: client, Webhook: webhook, Delivery: "d", Token: 1}
	for range oftenEnough {
		_, claiming := q.claim(t.Context(), []quota{{client: client, webhook: webhook, n: [attemptKinds]int{1, 1}}})
		_, looking := q.discover(t.Context(), [attemptKinds]id.Webhook{})
		_, noting := q.complete(t.Context(), []outcome{{claim: c, verdict: delivered, began: time.Now()}}, time.Now(), true)
		if err := errors.Join(claiming, looking, noting, q.sweep(t.Context()), q.reread(t.Context(), []claim{c}, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	r.neverPlans(pool, "custom_plans", 7)
}

func TestNoPlanOfAListOfDeliveriesIsKept(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	pool := r.oneConnection()
	m := r.manual()
	m.Log = Log{Pool: pool, Progress: projector.NewProgress(pool, r.Logger)}
	for range oftenEnough {
		var errs []error
		for _, status := range []string{"", StatusPending} {
			_, _, err := m.List(t.Context(), client, webhook, true, Query{Status: status, Limit: 10})
			errs = append(errs, err)
		}
		_, err := m.Health(t.Context(), client, webhook, true)
		_, failing := m.Failing(t.Context(), client, 10)
		test, testing := m.Test(t.Context(), client, webhook, matchType, nil)
		_, again := m.Redeliver(t.Context(), client, webhook, test.ID, nil)
		if err := errors.Join(append(errs, err, failing, testing, again)...); err != nil {
			t.Fatal(err)
		}
	}
	r.neverPlans(pool, "generic_plans", 8) // two lists, health, what fails, get, how many tests, a test, a redelivery
}

func TestPartitionsAreMadeAheadAndDroppedWhenTheyAreOld(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	day := func(ago int) string {
		return time.Now().UTC().AddDate(0, 0, -ago).Format(postgres.PartitionDay)
	}
	for _, table := range []string{"dispatch_deliveries", "dispatch_attempts"} {
		for _, ago := range []int{29, 30, 31, 32, 400} {
			from := time.Now().UTC().AddDate(0, 0, -ago)
			r.exec(fmt.Sprintf(`CREATE TABLE %s_%s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')`, table, day(ago), table,
				from.Format("2006-01-02Z"), from.AddDate(0, 0, 1).Format("2006-01-02Z")))
		}
	}
	if err := r.dropExpired(t.Context(), 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"dispatch_deliveries", "dispatch_attempts"} {
		for ago, want := range map[int]int{400: 0, 32: 0, 31: 0, 30: 1, 29: 1, 1: 1, 0: 1, -1: 1, -2: 1, -3: 1, -4: 0} {
			if n := r.count(`SELECT count(*) FROM pg_class WHERE relname = $1`, table+"_"+day(ago)); n != want {
				t.Errorf("%d partitions of %s for %d days ago, not %d", n, table, ago, want)
			}
		}
	}
}

func TestARemovedWebhookIsForgottenAfterTheRetention(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	r.at = time.Now().AddDate(0, 0, -31)
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	kept, subscribed2 := r.subscribe(client, "http://b.example", "")
	r.apply(subscribed, subscribed2, r.recorded(client, event.WebhookRemoved{Webhook: webhook}), r.match(client),
		r.recorded(client, event.WebhookRemoved{Webhook: kept}))
	if err := r.dropExpired(t.Context(), 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE webhook = $1`, webhook); n != 0 {
		t.Error("a webhook that was removed long ago is kept")
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE webhook = $1`, kept); n != 1 {
		t.Error("a webhook whose deliveries are still queued is forgotten")
	}
}

func TestADiscoveryTellsHowOldTheOldestIs(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 3)...)
	r.exec(`UPDATE dispatch_queue SET queued_at = now() - interval '1 h'`)
	r.note(failed, r.claim(1)...)
	r.exec(`UPDATE dispatch_queue SET due_at = now() - interval '1 min' WHERE failed > 0`)
	found, err := (&queue{pool: r.Pool, now: time.Now}).discover(t.Context(), [attemptKinds]id.Webhook{})
	if err != nil {
		t.Fatal(err)
	}
	first, retries := found[firstAttempt], found[retryAttempt]
	if len(first) != 1 || len(retries) != 1 ||
		oldest(first) < time.Hour || oldest(first) > time.Hour+time.Minute ||
		oldest(retries) < time.Minute || oldest(retries) > 2*time.Minute {
		t.Errorf("found %+v", found)
	}
}

func TestTheOldestIsAttemptedFirst(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	events := r.matches(client, 3)
	r.apply(events...)
	for _, e := range events {
		if claims := r.claim(1); len(claims) != 1 || claims[0].Event != e.ID {
			t.Errorf("claimed %+v, not %s", claims, e.ID)
		}
	}
}

// What is free again once its lease has ended no notification tells of.
func TestALookFindsWhatIsFreeAgain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	for range 2 {
		_, subscribed := r.subscribe(client, "http://a.example", "")
		r.apply(subscribed)
	}
	r.apply(r.matches(client, 2)...)
	found := func() (n [attemptKinds]int) {
		t.Helper()
		endpoints, err := r.queue(time.Minute).discover(t.Context(), [attemptKinds]id.Webhook{})
		if err != nil {
			t.Fatal(err)
		}
		for kind := range n {
			n[kind] = len(endpoints[kind])
		}
		return n
	}
	r.note(failed, r.claim(1)...)
	r.exec(`UPDATE dispatch_queue SET due_at = now() WHERE failed > 0`)
	if n := found(); n != [attemptKinds]int{2, 2} {
		t.Errorf("work of %v endpoints is found", n)
	}
	r.claim(2)
	if n := found(); n != [attemptKinds]int{} {
		t.Errorf("of what is held, work of %v endpoints is found", n)
	}
	r.endLeases()
	if n := found(); n != [attemptKinds]int{2, 2} {
		t.Errorf("once the leases have ended, work of %v endpoints is found", n)
	}
}

// However long its outcome took to be noted, and wherever the clock of its process went.
func TestTheScheduleCountsFromTheEndOfAnAttempt(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	for _, of := range []struct{ began, dueIn time.Duration }{
		{0, 30 * time.Second}, {-6 * time.Second, 25 * time.Second}, {-time.Hour, 30 * time.Second}, {time.Hour, 30 * time.Second},
	} {
		r.apply(r.match(client))
		now := time.Now()
		o := outcome{claim: r.claim(1)[0], verdict: failed, began: now.Add(of.began), latency: time.Second, retryIn: 30 * time.Second}
		if _, err := r.queue(time.Minute).complete(t.Context(), []outcome{o}, now, false); err != nil {
			t.Fatal(err)
		}
		n := r.count(`SELECT round(extract(epoch FROM due_at - queued_at)) FROM dispatch_queue WHERE delivery = $1`, o.claim.Delivery)
		if want := int(of.dueIn.Seconds()); n < want || n > want+3 { // a slow machine queues a moment before
			t.Errorf("of an attempt that began %s from now, the retry is due in %d s, not in %d", of.began, n, want)
		}
	}
}

func TestNotingAgainTakesBackNoAttemptOfAnother(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	late := outcomes(failed, r.claim(1)...)
	late[0].latency = time.Minute
	r.endLeases()
	taken := outcomes(delivered, r.claim(1)...)
	r.noteAll(late, false)
	r.noteAll(taken, true)
	if n := r.logged(taken[0].claim.Delivery); n != 2 {
		t.Errorf("%d attempts are logged, not both", n)
	}
}

func TestWhatIsCancelledWasAttemptedAsOftenAsItWas(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	r.note(failed, r.claim(1)...)
	r.exec(`UPDATE dispatch_queue SET due_at = now()`)
	claims := r.claim(1)
	r.note(cancelled, claims...)
	shown, _, err := r.manual().List(t.Context(), client, webhook, true, Query{Limit: 9})
	if err != nil || len(shown) != 1 || len(shown[0].Attempts) != 1 || shown[0].Status != StatusCancelled {
		t.Errorf("shown as %+v, %v", shown, err)
	}
	for _, told := range []string{`SELECT attempts FROM dispatch_deliveries`, `SELECT attempts FROM dispatch_endings`} {
		if n := r.count(told); n != 1 {
			t.Errorf("%d attempts by %s", n, told)
		}
	}
}
