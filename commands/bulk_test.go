package commands_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/testkit"
)

// bulkStore keeps keys beside the events. A process may die between the two,
// which leaves more behind than the commit of a real one would.
type bulkStore struct {
	eventstore.Store
	keys seal.Keys
}

func (s bulkStore) AppendMany(ctx context.Context, requests []eventstore.Request) []eventstore.Result {
	results := make([]eventstore.Result, len(requests))
	for i, r := range requests {
		results[i].Err = s.makeKeys(ctx, r)
		if results[i].Err == nil {
			results[i].Appended, results[i].Err = s.Append(ctx, r.Stream, r.Expected, r.Events)
		}
	}
	return results
}

func (s bulkStore) makeKeys(ctx context.Context, r eventstore.Request) error {
	last, err := s.ReadBack(ctx, r.Stream, eventstore.End, 1)
	if err != nil || len(last) > 0 {
		return err // it conflicts, or is a repetition
	}
	made, err := s.MakeKeys(ctx, r.Keys)
	if err == nil && slices.Contains(made, false) {
		return eventstore.ErrKeyed
	}
	return err
}

func (s bulkStore) MakeKeys(ctx context.Context, keys []eventstore.Key) ([]bool, error) {
	stored, err := s.keys.MakeSubjects(ctx, keys)
	made := make([]bool, len(stored))
	for i := range made {
		made[i] = stored[i].ID == keys[i].ID
	}
	return made, err
}

// inBulk lets a process append in bulk.
func (w *fixture) inBulk(c *commands.Commands) *commands.Commands {
	c.Log.Bulk = bulkStore{c.Log.Store, w.keys}
	return c
}

func file(n int, traits string) (all []commands.Imported) {
	for i := range n {
		all = append(all, line(fmt.Sprint("u", i), traits))
	}
	return all
}

func TestAnImportInBulkAnswersEachLineAsItWould(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	for _, external := range []string{"u3", "u5"} {
		if _, err := w.CreateUser(t.Context(), call, external, []byte(`{"old":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.EraseUser(t.Context(), call, "ext:u5"); err != nil {
		t.Fatal(err)
	}
	half := w.inBulk(w.process(mortalStore{w.store, &life{}}, w.keys)) // dies at once, with a key made
	if _, err := half.CreateUser(t.Context(), call, "u7", []byte(`{}`)); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	all := file(600, `{"new":1}`)
	all[8] = line("no\x00", `{}`)
	all[9] = line("u9", `[]`)
	all = append(all, line("u1", `{"again":1}`), line("u3", `{"again":1}`))
	report, err := w.inBulk(w.process(w.store, w.keys)).ImportUsers(t.Context(), call, "merge", lines(all, nil))
	if err != nil || report.Created != 597 || report.Updated != 3 || report.Failed != 2 ||
		report.Errors[0].Line != 9 || report.Errors[1].Line != 10 {
		t.Fatalf("%+v, %v", report, err)
	}
	for external, want := range map[string]string{
		"u0": `{"new":1}`, "u1": `{"new":1,"again":1}`, "u3": `{"old":1,"new":1,"again":1}`, "u5": `{"new":1}`, "u7": `{"new":1}`,
	} {
		u, err := w.ChangeTraits(t.Context(), call, commands.UserRef("ext:"+external), []byte(`{}`))
		if err != nil || !jsonEqual(t, string(u.Traits), want) {
			t.Errorf("%s is %s, %v; want %s", external, u.Traits, err, want)
		}
	}
	w.check(t)
}

// created lists the external ids in the order of their creations.
func (w *fixture) created(t *testing.T) (externals []string) {
	t.Helper()
	for _, r := range w.records(t) {
		if _, ok := r.Event.(event.EndUserCreated); ok {
			external := testkit.Must(w.log.Open(t.Context(), r, "external_id"))(t)
			externals = append(externals, string(external))
		}
	}
	return externals
}

func TestUsersAreCreatedInTheOrderOfTheLines(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		c := w.process(w.store, w.keys)
		if bulk {
			w.inBulk(c)
		}
		var want []string
		all := file(1500, `{}`)
		for i := range all {
			want = append(want, all[i].ExternalID)
		}
		all = slices.Insert(all, 700, line("u3", `{"again":1}`)) // does not hold up the others
		if report, err := c.ImportUsers(t.Context(), call, "merge", lines(all, nil)); err != nil || report.Created != 1500 || report.Updated != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		got := w.created(t)
		if bulk && !slices.Equal(got, want) {
			t.Error("in bulk: another order")
		}
		for i, external := range got { // a batch of lines after the other
			if n := slices.Index(want, external); n < 0 || max(n-i, i-n) >= 512 {
				t.Errorf("line %d is the %d. to be created", n, i)
			}
		}
	}
}

func TestTwoImportsOfOneFileAtOnceCreateEachUserOnce(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	const users = 1000
	var reports [2]commands.ImportReport
	var both sync.WaitGroup
	for i := range reports {
		both.Go(func() {
			var err error
			c := w.inBulk(w.process(w.store, w.keys))
			if reports[i], err = c.ImportUsers(t.Context(), call, "merge", lines(file(users, `{"a":1}`), nil)); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if a, b := reports[0], reports[1]; a.Created+b.Created != users || a.Unchanged+b.Unchanged != users {
		t.Errorf("%+v and %+v", a, b)
	}
	if n := len(w.created(t)); n != users {
		t.Errorf("%d users were created", n)
	}
}

func TestACrashedImportInBulkCanBeRepeated(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		const users = 4
		command := func(c *commands.Commands) error {
			_, err := w.inBulk(c).ImportUsers(t.Context(), call, "merge", lines(file(users, `{"a":1}`), nil))
			return err
		}
		return command, func(bool) {
			report, err := w.inBulk(w.process(w.store, w.keys)).ImportUsers(t.Context(), call, "merge", lines(file(users, `{"a":1}`), nil))
			if err != nil || report.Created+report.Unchanged != users {
				t.Errorf("%+v, %v", report, err)
			}
			if n := len(w.created(t)); n != users {
				t.Errorf("%d users were created", n)
			}
		}
	})
}

// A user's key is made with the user, or was there before; a repeated request
// meets the user it made.
func TestAUserIsCreatedOnceInBulk(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		call = seeded(call, "k1", "b1")
		var first id.User
		command := func(c *commands.Commands) error {
			u, err := w.inBulk(c).CreateUser(t.Context(), call, "u1", []byte(`{"a":1}`))
			first = u.ID
			if err != nil {
				return err
			}
			_, err = c.ChangeTraits(t.Context(), seeded(call, "k2", "b2"), "ext:u1", []byte(`{"b":2}`))
			return err
		}
		return command, func(acknowledged bool) {
			c := w.inBulk(w.process(w.store, w.keys))
			again, err := c.CreateUser(t.Context(), call, "u1", []byte(`{"a":1}`))
			if err != nil || acknowledged && again.ID != first || !jsonEqual(t, string(again.Traits), `{"a":1}`) {
				t.Errorf("the repetition gives %s with %s, %v", again.ID, again.Traits, err)
			}
			if n := len(w.created(t)); n != 1 {
				t.Errorf("%d users were created", n)
			}
		}
	})
}
