package dispatcher

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/backoff"
	"kindred/coalesce"
	"kindred/domain/id"
	"kindred/postgres"
)

const (
	// claimInterval is the least time between two claims, so that each takes many.
	claimInterval = 2 * time.Millisecond
	// restBetweenLooks keeps the share of time that is spent on looking low.
	restBetweenLooks = 3
	// pauseAfterTrouble is how long to wait when the database or a secret cannot be reached.
	pauseAfterTrouble = time.Second

	// limit: deliveries | outcomes of one statement | {maxOutcomes}; all that can be in flight may wait
	maxOutcomes = 512
)

// worker is one running dispatcher: a loop that claims, and a goroutine for each
// attempt.
type worker struct {
	*Dispatcher
	config    Config
	queue     *queue
	transport *http.Transport
	secrets   *openedSecrets

	mu        sync.Mutex
	scheduler *scheduler
	flying    map[id.Delivery]int // the token of each attempt in flight
	health    *health

	look     chan struct{} // the queue has changed
	wake     chan struct{} // a slot is free, or the scheduler knows of more work
	outcomes *coalesce.Coalescer[outcome, struct{}]
	rereads  *coalesce.Coalescer[claim, claim] // with their subscriptions as they are now
	inFlight sync.WaitGroup

	putBacks                  atomic.Int64 // since the log told of them
	telling, missing, unnoted backoff.Seldom

	failedLong map[endpointKey]time.Time // since when, as the log says by now; of noteHealth alone
}

func newWorker(d *Dispatcher, c Config) *worker {
	w := &worker{
		Dispatcher: d,
		config:     c,
		queue:      &queue{pool: d.Pool, control: cmp.Or(d.Control, d.Pool), lease: c.Lease, now: d.Now},
		transport:  newTransport(d.Guard, c, d.resolver),
		secrets:    newOpenedSecrets(d.Secrets),
		scheduler:  newScheduler(c),
		flying:     map[id.Delivery]int{},
		health:     newHealth(),
		look:       make(chan struct{}, 1),
		wake:       make(chan struct{}, 1),
	}
	w.rereads = &coalesce.Coalescer[claim, claim]{
		Most: rereadAtOnce, Waiting: c.FirstAttempts + c.Retries, Timeout: dbTimeout,
		Answer: func(ctx context.Context, claims []claim) ([]claim, error) {
			again := slices.Clone(claims)
			return again, w.queue.reread(ctx, again, w.Now())
		},
	}
	return w
}

// signal wakes the goroutine that waits on a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// work claims and starts attempts until ctx ends.
func (w *worker) work(ctx context.Context) {
	var (
		wanted         = true // a look at the queue
		lookFrom, poll time.Time
		after          [attemptKinds]id.Webhook
	)
	for ctx.Err() == nil {
		now := w.Now()
		if most := now.Add(w.config.Poll + dbTimeout*restBetweenLooks); poll.After(most) || lookFrom.After(most) {
			poll, lookFrom = now, now // the clock has gone back
		}
		if (wanted || !now.Before(poll)) && !now.Before(lookFrom) {
			// Statements outlive ctx: a claim must not be lost between the database and us.
			next, more, err := w.discover(context.WithoutCancel(ctx), after)
			if err != nil {
				w.trouble(ctx, err)
				continue
			}
			end := w.Now()
			after, wanted, lookFrom = next, more, end.Add(restBetweenLooks*end.Sub(now))
			if poll = end.Add(w.config.Poll); poll.Before(lookFrom) {
				poll = lookFrom
			}
		}
		claimed, err := w.claim(context.WithoutCancel(ctx))
		if err != nil {
			w.trouble(ctx, err)
			continue
		}
		if claimed && backoff.Sleep(ctx, claimInterval) != nil {
			return
		}
		wait := poll.Sub(w.Now())
		if wanted {
			wait = min(wait, lookFrom.Sub(w.Now()))
		}
		w.mu.Lock()
		wait = w.scheduler.next(w.Now(), wait)
		w.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.look:
			wanted = true
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// trouble is the database's: it is logged now and then, and the next try waits.
func (w *worker) trouble(ctx context.Context, err error) {
	w.missing.Do(func() { w.Logger.ErrorContext(ctx, "webhook queue cannot be reached", "error", err) })
	_ = backoff.Sleep(ctx, pauseAfterTrouble) // the caller looks at ctx
}

// discover tells the scheduler which endpoints have work. It returns where the
// next look begins, and whether there is more to look at now.
func (w *worker) discover(ctx context.Context, after [attemptKinds]id.Webhook) (next [attemptKinds]id.Webhook, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	if err := w.queue.sweep(ctx); err != nil {
		return after, true, err
	}
	found, err := w.queue.discover(ctx, after)
	if err != nil {
		return after, true, err
	}
	now := w.Now() // later than the database's, so that nothing is asked for before it is due
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheduler.evict(now)
	for kind, endpoints := range found {
		for _, e := range endpoints {
			w.scheduler.expect(attemptKind(kind), e, now.Add(-e.Overdue))
		}
		if len(endpoints) == maxDiscovered {
			next[kind], more = endpoints[maxDiscovered-1].Webhook, true
		}
		w.Metrics.waiting(attemptKind(kind), endpoints)
	}
	return next, more, nil
}

// claim takes deliveries for the slots that are free and starts their attempts.
// It says whether the next claim is to come a moment later.
func (w *worker) claim(ctx context.Context) (bool, error) {
	if w.outcomes.Waits() > maxOutcomes {
		return true, nil // what has ended is to be noted first
	}
	w.mu.Lock()
	quotas := w.scheduler.quotas(w.Now())
	w.mu.Unlock()
	if len(quotas) == 0 {
		return false, nil
	}
	bounded, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	began := w.Now()
	claims, err := w.queue.claim(bounded, quotas)
	w.Metrics.claims.Observe(w.Now().Sub(began).Seconds())
	w.mu.Lock()
	w.scheduler.claimed(quotas, claims)
	claims = w.take(claims)
	w.mu.Unlock()
	if err != nil {
		return true, err
	}
	chains := map[id.Webhook][]claim{}
	for _, c := range claims {
		c.read = began
		if c.Kind == retryAttempt {
			signal(w.look) // to learn when the next one is due
		}
		if c.Ordered {
			chains[c.Webhook] = append(chains[c.Webhook], c)
			continue
		}
		w.inFlight.Go(func() {
			o := w.deliver(ctx, c)
			w.free(c)
			w.noted(ctx, o)
		})
	}
	for _, chain := range chains {
		w.inFlight.Go(func() { w.deliverInOrder(ctx, chain) })
	}
	return true, nil
}

// chainFor bounds how long deliveries are attempted one after the other before what
// is left goes back to the queue.
// limit: deliveries | time for which deliveries of an ordered endpoint are attempted before more is claimed | {chainFor}
const chainFor = time.Second

// rereadAtOnce is how many subscriptions are read again in one statement: of a chain ahead,
// since before each attempt it would take longer than the attempts; and else of attempts that
// come together, as where the database is slow and a claim is old before it begins.
// limit: deliveries | subscriptions that are read again in one statement | {rereadAtOnce}
const rereadAtOnce = 64

// deliverInOrder makes one attempt after the other, as long as each ends its delivery. The
// rest goes back to the queue. The slot is free once all outcomes are noted.
func (w *worker) deliverInOrder(ctx context.Context, chain []claim) {
	slices.SortFunc(chain, func(x, y claim) int { return cmp.Compare(x.Made, y.Made) })
	var (
		noting  sync.WaitGroup
		broken  bool
		started = w.Now()
	)
	for i, c := range chain {
		o := outcome{claim: c, began: w.Now(), verdict: returned}
		if broken || o.began.Sub(started).Abs() >= chainFor {
			o = w.landed(o)
		} else {
			if o.began.Sub(c.read) >= freshFor/2 {
				// Where it fails, the attempt itself reads again, and says what is wrong.
				_ = w.queue.reread(ctx, chain[i:min(i+rereadAtOnce, len(chain))], w.Now())
			}
			o = w.deliver(ctx, chain[i])
			broken = o.verdict == returned || o.verdict == failed && o.retryIn >= 0
		}
		noting.Go(func() { w.noted(ctx, o) })
	}
	noting.Wait()
	w.free(chain[0])
}

// free gives a slot back.
func (w *worker) free(c claim) {
	w.mu.Lock()
	w.scheduler.release(c.Kind, c.Webhook, 1)
	w.mu.Unlock()
	signal(w.wake)
}

// take returns the claims that are to be begun. What is in flight here already, its
// lease ended by a clock that jumped, goes on under its new token. The caller
// holds the lock.
func (w *worker) take(claims []claim) []claim {
	fresh := claims[:0]
	// An ordered endpoint has one slot for all of its claims, which goes where none is begun.
	chained, idle := map[id.Webhook]bool{}, map[id.Webhook]attemptKind{}
	for _, c := range claims {
		_, flies := w.flying[c.Delivery]
		w.flying[c.Delivery] = c.Token
		switch {
		case flies && c.Ordered:
			idle[c.Webhook] = c.Kind
		case flies:
			w.scheduler.release(c.Kind, c.Webhook, 1)
		default:
			chained[c.Webhook] = c.Ordered
			fresh = append(fresh, c)
		}
	}
	for webhook, kind := range idle {
		if !chained[webhook] {
			w.scheduler.release(kind, webhook, 1)
		}
	}
	return fresh
}

// landed ends a claim in this process. A claim that was renewed meanwhile ends as it was renewed.
func (w *worker) landed(o outcome) outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if token, flies := w.flying[o.claim.Delivery]; flies {
		o.claim.Token = token
	}
	delete(w.flying, o.claim.Delivery)
	return o
}

// deliver makes one attempt, as soon as the rate of its endpoint allows. What is cancelled
// takes no place in the rate: else it would hold up what came after it.
func (w *worker) deliver(ctx context.Context, c claim) outcome {
	if c.Cancelled {
		return w.landed(outcome{claim: c, began: w.Now(), verdict: cancelled})
	}
	w.mu.Lock()
	wait, goes := w.scheduler.pace(c, w.Now())
	w.mu.Unlock()
	for goes {
		_ = backoff.Sleep(ctx, wait) // ctx does not end
		w.mu.Lock()
		wait, goes = w.scheduler.begin(c, w.Now())
		w.mu.Unlock()
		if wait == 0 {
			break
		}
	}
	if !goes {
		return w.landed(outcome{claim: c, began: w.Now(), verdict: returned, retryIn: paceAhead})
	}
	done := w.Metrics.started(c)
	o := w.attempt(ctx, c)
	done(o)
	now := w.Now()
	o = w.landed(o)
	made := o.verdict == delivered || o.verdict == failed
	if made {
		w.trace(o)
	}
	w.mu.Lock()
	if made {
		w.scheduler.observe(c.Webhook, o.verdict == delivered, o.latency)
		w.health.observe(endpointKey{c.Client, c.Webhook}, o.verdict == delivered, now)
	}
	w.mu.Unlock()
	return o
}

// noted notes, with others, how a claim ended.
func (w *worker) noted(ctx context.Context, o outcome) {
	if _, err := w.outcomes.Ask(ctx, o); err != nil { // its lease ends, and it is sent again
		w.Logger.ErrorContext(ctx, "webhook outcome cannot be noted", "error", err)
		return
	}
	if o.hold > 0 {
		w.mu.Lock()
		w.scheduler.hold(o.claim.Webhook, w.Now())
		w.mu.Unlock()
	}
}

// noting notes outcomes, many at once. While the database is away it tries again,
// for noteFor or until stopping has ended. All that can be in flight may wait: an
// ordered endpoint ends a chain in one slot, and one whose outcome is refused stands
// still until its lease has ended.
func (w *worker) noting(stopping context.Context) *coalesce.Coalescer[outcome, struct{}] {
	return &coalesce.Coalescer[outcome, struct{}]{
		Most: maxOutcomes, Waiting: maxOutcomes + (w.config.FirstAttempts+w.config.Retries)*maxChain, Timeout: noteFor,
		Answer: func(ctx context.Context, batch []outcome) ([]struct{}, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(stopping, cancel)()
			w.note(ctx, batch)
			return make([]struct{}, len(batch)), nil
		},
	}
}

const noteFor = time.Minute

// note writes outcomes. Where the database stays away, the leases of these
// deliveries end, and they are sent again.
func (w *worker) note(ctx context.Context, batch []outcome) {
	for try := 1; ; try++ {
		states, err := w.noteOnce(ctx, batch, try > 1)
		if err == nil {
			w.Metrics.ended(states)
			for _, state := range states {
				if state == string(failed) || state == string(returned) {
					signal(w.look) // to learn when it is due
					return
				}
			}
			return
		}
		w.unnoted.Do(func() {
			w.Logger.ErrorContext(ctx, "webhook outcomes cannot be noted", "outcomes", len(batch), "try", try, "error", err)
		})
		if noPartition(err) { // the database's clock has jumped
			if err := w.makePartitions(context.WithoutCancel(ctx)); err != nil {
				w.Logger.ErrorContext(ctx, "delivery log cannot be maintained", "error", err)
			}
		}
		if backoff.Sleep(ctx, pauseAfterTrouble) != nil {
			return
		}
	}
}

func (w *worker) noteOnce(ctx context.Context, batch []outcome, repeated bool) (map[id.Delivery]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	return w.queue.complete(ctx, batch, w.Now(), repeated)
}

// listen turns notifications into work. While it cannot, polling serves.
func (w *worker) listen(ctx context.Context) {
	w.Listener.Shared(w.Pool, w.Logger).Follow(ctx, postgres.Follow{
		Channel: channel,
		Begin:   func(int64) { signal(w.look) },
		Heard: func(told string) {
			if !w.arrived(told) {
				signal(w.look)
			}
		},
	})
}

// arrived hands the scheduler what a notification tells of. It says whether it
// does: see insertQueue.
func (w *worker) arrived(told string) bool {
	var all []waiting
	for one := range strings.SplitSeq(told, ",") {
		fields := strings.Fields(one)
		if len(fields) != 3 {
			return false
		}
		made, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return false
		}
		all = append(all, waiting{Client: id.Client(fields[0]), Webhook: id.Webhook(fields[1]), Made: made})
	}
	now := w.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range all {
		w.scheduler.arrive(one, now)
	}
	signal(w.wake)
	return true
}

// noteHealth writes down how receivers answer, every second and once more when ctx has
// ended, and counts those that have failed for long.
func (w *worker) noteHealth(ctx context.Context) {
	var seldom backoff.Seldom
	for round := 0; ; round++ {
		goOn := backoff.Sleep(ctx, healthEvery) == nil
		if err := w.noteHealthOnce(ctx, round%countEvery == 0); err != nil {
			seldom.Do(func() { w.Logger.WarnContext(ctx, "health of webhook endpoints cannot be noted", "error", err) })
		}
		if !goOn {
			return
		}
	}
}

// countFailing counts the endpoints that have failed for long, and names those that the log did not name before.
func (w *worker) countFailing(ctx context.Context) error {
	var (
		client  id.Client
		webhook id.Webhook
		since   time.Time
		failing float64
		found   = map[endpointKey]time.Time{}
	)
	rows, _ := w.Pool.Query(ctx, selectFailingLong, w.Now().Add(-failingLong), maxNamed) // what it fails with, its rows end with
	_, err := pgx.ForEachRow(rows, []any{&client, &webhook, &since, &failing}, func() error {
		by := endpointKey{client, webhook}
		if found[by] = since; !since.Equal(w.failedLong[by]) {
			w.Logger.WarnContext(ctx, "webhook endpoint has failed for long", "client_id", string(client), "webhook_id", string(webhook), "since", since)
		}
		return nil
	})
	if err == nil {
		w.failedLong = found
		w.Metrics.failing.Set(failing)
	}
	return err
}

func (w *worker) noteHealthOnce(ctx context.Context, count bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	if count {
		if err := w.countFailing(ctx); err != nil {
			return fmt.Errorf("count failing endpoints: %w", err)
		}
	}
	recent := w.health.take()
	if len(recent) == 0 {
		return nil
	}
	var (
		clients, webhooks           []string
		successes, failures, begins []*time.Time
	)
	for by, a := range recent {
		clients, webhooks = append(clients, string(by.client)), append(webhooks, string(by.webhook))
		successes, failures, begins = append(successes, a.success), append(failures, a.failure), append(begins, a.failing)
	}
	if _, err := w.Pool.Exec(ctx, upsertHealth, clients, webhooks, successes, failures, begins); err != nil {
		w.health.giveBack(recent)
		return fmt.Errorf("write the health of endpoints: %w", err)
	}
	return nil
}
