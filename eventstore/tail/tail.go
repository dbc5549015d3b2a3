// Package tail reads the end of a log once for all that follow it in a process.
//
// It keeps the newest records of the log, and serves every subscription that is
// among them; one that is behind reads pages for itself until it is there.
package tail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Bounds of what is kept, and of what is read at once for all.
const (
	// limit: log | newest events in memory | {maxRecords}, {maxBytes B}
	maxRecords = 16 << 10
	maxBytes   = 16 << 20 // of data and metadata
	pageSize   = 1000     // records
)

// Page is a part of the log without a gap.
type Page struct {
	Records []eventstore.Record // never changed again: they are handed out
	To      eventstore.Position // how far the log was read; at the last record, or behind it
	Last    bool                // nothing stood behind To
	Newest  bool                // nothing was known to stand behind To: the tail says so
	Server  int64               // see [eventstore.Batch]
	At      id.Event            // what stands at the position that the page begins behind, where that is an event of ours
}

// Source is the log that is followed.
type Source interface {
	// End is where the log ends: a page without records, the last one.
	End(ctx context.Context) (Page, error)
	// Read reads at most limit records behind a position. It fails with
	// eventstore.ErrNotFound where no event stands at that position, and with
	// eventstore.ErrUnavailable where it may succeed later.
	Read(ctx context.Context, after eventstore.Position, limit int) (Page, error)
}

// Tail is the end of a log, as far as a process knows it. Use [New].
type Tail struct {
	source Source
	closed <-chan struct{}
	gone   error         // what followers of a log that was closed are told
	lock   chan struct{} // of capacity 1: held by the follower that reads for all

	mu       sync.Mutex
	known    bool                // from, to, records and server say something
	from     eventstore.Position // the records are all that the server's log has behind from, up to to
	to       eventstore.Position
	records  []eventstore.Record // never changed, they are handed out
	size     int                 // bytes of the records
	server   int64
	awaited  eventstore.Position // what is known to be in the log
	signals  int                 // how often it was said that there may be more
	looked   int                 // signals before the log was last found to end at to
	full     int                 // pages in a row that were not the last
	signaled chan struct{}       // closed by the next signal, and when there is more
}

// New makes a Tail of a log that is followed until closed is; then Next fails
// with gone.
func New(source Source, closed <-chan struct{}, gone error) *Tail {
	return &Tail{source: source, closed: closed, gone: gone, lock: make(chan struct{}, 1), signals: 1, signaled: make(chan struct{})}
}

// Signal says that the log may have grown.
func (t *Tail) Signal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.signal()
}

func (t *Tail) signal() {
	t.signals++
	t.wake()
}

func (t *Tail) wake() {
	close(t.signaled)
	t.signaled = make(chan struct{})
}

// Reached signals where the log is not known up to a position at which an event
// stands.
func (t *Tail) Reached(position eventstore.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if position > t.to {
		t.signal()
	}
}

// Await notes that an event stands at a position, of which the tail will be told
// in a moment. Missed signals where it was not.
func (t *Tail) Await(position eventstore.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaited = max(t.awaited, position)
}

// Missed signals where what was awaited did not come.
func (t *Tail) Missed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.awaited > t.to {
		t.signal()
	}
}

// Forget forgets what is known of the log, and signals: it may be another one.
func (t *Tail) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
}

func (t *Tail) forget() {
	t.known, t.from, t.to, t.records, t.size, t.awaited = false, eventstore.Start, eventstore.Start, nil, 0, eventstore.Start
	t.full = 0
	t.signal()
}

// Put takes what stands in the log right behind a position. What follows a gap
// is left to be read.
func (t *Tail) Put(after eventstore.Position, page Page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(after, page)
}

func (t *Tail) put(after eventstore.Position, page Page) {
	if t.known && (page.Server != t.server || t.differs(page.Records)) {
		t.forget()
	}
	switch {
	case !t.known:
		t.known, t.from, t.to, t.server = true, after, after, page.Server
	case after > t.to:
		t.signal()
		return
	}
	if page.To <= t.to {
		return
	}
	fresh := behind(page.Records, t.to)
	t.to = page.To
	if len(fresh) == 0 {
		return
	}
	t.records = append(t.records, fresh...)
	for _, r := range fresh {
		t.size += len(r.Data) + len(r.Meta)
	}
	if len(t.records) > maxRecords || t.size > maxBytes {
		t.halve()
	}
	t.wake()
}

// behind is what of records stands behind a position.
func behind(records []eventstore.Record, position eventstore.Position) []eventstore.Record {
	first, at := find(records, position)
	if at {
		first++
	}
	return records[first:]
}

func find(records []eventstore.Record, position eventstore.Position) (int, bool) {
	return slices.BinarySearchFunc(records, position, func(r eventstore.Record, p eventstore.Position) int {
		return strings.Compare(string(r.Position), string(p))
	})
}

// differs says whether another event than the tail's stands at the newest
// position that it shares with the records.
func (t *Tail) differs(records []eventstore.Record) bool {
	shared := len(records) - len(behind(records, t.to)) - 1
	if shared < 0 {
		return false
	}
	ours, at := find(t.records, records[shared].Position)
	return at && t.records[ours].ID != records[shared].ID
}

// halve drops the older half.
func (t *Tail) halve() {
	kept, size := len(t.records), 0
	for kept > 0 && len(t.records)-kept < maxRecords/2 && size < maxBytes/2 {
		kept--
		size += len(t.records[kept].Data) + len(t.records[kept].Meta)
	}
	if kept > 0 {
		t.from = t.records[kept-1].Position
	}
	t.records, t.size = slices.Clone(t.records[kept:]), size
}

// End makes sure that it is known where the log ends, and returns that.
func (t *Tail) End(ctx context.Context) (eventstore.Position, error) {
	select {
	case t.lock <- struct{}{}:
		defer func() { <-t.lock }()
	case <-ctx.Done():
		return eventstore.Start, ctx.Err()
	}
	for {
		t.mu.Lock()
		to, known := t.to, t.known
		t.mu.Unlock()
		if known {
			return to, nil
		}
		if err := t.look(ctx); err != nil {
			return eventstore.Start, err
		}
	}
}

// look reads what the log has behind the tail, or, where nothing is known of it,
// where it ends. Its caller holds the lock.
func (t *Tail) look(ctx context.Context) error {
	t.mu.Lock()
	after, known, signals := t.to, t.known, t.signals
	t.mu.Unlock()
	if known {
		page, err := t.source.Read(ctx, after, pageSize)
		if err == nil && t.take(after, page, signals) {
			return nil
		}
		if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
			return err
		}
		t.Forget()
		t.mu.Lock()
		signals = t.signals
		t.mu.Unlock()
	}
	page, err := t.source.End(ctx)
	if err == nil {
		t.take(page.To, page, signals)
	}
	return err
}

// take takes a page that was read after so many signals, unless it is another
// server's than the tail, or the tail is further behind than it reaches.
func (t *Tail) take(after eventstore.Position, page Page, signals int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && page.Server != t.server {
		return false
	}
	t.put(after, page)
	t.full++
	if page.Last {
		t.looked, t.full = max(t.looked, signals), 0
	}
	return t.full*pageSize <= maxRecords
}

// coverage is where a position is, beside the tail.
type coverage int

const (
	cached   coverage = iota
	uncached          // it has to be read in the log
	stale             // the tail has to be brought up to the log's end before that can be said
)

// serve returns at most limit records behind a position that is in the tail.
// It must have been looked at after so many signals; without records, after the last.
func (t *Tail) serve(after eventstore.Position, limit, since int) (Page, coverage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.looked == t.signals
	switch {
	case !t.known || t.looked < since:
		return Page{}, stale
	case after < t.from || after > t.to && seen:
		return Page{}, uncached
	case after > t.to:
		return Page{}, stale
	}
	records := behind(t.records, after)
	n := min(limit, len(records))
	page := Page{Records: records[:n:n], To: t.to, Last: seen, Newest: n < limit, Server: t.server}
	if n < len(records) {
		page.To, page.Last = page.Records[n-1].Position, false
	}
	if n == 0 && !seen {
		return page, stale
	}
	return page, cached
}

// Subscribe follows the log after a position.
func (t *Tail) Subscribe(after eventstore.Position) *Subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.signals++ // so that what is known is looked at anew
	return &Subscription{tail: t, after: after, since: t.signals, closed: make(chan struct{})}
}

// Subscription implements [eventstore.Subscription].
type Subscription struct {
	tail   *Tail
	after  eventstore.Position
	since  int  // signals when it began
	told   bool // that it has caught up, since it last told a record
	last   eventstore.Record
	once   sync.Once
	closed chan struct{}
}

var errClosed = errors.New("the subscription was closed")

// Next implements [eventstore.Subscription]. Where the log no longer holds what
// the subscription told last, it fails with eventstore.ErrNotFound.
func (s *Subscription) Next(ctx context.Context, limit int) (eventstore.Batch, error) {
	batch, err := s.next(ctx, max(limit, 1))
	if err != nil {
		return batch, fmt.Errorf("follow the log: %w", err)
	}
	return batch, nil
}

func (s *Subscription) next(ctx context.Context, limit int) (eventstore.Batch, error) {
	for {
		grown := s.tail.grown() // before reading, so that nothing falls between
		page, err := s.read(ctx, limit)
		switch {
		case err == nil:
			if n := len(page.Records); n > 0 {
				s.last, s.told = page.Records[n-1], false
			}
			s.after = page.To
			if len(page.Records) > 0 || page.Last && !s.told { // also when ctx has ended by now: it was read
				s.told = page.Last
				return eventstore.Batch{Records: page.Records, CaughtUp: page.Last, Newest: page.Last || page.Newest, Server: page.Server}, nil
			}
			if !page.Last {
				continue // there was nothing of ours
			}
		case ctx.Err() != nil:
			return eventstore.Batch{}, ctx.Err()
		case s.isClosed():
			return eventstore.Batch{}, errClosed
		case !errors.Is(err, eventstore.ErrUnavailable):
			return eventstore.Batch{}, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return eventstore.Batch{}, ctx.Err()
		case <-s.closed:
			return eventstore.Batch{}, errClosed
		case <-s.tail.closed:
			return eventstore.Batch{}, s.tail.gone
		}
	}
}

func (t *Tail) grown() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.signaled
}

// read reads on: in the tail, which is brought up to the log's end for all where
// that is to be done; beyond the tail in the log, for this one alone.
func (s *Subscription) read(ctx context.Context, limit int) (Page, error) {
	page, found := s.tail.serve(s.after, limit, s.since)
	if found == stale {
		var err error
		if page, found, err = s.wait(ctx, limit); err != nil {
			return Page{}, err
		}
	}
	if found == uncached {
		return s.readAlone(ctx, limit)
	}
	return page, nil
}

// wait waits for the lock, and reads for all, unless the follower before did.
func (s *Subscription) wait(ctx context.Context, limit int) (page Page, found coverage, err error) {
	select {
	case s.tail.lock <- struct{}{}:
		defer func() { <-s.tail.lock }()
	case <-ctx.Done():
		return page, stale, ctx.Err()
	}
	if page, found = s.tail.serve(s.after, limit, s.since); found != stale {
		return page, found, nil
	}
	if err := s.tail.look(ctx); err != nil {
		return page, stale, err
	}
	if page, found = s.tail.serve(s.after, limit, s.since); found == stale {
		page.To, page.Last = s.after, false // there was a signal meanwhile, or there is more
	}
	return page, found, nil
}

// readAlone reads what the tail does not reach.
func (s *Subscription) readAlone(ctx context.Context, limit int) (Page, error) {
	page, err := s.tail.source.Read(ctx, s.after, limit)
	if err == nil && s.last.ID != "" && s.last.Position == s.after && page.At != s.last.ID {
		err = fmt.Errorf("event %s at %s: %w", s.last.ID, s.after, eventstore.ErrNotFound)
	}
	return page, err
}

func (s *Subscription) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// Close implements [eventstore.Subscription].
func (s *Subscription) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
