package commands_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// changed appends n changes to a user's stream; the last one counts.
func (w *fixture) changed(t *testing.T, call commands.Call, user id.User, n int) {
	t.Helper()
	end := testkit.Must(w.log.Version(t.Context(), eventstore.UserStream(call.Client, user)))(t)
	for n > 0 {
		events := make([]event.Event, min(n, eventstore.MaxAppend))
		for i := range events {
			events[i] = event.EndUserTraitsChanged{User: user}
		}
		if n -= len(events); n == 0 {
			events[len(events)-1] = event.EndUserTraitsChanged{User: user, Traits: event.Private([]byte(`{"last":1}`))}
		}
		recorded, err := w.log.Append(t.Context(), end, eventstore.Origin{Client: call.Client, Actor: "test"}, id.Random(rand.Reader), events...)
		if err != nil {
			t.Fatal(err)
		}
		if end, err = recorded[len(recorded)-1].StreamVersion(); err != nil {
			t.Fatal(err)
		}
	}
}

// What it costs to change or erase a user does not grow with how often it was
// changed before.
func TestAUserIsChangedAndErasedHoweverOftenItWasChanged(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	post := seeded(call, "k1", "b1")
	created := testkit.Must(w.CreateUser(t.Context(), post, "u1", []byte(`{"first":1}`)))(t)
	const changes = 2_000
	w.changed(t, call, created.ID, changes)
	reads := &countingStore{Store: w.store}
	c := w.process(reads, w.keys)

	again, err := c.CreateUser(t.Context(), post, "u1", []byte(`{"first":1}`))
	if err != nil || !again.Outcome.Repeated || again.ID != created.ID || !jsonEqual(t, string(again.Traits), `{"first":1}`) {
		t.Errorf("created again: %+v, %v", again, err)
	}
	_, err = c.CreateUser(t.Context(), call, "u1", []byte(`{}`))
	wantFault(t, err, "user_exists")
	u, err := c.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{"b":2}`))
	if err != nil || u.ID != created.ID || u.ExternalID != "u1" || !u.CreatedAt.Equal(created.CreatedAt) || !u.UpdatedAt.After(u.CreatedAt) ||
		u.Outcome.Revision != changes+1 || !jsonEqual(t, string(u.Traits), `{"last":1,"b":2}`) {
		t.Errorf("changed: %+v, %v", u, err)
	}
	same, err := c.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{"b":2}`))
	if err != nil || same.Outcome.Revision != changes+1 || same.Outcome.Position != u.Outcome.Position || !same.UpdatedAt.Equal(u.UpdatedAt) {
		t.Errorf("changed to the same: %+v, %v", same, err)
	}
	stale, fresh := call, call
	stale.IfMatch, fresh.IfMatch = new(eventstore.Revision), &u.Outcome.Revision
	_, err = c.ChangeTraits(t.Context(), stale, "ext:u1", []byte(`{"c":3}`))
	wantFault(t, err, "stale")
	if _, err := c.ChangeTraits(t.Context(), fresh, "ext:u1", []byte(`{"c":3}`)); err != nil {
		t.Error(err)
	}
	for _, mode := range []string{"merge", "replace"} {
		report, err := c.ImportUsers(t.Context(), call, mode, lines([]commands.Imported{line("u1", `{"d":"`+mode+`"}`)}, nil))
		if err != nil || report.Updated != 1 {
			t.Errorf("imported: %+v, %v", report, err)
		}
	}
	if _, err := c.EraseUser(t.Context(), call, "ext:u1"); err != nil {
		t.Errorf("erased: %v", err)
	}
	_, err = c.EraseUser(t.Context(), call, "ext:u1")
	wantFault(t, err, "user_unknown")
	_, err = c.ChangeTraits(t.Context(), call, commands.UserRef(created.ID), []byte(`{"c":3}`))
	wantFault(t, err, "user_unknown")
	_, err = c.CreateUser(t.Context(), post, "u1", []byte(`{"first":1}`))
	wantFault(t, err, "user_erased")
	if anew, err := c.CreateUser(t.Context(), call, "u1", []byte(`{}`)); err != nil || anew.ID == created.ID {
		t.Errorf("created anew: %+v, %v", anew, err)
	}
	w.later()
	w.check(t)
	if read := reads.events.Load(); read > 30 {
		t.Errorf("%d events were read", read)
	}
}

// The traits of any time are found, however long the stream.
func TestTraitsAreThoseOfAPositionOfTheLog(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	type moment struct {
		at     eventstore.Position
		traits string
	}
	before, err := w.store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u := testkit.Must(w.CreateUser(t.Context(), call, "u1", []byte(`{"n":0}`)))(t)
	moments := []moment{{before, ""}, {u.Outcome.Position, `{"n":0}`}}
	for n := range 9 {
		for _, m := range moments {
			got, err := w.TraitsAt(t.Context(), call.Client, u.ID, m.at)
			if err != nil || m.traits == "" && got != nil || m.traits != "" && !jsonEqual(t, string(got), m.traits) {
				t.Errorf("of %d changes, at %q: %s, %v; want %q", n, m.at, got, err, m.traits)
			}
		}
		traits := fmt.Sprintf(`{"n":%d}`, n+1)
		if u, err = w.ChangeTraits(t.Context(), call, "ext:u1", []byte(traits)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.CreateUser(t.Context(), call, fmt.Sprint("other ", n), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		moments = append(moments, moment{u.Outcome.Position, traits})
	}
	w.changed(t, call, u.ID, 2_000)
	reads := &countingStore{Store: w.store}
	c := w.process(reads, w.keys)
	if got, err := c.TraitsAt(t.Context(), call.Client, u.ID, moments[3].at); err != nil || string(got) != moments[3].traits {
		t.Errorf("%s, %v", got, err)
	}
	if read := reads.events.Load(); read > 12 {
		t.Errorf("%d events were read", read)
	}
	erased := testkit.Must(w.EraseUser(t.Context(), call, "ext:u1"))(t)
	for _, at := range []eventstore.Position{moments[3].at, erased.Position} {
		if got, err := w.TraitsAt(t.Context(), call.Client, u.ID, at); err != nil || got != nil {
			t.Errorf("after the erasure, at %q: %s, %v", at, got, err)
		}
	}
}
