package dispatcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

var (
	_ projector.Projection = (*Dispatcher)(nil)
	_ projector.PerClient  = (*Dispatcher)(nil)
)

// claim takes n deliveries of whatever webhook waits, as a worker does.
func (r *fixture) claim(n int) []claim {
	r.Helper()
	return r.claimBy(r.queue(30*time.Second), n)
}

// claimBy claims as the process whose queue it is.
func (r *fixture) claimBy(q *queue, n int) []claim {
	r.Helper()
	found, err := q.discover(r.Context(), [attemptKinds]id.Webhook{})
	if err != nil {
		r.Fatal(err)
	}
	var quotas []quota
	for kind := range attemptKinds {
		for _, e := range found[kind] {
			quotas = append(quotas, quota{client: e.Client, webhook: e.Webhook})
			quotas[len(quotas)-1].n[kind] = n
		}
	}
	claims, err := q.claim(r.Context(), quotas)
	if err != nil {
		r.Fatal(err)
	}
	return claims
}

func (r *fixture) queue(lease time.Duration) *queue {
	return &queue{pool: r.pool, control: r.pool, lease: lease, now: time.Now}
}

// fates says which of the queued deliveries would be sent, and which cancelled,
// by their events.
func (r *fixture) fates() (sent, stopped []id.Event) {
	r.Helper()
	for _, c := range r.claim(100) {
		var e id.Event
		if err := r.pool.QueryRow(r.Context(), `SELECT event FROM dispatch_queue WHERE delivery = $1`, c.Delivery).Scan(&e); err != nil {
			r.Fatal(err)
		}
		if c.Cancelled {
			stopped = append(stopped, e)
		} else {
			sent = append(sent, e)
		}
	}
	return sent, stopped
}

// What came with a replayed log was told where it happened.
func TestOfAReplayedLogOnlyWhatFollowsIsDelivered(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "https://a.example", "")
	replayed, last, next := r.match(client), r.match(client), r.match(client)
	r.SilentThrough = last.Position
	r.apply(subscribed, replayed, last, next)
	if sent, _ := r.fates(); !slices.Equal(sent, []id.Event{next.ID}) {
		t.Errorf("sent are %v, not %s", sent, next.ID)
	}
}

func TestEndpointsAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	one, first := r.subscribe(client, "http://a.example", "")
	two, second := r.subscribe(client, "http://b.example", "")
	if one > two {
		one, two = two, one
	}
	r.apply(first, second, r.recorded(client, event.WebhookPaused{Webhook: one}))
	another := testkit.Must(r.pool.Begin(t.Context()))(t)
	lock := func(webhook id.Webhook) {
		t.Helper()
		if _, err := another.Exec(t.Context(), `SELECT FROM dispatch_endpoints WHERE webhook = $1 FOR NO KEY UPDATE`, webhook); err != nil {
			t.Fatal(err)
		}
	}
	lock(one)
	var applying sync.WaitGroup
	applying.Go(func() { // of the one that is paused it counts what it skips, the other it changes
		r.apply(r.recorded(client, event.WebhookPaused{Webhook: two}), r.match(client))
	})
	testkit.Eventually(t, "the batch waits", func() bool {
		return r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	lock(two)
	if err := another.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	applying.Wait()
	if n := r.count(`SELECT skipped FROM dispatch_endpoints WHERE webhook = $1`, one); n != 1 {
		t.Errorf("%d are skipped", n)
	}
}

func TestAPauseAndAnEventAreDecidedByTheirOrderInTheLog(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 3, 100} {
		t.Run(fmt.Sprintf("in batches of %d", size), func(t *testing.T) {
			r := newFixture(t, Config{})
			client := r.client()
			webhook, subscribed := r.subscribe(client, "http://a.example", "")
			before := r.match(client)
			pause := r.recorded(client, event.WebhookPaused{Webhook: webhook})
			during := r.match(client)
			resume := r.recorded(client, event.WebhookResumed{Webhook: webhook})
			after := r.match(client)
			log := []eventstore.Recorded{r.match(client), subscribed, before, pause, during, resume, after}
			for i := 0; i < len(log); i += size {
				r.apply(log[i:min(i+size, len(log))]...)
			}
			sent, stopped := r.fates()
			if diff := cmp.Diff([]id.Event{after.ID}, sent); diff != "" {
				t.Error("sent:", diff)
			}
			if diff := cmp.Diff([]id.Event{before.ID}, stopped); diff != "" {
				t.Error("cancelled:", diff)
			}
			if n := r.count(`SELECT skipped FROM dispatch_endpoints`); n != 1 {
				t.Errorf("%d skipped, not 1", n)
			}
		})
	}
}

func TestARemovedWebhookGetsNothingAndLeavesNoAddress(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "secret")
	r.apply(subscribed, r.match(client), r.recorded(client, event.WebhookRemoved{Webhook: webhook}), r.match(client))
	r.apply(r.recorded(client, event.WebhookResumed{Webhook: webhook}), r.match(client))
	sent, stopped := r.fates()
	if len(sent) != 0 || len(stopped) != 1 {
		t.Errorf("%d would be sent and %d cancelled, not 0 and 1", len(sent), len(stopped))
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE state = 'removed' AND url = '' AND secrets = '[]'`); n != 1 {
		t.Error("the address or the secret of a removed webhook is kept")
	}
}

func TestEachEventGoesToWhoeverWantsItOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client, stranger := r.client(), r.client()
	wants, a := r.subscribe(client, "http://a.example", "")
	other, b := r.subscribe(client, "http://b.example", "")
	_, c := r.subscribe(stranger, "http://c.example", "")
	other2 := r.recorded(client, event.WebhookChanged{Webhook: other, WebhookAddress: event.At("http://b.example"), EventTypes: []string{"cluster.drift_detected"}})
	match := r.match(client)
	r.apply(a, b, c, other2, match)
	r.apply(match) // as after a lost checkpoint
	claims := r.claim(10)
	if len(claims) != 1 || claims[0].Webhook != wants {
		t.Fatalf("queued %d deliveries: %v", len(claims), claims)
	}
	if claims[0].Delivery != deliveryOf(match.ID, wants) {
		t.Error("the delivery is not named by its event and webhook")
	}
}

// TestManyDeliveriesOfOneClientKeepNoOtherWaiting: what a batch holds of a client with many
// subscriptions is applied by itself, and spends what it takes.
func TestManyDeliveriesOfOneClientKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	greedy, other := r.client(), r.client()
	const hooks, events = 100, 21 // together more deliveries than a batch may hold of one
	var log []eventstore.Recorded
	for range hooks {
		webhook, subscribed := r.subscribe(greedy, "http://a.example", "")
		log = append(log, subscribed)
		if len(log)%2 == 0 { // a filter that leaves everything out is judged all the same
			log = append(log, r.recorded(greedy, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Filter: "data.score > 1"}}))
		}
	}
	_, subscribed := r.subscribe(other, "http://b.example", "")
	r.apply(append(log, subscribed)...)
	batch := []eventstore.Recorded{r.match(other)}
	for range events {
		batch = append(batch, r.match(greedy))
	}
	var rest []eventstore.Recorded
	if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) (err error) {
		rest, err = r.ApplyTogether(t.Context(), tx, batch)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(rest) != events {
		t.Errorf("%d events are applied by themselves, not %d", len(rest), events)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue`); n != 1 {
		t.Errorf("%d deliveries are queued, not the other's one", n)
	}
	spent := 0
	if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		return r.ApplyClient(t.Context(), tx, nil, greedy, rest, func(steps int) error {
			spent += steps
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if filter := testkit.Must(rule.Parse("data.score > 1", rule.Events))(t); spent <= projector.BatchSteps || spent != hooks*events*stepsOfDelivery+filter.Size()*parseSteps {
		t.Errorf("%d steps spent, which is not for %d deliveries and a filter, or may be spent while others wait", spent, hooks*events)
	}
	errSlow := errors.New("slow")
	if err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		return r.ApplyClient(t.Context(), tx, nil, greedy, rest, func(int) error { return errSlow })
	}); !errors.Is(err, errSlow) {
		t.Errorf("a client that spends too much is applied: %v", err)
	}
}

// TestFiltersThatAreParsedKeepNoOtherWaiting: to parse a filter takes longer than to queue a delivery, and
// a tenant with sandboxes may have more of them than are kept.
func TestFiltersThatAreParsedKeepNoOtherWaiting(t *testing.T) {
	r := newFixture(t, Config{})
	greedy, other := r.client(), r.client()
	webhook, subscribed := r.subscribe(greedy, "http://a.example", "")
	_, others := r.subscribe(other, "http://b.example", "")
	filtered := func(filter string) eventstore.Recorded {
		return r.recorded(greedy, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Filter: filter}})
	}
	r.apply(subscribed, others, filtered("data.score > 1"))
	together := func(batch ...eventstore.Recorded) (rest []eventstore.Recorded) {
		err := pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) (err error) {
			rest, err = r.ApplyTogether(t.Context(), tx, batch)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return rest
	}
	alone := func(batch []eventstore.Recorded, spend projector.Spend) error {
		return pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
			return r.ApplyClient(t.Context(), tx, nil, greedy, batch, spend)
		})
	}
	rest := together(r.match(greedy), r.match(other))
	if n := r.count(`SELECT count(*) FROM dispatch_queue`); len(rest) != 1 || n != 1 {
		t.Fatalf("%d events are applied by themselves, and %d deliveries are queued", len(rest), n)
	}
	spent := 0
	err := alone(rest, func(steps int) error { spent += steps; return nil })
	if size := testkit.Must(rule.Parse("data.score > 1", rule.Events))(t).Size(); err != nil || spent != size*parseSteps+stepsOfDelivery {
		t.Errorf("%d steps spent, on a filter of %d bytes: %v", spent, size, err)
	}
	if rest := together(r.match(greedy)); len(rest) != 0 {
		t.Error("the events of a client whose filters are kept are applied by themselves")
	}
	rest = together(filtered("data.score > 2"), r.match(greedy))
	if len(rest) != 2 {
		t.Errorf("%d events are applied by themselves where a filter is new", len(rest))
	}
	errSlow := errors.New("slow")
	if err := alone(rest, func(int) error { return errSlow }); !errors.Is(err, errSlow) {
		t.Errorf("a client whose filter takes too much is applied: %v", err)
	}
}

func TestTheBodyHasExactlyThreeFields(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	match := r.match(client)
	match.RecordedAt = time.Date(2026, 3, 1, 13, 0, 0, 500_000, time.FixedZone("CET", 3600))
	r.apply(subscribed, match)
	fact := match.Event.(event.MatchComputed)
	var got map[string]any
	if err := json.Unmarshal(r.claim(1)[0].Body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"event_type": "match.computed",
		"timestamp":  "2026-03-01T12:00:00.000500Z",
		"data": map[string]any{
			"client_id": string(client), "user_id": string(fact.User), "matched_user_id": string(fact.MatchedUser), "score": 0.75,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestARolledBackBatchLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	tx := testkit.Must(r.pool.Begin(t.Context()))(t)
	if err := r.Apply(t.Context(), tx, []eventstore.Recorded{subscribed, r.match(client)}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.count(`SELECT (SELECT count(*) FROM dispatch_queue) + (SELECT count(*) FROM dispatch_endpoints)`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestOfADeletedClientNothingIsKept(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client, other := r.client(), r.client()
	settings := func(of id.Client) eventstore.Recorded {
		return r.recorded(of, event.ClientSettingsChanged{Client: of, Settings: event.Settings{WebhookUserIDs: "external_id"}})
	}
	r.apply(settings(client), settings(other))
	r.apply(r.recorded(client, event.ClockMoved{Client: client}), r.recorded(client, event.ClientDeleted{Client: client}))
	if n := r.count(`SELECT count(*) FROM dispatch_clients WHERE client = $1`, client); n != 0 {
		t.Errorf("%d rows of the deleted one", n)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_clients WHERE client = $1`, other); n != 1 {
		t.Errorf("%d rows of the other one", n)
	}
}
