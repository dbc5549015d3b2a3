package projections_test

import (
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections"
)

func TestEventsAreFoundByDerivedIdsAndKeys(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	model := projections.EventIDs{Reader: w.reader}
	find := func(client id.Client, wanted ...id.Event) (map[id.Event]eventstore.Revision, eventstore.Position) {
		t.Helper()
		found, reached, err := model.Revisions(t.Context(), client, wanted)
		if err != nil {
			t.Fatal(err)
		}
		return found, reached
	}
	if found, reached := find(w.acme, id.Next[id.Event](w.ids)); len(found) > 0 || reached != eventstore.Start {
		t.Errorf("before there are tables: %v, reached %q", found, reached)
	}
	w.follow(projections.EventIDs{})

	stream := eventstore.Stream("matches-" + string(w.acme) + "-x")
	derived := id.Next[id.Event](id.Derived("a request"))
	append := func(ids *id.Source, events ...event.Event) []eventstore.Recorded {
		t.Helper()
		end := must[eventstore.StreamVersion](t)(w.log.Version(t.Context(), stream))
		return must[[]eventstore.Recorded](t)(w.log.Append(t.Context(), end, eventstore.Origin{Client: w.acme, Actor: "test"}, ids, events...))
	}
	random := append(w.ids, event.MatchComputed{User: "usr_a", MatchedUser: "usr_b"})[0].ID
	append(id.Derived("a request"), event.MatchComputed{User: "usr_a", MatchedUser: "usr_b"})
	clicked := event.InteractionRecorded{User: "usr_a", Item: "usr_b", Kind: "click", Impression: "f.1"}
	shown := event.CampaignEngagementRecorded{Campaign: "cam_a", User: "usr_a", Kind: "impression", Impression: id.Next[id.Impression](id.Derived("a page"))}
	append(w.ids, clicked, shown, clicked, shown) // twice, as older logs may hold them
	last := append(w.ids, event.MatchComputed{User: "usr_a", MatchedUser: "usr_c"})[0]
	if err := w.reader.Progress.Wait(t.Context(), projections.EventIDs{}, w.acme, last.Position); err != nil {
		t.Fatal(err)
	}

	click, _ := clicked.Key()
	impression, _ := shown.Key()
	found, reached := find(w.acme, random, derived, click, impression)
	if want := map[id.Event]eventstore.Revision{derived: 1, click: 2, impression: 3}; len(found) != len(want) ||
		found[derived] != 1 || found[click] != 2 || found[impression] != 3 || reached < last.Position {
		t.Errorf("found %v, want %v; reached %s of %s", found, want, reached, last.Position)
	}
	if found, _ := find(w.bolt, derived, click, impression); len(found) > 0 {
		t.Errorf("another client finds %v", found)
	}
}
