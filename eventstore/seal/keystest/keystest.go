// Package keystest is the suite that every key table passes: what was made is
// found, exactly one of many racing makers counts, and what was destroyed
// never comes back.
package keystest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/eventstore/seal"
)

const (
	acme = id.Client("cli_acme")
	bolt = id.Client("cli_bolt")
)

func key(name string) seal.WrappedKey {
	return seal.WrappedKey{ID: name, Under: "above", Wrapped: []byte("wrapped " + name)}
}

// fixture is one test of the suite on an empty table.
type fixture struct {
	*testing.T
	keys seal.Keys
}

// Run runs the suite. Each call of open gives an empty table.
func Run(t *testing.T, open func(t *testing.T) seal.Keys) {
	t.Helper()
	for name, test := range map[string]func(fixture){
		"a root key that was never made is not found":          fixture.noRoot,
		"the first root key of a kind and client counts":       fixture.firstRoot,
		"rewrapping touches only the keys it names":            fixture.rewrap,
		"rewrapping never brings back what is destroyed":       fixture.rewrapDestroyed,
		"a subject key that was never made is not found":       fixture.noSubject,
		"the first key of a subject counts":                    fixture.firstSubject,
		"a destroyed key is a tombstone, and stays one":        fixture.destroyed,
		"a subject without a key can be destroyed as well":     fixture.destroyedBefore,
		"with a client go all of its keys, and none comes":     fixture.destroyedClient,
		"many makers agree on one key":                         fixture.makersAgree,
		"making never brings back what is destroyed meanwhile": fixture.makeRacesDestroy,
		"a lookup finds one subject, until that is destroyed":  fixture.lookup,
		"of many who race for a lookup one has it":             fixture.lookupRaces,
	} {
		t.Run(name, func(t *testing.T) { test(fixture{t, open(t)}) })
	}
}

func (t fixture) noRoot() {
	if _, err := t.keys.Root(t.Context(), seal.Pepper, acme); !errors.Is(err, seal.ErrNoKey) {
		t.Fatalf("got %v", err)
	}
}

func (t fixture) firstRoot() {
	for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
		for _, client := range []id.Client{"", acme} {
			want := key(fmt.Sprintf("%s of %s", kind, client))
			for _, offered := range []seal.WrappedKey{want, key("late")} {
				got, err := t.keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: client, WrappedKey: offered})
				check(t.T, got, want, err)
			}
			got, err := t.keys.Root(t.Context(), kind, client)
			check(t.T, got, want, err)
		}
	}
}

func (t fixture) rewrap() {
	for _, client := range []id.Client{acme, bolt} {
		for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
			_, err := t.keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: client, WrappedKey: key("k")})
			check(t.T, 0, 0, err)
		}
	}
	if found, err := t.keys.RootsNotUnder(t.Context(), "above", 10); err != nil || len(found) != 0 {
		t.Fatalf("all are under it, yet found %d, %v", len(found), err)
	}
	if found, err := t.keys.RootsNotUnder(t.Context(), "new", 3); err != nil || len(found) != 3 {
		t.Fatalf("limit 3: found %d, %v", len(found), err)
	}
	renewed := seal.WrappedKey{ID: "k", Under: "new", Wrapped: []byte("again")}
	stranger := seal.WrappedKey{ID: "other", Under: "new", Wrapped: []byte("again")}
	err := t.keys.Rewrap(t.Context(), []seal.RootKey{
		{Kind: seal.ClientKey, Client: acme, WrappedKey: renewed},
		{Kind: seal.Pepper, Client: acme, WrappedKey: renewed},
		{Kind: seal.Pepper, Client: bolt, WrappedKey: stranger},
	})
	check(t.T, 0, 0, err)
	for _, want := range []seal.RootKey{
		{Kind: seal.ClientKey, Client: acme, WrappedKey: renewed},
		{Kind: seal.Pepper, Client: acme, WrappedKey: renewed},
		{Kind: seal.ClientKey, Client: bolt, WrappedKey: key("k")},
		{Kind: seal.Pepper, Client: bolt, WrappedKey: key("k")},
	} {
		got, err := t.keys.Root(t.Context(), want.Kind, want.Client)
		check(t.T, got, want.WrappedKey, err)
	}
	if found, err := t.keys.RootsNotUnder(t.Context(), "new", 10); err != nil || len(found) != 2 {
		t.Fatalf("two are left, yet found %d, %v", len(found), err)
	}
}

// The keys were listed before their client was deleted.
func (t fixture) rewrapDestroyed() {
	var listed []seal.RootKey
	for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
		_, err := t.keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: acme, WrappedKey: key("k")})
		check(t.T, 0, 0, err)
		listed = append(listed, seal.RootKey{Kind: kind, Client: acme, WrappedKey: seal.WrappedKey{ID: "k", Under: "new", Wrapped: []byte("again")}})
	}
	for more := true; more; {
		var err error
		if more, err = t.keys.DestroyClient(t.Context(), acme); err != nil {
			t.Fatal(err)
		}
	}
	if err := t.keys.Rewrap(t.Context(), listed); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
		got, err := t.keys.Root(t.Context(), kind, acme)
		checkTombstone(t.T, got, err)
	}
}

func (t fixture) noSubject() {
	if _, err := t.keys.Subject(t.Context(), acme, "usr_1"); !errors.Is(err, seal.ErrNoKey) {
		t.Fatalf("got %v", err)
	}
}

func (t fixture) firstSubject() {
	got, err := t.keys.MakeSubjects(t.Context(), []seal.SubjectKey{
		{Client: acme, Subject: "usr_1", WrappedKey: key("1")},
		{Client: bolt, Subject: "usr_1", WrappedKey: key("2")},
		{Client: acme, Subject: "usr_1", WrappedKey: key("3")},
	})
	check(t.T, wrapped(got), []seal.WrappedKey{key("1"), key("2"), key("1")}, err)
	got, err = t.keys.MakeSubjects(t.Context(), []seal.SubjectKey{
		{Client: acme, Subject: "usr_2", WrappedKey: key("4")},
		{Client: acme, Subject: "usr_1", WrappedKey: key("5")},
	})
	check(t.T, wrapped(got), []seal.WrappedKey{key("4"), key("1")}, err)
	one, err := t.keys.Subject(t.Context(), bolt, "usr_1")
	check(t.T, one, key("2"), err)
}

func (t fixture) destroyed() {
	mine := []seal.SubjectKey{{Client: acme, Subject: "usr_1", WrappedKey: key("1")}}
	_, err := t.keys.MakeSubjects(t.Context(), append(mine,
		seal.SubjectKey{Client: bolt, Subject: "usr_1", WrappedKey: key("2")}))
	check(t.T, 0, 0, err)
	for range 2 {
		check(t.T, 0, 0, t.keys.Destroy(t.Context(), acme, "usr_1"))
		got, err := t.keys.MakeSubjects(t.Context(), mine)
		checkTombstone(t.T, got[0].WrappedKey, err)
	}
	got, err := t.keys.Subject(t.Context(), acme, "usr_1")
	checkTombstone(t.T, got, err)
	got, err = t.keys.Subject(t.Context(), bolt, "usr_1")
	check(t.T, got, key("2"), err)
}

func (t fixture) destroyedBefore() {
	check(t.T, 0, 0, t.keys.Destroy(t.Context(), acme, "usr_1"))
	got, err := t.keys.MakeSubjects(t.Context(),
		[]seal.SubjectKey{{Client: acme, Subject: "usr_1", WrappedKey: key("1")}})
	check(t.T, len(got), 1, err)
	checkTombstone(t.T, got[0].WrappedKey, nil)
}

func (t fixture) destroyedClient() {
	under := func(name, root string) seal.WrappedKey {
		return seal.WrappedKey{ID: name, Under: root, Wrapped: []byte("wrapped " + name)}
	}
	ada := bytes.Repeat([]byte{1}, 16)
	theirs := seal.SubjectKey{Client: bolt, Subject: "usr_1", Lookup: ada, WrappedKey: under("3", "b")}
	subjects := []seal.SubjectKey{
		{Client: acme, Subject: "usr_1", Lookup: ada, WrappedKey: under("1", "a")},
		{Client: acme, Subject: "whk_1", WrappedKey: under("2", "a")},
		theirs,
	}
	for root, client := range map[string]id.Client{"a": acme, "b": bolt} {
		for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
			_, err := t.keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: client, WrappedKey: key(root)})
			check(t.T, 0, 0, err)
		}
	}
	_, err := t.keys.MakeSubjects(t.Context(), subjects)
	check(t.T, 0, 0, err)
	for range 2 {
		for more := true; more; {
			more, err = t.keys.DestroyClient(t.Context(), acme)
			check(t.T, 0, 0, err)
		}
		for _, one := range subjects[:2] {
			got, err := t.keys.Subject(t.Context(), acme, one.Subject)
			checkTombstone(t.T, got, err)
		}
		for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
			got, err := t.keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: acme, WrappedKey: key("late")})
			checkTombstone(t.T, got, err)
		}
		late := []seal.SubjectKey{{Client: bolt, Subject: "usr_late", WrappedKey: under("4", "b")}, {Client: acme, Subject: "usr_late", WrappedKey: under("5", "a")}}
		if _, err := t.keys.MakeSubjects(t.Context(), late); !errors.Is(err, seal.ErrDeleted) {
			t.Fatalf("a key of a client that was deleted: %v", err)
		}
		if _, err := t.keys.Subject(t.Context(), acme, "usr_late"); !errors.Is(err, seal.ErrNoKey) {
			t.Fatalf("a key of a client that was deleted: %v", err)
		}
		stands, err := t.keys.MakeSubjects(t.Context(), subjects)
		check(t.T, 0, 0, err)
		checkTombstone(t.T, stands[0].WrappedKey, nil)
	}
	found, err := t.keys.Find(t.Context(), []seal.Lookup{{Client: acme, Value: ada}})
	check(t.T, found, []seal.SubjectKey{{}}, err)
	roots, err := t.keys.RootsNotUnder(t.Context(), "new", 10)
	check(t.T, len(roots), 2, err)
	got, err := t.keys.Subject(t.Context(), bolt, "usr_1")
	check(t.T, got, theirs.WrappedKey, err)
	kept, err := t.keys.Root(t.Context(), seal.ClientKey, bolt)
	check(t.T, kept, key("b"), err)
}

func (t fixture) lookup() {
	ada, bob := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	find := func(want ...seal.SubjectKey) {
		t.Helper()
		for i := range want {
			want[i].Lookup = nil
		}
		got, err := t.keys.Find(t.Context(), []seal.Lookup{{Client: acme, Value: bob}, {Client: acme, Value: ada}})
		check(t.T, got, want, err)
	}
	none := seal.SubjectKey{}
	find(none, none)
	first := seal.SubjectKey{Client: acme, Subject: "usr_1", Lookup: ada, WrappedKey: key("1")}
	later := seal.SubjectKey{Client: acme, Subject: "usr_2", Lookup: ada, WrappedKey: key("2")}
	other := seal.SubjectKey{Client: acme, Subject: "usr_3", Lookup: bob, WrappedKey: key("3")}
	plain := seal.SubjectKey{Client: acme, Subject: "mem_1", WrappedKey: key("4")}
	got, err := t.keys.MakeSubjects(t.Context(), []seal.SubjectKey{first, later, plain})
	check(t.T, got, []seal.SubjectKey{first, first, plain}, err)
	got, err = t.keys.MakeSubjects(t.Context(), []seal.SubjectKey{other, later})
	check(t.T, got, []seal.SubjectKey{other, first}, err)
	find(other, first)
	if _, err := t.keys.Subject(t.Context(), acme, "usr_2"); !errors.Is(err, seal.ErrNoKey) {
		t.Fatalf("the key of who lost was made: %v", err)
	}
	found, err := t.keys.Find(t.Context(), []seal.Lookup{{Client: bolt, Value: ada}})
	check(t.T, found, []seal.SubjectKey{none}, err)
	of, err := t.keys.LookupOf(t.Context(), acme, "usr_1")
	check(t.T, of, ada, err)

	check(t.T, 0, 0, t.keys.Destroy(t.Context(), acme, "usr_1"))
	find(other, none)
	of, err = t.keys.LookupOf(t.Context(), acme, "usr_1")
	check(t.T, of, nil, err)
	got, err = t.keys.MakeSubjects(t.Context(), []seal.SubjectKey{later})
	check(t.T, got, []seal.SubjectKey{later}, err)
	find(other, later)
}

func (t fixture) lookupRaces() {
	const makers, lookups = 8, 50
	answers := make([][]seal.SubjectKey, makers)
	var all sync.WaitGroup
	for m := range makers {
		all.Go(func() {
			offers := make([]seal.SubjectKey, lookups)
			for i := range offers {
				at := (i + m*7) % lookups // another order for each maker
				subject := fmt.Sprintf("usr_%d_%d", (at*31+m)%lookups, m)
				offers[i] = seal.SubjectKey{Client: acme, Subject: subject, Lookup: fmt.Appendf(nil, "%016d", at), WrappedKey: key(subject)}
			}
			got, err := t.keys.MakeSubjects(t.Context(), offers)
			if err != nil {
				t.Errorf("maker %d: %v", m, err)
				return
			}
			answers[m] = make([]seal.SubjectKey, lookups)
			for i := range offers {
				answers[m][(i+m*7)%lookups] = got[i]
			}
		})
	}
	all.Wait()
	for m := range makers {
		for at, got := range answers[m] {
			found, err := t.keys.Find(t.Context(), []seal.Lookup{{Client: acme, Value: fmt.Appendf(nil, "%016d", at)}})
			got.Lookup = nil
			check(t.T, found, []seal.SubjectKey{got}, err)
		}
	}
}

func (t fixture) makersAgree() {
	const makers, subjects = 8, 50
	answers := make([][]seal.WrappedKey, makers)
	var all sync.WaitGroup
	for m := range makers {
		all.Go(func() {
			offers := make([]seal.SubjectKey, subjects)
			for s := range subjects {
				at := (s + m*7) % subjects // another order for each maker
				offers[s] = seal.SubjectKey{
					Client: acme, Subject: fmt.Sprint("usr_", at), WrappedKey: key(fmt.Sprint(m, " ", at)),
				}
			}
			got, err := t.keys.MakeSubjects(t.Context(), offers)
			if err != nil {
				t.Errorf("maker %d: %v", m, err)
				return
			}
			answers[m] = make([]seal.WrappedKey, subjects)
			for s := range offers {
				answers[m][(s+m*7)%subjects] = got[s].WrappedKey
			}
		})
	}
	all.Wait()
	for m := range makers {
		for at, got := range answers[m] {
			stored, err := t.keys.Subject(t.Context(), acme, fmt.Sprint("usr_", at))
			check(t.T, got, stored, err)
		}
	}
}

func (t fixture) makeRacesDestroy() {
	const rounds = 30
	for round := range rounds {
		subject := fmt.Sprint("usr_", round)
		var all sync.WaitGroup
		for m := range 4 {
			all.Go(func() {
				for try := range 3 {
					if _, err := t.keys.MakeSubjects(t.Context(), []seal.SubjectKey{
						{Client: acme, Subject: subject, WrappedKey: key(fmt.Sprint(m, try))},
					}); err != nil {
						t.Errorf("make: %v", err)
					}
				}
			})
		}
		all.Go(func() {
			if err := t.keys.Destroy(t.Context(), acme, subject); err != nil {
				t.Errorf("destroy: %v", err)
				return
			}
			got, err := t.keys.Subject(t.Context(), acme, subject)
			if err != nil || len(got.Wrapped) > 0 {
				t.Errorf("right after Destroy there is a key, or: %v", err)
			}
		})
		all.Wait()
		got, err := t.keys.Subject(t.Context(), acme, subject)
		checkTombstone(t.T, got, err)
	}
}

func wrapped(keys []seal.SubjectKey) []seal.WrappedKey {
	all := make([]seal.WrappedKey, len(keys))
	for i, k := range keys {
		all[i] = k.WrappedKey
	}
	return all
}

func check[T any](t *testing.T, got, want T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("want -, got +:\n%s", diff)
	}
}

func checkTombstone(t *testing.T, got seal.WrappedKey, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Wrapped, nil) {
		t.Fatalf("key %q is still there", got.ID)
	}
}
