package commands_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// Whoever has every key that is never destroyed, and guesses the external id,
// finds nothing of who was erased.
func TestNothingThatStaysTellsWhoAnErasedIDWas(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	erased := map[string]id.User{}
	for external, create := range map[string]commands.Call{"plain": call, "keyed": seeded(call, "random key", "b1")} {
		u := testkit.Must(w.CreateUser(t.Context(), create, external, []byte(`{}`)))(t)
		erased[external] = u.ID
	}
	if _, err := w.ImportUsers(t.Context(), call, "merge", lines([]commands.Imported{line("imported", `{}`)}, nil)); err != nil {
		t.Fatal(err)
	}
	u := testkit.Must(w.ChangeTraits(t.Context(), call, "ext:imported", []byte(`{}`)))(t)
	erased["imported"] = u.ID
	for external, user := range erased {
		found, err := w.log.LookUp(t.Context(), call.Client, event.ExternalName, external)
		if err != nil || found[0] != string(user) {
			t.Errorf("%s is found as %q, %v; want %s", external, found, err, user)
		}
		if _, err := w.EraseUser(t.Context(), call, commands.UserRef(user)); err != nil {
			t.Fatal(err)
		}
	}
	records := testkit.Must(w.store.ReadAll(t.Context(), eventstore.Start, 1_000))(t)
	var log []byte
	for _, r := range records {
		log = append(append(append(log, r.Stream...), r.Data...), r.Meta...)
	}
	for external, user := range erased {
		for _, purpose := range []string{"user:0", "user:1", "user", event.ExternalName} {
			keyed := testkit.Must(w.log.Vault.Index(t.Context(), call.Client, purpose, external))(t)
			if guess := id.From[id.User]([16]byte(keyed[:16])); guess == user || bytes.Contains(log, []byte(guess)) {
				t.Errorf("%s follows from %s", user, external)
			}
		}
		found, err := w.log.LookUp(t.Context(), call.Client, event.ExternalName, external)
		if err != nil || found[0] != "" {
			t.Errorf("%s is still found as %q, %v", external, found, err)
		}
		if lookup, err := w.keys.LookupOf(t.Context(), call.Client, string(user)); err != nil || lookup != nil {
			t.Errorf("%s still has the lookup %x, %v", user, lookup, err)
		}
	}
}

func TestACrashBetweenALookupAndTheEventLeavesTheExternalIDFree(t *testing.T) {
	for _, key := range []string{"", "k1"} {
		for _, bulk := range []bool{false, true} {
			w := newFixture(t)
			_, call := w.client(t, "ada@example.com")
			if key != "" {
				call = seeded(call, key, "b1")
			}
			dying := w.process(mortalStore{w.store, &life{left: 0}}, w.keys)
			if _, err := dying.CreateUser(t.Context(), call, "u1", []byte(`{}`)); !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			reserved, err := w.log.LookUp(t.Context(), call.Client, event.ExternalName, "u1")
			if err != nil || reserved[0] == "" {
				t.Fatalf("no lookup was made before the event: %v", err)
			}
			c := w.process(w.store, w.keys)
			if bulk {
				w.inBulk(c)
			}
			_, err = c.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{}`))
			wantFault(t, err, "user_unknown")
			u, err := c.CreateUser(t.Context(), call, "u1", []byte(`{"a":1}`))
			if err != nil || string(u.ID) != reserved[0] {
				t.Errorf("created %s, %v; want %s", u.ID, err, reserved)
			}
			if n := w.count(t, "end_user.created"); n != 1 {
				t.Errorf("%d users", n)
			}
		}
	}
}

func TestOfManyWhoCreateAnExternalIDAtOnceOneDoes(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		const racers, rounds = 6, 10
		for round := range rounds {
			external := fmt.Sprint("u", round)
			var made, there, put sync.Map
			var all sync.WaitGroup
			for n := range racers {
				c := w.process(w.store, w.keys)
				if bulk {
					w.inBulk(c)
				}
				all.Go(func() {
					by := call
					if n%3 == 1 {
						by = seeded(call, fmt.Sprint("k", round, n), "b")
					}
					if n%3 == 2 {
						if u, created, err := c.PutUser(t.Context(), by, commands.UserRef("ext:"+external), nil, json.RawMessage(`{}`)); err != nil {
							t.Error(err)
						} else if put.Store(u.ID, true); created {
							made.Store(u.ID, true)
						}
						return
					}
					u, err := c.CreateUser(t.Context(), by, external, []byte(`{}`))
					switch {
					case err == nil:
						made.Store(u.ID, true)
					case fault.Is(err, "user_exists"):
						there.Store(n, true)
					default:
						t.Error(err)
					}
				})
			}
			all.Wait()
			n := 0
			made.Range(func(_, _ any) bool { n++; return true })
			put.Range(func(user, _ any) bool {
				if _, same := made.Load(user); !same {
					t.Errorf("put into %s, whom nobody made", user)
				}
				return true
			})
			if n != 1 {
				t.Errorf("in bulk %t: %d made it", bulk, n)
			}
		}
		if n := w.count(t, "end_user.created"); n != rounds {
			t.Errorf("in bulk %t: %d users of %d external ids", bulk, n, rounds)
		}
	}
}

// The policy has yet to destroy the key.
func TestAnErasureThatCrashedDoesNotKeepTheExternalID(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	first := testkit.Must(w.CreateUser(t.Context(), call, "u1", []byte(`{}`)))(t)
	dying := w.process(mortalStore{w.store, &life{left: 1}}, mortalKeys{w.keys, &life{}})
	if _, err := dying.EraseUser(t.Context(), call, "ext:u1"); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	second, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`))
	if err != nil || second.ID == first.ID {
		t.Errorf("%+v, %v", second, err)
	}
	if lookup, err := w.keys.LookupOf(t.Context(), call.Client, string(first.ID)); err != nil || lookup != nil {
		t.Errorf("the erased one still has %x, %v", lookup, err)
	}
}

func TestAUserIsPut(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	put := func(call commands.Call, ref, external, traits string) (commands.User, bool, error) {
		t.Helper()
		var given *string
		if external != "" {
			given = &external
		}
		return w.PutUser(t.Context(), call, commands.UserRef(ref), given, []byte(traits))
	}
	ok := func(made bool, traits string) func(commands.User, bool, error) commands.User {
		return func(u commands.User, got bool, err error) commands.User {
			t.Helper()
			if err != nil || got != made || u.ExternalID != "u1" || !jsonEqual(t, string(u.Traits), traits) {
				t.Errorf("made %t, %+v, %v; want %t and %s", got, u, err, made, traits)
			}
			return u
		}
	}
	refused := func(code string) func(commands.User, bool, error) {
		return func(_ commands.User, _ bool, err error) { t.Helper(); wantFault(t, err, code) }
	}
	any, none, two, never := call, call, call, call
	any.IfExists, none.IfNoneMatch = true, true
	refused("stale")(put(any, "ext:u1", "", `{}`))
	never.IfMatch = new(eventstore.Revision)
	*never.IfMatch = -1 // of a tag that no user has
	refused("stale")(put(never, "ext:u1", "", `{}`))
	refused("invalid")(put(call, "ext:u1", "u2", `{}`))
	refused("user_unknown")(put(call, "usr_00000000000000000000000001", "", `{}`))
	u := ok(true, `{"a":1}`)(put(none, "ext:u1", "u1", `{"a":1}`))
	_, _, err := put(none, "ext:u1", "", `{}`)
	if f := fault.As(err); f == nil || f.Code != "stale" || f.Detail != "There is such a user already." {
		t.Errorf("%v", err)
	}
	ok(false, `{"a":1}`)(put(call, "ext:u1", "", `{"a":1}`))
	ok(false, `{"b":2}`)(put(any, "ext:u1", "", `{"b":2}`))
	ok(false, `{"c":3}`)(put(call, string(u.ID), "u1", `{"c":3}`))
	refused("invalid")(put(call, string(u.ID), "u2", `{}`))
	two.IfMatch = new(eventstore.Revision)
	*two.IfMatch = 2
	ok(false, `{"d":4}`)(put(two, "ext:u1", "", `{"d":4}`))
	refused("stale")(put(two, "ext:u1", "", `{"e":5}`))
	if _, err := w.EraseUser(t.Context(), call, "ext:u1"); err != nil {
		t.Fatal(err)
	}
	refused("user_unknown")(put(call, string(u.ID), "", `{}`))
	if anew := ok(true, `{}`)(put(call, "ext:u1", "", `{}`)); anew.ID == u.ID {
		t.Error("the erased one came back")
	}
}
