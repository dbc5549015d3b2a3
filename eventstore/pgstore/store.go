// Package pgstore keeps the event log in PostgreSQL. An append is acknowledged
// after its commit and not before, and commits become visible in the order of
// their positions, without a gap, whichever process made them.
//
// Appends that wait are committed together, under one advisory lock. A store
// uses three connections of its own beside the pool: one appends, one tells
// others of it, one listens to them.
package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"kindred/coalesce"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/tail"
	"kindred/postgres"
)

// Store is the log of one database. Any number of stores, in any number of
// processes, may share it.
type Store struct {
	pool   *pgxpool.Pool
	queue  *queue
	many   *semaphore.Weighted // for callers that append many at once
	tail   *tail.Tail
	ends   *coalesce.Coalescer[eventstore.Stream, []eventstore.Record]
	closed chan struct{}
	stop   context.CancelFunc // of the listener
	work   sync.WaitGroup

	confirms confirms
	guard    atomic.Pointer[Guard]
}

var _ eventstore.Bulk = (*Store)(nil)

// The epoch is made by whoever opens the log first, not by a migration: a
// migrated database may be a template of others.
const (
	beginLog    = `INSERT INTO public.log (epoch) VALUES (gen_random_uuid()::text) ON CONFLICT DO NOTHING`
	selectEpoch = `SELECT epoch FROM public.log`
)

// Open opens the log of a migrated database. It hears on listener, or where that is
// nil on a connection of its own, what other processes append. The caller closes the store, and after it the pool.
func Open(ctx context.Context, pool *pgxpool.Pool, listener *postgres.Listener) (*Store, error) {
	if _, err := pool.Exec(ctx, beginLog); err != nil {
		return nil, fmt.Errorf("open the event log: %w", unavailable(err))
	}
	config := pool.Config().ConnConfig
	postgres.Set(config, postgres.Settings{
		"default_transaction_isolation": "read committed",     // append_streams needs it
		"plan_cache_mode":               "force_generic_plan", // arrays are dear to plan for
		"enable_seqscan":                "off",                // a plan made while the log is small stays good
		"enable_bitmapscan":             "off",                // such a plan would sort a stream to find its end
	})
	listening, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{
		pool:   pool,
		queue:  newQueue(),
		many:   semaphore.NewWeighted(maxMany),
		closed: make(chan struct{}),
		stop:   stop,
	}
	s.tail = tail.New(source{s}, s.closed, fmt.Errorf("%w: it is closed", eventstore.ErrUnavailable))
	s.ends = &coalesce.Coalescer[eventstore.Stream, []eventstore.Record]{
		Answer: s.readEnds, Most: endsMost, Waiting: endsWaiting, Timeout: endsTimeout,
	}
	s.confirms.lock = make(chan struct{}, 1)
	t := newNotifier(config)
	c := &committer{config: config, queue: s.queue, tail: s.tail, notifier: t, guard: &guarded{guard: &s.guard}, patience: commitTimeout}
	s.work.Go(c.run)
	s.work.Go(t.run)
	s.work.Go(func() { listener.Shared(pool, nil).Follow(listening, commits(s.tail)) })
	s.work.Go(func() { poll(listening, s.tail) })
	return s, nil
}

// Close takes no more appends, finishes those that wait, and ends what follows
// the log. It may be called again.
func (s *Store) Close() {
	if s.queue.close() {
		close(s.closed)
	}
	s.stop()
	s.work.Wait()
}

// Append implements [eventstore.Store]. It keeps the events: they must not be
// changed any more, also where ctx has ended.
func (s *Store) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	r := s.AppendMany(ctx, []eventstore.Request{{Stream: stream, Expected: expected, Events: events}})[0]
	return r.Appended, r.Err
}

// AppendMany implements [eventstore.Bulk]. Like Append, it keeps the events.
// Beside several that append many, it waits until there is room.
func (s *Store) AppendMany(ctx context.Context, requests []eventstore.Request) []eventstore.Result {
	results := make([]eventstore.Result, len(requests))
	if len(requests) > eventstore.MaxMany {
		return failAll(results, fmt.Errorf("append to %d streams: at most %d are allowed", len(requests), eventstore.MaxMany))
	}
	if err := ctx.Err(); err != nil {
		return failAll(results, fmt.Errorf("append: %w", unavailable(err)))
	}
	if len(requests) > 1 {
		if err := s.many.Acquire(ctx, 1); err != nil {
			return failAll(results, fmt.Errorf("append: %w", unavailable(err)))
		}
		defer s.many.Release(1)
	}
	caller := &caller{answered: make(chan struct{})}
	waiting, places := make([]*request, 0, len(requests)), make([]int, 0, len(requests))
	for i, from := range requests {
		r, err := newRequest(from, caller)
		if err != nil {
			results[i].Err = fmt.Errorf("append to %s: %w", from.Stream, err)
			continue
		}
		waiting, places = append(waiting, r), append(places, i)
	}
	if len(waiting) == 0 {
		return results
	}
	caller.left.Store(int64(len(waiting)))
	added, full := s.queue.putAll(waiting...)
	fail(waiting[added:], full)
	select {
	case <-caller.answered:
	case <-ctx.Done():
	}
	for i, r := range waiting {
		appended, err := s.outcome(ctx, r)
		if err != nil {
			err = fmt.Errorf("append to %s: %w", r.stream, err)
		}
		results[places[i]] = eventstore.Result{Appended: appended, Err: err}
	}
	return results
}

func failAll(results []eventstore.Result, err error) []eventstore.Result {
	for i := range results {
		results[i].Err = err
	}
	return results
}

// outcome is what came of a request until its caller stopped waiting.
func (s *Store) outcome(ctx context.Context, r *request) (eventstore.Appended, error) {
	a := r.answer.Load()
	switch {
	case a == nil:
		r.abandoned.Store(true)
		return eventstore.Appended{}, unavailable(ctx.Err())
	case a.err != nil:
		return eventstore.Appended{}, a.err
	case a.actual == keyed:
		return eventstore.Appended{}, eventstore.ErrKeyed
	case a.actual != r.expected:
		return s.repeated(ctx, r, a.actual)
	}
	return a.appended, nil
}

const selectIDs = `
SELECT position, event_id FROM public.events
WHERE ` + inStream + ` AND revision > $2 AND revision <= $3 ORDER BY revision`

// repeated answers an append that met its stream elsewhere: with success where
// the same events stand right after the expected revision, and are confirmed.
// What stands there never changes, so nobody else has to wait for this.
func (s *Store) repeated(ctx context.Context, r *request, actual eventstore.Revision) (eventstore.Appended, error) {
	conflict := &eventstore.ConflictError{Stream: r.stream, Expected: r.expected, Actual: actual}
	if r.expected < eventstore.NoStream || r.expected > actual || actual-r.expected < eventstore.Revision(len(r.events)) {
		return eventstore.Appended{}, conflict
	}
	last := r.expected + eventstore.Revision(len(r.events))
	rows, _ := s.pool.Query(ctx, selectIDs, r.stream, r.expected, last) // what it fails with, its rows end with
	var (
		position int64
		found    [16]byte
		n        int
		same     = true
	)
	_, err := pgx.ForEachRow(rows, []any{&position, &found}, func() error {
		same = same && n < len(r.events) && id.From[id.Event](found) == r.events[n].ID
		n++
		return nil
	})
	switch {
	case err != nil:
		return eventstore.Appended{}, unavailable(err)
	case !same || n != len(r.events):
		return eventstore.Appended{}, conflict
	}
	if err := s.Confirm(ctx); err != nil {
		return eventstore.Appended{}, err
	}
	return eventstore.Appended{Position: positionOf(position), Revision: last, Already: true}, nil
}

// Confirm returns once all that was appended before, as far as it can be read, stands
// where an append has to be (see postgres.Confirm). Who waits while one runs shares
// the next, so that all of them take up one connection.
func (s *Store) Confirm(ctx context.Context) error {
	begun := s.confirms.begun.Load()
	select {
	case s.confirms.lock <- struct{}{}:
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	defer func() { <-s.confirms.lock }()
	if s.confirms.done > begun {
		return nil
	}
	n := s.confirms.begun.Add(1)
	if err := postgres.Confirm(ctx, s.pool); err != nil {
		return unavailable(err)
	}
	s.confirms.done = n
	return nil
}

// confirms are numbered from 1, in the order in which they begin.
type confirms struct {
	begun atomic.Int64
	lock  chan struct{} // of capacity 1
	done  int64         // the last that has succeeded; guarded by lock
}

// Epoch implements [eventstore.Store].
func (s *Store) Epoch(ctx context.Context) (string, error) {
	var epoch string
	if err := s.pool.QueryRow(ctx, selectEpoch).Scan(&epoch); err != nil {
		return "", fmt.Errorf("read the log's epoch: %w", unavailable(err))
	}
	return epoch, nil
}
