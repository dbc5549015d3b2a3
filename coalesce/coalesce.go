// Package coalesce does together what is asked for at the same time, where a round
// for many costs little more than a round for one.
//
// There is no goroutine: of those that wait, one leads a round for all, and then hands
// the lead on. So a round that panics does so in the call of the one that leads it.
package coalesce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrBusy is returned where too much waits.
var ErrBusy = errors.New("too much is asked for at the same time")

var (
	errBrokenOff = errors.New("the round was broken off") // it has panicked
	errNoAnswer  = errors.New("the round has answered nothing")
)

// Coalescer does rounds of what is asked for. No question waits for others to be
// asked: one that finds a round free begins it at once, and those that find none go
// together with the next. The round that answers a question begins after it was asked.
type Coalescer[Q, A any] struct {
	// Answer does a round: it returns one answer for each question, in order, or for the
	// first of them; those behind go into the next round. Its context ends after Timeout,
	// and not with that of one that asks.
	Answer  func(ctx context.Context, questions []Q) ([]A, error)
	Size    func(Q) int   // of a question; nil: each has 1
	Most    int           // the size of a round, unless one question has more
	Waiting int           // the size of what may wait
	Running int           // rounds under way at a time; 0 is one
	Timeout time.Duration // of a round

	mu      sync.Mutex
	running int
	waiting []*asked[Q, A]
	size    int // of what waits
}

type asked[Q, A any] struct {
	question Q
	size     int
	answer   A
	err      error
	gone     bool          // its caller has given up
	lead     chan struct{} // closed to make it lead
	done     chan struct{} // closed once it is answered
}

// Ask asks a question. A caller that gives up takes nothing from the others; what it
// asked for may be done all the same. It fails with ErrBusy where too much waits, and
// with what Answer fails with.
func (c *Coalescer[Q, A]) Ask(ctx context.Context, question Q) (A, error) {
	q := &asked[Q, A]{question: question, size: 1, lead: make(chan struct{}), done: make(chan struct{})}
	if c.Size != nil {
		q.size = c.Size(question)
	}
	leads, err := c.enter(q)
	if err != nil {
		return q.answer, err
	}
	if !leads {
		select {
		case <-q.done:
			return q.answer, q.err
		case <-q.lead:
		case <-ctx.Done():
			if c.leave(q) {
				var none A
				return none, ctx.Err()
			}
		}
	}
	c.round(ctx, q)
	return q.answer, q.err
}

// enter puts a question in line, unless a round is free: then it leads.
func (c *Coalescer[Q, A]) enter(q *asked[Q, A]) (leads bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running < max(c.Running, 1) {
		c.running++
		return true, nil
	}
	if c.size+q.size > c.Waiting {
		return false, ErrBusy
	}
	c.waiting, c.size = append(c.waiting, q), c.size+q.size
	return false, nil
}

// leave takes a question out of the line, and keeps one whose round is under way out of
// the next. It fails where the question is to lead.
func (c *Coalescer[Q, A]) leave(q *asked[Q, A]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-q.lead:
		return false
	default:
	}
	q.gone = true
	if i := slices.Index(c.waiting, q); i >= 0 {
		c.waiting, c.size = slices.Delete(c.waiting, i, i+1), c.size-q.size
	}
	return true
}

// round answers the question that leads, and those at the head of the line, and hands
// the lead on, whatever happens. That the leader's own caller has gone is no reason to
// let down the others.
func (c *Coalescer[Q, A]) round(ctx context.Context, lead *asked[Q, A]) {
	batch := append([]*asked[Q, A]{lead}, c.take(c.Most-lead.size)...)
	questions := make([]Q, len(batch))
	for i, q := range batch {
		questions[i], q.err = q.question, errBrokenOff
	}
	answered := len(batch)
	defer func() { c.handOn(batch[:answered], batch[answered:]) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
	defer cancel()
	answers, err := c.Answer(ctx, questions)
	if err == nil && len(answers) == 0 {
		err = errNoAnswer
	}
	if err == nil {
		answered = len(answers)
	}
	for i, q := range batch[:answered] {
		if q.err = err; err == nil {
			q.answer = answers[i]
		}
	}
}

// take takes what waits from the head of the line, up to a size.
func (c *Coalescer[Q, A]) take(size int) []*asked[Q, A] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.waiting) && c.waiting[n].size <= size {
		size -= c.waiting[n].size
		c.size -= c.waiting[n].size
		n++
	}
	batch := c.waiting[:n:n]
	if c.waiting = c.waiting[n:]; len(c.waiting) == 0 {
		c.waiting = nil
	}
	return batch
}

// handOn tells those that are answered, and makes the next in line lead: of those that
// are not, if there are any.
func (c *Coalescer[Q, A]) handOn(answered, left []*asked[Q, A]) {
	c.mu.Lock()
	left = slices.DeleteFunc(left, func(q *asked[Q, A]) bool { return q.gone })
	for _, q := range left {
		c.size += q.size
	}
	c.waiting = append(left, c.waiting...)
	if len(c.waiting) == 0 {
		c.running--
	} else {
		next := c.waiting[0]
		c.waiting, c.size = c.waiting[1:], c.size-next.size
		close(next.lead)
	}
	c.mu.Unlock()
	for _, q := range answered {
		close(q.done)
	}
}

// Waits says how many questions wait for a round.
func (c *Coalescer[Q, A]) Waits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// Idle says whether no round is under way.
func (c *Coalescer[Q, A]) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running == 0
}
