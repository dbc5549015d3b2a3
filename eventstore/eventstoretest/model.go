package eventstoretest

import (
	"errors"
	"slices"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

const modelSteps = 250

// model appends and reads at random, and compares every answer with what a
// map of slices says.
func model(x *fixture) {
	pick := testkit.Random(x)
	stores := x.stores(2)
	streams := []eventstore.Stream{x.stream(), x.stream(), x.stream(), x.stream()}
	held := map[eventstore.Stream][]eventstore.Proposed{}
	var log []id.Event

	for step := range modelSteps {
		store, stream := stores[pick.IntN(len(stores))], streams[pick.IntN(len(streams))]
		have := held[stream]
		actual := eventstore.Revision(len(have) - 1)
		// From two before the beginning to two after the end, mostly the end itself.
		expected := actual
		if pick.IntN(3) == 0 {
			expected = eventstore.Revision(pick.IntN(len(have)+5)) - 3
		}
		// Events that stand there already, events that are new, or both.
		var events []eventstore.Proposed
		if from := int(expected) + 1; pick.IntN(2) == 0 && from >= 0 && from < len(have) {
			events = append(events, have[from:from+1+pick.IntN(len(have)-from)]...)
		}
		if len(events) == 0 || pick.IntN(4) == 0 {
			events = append(events, x.events(1+pick.IntN(4))...)
		}

		appended, err := store.Append(x.ctx, stream, expected, events)
		var conflict *eventstore.ConflictError
		switch last := expected + eventstore.Revision(len(events)); {
		case expected == actual:
			if err != nil || appended.Revision != last || appended.Already {
				x.Fatalf("step %d: append to the end: %+v, %v", step, appended, err)
			}
			held[stream] = append(have, events...)
			for _, e := range events {
				log = append(log, e.ID)
			}
		case expected >= eventstore.NoStream && last <= actual && sameIDs(have[expected+1:last+1], events):
			if err != nil || appended.Revision != last || !appended.Already {
				x.Fatalf("step %d: repetition: %+v, %v", step, appended, err)
			}
		case !errors.As(err, &conflict) || conflict.Actual != actual:
			x.Fatalf("step %d: append after %d to a stream at %d: %+v, %v", step, expected, actual, appended, err)
		}
	}

	var order []id.Event
	for _, r := range x.readAll(x.start, 50) {
		order = append(order, r.ID)
	}
	if diff := cmp.Diff(log, order); diff != "" {
		x.Errorf("the log (-want +got):\n%s", diff)
	}
	for stream, events := range held {
		x.wantEvents(x.readStream(stream, 0, len(events)+1), stream, 0, events...)
	}
}

func sameIDs(a, b []eventstore.Proposed) bool {
	return slices.EqualFunc(a, b, func(x, y eventstore.Proposed) bool { return x.ID == y.ID })
}
