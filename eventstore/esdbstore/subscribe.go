package esdbstore

import (
	"context"
	"fmt"
	"time"

	api "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"

	"kindred/backoff"
	"kindred/eventstore"
	"kindred/eventstore/tail"
)

const (
	missedEvery = 250 * time.Millisecond // it is looked whether the server told of our own appends
	backstop    = 5 * time.Second        // and the log is read, though nothing was told
)

// Subscribe implements [eventstore.Store]. One subscription of the server's, for
// the whole store, tells all followers at the log's end what was appended. One that
// is behind reads the log page by page, so that a cut connection costs nothing.
func (s *Store) Subscribe(ctx context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	if _, err := parsePosition(after); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.listen.Do(func() {
		s.listeners.Go(s.hear)
		s.listeners.Go(s.poll)
	})
	return s.tail.Subscribe(after), nil
}

// source is the log as its tail reads it.
type source struct{ *Store }

// End implements [tail.Source].
func (s source) End(ctx context.Context) (tail.Page, error) {
	head, err := s.Head(ctx)
	return tail.Page{To: head, Last: true}, err
}

// Read implements [tail.Source].
func (s source) Read(ctx context.Context, after eventstore.Position, limit int) (tail.Page, error) {
	from, err := parsePosition(after)
	if err != nil {
		return tail.Page{}, err
	}
	page, stands, err := s.readAll(ctx, from, limit)
	if err == nil && !stands {
		err = fmt.Errorf("%q: %w", after, eventstore.ErrNotFound)
	}
	return page, err
}

// hear hands what the server tells to the tail, until the store is closed.
func (s *Store) hear() {
	rest := backoff.Backoff{First: firstPause, Most: longestPause}
	for s.done.Err() == nil {
		if s.hearOnce(s.done) {
			rest.Reset()
		}
		_ = rest.Wait(s.done) // the loop looks at it
	}
}

// hearOnce listens until the server's subscription ends, and says whether
// there was one. Why it ended does not matter: the next one begins where the
// tail is, unless the log does not have that place any more.
func (s *Store) hearOnce(ctx context.Context) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.tail.Forget() // a backup may have been put in place
	to, err := s.tail.End(ctx)
	if err != nil {
		return false
	}
	from, err := parsePosition(to)
	if err != nil {
		return false
	}
	l, err := s.link(ctx)
	if err != nil {
		return false
	}
	call, err := l.streams.Read(withLeader(ctx), request(&api.ReadReq_Options{
		StreamOption: &api.ReadReq_Options_All{All: place(from)},
		CountOption:  &api.ReadReq_Options_Subscription{Subscription: &api.ReadReq_Options_SubscriptionOptions{}},
	}))
	if err != nil {
		s.leader.suspect(l, err)
		return false
	}
	for {
		reply, err := call.Recv()
		if err != nil {
			s.leader.suspect(l, told(err, call.Trailer()))
			return heard
		}
		if reply.GetConfirmation() != nil {
			heard = true
			s.tail.Signal()
		}
		if e := reply.GetEvent().GetEvent(); e != nil {
			to = s.tell(ctx, to, e)
		}
	}
}

// tell hands an event to the tail, which stands right behind a position, and
// returns its own. What cannot be decoded is left to its reader.
func (s *Store) tell(ctx context.Context, after eventstore.Position, e *recorded) eventstore.Position {
	page := tail.Page{To: positionOf(e).text()}
	r, ours, err := s.own(ctx, e)
	switch {
	case err != nil:
		s.tail.Signal()
		return page.To
	case ours:
		page.Records = []eventstore.Record{r}
	}
	s.tail.Put(after, page)
	return page.To
}

// poll has the log read now and then, and at once where the server does not tell
// what this store has appended.
func (s *Store) poll() {
	every, seldom := time.NewTicker(missedEvery), time.NewTicker(backstop)
	defer every.Stop()
	defer seldom.Stop()
	for {
		select {
		case <-every.C:
			s.tail.Missed()
		case <-seldom.C:
			s.tail.Signal()
		case <-s.done.Done():
			return
		}
	}
}
