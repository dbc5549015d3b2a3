package dispatcher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

var errCrashed = errors.New("the process died")

func (r *fixture) manual() Manual {
	return Manual{Log: Log{Pool: r.pool, Progress: projector.NewProgress(r.pool, r.Logger)}, Now: func() time.Time { return r.at }, Entropy: rand.Reader}
}

// endAs ends n deliveries to a webhook in a state.
func (r *fixture) endAs(v verdict, n int) {
	r.Helper()
	claims := r.claim(n)
	if len(claims) != n {
		r.Fatalf("claimed %d", len(claims))
	}
	outcomes := make([]outcome, n)
	for i, c := range claims {
		outcomes[i] = outcome{claim: c, verdict: v, began: time.Now(), retryIn: -1}
	}
	if _, err := r.queue(time.Minute).complete(r.Context(), outcomes, time.Now(), false); err != nil {
		r.Fatal(err)
	}
}

// endingsLog is a log that only listens.
type endingsLog func(context.Context, id.Client, time.Time, event.DeliveriesEnded) error

func (endingsLog) EndingsRevision(context.Context, id.Client, id.Webhook, time.Time) (eventstore.Revision, error) {
	return 7, nil
}

func (l endingsLog) RecordEndings(ctx context.Context, c id.Client, day time.Time, after eventstore.Revision, e event.DeliveriesEnded) error {
	if after != 7 {
		return fmt.Errorf("looks for itself from %d on", after)
	}
	return l(ctx, c, day, e)
}

func TestABatchOfEndsThatACrashInterruptsComesAgainAsItWas(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 5)...)
	r.endAs(delivered, 3)
	endings := Endings{Pool: r.pool}
	var first, again []id.Delivery
	names := func(into *[]id.Delivery) endingsLog {
		return func(_ context.Context, c id.Client, day time.Time, e event.DeliveriesEnded) error {
			if c != client || e.Webhook != webhook || day.Format(time.DateOnly) != time.Now().UTC().Format(time.DateOnly) {
				t.Errorf("%s %s %s", c, e.Webhook, day)
			}
			for _, d := range e.Deliveries {
				*into = append(*into, d.Delivery)
			}
			return nil
		}
	}
	_, err := endings.Record(t.Context(), endingsLog(func(ctx context.Context, c id.Client, day time.Time, e event.DeliveriesEnded) error {
		return errors.Join(names(&first)(ctx, c, day, e), errCrashed)
	}))
	if !errors.Is(err, errCrashed) {
		t.Fatal(err)
	}
	r.endAs(failed, 2) // meanwhile
	batches := 0
	if _, err := endings.Record(t.Context(), endingsLog(func(ctx context.Context, c id.Client, day time.Time, e event.DeliveriesEnded) error {
		batches++
		return names(&again)(ctx, c, day, e)
	})); err != nil {
		t.Fatal(err)
	}
	if batches != 2 || len(again) != 5 {
		t.Fatalf("%d deliveries in %d batches", len(again), batches)
	}
	if diff := cmp.Diff(first, again[:3]); diff != "" {
		t.Errorf("another batch: %s", diff)
	}
	if slices.Sort(again); len(slices.Compact(again)) != 5 {
		t.Error("an end came twice")
	}
	if _, err := endings.Record(t.Context(), names(&first)); err != nil || len(first) != 3 {
		t.Errorf("more ends: %v, %v", first, err)
	}
}

func TestEndsThatCannotBeRecordedKeepNoOtherClientWaiting(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	broken, client := r.client(), r.client()
	webhook, first := r.subscribe(broken, "http://a.example", "")
	_, second := r.subscribe(client, "http://a.example", "")
	r.apply(first, second, r.match(broken), r.match(client))
	r.endAs(delivered, 2)
	// As many batches as one call takes, and all from before the other's.
	r.exec(`INSERT INTO dispatch_ending_batches (client, webhook, day, endings)
		SELECT $1, $2, current_date, '[]' FROM generate_series(1, $3)`, broken, webhook, maxBatches)
	tried, recorded := 0, 0
	_, err := Endings{Pool: r.pool}.Record(t.Context(), endingsLog(func(_ context.Context, c id.Client, _ time.Time, e event.DeliveriesEnded) error {
		if c == broken {
			tried++
			return errCrashed
		}
		recorded += len(e.Deliveries)
		return nil
	}))
	if !errors.Is(err, errCrashed) || tried != 1 || recorded != 1 {
		t.Errorf("%d ends of the other were recorded after %d tries: %v", recorded, tried, err)
	}
}

func TestEndsOfManyClientsThatCannotBeRecordedKeepNoOtherWaiting(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	// The batches of as many clients as one call takes, all from before the other's.
	r.exec(`INSERT INTO dispatch_ending_batches (client, webhook, day, endings)
		SELECT 'cl_broken' || n, 'wh', current_date, '[]' FROM generate_series(1, $1) n`, maxBatches)
	r.apply(subscribed, r.match(client))
	r.endAs(delivered, 1)
	recorded := 0
	for range 10 { // each leaves out one of 51 clients
		_, err := Endings{Pool: r.pool}.Record(t.Context(), endingsLog(func(_ context.Context, c id.Client, _ time.Time, e event.DeliveriesEnded) error {
			if c != client {
				return errCrashed
			}
			recorded += len(e.Deliveries)
			return nil
		}))
		if !errors.Is(err, errCrashed) {
			t.Fatal(err)
		}
	}
	if recorded != 1 {
		t.Errorf("%d ends of the other were recorded", recorded)
	}
}

func TestEndsThatOneCallLeavesAreToldOf(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.exec(`INSERT INTO dispatch_endings (client, webhook, delivery, event, state, attempts, ended_at)
		SELECT $1, $2, 'dlv_' || n, 'evt_' || n, 'delivered', 1, now() FROM generate_series(1, $3) n`, client, webhook, maxBatched+1)
	recorded := 0
	log := endingsLog(func(_ context.Context, _ id.Client, _ time.Time, e event.DeliveriesEnded) error {
		recorded += len(e.Deliveries)
		return nil
	})
	for _, want := range []struct {
		more     bool
		recorded int
	}{{true, maxBatched}, {false, maxBatched + 1}} {
		more, err := Endings{Pool: r.pool}.Record(t.Context(), log)
		if err != nil || more != want.more || recorded != want.recorded {
			t.Errorf("%d ends are recorded, there are more: %v; want %+v; %v", recorded, more, want, err)
		}
	}
}

func TestOneProcessRecordsEndingsAtATime(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	r.endAs(delivered, 1)
	endings, calls := Endings{Pool: r.pool}, 0
	_, err := endings.Record(t.Context(), endingsLog(func(ctx context.Context, _ id.Client, _ time.Time, _ event.DeliveriesEnded) error {
		calls++
		_, err := endings.Record(ctx, endingsLog(func(context.Context, id.Client, time.Time, event.DeliveriesEnded) error {
			t.Error("two record at once")
			return nil
		}))
		return err
	}))
	if err != nil || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// overtaken is a log of a process that lost its lock before it asked where streams end.
type overtaken struct {
	endingsLog
	first func()
}

func (l *overtaken) EndingsRevision(context.Context, id.Client, id.Webhook, time.Time) (eventstore.Revision, error) {
	l.first()
	return 8, nil
}

func TestAProcessThatWasOvertakenRecordsNoEndingsAgain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	r.endAs(delivered, 1)
	endings, recorded := Endings{Pool: r.pool}, 0
	log := endingsLog(func(context.Context, id.Client, time.Time, event.DeliveriesEnded) error {
		recorded++
		return nil
	})
	_, err := endings.Record(t.Context(), &overtaken{log, func() {
		r.exec(`SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		if _, err := endings.Record(t.Context(), log); err != nil {
			t.Fatal(err)
		}
	}})
	if err != nil || recorded != 1 {
		t.Errorf("recorded %d times, %v", recorded, err)
	}
}

func TestARecoveryIsBoundedAndGoesOn(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	const n = recoverBatch*recoverBatches + 500
	for i := 0; i < n; i += 2_500 {
		r.apply(r.matches(client, 2_500)[:min(2_500, n-i)]...)
	}
	// All of them failed for good, as six attempts each would have left them.
	r.exec(`
WITH gone AS (DELETE FROM dispatch_queue RETURNING *)
INSERT INTO dispatch_deliveries (delivery, client, webhook, event, event_type, body, occurred_at, queued_at, test, made, attempts, state, ended_at)
SELECT delivery, client, webhook, event, event_type, body, occurred_at, queued_at, test, made, 6, 'dropped', now() FROM gone`)
	m := r.manual()
	wanted := Recovery{Recovered: recoverBatch * recoverBatches, More: true}
	for range 2 { // a repetition takes no more
		got, err := m.recover(t.Context(), client, webhook, state{}, time.Time{}, []string{"a key"})
		if err != nil || got != wanted {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM dispatch_deliveries WHERE NOT recovered AND made < (SELECT max(made) FROM dispatch_deliveries WHERE recovered)`); n != 0 {
		t.Errorf("%d are left that are older than what is recovered", n)
	}
	got, err := m.recover(t.Context(), client, webhook, state{}, time.Time{}, []string{"another"})
	if want := (Recovery{Recovered: 500}); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := r.count(`SELECT count(DISTINCT event) FROM dispatch_queue`); got != n {
		t.Errorf("%d events are queued again, not %d", got, n)
	}
}

// The subscription was active as it was looked up, and is paused as deliveries are queued.
func TestARecoveryThatAPauseOvertakesIsRefusedAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	r.endAs(failed, 1)
	again := func() (Recovery, error) {
		return r.manual().recover(t.Context(), client, webhook, state{name: new(active)}, time.Time{}, []string{"a key"})
	}
	r.exec(`UPDATE dispatch_endpoints SET state = 'paused'`)
	if got, err := again(); !fault.Is(err, "webhook_paused") {
		t.Errorf("%+v, %v", got, err)
	}
	r.exec(`UPDATE dispatch_endpoints SET state = 'active'`)
	if got, err := again(); err != nil || got.Recovered != 1 {
		t.Errorf("repeated: %+v, %v", got, err)
	}
}

func TestARecoveryTakesNothingFromBefore(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	since := r.at.Add(time.Millisecond)
	match := r.match(client)
	r.apply(match)
	r.endAs(failed, 2)
	got, err := r.manual().recover(t.Context(), client, webhook, state{}, since, nil)
	if err != nil || got.Recovered != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE event = $1 AND redelivery_of = $2`, match.ID, deliveryOf(match.ID, webhook)); n != 1 {
		t.Error("another event was recovered")
	}
}

func TestARecoveryTakesWhatDidNotArriveAndIsWantedAlone(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	choose := func(types ...string) {
		r.apply(r.recorded(client, event.WebhookChanged{Webhook: webhook, WebhookAddress: event.At("http://a.example"), EventTypes: types}))
	}
	end := func(v verdict, e eventstore.Recorded) id.Event {
		r.apply(e)
		r.endAs(v, 1)
		return e.ID
	}
	m := r.manual()
	want := []id.Event{end(failed, r.match(client)), end(cancelled, r.match(client))}
	end(delivered, r.match(client))
	again := end(failed, r.match(client))
	if _, err := m.Redeliver(t.Context(), client, webhook, deliveryOf(again, webhook), nil); err != nil {
		t.Fatal(err)
	}
	r.endAs(delivered, 1)
	choose(matchType, "clustering.failed")
	end(failed, r.recorded(client, event.ClusteringFailed{Code: "too_few_users"}))
	choose(matchType)
	if _, err := m.Test(t.Context(), client, webhook, matchType, nil); err != nil {
		t.Fatal(err)
	}
	r.endAs(failed, 1)
	_, alsoSubscribed := r.subscribe(client, "http://b.example", "")
	r.apply(alsoSubscribed, r.match(client))
	for _, c := range r.claim(1) {
		v := delivered
		if c.Webhook != webhook {
			v = cancelled
		}
		r.note(v, c)
	}
	if got, err := m.Recover(t.Context(), client, webhook, time.Time{}, nil); err != nil || got.Recovered != len(want) {
		t.Errorf("%+v, not %d, %v", got, len(want), err)
	}
	var got []id.Event
	for _, c := range r.claim(10) {
		got = append(got, c.Event)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the events %v are queued again, not %v", got, want)
	}
}

// What a subscription asks for says nothing of a test, which its owner asked for by name.
func TestATestOfAnyTypeIsSentAndNotToldOf(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	test := testkit.Must(r.manual().Test(t.Context(), client, webhook, "clustering.failed", nil))(t)
	if _, err := r.manual().Redeliver(t.Context(), client, webhook, test.ID, nil); err != nil {
		t.Fatal(err)
	}
	claims := r.claim(2)
	if len(claims) != 2 || claims[0].Cancelled || claims[1].Cancelled {
		t.Fatalf("claimed %+v", claims)
	}
	r.note(delivered, claims...)
	if n := r.count(`SELECT count(*) FROM dispatch_endings`); n != 0 {
		t.Error("its end is told to the log")
	}
}

func TestTestsAreBoundedInAMinuteWhateverBecameOfThem(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client, beside := r.client(), r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	another, second := r.subscribe(beside, "http://b.example", "")
	r.apply(subscribed, second)
	testOf := func(client id.Client, webhook id.Webhook) error {
		_, err := r.manual().Test(t.Context(), client, webhook, matchType, nil)
		return err
	}
	test := func() error { return testOf(client, webhook) }
	for i := range maxTests {
		r.apply(r.match(client)) // which is no test
		if err := errors.Join(test(), testOf(beside, another)); err != nil {
			t.Fatalf("test %d: %v", i+1, err)
		}
		if i < maxTests/2 {
			r.endAs(delivered, 3)
		}
	}
	r.exec(`UPDATE dispatch_queue SET queued_at = now()`)
	r.exec(`UPDATE dispatch_deliveries SET queued_at = now() - interval '40 s'`)
	refused := fault.As(test())
	if refused == nil || refused.Code != "too_many_tests" || refused.RetryAfter <= 0 || refused.RetryAfter > 20*time.Second {
		t.Errorf("the test after the last is answered %+v", refused)
	}
	r.exec(`UPDATE dispatch_deliveries SET queued_at = now() - interval '60 s'`)
	if err := test(); err != nil {
		t.Errorf("a minute after the first: %v", err)
	}
	r.exec(`UPDATE dispatch_queue SET queued_at = now() - interval '60 s'`)
	for i := range maxTests {
		if err := test(); err != nil {
			t.Fatalf("test %d, a minute after all of them: %v", i+1, err)
		}
	}
}

func TestWhatIsRecoveredComesInTheOrderInWhichItOccurred(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	events := r.matches(client, 3)
	r.apply(events[1], events[2], events[0])
	r.endAs(cancelled, 3)
	if got, err := r.manual().Recover(t.Context(), client, webhook, time.Time{}, nil); err != nil || got.Recovered != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, e := range events {
		if claims := r.claim(1); len(claims) != 1 || claims[0].Event != e.ID {
			t.Errorf("%+v, not %s", claims, e.ID)
		}
	}
}

func TestWhatNamesAnErasedUserIsRecoveredOnceAtMost(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.recorded(client, event.ClientSettingsChanged{Client: client, Settings: event.Settings{WebhookUserIDs: "external_id"}}))
	r.apply(r.matches(client, 20)...)
	there := id.Next[id.User](r.ids)
	r.ExternalIDs = func(context.Context, id.Client, []id.User) (map[id.User]string, error) {
		return map[id.User]string{there: "there"}, nil // all others are erased
	}
	r.apply(r.recorded(client, event.MatchComputed{User: there, MatchedUser: there, Score: 1}))
	r.endAs(failed, 21)
	r.start(r.Dispatcher)
	for _, want := range []int{21, 0} {
		if got, err := r.manual().recover(t.Context(), client, webhook, state{}, time.Time{}, nil); err != nil || got.Recovered != want {
			t.Fatalf("recovered %+v, not %d, %v", got, want, err)
		}
		testkit.Eventually(r.TB, "all have ended", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue`) == 0 })
	}
	if n := r.count(`SELECT count(*) FROM dispatch_deliveries WHERE state = 'cancelled'`); n != 20 || len(rx.got) != 1 {
		t.Errorf("%d were cancelled and %d arrived, not 20 and 1", n, len(rx.got))
	}
}

func TestAKeyThatIsFreeAgainNamesANewRequest(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	other, alsoSubscribed := r.subscribe(client, "http://b.example", "")
	first := r.match(client)
	r.apply(subscribed, alsoSubscribed, first)
	since := r.at.Add(time.Millisecond)
	second := r.match(client)
	r.apply(second)
	r.endAs(cancelled, 4)

	m, key := r.manual(), []string{string(client), "a route", "a key"}
	made := map[id.Delivery]bool{}
	for _, event := range []id.Event{first.ID, second.ID, second.ID} { // the last is a repetition
		of := deliveryOf(event, webhook)
		d, err := m.Redeliver(t.Context(), client, webhook, of, key)
		if err != nil || d.RedeliveryOf == nil || *d.RedeliveryOf != of || d.Event != event {
			t.Errorf("redelivered %+v, %v", d, err)
		}
		made[d.ID] = true
	}
	for _, test := range []struct {
		webhook   id.Webhook
		eventType string
	}{{webhook, matchType}, {webhook, "clustering.failed"}, {other, matchType}, {other, matchType}} {
		d, err := m.Test(t.Context(), client, test.webhook, test.eventType, key)
		if err != nil || d.Webhook != test.webhook || d.EventType != test.eventType {
			t.Errorf("tested with %+v, %v", d, err)
		}
		made[d.ID] = true
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue`); n != 5 || len(made) != n {
		t.Errorf("%d deliveries wait, %d were told, not 5", n, len(made))
	}
	r.exec(`UPDATE dispatch_deliveries SET recovered = false`)
	for _, recovery := range []struct {
		webhook id.Webhook
		since   time.Time
		want    int
	}{{webhook, since, 1}, {webhook, time.Time{}, 1}, {other, time.Time{}, 2}, {other, time.Time{}, 2}, {webhook, since, 1}} {
		got, err := m.Recover(t.Context(), client, recovery.webhook, recovery.since, key)
		if err != nil || got.Recovered != recovery.want {
			t.Errorf("recovered %+v, not %d, %v", got, recovery.want, err)
		}
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue`); n != 9 {
		t.Errorf("%d deliveries wait, not 9", n)
	}
}

func TestARepetitionIsAnsweredWhateverBecameOfTheSubscription(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	match := r.match(client)
	r.apply(subscribed, match)
	r.endAs(cancelled, 1)

	m := r.manual()
	posts := map[string]func(key ...string) (any, error){
		"redelivered": func(key ...string) (any, error) {
			d, err := m.Redeliver(t.Context(), client, webhook, deliveryOf(match.ID, webhook), key)
			return d.ID, err
		},
		"tested": func(key ...string) (any, error) {
			d, err := m.Test(t.Context(), client, webhook, matchType, key)
			return d.ID, err
		},
		"recovered": func(key ...string) (any, error) { return m.Recover(t.Context(), client, webhook, time.Time{}, key) },
	}
	first := map[string]any{}
	for what, post := range posts {
		var err error
		if first[what], err = post("a key"); err != nil {
			t.Fatal(what, err)
		}
	}
	r.apply(
		r.recorded(client, event.WebhookChanged{Webhook: webhook, WebhookAddress: event.At("http://a.example"), EventTypes: []string{"clustering.failed"}}),
		r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	for what, post := range posts {
		if again, err := post("a key"); err != nil || again != first[what] {
			t.Errorf("%s %v, not %v, %v", what, again, first[what], err)
		}
		if _, err := post("another key"); !fault.Is(err, "webhook_paused") {
			t.Errorf("another request: %s, %v", what, err)
		}
	}
}

func TestTheSameRequestManyTimesAtOnceMakesOneDelivery(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	m := r.manual()
	var made [8]Delivery
	var group errgroup.Group
	for i := range made {
		group.Go(func() (err error) {
			made[i], err = m.Test(t.Context(), client, webhook, matchType, []string{"a key"})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, d := range made {
		if d.ID != made[0].ID {
			t.Errorf("%s and %s were made", made[0].ID, d.ID)
		}
	}
}

func TestATestThatIsSentAgainCountsAsATest(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	match := r.match(client)
	r.apply(subscribed, match)
	m := r.manual()
	first := testkit.Must(m.Test(t.Context(), client, webhook, matchType, nil))(t)
	for n := 1; n < maxTests; n++ {
		if _, err := m.Redeliver(t.Context(), client, webhook, first.ID, nil); err != nil {
			t.Fatal(n, err)
		}
	}
	if _, err := m.Redeliver(t.Context(), client, webhook, first.ID, nil); !fault.Is(err, "too_many_tests") {
		t.Errorf("one too many: %v", err)
	}
	if _, err := m.Redeliver(t.Context(), client, webhook, deliveryOf(match.ID, webhook), nil); err != nil {
		t.Errorf("an event that happened: %v", err)
	}
}

func TestARedeliveryIsCancelledByALaterPauseOnly(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	choose := func(eventType string) eventstore.Recorded {
		return r.recorded(client, event.WebhookChanged{Webhook: webhook, WebhookAddress: event.At("http://a.example"), EventTypes: []string{eventType}})
	}
	r.apply(subscribed, r.match(client),
		r.recorded(client, event.WebhookPaused{Webhook: webhook}), r.recorded(client, event.WebhookResumed{Webhook: webhook}),
		choose("clustering.failed"), choose(matchType))
	r.endAs(cancelled, 1)
	for i, pauses := range []bool{false, true} {
		if got, err := r.manual().recover(t.Context(), client, webhook, state{}, time.Time{}, nil); err != nil || got.Recovered != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if pauses {
			r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
		}
		claims := r.claim(10)
		if len(claims) != 1 || claims[0].Cancelled != pauses {
			t.Fatalf("%d: %+v", i, claims)
		}
		if _, err := r.queue(time.Minute).complete(t.Context(), []outcome{{claim: claims[0], verdict: cancelled, began: time.Now()}}, time.Now(), false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesAreFoundWhereUsersAreNamedOnly(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	ann, bob := id.Next[id.User](r.ids), id.Next[id.User](r.ids)
	names := map[id.User]string{ann: `a"n\n<&>`, bob: "bob"}
	w := newWorker(r.replica(Config{}), Config{}.withDefaults())
	w.ExternalIDs = func(context.Context, id.Client, []id.User) (map[id.User]string, error) { return names, nil }
	body := fmt.Sprintf(`{"data":{"user_id":%q,"matched_user_id":%q,"label":"\"user_id\":\"%s\"","id":%q}}`, ann, bob, ann, bob)
	got, erased, err := w.named(t.Context(), claim{Body: []byte(body)})
	want := fmt.Sprintf(`{"data":{"user_id":"a\"n\\n\u003c\u0026\u003e","matched_user_id":"bob","label":"\"user_id\":\"%s\"","id":%q}}`, ann, bob)
	if err != nil || erased || string(got) != want {
		t.Errorf("%s, %t, %v", got, erased, err)
	}
	delete(names, bob)
	if _, erased, err := w.named(t.Context(), claim{Body: []byte(body)}); !erased || err != nil {
		t.Errorf("erased %t, %v", erased, err)
	}
	w.ExternalIDs = func(context.Context, id.Client, []id.User) (map[id.User]string, error) { return nil, errCrashed }
	if o := w.attempt(t.Context(), claim{Body: []byte(body), External: true}); o.verdict != returned {
		t.Errorf("without an answer it is %s", o.verdict)
	}
}

func TestTheSettingHoldsFromItsPlaceInTheLog(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 100} {
		r := newFixture(t, Config{})
		client, stranger := r.client(), r.client()
		_, a := r.subscribe(client, "http://a.example", "")
		_, b := r.subscribe(stranger, "http://b.example", "")
		named := func(as string) event.ClientSettingsChanged {
			return event.ClientSettingsChanged{Client: client, Settings: event.Settings{WebhookUserIDs: as}}
		}
		before, during, after, others := r.match(client), r.match(client), r.match(client), r.match(stranger)
		log := []eventstore.Recorded{
			a, b, before, r.recorded(client, named("external_id")), during, others, r.recorded(client, named("user_id")), after,
		}
		for i := 0; i < len(log); i += size {
			r.apply(log[i:min(i+size, len(log))]...)
		}
		if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE external_ids = (event = $1)`, during.ID); n != 4 {
			t.Errorf("in batches of %d, %d of 4 are named as they should be", size, n)
		}
	}
}

func TestHealthIsWhatTheLastAnswersSay(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	at := func(minute int) time.Time { return time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC) }
	one, two := newWorker(r.Dispatcher, Config{}.withDefaults()), newWorker(r.replica(Config{}), Config{}.withDefaults())
	two.Now = func() time.Time { return at(130) }
	steps := []struct {
		by       *worker
		accepted bool
		minute   int
		since    *time.Time
	}{
		{one, true, 1, nil},
		{one, false, 2, new(at(2))},
		{two, false, 3, new(at(2))},
		{two, false, 4, new(at(2))},
		{one, true, 5, nil},
		{two, false, 6, new(at(6))},
		{one, true, 4, new(at(6))}, // what a process writes late was answered before
		{one, false, 3, new(at(6))},
		{two, true, 9, nil},
		{one, false, 8, nil},
		{two, false, 12, new(at(12))},
		{one, true, 10, new(at(12))},
		{one, false, 11, new(at(11))},
	}
	for _, s := range steps {
		s.by.health.observe(endpointKey{client, webhook}, s.accepted, at(s.minute))
		if err := s.by.noteHealthOnce(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		var since *time.Time
		if err := r.pool.QueryRow(t.Context(), `SELECT failing_since FROM dispatch_health WHERE webhook = $1`, webhook).Scan(&since); err != nil {
			t.Fatal(err)
		}
		if (since == nil) != (s.since == nil) || since != nil && !since.Equal(*s.since) {
			t.Errorf("after minute %d it has failed since %v, not %v", s.minute, since, s.since)
		}
	}
	var logged strings.Builder
	fresh := newWorker(r.replica(Config{}), Config{}.withDefaults()) // which has seen nobody fail
	fresh.Now, fresh.Logger = two.Now, slog.New(slog.NewTextHandler(&logged, nil))
	for range 2 {
		if err := fresh.noteHealthOnce(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(fresh.Metrics.failing)
	metrics, err := registry.Gather()
	if err != nil || metrics[0].GetMetric()[0].GetGauge().GetValue() != 1 || strings.Count(logged.String(), string(webhook)) != 1 || strings.Contains(logged.String(), "a.example") {
		t.Errorf("%v (%v)\n%s", metrics, err, &logged)
	}
	other, alsoSubscribed := r.subscribe(client, "http://b.example", "")
	r.apply(alsoSubscribed, r.recorded(client, event.WebhookPaused{Webhook: other}), r.match(client))
	for of, want := range map[id.Webhook]Health{webhook: {Pending: 1, LastSuccessAt: new(at(10)), LastFailureAt: new(at(12)), FailingSince: new(at(11))}, other: {Skipped: 1}} {
		got, err := r.manual().Health(t.Context(), client, of, true)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v, (-want +got):\n%s", err, diff)
		}
	}
}

// Attempts that end together are told of in any order.
func TestTheFirstAnswersOfAnEndpointCountByTheirTimes(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	w := newWorker(r.replica(Config{}), Config{}.withDefaults())
	at := func(second int) time.Time { return r.at.Add(time.Duration(second) * time.Second) }
	for _, lastAccepted := range []bool{true, false} {
		webhook, subscribed := r.subscribe(client, "http://a.example", "")
		r.apply(subscribed)
		w.health.observe(endpointKey{client, webhook}, lastAccepted, at(2))
		w.health.observe(endpointKey{client, webhook}, !lastAccepted, at(1))
		if err := w.noteHealthOnce(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		got, err := r.manual().Health(t.Context(), client, webhook, true)
		want := Health{LastSuccessAt: new(at(1)), LastFailureAt: new(at(2)), FailingSince: new(at(2))}
		if lastAccepted {
			want = Health{LastSuccessAt: new(at(2)), LastFailureAt: new(at(1))}
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("the last was accepted: %t: %v, (-want +got):\n%s", lastAccepted, err, diff)
		}
	}
}

func TestWhatHasFailedForLongestIsListedFirst(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client, beside := r.client(), r.client()
	accepts, healthy := r.subscribe(client, "http://a.example", "")
	webhooks := map[id.Webhook]time.Duration{}
	r.apply(healthy)
	r.exec(`INSERT INTO dispatch_health (client, webhook, last_failure_at, last_success_at) VALUES ($1, $2, $3, $3)`, client, accepts, r.at)
	fails := func(of id.Client, since time.Duration) id.Webhook {
		webhook, subscribed := r.subscribe(of, "http://a.example", "")
		r.apply(subscribed, r.match(of))
		webhooks[webhook] = since
		r.exec(`INSERT INTO dispatch_health (client, webhook, failing_since, last_failure_at) VALUES ($1, $2, $3, $3)`, of, webhook, r.at.Add(-since))
		return webhook
	}
	for i := range 5 {
		fails(client, time.Duration(i)*time.Hour)
	}
	fails(beside, 6*time.Hour)
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: fails(client, 7*time.Hour)}))
	r.exec(`UPDATE dispatch_queue SET failed = made % 2`)
	if all, err := r.manual().Failing(t.Context(), client, 10); err != nil || len(all) != 5 {
		t.Errorf("of 5 that fail %d are listed, %v", len(all), err)
	}
	found, err := r.manual().Failing(t.Context(), client, 3)
	if err != nil || len(found) != 3 {
		t.Fatalf("%d are listed, %v", len(found), err)
	}
	for i, f := range found {
		if want := time.Duration(4-i) * time.Hour; webhooks[f.Webhook] != want {
			t.Errorf("place %d has what has failed for %s, not for %s", i, webhooks[f.Webhook], want)
		}
		if f.Waiting != i+2 { // of the matches since it was subscribed
			t.Errorf("for place %d %d deliveries wait, not %d", i, f.Waiting, i+2)
		}
	}
}

func TestHowReceiversAnsweredIsKeptUntilItIsWritten(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	away := testkit.Must(pgxpool.NewWithConfig(t.Context(), r.pool.Config()))(t)
	away.Close()
	w := newWorker(r.replica(Config{}), Config{}.withDefaults())
	by, at := endpointKey{client, webhook}, func(minute int) time.Time { return r.at.Add(time.Duration(minute) * time.Minute) }
	w.health.observe(by, false, at(1))
	if err := w.noteHealthOnce(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for minute, accepted := range []bool{2: true, 3: false, 4: false} {
		if minute < 2 {
			continue
		}
		w.Pool = away
		w.health.observe(by, accepted, at(minute))
		if err := w.noteHealthOnce(t.Context(), false); err == nil {
			t.Fatal("it was written")
		}
	}
	w.Pool = r.pool
	if err := w.noteHealthOnce(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	var success, failure, since time.Time
	if err := r.pool.QueryRow(t.Context(), `SELECT last_success_at, last_failure_at, failing_since FROM dispatch_health WHERE webhook = $1`, webhook).
		Scan(&success, &failure, &since); err != nil {
		t.Fatal(err)
	}
	if !success.Equal(at(2)) || !failure.Equal(at(4)) || !since.Equal(at(3)) {
		t.Errorf("success %v, failure %v, failing since %v", success, failure, since)
	}
}

// Whatever became of deliveries, both orders list all of them, page by page, and one is
// the other turned around; a delivery of one webhook is not among those of another.
func TestListsOfDeliveriesAreReadFromBothEnds(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	other, alsoSubscribed := r.subscribe(client, "http://b.example", "")
	r.apply(subscribed, alsoSubscribed)
	r.apply(r.matches(client, 20)...)
	claimed := map[id.Webhook][]claim{}
	for _, c := range r.claim(20) {
		claimed[c.Webhook] = append(claimed[c.Webhook], c)
	}
	for _, claims := range claimed {
		r.note(delivered, claims[:7]...)
		r.note(failed, claims[7:11]...)
		last := outcomes(failed, claims[11:14]...)
		for i := range last {
			last[i].retryIn = -1
		}
		r.noteAll(last, false)
		r.note(cancelled, claims[14:16]...)
	}
	log := Log{Pool: r.pool, Progress: projector.NewProgress(r.pool, r.Logger)}
	read := func(webhook id.Webhook, status string, newest bool) (ids []id.Delivery) {
		q := Query{Status: status, Newest: newest, Limit: 3}
		for range 10 {
			page, _, err := log.List(t.Context(), client, webhook, true, q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				return ids
			}
			for _, d := range page {
				ids = append(ids, d.ID)
			}
			q.After = page[len(page)-1].Made
		}
		t.Fatal("the list has no end")
		return nil
	}
	for _, webhook := range []id.Webhook{webhook, other} {
		for status, n := range map[string]int{"": 20, StatusDelivered: 7, StatusPending: 8, StatusDropped: 3, StatusCancelled: 2} {
			oldest, newest := read(webhook, status, false), read(webhook, status, true)
			slices.Reverse(newest)
			if len(oldest) != n || !slices.Equal(oldest, newest) {
				t.Errorf("%q: %d from the oldest on, and %d from the newest on, of %d", status, len(oldest), len(newest), n)
			}
		}
		health, err := log.Health(t.Context(), client, webhook, true)
		if err != nil || health.Pending != 8 {
			t.Errorf("%d are pending: %v", health.Pending, err)
		}
	}
	for _, c := range claimed[webhook][6:8] { // one has ended, one is pending
		_, err := log.Get(t.Context(), client, other, c.Delivery, true)
		if !fault.Is(err, "delivery_unknown") {
			t.Errorf("another webhook's delivery is read: %v", err)
		}
	}
}
