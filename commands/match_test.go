package commands_test

import (
	"context"
	"slices"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/testkit"
)

// members are whom a segment has.
type members struct {
	commands.Filter
	ids []id.User
}

func (m members) Ready(context.Context, id.Client, bool, string, id.Segment, event.Within) error {
	return nil
}

func (m members) CheckNamed(context.Context, id.Client, bool, string, *rule.Rule, id.ConsentLayer) error {
	return nil
}

func (m members) Named(_ context.Context, _ id.Client, _ *rule.Filter, _ id.User, users []id.User) (map[id.User]bool, error) {
	named := map[id.User]bool{}
	for _, user := range users {
		named[user] = slices.Contains(m.ids, user)
	}
	return named, nil
}

// What explains a match may take 13 KiB, and a filter looks at 50,000.
func TestOnlyTheMatchesThatAreAnsweredAreExplained(t *testing.T) {
	w, call := fixtureWithUser(t)
	w.matcher.found = manyMatches(3_000, 10)
	var in members
	for i := 10; i < len(w.matcher.found); i += 100 {
		in.ids = append(in.ids, w.matcher.found[i].MatchedUser)
	}
	w.Filter = in
	for _, limit := range []int{5, 100} {
		w.matcher.explained = 0
		answer := testkit.Must(w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Limit: limit, Segment: "seg_1"}))(t)
		want := in.ids[:min(limit, len(in.ids))]
		var got []id.User
		for _, m := range answer.Matches {
			if got = append(got, m.MatchedUser); len(m.Explanation) == 0 {
				t.Errorf("%s is not explained", m.MatchedUser)
			}
		}
		if !slices.Equal(got, want) || w.matcher.explained != len(want) {
			t.Errorf("%d are answered, and %d explained, of %d", len(got), w.matcher.explained, len(want))
		}
	}
}

// So that an answer can be prepared while it is recorded.
func TestMatchesAreToldBeforeTheyAreRecorded(t *testing.T) {
	w, call := fixtureWithUser(t)
	w.matcher.found = manyMatches(3, 1)
	user := testkit.Must(w.FindUser(t.Context(), call.Client, "ext:u1"))(t)
	var told []event.MatchComputed
	in := commands.ComputeMatches{User: "ext:u1", Limit: 3, Record: true, Found: func(found []event.MatchComputed) {
		told = found
		if history, _, err := w.Log.Load(t.Context(), eventstore.MatchStream(call.Client, user)); err != nil || len(history) > 0 {
			t.Errorf("%d are recorded, %v", len(history), err)
		}
	}}
	answer := testkit.Must(w.ComputeMatches(t.Context(), call, in))(t)
	if len(told) != 3 || len(answer.Matches) != 3 {
		t.Errorf("%d are told, %d recorded", len(told), len(answer.Matches))
	}
}
