package eventstoretest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

const (
	writers     = 12
	appendsEach = 24
	retryPause  = 10 * time.Millisecond
	cutPause    = 50 * time.Millisecond
	cuts        = 60 // then there is peace, so that a slow machine gets somewhere
)

// attempt is an append that a writer made, and what came of it.
type attempt struct {
	stream   eventstore.Stream
	expected eventstore.Revision
	events   []eventstore.Proposed
	appended eventstore.Appended
	err      error
}

// givingUp lets half of many callers go away while they wait.
func givingUp(x *fixture) {
	const callers = 64
	var group sync.WaitGroup
	attempts := make([]attempt, callers)
	for i := range attempts {
		a := &attempts[i]
		*a = attempt{stream: x.stream(), expected: eventstore.NoStream, events: x.events(3)}
		ctx, cancel := context.WithCancel(x.ctx)
		group.Go(func() {
			a.appended, a.err = x.Store.Append(ctx, a.stream, a.expected, a.events)
		})
		if i%2 == 0 {
			group.Go(cancel)
		} else {
			x.Cleanup(cancel)
		}
	}
	group.Wait()
	for i, a := range attempts {
		gaveUp := i%2 == 0
		switch {
		case a.err == nil:
			x.wantEvents(x.readStream(a.stream, 0, 10), a.stream, 0, a.events...)
		case !gaveUp:
			x.Errorf("a caller that stayed failed: %v", a.err)
		case !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, eventstore.ErrUnavailable):
			x.Errorf("a caller that gave up: %v", a.err)
		default: // unknown; saying it again settles it
			x.append(a.stream, a.expected, a.events...)
			x.wantEvents(x.readStream(a.stream, 0, 10), a.stream, 0, a.events...)
		}
	}
	gone, cancel := context.WithCancel(x.ctx)
	cancel()
	stream := x.stream()
	if _, err := x.Store.Append(gone, stream, eventstore.NoStream, x.events(1)); !errors.Is(err, context.Canceled) {
		x.Errorf("an append of a caller who had left: got %v, want context.Canceled", err)
	}
	if n := len(x.readStream(stream, 0, 10)); n != 0 {
		x.Errorf("a caller who had left appended %d events", n)
	}
}

// givingUpAmid lets callers go away, and connections break, at any moment of a
// long append, which must not leave a part of it.
func givingUpAmid(x *fixture) {
	const callers, rounds, events = 8, 30, 100
	began := time.Now()
	x.append(x.stream(), eventstore.NoStream, x.events(events)...)
	takes := time.Since(began)
	pick := testkit.Random(x)
	attempts := make([]attempt, callers*rounds)
	var group sync.WaitGroup
	for i := range attempts {
		attempts[i].stream = x.stream()
	}
	for c := range callers {
		maker, pick := newMaker(), rand.New(rand.NewPCG(pick.Uint64(), 0))
		group.Go(func() {
			for i := range rounds {
				a := &attempts[c*rounds+i]
				a.expected, a.events = eventstore.NoStream, maker.events(events)
				ctx, cancel := context.WithTimeout(x.ctx, time.Duration(pick.Int64N(int64(4*takes))))
				a.appended, a.err = x.Store.Append(ctx, a.stream, a.expected, a.events)
				cancel()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	for cutting := x.Cut != nil; cutting; {
		x.Cut(x)
		select {
		case <-done:
			cutting = false
		case <-time.After(takes):
		}
	}
	<-done
	for _, a := range attempts {
		if n := len(x.readStream(a.stream, 0, 2*events)); n != events && (n != 0 || a.err == nil) {
			x.Errorf("of %d events %d were appended (%v)", events, n, a.err)
		}
	}
}

func race(x *fixture) {
	pick := testkit.Random(x)
	stores := x.stores(3)
	finish := x.follow(stores...)
	attempts := x.write(pick, stores)
	seen, last := finish()
	x.checkRace(append(attempts, last), seen)
}

func raceWithCuts(x *fixture) {
	if x.Cut == nil {
		x.Skip("this store has no connections")
	}
	pick := testkit.Random(x)
	stores := x.stores(3)
	finish := x.follow(stores...)
	attempts := x.writeWhile(pick, stores, func(done <-chan struct{}) {
		tick := time.NewTicker(cutPause)
		defer tick.Stop()
		for range cuts {
			x.Cut(x)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	seen, last := finish()
	x.checkRace(append(attempts, last), seen)
}

// writeWhile writes while disturb is at work; its channel is closed when the
// writers are done.
func (x *fixture) writeWhile(pick *rand.Rand, stores []eventstore.Store, disturb func(done <-chan struct{})) []attempt {
	done := make(chan struct{})
	var attempts []attempt
	go func() {
		defer close(done)
		attempts = x.write(pick, stores)
	}()
	disturb(done)
	<-done
	return attempts
}

// write lets many writers append to few streams: at the revision they believe
// in, at wrong ones, again, and giving up at any moment.
func (x *fixture) write(pick *rand.Rand, stores []eventstore.Store) []attempt {
	streams := make([]eventstore.Stream, 8)
	ends := make([]atomic.Int64, len(streams)) // the highest revision that was told
	for i := range streams {
		streams[i] = x.stream()
		ends[i].Store(int64(eventstore.NoStream))
	}
	each := make([][]attempt, writers)
	var group sync.WaitGroup
	for w := range each {
		store, maker := stores[w%len(stores)], newMaker()
		pick := rand.New(rand.NewPCG(pick.Uint64(), 0))
		group.Go(func() {
			for range appendsEach {
				s := pick.IntN(len(streams))
				a := attempt{
					stream:   streams[s],
					expected: eventstore.Revision(ends[s].Load()),
					events:   maker.events(1 + pick.IntN(4)),
				}
				switch pick.IntN(10) {
				case 0:
					a.expected += eventstore.Revision(pick.IntN(5)) - 2
				case 1, 2: // gives up at once, or amid it
					ctx, cancel := context.WithTimeout(x.ctx, time.Duration(pick.IntN(3000))*time.Microsecond)
					_, _ = store.Append(ctx, a.stream, a.expected, a.events) // settled below
					cancel()
				case 3: // says it twice
					a.resolve(x.ctx, store)
				}
				a.resolve(x.ctx, store)
				if conflict, is := errors.AsType[*eventstore.ConflictError](a.err); is {
					raise(&ends[s], conflict.Actual)
				} else if a.err == nil {
					raise(&ends[s], a.appended.Revision)
				}
				each[w] = append(each[w], a)
			}
		})
	}
	group.Wait()
	return slices.Concat(each...)
}

// resolve appends until the outcome is known.
func (a *attempt) resolve(ctx context.Context, store eventstore.Store) {
	for {
		a.appended, a.err = store.Append(ctx, a.stream, a.expected, a.events)
		if !a.unresolved() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

// unresolved: it is not known whether the append took place.
func (a *attempt) unresolved() bool {
	return errors.Is(a.err, eventstore.ErrUnavailable) ||
		errors.Is(a.err, context.DeadlineExceeded) || errors.Is(a.err, context.Canceled)
}

func raise(end *atomic.Int64, to eventstore.Revision) {
	for {
		seen := end.Load()
		if seen >= int64(to) || end.CompareAndSwap(seen, int64(to)) {
			return
		}
	}
}

// follow starts a follower on each store, with batches of various sizes. The
// function that it returns appends a last event, waits until all followers have
// seen it, and returns what each of them saw, and the last append.
func (x *fixture) follow(stores ...eventstore.Store) func() ([][]eventstore.Record, attempt) {
	last := attempt{stream: x.stream(), expected: eventstore.NoStream, events: x.events(1)}
	seen, failed := make([][]eventstore.Record, len(stores)), make([]error, len(stores))
	var group sync.WaitGroup
	for i, store := range stores {
		s := x.subscribe(store, x.start)
		group.Go(func() {
			for {
				batch, err := s.Next(x.ctx, 1+i*7)
				if err != nil {
					failed[i] = err
					return
				}
				seen[i] = append(seen[i], batch.Records...)
				if n := len(seen[i]); n > 0 && seen[i][n-1].ID == last.events[0].ID {
					return
				}
			}
		})
	}
	return func() ([][]eventstore.Record, attempt) {
		x.Helper()
		last.resolve(x.ctx, x.Store)
		group.Wait()
		if err := errors.Join(failed...); err != nil {
			x.Fatalf("a follower failed: %v", err)
		}
		return seen, last
	}
}

// checkRace compares what followers saw with the log, and the log with what
// the writers were told.
func (x *fixture) checkRace(attempts []attempt, followers [][]eventstore.Record) {
	all := x.readAll(x.start, 97)
	for _, seen := range followers {
		x.sameRecords("what a follower saw, beside the log", all, seen)
	}
	next := map[eventstore.Stream]eventstore.Revision{}
	where := map[id.Event]eventstore.Record{}
	for i, r := range all {
		if i > 0 && r.Position <= all[i-1].Position {
			x.Fatalf("position %q comes after %q", r.Position, all[i-1].Position)
		}
		if r.Revision != next[r.Stream] {
			x.Fatalf("revision %d of %s comes where %d should", r.Revision, r.Stream, next[r.Stream])
		}
		next[r.Stream]++
		if first, twice := where[r.ID]; twice {
			x.Fatalf("one event stands at %q and at %q", first.Position, r.Position)
		}
		where[r.ID] = r
	}
	landed := 0
	for _, a := range attempts {
		var conflict *eventstore.ConflictError
		switch {
		case a.err == nil:
			landed += len(a.events)
			for i, e := range a.events {
				r, found := where[e.ID]
				if want := a.expected + 1 + eventstore.Revision(i); !found || r.Stream != a.stream || r.Revision != want {
					x.Fatalf("an acknowledged event is at %+v (found: %t), not at revision %d of %s", r, found, want, a.stream)
				}
			}
			if last := where[a.events[len(a.events)-1].ID].Position; last != a.appended.Position {
				x.Fatalf("an append was told to end at %q and ends at %q", a.appended.Position, last)
			}
		case errors.As(a.err, &conflict):
			for _, e := range a.events {
				if r, found := where[e.ID]; found {
					x.Fatalf("an event that was refused is at %q", r.Position)
				}
			}
		default:
			x.Fatalf("an append failed: %v", a.err)
		}
	}
	if landed != len(all) {
		x.Fatalf("%d events were acknowledged, the log has %d", landed, len(all))
	}
	if landed == 0 {
		x.Fatal("nothing was appended")
	}
	x.Logf("%d appends, %d events", len(attempts), landed)
}

func appendOverCut(x *fixture) {
	if x.Cut == nil {
		x.Skip("this store has no connections")
	}
	s := x.subscribe(x.Store, x.start)
	x.catchUp(s, 10)
	stream := x.stream()
	for i := range 8 {
		a := attempt{stream: stream, expected: eventstore.Revision(i - 1), events: x.events(1)}
		if i%2 == 0 {
			x.Cut(x) // before
			a.resolve(x.ctx, x.Store)
		} else { // amid
			var group sync.WaitGroup
			group.Go(func() { a.resolve(x.ctx, x.Store) })
			x.Cut(x)
			group.Wait()
		}
		if a.err != nil || a.appended.Revision != eventstore.Revision(i) {
			x.Fatalf("append %d: %+v, %v", i, a.appended, a.err)
		}
		x.wantEvents(x.await(s, 1), stream, eventstore.Revision(i), a.events...)
	}
	if n := len(x.readStream(stream, 0, 100)); n != 8 {
		x.Errorf("the stream has %d events, want 8", n)
	}
}

func restart(x *fixture) {
	if x.Restart == nil {
		x.Skip("this store has no server that could be killed")
	}
	before, err := x.Store.Epoch(x.ctx)
	if err != nil {
		x.Fatal(err)
	}
	pick := testkit.Random(x)
	stores := x.stores(2)
	finish := x.follow(stores...)
	first := x.subscribe(x.Store, x.start)
	attempts := x.writeWhile(pick, stores, func(<-chan struct{}) {
		x.await(first, 2*appendsEach) // amid it
		x.Restart(x)
	})
	seen, last := finish()
	x.checkRace(append(attempts, last), seen)
	if after, err := x.Store.Epoch(x.ctx); err != nil || after != before {
		x.Errorf("the epoch is %q, %v after the restart, and was %q", after, err, before)
	}
}
