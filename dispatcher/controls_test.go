package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

func TestOwnHeadersStandOnEveryAttemptAndAreKeptSealed(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: shortDelays})
	rx := newReceiver(t, answers(500, 204))
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "secret")
	_, other := r.subscribe(r.client(), rx.URL, "")
	headers := event.Private([]byte(`{"Authorization":"Bearer hunter2","x-tenant":"acme"}`))
	r.apply(subscribed, other, r.recorded(client, event.WebhookHeadersSet{Webhook: webhook, Names: []string{"Authorization", "x-tenant"}, Headers: headers}))
	r.apply(r.match(client))
	r.start(r.Dispatcher)
	for range 2 {
		got := rx.next(t).header
		if got.Get("Authorization") != "Bearer hunter2" || got.Get("X-Tenant") != "acme" || got.Get("Content-Type") != "application/json" {
			t.Errorf("sent %v", got)
		}
	}
	if n := r.count(`SELECT count(*) FROM dispatch_endpoints e WHERE e::text LIKE '%hunter2%'`); n != 0 {
		t.Error("the table shows a header")
	}
	r.apply(r.recorded(client, event.WebhookHeadersSet{Webhook: webhook}), r.match(client))
	if got := rx.next(t).header; got.Get("Authorization") != "" || got.Get("X-Service-Signature") == "" {
		t.Errorf("after they were taken away: %v", got)
	}
}

func TestAnotherClientsHeadersAreNotSent(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	one, two := r.client(), r.client()
	webhook, first := r.subscribe(one, rx.URL, "")
	_, second := r.subscribe(two, rx.URL, "")
	set := r.recorded(one, event.WebhookHeadersSet{Webhook: webhook, Names: []string{"X-A"}, Headers: event.Private([]byte(`{"X-A":"a"}`))})
	r.apply(first, second, set, r.match(two))
	r.start(r.Dispatcher)
	if got := rx.next(t).header.Get("X-A"); got != "" {
		t.Errorf("sent %q", got)
	}
}

func TestRetryAfterIsSecondsOrADateAndAnHourAtMost(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "3600": time.Hour, "3601": time.Hour, "4294967295": time.Hour, "99999999999999999999": time.Hour,
		"Sun, 01 Mar 2026 12:01:00 GMT": time.Minute, "Sun, 01 Mar 2026 11:00:00 GMT": 0, "Mon, 02 Mar 2026 12:00:00 GMT": time.Hour,
		"": 0, "-1": 0, "soon": 0, "1.5": 0,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: %s", header, got)
		}
	}
}

// asks answers everything with a status, and with a wait of ten minutes.
func asks(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(status)
	}
}

const (
	heldEndpoints = `SELECT count(*) FROM dispatch_endpoints WHERE held_until BETWEEN now() + '500 s' AND now() + '600 s'`
	lateRetries   = `SELECT count(*) FROM dispatch_queue q JOIN dispatch_endpoints e USING (client, webhook)
		WHERE failed = 1 AND leased_until IS NULL AND greatest(due_at, held_until) BETWEEN now() + '500 s' AND now() + '601 s'`
)

func TestAReceiverThatAsksForAWaitIsHeldAndNoOtherIs(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: shortDelays})
	rx, other := newReceiver(t, asks(http.StatusTooManyRequests)), newReceiver(t, nil)
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	_, beside := r.subscribe(client, other.URL, "")
	r.apply(subscribed, beside, r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{RespectRetryAfter: true}}))
	r.apply(r.match(client))
	r.start(r.Dispatcher)
	rx.next(t)
	testkit.Eventually(r.TB, "it is held", func() bool { return r.count(heldEndpoints) == 1 && r.count(lateRetries) == 1 })
	r.apply(r.matches(client, 20)...)
	r.start(r.replica(Config{RetryDelays: shortDelays}))
	r.ended("delivered", 21) // all to the other endpoint
	if n := r.count(`SELECT count(*) FROM dispatch_attempts a JOIN dispatch_queue q USING (client, delivery)`); n != 1 || len(rx.got) != 0 {
		t.Errorf("%d attempts, and %d more requests", n, len(rx.got))
	}
	// Its owner changes it, and the wait is over.
	r.apply(r.recorded(client, event.WebhookControlsSet{Webhook: webhook}))
	rx.next(t)
}

// What follows in order waits for the delivery that was refused, so that has to be tried, too.
func TestAChangeEndsTheWaitForWhatWasRefused(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: shortDelays})
	var came atomic.Int64
	rx := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if came.Add(1) == 1 {
			asks(http.StatusTooManyRequests)(w, req)
		}
	})
	client := r.client()
	controls := event.EndpointControls{RespectRetryAfter: true, Ordered: true}
	webhook, set := r.controlled(client, rx.URL, controls)
	r.apply(set...)
	r.apply(r.matches(client, 3)...)
	r.start(r.Dispatcher)
	testkit.Eventually(r.TB, "it is held", func() bool { return r.count(heldEndpoints) == 1 && r.count(lateRetries) == 1 })
	shown, _, err := r.manual().List(t.Context(), client, webhook, true, Query{Limit: 9})
	if err != nil || len(shown) != 3 || shown[0].NextAttemptAt == nil || time.Until(*shown[0].NextAttemptAt) < 500*time.Second {
		t.Errorf("shown as %+v, %v", shown, err)
	}
	controls.MaxPerSecond = 1_000
	r.apply(r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: controls}))
	r.ended("delivered", 3)
}

// What has its slot, and waits for its place in the rate, is not under way.
func TestAWaitHoldsWhatWaitsForItsPlaceInARate(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, asks(http.StatusTooManyRequests))
	client := r.client()
	webhook, set := r.controlled(client, rx.URL, event.EndpointControls{RespectRetryAfter: true, MaxPerSecond: 5})
	r.apply(set...)
	r.apply(r.matches(client, 5)...)
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	w.outcomes = w.noting(t.Context())
	w.scheduler.expect(firstAttempt, waiting{Webhook: webhook, Client: client}, w.Now())
	var ended []verdict
	deliver := func(c claim, read time.Time) {
		c.read = read
		o := w.deliver(t.Context(), c)
		w.noted(t.Context(), o)
		ended = append(ended, o.verdict)
	}
	claimed, claims := w.Now(), r.claim(5)
	for _, c := range claims[:4] {
		deliver(c, claimed)
	}
	deliver(claims[4], w.Now())
	if !slices.Equal(ended, []verdict{failed, returned, returned, returned, failed}) {
		t.Errorf("ended as %v", ended)
	}
}

func TestOnlyWhoeverChoseItWaitsAndOnlyFor429And503(t *testing.T) {
	t.Parallel()
	for status, chosen := range map[int]bool{http.StatusServiceUnavailable: false, http.StatusInternalServerError: true} {
		r := newFixture(t, Config{RetryDelays: shortDelays})
		rx := newReceiver(t, asks(status))
		client := r.client()
		webhook, subscribed := r.subscribe(client, rx.URL, "")
		r.apply(subscribed, r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{RespectRetryAfter: chosen}}))
		r.apply(r.match(client))
		stop := r.start(r.Dispatcher)
		r.ended("dropped", 1)
		stop()
		if n := r.count(`SELECT count(*) FROM dispatch_endpoints WHERE held_until IS NOT NULL`); n != 0 {
			t.Errorf("%d is held", status)
		}
	}
}

// Of several that are under way, one may ask for less than another.
func TestTheLongestWaitThatAReceiverAsksForCounts(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	sandbox := r.client()
	_, subscribed := r.subscribe(sandbox, "http://a.example", "")
	r.apply(subscribed, r.recorded(sandbox, event.ClockMoved{Client: sandbox, AheadMicros: (24 * time.Hour).Microseconds()}))
	r.apply(r.matches(sandbox, 4)...)
	asked := outcomes(failed, r.claim(3)...)
	asked[0].hold, asked[1].hold, asked[2].hold = time.Minute, 10*time.Minute, 2*time.Minute
	for _, noted := range [][]outcome{asked[:2], asked[2:]} {
		r.noteAll(noted, false)
		n := r.count(`SELECT round(extract(epoch FROM held_until - now() - interval '24 hours')) FROM dispatch_endpoints`)
		if n < 500 || n > 600 {
			t.Errorf("it is held for %d s by its client's clock, not for 600", n)
		}
		if claims := r.claim(1); len(claims) != 0 {
			t.Error("it is not held")
		}
	}
}

func TestAReceiverIsHeldThatIsBusyOrUnavailableAndNoOther(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	var status atomic.Int64
	rx := newReceiver(t, func(w http.ResponseWriter, req *http.Request) { asks(int(status.Load()))(w, req) })
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	for answer, hold := range map[int]time.Duration{429: 10 * time.Minute, 503: 10 * time.Minute, 200: 0, 301: 0, 404: 0, 500: 0, 502: 0} {
		status.Store(int64(answer))
		for _, chosen := range []bool{true, false} {
			o := w.attempt(t.Context(), claim{Address: address{Clear: rx.URL}, Waits: chosen, read: w.Now().Add(time.Hour)}) // that holds good, however slow this is
			if o.status != answer || chosen && o.hold != hold || !chosen && o.hold != 0 {
				t.Errorf("answered %d, it is held for %s (chosen %t)", o.status, o.hold, chosen)
			}
		}
	}
}

// disabled notes what DisableFailing asks for.
type disabled []id.Webhook

func (d *disabled) DisableWebhook(_ context.Context, _ id.Client, webhook id.Webhook, _, _ time.Time) error {
	*d = append(*d, webhook)
	return nil
}

func TestAnEndpointIsDisabledByAFailureThatComesLateEnough(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://127.0.0.1:1", "")
	silent, second := r.subscribe(client, "http://127.0.0.1:1", "")
	free, third := r.subscribe(client, "http://127.0.0.1:1", "")
	back, fourth := r.subscribe(client, "http://127.0.0.1:1", "")
	chosen := event.EndpointControls{DisableAfter: 60}
	r.apply(subscribed, second, third, fourth,
		r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: chosen}),
		r.recorded(client, event.WebhookControlsSet{Webhook: silent, EndpointControls: chosen}),
		r.recorded(client, event.WebhookControlsSet{Webhook: back, EndpointControls: chosen}))
	began := r.at.Add(time.Second)
	fail := func(of id.Webhook, since any, last time.Time) {
		r.exec(`INSERT INTO dispatch_health AS h (client, webhook, failing_since, last_failure_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (client, webhook) DO UPDATE SET failing_since = $3, last_failure_at = $4`, client, of, since, last)
	}
	look := func() (found disabled) {
		t.Helper()
		if err := DisableFailing(t.Context(), r.pool, &found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	fail(silent, began, began.Add(59*time.Second))
	fail(free, began, began.Add(time.Hour))
	fail(webhook, began, began.Add(time.Minute))
	fail(back, nil, began.Add(time.Hour)) // and then it accepted
	if found := look(); len(found) != 1 || found[0] != webhook {
		t.Fatalf("disabled %v", found)
	}
	r.apply(r.recorded(client, event.WebhookDisabled{Webhook: webhook, FailingSince: began}), r.match(client))
	if found := look(); len(found) != 0 {
		t.Errorf("disabled again: %v", found)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE webhook = $1`, webhook); n != 0 {
		t.Errorf("%d deliveries to a disabled endpoint", n)
	}
	r.at = began.Add(2 * time.Minute)
	r.apply(r.recorded(client, event.WebhookResumed{Webhook: webhook}))
	if found := look(); len(found) != 0 {
		t.Errorf("disabled by what was before it was resumed: %v", found)
	}
}

func TestEndpointsOfOneClientKeepNoOthersFromBeingDisabled(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	many, one := r.client(), r.client()
	began := r.at.Add(time.Second)
	fail := func(client id.Client, webhook string, since time.Time) {
		r.exec(`INSERT INTO dispatch_endpoints (client, webhook, url, event_types, state, secrets, cancelled_through, changed_at, disable_after_seconds)
			VALUES ($1, $2, '', '{}', 'active', '[]', '', $3, 60)`, client, webhook, r.at)
		r.exec(`INSERT INTO dispatch_health (client, webhook, failing_since, last_failure_at) VALUES ($1, $2, $3, $4)`,
			client, webhook, since, since.Add(time.Hour))
	}
	for i := range maxDisabled + 1 {
		fail(many, "whk_"+strconv.Itoa(i), began)
	}
	fail(one, "whk_one", began.Add(time.Minute))
	var found disabled
	if err := DisableFailing(t.Context(), r.pool, &found); err != nil {
		t.Fatal(err)
	}
	if len(found) != maxDisabled || !slices.Contains(found, "whk_one") {
		t.Errorf("%d are disabled, none of the other client", len(found))
	}
}

func TestAFilterLeavesOutWhatItDoesNotSurelyName(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 100} {
		r := newFixture(t, Config{})
		client := r.client()
		webhook, subscribed := r.subscribe(client, "http://a.example", "")
		_, all := r.subscribe(client, "http://b.example", "")
		filter := func(text string) eventstore.Recorded {
			return r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Filter: text}})
		}
		log := []eventstore.Recorded{subscribed, all}
		for _, step := range []struct {
			filter string
			named  bool
		}{
			{``, true},
			{`data.score > 0.7 && event_type == "match.computed"`, true},
			{`data.score > 0.8`, false},
			{`data.none == 1`, false},    // unknown
			{`!(data.none == 1)`, false}, // too
			{`data.user_id.startsWith("usr_") && data.user_id != data.matched_user_id`, true},
			{`older(timestamp("2001-01-31T12:00:00Z"), "1d") && !within(timestamp("2001-01-31T12:00:00Z"), "1d")`, true},
			{`data.user_id.matches("((u?){30}(s?){30}){20}r_.*") || data.score > 0.7`, false}, // takes too many steps
			{``, true},
		} {
			match := r.match(client)
			log = append(log, filter(step.filter), match)
			if step.named {
				log = append(log, match) // a repetition adds nothing
			}
		}
		for some := range slices.Chunk(log, size) {
			r.apply(some...)
		}
		for sql, want := range map[string]int{
			`SELECT count(*) FROM dispatch_queue WHERE webhook = $1`:           5,
			`SELECT filtered FROM dispatch_endpoints WHERE webhook = $1`:       4,
			`SELECT count(*) FROM dispatch_queue WHERE webhook <> $1`:          9,
			`SELECT sum(filtered) FROM dispatch_endpoints WHERE webhook <> $1`: 0,
		} {
			if n := r.count(sql, webhook); n != want {
				t.Errorf("in batches of %d, %s: %d, want %d", size, sql, n, want)
			}
		}
	}
}

// BenchmarkFilter is what a filter costs the queueing of matches, beside none.
func BenchmarkFilter(b *testing.B) {
	for name, filter := range map[string]string{"none": "", "filter": `data.score > 0.7 && event_type == "match.computed"`} {
		b.Run(name, func(b *testing.B) {
			r := newFixture(b, Config{})
			client := r.client()
			webhook, subscribed := r.subscribe(client, "http://a.example", "")
			r.apply(subscribed, r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Filter: filter, Ordered: true}}))
			matches := 0
			for b.Loop() {
				r.apply(r.matches(client, 500)...)
				matches += 500
			}
			b.ReportMetric(float64(matches)/b.Elapsed().Seconds(), "matches/s")
		})
	}
}
