// Package memstore is an event store in memory, for tests: what the port
// promises and nothing beyond the life of the process.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/tail"
)

// Store is a log in memory. Use [New].
type Store struct {
	epoch string

	mu      sync.Mutex
	log     []eventstore.Record // the event at index i has position i+1
	streams map[eventstore.Stream][]int

	tail *tail.Tail
}

var _ eventstore.Store = (*Store)(nil)

// New makes an empty log. Two logs that are to be told apart get two epochs.
func New(epoch string) *Store {
	s := &Store{epoch: epoch, streams: map[eventstore.Stream][]int{}}
	s.tail = tail.New(source{s}, nil, nil)
	return s
}

// Append implements [eventstore.Store].
func (s *Store) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if err := eventstore.CheckAppend(events); err != nil {
		return eventstore.Appended{}, err
	}
	for _, e := range events {
		if _, err := id.Bytes(e.ID); err != nil {
			return eventstore.Appended{}, fmt.Errorf("append to %s: %w", stream, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return eventstore.Appended{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.streams[stream]
	actual := eventstore.Revision(len(places) - 1)
	if expected != actual {
		return s.repeated(stream, expected, actual, events)
	}
	for _, e := range events {
		e.Data, e.Meta = bytes.Clone(e.Data), bytes.Clone(e.Meta)
		e.RecordedAt = e.RecordedAt.UTC().Truncate(time.Microsecond)
		places = append(places, len(s.log))
		s.log = append(s.log, eventstore.Record{
			Position: position(len(s.log) + 1), Stream: stream,
			Revision: eventstore.Revision(len(places) - 1), Proposed: e,
		})
	}
	s.streams[stream] = places
	s.tail.Signal()
	return eventstore.Appended{Position: position(len(s.log)), Revision: eventstore.Revision(len(places) - 1)}, nil
}

// repeated answers an append that is not at the stream's end.
func (s *Store) repeated(stream eventstore.Stream, expected, actual eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	conflict := &eventstore.ConflictError{Stream: stream, Expected: expected, Actual: actual}
	last := expected + eventstore.Revision(len(events))
	if expected < eventstore.NoStream || expected > actual || last > actual {
		return eventstore.Appended{}, conflict
	}
	places := s.streams[stream][expected+1 : last+1]
	for i, e := range events {
		if s.log[places[i]].ID != e.ID {
			return eventstore.Appended{}, conflict
		}
	}
	return eventstore.Appended{Position: s.log[places[len(places)-1]].Position, Revision: last, Already: true}, nil
}

// ReadStream implements [eventstore.Store].
func (s *Store) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.streams[stream]
	first := int(min(max(from, 0), eventstore.Revision(len(places))))
	places = places[first:]
	return s.at(places[:bound(limit, len(places))]), ctx.Err()
}

// ReadBack implements [eventstore.Store].
func (s *Store) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	places := s.streams[stream]
	last := int(min(max(from, eventstore.NoStream), eventstore.Revision(len(places)-1)))
	places = slices.Clone(places[:last+1])
	slices.Reverse(places)
	return s.at(places[:bound(limit, len(places))]), ctx.Err()
}

// ReadAll implements [eventstore.Store].
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, limit int) ([]eventstore.Record, error) {
	records, err := s.after(after, limit)
	if err != nil {
		return nil, err
	}
	return records, ctx.Err()
}

// At implements [eventstore.Store].
func (s *Store) At(ctx context.Context, at eventstore.Position) (eventstore.Record, error) {
	n, err := index(at)
	if err != nil {
		return eventstore.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 || n > len(s.log) {
		return eventstore.Record{}, fmt.Errorf("position %s: %w", at, eventstore.ErrNotFound)
	}
	return s.at([]int{n - 1})[0], ctx.Err()
}

// Head implements [eventstore.Store].
func (s *Store) Head(ctx context.Context) (eventstore.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return position(len(s.log)), ctx.Err()
}

// Epoch implements [eventstore.Store].
func (s *Store) Epoch(ctx context.Context) (string, error) { return s.epoch, ctx.Err() }

// Subscribe implements [eventstore.Store].
func (s *Store) Subscribe(_ context.Context, after eventstore.Position) (eventstore.Subscription, error) {
	if _, err := index(after); err != nil {
		return nil, err
	}
	return s.tail.Subscribe(after), nil
}

// after reads beyond a position.
func (s *Store) after(after eventstore.Position, limit int) ([]eventstore.Record, error) {
	n, err := index(after)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var places []int
	for i := n; i < len(s.log) && len(places) < limit; i++ {
		places = append(places, i)
	}
	return s.at(places), nil
}

// at copies the events at these indexes, so that no reader changes the log.
func (s *Store) at(places []int) []eventstore.Record {
	records := make([]eventstore.Record, len(places))
	for i, place := range places {
		records[i] = s.log[place]
		records[i].Data, records[i].Meta = bytes.Clone(records[i].Data), bytes.Clone(records[i].Meta)
	}
	return records
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
	page := tail.Page{To: after}
	if after != eventstore.Start {
		at, err := s.At(ctx, after)
		if err != nil {
			return page, err
		}
		page.At = at.ID
	}
	records, err := s.ReadAll(ctx, after, limit)
	if n := len(records); n > 0 {
		page.To = records[n-1].Position
	}
	page.Records, page.Last = records, len(records) < limit
	return page, err
}

// position writes the position of the nth event, counted from 1.
func position(n int) eventstore.Position {
	if n == 0 {
		return eventstore.Start
	}
	return eventstore.Position(fmt.Sprintf("%016x", n))
}

// index is the inverse of position.
func index(p eventstore.Position) (int, error) {
	if p == eventstore.Start {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(p), 16, 64)
	if err != nil || len(p) != 16 || n < 1 {
		return 0, fmt.Errorf("%q is not a position of this log", p)
	}
	return int(n), nil
}

func bound(limit, have int) int { return min(max(limit, 0), have) }
