package pgstore_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/eventstore"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// TestALoadedLogIsTheSameLog loads a log in pieces that overlap, as those do
// of a copy that was killed.
func TestALoadedLogIsTheSameLog(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := open(t, pool)
	a, b := newStream(), newStream()
	var log []eventstore.Record
	for _, stream := range []eventstore.Stream{a, b, a, a, b, a} {
		r := eventstore.Record{Stream: stream, Proposed: newEvent(), Position: "elsewhere"}
		for _, before := range log {
			if before.Stream == stream {
				r.Revision++
			}
		}
		log = append(log, r)
	}
	for _, piece := range [][]eventstore.Record{log[:2], log[:4], log[3:4], log[2:], log} {
		if err := store.Load(t.Context(), piece); err != nil {
			t.Fatal(err)
		}
	}
	loaded := testkit.Must(store.ReadAll(t.Context(), eventstore.Start, 100))(t)
	last := eventstore.Start
	for i, r := range loaded {
		if r.Position <= last {
			t.Errorf("position %s comes after %s", r.Position, last)
		}
		last, loaded[i].Position = r.Position, "elsewhere"
	}
	if diff := cmp.Diff(log, loaded); diff != "" {
		t.Errorf("(-log +loaded):\n%s", diff)
	}
	wantSound(t, pool)

	mustAppend(t, store, b, 1) // it goes on from there
	gap, other := log[5], log[0]
	gap.Revision = 9
	other.ID = newEvent().ID
	if err := store.Load(t.Context(), []eventstore.Record{gap}); !errors.As(err, new(*eventstore.ConflictError)) || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("a gap: %v", err)
	}
	claim := eventstore.Record{Stream: eventstore.ClaimStream(eventstore.EmailClaim, [32]byte{7}), Proposed: newEvent()}
	back := eventstore.Record{Stream: claim.Stream, Proposed: newEvent()}
	claim.Revision, back.Revision = 3, 7 // what is between is others'
	for _, piece := range [][]eventstore.Record{{claim}, {claim, back}, {back}} {
		if err := store.Load(t.Context(), piece); err != nil {
			t.Errorf("a claim that was another's between: %v", err)
		}
	}
	more := eventstore.Record{Stream: newStream(), Proposed: newEvent()}
	if err := store.Load(t.Context(), []eventstore.Record{more, other}); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("another event in the place of one: %v", err)
	}
	more.ID = "no id"
	if err := store.Load(t.Context(), []eventstore.Record{more}); err == nil || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("an event without an id: %v", err)
	}
	all, err := store.ReadAll(t.Context(), eventstore.Start, 100)
	if err != nil || len(all) != len(log)+3 || slices.ContainsFunc(all, func(r eventstore.Record) bool { return r.ID == more.ID }) {
		t.Errorf("%d events, %v: what was refused was loaded in part", len(all), err)
	}
}
