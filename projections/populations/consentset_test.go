package populations_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/projections"
	"kindred/testkit"
)

// Whoever comes, changes, goes, grants a layer and withdraws: those are found under it who grant it
// now.
func TestUnderALayerThoseAreFoundWhoGrantIt(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	c := newCrowd(t, 20)
	c.Follow(projections.Consent{})
	ada := c.join("ada", 40)
	within := [2]event.Within{}
	granted := [2]map[id.User]bool{{}, {}}
	for i := range within {
		within[i] = event.Within{Layer: c.Define(c.Acme, fmt.Sprint("layer ", i)), TraitPaths: [][]string{{"age", "town"}, {"age"}}[i]}
	}
	found := 0
	for n := range 150 {
		users := slices.Sorted(maps.Keys(c.traits))
		user := users[random.IntN(len(users))]
		layer := random.IntN(2)
		switch choice := random.IntN(10); {
		case choice < 5:
			granted[layer][user] = choice > 1
			c.Grant(c.Acme, within[layer].Layer, user, choice > 1)
		case choice < 7:
			c.join(fmt.Sprint("another ", n), random.IntN(90))
		case choice < 9:
			c.traits[user] = ages(random.IntN(90))
			c.Change(c.Acme, user, c.traits[user])
		case user != ada && len(users) > 10:
			c.Erase(c.Acme, user)
			delete(c.traits, user)
		}
		if random.IntN(4) > 0 {
			continue
		}
		matches := testkit.Must(c.populations.Top(t.Context(), c.Acme, ada, within[layer], 200))(t)
		got := matched(matches)
		slices.Sort(got)
		var want []id.User
		for user := range c.traits {
			if user == ada {
				continue
			}
			_, alike, err := c.populations.Pair(t.Context(), c.Acme, ada, user, within[layer]) // who has nothing in common is no match
			if err != nil {
				t.Fatal(err)
			}
			if alike && !granted[layer][user] {
				t.Fatalf("after %d steps %s, who does not grant layer %d, is compared", n, user, layer)
			}
			if alike {
				want = append(want, user)
			}
		}
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Fatalf("after %d steps %d are found under layer %d, and %d grant it and are alike:\n%v\n%v", n, len(got), layer, len(want), got, want)
		}
		others := slices.DeleteFunc(users, func(user id.User) bool { return user == ada || c.traits[user] == "" })
		explained := matched(testkit.Must(c.populations.Explained(t.Context(), c.Acme, ada, within[layer], others))(t))
		if slices.Sort(explained); !slices.Equal(explained, want) {
			t.Fatalf("after %d steps %d of %d are explained under layer %d, not %d", n, len(explained), len(others), layer, len(want))
		}
		found += len(got)
	}
	if found == 0 {
		t.Error("nobody was ever found")
	}
}

// What was forgotten would else take memory that is shared out as free.
func TestWhatWasForgottenIsHeldByNobody(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 20)
	c.Follow(projections.Consent{})
	ada := c.join("ada", 3)
	within := event.Within{Layer: c.Define(c.Acme, "Research"), TraitPaths: []string{"age"}}
	c.Grant(c.Acme, within.Layer, ada, true)
	testkit.Must(c.populations.Top(t.Context(), c.Acme, ada, within, 1))(t)
	users, layers := c.populations.InMemory(c.Acme)

	c.populations.Lose(c.Acme)
	c.top(ada, 1) // another population is in its place, and nobody has asked for the layer there
	testkit.Eventually(t, "the users are gone", func() bool { runtime.GC(); return users.Value() == nil })

	testkit.Must(c.populations.Top(t.Context(), c.Acme, ada, within, 1))(t)
	c.populations.ForgetLayers()
	testkit.Eventually(t, "the consents are gone", func() bool { runtime.GC(); return layers[0].Value() == nil })
	runtime.KeepAlive(c)
}
