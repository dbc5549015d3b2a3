package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// controlled is the facts of a subscription with controls.
func (r *fixture) controlled(client id.Client, url string, c event.EndpointControls) (id.Webhook, []eventstore.Recorded) {
	webhook, subscribed := r.subscribe(client, url, "")
	return webhook, []eventstore.Recorded{subscribed, r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: c})}
}

// firsts notes the first attempt of each event, in the order in which they came.
type firsts struct {
	mu   sync.Mutex
	seen map[string]int
	ids  []string
}

// attempted notes an attempt, and says which of its event it is, from 1.
func (f *firsts) attempted(event string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[string]int{}
	}
	f.seen[event]++
	if f.seen[event] == 1 {
		f.ids = append(f.ids, event)
	}
	return f.seen[event]
}

func (f *firsts) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ids)
}

func idsOf(events []eventstore.Recorded) []string {
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = string(e.ID)
	}
	return ids
}

// Every 17th is refused once, two processes work the queue, one of them dies on the
// way, and events come meanwhile.
func TestAnOrderedEndpointIsAttemptedInOrder(t *testing.T) {
	t.Parallel()
	config := Config{RetryDelays: shortDelays}
	r := newFixture(t, config)
	var (
		got firsts
		n   int
	)
	rx := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if tries := got.attempted(req.Header.Get("Webhook-Id")); tries == 1 {
			if n++; n%17 == 0 { // nothing is attempted beside another
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	})
	client := r.client()
	_, set := r.controlled(client, rx.URL, event.EndpointControls{Ordered: true})
	r.apply(set...)
	var want []string
	more := func() {
		events := r.matches(client, 100)
		want = append(want, idsOf(events)...)
		r.apply(events...)
	}
	more()
	stop := r.start(r.Dispatcher)
	r.start(r.replica(config))
	more()
	r.ended("delivered", 60)
	stop()
	more()
	r.ended("delivered", 300)
	if all := got.all(); !slices.Equal(all, want) {
		t.Errorf("came as\n%s\nnot\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatFollowsAFailureWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, set := r.controlled(client, "http://a.example", event.EndpointControls{Ordered: true})
	_, other := r.subscribe(r.client(), "http://a.example", "")
	r.apply(append(set, other)...)
	r.apply(r.matches(client, 3)...)
	claims := r.claim(1)
	if len(claims) != 3 || len(r.claim(9)) != 0 {
		t.Fatalf("%d are claimed at first", len(claims))
	}
	slices.SortFunc(claims, func(x, y claim) int { return int(x.Made - y.Made) })
	r.note(failed, claims[0])
	r.note(returned, claims[1:]...)
	r.endLeases()
	if n := len(r.claim(9)); n != 0 {
		t.Errorf("%d are claimed while one waits for its retry", n)
	}
	r.exec(`UPDATE dispatch_queue SET due_at = now()`)
	again := r.claim(9)
	if len(again) != 1 || again[0].Delivery != claims[0].Delivery || len(r.claim(9)) != 0 {
		t.Fatalf("claimed for its retry: %v", again)
	}
	r.note(delivered, again...)
	rest := r.claim(9)
	if len(rest) != 2 {
		t.Fatalf("%d follow", len(rest))
	}
	slices.SortFunc(rest, func(x, y claim) int { return int(x.Made - y.Made) })
	r.exec(`UPDATE dispatch_queue SET leased_until = NULL WHERE delivery = $1`, rest[1].Delivery)
	if n := len(r.claim(9)); n != 0 {
		t.Errorf("%d are claimed past one that is held", n)
	}
}

// Those that failed before it was ordered do not go together, either.
func TestOfAnOrderedEndpointOneRetryIsMadeAtATime(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 3)...)
	r.note(failed, r.claim(3)...)
	r.apply(r.recorded(client, event.WebhookControlsSet{Webhook: webhook, EndpointControls: event.EndpointControls{Ordered: true}}))
	r.exec(`UPDATE dispatch_queue SET due_at = now() - made * interval '1 s'`)
	var made []int64
	for range 3 {
		claims := r.claim(9)
		if len(claims) != 1 {
			t.Fatalf("%d are claimed", len(claims))
		}
		made = append(made, claims[0].Made)
		r.note(delivered, claims...)
	}
	if !slices.IsSortedFunc(made, func(x, y int64) int { return int(y - x) }) {
		t.Errorf("not by when they are due: %v", made)
	}
}

// A user whose creation the read model has left out it never knows.
func TestADeliveryWhoseUserIsNeverKnownIsCancelledAfterADay(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	webhook, set := r.controlled(client, rx.URL, event.EndpointControls{Ordered: true})
	unknown, known := r.match(client), r.match(client)
	external := event.ClientSettingsChanged{Client: client, Settings: event.Settings{WebhookUserIDs: "external_id"}}
	r.apply(append(set, r.recorded(client, external), unknown, known)...)
	missing := errCrashed
	r.ExternalIDs = func(_ context.Context, _ id.Client, users []id.User) (map[id.User]string, error) {
		names := map[id.User]string{}
		for _, user := range users {
			if user == unknown.Event.(event.MatchComputed).User {
				return nil, missing
			}
			names[user] = "known"
		}
		return names, nil
	}
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	for _, of := range []struct {
		queued, rest time.Duration
		missing      error
		ends         verdict
	}{
		{48 * time.Hour, time.Second, errCrashed, returned}, // that will pass
		{0, time.Second, event.ErrUnnamed, returned},
		{time.Minute, 6 * time.Second, event.ErrUnnamed, returned},
		{23 * time.Hour, 5 * time.Minute, event.ErrUnnamed, returned},
		{24 * time.Hour, 5 * time.Minute, event.ErrUnnamed, cancelled},
	} {
		missing = of.missing
		r.exec(`UPDATE dispatch_queue SET leased_until = NULL, queued_at = now() - $1::interval`, of.queued)
		c := r.claim(1)[0]
		if o := w.attempt(t.Context(), c); o.verdict != of.ends || o.retryIn.Round(time.Second) != of.rest {
			t.Errorf("after %s in the queue it is %s for %s", of.queued, o.verdict, o.retryIn)
		}
	}
	r.exec(`UPDATE dispatch_queue SET leased_until = NULL`)
	r.start(r.Dispatcher)
	r.ended("cancelled", 1)
	r.ended("delivered", 1)
	if got := rx.next(t).header.Get("Webhook-Id"); got != string(known.ID) {
		t.Errorf("%s is sent", got)
	}
	if got, err := r.manual().Recover(t.Context(), client, webhook, time.Time{}, nil); err != nil || got.Recovered != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAPauseEndsAChainThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	var (
		webhook id.Webhook
		later   atomic.Int64
		got     atomic.Int64
	)
	rx := newReceiver(t, func(http.ResponseWriter, *http.Request) {
		if got.Add(1) == 2 { // what was claimed was read before the pause
			r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
			later.Store(int64(freshFor))
		}
	})
	webhook, set := r.controlled(client, rx.URL, event.EndpointControls{Ordered: true})
	r.apply(set...)
	r.apply(r.matches(client, rereadAtOnce+20)...)
	d := r.replica(Config{})
	now := d.Now
	d.Now = func() time.Time { return now().Add(time.Duration(later.Load())) }
	r.start(d)
	r.ended("cancelled", rereadAtOnce+18)
	if n := got.Load(); n != 2 {
		t.Errorf("%d are attempted", n)
	}
}

// Where each statement takes 60 ms, one for each delivery that goes back took 2.4 s of 3.6 after 2 attempts of 200.
func TestWhatAChainHasNoTimeForIsNotReadAgain(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	var later atomic.Int64
	rx := newReceiver(t, func(http.ResponseWriter, *http.Request) { later.Store(int64(time.Hour)) })
	webhook, set := r.controlled(client, rx.URL, event.EndpointControls{Ordered: true})
	r.apply(set...)
	r.apply(r.matches(client, 3)...)
	d := r.replica(Config{})
	d.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	w := newWorker(d, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	w.outcomes = w.noting(t.Context())
	w.scheduler.expect(firstAttempt, waiting{Webhook: webhook, Client: client}, w.Now())
	w.scheduler.quotas(w.Now())
	chain, read := r.claim(1), w.Now().Add(time.Hour/2)
	for i := range chain {
		chain[i].read = read
	}
	w.deliverInOrder(t.Context(), w.take(chain))
	if left := r.count(`SELECT count(*) FROM dispatch_queue`); left != 2 || len(rx.got) != 1 {
		t.Errorf("%d are left after %d attempts", left, len(rx.got))
	}
	for _, c := range chain {
		if !c.read.Equal(read) {
			t.Errorf("what goes back was read again at %s", c.read)
		}
	}
}

func TestNoOutcomeIsRefusedWhileTheDatabaseIsSlow(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{FirstAttempts: 2, Retries: 1})
	client := r.client()
	_, one := r.controlled(client, "http://a.example", event.EndpointControls{Ordered: true})
	_, two := r.controlled(client, "http://b.example", event.EndpointControls{Ordered: true})
	r.apply(append(one, two...)...)
	r.apply(r.matches(client, maxChain)...)
	claims := r.claim(1)
	if len(claims) != 2*maxChain {
		t.Fatalf("%d are claimed", len(claims))
	}
	slow := testkit.Must(r.pool.Begin(t.Context()))(t)
	if _, err := slow.Exec(t.Context(), `LOCK TABLE dispatch_attempts`); err != nil {
		t.Fatal(err)
	}
	w := newWorker(r.Dispatcher, r.Config.withDefaults())
	w.outcomes = w.noting(t.Context())
	var (
		noting  sync.WaitGroup
		refused atomic.Int64
	)
	for _, c := range claims {
		noting.Go(func() {
			if _, err := w.outcomes.Ask(t.Context(), outcome{claim: c, verdict: delivered, began: w.Now()}); err != nil {
				refused.Add(1)
			}
		})
	}
	testkit.Eventually(t, "all but those of the first round wait", func() bool {
		return w.outcomes.Waits()+int(refused.Load()) >= 2*maxChain-maxOutcomes
	})
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	noting.Wait()
	if n, left := refused.Load(), r.count(`SELECT count(*) FROM dispatch_queue`); n > 0 || left > 0 {
		t.Errorf("%d are refused, %d are left", n, left)
	}
}

func TestAChainIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	_, set := r.controlled(client, "http://a.example", event.EndpointControls{Ordered: true})
	r.apply(set...)
	r.apply(r.matches(client, 4)...)
	r.exec(`UPDATE dispatch_queue SET body = convert_to(repeat('x', $1), 'UTF8')`, maxChainBytes-1)
	if claims := r.claim(1); len(claims) != 2 {
		t.Errorf("%d are claimed where the second reaches the bound", len(claims))
	}
}

func TestAnOrderedOrPacedEndpointBelongsToOneProcessUntilItIsDead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]event.EndpointControls{"ordered": {Ordered: true}, "paced": {MaxPerSecond: 100}} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, Config{})
			client := r.client()
			_, set := r.controlled(client, "http://a.example", c)
			r.apply(set...)
			r.apply(r.matches(client, 2)...)
			one, two := r.queue(time.Minute), r.queue(time.Minute)
			for _, q := range []*queue{one, two} {
				if err := (&registry{queue: q}).register(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			first := r.claimBy(one, 1)
			if len(first) == 0 {
				t.Fatal("nothing is claimed")
			}
			r.note(delivered, first...)
			r.apply(r.matches(client, 2)...)
			if n := len(r.claimBy(two, 1)); n != 0 {
				t.Errorf("another claims %d", n)
			}
			r.exec(`DELETE FROM dispatch_workers WHERE id = $1`, one.holder.Load())
			if n := len(r.claimBy(two, 1)); n == 0 {
				t.Error("nobody takes over")
			}
			if n := len(r.claimBy(one, 1)); n != 0 {
				t.Errorf("the former owner claims %d", n)
			}
		})
	}
}

func TestNoMoreAttemptsBeginInASecondThanARateAllows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]event.EndpointControls{"alone": {MaxPerSecond: 40}, "and in order": {MaxPerSecond: 40, Ordered: true}} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, Config{})
			rx := newReceiver(t, nil)
			client := r.client()
			_, set := r.controlled(client, rx.URL, c)
			r.apply(set...)
			r.apply(r.matches(client, 60)...)
			r.start(r.Dispatcher)
			r.start(r.replica(Config{}))
			r.ended("delivered", 60)
			// By the database's clock, from which each time is as far off as its statement was late.
			n := r.count(`SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN '500 ms' PRECEDING AND CURRENT ROW) AS n FROM dispatch_attempts) a`)
			if n > 40 {
				t.Errorf("%d begin within 0.5 s", n)
			}
		})
	}
}

func TestWhatIsCancelledTakesNoPlaceInARate(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	webhook, set := r.controlled(client, rx.URL, event.EndpointControls{MaxPerSecond: 1})
	r.apply(set...)
	r.apply(r.matches(client, 3)...)
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}), r.recorded(client, event.WebhookResumed{Webhook: webhook}), r.match(client))
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	w.scheduler.expect(firstAttempt, waiting{Webhook: webhook, Client: client}, w.Now())
	for _, c := range r.claim(4) {
		c.read = w.Now()
		before := w.scheduler.endpoints[webhook].paced
		o := w.deliver(t.Context(), c)
		if moved := w.scheduler.endpoints[webhook].paced != before; moved == c.Cancelled || o.verdict != delivered && o.verdict != cancelled {
			t.Errorf("cancelled %t, ended as %s, took a place %t", c.Cancelled, o.verdict, moved)
		}
	}
	if len(rx.got) != 1 {
		t.Errorf("%d arrived", len(rx.got))
	}
}
