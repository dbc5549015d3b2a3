package eventstoretest

import (
	"errors"

	"kindred/eventstore"
)

func readStream(x *fixture) {
	stream, events := x.stream(), x.events(5)
	x.append(stream, eventstore.NoStream, events[:2]...)
	x.append(x.stream(), eventstore.NoStream, x.events(3)...)
	x.append(stream, 1, events[2:]...)

	x.wantEvents(x.readStream(stream, 0, 10), stream, 0, events...)
	x.wantEvents(x.readStream(stream, 0, 5), stream, 0, events...)
	x.wantEvents(x.readStream(stream, 1, 3), stream, 1, events[1:4]...)
	x.wantEvents(x.readStream(stream, 4, 3), stream, 4, events[4])
	x.wantEvents(x.readStream(stream, 5, 3), stream, 5)
	x.wantEvents(x.readStream(x.stream(), 0, 3), stream, 0)

	wantBack := func(got []eventstore.Record, revisions ...eventstore.Revision) {
		x.Helper()
		if len(got) != len(revisions) {
			x.Fatalf("backwards: got %d records, want %d", len(got), len(revisions))
		}
		for i, r := range revisions {
			x.wantEvents(got[i:i+1], stream, r, events[r])
		}
	}
	wantBack(x.readBack(stream, eventstore.End, 10), 4, 3, 2, 1, 0)
	wantBack(x.readBack(stream, eventstore.End, 1), 4)
	wantBack(x.readBack(stream, 3, 2), 3, 2)
	wantBack(x.readBack(stream, 0, 2), 0)
	wantBack(x.readBack(x.stream(), eventstore.End, 2))

	if store, ok := x.Store.(eventstore.EndsReader); ok {
		short, few := x.stream(), x.events(2)
		wantEnds := func(stream eventstore.Stream, ends ...eventstore.Proposed) {
			x.Helper()
			got, err := store.ReadEnds(x.ctx, stream)
			if err != nil || len(got) != len(ends) {
				x.Fatalf("ends: got %d records, want %d: %v", len(got), len(ends), err)
			}
			for i, r := range got {
				x.wantEvents(got[i:i+1], stream, r.Revision, ends[i])
			}
		}
		wantEnds(short)
		x.append(short, eventstore.NoStream, few[0])
		wantEnds(short, few[0])
		x.append(short, 0, few[1])
		wantEnds(short, few...)
		wantEnds(stream, events[0], events[4])
	}
}

func readAll(x *fixture) {
	streams := []eventstore.Stream{x.stream(), x.stream(), x.stream()}
	var order []eventstore.Proposed
	for round := range 4 {
		for _, s := range streams {
			e := x.event()
			x.append(s, eventstore.Revision(round-1), e)
			order = append(order, e)
		}
	}
	whole := x.readAll(x.start, 100)
	if len(whole) != len(order) {
		x.Fatalf("the log has %d events, want %d", len(whole), len(order))
	}
	for i, r := range whole {
		x.wantEvents(whole[i:i+1], streams[i%3], eventstore.Revision(i/3), order[i])
		if i > 0 && r.Position <= whole[i-1].Position {
			x.Errorf("position %q does not come after %q", r.Position, whole[i-1].Position)
		}
	}
	if head := x.head(); head != whole[len(whole)-1].Position {
		x.Errorf("head is %q, the last event is at %q", head, whole[len(whole)-1].Position)
	}
	for _, page := range []int{1, 5, len(order)} {
		x.sameRecords("pages of another size", whole, x.readAll(x.start, page))
	}
	x.sameRecords("the log after its fifth event", whole[5:], x.readAll(whole[4].Position, 100))
}

func at(x *fixture) {
	x.append(x.stream(), eventstore.NoStream, x.events(3)...)
	for _, want := range x.readAll(x.start, 10) {
		got, err := x.Store.At(x.ctx, want.Position)
		if err != nil {
			x.Fatalf("at %q: %v", want.Position, err)
		}
		x.sameRecords("an event by its position", []eventstore.Record{want}, []eventstore.Record{got})
	}
	if _, err := x.Store.At(x.ctx, eventstore.Start); !errors.Is(err, eventstore.ErrNotFound) {
		x.Errorf("at Start: got %v, want ErrNotFound", err)
	}
	if x.Shared {
		return
	}
	head := x.head()
	shorter := x.open(x)
	if _, err := shorter.Store.Append(x.ctx, x.stream(), eventstore.NoStream, x.events(1)); err != nil {
		x.Fatal(err)
	}
	if _, err := shorter.Store.At(x.ctx, head); !errors.Is(err, eventstore.ErrNotFound) {
		x.Errorf("at a position beyond the end: got %v, want ErrNotFound", err)
	}
	if records, err := shorter.Store.ReadAll(x.ctx, head, 10); err != nil || len(records) != 0 {
		x.Errorf("reading beyond the end: got %d records, %v", len(records), err)
	}
}

func epoch(x *fixture) {
	first, err := x.Store.Epoch(x.ctx)
	if err != nil || first == "" {
		x.Fatalf("epoch: %q, %v", first, err)
	}
	x.append(x.stream(), eventstore.NoStream, x.event())
	for _, store := range x.stores(3) {
		again, err := store.Epoch(x.ctx)
		if err != nil || again != first {
			x.Errorf("epoch on another store: %q, %v, want %q", again, err, first)
		}
	}
	if n := len(x.readAll(x.start, 10)); n != 1 {
		x.Errorf("the log has %d events, want the one that was appended", n)
	}
	if x.Shared {
		return
	}
	other, err := x.open(x).Store.Epoch(x.ctx)
	if err != nil || other == first {
		x.Errorf("another log has epoch %q, %v; this one has %q", other, err, first)
	}
}
