package pgstore

import (
	"context"
	"fmt"
	"time"

	"kindred/eventstore"
)

const pollInterval = 250 * time.Millisecond // where nothing was heard

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
	met   bool // the end of the log, in the table
}

// Next implements [eventstore.Subscription].
func (s *subscription) Next(ctx context.Context, limit int) (eventstore.Batch, error) {
	for {
		grown := s.store.tail.wait() // before reading, so that nothing falls between
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
		case <-ctx.Done():
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w", ctx.Err())
		case <-s.store.closed:
			return eventstore.Batch{}, fmt.Errorf("follow the log: %w: it is closed", eventstore.ErrUnavailable)
		}
	}
}

// read reads on, at most limit records or about maxPageBytes. It tells whether
// there was nothing beyond them: when they were read, or where this process
// appended them, just after.
func (s *subscription) read(ctx context.Context, limit int) (records []eventstore.Record, all bool, err error) {
	t := s.store.tail
	records, all, ok := t.after(s.after, limit)
	if !ok || all && !s.met {
		return s.look(ctx, limit)
	}
	if len(records) == 0 {
		select {
		case t.turn <- struct{}{}:
			defer func() { <-t.turn }()
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		// Who had the turn before may have found something.
		if records, all, ok = t.after(s.after, limit); len(records) == 0 || !ok {
			if _, unseen := t.unseen(); s.told && !unseen {
				return nil, true, nil
			}
			return s.look(ctx, limit)
		}
	}
	s.after += int64(len(records))
	return records, all, nil
}

// look reads on in the table.
func (s *subscription) look(ctx context.Context, limit int) (records []eventstore.Record, all bool, err error) {
	rings, _ := s.store.tail.unseen()
	rows, err := s.store.pool.Query(ctx, selectAfter, s.after, limit)
	if err != nil {
		return nil, false, err
	}
	records, full, err := scanRecords(rows, maxPageBytes)
	if err != nil {
		return nil, false, err
	}
	before := s.after
	if n := len(records); n > 0 {
		if s.after, err = numberOf(records[n-1].Position); err != nil {
			return nil, false, err
		}
	}
	all = !full && len(records) < limit
	s.met = s.met || all
	if all && s.after == before+int64(len(records)) {
		s.store.tail.offer(before, records, rings)
	}
	return records, all, nil
}

// Close implements [eventstore.Subscription].
func (s *subscription) Close() error { return nil }
