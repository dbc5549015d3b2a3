package eventstoretest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"kindred/eventstore"
)

// bulk returns the store as one that appends in bulk, or skips.
func (x *fixture) bulk() eventstore.Bulk {
	x.Helper()
	b, ok := x.Store.(eventstore.Bulk)
	if !ok || x.KeyOf == nil {
		x.Skip("this store does not append in bulk")
	}
	return b
}

// opening is a request for a stream of its own, with the key of its subject.
func (x *fixture) opening(subject string) eventstore.Request {
	e := x.event()
	key := eventstore.Key{Client: e.Client, Subject: subject}
	key.ID, key.Under, key.Wrapped = "key of "+string(e.ID), "root", []byte("wrapped")
	return eventstore.Request{
		Stream: x.stream(), Expected: eventstore.NoStream, Events: []eventstore.Proposed{e}, Keys: []eventstore.Key{key},
	}
}

func (x *fixture) wantKey(r eventstore.Request) {
	x.Helper()
	for _, k := range r.Keys {
		if got := x.KeyOf(x, k.Client, k.Subject); got != k.ID {
			x.Errorf("the key of %s is %q, want %q", k.Subject, got, k.ID)
		}
	}
}

func manyInOrder(x *fixture) {
	store := x.bulk()
	requests := make([]eventstore.Request, eventstore.MaxMany)
	for i := range requests {
		requests[i] = x.opening(fmt.Sprint("subject ", len(requests)-i))
	}
	last := x.start
	for i, result := range store.AppendMany(x.ctx, requests) {
		if result.Err != nil || result.Revision != 0 || result.Position <= last {
			x.Fatalf("request %d: %+v after %q", i, result, last)
		}
		last = result.Position
		x.wantKey(requests[i])
		x.wantEvents(x.readStream(requests[i].Stream, 0, 2), requests[i].Stream, 0, requests[i].Events...)
	}
	for i, result := range store.AppendMany(x.ctx, requests) { // stream and key are there: a repetition all the same
		if result.Err != nil || !result.Already {
			x.Fatalf("request %d, repeated: %+v", i, result)
		}
	}
	for _, result := range store.AppendMany(x.ctx, append(requests, x.opening("one too many"))) {
		if result.Err == nil {
			x.Fatal("too many requests were taken")
		}
	}
}

func manyApart(x *fixture) {
	store := x.bulk()
	taken := x.opening("a")
	if r := store.AppendMany(x.ctx, []eventstore.Request{taken})[0]; r.Err != nil {
		x.Fatal(r.Err)
	}
	moved, keyed, twice, large, grows := x.opening("b"), x.opening("a"), x.opening("c"), x.opening("d"), x.opening("e")
	moved.Stream = taken.Stream
	twice.Keys = append(twice.Keys, keyed.Keys...)
	large.Events[0].Data = make([]byte, eventstore.MaxEventSize+1)
	grows.Stream, grows.Expected, grows.Keys = taken.Stream, 0, nil
	fine := x.opening("f")
	requests := []eventstore.Request{moved, keyed, twice, large, fine}
	var conflict *eventstore.ConflictError
	for i, result := range store.AppendMany(x.ctx, requests) {
		switch i {
		case 0:
			if !errors.As(result.Err, &conflict) || conflict.Actual != 0 {
				x.Errorf("a stream that is there: %+v", result)
			}
		case 1, 2:
			if !errors.Is(result.Err, eventstore.ErrKeyed) {
				x.Errorf("request %d, of a subject that has a key: %+v", i, result)
			}
		case 3:
			if !errors.Is(result.Err, eventstore.ErrTooLarge) {
				x.Errorf("an event that is too large: %+v", result)
			}
		case 4:
			if result.Err != nil {
				x.Errorf("a request beside bad ones: %v", result.Err)
			}
		}
	}
	for _, r := range []eventstore.Request{keyed, twice, large} {
		if n := len(x.readStream(r.Stream, 0, 1)); n != 0 {
			x.Errorf("%s was appended to", r.Stream)
		}
	}
	x.wantKey(taken)
	x.wantKey(fine)
	if got := x.KeyOf(x, moved.Keys[0].Client, "b"); got != "" {
		x.Errorf("a request that conflicts has made the key %q", got)
	}
	if r := store.AppendMany(x.ctx, []eventstore.Request{grows})[0]; r.Err != nil || r.Revision != 1 {
		x.Errorf("a stream that goes on, without a key: %+v", r)
	}
}

// keysBefore makes keys, and then what they seal.
func keysBefore(x *fixture) {
	store := x.bulk()
	taken := x.opening("taken")
	if r := store.AppendMany(x.ctx, []eventstore.Request{taken})[0]; r.Err != nil {
		x.Fatal(r.Err)
	}
	fine, keyed, alone := x.opening("fine"), x.opening("taken"), x.opening("alone")
	for _, step := range []struct {
		keys []eventstore.Key
		want []bool
	}{
		{nil, nil},
		{alone.Keys, []bool{true}},
		{slices.Concat(fine.Keys, keyed.Keys), []bool{true, false}},
	} {
		if made, err := store.MakeKeys(x.ctx, step.keys); err != nil || !slices.Equal(made, step.want) {
			x.Errorf("made %v, %v, want %v", made, err, step.want)
		}
	}
	for _, r := range []eventstore.Request{taken, fine, alone} {
		x.wantKey(r)
	}
	twins := slices.Concat(x.opening("twin").Keys, x.opening("twin").Keys)
	if made, err := store.MakeKeys(x.ctx, twins); err != nil || made[0] == made[1] {
		x.Errorf("of two keys of one subject: made %v, %v", made, err)
	}
	if _, err := store.MakeKeys(x.ctx, slices.Repeat(twins, eventstore.MaxMany)); err == nil {
		x.Error("too many keys were taken")
	}
	fine.Keys = nil
	if r := store.AppendMany(x.ctx, []eventstore.Request{fine})[0]; r.Err != nil {
		x.Error(r.Err)
	}
}

// manyRace lets two make the same keys and streams at once.
func manyRace(x *fixture) {
	stores := x.stores(2)
	x.bulk()
	const subjects = 200
	var mine [2][]eventstore.Request
	for i := range subjects {
		for side := range mine {
			r := x.opening(fmt.Sprint("subject ", i))
			if side == 1 && i%2 == 0 {
				r.Stream = mine[0][i].Stream
			}
			mine[side] = append(mine[side], r)
		}
	}
	var results [2][]eventstore.Result
	var both sync.WaitGroup
	for side := range mine {
		both.Go(func() { results[side] = stores[side].(eventstore.Bulk).AppendMany(x.ctx, mine[side]) })
	}
	both.Wait()
	for i := range subjects {
		won, lost := results[0][i].Err, results[1][i].Err
		if won != nil {
			won, lost = lost, won
		}
		if won != nil || lost == nil {
			x.Fatalf("subject %d: %v and %v, want one success", i, won, lost)
		}
		if _, moved := errors.AsType[*eventstore.ConflictError](lost); !moved && !errors.Is(lost, eventstore.ErrKeyed) {
			x.Fatalf("subject %d: %v", i, lost)
		}
	}
}
