package projections_test

import (
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

func TestEventsAreFoundByDerivedIdsAndKeys(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	model := projections.EventIDs{Reader: w.Reader}
	find := func(client id.Client, wanted ...id.Event) (map[id.Event]eventstore.Revision, eventstore.Position) {
		t.Helper()
		found, reached, err := model.Revisions(t.Context(), client, wanted)
		if err != nil {
			t.Fatal(err)
		}
		return found, reached
	}
	if found, reached := find(w.Acme, id.Next[id.Event](w.IDs)); len(found) > 0 || reached != eventstore.Start {
		t.Errorf("before there are tables: %v, reached %q", found, reached)
	}
	w.Follow(projections.EventIDs{})

	stream := eventstore.Stream("matches-" + string(w.Acme) + "-x")
	derived := id.Next[id.Event](id.Derived("a request"))
	append := func(ids *id.Source, events ...event.Event) []eventstore.Recorded {
		t.Helper()
		end := testkit.Must(w.EventLog.Version(t.Context(), stream))(t)
		return testkit.Must(w.EventLog.Append(t.Context(), end, eventstore.Origin{Client: w.Acme, Actor: "test"}, ids, events...))(t)
	}
	random := append(w.IDs, event.MatchComputed{User: "usr_a", MatchedUser: "usr_b"})[0].ID
	append(id.Derived("a request"), event.MatchComputed{User: "usr_a", MatchedUser: "usr_b"})
	clicked := event.InteractionRecorded{User: "usr_a", Item: "usr_b", Kind: "click", Impression: "f.1"}
	shown := event.CampaignEngagementRecorded{Campaign: "cam_a", User: "usr_a", Kind: "impression", Impression: id.Next[id.Impression](id.Derived("a page"))}
	append(w.IDs, clicked, shown, clicked, shown) // twice, as older logs may hold them
	last := append(w.IDs, event.MatchComputed{User: "usr_a", MatchedUser: "usr_c"})[0]
	if err := w.Reader.Progress.Wait(t.Context(), projections.EventIDs{}, w.Acme, last.Position); err != nil {
		t.Fatal(err)
	}

	click, _ := clicked.Key()
	impression, _ := shown.Key()
	found, reached := find(w.Acme, random, derived, click, impression)
	if want := map[id.Event]eventstore.Revision{derived: 1, click: 2, impression: 3}; len(found) != len(want) ||
		found[derived] != 1 || found[click] != 2 || found[impression] != 3 || reached < last.Position {
		t.Errorf("found %v, want %v; reached %s of %s", found, want, reached, last.Position)
	}
	if found, _ := find(w.Bolt, derived, click, impression); len(found) > 0 {
		t.Errorf("another client finds %v", found)
	}
}
