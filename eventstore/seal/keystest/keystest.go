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

// Run runs the suite. Each call of open gives an empty table.
func Run(t *testing.T, open func(t *testing.T) seal.Keys) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, seal.Keys){
		"a root key that was never made is not found":          noRoot,
		"the first root key of a kind and client counts":       firstRoot,
		"rewrapping touches only the keys it names":            rewrap,
		"a subject key that was never made is not found":       noSubject,
		"the first key of a subject counts":                    firstSubject,
		"a destroyed key is a tombstone, and stays one":        destroyed,
		"a subject without a key can be destroyed as well":     destroyedBefore,
		"many makers agree on one key":                         makersAgree,
		"making never brings back what is destroyed meanwhile": makeRacesDestroy,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func noRoot(t *testing.T, keys seal.Keys) {
	if _, err := keys.Root(t.Context(), seal.Pepper, acme); !errors.Is(err, seal.ErrNoKey) {
		t.Fatalf("got %v", err)
	}
}

func firstRoot(t *testing.T, keys seal.Keys) {
	for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
		for _, client := range []id.Client{"", acme} {
			want := key(fmt.Sprintf("%s of %s", kind, client))
			for _, offered := range []seal.WrappedKey{want, key("late")} {
				got, err := keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: client, WrappedKey: offered})
				check(t, got, want, err)
			}
			got, err := keys.Root(t.Context(), kind, client)
			check(t, got, want, err)
		}
	}
}

func rewrap(t *testing.T, keys seal.Keys) {
	for _, client := range []id.Client{acme, bolt} {
		for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
			_, err := keys.MakeRoot(t.Context(), seal.RootKey{Kind: kind, Client: client, WrappedKey: key("k")})
			check(t, 0, 0, err)
		}
	}
	if found, err := keys.RootsNotUnder(t.Context(), "above", 10); err != nil || len(found) != 0 {
		t.Fatalf("all are under it, yet found %d, %v", len(found), err)
	}
	if found, err := keys.RootsNotUnder(t.Context(), "new", 3); err != nil || len(found) != 3 {
		t.Fatalf("limit 3: found %d, %v", len(found), err)
	}
	renewed := seal.WrappedKey{ID: "k", Under: "new", Wrapped: []byte("again")}
	stranger := seal.WrappedKey{ID: "other", Under: "new", Wrapped: []byte("again")}
	err := keys.Rewrap(t.Context(), []seal.RootKey{
		{Kind: seal.ClientKey, Client: acme, WrappedKey: renewed},
		{Kind: seal.Pepper, Client: acme, WrappedKey: renewed},
		{Kind: seal.Pepper, Client: bolt, WrappedKey: stranger},
	})
	check(t, 0, 0, err)
	for _, want := range []seal.RootKey{
		{Kind: seal.ClientKey, Client: acme, WrappedKey: renewed},
		{Kind: seal.Pepper, Client: acme, WrappedKey: renewed},
		{Kind: seal.ClientKey, Client: bolt, WrappedKey: key("k")},
		{Kind: seal.Pepper, Client: bolt, WrappedKey: key("k")},
	} {
		got, err := keys.Root(t.Context(), want.Kind, want.Client)
		check(t, got, want.WrappedKey, err)
	}
	if found, err := keys.RootsNotUnder(t.Context(), "new", 10); err != nil || len(found) != 2 {
		t.Fatalf("two are left, yet found %d, %v", len(found), err)
	}
}

func noSubject(t *testing.T, keys seal.Keys) {
	if _, err := keys.Subject(t.Context(), acme, "usr_1"); !errors.Is(err, seal.ErrNoKey) {
		t.Fatalf("got %v", err)
	}
}

func firstSubject(t *testing.T, keys seal.Keys) {
	got, err := keys.MakeSubjects(t.Context(), []seal.SubjectKey{
		{Client: acme, Subject: "usr_1", WrappedKey: key("1")},
		{Client: bolt, Subject: "usr_1", WrappedKey: key("2")},
		{Client: acme, Subject: "usr_1", WrappedKey: key("3")},
	})
	check(t, got, []seal.WrappedKey{key("1"), key("2"), key("1")}, err)
	got, err = keys.MakeSubjects(t.Context(), []seal.SubjectKey{
		{Client: acme, Subject: "usr_2", WrappedKey: key("4")},
		{Client: acme, Subject: "usr_1", WrappedKey: key("5")},
	})
	check(t, got, []seal.WrappedKey{key("4"), key("1")}, err)
	one, err := keys.Subject(t.Context(), bolt, "usr_1")
	check(t, one, key("2"), err)
}

func destroyed(t *testing.T, keys seal.Keys) {
	mine := []seal.SubjectKey{{Client: acme, Subject: "usr_1", WrappedKey: key("1")}}
	_, err := keys.MakeSubjects(t.Context(), append(mine,
		seal.SubjectKey{Client: bolt, Subject: "usr_1", WrappedKey: key("2")}))
	check(t, 0, 0, err)
	for range 2 {
		check(t, 0, 0, keys.Destroy(t.Context(), acme, "usr_1"))
		got, err := keys.MakeSubjects(t.Context(), mine)
		checkTombstone(t, got[0], err)
	}
	got, err := keys.Subject(t.Context(), acme, "usr_1")
	checkTombstone(t, got, err)
	got, err = keys.Subject(t.Context(), bolt, "usr_1")
	check(t, got, key("2"), err)
}

func destroyedBefore(t *testing.T, keys seal.Keys) {
	check(t, 0, 0, keys.Destroy(t.Context(), acme, "usr_1"))
	got, err := keys.MakeSubjects(t.Context(),
		[]seal.SubjectKey{{Client: acme, Subject: "usr_1", WrappedKey: key("1")}})
	check(t, len(got), 1, err)
	checkTombstone(t, got[0], nil)
}

func makersAgree(t *testing.T, keys seal.Keys) {
	const makers, subjects = 8, 50
	answers := make([][]seal.WrappedKey, makers)
	var all sync.WaitGroup
	for m := range makers {
		all.Go(func() {
			offers := make([]seal.SubjectKey, subjects)
			for s := range subjects {
				at := (s*(m+1) + m) % subjects // another order for each maker
				offers[s] = seal.SubjectKey{
					Client: acme, Subject: fmt.Sprint("usr_", at), WrappedKey: key(fmt.Sprint(m, " ", at)),
				}
			}
			got, err := keys.MakeSubjects(t.Context(), offers)
			if err != nil {
				t.Errorf("maker %d: %v", m, err)
				return
			}
			answers[m] = make([]seal.WrappedKey, subjects)
			for s, offer := range offers {
				var at int
				fmt.Sscanf(offer.Subject, "usr_%d", &at)
				answers[m][at] = got[s]
			}
		})
	}
	all.Wait()
	for m := range makers {
		for at, got := range answers[m] {
			if len(got.Wrapped) == 0 {
				continue // this maker's order left the subject out
			}
			stored, err := keys.Subject(t.Context(), acme, fmt.Sprint("usr_", at))
			check(t, got, stored, err)
		}
	}
}

func makeRacesDestroy(t *testing.T, keys seal.Keys) {
	const rounds = 30
	for round := range rounds {
		subject := fmt.Sprint("usr_", round)
		var all sync.WaitGroup
		for m := range 4 {
			all.Go(func() {
				for try := range 3 {
					if _, err := keys.MakeSubjects(t.Context(), []seal.SubjectKey{
						{Client: acme, Subject: subject, WrappedKey: key(fmt.Sprint(m, try))},
					}); err != nil {
						t.Errorf("make: %v", err)
					}
				}
			})
		}
		all.Go(func() {
			if err := keys.Destroy(t.Context(), acme, subject); err != nil {
				t.Errorf("destroy: %v", err)
				return
			}
			got, err := keys.Subject(t.Context(), acme, subject)
			if err != nil || len(got.Wrapped) > 0 {
				t.Errorf("right after Destroy there is a key, or: %v", err)
			}
		})
		all.Wait()
		got, err := keys.Subject(t.Context(), acme, subject)
		checkTombstone(t, got, err)
	}
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
