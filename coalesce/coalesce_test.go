package coalesce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const running, most = 2, 128

// slow answers each question with its double after a second, and notes how
// many it was asked at once, and when.
type slow struct {
	mu     sync.Mutex
	rounds []int
	began  map[int]time.Time
	fail   error
}

func (s *slow) answer(ctx context.Context, questions []int) ([]int, error) {
	s.mu.Lock()
	s.rounds = append(s.rounds, len(questions))
	answers := make([]int, len(questions))
	for i, q := range questions {
		answers[i], s.began[q] = 2*q, time.Now()
	}
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
		if s.fail != nil {
			return nil, s.fail
		}
		return answers, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func newSlow() (*slow, *Coalescer[int, int]) {
	s := &slow{began: map[int]time.Time{}}
	return s, &Coalescer[int, int]{Answer: s.answer, Most: most, Waiting: 1_000, Running: running, Timeout: 10 * time.Second}
}

func TestARoundIsNotLargerThanItMayBe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow()
		g.Most = 3
		var all sync.WaitGroup
		for q := range 20 {
			all.Go(func() {
				if _, err := g.Ask(t.Context(), q); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if largest := slices.Max(s.rounds); largest != 3 {
			t.Errorf("rounds of %d questions", s.rounds)
		}
	})
}

func TestWhatIsAskedAtTheSameTimeIsAnsweredTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow()
		const askers = running + most + 3
		var all sync.WaitGroup
		for q := range askers {
			all.Go(func() {
				asked := time.Now()
				answer, err := g.Ask(t.Context(), q)
				if err != nil || answer != 2*q {
					t.Errorf("%d was answered %d, %v", q, answer, err)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.began[q].Before(asked) {
					t.Errorf("%d was answered by what began before it was asked", q)
				}
			})
			if q < running {
				synctest.Wait() // nobody waits for others to ask
				if len(s.rounds) != q+1 {
					t.Errorf("%d has to wait while a round is free", q)
				}
				time.Sleep(time.Millisecond)
			}
		}
		all.Wait()
		synctest.Wait()
		largest := 0
		for _, n := range s.rounds {
			largest = max(largest, n)
		}
		if len(s.rounds) != running+2 || largest != most || g.running != 0 {
			t.Errorf("rounds of %d questions, %d still taken", s.rounds, g.running)
		}
	})
}

func TestWhoGivesUpTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := newSlow()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for q := range 2 * running {
			all.Go(func() { // those who come first answer for the others too
				_, err := g.Ask(ctx, q)
				if waiting := q >= running; waiting != errors.Is(err, context.Canceled) {
					t.Errorf("%d ended with %v", q, err)
				}
			})
			synctest.Wait()
		}
		all.Go(func() {
			if answer, err := g.Ask(t.Context(), 100); err != nil || answer != 200 {
				t.Errorf("who stays is answered %d, %v", answer, err)
			}
		})
		synctest.Wait()
		cancel()
		all.Wait()
	})
}

func TestWhatFailsFailsForThoseWhoAskedAndNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow()
		s.fail = errors.New("no database")
		var all sync.WaitGroup
		for q := range 10 {
			all.Go(func() {
				if _, err := g.Ask(t.Context(), q); !errors.Is(err, s.fail) {
					t.Errorf("%d: the error is %v", q, err)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		s.fail = nil
		if answer, err := g.Ask(t.Context(), 21); err != nil || answer != 42 {
			t.Errorf("after that: %d, %v", answer, err)
		}
	})
}

func TestWhatMayNotWaitIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := newSlow()
		g.Running, g.Waiting, g.Most = 1, 7, 5
		g.Size = func(q int) int { return q }
		var all sync.WaitGroup
		for i, q := range []int{9, 3, 3} { // the first is larger than a round, and goes alone
			all.Go(func() {
				if answer, err := g.Ask(t.Context(), q); err != nil || answer != 2*q {
					t.Errorf("%d is answered %d, %v", q, answer, err)
				}
			})
			synctest.Wait()
			if g.Waits() != i {
				t.Errorf("%d wait behind %d", g.Waits(), i)
			}
		}
		if _, err := g.Ask(t.Context(), 2); !errors.Is(err, ErrBusy) {
			t.Errorf("what is too much is answered %v", err)
		}
		all.Go(func() {
			if _, err := g.Ask(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
		if !g.Idle() || g.size != 0 {
			t.Errorf("in the end, %d wait", g.size)
		}
	})
}

func TestWhoWaitsIsNotAnsweredOnceItsCallerHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow()
		g.Running = 1
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for q := range 3 {
			ctx := ctx
			if q == 2 {
				ctx = t.Context()
			}
			all.Go(func() { _, _ = g.Ask(ctx, q) })
			synctest.Wait()
		}
		cancel()
		all.Wait()
		if !slices.Equal(s.rounds, []int{1, 1}) || !s.began[1].IsZero() || g.size != 0 {
			t.Errorf("rounds of %d questions, %v; at the end %d wait", s.rounds, s.began, g.size)
		}
	})
}

// lateContext has ended by the time that somebody who waits for it sees anything else.
type lateContext struct {
	context.Context //nolint:containedctx // it is one

	ended chan struct{}
}

func (c lateContext) Done() <-chan struct{} {
	<-c.ended
	return c.ended
}

// One that gives up as it is told to lead leads all the same: nobody else was told.
func TestWhoGivesUpAsItIsToLeadLeavesNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // which of the two it sees is random
			release := make(chan struct{})
			g := &Coalescer[int, int]{Most: 1, Waiting: 10, Timeout: time.Minute, Answer: func(_ context.Context, questions []int) ([]int, error) {
				<-release
				return questions, nil
			}}
			late := lateContext{t.Context(), make(chan struct{})}
			var all sync.WaitGroup
			for q, ctx := range []context.Context{t.Context(), late, t.Context()} {
				all.Go(func() {
					if answer, err := g.Ask(ctx, q); answer != q || err != nil {
						t.Errorf("%d is answered %d, %v", q, answer, err)
					}
				})
				synctest.Wait()
			}
			close(release)
			synctest.Wait() // 1 is to lead
			close(late.ended)
			all.Wait()
		}
	})
}

func TestARoundThatAnswersNothingFails(t *testing.T) {
	t.Parallel()
	g := &Coalescer[int, int]{Most: 2, Waiting: 10, Timeout: time.Minute, Answer: func(context.Context, []int) ([]int, error) {
		return nil, nil
	}}
	if _, err := g.Ask(t.Context(), 1); !errors.Is(err, errNoAnswer) || !g.Idle() {
		t.Errorf("it ended with %v", err)
	}
}

func TestAPanicLetsDownItsRoundAndNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := &Coalescer[int, int]{Most: 2, Waiting: 10, Timeout: time.Minute, Answer: func(_ context.Context, questions []int) ([]int, error) {
			if <-release; questions[0] == 1 {
				panic("no")
			}
			return questions, nil
		}}
		var all sync.WaitGroup
		errs := make([]error, 4)
		for q := range errs {
			all.Go(func() {
				defer func() { _ = recover() }()
				_, errs[q] = g.Ask(t.Context(), q)
			})
			synctest.Wait()
		}
		close(release) // the rounds are 0, then 1 and 2, then 3
		all.Wait()
		if errs[0] != nil || !errors.Is(errs[2], errBrokenOff) || errs[3] != nil || !g.Idle() {
			t.Errorf("they end with %v", errs)
		}
	})
}

// What a round leaves goes first in the next, but for those whose callers have gone.
func TestARoundMayAnswerTheFirstAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rounds [][]int
		g := &Coalescer[int, int]{Most: 4, Waiting: 10, Timeout: time.Minute, Answer: func(_ context.Context, questions []int) ([]int, error) {
			rounds = append(rounds, slices.Clone(questions))
			time.Sleep(time.Second)
			return questions[:1], nil
		}}
		gone, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for q := range 5 {
			ctx := t.Context()
			if q == 3 {
				ctx = gone
			}
			all.Go(func() {
				if answer, err := g.Ask(ctx, q); (answer != q || err != nil) != (q == 3) {
					t.Errorf("%d is answered %d, %v", q, answer, err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(1500 * time.Millisecond) // 1 to 4 are in a round
		leave()
		all.Wait()
		want := [][]int{{0}, {1, 2, 3, 4}, {2, 4}, {4}}
		if !slices.EqualFunc(rounds, want, slices.Equal) || g.size != 0 || !g.Idle() {
			t.Errorf("the rounds are %v", rounds)
		}
	})
}
