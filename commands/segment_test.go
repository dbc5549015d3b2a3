package commands_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// Before the rule stand others' events, and behind it a snapshot or two.
func TestTheRuleThatASegmentHasChangesNothing(t *testing.T) {
	for _, behind := range []int{0, 1, 127, 128, 300} {
		t.Run(fmt.Sprint(behind), func(t *testing.T) {
			w := newFixture(t)
			_, call := w.client(t, "acme@example.com")
			adults, other := "traits.age > 30", "traits.age > 18"
			define := func(rule string) id.Segment {
				t.Helper()
				made := testkit.Must(w.DefineSegment(t.Context(), call, "S", rule, ""))(t)
				return made.ID
			}
			change := func(segment id.Segment, name, rule *string) int {
				t.Helper()
				changed := testkit.Must(w.ChangeSegment(t.Context(), call, segment, name, rule))(t)
				return len(changed.Outcome.Recorded)
			}
			beside := define(other)
			segment := define(adults)
			for n := range behind {
				change(beside, new(fmt.Sprint("T", n)), nil)
			}
			for i, step := range []struct {
				name, rule *string
				recorded   int
			}{
				{nil, &adults, 0},
				{new("S"), &adults, 0},
				{new("Adults"), &adults, 1},
				{nil, &other, 1},
				{nil, &other, 0},
				{nil, &adults, 1},
			} {
				if n := change(segment, step.name, step.rule); n != step.recorded {
					t.Errorf("step %d: %d events are recorded, not %d", i, n, step.recorded)
				}
			}
			if restored, err := w.RestoreSegment(t.Context(), call, segment, adults); err != nil || len(restored.Outcome.Recorded) != 1 {
				t.Errorf("restored: %+v, %v", restored.Outcome.Recorded, err)
			}
		})
	}
}

// The rule that a segment has may come again, and is restored, also where it asks for a layer that was
// retired meanwhile: nobody grants it, as in segments that were never blocked.
func TestARuleStandsThoughALayerThatItAsksForIsRetired(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "acme@example.com")
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "Offers", []string{"plan"}, ""))(t)
	rule := fmt.Sprintf(`traits.plan == "pro" || granted(%q)`, layer.ID)
	made := testkit.Must(w.DefineSegment(t.Context(), call, "S", rule, ""))(t)
	if _, err := w.RetireConsentLayer(t.Context(), call, layer.ID); err != nil {
		t.Fatal(err)
	}
	if again, err := w.ChangeSegment(t.Context(), call, made.ID, nil, &rule); err != nil || len(again.Outcome.Recorded) != 0 {
		t.Errorf("the same rule: %+v, %v", again.Outcome.Recorded, err)
	}
	if restored, err := w.RestoreSegment(t.Context(), call, made.ID, rule); err != nil || len(restored.Outcome.Recorded) != 1 {
		t.Errorf("restored: %+v, %v", restored.Outcome.Recorded, err)
	}
}

// All segments stand in one stream, and who changes one of them need not have seen the others.
func TestASegmentIsChangedByWhoHasSeenItsLastChange(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "acme@example.com")
	made, err1 := w.DefineSegment(t.Context(), call, "S", "traits.age > 30", "")
	_, err2 := w.DefineSegment(t.Context(), call, "T", "traits.age > 18", "")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	change := func(name string, seen eventstore.Revision) (eventstore.Revision, error) {
		call := call
		call.IfMatch = &seen
		changed, err := w.ChangeSegment(t.Context(), call, made.ID, &name, nil)
		return changed.Changed, err
	}
	second, err := change("Adults", made.Changed)
	if err != nil || second == made.Changed {
		t.Fatal(second, err)
	}
	if _, err := change("Seniors", made.Changed); !fault.Of(err, fault.Stale) {
		t.Errorf("by who has not seen the last change: %v", err)
	}
	if same, err := change("Adults", second); err != nil || same != second {
		t.Errorf("a change to the same is answered with revision %d, %v, and the last one was %d", same, err, second)
	}
}

// reading is a store that does something once it has read so many times.
type reading struct {
	eventstore.Store
	left int
	then func()
}

func (r *reading) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	records, err := r.Store.ReadBack(ctx, stream, from, limit)
	if r.left--; r.left == 0 {
		r.then()
	}
	return records, err
}

// atEachRead prepares a client, and has what another process does come after each read of what one does: one fresh client for
// each, until the other comes too late and nothing is in the way.
func atEachRead(t *testing.T, prepare func(*fixture, commands.Call) (does func(*commands.Commands) error, other func() error), allowed func(error) bool) {
	t.Helper()
	for reads := 1; ; reads++ {
		w := newFixture(t)
		_, call := w.client(t, "acme@example.com")
		does, other := prepare(w, call)
		came := false
		err := does(w.process(&reading{w.store, reads, func() {
			came = true
			if err := other(); err != nil {
				t.Error(err)
			}
		}}, w.keys))
		if !came {
			if err != nil || reads < 3 {
				t.Errorf("after %d reads: %v", reads-1, err)
			}
			return
		}
		if !allowed(err) {
			t.Errorf("the other came after %d reads: %v", reads, err)
		}
	}
}

// Another process retires a segment at each moment of a change of its rule.
func TestASegmentIsChangedAsItIsRetired(t *testing.T) {
	for _, rule := range []string{"traits.age > 30", "traits.age > 18"} {
		atEachRead(t, func(w *fixture, call commands.Call) (func(*commands.Commands) error, func() error) {
			w.Audiences = campaignsInLog{w}
			made := testkit.Must(w.DefineSegment(t.Context(), call, "S", "traits.age > 30", ""))(t)
			return func(c *commands.Commands) error {
					_, err := c.ChangeSegment(t.Context(), call, made.ID, nil, &rule)
					return err
				}, func() error {
					_, err := w.RetireSegment(t.Context(), call, made.ID)
					return err
				}
		}, func(err error) bool {
			return fault.Is(err, "segment_unknown") || err == nil && rule == "traits.age > 30" // the rule that it had
		})
	}
}
