package semaphore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"kindred/semaphore"
)

// got are the clients that got a place, in this order, and how many more places each waits
// for.
type got struct {
	mu      sync.Mutex
	clients []string
	waiting map[string]int
}

func (g *got) list() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.clients)
}

// drop forgets one of them.
func (g *got) drop(i int) (client string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.clients); n > 0 {
		client = g.clients[i%n]
		g.clients = slices.Delete(g.clients, i%n, i%n+1)
		return client, true
	}
	return "", false
}

// waits notes that a client waits for n places more, or fewer.
func (g *got) waits(client string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting == nil {
		g.waiting = map[string]int{}
	}
	g.waiting[client] += n
}

// ask takes a place behind the test.
func (g *got) ask(ctx context.Context, s *semaphore.Semaphore, client string) {
	g.waits(client, 1)
	go func() {
		ok := s.Take(ctx, client)
		g.waits(client, -1)
		if ok {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.clients = append(g.clients, client)
		}
	}()
	synctest.Wait()
}

// passedOver is a client that waits and could have a place; "": none is.
func (g *got) passedOver(s *semaphore.Semaphore) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := map[string]int{}
	for _, client := range g.clients {
		held[client]++
	}
	free := s.Places - len(g.clients)
	for client, n := range g.waiting {
		if n > 0 && free > 0 && (s.Each == 0 || held[client] < s.Each) && (!s.Half || held[client] < free) {
			return client
		}
	}
	return ""
}

func TestPlacesGoToTheClientsThatWaitInRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &semaphore.Semaphore{Places: 1, Waiting: 8}
		var got got
		for _, client := range []string{"a", "a", "a", "a", "b", "c", "b"} {
			got.ask(t.Context(), s, client)
		}
		for range 6 {
			all := got.list()
			s.Give(all[len(all)-1])
			synctest.Wait()
		}
		if want := []string{"a", "a", "b", "c", "a", "b", "a"}; !slices.Equal(got.list(), want) {
			t.Errorf("got %v, want %v", got.list(), want)
		}
	})
}

// What a client holds counts before whose turn it is.
func TestAPlaceGoesToTheClientThatHoldsLeast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &semaphore.Semaphore{Places: 4, Waiting: 8}
		var got got
		for _, client := range []string{"a", "a", "a", "b", "a", "b", "b"} {
			got.ask(t.Context(), s, client)
		}
		s.Give("a")
		synctest.Wait()
		s.Give("a")
		synctest.Wait()
		if want := []string{"a", "a", "a", "b", "b", "a"}; !slices.Equal(got.list(), want) {
			t.Errorf("got %v, want %v", got.list(), want)
		}
	})
}

func TestTheClientThatHasMostMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &semaphore.Semaphore{Places: 2, Waiting: 6}
		var got got
		for range 8 {
			got.ask(t.Context(), s, "a")
		}
		if !s.Full() || !s.Refuses("a") || s.Refuses("b") || s.Take(t.Context(), "a") {
			t.Error("one client has all, yet more of it waits, or no other may")
		}
		got.ask(t.Context(), s, "b")
		got.ask(t.Context(), s, "b")
		if !s.Refuses("b") || s.Refuses("c") {
			t.Error("b has half of its part, c has none")
		}
		s.Give("a")
		synctest.Wait()
		s.Give("a")
		synctest.Wait()
		if held, waiting := s.Count(); held != 2 || waiting != 4 || !slices.Equal(got.list(), []string{"a", "a", "b", "a"}) {
			t.Errorf("%v; %d held, %d wait", got.list(), held, waiting)
		}
		for range 6 { // of which the last two are nobody's who waits
			all := got.list()
			client, _ := got.drop(len(all) - 1)
			s.Give(client)
			synctest.Wait()
		}
	})
}

func TestNobodyWaitsLongerThanItWill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &semaphore.Semaphore{Places: 1, Waiting: 1, Patience: time.Second}
		if !s.Take(t.Context(), "a") || s.Try("b") {
			t.Fatal("there is one place")
		}
		began := time.Now()
		if s.Take(t.Context(), "b") || time.Since(began) != time.Second {
			t.Errorf("it waited for %s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if s.Take(ctx, "b") {
			t.Error("one that has gone away got a place")
		}
		s.Give("a")
		if held, waiting := s.Count(); held != 0 || waiting != 0 || !s.Try("b") {
			t.Errorf("%d held, %d wait", held, waiting)
		}
	})
}

func TestOneClientHoldsItsPlacesAndLeavesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &semaphore.Semaphore{Places: 3, Each: 1, Waiting: 4}
		var got got
		for _, client := range []string{"a", "a", "b", "c", "d"} {
			got.ask(t.Context(), s, client)
		}
		if want := []string{"a", "b", "c"}; !slices.Equal(got.list(), want) {
			t.Fatalf("got %v, want %v", got.list(), want)
		}
		s.Give("c") // a, whose turn it is, has its place
		synctest.Wait()
		s.Give("a")
		synctest.Wait()
		if want := []string{"a", "b", "c", "d", "a"}; !slices.Equal(got.list(), want) {
			t.Errorf("got %v, want %v", got.list(), want)
		}
	})
}

// holder is one whose end gives its place back.
func holder(s *semaphore.Semaphore, slow float64) *semaphore.Holder {
	h := &semaphore.Holder{Slow: func(time.Duration) float64 { return slow }}
	h.End = func() { s.Drop(h) }
	return h
}

func TestTheSlowestGivesWayToAClientThatHoldsLess(t *testing.T) {
	t.Parallel()
	s := &semaphore.Semaphore{Places: 3}
	quick, slow, slower := holder(s, 0), holder(s, 1), holder(s, 2)
	for _, h := range []*semaphore.Holder{quick, slow, slower} {
		if !s.Hold(t.Context(), "a", h) {
			t.Fatal("there are three places")
		}
	}
	if s.Hold(t.Context(), "a", holder(s, 0)) || slower.Ended() {
		t.Error("a client ends what is its own")
	}
	if !s.Hold(t.Context(), "b", holder(s, 0)) || !slower.Ended() || slow.Ended() {
		t.Error("the slowest was not ended")
	}
	if s.Hold(t.Context(), "b", holder(s, 0)) || slow.Ended() {
		t.Error("b has as many as a will have")
	}
	if !s.Hold(t.Context(), "c", holder(s, 0)) || !slow.Ended() {
		t.Error("the next was not ended")
	}
	if s.Hold(t.Context(), "d", holder(s, 0)) || quick.Ended() {
		t.Error("what is quick was ended")
	}
}

// An import that is ended applies the lines that it has read before it gives its place back.
func TestOneThatWaitsEndsAnotherOnlyOnceTheLastDoesNotEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends, patience time.Duration // an end takes so long
		ended          int
		holds          bool
	}{
		"soon":  {900 * time.Millisecond, time.Second, 1, true},
		"later": {8 * time.Second, 10 * time.Second, 2, true},
		"never": {time.Hour, 4 * time.Second, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &semaphore.Semaphore{Places: 4, Waiting: 4, Patience: c.patience}
				var holders []*semaphore.Holder
				for n := range 4 {
					h := &semaphore.Holder{Slow: func(time.Duration) float64 { return float64(n + 1) }}
					h.End = func() { time.AfterFunc(c.ends, func() { s.Drop(h) }) }
					if holders = append(holders, h); !s.Hold(t.Context(), "a", h) {
						t.Fatal("there are four places")
					}
				}
				holds := s.Hold(t.Context(), "b", &semaphore.Holder{})
				ended := 0
				for _, h := range holders {
					if h.Ended() {
						ended++
					}
				}
				if holds != c.holds || ended != c.ended {
					t.Errorf("b holds a place: %v, %d were ended", holds, ended)
				}
			})
		})
	}
}

func TestWhatIsIdleGivesWayToAnyClient(t *testing.T) {
	t.Parallel()
	s := &semaphore.Semaphore{Places: 3, Each: 2}
	older, idle, other := holder(s, semaphore.Idle+2), holder(s, semaphore.Idle+1), holder(s, semaphore.Idle+3)
	if !s.Hold(t.Context(), "a", older) || !s.Hold(t.Context(), "a", idle) || !s.Hold(t.Context(), "b", other) {
		t.Fatal("there are three places")
	}
	if !s.Hold(t.Context(), "a", holder(s, 0)) || !older.Ended() || other.Ended() {
		t.Error("a client that has all that it may did not give up its own")
	}
	if !s.Hold(t.Context(), "b", holder(s, 0)) || !other.Ended() || idle.Ended() {
		t.Error("the one that was idle for longest did not give way")
	}
}

// Whatever happens, no more is held or waits than may, and nobody waits who could have a
// place that is free.
func TestASemaphoreNeverLosesAPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := &semaphore.Semaphore{
			Places: rapid.IntRange(1, 4).Draw(r, "places"), Each: rapid.IntRange(0, 3).Draw(r, "each"), Waiting: rapid.IntRange(0, 4).Draw(r, "waiting"),
			Half: rapid.Bool().Draw(r, "half"),
		}
		steps := rapid.SliceOf(rapid.IntRange(0, 8)).Draw(r, "steps")
		synctest.Test(t, func(*testing.T) {
			var held got
			ctx, end := context.WithCancel(context.Background())
			for i, step := range steps {
				if step < 6 {
					held.ask(ctx, s, fmt.Sprint(step%3))
				} else if client, ok := held.drop(i); ok {
					s.Give(client)
				}
				synctest.Wait()
				if got, waiting := s.Count(); got != len(held.list()) || got > s.Places || waiting > s.Waiting {
					r.Fatalf("%d held of %d, %d wait; known are %v", got, s.Places, waiting, held.list())
				}
				if client := held.passedOver(s); client != "" {
					r.Fatalf("%s waits, though a place is free; held by %v of %d", client, held.list(), s.Places)
				}
			}
			end()
			synctest.Wait()
			for _, client := range held.list() {
				s.Give(client)
			}
			if got, waiting := s.Count(); got != 0 || waiting != 0 || s.Full() {
				r.Fatalf("at the end %d are held, %d wait", got, waiting)
			}
		})
	})
}

func BenchmarkAPlaceThatIsFree(b *testing.B) {
	s := &semaphore.Semaphore{Places: 256}
	b.ReportAllocs()
	for b.Loop() {
		s.Take(b.Context(), "cli_00000000000000000000000001")
		s.Give("cli_00000000000000000000000001")
	}
}
