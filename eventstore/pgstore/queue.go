package pgstore

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Bounds of one commit. They keep it within a few milliseconds, which is how long one
// client's import makes everyone else wait; a single request may be larger.
const (
	// limit: log | one commit | {maxBatchRequests} appends, {maxBatchEvents} events, {maxBatchBytes B}
	maxBatchRequests = 256
	maxBatchEvents   = 512
	maxBatchBytes    = 2 << 20

	// While several clients append, a client has at most maxShare requests of maxShareBytes
	// together in a batch, or one request. A client of which more waits has none in every
	// other batch, so that others wait for short batches. This ends once a client has been
	// alone for aloneAfter batches.
	// limit: log | appends of one client in a commit, while others append | {maxShare} of {maxShareBytes B} together, or one
	maxShare      = 64
	maxShareBytes = maxBatchBytes / 8
	aloneAfter    = 128
)

// Bounds of what waits.
const (
	// limit: log | appends that wait | {maxWaiting} and {maxWaitingBytes B}, of one client {maxWaitingClient} and {maxWaitingBytesClient B}
	maxWaiting            = 4096
	maxWaitingClient      = maxWaiting / 2 // so that no client shuts the others out
	maxWaitingBytes       = 64 << 20
	maxWaitingBytesClient = maxWaitingBytes / 2
	// limit: log | imports that append at a time | {maxMany}
	maxMany = 3 // callers that append many at once: even of one client, these leave room for others
)

// request is an append on its way to its commit.
type request struct {
	stream    eventstore.Stream
	expected  eventstore.Revision
	events    []eventstore.Proposed
	keys      []eventstore.Key // to be made with them
	ids       [][16]byte       // of the events
	size      int              // bytes of data and metadata
	caller    *caller
	answer    atomic.Pointer[answer] // nil until there is one
	abandoned atomic.Bool            // its caller has gone
}

// caller waits for what comes of its requests, and is woken once for all.
type caller struct {
	left     atomic.Int64  // requests without an answer
	answered chan struct{} // closed when there is none left
}

func (r *request) resolve(a answer) {
	r.answer.Store(&a)
	if r.caller.left.Add(-1) == 0 {
		close(r.caller.answered)
	}
}

// answer is what came of a request: a success where actual is what it expected.
type answer struct {
	appended eventstore.Appended
	actual   eventstore.Revision
	err      error
}

func newRequest(from eventstore.Request, by *caller) (*request, error) {
	events := from.Events
	if err := eventstore.CheckAppend(events); err != nil {
		return nil, err
	}
	r := &request{
		stream: from.Stream, expected: from.Expected, events: events, keys: from.Keys,
		ids: make([][16]byte, len(events)), caller: by,
	}
	for i, e := range events {
		var err error
		if r.ids[i], err = id.Bytes(e.ID); err != nil {
			return nil, err
		}
		r.size += len(e.Data) + len(e.Meta)
	}
	return r, nil
}

// owner is whose queue a request waits in.
func (r *request) owner() string { return r.events[0].Client.Owner() }

// queue holds the requests that wait, in a queue for each client and its sandboxes. Clients
// go in rotation; within a queue, the requests of one stream keep their order.
type queue struct {
	mu        sync.Mutex
	arrived   sync.Cond
	byOwner   map[string]*clientQueue
	rotation  []*clientQueue // those that hold requests, the next one first
	waiting   int
	size      int  // bytes
	shared    int  // batches that are still filled as if several clients appended
	onlySmall bool // the last batch was for clients that append little
	closed    bool
}

type clientQueue struct {
	owner    string
	requests []*request // in the order of their arrival
	size     int        // bytes of them
	seen     int        // how many of them the batch being filled has passed
	taken    share      // what of them it holds
}

func newQueue() *queue {
	q := &queue{byOwner: map[string]*clientQueue{}}
	q.arrived.L = &q.mu
	return q
}

// putAll adds requests in their order until one fails, with
// [eventstore.ErrUnavailable], and returns how many it added.
func (q *queue) putAll(requests ...*request) (added int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.arrived.Signal()
	for i, r := range requests {
		if err := q.add(r); err != nil {
			return i, err
		}
	}
	return len(requests), nil
}

func (q *queue) add(r *request) error {
	if q.closed {
		return fmt.Errorf("%w: it is being closed", eventstore.ErrUnavailable)
	}
	c := q.byOwner[r.owner()]
	if q.waiting >= maxWaiting || q.size+r.size > maxWaitingBytes || c != nil && (len(c.requests) >= maxWaitingClient || c.size+r.size > maxWaitingBytesClient) {
		return fmt.Errorf("%w: too many appends are waiting (%d, %d bytes)", eventstore.ErrUnavailable, q.waiting, q.size)
	}
	if c == nil {
		c = &clientQueue{owner: r.owner()}
		q.byOwner[c.owner] = c
		q.rotation = append(q.rotation, c)
	}
	c.requests = append(c.requests, r)
	c.size += r.size
	q.waiting++
	q.size += r.size
	return nil
}

// take waits for requests and takes as many as one commit may hold, in rotation,
// no two of one stream. It returns none once the queue is closed and empty.
func (q *queue) take() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for q.waiting == 0 && !q.closed {
			q.arrived.Wait()
		}
		if batch := q.fill(); len(batch) > 0 || q.waiting == 0 && q.closed {
			return batch
		}
	}
}

// fill goes round the queues and takes a request from each, until the batch is
// full or nothing is left that may go into it. The queue whose request did not
// fit begins the next batch.
func (q *queue) fill() []*request {
	b := batch{streams: map[eventstore.Stream]bool{}}
	most, next := q.share(), 0
	q.onlySmall = !q.onlySmall && q.mixed()
	for idle := 0; idle < len(q.rotation); next = (next + 1) % len(q.rotation) {
		c := q.rotation[next]
		r := c.first(b.streams)
		if r == nil || !most.fits(c.taken, r) || q.onlySmall && c.many() {
			idle++
			continue
		}
		if !b.fits(r) {
			break
		}
		b.add(r)
		c.requests[c.seen] = nil
		c.taken.requests++
		c.taken.size += r.size
		idle = 0
	}
	q.sweep(next)
	return b.requests
}

// mixed says whether some append much while others append little.
func (q *queue) mixed() bool {
	many := 0
	for _, c := range q.rotation {
		if c.many() {
			many++
		}
	}
	return 0 < many && many < len(q.rotation)
}

func (c *clientQueue) many() bool { return len(c.requests) >= maxShare || c.size > maxShareBytes }

// share is what one client has of a batch.
type share struct{ requests, size int }

// fits says whether a request fits beside what was taken, as a large one alone does.
func (s share) fits(taken share, r *request) bool {
	return taken.requests == 0 || taken.requests < s.requests && taken.size+r.size <= s.size
}

// share is what the next batch may hold of one client.
func (q *queue) share() share {
	if len(q.rotation) > 1 {
		q.shared = aloneAfter
	}
	if q.shared == 0 {
		return share{maxBatchRequests, maxBatchBytes}
	}
	q.shared--
	return share{maxShare, maxShareBytes}
}

// first is the next request of a queue that its caller waits for, of a stream that
// is not in the batch yet. Its place is seen.
func (c *clientQueue) first(streams map[eventstore.Stream]bool) *request {
	for ; c.seen < len(c.requests); c.seen++ {
		if r := c.requests[c.seen]; r != nil && !r.abandoned.Load() && !streams[r.stream] {
			return r
		}
	}
	return nil
}

// sweep removes from the queues what was taken or given up, counts what waits,
// and begins the next batch with the queue at next.
func (q *queue) sweep(next int) {
	kept := make([]*clientQueue, 0, len(q.rotation))
	q.waiting, q.size = 0, 0
	for i := range q.rotation {
		c := q.rotation[(next+i)%len(q.rotation)]
		c.seen, c.taken, c.size = 0, share{}, 0
		c.requests = slices.DeleteFunc(c.requests, func(r *request) bool { return r == nil || r.abandoned.Load() })
		if len(c.requests) == 0 {
			delete(q.byOwner, c.owner)
			continue
		}
		kept = append(kept, c)
		q.waiting += len(c.requests)
		for _, r := range c.requests {
			c.size += r.size
		}
		q.size += c.size
	}
	q.rotation = kept
}

// awaitCallers waits for the callers of the last batch, which were just answered, to come
// back with their next appends, so that the next batch takes these along. It ends when as
// many wait as were answered, or when none came while other goroutines ran.
func (q *queue) awaitCallers(last int) {
	for before := -1; ; runtime.Gosched() {
		q.mu.Lock()
		waiting := q.waiting
		q.mu.Unlock()
		if waiting >= last || waiting == before {
			return
		}
		before = waiting
	}
}

// drain takes everything that waits, to be failed.
func (q *queue) drain() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]*request, 0, q.waiting)
	for _, c := range q.rotation {
		all = append(all, c.requests...)
	}
	clear(q.byOwner)
	q.rotation, q.waiting, q.size = nil, 0, 0
	return all
}

// close lets nothing more in. It reports whether it was open.
func (q *queue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	open := !q.closed
	q.closed = true
	q.arrived.Signal()
	return open
}

// batch is what one commit will hold.
type batch struct {
	requests []*request
	streams  map[eventstore.Stream]bool
	events   int
	size     int
}

func (b *batch) fits(r *request) bool {
	return len(b.requests) == 0 ||
		len(b.requests) < maxBatchRequests && b.events+len(r.events) <= maxBatchEvents && b.size+r.size <= maxBatchBytes
}

func (b *batch) add(r *request) {
	b.requests = append(b.requests, r)
	b.streams[r.stream] = true
	b.events += len(r.events)
	b.size += r.size
}
