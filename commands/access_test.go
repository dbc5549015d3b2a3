package commands_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

func secretHash(text string) [32]byte { return sha256.Sum256([]byte(text)) }

func TestAChangedPasswordIsSealedAndTheOnlyOne(t *testing.T) {
	w := newFixture(t)
	ada, call := w.client(t, "ada@example.com")
	var revoked []string
	w.Revoked = func(_ context.Context, _ id.Client, subject string, _ time.Time) error {
		revoked = append(revoked, subject)
		return nil
	}
	for n := range 3 {
		hash := fmt.Sprintf("hash of %d", n)
		if _, _, err := w.SetPassword(t.Context(), call, hash, n, ""); err != nil {
			t.Fatal(err)
		}
		account, err := w.AccountByMember(t.Context(), ada.Client, ada.Member)
		if err != nil || account.PasswordHash != hash || account.PasswordChanges != n+1 || account.Email != "ada@example.com" {
			t.Errorf("%+v, %v", account, err)
		}
		if _, err := w.OpenSession(t.Context(), call, secretHash(hash), n+1); err != nil { // others between
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{id.Logins(ada.Member, 0), id.Logins(ada.Member, 1), id.Logins(ada.Member, 2)}, revoked); diff != "" {
		t.Error(diff)
	}
	for _, r := range w.records(t) {
		if strings.Contains(string(r.Data), "hash of") {
			t.Errorf("%s shows a password: %s", r.Type, r.Data)
		}
	}
	if _, _, err := w.SetPassword(t.Context(), call, "late", 1, ""); !fault.Of(err, fault.Missing) {
		t.Errorf("by who knew an older one: %v", err)
	}
	if _, err := w.OpenSession(t.Context(), call, secretHash("late"), 1); !fault.Is(err, "account_unknown") {
		t.Errorf("a session of who knew an older one: %v", err)
	}
}

func TestOfTwoChangesOfAPasswordOneCounts(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	done := make(chan error)
	for n := range 8 {
		go func() {
			_, _, err := w.process(w.store, w.keys).SetPassword(t.Context(), call, fmt.Sprint(n), 0, "")
			done <- err
		}()
	}
	changed := 0
	for range 8 {
		if err := <-done; err == nil {
			changed++
		} else if !fault.Of(err, fault.Missing) {
			t.Error(err)
		}
	}
	if changed != 1 {
		t.Errorf("%d changes were recorded", changed)
	}
}

func TestAnotherSessionEndsTheOldestOfTwenty(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	var opened, revoked []id.Session
	w.Revoked = func(_ context.Context, _ id.Client, subject string, _ time.Time) error {
		revoked = append(revoked, id.Session(subject))
		return nil
	}
	for n := range 23 {
		s := testkit.Must(w.OpenSession(t.Context(), call, secretHash(fmt.Sprint(n)), 0))(t)
		opened = append(opened, s.Session)
	}
	if diff := cmp.Diff(opened[:3], revoked); diff != "" {
		t.Error(diff)
	}
	for n := range 23 {
		_, err := w.SessionByHash(t.Context(), call.Client, call.Member, secretHash(fmt.Sprint(n)))
		if lasts := err == nil; lasts != (n >= 3) {
			t.Errorf("session %d: %v", n, err)
		}
	}
	if _, err := w.EndSession(t.Context(), call, false, call.Member, opened[3]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.SetPassword(t.Context(), call, "new", 0, opened[20]); err != nil {
		t.Fatal(err)
	}
	for n := range 23 {
		_, err := w.SessionByHash(t.Context(), call.Client, call.Member, secretHash(fmt.Sprint(n)))
		if lasts := err == nil; lasts != (n == 20) {
			t.Errorf("session %d after another password: %v", n, err)
		}
	}
	if _, err := w.EndSession(t.Context(), call, false, call.Member, opened[20]); err != nil {
		t.Error(err)
	}
	if _, err := w.EndSession(t.Context(), call, false, call.Member, opened[20]); !fault.Is(err, "session_unknown") {
		t.Errorf("ended twice: %v", err)
	}
}

func TestSessionsAreEndedByTheirMembersAndThoseWhoManageThem(t *testing.T) {
	w := newFixture(t)
	_, owner := w.client(t, "ada@example.com")
	as := func(role string) commands.Call {
		m := testkit.Must(w.AddMember(t.Context(), owner, commands.AddMember{Email: role + "@example.com", Role: role, Password: "secret"}))(t)
		return commands.Call{Client: owner.Client, Member: m.Member, Actor: string(m.Member)}
	}
	admin, viewer, second := as("admin"), as("viewer"), as("owner")
	for _, tt := range []struct {
		by, of  commands.Call
		manages bool
		code    string
	}{
		{viewer, viewer, false, ""},
		{viewer, admin, false, "session_unknown"},
		{admin, viewer, true, ""},
		{admin, owner, true, "owner_only"},
		{owner, admin, true, ""},
		{owner, owner, true, ""},
		{second, owner, true, ""},
	} {
		s, err := w.OpenSession(t.Context(), tt.of, secretHash("x"), 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.EndSession(t.Context(), tt.by, tt.manages, tt.of.Member, s.Session)
		if tt.code == "" && err != nil || tt.code != "" && !fault.Is(err, tt.code) {
			t.Errorf("%s ends one of %s: %v; want %s", tt.by.Member, tt.of.Member, err, tt.code)
		}
	}
}

func TestWhoWasRemovedOpensNothing(t *testing.T) {
	w := newFixture(t)
	_, owner := w.client(t, "ada@example.com")
	bob := testkit.Must(w.AddMember(t.Context(), owner, commands.AddMember{Email: "bob@example.com", Role: "admin", Password: "secret"}))(t)
	bobs := commands.Call{Client: owner.Client, Member: bob.Member, Actor: string(bob.Member)}
	if _, _, err := w.SetPassword(t.Context(), bobs, "a hash", 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RemoveMember(t.Context(), owner, bob.Member); err != nil {
		t.Fatal(err)
	}
	if _, err := w.OpenSession(t.Context(), bobs, secretHash("x"), 1); !fault.Is(err, "account_unknown") {
		t.Errorf("a session: %v", err)
	}
	if _, err := w.SessionByHash(t.Context(), owner.Client, bob.Member, secretHash("x")); !fault.Is(err, "session_unknown") {
		t.Errorf("it stands: %v", err)
	}
	if _, _, err := w.SetPassword(t.Context(), bobs, "another", 1, ""); !fault.Is(err, "account_unknown") {
		t.Errorf("a password: %v", err)
	}
	history, _, err := w.log.Load(t.Context(), eventstore.AccessStream(owner.Client, bob.Member))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(history, func(r eventstore.Recorded) bool { _, set := r.Event.(event.MemberPasswordSet); return set })
	if _, err := w.log.Open(t.Context(), history[i], "password_hash"); err == nil {
		t.Error("the password can still be opened")
	}
}

func TestSessionsThatAreTooOldStandNoMore(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	if _, err := w.OpenSession(t.Context(), call, secretHash("old"), 0); err != nil {
		t.Fatal(err)
	}
	w.jump(event.SessionLifetime)
	s := testkit.Must(w.OpenSession(t.Context(), call, secretHash("new"), 0))(t)
	last := s.Outcome.Recorded[0].Event.(event.SessionOpened)
	if len(last.Standing.Sessions) != 1 || last.Standing.Sessions[0].Session != s.Session || len(last.Ended) != 0 {
		t.Errorf("%+v", last)
	}
}
