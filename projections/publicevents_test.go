package projections_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// The models do not come along together: that of users may be behind.
func TestAUserWhoIsNotKnownYetIsNotTakenForErased(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{})
	w.Record(w.Acme, "client-"+string(w.Acme), event.ClientSettingsChanged{Client: w.Acme, Settings: event.Settings{WebhookUserIDs: "external_id"}})
	ada := w.Create(w.Acme, "ada", `{}`)
	stop()
	bob := w.Create(w.Acme, "bob", `{}`)
	w.Match(w.Acme, ada, bob, 0.5)
	w.Follow(projections.PublicEvents{})
	list := func() ([]projections.PublicEvent, error) {
		return projections.PublicEvents{Reader: w.Reader}.List(t.Context(), w.Acme, true, projections.PublicQuery{Page: readmodel.Page{Limit: 9}})
	}
	var found []projections.PublicEvent
	var err error
	testkit.Eventually(t, "the match is asked for", func() bool { found, err = list(); return err != nil || len(found) > 0 })
	if !fault.Is(err, "stale") {
		t.Errorf("told of somebody who is not known yet: %+v, %v", found, err)
	}
	names, err := projections.Users{Reader: w.Reader}.ExternalIDsOfAll(t.Context(), w.Acme, false, []id.User{bob, ada, bob}) // as a dispatcher asks
	if !fault.Is(err, "stale") || errors.Is(err, event.ErrUnnamed) {
		t.Errorf("who is not known yet counts as erased: %v, %v", names, err)
	}
	w.Follow(projections.Users{})
	named := func(of string, erased bool) {
		t.Helper()
		testkit.Eventually(t, "the match names "+of, func() bool {
			found, err = list()
			return err == nil && len(found) == 1 && found[0].Erased == erased && strings.Contains(string(found[0].Body), `"matched_user_id":"`+of+`"`)
		})
	}
	named("bob", false)
	w.Erase(w.Acme, bob)
	named(string(bob), true)
	// All is read that was recorded, and still one is not known: the model has left out the user.
	names, err = projections.Users{Reader: w.Reader}.ExternalIDsOfAll(t.Context(), w.Acme, false, []id.User{ada, id.Next[id.User](w.IDs)})
	if !errors.Is(err, event.ErrUnnamed) || !fault.Is(err, "stale") {
		t.Errorf("who is never known counts as erased: %v, %v", names, err)
	}
}

// Who follows a client that has stopped waits in vain: it is told so also while nothing happens.
func TestClientsThatHaveStoppedAreToldWhileNothingHappens(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.PublicEvents{})
	model := projections.PublicEvents{Reader: w.Reader}
	next := func(after eventstore.Position, events int, clients ...id.Client) {
		t.Helper()
		found, stopped, err := model.Next(t.Context(), after, 9)
		if err != nil || len(found) != events || !slices.Equal(stopped, clients) {
			t.Errorf("%d events, of %v, %v", len(found), stopped, err)
		}
	}
	next(eventstore.Start, 0)
	if _, err := w.Pool.Exec(t.Context(), `INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ($1, $2, '', '', '')`, projector.ID(model), w.Acme); err != nil {
		t.Fatal(err)
	}
	next(eventstore.Start, 0, w.Acme)
	at := w.Match(w.Bolt, w.Create(w.Bolt, "ada", `{}`), w.Create(w.Bolt, "bob", `{}`), 0.5)
	testkit.Eventually(t, "the match is there", func() bool { return testkit.Must(model.End(t.Context()))(t) >= at })
	next(eventstore.Start, 1, w.Acme)
	next(at, 0, w.Acme)
}
