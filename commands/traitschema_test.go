package commands_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

func TestDecisionsAboutTraitsAreMerged(t *testing.T) {
	w := newFixture(t)
	call := commands.Call{Client: id.Next[id.Client](id.Derived("acme")), Actor: "test"}
	fold := func() (s domain.TraitSchema) {
		history, _, err := w.log.Load(t.Context(), eventstore.Stream("traitschema-"+string(call.Client)))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range history {
			s.Apply(r.Event)
		}
		return s
	}
	weight, yes := 2.0, true
	for _, step := range []struct {
		patch   string
		version int
		want    map[string]event.TraitOverride
	}{
		{`{}`, 0, nil},
		{`{"never.decided":null}`, 0, nil},
		{`{"a":{"weight":2,"ignore":true},"b":{"type":"set"}}`, 1, map[string]event.TraitOverride{"a": {Weight: &weight, Ignore: &yes}, "b": {Type: "set"}}},
		{`{"b":{"type":"set"}}`, 1, map[string]event.TraitOverride{"a": {Weight: &weight, Ignore: &yes}, "b": {Type: "set"}}},
		{`{"a":{"ignore":null},"b":{"sensitive":true}}`, 2, map[string]event.TraitOverride{"a": {Weight: &weight}, "b": {Type: "set", Sensitive: &yes}}},
		{`{"b":null}`, 3, map[string]event.TraitOverride{"a": {Weight: &weight}}},
		{`{"a":{"weight":null}}`, 4, map[string]event.TraitOverride{}},
	} {
		if _, err := w.OverrideTraits(t.Context(), call, []byte(step.patch)); err != nil {
			t.Fatalf("%s: %v", step.patch, err)
		}
		now := fold()
		if diff := cmp.Diff(step.want, now.Overrides); diff != "" || now.Version != step.version {
			t.Errorf("after %s version %d, not %d (-want +got):\n%s", step.patch, now.Version, step.version, diff)
		}
	}

	var many strings.Builder
	for i := range 257 {
		fmt.Fprintf(&many, `,"p%d":{"weight":1}`, i)
	}
	for patch, pointer := range map[string]string{
		`{"a":{"weight":11}}`:   "/traits/a/weight",
		`{"a":{"weight":-0.1}}`: "/traits/a/weight",
		`{"a/b~c":{"type":"colour"},"` + strings.Repeat("x", 257) + `":{"ignore":true}}`: "/traits/a~1b~0c/type",
		`{"":{"ignore":true}}`: "/traits/",
		`{"a":{"size":1}}`:     "/traits",
		`{"a":5}`:              "/traits",
		`[]`:                   "/traits",
		`{"a":{"weight":1}` + many.String() + `}`: "/traits",
	} {
		_, err := w.OverrideTraits(t.Context(), call, []byte(patch))
		wantFault(t, err, "invalid")
		if fields := fault.As(err).Fields; fields[0].Pointer != pointer {
			t.Errorf("%.60s: %+v", patch, fields)
		}
	}
	if fold().Version != 4 {
		t.Error("what was refused was recorded")
	}
}

func TestASchemaThatIsOutOfDateIsNotRecorded(t *testing.T) {
	w := newFixture(t)
	acme := id.Next[id.Client](id.Derived("acme"))
	for _, step := range []struct{ under, facts int }{{0, 1}, {0, 1}, {1, 2}, {3, 2}, {2, 3}} {
		if err := w.RecordTraitSchema(t.Context(), acme, step.under, 10, []byte(`{"traits":[]}`)); err != nil {
			t.Fatal(err)
		}
		history, _, err := w.log.Load(t.Context(), eventstore.Stream("traitschema-"+string(acme)))
		if err != nil || len(history) != step.facts {
			t.Errorf("learnt under version %d: %d facts, not %d (%v)", step.under, len(history), step.facts, err)
		}
	}
}

// reads counts the events that are read of a store's streams.
type reads struct {
	eventstore.Store
	events int
}

func (r *reads) ReadStream(ctx context.Context, s eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	page, err := r.Store.ReadStream(ctx, s, from, limit)
	r.events += len(page)
	return page, err
}

func (r *reads) ReadBack(ctx context.Context, s eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	page, err := r.Store.ReadBack(ctx, s, from, limit)
	r.events += len(page)
	return page, err
}

func TestALongTraitSchemaIsNotReadWhole(t *testing.T) {
	w := newFixture(t)
	call := commands.Call{Client: id.Next[id.Client](id.Derived("acme")), Actor: "test"}
	stream := eventstore.Stream("traitschema-" + string(call.Client))
	var end eventstore.StreamVersion
	learn := func(times int) {
		t.Helper()
		var err error
		for range times {
			if end, err = w.log.Version(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
			_, err = w.log.Append(t.Context(), end, eventstore.Origin{Client: call.Client, Actor: "test"}, id.Random(rand.Reader),
				event.TraitSchemaInferred{Client: call.Client, Users: 10, Schema: event.Private([]byte(`{}`))})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	override := func(call commands.Call, path string) eventstore.Position {
		t.Helper()
		done := testkit.Must(w.OverrideTraits(t.Context(), call, []byte(`{"`+path+`":{"type":"set"}}`)))(t)
		return done.Position
	}
	counted := &reads{Store: w.store}
	w.log.Store = counted
	learn(600)
	w.decided = [2]int{0, 590}
	counted.events = 0
	if _, err := w.OverrideTraits(t.Context(), call, []byte(`{"a":null}`)); err != nil || counted.events > 64 {
		t.Errorf("%d events are read where nothing was ever decided; %v", counted.events, err)
	}
	first := override(seeded(call, "a", ""), "a")
	learn(50)
	last := override(call, "b")
	learn(50)
	if again := override(seeded(call, "a", ""), "a"); again != first {
		t.Errorf("the repetition answers %s, not %s", again, first)
	}
	counted.events = 0
	if err := w.RecordTraitSchema(t.Context(), call.Client, 702, 10, []byte(`{"traits":[]}`)); err != nil {
		t.Fatal(err)
	}
	if counted.events > 2 {
		t.Errorf("%d events are read to record what was learnt", counted.events)
	}
	counted.events = 0
	override(call, "c")
	if counted.events > 100 {
		t.Errorf("%d events are read for a decision", counted.events)
	}
	if end, err := w.log.Version(t.Context(), stream); err != nil || end.Revision != 703 {
		t.Errorf("the stream ends at %d, %v", end.Revision, err)
	}
	learn(600)
	w.decided = [2]int{704, 1_300}
	counted.events = 0
	override(call, "c") // as it is
	if counted.events > 100 {
		t.Errorf("%d events are read back to an old decision", counted.events)
	}
	set := event.TraitOverride{Type: "set"}
	for _, c := range []struct {
		at   eventstore.Position
		want map[string]event.TraitOverride
	}{
		{"", nil},
		{first, map[string]event.TraitOverride{"a": set}},
		{last, map[string]event.TraitOverride{"a": set, "b": set}},
		{"~", map[string]event.TraitOverride{"a": set, "b": set, "c": set}},
	} {
		// What is known is the newest, behind that, nothing, or of another log.
		for _, w.decided = range [][2]int{{704, 1_300}, {704, 704}, {652, 700}, {0, 600}, {0, 0}, {9_000, 9_999}} {
			got, _, err := w.TraitSchemaAt(t.Context(), call.Client, c.at)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("at %q: %v %s", c.at, err, diff)
			}
		}
	}
}
