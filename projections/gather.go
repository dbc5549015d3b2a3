package projections

import (
	"cmp"
	"context"
	"sync"
	"time"
)

const (
	gatheredAtOnce = 2   // statements of a gathering under way
	gatheredMost   = 128 // questions in one of them, unless the gathering says less
	gatheredWithin = 10 * time.Second
)

// gathering answers questions that are asked at the same time in one
// statement, which costs little more than one for a single question. Nobody
// waits for others to ask: whoever finds a turn free is answered at once, and
// those who find none go together with the next. A question is answered by a
// statement that begins after it was asked.
type gathering[Q, A any] struct {
	answer func(ctx context.Context, questions []Q) ([]A, error) // one for each, in order
	most   int                                                   // at once; 0 is gatheredMost

	mu      sync.Mutex
	running int
	waiting []*asked[Q, A]
}

type asked[Q, A any] struct {
	question Q
	answer   A
	err      error
	done     chan struct{}
}

// ask asks a question. Who gives up takes nothing from the others.
func (g *gathering[Q, A]) ask(ctx context.Context, question Q) (A, error) {
	a := &asked[Q, A]{question: question, done: make(chan struct{})}
	g.mu.Lock()
	free := g.running < gatheredAtOnce
	if free {
		g.running++
	} else {
		g.waiting = append(g.waiting, a)
	}
	g.mu.Unlock()
	if free {
		g.run(ctx, []*asked[Q, A]{a})
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

// runAll uses a turn until nobody waits.
func (g *gathering[Q, A]) runAll(ctx context.Context, turn []*asked[Q, A]) {
	for ; turn != nil; turn = g.next() {
		g.run(ctx, turn)
	}
}

// next takes those who wait, or gives the turn back where nobody does.
func (g *gathering[Q, A]) next() []*asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), cmp.Or(g.most, gatheredMost))
	if n == 0 {
		g.running--
		return nil
	}
	turn := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return turn
}

func (g *gathering[Q, A]) run(ctx context.Context, turn []*asked[Q, A]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatheredWithin)
	defer cancel()
	questions := make([]Q, len(turn))
	for i, a := range turn {
		questions[i] = a.question
	}
	answers, err := g.answer(ctx, questions)
	for i, a := range turn {
		if a.err = err; err == nil {
			a.answer = answers[i]
		}
		close(a.done)
	}
}
