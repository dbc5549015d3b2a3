package projections

import (
	"cmp"
	"context"
	"sync"
	"time"
)

const (
	coalesceRunning = 2 // statements under way at a time
	// limit: models | questions of one statement | {coalesceMost}
	coalesceMost    = 128 // questions in one of them, unless the coalescer says less
	coalesceTimeout = 10 * time.Second
)

// coalescer answers questions that are asked at the same time in one
// statement, which costs little more than one for a single question. No
// question waits for others to be asked: one that finds a statement free is answered
// at once, and those that find none go together with the next. A question is answered by a
// statement that begins after it was asked.
type coalescer[Q, A any] struct {
	answer func(ctx context.Context, questions []Q) ([]A, error) // one for each, in order
	most   int                                                   // at once; 0 is coalesceMost

	mu      sync.Mutex
	running int
	waiting []*coalesced[Q, A]
}

type coalesced[Q, A any] struct {
	question Q
	answer   A
	err      error
	done     chan struct{}
}

// ask asks a question. A caller that gives up takes nothing from the others.
func (g *coalescer[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	a := &coalesced[Q, A]{question: question, done: make(chan struct{})}
	g.mu.Lock()
	free := g.running < coalesceRunning
	if free {
		g.running++
	} else {
		g.waiting = append(g.waiting, a)
	}
	g.mu.Unlock()
	if free {
		g.run(ctx, []*coalesced[Q, A]{a})
		if next := g.next(); next != nil {
			go g.runAll(ctx, next)
		}
		return a.answer, a.err
	}
	select {
	case <-a.done:
		return a.answer, a.err
	case <-ctx.Done():
		var none A
		return none, ctx.Err()
	}
}

// runAll answers batches until none waits.
func (g *coalescer[Q, A]) runAll(ctx context.Context, batch []*coalesced[Q, A]) {
	for ; batch != nil; batch = g.next() {
		g.run(ctx, batch)
	}
}

// next takes a batch of what waits, or ends running where nothing does.
func (g *coalescer[Q, A]) next() []*coalesced[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), cmp.Or(g.most, coalesceMost))
	if n == 0 {
		g.running--
		return nil
	}
	batch := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return batch
}

func (g *coalescer[Q, A]) run(ctx context.Context, batch []*coalesced[Q, A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), coalesceTimeout)
	defer cancel()
	questions := make([]Q, len(batch))
	for i, a := range batch {
		questions[i] = a.question
	}
	answers, err := g.answer(ctx, questions)
	for i, a := range batch {
		if a.err = err; err == nil {
			a.answer = answers[i]
		}
		close(a.done)
	}
}
