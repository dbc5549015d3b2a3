package esdbstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"kindred/eventstore"
)

// backstop is how long a follower sleeps at most though no bell has rung.
const backstop = 5 * time.Second

var errFollowerClosed = errors.New("follow the log: the subscription was closed")

// bell wakes whoever waits for something to be appended.
type bell struct {
	mu    sync.Mutex
	waits chan struct{} // closed by the next ring
}

// next is closed by the first ring after it was asked for.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits == nil {
		b.waits = make(chan struct{})
	}
	return b.waits
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waits != nil {
		close(b.waits)
		b.waits = nil
	}
}

// Subscribe implements [eventstore.Store]. Subscriptions read the log page by
// page from where they are, so that a cut connection costs them nothing. One
// subscription of the server's, for the whole store, tells them when to read.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	from, err := parsePosition(after)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.listen.Do(func() { s.listeners.Go(s.hear) })
	return &subscription{store: s, after: from, closed: make(chan struct{})}, nil
}

// hear rings the bell whenever the server has something new, until the store
// is closed.
func (s *Store) hear() {
	for pause := firstPause; s.done.Err() == nil; pause = min(2*pause, longestPause) {
		heard := s.hearOnce(s.done)
		if heard {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-s.done.Done():
		}
	}
}

// hearOnce listens until the server's subscription ends, and says whether
// there was one. Why it ended does not matter: the next one begins with a ring.
func (s *Store) hearOnce(ctx context.Context) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := s.link(ctx)
	if err != nil {
		return false
	}
	call, err := l.streams.Read(withLeader(ctx), request(&api.ReadReq_Options{
		StreamOption: &api.ReadReq_Options_All{All: place(nowhere)},
		CountOption:  &api.ReadReq_Options_Subscription{Subscription: &api.ReadReq_Options_SubscriptionOptions{}},
	}, true))
	if err != nil {
		s.leader.doubt(l, err)
		return false
	}
	for {
		reply, err := call.Recv()
		if err != nil {
			s.leader.doubt(l, told(err, call.Trailer()))
			return heard
		}
		if reply.GetConfirmation() != nil || reply.GetEvent() != nil {
			heard = true
			s.bell.ring()
		}
	}
}

// subscription follows the log from a position on.
type subscription struct {
	store  *Store
	after  position
	told   bool // that it has caught up
	once   sync.Once
	closed chan struct{}
}

// Next implements [eventstore.Subscription].
func (f *subscription) Next(ctx context.Context, limit int) (eventstore.Batch, error) {
	limit = max(limit, 1)
	for {
		rung := f.store.bell.next()
		records, after, err := f.store.readAll(ctx, f.after, limit)
		switch {
		case ctx.Err() != nil:
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", ctx.Err())
		case f.isClosed():
			return eventstore.Batch{}, errFollowerClosed
		case errors.Is(err, eventstore.ErrUnavailable):
			continue // it has waited
		case err != nil:
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", err)
		}
		f.after = after
		if len(records) > 0 || !f.told {
			f.told = len(records) < limit
			return eventstore.Batch{Records: records, CaughtUp: f.told}, nil
		}
		select {
		case <-rung:
		case <-time.After(backstop):
		case <-ctx.Done():
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", ctx.Err())
		case <-f.closed:
			return eventstore.Batch{}, errFollowerClosed
		case <-f.store.done.Done():
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", errClosed)
		}
	}
}

func (f *subscription) isClosed() bool {
	select {
	case <-f.closed:
		return true
	default:
		return false
	}
}

// Close implements [eventstore.Subscription].
func (f *subscription) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}
