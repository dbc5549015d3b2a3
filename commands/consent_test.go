package commands_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Between implements [commands.Directory] by reading the log.
func (w *world) Between(ctx context.Context, client id.Client, after, before eventstore.Position, limit int) (users []id.User, last eventstore.Position, err error) {
	records, err := w.store.ReadAll(ctx, after, 1_000_000)
	if err != nil {
		return nil, after, err
	}
	last = after
	for _, r := range records {
		if r.Type != "end_user.created" || r.Client != client || r.Position >= before || len(users) == limit {
			continue
		}
		e, err := w.log.Decode(r)
		if err != nil {
			return nil, after, err
		}
		users, last = append(users, e.Event.(event.EndUserCreated).User), r.Position
	}
	return users, last, nil
}

func TestConsentIsGrantedOnceAndToNobodyWhoComesLater(t *testing.T) {
	w := newWorld(t)
	w.Commands.Directory = w
	_, call := w.client(t, "ada@example.com")
	var users []commands.UserRef
	for i := range 5 {
		u, err := w.CreateUser(t.Context(), call, fmt.Sprint("u", i), json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		users = append(users, commands.UserRef(u.ID))
	}
	layer, err := w.DefineConsentLayer(t.Context(), seeded(call, "layer", ""), "A", []string{"age"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.DefineConsentLayer(t.Context(), seeded(call, "layer", ""), "A", []string{"age"})
	if err != nil || again.ID != layer.ID {
		t.Errorf("the repetition made %s, %v; not %s", again.ID, err, layer.ID)
	}

	change := func(key string, grant, all bool, users ...commands.UserRef) commands.Consents {
		t.Helper()
		done, err := w.ChangeConsents(t.Context(), seeded(call, key, ""), commands.ChangeConsents{Layer: layer.ID, Grant: grant, All: all, Users: users})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	for _, tt := range []struct {
		name      string
		done      func() commands.Consents
		want      int
		thenCount int // grants in the log
	}{
		{"some", func() commands.Consents { return change("some", true, false, users[1], users[3], users[1]) }, 2, 2},
		{"all", func() commands.Consents { return change("all", true, true) }, 3, 5},
		{"all once more", func() commands.Consents { return change("more", true, true) }, 0, 5},
		{"all repeated, with a newcomer", func() commands.Consents {
			if _, err := w.CreateUser(t.Context(), call, "newcomer", json.RawMessage(`{}`)); err != nil {
				t.Fatal(err)
			}
			return change("all", true, true)
		}, 3, 5},
		{"all anew, with the newcomer", func() commands.Consents { return change("anew", true, true) }, 1, 6},
		{"withdrawn from some", func() commands.Consents { return change("back", false, false, users[0]) }, 1, 6},
		{"withdrawn from all", func() commands.Consents { return change("back all", false, true) }, 5, 6},
	} {
		if got := tt.done(); got.Changed != tt.want {
			t.Errorf("%s: changed %d, want %d", tt.name, got.Changed, tt.want)
		}
		if n := w.count(t, "consent.granted"); n != tt.thenCount {
			t.Errorf("%s: %d grants in the log, want %d", tt.name, n, tt.thenCount)
		}
	}
	if n := w.count(t, "consent.withdrawn"); n != 6 {
		t.Errorf("%d withdrawals in the log", n)
	}
}

func TestConsentIsRefusedForWhatIsNotThere(t *testing.T) {
	w := newWorld(t)
	_, call := w.client(t, "ada@example.com")
	layer, err := w.DefineConsentLayer(t.Context(), call, "A", []string{"age"})
	if err != nil {
		t.Fatal(err)
	}
	user, err := w.CreateUser(t.Context(), call, "u", json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
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
