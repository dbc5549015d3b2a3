package commands_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// automatic is a user whose matches the test makes up.
type automatic struct {
	*fixture
	t    *testing.T
	call commands.Call
	user id.User
	runs int
}

func newAutomatic(t *testing.T) *automatic {
	t.Helper()
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	created := testkit.Must(w.CreateUser(t.Context(), call, "u", []byte(`{}`)))(t)
	return &automatic{fixture: w, t: t, call: call, user: created.ID}
}

func (a *automatic) change(traits string) {
	a.t.Helper()
	if _, err := a.ChangeTraits(a.t.Context(), a.call, commands.UserRef(a.user), []byte(traits)); err != nil {
		a.t.Fatal(err)
	}
}

// run matches the user and returns whom it was told of.
func (a *automatic) run(schema int, scores map[string]float64) (told []string) {
	a.t.Helper()
	a.runs++
	return a.again(schema, scores)
}

func (a *automatic) again(schema int, scores map[string]float64) (told []string) {
	a.t.Helper()
	a.matcher.found = nil
	for name, score := range scores {
		a.matcher.found = append(a.matcher.found, event.MatchComputed{MatchedUser: id.User(name), Score: score, Schema: schema})
	}
	slices.SortFunc(a.matcher.found, func(a, b event.MatchComputed) int { return int(1e6 * (b.Score - a.Score)) })
	call := commands.Call{Client: a.call.Client, Actor: "policy:matching", Seed: []string{"policy:matching", fmt.Sprint(a.runs)}}
	before := len(a.records(a.t))
	if _, err := a.MatchAutomatically(a.t.Context(), call, a.user, 3, 0.5); err != nil {
		a.t.Fatal(err)
	}
	for _, r := range a.records(a.t)[before:] {
		told = append(told, string(r.Event.(event.MatchComputed).MatchedUser))
	}
	return told
}

func (a *automatic) want(got []string, want ...string) {
	a.t.Helper()
	if !slices.Equal(got, want) {
		a.t.Errorf("run %d: told of %v, not %v", a.runs, got, want)
	}
}

func TestAutomaticMatchesTellWhatIsNew(t *testing.T) {
	a := newAutomatic(t)
	a.want(a.run(1, map[string]float64{"v": 0.9, "w": 0.8, "x": 0.7, "y": 0.6}), "v", "w", "x") // the best three
	a.want(a.run(1, map[string]float64{"v": 0.86, "w": 0.84, "x": 0.7}))                        // nothing moved far enough
	a.want(a.run(1, map[string]float64{"v": 0.82, "w": 0.85, "z": 0.49}), "w", "v")             // moved since it was told, not since it was looked at
	a.want(a.run(1, map[string]float64{"v": 0.82, "y": 0.6, "z": 0.49}), "y")                   // y comes among the best, z is below what is wanted
	a.want(a.run(1, map[string]float64{"x": 0.7}))                                              // back again, and told before
	a.want(a.run(1, nil))
}

func TestMatchesOfAUserWhoHasOftenChangedReadLittle(t *testing.T) {
	a := newAutomatic(t)
	a.want(a.run(1, map[string]float64{"v": 0.9, "w": 0.8}), "v", "w")
	a.changed(t, a.call, a.user, 2_000)
	reads := &countingStore{Store: a.store}
	a.Commands = a.process(reads, a.keys)
	a.want(a.run(2, map[string]float64{"v": 0.77, "w": 0.5}), "w") // as it was, it scores 0.8 today
	if read := reads.events.Load(); read > 40 {
		t.Errorf("%d events were read", read)
	}
}

// A crash between recording and noting that it was done.
func TestAutomaticMatchesAreToldOnce(t *testing.T) {
	a := newAutomatic(t)
	a.want(a.run(1, map[string]float64{"v": 0.9, "w": 0.8}), "v", "w")
	a.want(a.again(1, map[string]float64{"v": 0.9, "w": 0.8}))
	a.want(a.again(1, map[string]float64{"v": 0.5, "w": 0.8})) // what has changed since calls for a run of its own
	a.check(t)
}

// beaten is a store where somebody else appends first, once.
type beaten struct {
	eventstore.Store
	first func()
}

func (b *beaten) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	first := b.first
	if b.first = nil; first != nil {
		first()
	}
	return b.Store.Append(ctx, stream, expected, events)
}

func TestWhatAnotherHasJustToldIsNotToldAgain(t *testing.T) {
	a := newAutomatic(t)
	other := a.Commands
	a.Commands = a.process(&beaten{Store: a.store, first: func() {
		asked := commands.ComputeMatches{User: commands.UserRef(a.user), Limit: 1, Record: true}
		if _, err := other.ComputeMatches(t.Context(), a.call, asked); err != nil {
			t.Fatal(err)
		}
	}}, a.keys)
	a.want(a.run(1, map[string]float64{"v": 0.9, "w": 0.8}), "v", "w")
	a.check(t)
}

func TestAnotherSchemaIsNoNews(t *testing.T) {
	a := newAutomatic(t) // {}: what it scores under any later schema is 0.8
	a.want(a.run(1, map[string]float64{"v": 0.9}), "v")
	a.want(a.run(2, map[string]float64{"v": 0.6})) // the schema alone has changed
	a.change(`{"a":1}`)                            // from then on it differs from what was told: 0.8
	a.want(a.run(2, map[string]float64{"v": 0.77}))
	a.want(a.run(2, map[string]float64{"v": 0.75}), "v")
	a.want(a.run(3, map[string]float64{"v": 0.5})) // told as it is now
}

func TestTheErasedAreNotMatchedAutomatically(t *testing.T) {
	a := newAutomatic(t)
	if _, err := a.EraseUser(t.Context(), a.call, commands.UserRef(a.user)); err != nil {
		t.Fatal(err)
	}
	a.want(a.run(1, map[string]float64{"v": 0.9}))
}
