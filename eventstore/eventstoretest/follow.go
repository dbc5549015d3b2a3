package eventstoretest

import (
	"context"
	"errors"
	"time"

	"kindred/eventstore"
	"kindred/testkit"
)

// quiet is how long a subscription must have nothing to say to count as silent.
const quiet = 100 * time.Millisecond

// wantSilence fails when a subscription has anything to say.
func (x *fixture) wantSilence(s eventstore.Subscription) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, quiet)
	defer cancel()
	if batch, err := s.Next(ctx, 10); err == nil {
		x.Fatalf("a subscription that had caught up said %+v", batch)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		x.Fatalf("next: got %v, want the context's error", err)
	}
}

func caughtUp(x *fixture) {
	s := x.subscribe(x.Store, x.start)
	if got := x.catchUp(s, 10); len(got) != 0 {
		x.Fatalf("%d records came from nowhere", len(got))
	}
	x.wantSilence(s)

	stream, events := x.stream(), x.events(7)
	x.append(stream, eventstore.NoStream, events[:5]...)
	got := x.catchUp(s, 2) // several batches
	for len(got) < 5 {     // a follower may catch up amid what is being told
		got = append(got, x.catchUp(s, 2)...)
	}
	x.wantEvents(got, stream, 0, events[:5]...)
	x.wantSilence(s)

	x.append(stream, 4, events[5])
	x.wantEvents(x.await(s, 1), stream, 5, events[5])
	x.append(stream, 5, events[6])
	x.wantEvents(x.await(s, 1), stream, 6, events[6])
	x.wantSilence(s)
}

// newest follows, at the end of the log, what several write meanwhile: a batch with room for more has
// all that there was to tell, and says so.
func newest(x *fixture) {
	const writers, each, room = 4, 40, 1000
	stores := x.stores(2)
	s := x.subscribe(x.Store, x.start)
	x.catchUp(s, room)
	written := make(chan error, writers)
	for i := range writers {
		stream, events := x.stream(), x.events(each)
		go func() {
			var err error
			for n := 0; n < each && err == nil; n++ {
				_, err = stores[i%2].Append(x.ctx, stream, eventstore.Revision(n-1), events[n:n+1])
			}
			written <- err
		}()
	}
	for seen := 0; seen < writers*each; {
		batch, err := s.Next(x.ctx, room)
		if err != nil {
			x.Fatalf("next: %v", err)
		}
		if seen += len(batch.Records); !batch.Newest {
			x.Errorf("%d records of at most %d are not said to be the newest, with %d seen", len(batch.Records), room, seen)
		}
	}
	for range writers {
		if err := <-written; err != nil {
			x.Fatalf("append: %v", err)
		}
	}
}

func resumes(x *fixture) {
	stream, events := x.stream(), x.events(6)
	x.append(stream, eventstore.NoStream, events[:4]...)
	all := x.readAll(x.start, 10)
	for i, r := range all {
		s := x.subscribe(x.Store, r.Position)
		x.wantEvents(x.catchUp(s, 3), stream, eventstore.Revision(i+1), events[i+1:4]...)
	}
	s := x.subscribe(x.Store, all[3].Position)
	x.catchUp(s, 10)
	x.append(stream, 3, events[4:]...)
	x.wantEvents(x.await(s, 2), stream, 4, events[4:]...)
}

func seesOthers(x *fixture) {
	stores := x.stores(2)
	s := x.subscribe(stores[1], x.start)
	x.catchUp(s, 10)
	stream, events := x.stream(), x.events(20)
	for i, e := range events {
		x.append(stream, eventstore.Revision(i-1), e)
		x.wantEvents(x.await(s, 1), stream, eventstore.Revision(i), e)
	}
}

func subscriptionEnds(x *fixture) {
	s := x.subscribe(x.Store, x.start)
	x.catchUp(s, 10)
	ctx, cancel := context.WithCancel(x.ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Next(ctx, 10)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		x.Errorf("next: got %v, want context.Canceled", err)
	}
	e, stream := x.event(), x.stream()
	x.append(stream, eventstore.NoStream, e)
	x.wantEvents(x.await(s, 1), stream, 0, e) // giving up one wait loses nothing

	short := x.subscribe(x.Store, x.start)
	if err := short.Close(); err != nil { // closed a second time by the cleanup
		x.Errorf("close: %v", err)
	}
}

// impatient follows with waits that end at any moment, also while a batch is on
// its way.
func impatient(x *fixture) {
	const events = 60
	pick := testkit.Random(x)
	s := x.subscribe(x.Store, x.start)
	written := make(chan error, 1)
	stream, all := x.stream(), x.events(events)
	go func() {
		for i := range all {
			if _, err := x.Store.Append(x.ctx, stream, eventstore.Revision(i-1), all[i:i+1]); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	var seen []eventstore.Record
	for len(seen) < events && x.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(x.ctx, time.Duration(pick.IntN(4000))*time.Microsecond)
		batch, err := s.Next(ctx, 1+pick.IntN(3))
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			x.Fatalf("next: %v", err)
		}
		seen = append(seen, batch.Records...)
	}
	if err := <-written; err != nil {
		x.Fatal(err)
	}
	x.wantEvents(seen, stream, 0, all...)
}
