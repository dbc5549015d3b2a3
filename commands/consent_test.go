package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// consents are the users of the log who were created before a position, and
// whether they have granted a layer.
func (w *fixture) consents(t *testing.T, layer id.ConsentLayer, before eventstore.Position) map[id.User]bool {
	t.Helper()
	users := map[id.User]bool{}
	for _, r := range w.records(t) {
		switch e := r.Event.(type) {
		case event.EndUserCreated:
			if before == "" || r.Position < before {
				users[e.User] = false
			}
		case event.ConsentGranted:
			if _, there := users[e.User]; there {
				users[e.User] = e.Layer == layer
			}
		case event.ConsentWithdrawn:
			users[e.User] = false
		}
	}
	return users
}

// directory implements [commands.Directory] by reading the log.
type directory struct {
	*testing.T
	*fixture
}

func (d directory) Consenting(_ context.Context, _ id.Client, layer id.ConsentLayer, after id.User, limit int) ([]id.User, error) {
	return d.list(d.consents(d.T, layer, ""), true, after, limit), nil
}

func (d directory) NotConsenting(_ context.Context, _ id.Client, layer id.ConsentLayer, before eventstore.Position, after id.User, limit int) ([]id.User, error) {
	return d.list(d.consents(d.T, layer, before), false, after, limit), nil
}

func (d directory) CountUsers(_ context.Context, _ id.Client, before eventstore.Position) (int, error) {
	return len(d.consents(d.T, "", before)), nil
}

func (d directory) CountChanged(_ context.Context, _ id.Client, layer id.ConsentLayer, granted bool, since eventstore.Position) (int, error) {
	changed := map[id.User]bool{}
	for _, r := range d.records(d.T) {
		switch e := r.Event.(type) {
		case event.ConsentGranted:
			changed[e.User] = granted && r.Position > since
		case event.ConsentWithdrawn:
			changed[e.User] = !granted && r.Position > since
		}
	}
	maps.DeleteFunc(changed, func(_ id.User, counts bool) bool { return !counts })
	return len(changed), nil
}

func (d directory) list(users map[id.User]bool, granted bool, after id.User, limit int) (found []id.User) {
	for _, u := range slices.Sorted(maps.Keys(users)) {
		if users[u] == granted && u > after && len(found) < limit {
			found = append(found, u)
		}
	}
	return found
}

func TestConsentIsGrantedOnceAndToNobodyWhoComesLater(t *testing.T) {
	w := newFixture(t)
	w.Directory = directory{t, w}
	_, call := w.client(t, "ada@example.com")
	var users []commands.UserRef
	for i := range 5 {
		u := testkit.Must(w.CreateUser(t.Context(), call, fmt.Sprint("u", i), json.RawMessage(`{}`)))(t)
		users = append(users, commands.UserRef(u.ID))
	}
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), seeded(call, "layer", ""), "A", []string{"age"}, ""))(t)
	again, err := w.DefineConsentLayer(t.Context(), seeded(call, "layer", ""), "A", []string{"age"}, "")
	if err != nil || again.ID != layer.ID {
		t.Errorf("the repetition made %s, %v; not %s", again.ID, err, layer.ID)
	}

	change := func(key string, grant, all bool, users ...commands.UserRef) commands.Consents {
		t.Helper()
		return testkit.Must(w.ChangeConsents(t.Context(), seeded(call, key, ""), commands.ChangeConsents{Layer: layer.ID, Grant: grant, All: all, Users: users}))(t)
	}
	for _, tt := range []struct {
		name            string
		done            func() commands.Consents
		want, unchanged int
		thenCount       int // grants in the log
	}{
		{"some", func() commands.Consents { return change("some", true, false, users[1], users[3], users[1]) }, 2, 0, 2},
		{"some repeated", func() commands.Consents { return change("some", true, false, users[1], users[3], users[1]) }, 2, 0, 2},
		{"all", func() commands.Consents { return change("all", true, true) }, 3, 2, 5},
		{"all once more", func() commands.Consents { return change("more", true, true) }, 0, 5, 5},
		{"all repeated, with a newcomer", func() commands.Consents {
			if _, err := w.CreateUser(t.Context(), call, "newcomer", json.RawMessage(`{}`)); err != nil {
				t.Fatal(err)
			}
			return change("all", true, true)
		}, 3, 2, 5},
		{"all anew, with the newcomer", func() commands.Consents { return change("anew", true, true) }, 1, 5, 6},
		{"withdrawn from some", func() commands.Consents { return change("back", false, false, users[0]) }, 1, 0, 6},
		{"withdrawn from all", func() commands.Consents { return change("back all", false, true) }, 5, 1, 6},
		{"withdrawn from all, repeated", func() commands.Consents { return change("back all", false, true) }, 5, 1, 6},
	} {
		if got := tt.done(); got.Changed != tt.want || got.Unchanged != tt.unchanged {
			t.Errorf("%s: changed %d and not %d, want %d and %d", tt.name, got.Changed, got.Unchanged, tt.want, tt.unchanged)
		}
		if n := w.count(t, "consent.granted"); n != tt.thenCount {
			t.Errorf("%s: %d grants in the log, want %d", tt.name, n, tt.thenCount)
		}
	}
	if n := w.count(t, "consent.withdrawn"); n != 6 {
		t.Errorf("%d withdrawals in the log", n)
	}
}

func TestAGrantToAllThatBrokeOffIsAnsweredForTheWhole(t *testing.T) {
	w := newFixture(t)
	reading := directory{t, w}
	w.Directory = reading
	_, call := w.client(t, "ada@example.com")
	for i := range 5 {
		if _, err := w.CreateUser(t.Context(), call, fmt.Sprint("u", i), json.RawMessage(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "A", []string{"age"}, ""))(t)
	all := commands.ChangeConsents{Layer: layer.ID, Grant: true, All: true}
	w.Directory = breaksOff{reading}
	if _, err := w.ChangeConsents(t.Context(), seeded(call, "all", ""), all); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if n := w.count(t, "consent.granted"); n != 2 {
		t.Fatalf("%d were granted before it broke off", n)
	}
	w.Directory = reading
	for range 2 {
		got, err := w.ChangeConsents(t.Context(), seeded(call, "all", ""), all)
		if err != nil || got.Changed != 5 || got.Unchanged != 0 {
			t.Errorf("answered %+v, %v", got, err)
		}
	}
}

func TestACrashedChangeOfConsentsCanBeRepeated(t *testing.T) {
	for _, all := range []bool{false, true} {
		everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
			t.Helper()
			w.Directory = directory{t, w}
			_, call := w.client(t, "ada@example.com")
			layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "A", []string{"age"}, ""))(t)
			change := commands.ChangeConsents{Layer: layer.ID, Grant: true, All: all}
			const users = 3
			for i := range users {
				u := testkit.Must(w.CreateUser(t.Context(), call, fmt.Sprint("u", i), json.RawMessage(`{}`)))(t)
				if !all {
					change.Users = append(change.Users, commands.UserRef(u.ID))
				}
			}
			command := func(c *commands.Commands) error {
				c.Directory = w.Directory
				_, err := c.ChangeConsents(t.Context(), seeded(call, "k1", ""), change)
				return err
			}
			return command, func(acknowledged bool) {
				if n := w.count(t, "consent.granted"); acknowledged && n != users {
					t.Errorf("it was acknowledged, but %d have granted", n)
				}
				again, err := w.ChangeConsents(t.Context(), seeded(call, "k1", ""), change)
				if err != nil || again.Changed != users || again.Unchanged != 0 {
					t.Errorf("the repetition says %+v, %v", again, err)
				}
				if n := w.count(t, "consent.granted"); n != users {
					t.Errorf("after the repetition %d have granted", n)
				}
			}
		})
	}
}

func TestEarlierChangesOfAllConsentsAreNotRead(t *testing.T) {
	w := newFixture(t)
	w.Directory = directory{t, w}
	_, call := w.client(t, "ada@example.com")
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "A", []string{"age"}, ""))(t)
	counted := &reads{Store: w.store}
	w.log.Store = counted
	for n := range 30 {
		for _, call := range []commands.Call{call, seeded(call, fmt.Sprint(n), "")} {
			counted.events = 0
			if _, err := w.ChangeConsents(t.Context(), call, commands.ChangeConsents{Layer: layer.ID, Grant: n%2 == 0, All: true}); err != nil {
				t.Fatal(err)
			}
			if counted.events > 3 {
				t.Fatalf("%d events are read after %d changes", counted.events, n)
			}
		}
	}
	if n := w.count(t, "consent.of_all_changed"); n != 60 {
		t.Errorf("%d changes are in the log", n)
	}
}

func TestARepeatedChangeOfConsentsLeavesAloneWhatUsersSaidSince(t *testing.T) {
	w := newFixture(t)
	reading := directory{t, w}
	_, call := w.client(t, "ada@example.com")
	for _, all := range []bool{false, true} {
		for _, grant := range []bool{true, false} {
			t.Run(fmt.Sprintf("all %t, grant %t", all, grant), func(t *testing.T) {
				user := testkit.Must(w.CreateUser(t.Context(), call, fmt.Sprint("u", all, grant), json.RawMessage(`{}`)))(t)
				layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "A", []string{"age"}, ""))(t)
				users := []commands.UserRef{commands.UserRef(user.ID)}
				says := func(grant bool) {
					t.Helper()
					if _, err := w.ChangeConsent(t.Context(), call, commands.ChangeConsents{Layer: layer.ID, Grant: grant, Users: users}); err != nil {
						t.Fatal(err)
					}
				}
				asked := commands.ChangeConsents{Layer: layer.ID, Grant: grant, All: all}
				if !all {
					asked.Users = users
				}
				try := func() (commands.Consents, error) {
					return w.ChangeConsents(t.Context(), seeded(call, t.Name(), ""), asked)
				}
				says(grant) // before that is asked of it
				w.Directory = breaksOff{reading}
				if _, err := try(); all != errors.Is(err, errBroken) || !all && err != nil {
					t.Fatal(err)
				}
				says(!grant)
				w.Directory = reading
				for range 2 {
					if _, err := try(); err != nil {
						t.Fatal(err)
					}
				}
				if granted := w.consents(t, layer.ID, "")[user.ID]; granted == grant {
					t.Errorf("after the repetition granted is %t, against what the user said last", granted)
				}
			})
		}
	}
}

func TestARepeatedGrantDoesNotSpeakForWhoComesAfterAnErasure(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "A", []string{"age"}, ""))(t)
	grant := commands.ChangeConsents{Layer: layer.ID, Grant: true, Users: []commands.UserRef{"ext:u"}}
	for _, want := range []commands.Consents{{Changed: 1}, {Unchanged: 1}} {
		user := testkit.Must(w.CreateUser(t.Context(), call, "u", json.RawMessage(`{}`)))(t)
		got, err := w.ChangeConsents(t.Context(), seeded(call, "some", ""), grant)
		if err != nil || got.Changed != want.Changed || got.Unchanged != want.Unchanged {
			t.Errorf("answered %+v, %v, want %+v", got, err, want)
		}
		if _, err := w.EraseUser(t.Context(), call, commands.UserRef(user.ID)); err != nil {
			t.Fatal(err)
		}
	}
}

var errBroken = errors.New("broken")

// breaksOff is a directory that knows two users, and then nothing any more.
type breaksOff struct{ directory }

func (d breaksOff) NotConsenting(ctx context.Context, client id.Client, layer id.ConsentLayer, before eventstore.Position, after id.User, _ int) ([]id.User, error) {
	return d.directory.NotConsenting(ctx, client, layer, before, after, 2)
}

func (d breaksOff) CountUsers(context.Context, id.Client, eventstore.Position) (int, error) {
	return 0, errBroken
}

func TestConsentIsRefusedForWhatIsNotThere(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	layer, err := w.DefineConsentLayer(t.Context(), call, "A", []string{"age"}, "")
	if err != nil {
		t.Fatal(err)
	}
	user := testkit.Must(w.CreateUser(t.Context(), call, "u", json.RawMessage(`{}`)))(t)
	ref := []commands.UserRef{commands.UserRef(user.ID)}
	granted := commands.ChangeConsents{Layer: layer.ID, Grant: true, Users: ref}
	unknown := granted
	unknown.Users = append(slices.Clone(ref), "ext:nobody")
	_, err = w.ChangeConsents(t.Context(), call, unknown)
	wantFault(t, err, "invalid")
	if n := w.count(t, "consent.granted"); n != 0 {
		t.Errorf("%d were granted although one user is unknown", n)
	}
	compute := commands.ComputeMatches{User: ref[0], Layer: layer.ID, Limit: 1}
	_, err = w.ComputeMatches(t.Context(), call, compute)
	wantFault(t, err, "consent_missing")
	if _, err := w.ChangeConsent(t.Context(), call, granted); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ComputeMatches(t.Context(), call, compute); err != nil {
		t.Fatal(err)
	}
	if _, err := w.EraseUser(t.Context(), call, ref[0]); err != nil {
		t.Fatal(err)
	}
	_, err = w.ChangeConsent(t.Context(), call, granted)
	wantFault(t, err, "user_unknown")
	if _, err := w.RetireConsentLayer(t.Context(), call, layer.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.ChangeConsents(t.Context(), call, commands.ChangeConsents{Layer: layer.ID, Grant: true, All: true})
	wantFault(t, err, "consent_layer_unknown")
}
