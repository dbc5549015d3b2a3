package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"kindred/eventstore"
)

const (
	pollInterval = 250 * time.Millisecond // where no bell was heard
	maxNextBytes = 16 << 20               // of data and metadata in one Next
)

// Subscribe implements [eventstore.Store].
func (s *Store) Subscribe(_ context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	n, err := numberOf(after)
	if err != nil {
		return nil, err
	}
	return &subscription{store: s, after: n}, nil
}

// subscription reads what has a higher position than what it told last. Appends
// become visible in the order of their positions, so it misses nothing.
type subscription struct {
	store *Store
	after int64
	told  bool // that it has caught up, since it last told a record
}

// Next implements [eventstore.Subscription].
func (s *subscription) Next(ctx context.Context, limit int) (eventstore.Batch, error) {
	for {
		grown := s.store.grown.wait() // before reading, so that nothing falls between
		records, caughtUp, err := s.read(ctx, max(limit, 1))
		switch {
		case err == nil && (len(records) > 0 || !s.told): // also when ctx has ended by now: it was read
			s.told = caughtUp
			return eventstore.Batch{Records: records, CaughtUp: caughtUp}, nil
		case ctx.Err() != nil:
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", ctx.Err())
		case err != nil && !passing(err):
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", err)
		}
		select {
		case <-grown:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", ctx.Err())
		case <-s.store.closed:
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w: it is closed", eventstore.ErrUnavailable)
		}
	}
}

// read reads on, at most limit records or about maxNextBytes. It tells whether
// there was nothing beyond them.
func (s *subscription) read(ctx context.Context, limit int) (records []eventstore.Record, all bool, err error) {
	rows, err := s.store.pool.Query(ctx, selectAfter, s.after, limit)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	size := 0
	for size < maxNextBytes && rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, false, err
		}
		records = append(records, r)
		size += len(r.Data) + len(r.Meta)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, false, err
	}
	if n := len(records); n > 0 {
		if s.after, err = numberOf(records[n-1].Position); err != nil {
			return nil, false, err
		}
	}
	return records, size < maxNextBytes && len(records) < limit, nil
}

// Close implements [eventstore.Subscription].
func (s *subscription) Close() error { return nil }

// bell wakes all that wait, once for each time it rings.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

func newBell() *bell { return &bell{rung: make(chan struct{})} }

// wait returns a channel that is closed at the next ring.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung)
	b.rung = make(chan struct{})
}
