package semaphore_test

import (
	"context"
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
		if n > 0 && free > 0 && (client == "" || (s.Each == 0 || held[client] < s.Each) && (!s.Half || held[client] < free)) {
			return "«" + client + "»"
		}
	}
	return ""
}

// tooMany is a client that holds more places than it may; "": none does.
func (g *got) tooMany(s *semaphore.Semaphore) string {
	held := map[string]int{}
	for _, client := range g.list() {
		if held[client]++; client != "" && s.Each > 0 && held[client] > s.Each {
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
		if s.Refuses("a") {
			t.Error("all places are free")
		}
		var got got
		for range 8 {
			got.ask(t.Context(), s, "a")
		}
		if !s.Full() || !s.Refuses("a") || s.Refuses("b") || s.Take(t.Context(), "a") {
			t.Error("one client has all, yet more of it waits, or no other may")
		}
		got.ask(t.Context(), s, "b")
		got.ask(t.Context(), s, "b")
		if held, waiting := s.Count(); held != 2 || waiting != 6 || !s.Refuses("b") || s.Refuses("c") {
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

func TestWhoMakesRoomForANewClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting int
		asked   []string // the last by the new one
		got     []string
	}{
		"one that has the only place and all that wait": {2, []string{"a", "a", "a", "new"}, []string{"a", "a", "new"}},
		"one that has most, for up to half of a part":   {7, []string{"a", "a", "a", "a", "a", "a", "a", "a", "new", "new", "new"}, []string{"a", "a", "new", "a", "new", "a", "a", "a"}},
		"none that has no more than the new one will":   {2, []string{"a", "b", "c", "new"}, []string{"a", "b", "c"}},
		"the one that has most of several":              {6, []string{"x", "a", "a", "b", "b", "b", "b", "new"}, []string{"x", "a", "b", "new", "a", "b", "b"}},
		"the one that has most, which waits first":      {6, []string{"x", "b", "b", "b", "b", "a", "a", "new"}, []string{"x", "b", "a", "new", "b", "a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &semaphore.Semaphore{Places: 1, Waiting: c.waiting}
				var got got
				for _, client := range c.asked {
					got.ask(t.Context(), s, client)
				}
				for range c.waiting {
					all := got.list()
					s.Give(all[len(all)-1])
					synctest.Wait()
				}
				if !slices.Equal(got.list(), c.got) {
					t.Errorf("got %v, want %v", got.list(), c.got)
				}
			})
		})
	}
}

func TestTheOthersKeepTheirTurnsAsOneGivesUp(t *testing.T) {
	t.Parallel()
	for gone, want := range map[string][]string{"b": {"a", "c", "d"}, "c": {"a", "b", "d"}, "d": {"a", "b", "c"}} {
		t.Run(gone, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &semaphore.Semaphore{Places: 1, Waiting: 3}
				var got got
				ctx, giveUp := context.WithCancel(t.Context())
				for _, client := range []string{"a", "b", "c", "d"} {
					if client == gone {
						got.ask(ctx, s, client)
					} else {
						got.ask(t.Context(), s, client)
					}
				}
				giveUp()
				for range 3 {
					synctest.Wait()
					all := got.list()
					s.Give(all[len(all)-1])
				}
				if !slices.Equal(got.list(), want) {
					t.Errorf("got %v, want %v", got.list(), want)
				}
			})
		})
	}
}

func TestEachClientGetsHalfOfWhatTheOthersLeave(t *testing.T) {
	t.Parallel()
	s := &semaphore.Semaphore{Places: 8, Half: true}
	for _, c := range []struct {
		client string
		places int
	}{{"a", 4}, {"b", 2}, {"c", 1}, {"d", 1}, {"e", 0}} {
		places := 0
		for s.Try(c.client) {
			places++
		}
		if places != c.places {
			t.Errorf("%s got %d places, want %d", c.client, places, c.places)
		}
	}
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
		want := []string{"a", "b", "c", "d", "a"}
		if !slices.Equal(got.list(), want) {
			t.Errorf("got %v, want %v", got.list(), want)
		}
		got.ask(t.Context(), s, "a")
		s.Give("b") // a waits alone, and has its place
		synctest.Wait()
		if !slices.Equal(got.list(), want) {
			t.Errorf("got %v, want %v", got.list(), want)
		}
		s.Give("a")
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

func TestWhoHoldsLessTakesAPlaceOfWhoHoldsMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		holds []string // the places
		half  bool
		ends  bool // a holder gives way to b
	}{
		"b holds none":                   {[]string{"a", "c"}, false, true},
		"b holds none, of halves":        {[]string{"a", "a", "c", "d"}, true, true},
		"b holds one, a will have more":  {[]string{"a", "a", "a", "b"}, false, true},
		"b holds one, a will have fewer": {[]string{"a", "a", "b"}, false, false},
		"b holds one, of halves":         {[]string{"a", "a", "a", "b", "c", "d"}, true, false},
		"all places are nobody's":        {[]string{"", ""}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &semaphore.Semaphore{Places: len(c.holds), Each: 3, Half: c.half}
			var holders []*semaphore.Holder
			for _, client := range c.holds {
				h := holder(s, 1)
				if holders = append(holders, h); !s.Hold(t.Context(), client, h) {
					t.Fatal("there are places")
				}
			}
			got := s.Hold(t.Context(), "b", holder(s, 1))
			if ended := slices.ContainsFunc(holders, (*semaphore.Holder).Ended); got != c.ends || ended != c.ends {
				t.Errorf("b got a place: %v; one was ended: %v", got, ended)
			}
		})
	}
}

// One that has given its place back is no holder any more: to end it would free nothing.
func TestOnlyOneThatHoldsAPlaceGivesWay(t *testing.T) {
	t.Parallel()
	s := &semaphore.Semaphore{Places: 2}
	over, slow := holder(s, 2), holder(s, 1)
	if !s.Hold(t.Context(), "a", over) {
		t.Fatal("there are two places")
	}
	s.Drop(over)
	if !s.Hold(t.Context(), "a", slow) || !s.Hold(t.Context(), "a", holder(s, 0)) {
		t.Fatal("there are two places")
	}
	if !s.Hold(t.Context(), "b", holder(s, 0)) || over.Ended() || !slow.Ended() {
		t.Error("one that held no place was to give way")
	}
}

// How slow a holder is counts from when it got its place, and one that gets a place as it
// gives up waiting has it.
func TestAHolderGrowsSlowWhileItHoldsItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // which of the two it sees first is random
			s := &semaphore.Semaphore{Places: 1, Half: true, Waiting: 2}
			ctx, giveUp := context.WithCancel(t.Context())
			if !s.Take(ctx, "a") {
				t.Fatal("there is one place")
			}
			var helds []time.Duration
			h := &semaphore.Holder{Slow: func(held time.Duration) float64 {
				helds = append(helds, held)
				return held.Seconds()
			}}
			h.End = func() {
				s.Drop(h)
				giveUp()
			}
			time.AfterFunc(time.Minute, func() { s.Give("a") })
			if !s.Hold(ctx, "a", h) {
				t.Fatal("it got no place")
			}
			holds := s.Hold(ctx, "b", new(semaphore.Holder))
			if held, waiting := s.Count(); !holds || held != 1 || waiting != 0 {
				t.Errorf("it has a place: %v; %d are held, %d wait", holds, held, waiting)
			}
			if !slices.Equal(helds, []time.Duration{0, 250 * time.Millisecond}) {
				t.Errorf("it has held its place for %s", helds)
			}
		}
	})
}

// A place that was freed for one may go to another: then one more is freed.
func TestOneWhosePlaceWentToAnotherEndsOneMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &semaphore.Semaphore{Places: 5, Waiting: 2, Patience: 2 * time.Second}
		for range 4 {
			h := &semaphore.Holder{Slow: func(time.Duration) float64 { return 1 }}
			h.End = func() { time.AfterFunc(500*time.Millisecond, func() { s.Drop(h) }) }
			if !s.Hold(t.Context(), "a", h) {
				t.Fatal("there are five places")
			}
		}
		if !s.Try("b") {
			t.Fatal("there are five places")
		}
		var got got
		got.ask(t.Context(), s, "c") // holds less than b
		if !s.Hold(t.Context(), "b", holder(s, 0)) || !slices.Equal(got.list(), []string{"c"}) {
			t.Error("b waited in vain for the place that c got")
		}
	})
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
		"later": {8100 * time.Millisecond, 10 * time.Second, 2, true},
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
	first, older, idle, other := holder(s, semaphore.Idle), holder(s, semaphore.Idle+2), holder(s, semaphore.Idle+1), holder(s, semaphore.Idle+3)
	if !s.Hold(t.Context(), "a", first) || !s.Hold(t.Context(), "a", holder(s, 0)) {
		t.Fatal("there are three places")
	}
	if !s.Hold(t.Context(), "a", older) || !first.Ended() || !s.Hold(t.Context(), "b", other) {
		t.Error("a client that has all that it may did not give up its own, beside a place that was free")
	}
	if !s.Hold(t.Context(), "a", idle) || !older.Ended() || other.Ended() {
		t.Error("a client that has all that it may did not give up its own")
	}
	if !s.Hold(t.Context(), "b", holder(s, 0)) || !other.Ended() || idle.Ended() {
		t.Error("the one that was idle for longest did not give way")
	}
}

// Whatever happens, no more is held or waits than may, nobody waits who could have a
// place that is free, and nothing is kept of who has gone.
func TestASemaphoreNeverLosesAPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := &semaphore.Semaphore{
			Places: rapid.IntRange(1, 4).Draw(r, "places"), Each: rapid.IntRange(0, 3).Draw(r, "each"), Waiting: rapid.IntRange(0, 4).Draw(r, "waiting"),
			Half: rapid.Bool().Draw(r, "half"),
		}
		steps := rapid.SliceOf(rapid.IntRange(0, 14)).Draw(r, "steps")
		synctest.Test(t, func(*testing.T) {
			var held got
			var leave []context.CancelFunc
			ctx, end := context.WithCancel(context.Background())
			for i, step := range steps {
				client := []string{"", "b", "c"}[step%3]
				switch {
				case step < 6:
					ctx, cancel := context.WithCancel(ctx)
					leave = append(leave, cancel)
					held.ask(ctx, s, client)
				case step < 9:
					if client, ok := held.drop(i); ok {
						s.Give(client)
					}
				case step < 12 && len(leave) > 0:
					leave[i%len(leave)]()
				case step >= 12 && s.Try(client):
					held.clients = append(held.clients, client)
				}
				synctest.Wait()
				got, waiting := s.Count()
				if got != len(held.list()) || got > s.Places || waiting > s.Waiting {
					r.Fatalf("%d held of %d, %d wait; known are %v", got, s.Places, waiting, held.list())
				}
				if client := held.passedOver(s); client != "" {
					r.Fatalf("%s waits, though a place is free; held by %v of %d", client, held.list(), s.Places)
				}
				if client := held.tooMany(s); client != "" {
					r.Fatalf("%s holds more than %d of %v", client, s.Each, held.list())
				}
				if full := got == s.Places && waiting == s.Waiting; s.Full() != full {
					r.Fatalf("%d held of %d, %d wait of %d; it is full: %v", got, s.Places, waiting, s.Waiting, !full)
				}
			}
			end()
			synctest.Wait()
			for _, client := range held.list() {
				s.Give(client)
			}
			if got, waiting := s.Count(); got != 0 || waiting != 0 || s.Full() || s.Known() != 0 {
				r.Fatalf("at the end %d are held, %d wait, %d clients are known", got, waiting, s.Known())
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
