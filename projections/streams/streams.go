// Package streams tells followers of a client's public events of each new one.
//
// One follower a process reads what is new, once for all of them, and wakes
// them: none asks the database while nothing happens. Each is told every event
// behind its place once, in the order of the log, or is cut and resumes by the
// id that it was told last.
package streams

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"kindred/backoff"
	"kindred/coalesce"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/semaphore"
)

const (
	batch     = 1000                   // events of one read
	lookEvery = 500 * time.Millisecond // however quiet it is: an announcement may be lost
	afterFail = 250 * time.Millisecond
	readsOnce = 3 // reads for followers at a time, of their 4 connections: one is left to read what is new; a client has 2
	// limit: edge | pulls that wait for an event | {maxWaits}
	maxWaits = 4096
)

// Streams are the followers of a process. Use [New].
type Streams struct {
	events   projections.PublicEvents
	segments segments.Model
	looks    *coalesce.Coalescer[segments.ChangesAfter, segments.Looked]
	logger   *slog.Logger
	reading  semaphore.Semaphore
	joined   chan struct{} // of capacity 1: somebody follows

	mu      sync.Mutex
	rooms   map[id.Client]*room
	ready   chan struct{} // closed while what is new is handed out
	handing sync.WaitGroup
}

// New makes the streams of what a reader reads; Run hands out public events.
func New(reader readmodel.Reader, logger *slog.Logger) *Streams {
	model := segments.Model{Reader: reader}
	return &Streams{
		events: projections.PublicEvents{Reader: reader}, segments: model, looks: newLooks(model), logger: logger, reading: semaphore.Semaphore{Places: readsOnce, Each: readsOnce - 1, Waiting: maxWaits},
		joined: make(chan struct{}, 1), rooms: map[id.Client]*room{}, ready: make(chan struct{}),
	}
}

// newLooks asks about changes of segments for all who wait for some, in one statement.
func newLooks(of segments.Model) *coalesce.Coalescer[segments.ChangesAfter, segments.Looked] {
	return &coalesce.Coalescer[segments.ChangesAfter, segments.Looked]{
		Answer: of.Changed, Most: maxWaits, Waiting: maxWaits, Timeout: lookEvery * 10,
	}
}

// Query is what somebody follows.
type Query struct {
	Client id.Client
	After  eventstore.Position // only events behind it
	Since  time.Time           // see [projections.PublicEvents.List]
	Types  []string            // none: all
}

// Follow calls tell with the events that fit, as they come, until ctx ends or tell
// fails; with none once it has told all that there was, and where nothing has come
// for idle.
// Faults: building, overloaded, quarantined, stale.
func (s *Streams) Follow(ctx context.Context, q Query, idle time.Duration, tell func([]projections.PublicEvent) error) error {
	if err := s.catchUp(ctx, &q, tell); err != nil {
		return err
	}
	f, err := s.join(ctx, q)
	if err != nil {
		return err
	}
	defer s.leave(q.Client, f)
	if err := s.catchUp(ctx, &q, tell); err != nil { // what came before it joined
		return err
	}
	if err := tell(nil); err != nil {
		return err
	}
	return f.follow(ctx, q.After, idle, tell)
}

// follow tells what comes behind a position, and nothing after each idle time without that,
// until ctx ends or f is cut.
func (f *follower) follow(ctx context.Context, after eventstore.Position, idle time.Duration, tell func([]projections.PublicEvent) error) error {
	quiet := time.NewTicker(idle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-quiet.C:
			if err := tell(nil); err != nil {
				return err
			}
		case <-f.more:
			events, err := f.take(after)
			if len(events) > 0 {
				quiet.Reset(idle)
				if err := tell(events); err != nil {
					return err
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// catchUp tells all that there is, and moves q behind it.
func (s *Streams) catchUp(ctx context.Context, q *Query, tell func([]projections.PublicEvent) error) error {
	for {
		page, err := s.List(ctx, *q, batch)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		q.After = page[len(page)-1].Position
		if err := tell(page); err != nil {
			return err
		}
	}
}

// List reads a page. Clients share the connections of followers.
// Faults: building, overloaded, quarantined, stale.
func (s *Streams) List(ctx context.Context, q Query, limit int) ([]projections.PublicEvent, error) {
	if !s.reading.Take(ctx, q.Client.Owner()) {
		return nil, cmp.Or(context.Cause(ctx), error(fault.New(fault.Unavailable, "overloaded", "Too many streams begin at once. Try again.").After(time.Second)))
	}
	defer s.reading.Give(q.Client.Owner())
	return s.events.List(ctx, q.Client, false, projections.PublicQuery{
		Since: q.Since, Types: q.Types, Page: readmodel.Page{After: q.After, Limit: limit},
	})
}

// Await reads a page once there is something on it, or after wait, when it may be
// empty.
// Faults: building, overloaded, quarantined, stale.
func (s *Streams) Await(ctx context.Context, q Query, limit int, wait time.Duration) ([]projections.PublicEvent, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	f, err := s.join(ctx, q)
	if err != nil {
		return nil, err
	}
	defer s.leave(q.Client, f)
	for last := false; ; {
		page, err := s.List(ctx, q, limit)
		if err != nil || len(page) > 0 || last {
			return page, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-over.C:
			last = true
		case <-f.more:
			_, err := f.take(q.After)
			last = err != nil // it is told of nothing any more
		}
	}
}

// Run hands out what is new while somebody follows, until ctx ends.
func (s *Streams) Run(ctx context.Context) {
	defer s.handing.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.joined:
		}
		if err := s.follow(ctx); err != nil && ctx.Err() == nil {
			s.logger.WarnContext(ctx, "streams of events are cut", "error", err)
			s.cut(nil)
			if backoff.Sleep(ctx, afterFail) == nil {
				s.again()
			}
		}
	}
}

// follow hands out what is new until nobody follows.
func (s *Streams) follow(ctx context.Context) error {
	server := s.events.Progress.Server()
	_, grown := s.events.Grown()
	at, err := s.events.End(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	close(s.ready)
	s.mu.Unlock()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for !s.idle() {
		select {
		case <-ctx.Done():
			s.stop()
			return nil
		case <-grown:
		case <-look.C:
		}
		_, grown = s.events.Grown() // before the read, so that no growth is missed
		if at, err = s.read(ctx, at); err == nil && s.events.Progress.Server() != server {
			err = errors.New("another server answers")
		}
		if err != nil {
			s.stop()
			return err
		}
	}
	return nil
}

// read hands out what stands behind a position, and returns how far that is.
func (s *Streams) read(ctx context.Context, at eventstore.Position) (eventstore.Position, error) {
	for {
		events, stopped, err := s.events.Next(ctx, at, batch)
		if err != nil {
			return at, err
		}
		if len(stopped) > 0 {
			s.cut(stopped)
		}
		s.handOut(ctx, events)
		if len(events) > 0 {
			at = events[len(events)-1].Position
		}
		if len(events) < batch {
			return at, nil
		}
	}
}

// idle says whether nobody follows; then nothing is handed out any more.
func (s *Streams) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rooms) > 0 {
		return false
	}
	s.ready = make(chan struct{})
	return true
}

// stop hands out nothing any more until Run begins again.
func (s *Streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = make(chan struct{})
}

// again begins anew for followers.
func (s *Streams) again() {
	select {
	case s.joined <- struct{}{}:
	default:
	}
}

// join makes a follower, which is told of all that comes to stand in the model after.
func (s *Streams) join(ctx context.Context, q Query) (*follower, error) {
	f := newFollower(q)
	s.mu.Lock()
	r := s.rooms[q.Client]
	if r == nil {
		r = &room{followers: map[*follower]struct{}{}}
		s.rooms[q.Client] = r
	}
	r.followers[f] = struct{}{}
	ready := s.ready
	s.mu.Unlock()
	s.again()
	select {
	case <-ready:
		return f, nil
	case <-ctx.Done():
		s.leave(q.Client, f)
		return nil, context.Cause(ctx)
	}
}

func (s *Streams) leave(client id.Client, f *follower) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rooms[client]
	if delete(r.followers, f); len(r.followers) == 0 {
		delete(s.rooms, client)
	}
}

// cut ends the streams of clients, or all.
func (s *Streams) cut(clients []id.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if clients == nil {
		for _, r := range s.rooms {
			r.cut()
		}
		return
	}
	for _, client := range clients {
		if r := s.rooms[client]; r != nil {
			r.cut()
		}
	}
}

// handOut gives events to the followers of their clients.
func (s *Streams) handOut(ctx context.Context, events []projections.PublicEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		r := s.rooms[e.Client]
		if r == nil {
			continue
		}
		if r.size += e.Size(); r.size > maxBehind {
			r.cut()
			continue
		}
		r.queue = append(r.queue, e)
		if !r.busy {
			r.busy = true
			s.handing.Go(func() { s.serve(ctx, e.Client, r) })
		}
	}
}

// serve names the users of a room's events as their client does, for all who
// follow, and hands the events on: a client whose names are slow to read keeps no
// other waiting.
func (s *Streams) serve(ctx context.Context, client id.Client, r *room) {
	for {
		s.mu.Lock()
		events := r.queue
		r.queue, r.size = nil, 0
		if len(events) == 0 {
			r.busy = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		err := s.name(ctx, client, events)
		s.mu.Lock()
		if err != nil {
			r.cut()
		} else {
			r.handOn(events)
		}
		s.mu.Unlock()
	}
}

const nameWithin = 4 * time.Second

func (s *Streams) name(ctx context.Context, client id.Client, events []projections.PublicEvent) (err error) {
	defer panics.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, nameWithin)
	defer cancel()
	if !s.reading.Take(ctx, client.Owner()) {
		return ErrCut
	}
	defer s.reading.Give(client.Owner())
	return s.events.NameUsers(ctx, client, false, events)
}
