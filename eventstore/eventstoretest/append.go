package eventstoretest

import (
	"errors"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"

	"kindred/eventstore"
)

func emptyLog(x *fixture) {
	if x.Shared {
		x.Skip("the log may hold events of earlier tests")
	}
	if x.start != eventstore.Start {
		x.Errorf("head is %q, want Start", x.start)
	}
	if all := x.readAll(eventstore.Start, 10); len(all) != 0 {
		x.Errorf("the log has %d events, want none", len(all))
	}
}

func appendTells(x *fixture) {
	stream := x.stream()
	first := x.append(stream, eventstore.NoStream, x.events(3)...)
	second := x.append(stream, 2, x.event())
	all := x.readAll(x.start, 10)
	if len(all) != 4 {
		x.Fatalf("the log has %d events, want 4", len(all))
	}
	want := eventstore.Appended{Position: all[2].Position, Revision: 2}
	if diff := cmp.Diff(want, first); diff != "" {
		x.Errorf("the first append (-want +got):\n%s", diff)
	}
	want = eventstore.Appended{Position: all[3].Position, Revision: 3}
	if diff := cmp.Diff(want, second); diff != "" {
		x.Errorf("the second append (-want +got):\n%s", diff)
	}
}

func conflicts(x *fixture) {
	stream, events := x.stream(), x.events(2)
	x.wantConflict(stream, 0, eventstore.NoStream, x.event())
	x.append(stream, eventstore.NoStream, events...)
	for _, expected := range []eventstore.Revision{-3, -2, eventstore.NoStream, 0, 2, 3, eventstore.End} {
		x.wantConflict(stream, expected, 1, x.event())
	}
	x.wantEvents(x.readStream(stream, 0, 10), stream, 0, events...)
}

func repeated(x *fixture) {
	stream, first, second := x.stream(), x.events(3), x.events(2)
	one := x.append(stream, eventstore.NoStream, first...)
	two := x.append(stream, 2, second...)
	x.append(x.stream(), eventstore.NoStream, x.event())
	x.append(stream, 4, x.event())

	one.Already, two.Already = true, true
	if diff := cmp.Diff(one, x.append(stream, eventstore.NoStream, first...)); diff != "" {
		x.Errorf("repeating the first append (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(two, x.append(stream, 2, second...)); diff != "" {
		x.Errorf("repeating the second append (-want +got):\n%s", diff)
	}
	if n := len(x.readStream(stream, 0, 100)); n != 6 {
		x.Errorf("the stream has %d events, want 6", n)
	}
}

func overlapping(x *fixture) {
	stream, e := x.stream(), x.events(6)
	x.append(stream, eventstore.NoStream, e[:4]...)
	x.wantConflict(stream, eventstore.NoStream, 3, e[1:4]...)      // not from the first on
	x.wantConflict(stream, eventstore.NoStream, 3, e[0], e[2])     // one left out
	x.wantConflict(stream, eventstore.NoStream, 3, e[1], e[0])     // another order
	x.wantConflict(stream, 1, 3, e[2], e[3], e[4])                 // one too many
	x.wantConflict(stream, eventstore.NoStream, 3, e[0], e[4])     // another end
	x.wantConflict(stream, 0, 3, e[0], e[1])                       // elsewhere
	x.wantConflict(stream, eventstore.NoStream, 3, e[:5]...)       // beyond the end
	x.wantConflict(x.stream(), 0, eventstore.NoStream, e[0], e[1]) // of another stream

	part := x.append(stream, eventstore.NoStream, e[:2]...) // the beginning alone is a repetition
	if !part.Already || part.Revision != 1 || part.Position != x.readStream(stream, 1, 1)[0].Position {
		x.Errorf("repeating a part ended at %+v", part)
	}
	x.wantEvents(x.readStream(stream, 0, 100), stream, 0, e[:4]...)
}

func repeatedAtOnce(x *fixture) {
	stores := x.stores(2)
	for range 10 {
		stream, events := x.stream(), x.events(2)
		var group sync.WaitGroup
		fresh := make(chan bool, 8)
		for i := range cap(fresh) {
			group.Go(func() {
				appended, err := stores[i%len(stores)].Append(x.ctx, stream, eventstore.NoStream, events)
				if err != nil || appended.Revision != 1 {
					x.Errorf("append: %+v, %v", appended, err)
				}
				fresh <- !appended.Already
			})
		}
		group.Wait()
		close(fresh)
		first := 0
		for f := range fresh {
			if f {
				first++
			}
		}
		// A store that had to repeat an append by itself may call even the first one repeated.
		if first > 1 {
			x.Errorf("%d appends were the first", first)
		}
		x.wantEvents(x.readStream(stream, 0, 10), stream, 0, events...)
	}
}

func untouched(x *fixture) {
	stream := x.stream()
	var events []eventstore.Proposed
	for _, data := range []string{
		`{ "b" : 1 ,` + "\n\t" + `"a":2}`,
		`{"a":1,"a":2}`, // twice the same name
		`{"big":123456789012345678901234567890,"float":1.000000000000000000001e400,"zero":-0.0}`,
		`{"text":"Grüße, 世界 \u0041\u0000 \ud83d\ude00 😀 \/ <b>&amp;</b>"}`,
		`"` + "\u2028\u2029\u00a0" + `"`,
		`[]`, `null`, ` {} `,
	} {
		e := x.event()
		e.Data = []byte(data)
		meta := string(e.Meta)
		e.Meta = []byte(" {\n \"note\" : \"Ünïcode 😀\" , \"big\":98765432109876543210 ,\t" + meta[1:] + "\n")
		events = append(events, e)
	}
	x.append(stream, eventstore.NoStream, events...)
	x.wantEvents(x.readStream(stream, 0, 100), stream, 0, events...)
	x.wantEvents(x.readAll(x.start, 100), stream, 0, events...)
	x.wantEvents(x.catchUp(x.subscribe(x.Store, x.start), 100), stream, 0, events...)

	e := x.event()
	e.Client = ""
	e.Meta = []byte(strings.Replace(string(e.Meta), `"client":"`+string(x.client)+`",`, "", 1))
	nobody := "claim-of-nobody-" + x.stream()
	x.append(nobody, eventstore.NoStream, e)
	all := x.readAll(x.start, 100)
	x.wantEvents(all[len(all)-1:], nobody, 0, e)
}

func bounds(x *fixture) {
	stream := x.stream()
	largest := x.sized(eventstore.MaxEventSize)
	x.append(stream, eventstore.NoStream, largest)
	x.wantEvents(x.readStream(stream, 0, 2), stream, 0, largest)

	for name, events := range map[string][]eventstore.Proposed{
		"an event over its bound":    {x.sized(eventstore.MaxEventSize + 1)},
		"an append over its bound":   {x.sized(eventstore.MaxEventSize), x.sized(eventstore.MaxAppendSize - eventstore.MaxEventSize + 1)},
		"a neighbour over its bound": {x.event(), x.sized(eventstore.MaxEventSize + 1)},
	} {
		if _, err := x.Store.Append(x.ctx, stream, 0, events); !errors.Is(err, eventstore.ErrTooLarge) {
			x.Errorf("%s: got %v, want ErrTooLarge", name, err)
		}
	}
	for _, n := range []int{0, eventstore.MaxAppend + 1} {
		if _, err := x.Store.Append(x.ctx, stream, 0, x.events(n)); err == nil {
			x.Errorf("an append of %d events was taken", n)
		}
	}
	full := []eventstore.Proposed{x.sized(eventstore.MaxEventSize), x.sized(eventstore.MaxAppendSize - eventstore.MaxEventSize)}
	x.append(stream, 0, full...)
	x.wantEvents(x.readStream(stream, 0, 10), stream, 0, largest, full[0], full[1])
}

func fiveHundred(x *fixture) {
	stream, events := x.stream(), x.events(eventstore.MaxAppend)
	appended := x.append(stream, eventstore.NoStream, events...)
	all := x.readAll(x.start, 1000)
	x.wantEvents(all, stream, 0, events...)
	if last := all[len(all)-1]; appended.Position != last.Position || appended.Revision != last.Revision {
		x.Errorf("the append ended at %+v, the last event is at %s, revision %d", appended, last.Position, last.Revision)
	}
	x.wantConflict(stream, 0, 499, x.event())
	if again := x.append(stream, eventstore.NoStream, events...); !again.Already || again.Position != appended.Position {
		x.Errorf("repeated, it ended at %+v, want %+v again", again, appended)
	}
}
