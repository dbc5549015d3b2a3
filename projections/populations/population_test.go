package populations_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

// many records events of users, one each, by several writers at once.
func (c *crowd) many(n int, of func(i int) (id.User, event.Event)) {
	c.Helper()
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := w; i < n; i += 16 {
				user, e := of(i)
				if _, err := c.Append(c.Acme, projectionstest.UserStream(c.Acme, user), e); err != nil {
					c.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

// A large population is built anew beside the one that is asked meanwhile.
func TestALargePopulationIsReplacedBehindItsReaders(t *testing.T) {
	t.Parallel()
	const users = 5_200
	c := newCrowd(t, 0)
	all := make([]id.User, users)
	c.many(users, func(i int) (id.User, event.Event) {
		all[i] = id.Next[id.User](id.Random(rand.Reader))
		return all[i], event.EndUserCreated{
			User: all[i], ExternalID: event.Private([]byte(fmt.Sprint("person ", i))), Traits: event.Private([]byte(ages(i))),
		}
	})
	first := c.schema()
	if first.Users != users || len(first.Traits) != 2 {
		t.Fatalf("%+v", first)
	}
	c.many(users/4, func(i int) (id.User, event.Event) { // more than a fifth, with a trait that nobody had
		return all[i], event.EndUserTraitsChanged{User: all[i], Traits: event.Private(fmt.Appendf(nil, `{"age":%d,"colour":"c%d"}`, 1_000_000+i/2, i%2))}
	})
	before := c.top(all[0], 1) // nobody builds yet: what has changed counts, the schema stays
	if before[0].Schema != first.Version || before[0].MatchedUser != all[1] {
		t.Errorf("%+v, not %s under version %d", before[0], all[1], first.Version)
	}
	weight := 5.0
	c.override(map[string]event.TraitOverride{"age": {Weight: &weight}}) // counts at once
	if m := c.top(all[0], 1)[0]; m.Schema != first.Version+1 || m.Explanation[0].Weight != weight {
		t.Errorf("%+v", m)
	}

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.populations.Run(ctx) })
	testkit.Eventually(t, "it is built anew", func() bool { return c.top(all[0], 1)[0].Schema == first.Version+2 })
	stop()
	running.Wait()
	if traits := c.schema().Traits; len(traits) != 3 {
		t.Errorf("%+v", traits)
	}
	after := c.top(all[0], 5)
	if diff := gocmp.Diff(c.asNew(all[0], 5), after, gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
		t.Errorf("(-new +replaced):\n%s", diff)
	}
	newcomer := c.join("newcomer", 1_000_000)
	if !slices.Contains(matched(c.top(newcomer, 3)), all[0]) && !slices.Contains(matched(c.top(newcomer, 3)), all[1]) {
		t.Errorf("%+v", c.top(newcomer, 3))
	}
}

// Whoever waits for others' changes to be taken in leaves when its time is up.
func TestWaitingForOnesTurnEnds(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 5)
	ada := c.join("ada", 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.populations.Top(ctx, c.Acme, ada, event.Within{}, 1); err == nil {
		t.Error("it answers nobody")
	}
	if got := c.top(ada, 10); len(got) != 5 {
		t.Errorf("%d matches after", len(got))
	}
}

// Whoever has waited while one turn succeeded and the next failed reads anew.
func TestAPopulationThatWasLostMeanwhileIsReadAnew(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 5)
	ada := c.join("ada", 3)
	before := c.top(ada, 10)
	c.populations.Lose(c.Acme)
	if diff := gocmp.Diff(before, c.top(ada, 10), gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// A request that ends, or a database that does, while changes are read leaves what was read before: the
// next request does not read everyone again.
func TestChangesThatCannotBeReadLeaveThePopulationInMemory(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 5)
	ada := c.join("ada", 3)
	if got := c.top(ada, 10); len(got) != 5 {
		t.Fatalf("%d matches", len(got))
	}
	before, _ := c.populations.InMemory(c.Acme)
	c.exec(`ALTER TABLE users_3.users RENAME TO away`)
	if _, err := c.populations.Top(t.Context(), c.Acme, ada, event.Within{}, 10); err == nil {
		t.Error("it answers without the changes")
	}
	c.exec(`ALTER TABLE users_3.away RENAME TO users`)
	newcomer := c.join("newcomer", 3)
	if got := matched(c.top(ada, 10)); len(got) != 6 || !slices.Contains(got, newcomer) {
		t.Errorf("%s is not among %v", newcomer, got)
	}
	if after, _ := c.populations.InMemory(c.Acme); after != before {
		t.Error("everyone was read again")
	}
}

// A statement that gets no answer, as from a server whose machine has vanished, keeps a
// population from those who come later for as long as one statement may take.
func TestAStatementWithoutAnAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 20)
	tx, err := c.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE users`); err != nil {
		t.Fatal(err)
	}
	c.populations.Users.Within = 50 * time.Millisecond
	if _, err := c.populations.Build(t.Context(), c.Acme); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it is read although nobody answers: %v", err)
	}
	c.populations.Users.Within = testkit.Patience()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if users, err := c.populations.Build(t.Context(), c.Acme); err != nil || users != 20 {
		t.Errorf("%d users, %v", users, err)
	}
}

// A request leaves at its time, also one that reads everyone: that goes on, for those who come later.
func TestWhoReadsAPopulationLeavesAtItsTime(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 5)
	ada := c.join("ada", 3)
	before := c.top(ada, 10)
	c.populations.Lose(c.Acme)
	tx := testkit.Must(c.Pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	testkit.Must(tx.Exec(t.Context(), `LOCK TABLE users`))(t)
	c.populations.Users.Within = testkit.Patience()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.populations.Top(ctx, c.Acme, ada, event.Within{}, 10)
		left <- err
	}()
	reading := func() bool {
		var n int
		err := tx.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE relation = 'users'::regclass AND NOT granted`).Scan(&n)
		return err == nil && n == 1
	}
	testkit.Eventually(t, "it is read", reading)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) || !reading() {
		t.Errorf("it leaves with %v, and is read on: %v", err, reading())
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, c.top(ada, 10), gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// Reading everyone does not wait for what is written meanwhile: there may always be more.
func TestAPopulationIsReadWhileItsUsersAreBehind(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{})
	w.Follow(projections.TraitSchemas{})
	c := &crowd{w, populationsOf(w), map[id.User]string{}}
	for n := range 20 {
		c.join(fmt.Sprint("person ", n), n)
	}
	if _, err := c.Users().Find(t.Context(), c.Acme, false, "person 19"); err != nil {
		t.Fatal(err)
	}
	stop()
	c.join("newcomer", 20)
	if users, err := c.populations.Build(t.Context(), c.Acme); err != nil || users != 20 {
		t.Errorf("%d users, %v", users, err)
	}
}
