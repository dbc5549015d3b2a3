package projections

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow answers each question with its double after a second, and notes how
// many it was asked at once, and when.
type slow struct {
	mu    sync.Mutex
	turns []int
	began map[int]time.Time
	fail  error
}

func (s *slow) answer(ctx context.Context, questions []int) ([]int, error) {
	s.mu.Lock()
	s.turns = append(s.turns, len(questions))
	answers := make([]int, len(questions))
	for i, q := range questions {
		answers[i], s.began[q] = 2*q, time.Now()
	}
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
		return answers, s.fail
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func newSlow() (*slow, *coalescer[int, int]) {
	s := &slow{began: map[int]time.Time{}}
	return s, &coalescer[int, int]{answer: s.answer}
}

func TestAGatheringMayAskForLessAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow()
		g.most = 3
		var all sync.WaitGroup
		for q := range 20 {
			all.Go(func() {
				if _, err := g.ask(t.Context(), q); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most := slices.Max(s.turns); most != 3 {
			t.Errorf("turns of %d questions", s.turns)
		}
	})
}

func TestWhatIsAskedAtTheSameTimeIsAnsweredTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := newSlow()
		const askers = coalesceRunning + coalesceMost + 3
		var all sync.WaitGroup
		for q := range askers {
			all.Go(func() {
				asked := time.Now()
				answer, err := g.ask(t.Context(), q)
				if err != nil || answer != 2*q {
					t.Errorf("%d was answered %d, %v", q, answer, err)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.began[q].Before(asked) {
					t.Errorf("%d was answered by what began before it was asked", q)
				}
			})
			if q < coalesceRunning {
				synctest.Wait() // nobody waits for others to ask
				if len(s.turns) != q+1 {
					t.Errorf("%d has to wait while a turn is free", q)
				}
				time.Sleep(time.Millisecond)
			}
		}
		all.Wait()
		synctest.Wait()
		largest := 0
		for _, n := range s.turns {
			largest = max(largest, n)
		}
		if len(s.turns) != coalesceRunning+2 || largest != coalesceMost || g.running != 0 {
			t.Errorf("turns of %d questions, %d still taken", s.turns, g.running)
		}
	})
}

func TestWhoGivesUpTakesNothingFromTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, g := newSlow()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for q := range 2 * coalesceRunning {
			all.Go(func() { // those who come first answer for the others too
				_, err := g.ask(ctx, q)
				if waiting := q >= coalesceRunning; waiting != errors.Is(err, context.Canceled) {
					t.Errorf("%d ended with %v", q, err)
				}
			})
			synctest.Wait()
		}
		all.Go(func() {
			if answer, err := g.ask(t.Context(), 100); err != nil || answer != 200 {
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
				if _, err := g.ask(t.Context(), q); !errors.Is(err, s.fail) {
					t.Errorf("%d: the error is %v", q, err)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		s.fail = nil
		if answer, err := g.ask(t.Context(), 21); err != nil || answer != 42 {
			t.Errorf("after that: %d, %v", answer, err)
		}
	})
}
