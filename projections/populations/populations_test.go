package populations_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/traits"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/populations"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

// crowd is a client's users, as the test knows them.
type crowd struct {
	*projectionstest.Fixture
	populations *patient
	traits      map[id.User]string
}

func newCrowd(t *testing.T, users int) *crowd {
	t.Helper()
	w := projectionstest.New(t)
	w.Follow(projections.Users{}, projections.TraitSchemas{})
	c := &crowd{w, populationsOf(w), map[id.User]string{}}
	for n := range users {
		c.join(fmt.Sprint("person ", n), n)
	}
	return c
}

// patient waits for what the populations of a process of its own are behind with,
// as the edge does.
type patient struct{ *populations.Populations }

func (p *patient) Top(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) (found []event.MatchComputed, err error) {
	err = fault.Await(ctx, func(ctx context.Context) (err error) {
		found, err = p.Populations.Top(ctx, client, user, within, limit)
		return err
	})
	return found, err
}

func (p *patient) Pair(ctx context.Context, client id.Client, user, other id.User, within event.Within) (m event.MatchComputed, ok bool, err error) {
	err = fault.Await(ctx, func(ctx context.Context) (err error) {
		m, ok, err = p.Populations.Pair(ctx, client, user, other, within)
		return err
	})
	return m, ok, err
}

func (p *patient) Schema(ctx context.Context, client id.Client) (s populations.TraitSchema, err error) {
	err = fault.Await(ctx, func(ctx context.Context) (err error) {
		s, err = p.Populations.Schema(ctx, client)
		return err
	})
	return s, err
}

func populationsOf(w *projectionstest.Fixture) *patient {
	w.Helper()
	return populationsIn(w, 1<<30)
}

// populationsIn are those of a process that has so many bytes for them.
func populationsIn(w *projectionstest.Fixture, memory int64) *patient {
	w.Helper()
	p := testkit.Must(populations.New(w.Reader, memory))(w)
	p.Logger = slog.New(slog.DiscardHandler)
	p.Record = w.RecordSchema
	return &patient{p}
}

// To find that there are too many takes as much memory as a client may have, which others give up.
func TestTooManyUsersAreNotReadAgainUntilTheClientDecidesOtherwise(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 1)
	c.populations = populationsIn(c.Fixture, 30_000)
	var ada id.User
	for n := range 20 {
		likes := make([]string, 300)
		for i := range likes {
			likes[i] = strconv.Itoa(i + n)
		}
		ada = c.Create(c.Acme, fmt.Sprint("fond ", n), fmt.Sprintf(`{"age":%d,"likes":["%s"]}`, n, strings.Join(likes, `","`)))
	}
	refused := func(why string) {
		t.Helper()
		if _, err := c.populations.Top(t.Context(), c.Acme, ada, event.Within{}, 1); !fault.Is(err, "population_too_large") {
			t.Fatalf("%s: %v", why, err)
		}
	}
	refused("at first")
	rename := func(from, to string) {
		t.Helper()
		if _, err := c.Pool.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE users_%d.%s RENAME TO %s`, projections.Users{}.Version(), from, to)); err != nil {
			t.Fatal(err)
		}
	}
	rename("users", "elsewhere")
	refused("while nobody can read the users")
	rename("elsewhere", "users")
	ignore := true
	c.override(map[string]event.TraitOverride{"likes": {Ignore: &ignore}})
	if matches := c.top(ada, 1); len(matches) != 1 {
		t.Errorf("without what they like: %v", matches)
	}
}

func (c *crowd) join(external string, age int) id.User {
	c.Helper()
	text := ages(age)
	user := c.Create(c.Acme, external, text)
	c.traits[user] = text
	return user
}

func ages(age int) string { return fmt.Sprintf(`{"age":%d,"town":"town %d"}`, age, age%4) }

func (c *crowd) top(user id.User, limit int) []event.MatchComputed {
	c.Helper()
	return testkit.Must(c.populations.Top(c.Context(), c.Acme, user, event.Within{}, limit))(c)
}

func matched(matches []event.MatchComputed) (users []id.User) {
	for _, m := range matches {
		users = append(users, m.MatchedUser)
	}
	return users
}

// asNew is what a population that has just read everything computes.
func (c *crowd) asNew(user id.User, limit int) []event.MatchComputed {
	c.Helper()
	return testkit.Must(populationsOf(c.Fixture).Top(c.Context(), c.Acme, user, event.Within{}, limit))(c)
}

func TestMatchesAreThoseOfTheUsersAsTheyAre(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 30)
	ada := c.join("ada", 40)
	flat := map[string]traits.Flat{}
	for user, text := range c.traits {
		flat[string(user)] = testkit.Must(traits.Flatten([]byte(text)))(t)
	}
	population := matching.New(traits.Infer(func(yield func(string, traits.Flat) bool) {
		for user, f := range flat {
			if !yield(user, f) {
				return
			}
		}
	}, nil))
	for user, f := range flat {
		population.Put(user, f)
	}
	want := testkit.Must(population.Top(matching.Query{User: string(ada), Limit: 5}))(t)
	got := c.top(ada, 5)
	if len(got) != 5 {
		t.Fatalf("%d matches", len(got))
	}
	for i, m := range got {
		if string(m.MatchedUser) != want[i].User || m.Score != want[i].Score || m.User != ada || len(m.Explanation) != len(want[i].Terms) {
			t.Errorf("match %d is %+v, not %+v", i, m, want[i])
		}
	}
	if !slices.IsSortedFunc(got, func(a, b event.MatchComputed) int { return cmp.Compare(b.Score, a.Score) }) {
		t.Errorf("not the best first: %+v", got)
	}
	pair, ok, err := c.populations.Pair(t.Context(), c.Acme, ada, got[0].MatchedUser, event.Within{})
	if diff := gocmp.Diff(got[0], pair, gocmp.AllowUnexported(event.MatchComputed{})); err != nil || !ok || diff != "" {
		t.Errorf("the pair alone: %t %v (-top +pair):\n%s", ok, err, diff)
	}
	users := testkit.Must(c.populations.Candidates(t.Context(), c.Acme, ada, event.Within{}, 5))(t)
	if !slices.Equal(users, matched(got)) {
		t.Errorf("candidates are %v, not %v", users, matched(got))
	}
	again := testkit.Must(c.populations.Explained(t.Context(), c.Acme, ada, event.Within{}, users))(t)
	if diff := gocmp.Diff(got, again, gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
		t.Errorf("the candidates alone (-top +explained):\n%s", diff)
	}
	other := map[string]event.TraitOverride{"age": {Weight: new(3.)}}
	users, ok, err = c.populations.CandidatesUnder(t.Context(), c.Acme, ada, event.Within{}, other, 5)
	under, okToo, errToo := c.populations.Under(t.Context(), c.Acme, ada, event.Within{}, other, nil, 5)
	if err != nil || errToo != nil || !ok || !okToo || len(under) != 5 || !slices.Equal(users, matched(under)) {
		t.Errorf("under another decision: candidates %v, matches %v: %v, %v", users, matched(under), err, errToo)
	}
	some, ok, err := c.populations.Under(t.Context(), c.Acme, ada, event.Within{}, other, users[1:3], 5)
	if diff := gocmp.Diff(under[1:3], some, gocmp.AllowUnexported(event.MatchComputed{})); err != nil || !ok || diff != "" {
		t.Errorf("some of them alone: %t %v (-all +some):\n%s", ok, err, diff)
	}
}

func TestANewUserCanBeMatchedAtOnceAndAnErasedOneIsGoneAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	ada := c.join("ada", 100)
	c.top(ada, 5)
	for n := range 25 { // beyond a fifth of all, so that the schema is inferred again on the way
		twin := c.join(fmt.Sprint("twin ", n), 100)
		if !slices.Contains(matched(c.top(ada, 100)), twin) {
			t.Fatalf("twin %d is not matched right after its creation", n)
		}
		if len(c.top(twin, 3)) != 3 {
			t.Fatalf("twin %d has no matches of its own", n)
		}
		if n%3 == 0 {
			c.Erase(c.Acme, twin)
			delete(c.traits, twin)
			if slices.Contains(matched(c.top(ada, 100)), twin) {
				t.Fatalf("twin %d is matched after its erasure", n)
			}
			_, err := c.populations.Top(t.Context(), c.Acme, twin, event.Within{}, 3)
			projectionstest.WantFault(t, "user_unknown", err)
			_, _, err = c.populations.Pair(t.Context(), c.Acme, ada, twin, event.Within{})
			projectionstest.WantFault(t, "user_unknown", err)
		}
	}
	if got, want := len(c.top(ada, 100)), len(c.traits)-1; got != want {
		t.Errorf("%d others are matched, not %d", got, want)
	}
}

// TestAKeyIsDestroyedBeforeTheErasureIsKnown learns the schema, and then what
// has changed, in the moment between the two.
func TestAKeyIsDestroyedBeforeTheErasureIsKnown(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	ada := c.join("ada", 20) // alike in something to all others
	for _, moment := range []string{"as the population is read", "after that"} {
		gone := c.join(moment, 100)
		if err := c.EventLog.Vault.Destroy(t.Context(), c.Acme, string(gone)); err != nil {
			t.Fatal(err)
		}
		if got := matched(c.top(ada, 100)); len(got) != 40 || slices.Contains(got, gone) {
			t.Errorf("%s: %d are matched, not 40", moment, len(got))
		}
	}
}

func TestChangedTraitsCountAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	ada, bob := c.join("ada", 10), c.join("bob", 39)
	before, _, err := c.populations.Pair(t.Context(), c.Acme, ada, bob, event.Within{})
	if err != nil {
		t.Fatal(err)
	}
	c.Change(c.Acme, bob, ages(10))
	after, ok, err := c.populations.Pair(t.Context(), c.Acme, ada, bob, event.Within{})
	if err != nil || !ok || after.Score <= before.Score || after.Score != 1 {
		t.Errorf("after bob became like ada: %v, before %v (%t %v)", after.Score, before.Score, ok, err)
	}
	c.Change(c.Acme, bob, `{"nothing in common":true}`)
	if _, ok, err := c.populations.Pair(t.Context(), c.Acme, ada, bob, event.Within{}); ok || err != nil {
		t.Errorf("users who share no trait are a match: %v", err)
	}
}

func TestAfterManyChangesTheSchemaIsLearntAnew(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 10)
	ada, bob := c.join("ada", 1), c.join("bob", 2)
	c.top(ada, 3)
	for user := range c.traits { // a trait that the first schema cannot know
		c.Change(c.Acme, user, fmt.Sprintf(`{"colour":"colour %d"}`, len(user)%2))
	}
	got := c.top(ada, 20)
	if diff := gocmp.Diff(c.asNew(ada, 20), got, gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
		t.Errorf("(-new +kept):\n%s", diff)
	}
	if len(got) != len(c.traits)-1 || got[0].Explanation[0].Trait != "colour" {
		t.Errorf("not matched by the new trait: %+v", got)
	}
	if !slices.Contains(matched(got), bob) {
		t.Error("bob is missing")
	}
}

func TestPercentilesWithinALayerGoByTheWeightsOfNow(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	c.Follow(projections.Consent{})
	within := event.Within{Layer: c.Define(c.Acme, "a layer"), TraitPaths: []string{"age", "town"}}
	var ada id.User
	for user := range c.traits {
		ada = user
		c.Grant(c.Acme, within.Layer, user, true)
	}
	top := func(p *patient) []event.MatchComputed {
		return testkit.Must(p.Top(t.Context(), c.Acme, ada, within, 100))(t)
	}
	top(c.populations)
	c.Record(c.Acme, "traitschema-"+string(c.Acme), event.TraitSchemaOverridden{
		Overrides: map[string]event.TraitOverride{"age": {Weight: new(0.01)}},
	})
	if diff := gocmp.Diff(top(populationsOf(c.Fixture)), top(c.populations), gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
		t.Errorf("(-of another process +of this one):\n%s", diff)
	}
}

// TestWhatAFailoverLostIsForgotten has a server take over that lacks a user, and
// holds a withdrawal where a grant was.
func TestWhatAFailoverLostIsForgotten(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 0)
	c.Follow(projections.Consent{})
	within := event.Within{Layer: c.Define(c.Acme, "a layer"), TraitPaths: []string{"age", "town"}}
	var users []id.User
	for n := range 10 {
		users = append(users, c.join(fmt.Sprint("person ", n), 20))
		c.Grant(c.Acme, within.Layer, users[n], true)
	}
	ada, lost, withdrawn := users[0], users[1], users[2]
	others := func() []id.User {
		return matched(testkit.Must(c.populations.Top(t.Context(), c.Acme, ada, within, 100))(t))
	}
	if got := others(); len(got) != 9 {
		t.Fatalf("%d others", len(got))
	}
	c.exec(`DELETE FROM users WHERE id = $1`, lost)
	c.exec(`UPDATE consents SET granted = false WHERE user_id = $1`, withdrawn)
	c.populations.Reread(projector.NewProgress(c.Pool, slog.New(slog.DiscardHandler)))
	testkit.Eventually(t, "two are gone", func() bool { return len(others()) == 7 })
	if got := others(); slices.Contains(got, lost) || slices.Contains(got, withdrawn) {
		t.Errorf("%s or %s is among %v", lost, withdrawn, got)
	}
	top := testkit.Must(c.populations.Top(t.Context(), c.Acme, ada, event.Within{}, 100))(t)
	if got := matched(top); len(got) != 8 || slices.Contains(got, lost) {
		t.Errorf("%s is among %v", lost, got)
	}
}

func TestClientsAreKeptApart(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 5)
	ada := c.join("ada", 1)
	other := c.Create(c.Bolt, "other", ages(1))
	if slices.Contains(matched(c.top(ada, 100)), other) {
		t.Error("a user of another client is matched")
	}
	_, err := c.populations.Top(t.Context(), c.Bolt, ada, event.Within{}, 1)
	projectionstest.WantFault(t, "user_unknown", err)
	_, _, err = c.populations.Pair(t.Context(), c.Acme, ada, other, event.Within{})
	projectionstest.WantFault(t, "user_unknown", err)
}

// TestManyMayAskWhileUsersComeAndGo has each caller find what it wrote.
func TestManyMayAskWhileUsersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 20)
	ada := c.join("ada", 100)
	var callers sync.WaitGroup
	var alive atomic.Int64
	for n := range 8 {
		callers.Go(func() {
			for i := range 8 {
				external := fmt.Sprintf("caller %d person %d", n, i)
				user := id.Next[id.User](id.Random(rand.Reader))
				if _, err := c.Append(c.Acme, projectionstest.UserStream(c.Acme, user), event.EndUserCreated{
					User: user, ExternalID: event.Private([]byte(external)), Traits: event.Private([]byte(ages(100))),
				}); err != nil {
					t.Error(err)
					return
				}
				found, err := c.populations.Top(t.Context(), c.Acme, ada, event.Within{}, 100)
				if err != nil || !slices.Contains(matched(found), user) {
					t.Errorf("%s is not matched: %v", external, err)
					return
				}
				if i%2 == 0 {
					alive.Add(1)
					continue
				}
				_, err = c.Append(c.Acme, projectionstest.UserStream(c.Acme, user), event.EndUserErased{User: user})
				if err = errors.Join(err, c.EventLog.Vault.Destroy(t.Context(), c.Acme, string(user))); err != nil {
					t.Error(err)
					return
				}
				if found, err = c.populations.Top(t.Context(), c.Acme, ada, event.Within{}, 100); err != nil || slices.Contains(matched(found), user) {
					t.Errorf("%s is still matched: %v", external, err)
					return
				}
			}
		})
	}
	callers.Wait()
	if got, want := len(c.top(ada, 100)), 20+int(alive.Load()); got != want {
		t.Errorf("%d others are matched, not %d", got, want)
	}
}

func TestAnErrorOnTheWayLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	ada := c.join("ada", 100)
	others := len(c.traits) - 1
	for name, trouble := range map[string]struct{ begin, end func() }{
		"a model that has stopped": {
			func() {
				c.exec(`INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ('users_3', $1, '', '', '')`, c.Acme)
			},
			func() { c.exec(`DELETE FROM quarantine`) },
		},
		"a row that cannot be opened": {
			func() {
				c.exec(`UPDATE users_3.users SET traits_event = 'evt_other' || traits_event WHERE id = $1`, ada)
			},
			func() {
				c.exec(`UPDATE users_3.users SET traits_event = replace(traits_event, 'evt_other', '') WHERE id = $1`, ada)
			},
		},
		"a table that is away": {
			func() { c.exec(`ALTER TABLE users_3.users RENAME TO away`) },
			func() { c.exec(`ALTER TABLE users_3.away RENAME TO users`) },
		},
	} {
		for _, known := range []bool{false, true} { // whether the population is in memory
			if !known {
				c.populations = populationsOf(c.Fixture)
			}
			before := c.join(fmt.Sprint("before ", name, known), 100)
			if known {
				c.Change(c.Acme, ada, ages(100)) // what cannot be read is among the changes
			}
			testkit.Must(c.Users().Get(t.Context(), c.Acme, false, before))(t)
			trouble.begin()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if _, err := c.populations.Top(ctx, c.Acme, ada, event.Within{}, 100); err == nil {
				t.Errorf("%s (in memory: %t): no error", name, known)
			}
			cancel()
			trouble.end()
			after := c.join(fmt.Sprint("after ", name, known), 100)
			others += 2
			got := matched(c.top(ada, 100))
			if len(got) != others || !slices.Contains(got, before) || !slices.Contains(got, after) {
				t.Errorf("%s (in memory: %t): %d others are matched, not %d", name, known, len(got), others)
			}
		}
	}
}

func TestTraitsThatCannotBeReadStopOneClientUntilTheyAreMended(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	ada := c.join("ada", 100)
	c.top(ada, 1)
	first := c.join("first", 100)
	odd := c.Create(c.Acme, "odd", `["no object"]`) // what no command records
	last := c.join("last", 100)
	for range 2 {
		if _, err := c.populations.Top(t.Context(), c.Acme, ada, event.Within{}, 100); !errors.Is(err, traits.ErrNotObject) {
			t.Errorf("the error is %v", err)
		}
	}
	other := c.Create(c.Bolt, "other", ages(1))
	if _, err := c.populations.Top(t.Context(), c.Bolt, other, event.Within{}, 1); err != nil {
		t.Errorf("another client: %v", err)
	}
	c.Change(c.Acme, odd, ages(100))
	got := matched(c.top(ada, 100))
	for _, user := range []id.User{first, odd, last} {
		if !slices.Contains(got, user) {
			t.Errorf("%s is not matched", user)
		}
	}
}

func (c *crowd) exec(sql string, args ...any) {
	c.Helper()
	if _, err := c.Pool.Exec(c.Context(), sql, args...); err != nil {
		c.Fatal(err)
	}
}

func TestUsersWhoFillSeveralPagesAreCompared(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 0)
	large := `{"about":"` + strings.Repeat("x", 250<<10) + `"}`
	var ids []id.User
	for i := range 60 {
		ids = append(ids, c.Create(c.Acme, fmt.Sprint(i), large))
	}
	for _, user := range ids {
		if _, _, err := c.populations.Pair(t.Context(), c.Acme, ids[0], user, event.Within{}); err != nil {
			t.Fatal(err)
		}
	}
}
