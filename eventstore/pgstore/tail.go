package pgstore

import (
	"sync"

	"kindred/eventstore"
)

// Bounds of what a process remembers of the log's end.
const (
	maxTail      = 16 << 10 // records
	maxTailBytes = 16 << 20 // of data and metadata
)

// tail is the end of the log, as far as this process knows it: what it appended
// by itself, or has just read. All that follow the log closely are served from
// it, so that an event is read once for all of them, or never.
type tail struct {
	mu      sync.Mutex
	records []eventstore.Record // without a gap; never changed, they are handed out
	last    int64               // position of the last one; -1 while it is not known
	size    int                 // bytes of the records

	rings      int  // how often it was said that there may be more
	looked     int  // rings when the table was last found to hold no more
	cleared    int  // rings when everything was last forgotten
	committing bool // this process appends; it will tell by itself
	missed     bool // something was heard meanwhile
	rung       chan struct{}

	turn chan struct{} // of capacity 1: held by who looks into the table for all
}

func newTail() *tail {
	return &tail{last: -1, rings: 1, rung: make(chan struct{}), turn: make(chan struct{}, 1)}
}

// wait returns a channel that is closed at the next ring.
func (t *tail) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rung
}

// ring says that the table may hold more.
func (t *tail) ring() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rings++
	t.wake()
}

// doubt forgets what is known of the log, and rings: after a failover, or where
// a backup was restored, the log may end before it, and go on otherwise.
func (t *tail) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear()
}

func (t *tail) clear() {
	t.records, t.last, t.size = nil, -1, 0
	t.rings++
	t.cleared = t.rings
	t.wake()
}

func (t *tail) wake() {
	close(t.rung)
	t.rung = make(chan struct{})
}

// hear rings where another process has appended up to a position.
func (t *tail) hear(position int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case position <= t.last:
	case t.committing:
		t.missed = true
	default:
		t.rings++
		t.wake()
	}
}

// begin notes that this process appends, and end that it does no more.
func (t *tail) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committing = true
}

// end takes what was appended after a position, and wakes those who follow.
func (t *tail) end(base int64, appended []eventstore.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committing = false
	gap := base > t.last
	t.put(base, appended)
	if gap || t.missed {
		t.rings++ // for those who are not as far as base
	}
	t.missed = false
	t.wake()
}

// after returns at most limit records after a position, and whether they are
// the last. ok is false where the tail does not reach back so far.
func (t *tail) after(position int64, limit int) (records []eventstore.Record, all, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := int(position - t.last + int64(len(t.records)))
	if t.last < 0 || first < 0 {
		return nil, false, false
	}
	if first >= len(t.records) {
		return nil, true, true
	}
	end := min(first+limit, len(t.records))
	return t.records[first:end:end], end == len(t.records), true
}

// unseen says whether the table may hold what nobody has looked at, and counts
// the rings until now.
func (t *tail) unseen() (rings int, unseen bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rings, t.rings != t.looked
}

// offer takes what the table held after a position, all of it, when it was
// looked at after so many rings.
func (t *tail) offer(base int64, records []eventstore.Record, rings int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rings < t.cleared {
		return // it may be what was forgotten since
	}
	t.looked = max(t.looked, rings)
	known := t.last
	if t.put(base, records); t.last > known {
		t.wake()
	}
}

// put adds the records that stand from base + 1 on, as far as they are not known.
func (t *tail) put(base int64, records []eventstore.Record) {
	last := base + int64(len(records))
	if t.differs(base, records) {
		t.clear()
	}
	switch {
	case last <= t.last:
		return
	case base > t.last:
		t.records, t.size = nil, 0
	default:
		records = records[t.last-base:]
	}
	t.last = last
	t.records = append(t.records, records...)
	for _, r := range records {
		t.size += len(r.Data) + len(r.Meta)
	}
	if len(t.records) > maxTail || t.size > maxTailBytes {
		t.halve()
	}
}

// differs says whether another event than the tail's stands at the newest
// position that it shares with the records.
func (t *tail) differs(base int64, records []eventstore.Record) bool {
	shared := min(base+int64(len(records)), t.last)
	theirs, ours := shared-base-1, shared-t.last+int64(len(t.records))-1
	return theirs >= 0 && ours >= 0 && records[theirs].ID != t.records[ours].ID
}

// halve drops the older half.
func (t *tail) halve() {
	kept, size := len(t.records), 0
	for kept > 0 && len(t.records)-kept < maxTail/2 && size < maxTailBytes/2 {
		kept--
		size += len(t.records[kept].Data) + len(t.records[kept].Meta)
	}
	t.records, t.size = append([]eventstore.Record(nil), t.records[kept:]...), size
}
