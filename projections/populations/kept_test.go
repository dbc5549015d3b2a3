package populations_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/testkit"
)

// Once a part of a filter is kept, matches are narrowed to whom it names, as the users are
// now: who changes, comes or goes is judged before the next answer.
func TestPartsOfFiltersAreKeptUpToDate(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 110)
	ada := c.join("ada", 40)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.populations.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	filter := testkit.Must(rule.Parse(`traits.town == "town 1" && traits.age < 60 && traits.age > viewer.traits.age - 1000`, rule.Pairs))(t)
	within := event.Within{TraitParts: (&rule.Filter{Rule: filter}).TraitParts()}
	if len(within.TraitParts) != 2 {
		t.Fatalf("the trait parts are %q", within.TraitParts)
	}
	narrowed := func() []id.User {
		t.Helper()
		found := matched(testkit.Must(c.populations.Top(t.Context(), c.Acme, ada, within, 200))(t))
		slices.Sort(found)
		return found
	}
	kept := func(within event.Within) (best []event.MatchComputed, ok bool) {
		t.Helper()
		if err := fault.Await(t.Context(), func(ctx context.Context) (err error) {
			best, ok, err = c.populations.TopKept(ctx, c.Acme, ada, within, 200)
			return err
		}); err != nil {
			t.Error(err)
		}
		return best, ok
	}
	named := map[id.User]bool{}
	for user, text := range c.traits {
		var age int
		if _, err := fmt.Sscanf(text, `{"age":%d`, &age); err != nil {
			t.Fatal(err)
		}
		named[user] = age%4 == 1 && age < 60
	}
	want := func(why string) {
		t.Helper()
		var wanted []id.User
		for user, is := range named {
			if is && user != ada {
				wanted = append(wanted, user)
			}
		}
		slices.Sort(wanted)
		if got := narrowed(); !slices.Equal(got, wanted) {
			t.Errorf("%s: %d are found, %d are named", why, len(got), len(wanted))
		}
		if best, ok := kept(within); !ok || len(best) != len(wanted) {
			t.Errorf("%s: of those whom all kept rules name %d are found, %d are named: %v", why, len(best), len(wanted), ok)
		}
	}
	if first := narrowed(); len(first) != 110 {
		t.Errorf("before anything is kept %d are found", len(first))
	}
	if _, ok := kept(event.Within{TraitParts: append(within.TraitParts, `traits.age > 1`)}); ok {
		t.Error("a rule that is not kept is")
	}
	testkit.Eventually(t, "the parts are kept", func() bool { return len(narrowed()) == 15 })
	want("once they are kept")
	var one, other id.User
	for user, is := range named {
		if is {
			one = user
		} else if user != ada {
			other = user
		}
	}
	c.Change(c.Acme, one, ages(2))
	c.Change(c.Acme, other, ages(5))
	named[one], named[other] = false, true
	named[c.join("new", 9)] = true
	want("after changes")
	c.Erase(c.Acme, other)
	delete(named, other)
	want("after an erasure")
}
