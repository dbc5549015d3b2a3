// Package eventstoretest is the conformance suite of the event store's port:
// whatever passes it can stand behind package eventstore.
package eventstoretest

import (
	"context"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// Harness is one log, as a test may use and maltreat it. Cut and Restart are
// called while stores are at work.
type Harness struct {
	Store eventstore.Store
	// Another opens a further Store on the same log, as another process would.
	// Nil where the log lives and dies with its one Store.
	Another func(t testing.TB) eventstore.Store
	// Cut breaks the connections that all stores have at this moment. Nil where
	// there are none.
	Cut func(t testing.TB)
	// Restart kills the server without warning, starts it again, and returns
	// once it answers. Nil where there is none, or it cannot be killed.
	Restart func(t testing.TB)
	// KeyOf names the key of a subject that the store keeps; empty where there is
	// none. Nil where the store keeps no keys.
	KeyOf func(t testing.TB, client id.Client, subject string) string
	// Shared: the log may hold events of earlier tests.
	Shared bool
}

// Run runs the suite; open gives every test a log of its own, and closes it
// with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) Harness) {
	t.Helper()
	patience := testkit.Patience()
	for _, test := range []struct {
		name string
		run  func(*fixture)
	}{
		{"an empty log has neither head nor events", emptyLog},
		{"an append tells where it ended", appendTells},
		{"an append elsewhere than at the expected revision conflicts", conflicts},
		{"a repeated append succeeds once", repeated},
		{"a repetition that overlaps in part conflicts", overlapping},
		{"repetitions at the same time land once", repeatedAtOnce},
		{"what was stored comes back byte by byte", untouched},
		{"an append is bounded in events and bytes", bounds},
		{"500 events are appended together", fiveHundred},
		{"many appends at once stand in their order, each with its key", manyInOrder},
		{"of many appends at once each fails for itself", manyApart},
		{"keys are made before what they seal", keysBefore},
		{"of two who make the same keys at once one succeeds", manyRace},
		{"a stream is read forwards and backwards", readStream},
		{"the log is read in one order, in pages", readAll},
		{"an event is found by its exact position", at},
		{"the epoch outlives reopening and differs between logs", epoch},
		{"what a model predicts happens", model},
		{"a subscription says when it has caught up", caughtUp},
		{"a follower at the end is told so, however much is written", newest},
		{"a subscription resumes where another ended", resumes},
		{"a subscription sees what another process appends", seesOthers},
		{"a subscription ends with its context", subscriptionEnds},
		{"a follower that keeps giving up misses nothing", impatient},
		{"a caller that gives up cancels nobody else", givingUp},
		{"an append that its caller gives up is whole or none", givingUpAmid},
		{"followers miss nothing and see one order while writers race", race},
		{"followers miss nothing while connections are cut", raceWithCuts},
		{"an append over a cut connection lands once", appendOverCut},
		{"what was acknowledged outlives the server's sudden end", restart},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			test.run(begin(ctx, t, open))
		})
	}
}
