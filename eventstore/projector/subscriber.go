package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"kindred/backoff"
	"kindred/domain/event"
	"kindred/eventstore"
	"kindred/panics"
	"kindred/postgres"
)

const (
	defaultAttempts = 10
	handlerTimeout  = time.Minute
	saveEvery       = 100 // events that were handled between checkpoints while there is more to do
)

// errStopped: an event could not be handled, and none is skipped.
var errStopped = errors.New("stopped at an event that cannot be handled")

// Subscriber feeds policies through watermill: a topic is the name of a
// policy. Each has one leader among all processes, gets every event in order,
// the next only after the last was acknowledged, and none is skipped; an event
// may come again after a crash. What keeps failing stops its policy: that is
// logged and measured, and tried again after the runner's Pause.
type Subscriber struct {
	Runner   *Runner
	Wants    func(eventstore.Record) bool // nil: every event; what it does not want is not decoded
	Attempts int                          // at one event before the policy stops; 0: 10

	mu      sync.Mutex
	closed  bool
	cancels []context.CancelFunc
	running sync.WaitGroup
}

var _ message.Subscriber = (*Subscriber)(nil)

// errRefused: a handler has answered with a Nack, and no reason.
var errRefused = errors.New("the handler refused it")

// handling is an event on its way through a handler.
type handling struct {
	event eventstore.Recorded
	err   error // why it failed, to be read once the message is answered
}

type handlingKey struct{}

// Handle makes a handler for watermill's router of a function that is given
// the event of each message. Why that fails is told by the Subscriber.
func Handle(handle func(context.Context, eventstore.Recorded) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		h, ok := msg.Context().Value(handlingKey{}).(*handling)
		if !ok {
			return fmt.Errorf("message %s is not from the feed", msg.UUID)
		}
		if h.err = panics.Caught(func() error { return handle(msg.Context(), h.event) }); h.err != nil {
			msg.Nack()
		}
		return nil
	}
}

// Subscribe starts to follow the log for a policy, until ctx ends or the
// Subscriber is closed; then the channel is closed, as it is when the log does
// not fit the policy's checkpoint.
func (s *Subscriber) Subscribe(ctx context.Context, policy string) (<-chan *message.Message, error) {
	if !isName(policy) {
		return nil, fmt.Errorf("%q is not a name for a policy", policy)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the subscriber is closed")
	}
	ctx, cancel := context.WithCancel(ctx)
	s.cancels = append(s.cancels, cancel)
	f := &following{Subscriber: s, projectionID: "policy_" + policy, out: make(chan *message.Message)}
	s.running.Go(func() {
		defer close(f.out)
		defer cancel()
		if err := s.Runner.terms(ctx, f.projectionID, f.standBy, f.lead); err != nil {
			f.stops(true)
			s.Runner.Logger.ErrorContext(ctx, "policy refuses to run", "policy", policy, "error", err)
		}
	})
	return f.out, nil
}

// Close ends all subscriptions and waits for them.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, cancel := range s.cancels {
		cancel()
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// following is one policy's way through the log.
type following struct {
	*Subscriber
	projectionID string
	out          chan *message.Message
	lease        lease
	saved        checkpoint // as it stands in the database
	acked        checkpoint // not behind it
	done         int        // events that were handled between the two
	stopped      bool       // at the event behind acked, as the metrics tell
}

// standBy looks whether whoever leads has come further.
func (f *following) standBy() {
	if f.stopped && f.Runner.Progress != nil {
		at, _ := f.Runner.Progress.look(f.projectionID)
		f.goesOn(at)
	}
}

// goesOn tells once that the event at which this process stopped was handled by another, or skipped.
func (f *following) goesOn(at eventstore.Position) {
	if f.stopped && at > f.acked.position {
		f.stops(false)
	}
}

func (f *following) stops(stopped bool) {
	f.stopped = stopped
	f.Runner.Metrics.stops(f.projectionID, stopped)
}

func (f *following) lead(ctx context.Context, l lease) (err error) {
	if err := f.begin(ctx, l); err != nil {
		return err
	}
	sub, err := f.Runner.Log.Store.Subscribe(ctx, f.saved.position)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer func() {
		if errors.Is(err, errStopped) {
			f.stops(true)
		}
		err = errors.Join(err, f.save(ctx), sub.Close())
	}()
	for {
		batch, err := f.lease.next(ctx, sub)
		if err != nil {
			return err
		}
		for i, record := range batch.Records {
			f.Runner.Metrics.behind(f.projectionID, batch.Records[i:], f.Runner.Now())
			if err := f.pass(ctx, record); err != nil {
				return err
			}
		}
		if err := f.save(ctx); err != nil {
			return err
		}
		if batch.CaughtUp {
			f.Runner.Metrics.caughtUp(f.projectionID)
		}
		if !batch.Newest {
			continue
		}
		if _, err := f.Runner.Progress.waitForBatch(ctx, f.projectionID, batchWait); err != nil {
			return fmt.Errorf("follow the log: %w", err)
		}
	}
}

func (f *following) begin(ctx context.Context, l lease) error {
	epoch, err := f.Runner.Log.Store.Epoch(ctx)
	if err != nil {
		return fmt.Errorf("read the log's epoch: %w", err)
	}
	err = pgx.BeginFunc(ctx, f.Runner.Pool, func(tx pgx.Tx) error {
		f.saved, err = claim(ctx, tx, l, epoch)
		return err
	})
	if err != nil {
		return fmt.Errorf("claim the checkpoint: %w", err)
	}
	f.goesOn(f.saved.position)
	f.lease, f.acked, f.done = l, f.saved, 0
	if err := verify(ctx, f.Runner.Log.Store, f.saved, epoch); err != nil {
		return f.Runner.remedy(ctx, f.projectionID, nil, err)
	}
	l.reach(f.saved.position)
	return nil
}

// pass has one event handled.
func (f *following) pass(ctx context.Context, record eventstore.Record) error {
	if f.Wants == nil || f.Wants(record) {
		recorded, err := f.Runner.Log.Decode(record)
		if errors.Is(err, event.ErrUnknown) {
			return fmt.Errorf("at position %s: %w", record.Position, err)
		}
		if err != nil {
			return fmt.Errorf("%w: at position %s: %w", errStopped, record.Position, err)
		}
		if err := f.remain(ctx); err != nil {
			return err
		}
		if err := f.deliver(ctx, recorded); err != nil {
			return err
		}
		f.done++
	}
	f.acked = f.acked.after(1, record)
	f.Runner.Metrics.applied(f.projectionID, 1)
	if f.done == saveEvery {
		return f.save(ctx)
	}
	return nil
}

// remain makes sure that the server is the one that the events were read from:
// what a handler does with one that was lost with its server cannot be undone.
// While progress is heard of, that server lives.
func (f *following) remain(ctx context.Context) error {
	server, heard := f.Runner.Progress.meets()
	if !heard {
		if err := f.Runner.Pool.QueryRow(ctx, `SELECT `+postgres.Run).Scan(&server); err != nil {
			return fmt.Errorf("look for the server: %w", err)
		}
	}
	if server != f.lease.server {
		return ErrLost
	}
	return nil
}

// deliver sends an event until it is acknowledged.
func (f *following) deliver(ctx context.Context, recorded eventstore.Recorded) error {
	attempts := cmp.Or(f.Attempts, defaultAttempts)
	var retry backoff.Backoff
	for attempt := 1; ; attempt++ {
		failed, err := f.send(ctx, recorded)
		if err != nil {
			return err
		}
		if failed == nil {
			f.stops(false)
			return nil
		}
		if attempt == attempts {
			return fmt.Errorf("%w: %s (%s) at position %s, %d attempts: %s",
				errStopped, recorded.ID, recorded.Type, recorded.Position, attempts, reason(failed))
		}
		f.Runner.Logger.WarnContext(ctx, "event not handled, trying again", "projection", f.projectionID,
			"event_id", recorded.ID, "type", recorded.Type, "attempt", attempt, "error", reason(failed))
		if err := retry.Wait(ctx); err != nil {
			return err
		}
	}
}

// send hands out an event once and waits for its answer: why the handler failed, or
// nil. When ctx ends, the handler is told so and has a moment to finish.
func (f *following) send(ctx context.Context, recorded eventstore.Recorded) (failed, err error) {
	h := &handling{event: recorded}
	within, cancel := context.WithTimeout(context.WithValue(ctx, handlingKey{}, h), handlerTimeout)
	defer cancel()
	msg := message.NewMessageWithContext(within, string(recorded.ID), recorded.Data)
	select {
	case f.out <- msg:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case <-msg.Acked():
		return nil, nil
	case <-msg.Nacked():
		return cmp.Or(h.err, errRefused), ctx.Err()
	case <-within.Done():
	}
	grace := time.NewTimer(leaseTimeout)
	defer grace.Stop()
	select {
	case <-msg.Acked():
		return nil, nil
	case <-msg.Nacked():
		return cmp.Or(h.err, errRefused), ctx.Err()
	case <-grace.C:
		return nil, fmt.Errorf("%w: the handler of %s does not answer", errStopped, recorded.ID)
	}
}

// save writes down what was acknowledged, also when ctx has just ended.
func (f *following) save(ctx context.Context) error {
	if f.acked.position == f.saved.position {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	if err := pass(ctx, f.Runner.Pool, f.lease, f.saved, f.acked); err != nil {
		return err
	}
	f.saved, f.done = f.acked, 0
	f.lease.reach(f.saved.position)
	f.Runner.Progress.advance(f.projectionID, f.saved.position)
	return nil
}
