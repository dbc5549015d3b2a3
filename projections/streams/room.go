package streams

import (
	"errors"
	"slices"
	"sync"
	"time"

	"kindred/eventstore"
	"kindred/projections"
)

// maxBehind is how many bytes of events a follower has not taken yet.
// limit: requests | events that a stream has not taken | {maxBehind B} | it is cut, and resumes by the last id
const maxBehind = 1 << 20

// ErrCut ends a stream that cannot go on where it is: its reader is too slow, or
// what it follows stands still or came from a server that is no more. What was
// told holds; whoever follows again, behind the last id, misses nothing.
var ErrCut = errors.New("the stream was cut; resume it by the last id")

// room is a client that is followed. The mutex of [Streams] guards it.
type room struct {
	followers map[*follower]struct{}
	queue     []projections.PublicEvent // whose users are to be named
	size      int                       // bytes of the queue
	busy      bool                      // somebody serves the queue
}

func (r *room) handOn(events []projections.PublicEvent) {
	for f := range r.followers {
		f.put(events)
	}
}

// cut ends the streams of all that follow now. One that joins meanwhile reads what
// was in the queue for itself.
func (r *room) cut() {
	r.queue, r.size = nil, 0
	for f := range r.followers {
		f.cut()
	}
}

// follower is one stream, or one request that waits for something.
type follower struct {
	Query
	more chan struct{} // of capacity 1: there is something to take

	mu    sync.Mutex
	queue []projections.PublicEvent
	size  int // bytes of the queue
	ended bool
}

func newFollower(q Query) *follower {
	q.Since = q.Since.Truncate(time.Microsecond) // as the database takes it
	return &follower{Query: q, more: make(chan struct{}, 1)}
}

// put adds events. One that takes them too slowly is cut.
func (f *follower) put(events []projections.PublicEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		if f.ended || len(f.Types) > 0 && !slices.Contains(f.Types, e.Type) || e.Reached.Before(f.Since) {
			continue
		}
		if f.size += e.Size(); f.size > maxBehind {
			f.end()
			return
		}
		f.queue = append(f.queue, e)
		f.wake()
	}
}

func (f *follower) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end()
}

// end lets the follower know, once it has taken what it was given before.
func (f *follower) end() {
	f.ended = true
	f.wake()
}

func (f *follower) wake() {
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// take returns what was put since, behind a position, and ErrCut where nothing
// will follow.
func (f *follower) take(after eventstore.Position) (events []projections.PublicEvent, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	events = slices.DeleteFunc(f.queue, func(e projections.PublicEvent) bool { return e.Position <= after })
	f.queue, f.size = nil, 0
	if f.ended {
		err = ErrCut
	}
	return events, err
}
