package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
	"kindred/semaphore"
	"kindred/testkit"
)

// lines hands out an import's lines, some at a time, and then err.
func lines(all []commands.Imported, err error) func() ([]commands.Imported, error) {
	n := 0
	return func() (some []commands.Imported, _ error) {
		for size := 0; n < len(all) && len(some) < 256 && size < 1<<20; n++ {
			line := all[n]
			line.Line = n + 1
			some = append(some, line)
			size += len(line.Traits)
		}
		if len(some) == 0 {
			return nil, err
		}
		return some, nil
	}
}

func line(external, traits string) commands.Imported {
	return commands.Imported{ExternalID: external, Traits: json.RawMessage(traits)}
}

func TestAnImportMergesOrReplaces(t *testing.T) {
	for mode, want := range map[string]string{"merge": `{"a":1,"b":2}`, "replace": `{"b":2}`} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		report, err := w.ImportUsers(t.Context(), call, mode, lines([]commands.Imported{
			line("u1", `{"a":1}`), line("u2", `{}`), line("u1", `{"b":2}`), line("u1", `{"b":2}`),
		}, nil))
		if err != nil || report.Created != 2 || report.Updated != 1 || report.Unchanged != 1 || report.Failed != 0 || report.Position == "" {
			t.Errorf("%s: %+v, %v", mode, report, err)
		}
		u, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{}`))
		if err != nil || !jsonEqual(t, string(u.Traits), want) {
			t.Errorf("%s gives %s, %v; want %s", mode, u.Traits, err, want)
		}
	}
}

// What is merged is a patch: it comes to the same for a new user as for one that is there without traits.
func TestANullThatIsMergedGivesANewUserNothing(t *testing.T) {
	for mode, want := range map[string]string{"merge": `{"b":{},"c":[null]}`, "replace": `{"a":null,"b":{"d":null},"c":[null]}`} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		one := line("u1", `{"a":null,"b":{"d":null},"c":[null]}`)
		first, err := w.ImportUsers(t.Context(), call, mode, lines([]commands.Imported{one}, nil))
		again, repeated := w.ImportUsers(t.Context(), call, mode, lines([]commands.Imported{one}, nil))
		if err != nil || repeated != nil || first.Created != 1 || again.Unchanged != 1 {
			t.Errorf("%s: %+v, %v; again %+v, %v", mode, first, err, again, repeated)
		}
		u, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{}`))
		if err != nil || !jsonEqual(t, string(u.Traits), want) {
			t.Errorf("%s gives %s, %v; want %s", mode, u.Traits, err, want)
		}
	}
}

func TestAnImportCreatesAnewWhoWasErased(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	if _, err := w.CreateUser(t.Context(), call, "u1", []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.EraseUser(t.Context(), call, "ext:u1"); err != nil {
		t.Fatal(err)
	}
	report, err := w.ImportUsers(t.Context(), call, "merge", lines([]commands.Imported{line("u1", `{"b":2}`)}, nil))
	if err != nil || report.Created != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if u, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{}`)); err != nil || !jsonEqual(t, string(u.Traits), `{"b":2}`) {
		t.Errorf("the traits are %s, %v", u.Traits, err)
	}
}

func TestLinesOfOneUserAreAppliedInOrder(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	var all []commands.Imported
	const users, rounds = 20, 25
	for round := range rounds {
		for user := range users {
			all = append(all, line(fmt.Sprint("u", user), fmt.Sprintf(`{"round":%d}`, round)))
		}
	}
	report, err := w.ImportUsers(t.Context(), call, "merge", lines(all, nil))
	if err != nil || report.Created != users || report.Updated != users*(rounds-1) {
		t.Fatalf("%+v, %v", report, err)
	}
	for user := range users {
		u, err := w.ChangeTraits(t.Context(), call, commands.UserRef(fmt.Sprint("ext:u", user)), []byte(`{}`))
		if err != nil || !jsonEqual(t, string(u.Traits), fmt.Sprintf(`{"round":%d}`, rounds-1)) {
			t.Errorf("user %d ends with %s, %v", user, u.Traits, err)
		}
	}
}

func TestRefusedLinesAreNamedAndStopNothing(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	var all []commands.Imported
	const every = 3000
	for n := range every {
		switch n % 3 {
		case 0:
			all = append(all, line(fmt.Sprint("u", n), `{}`))
		case 1:
			all = append(all, line(fmt.Sprint("no\x00", n), `{}`)) // spread over the workers
		case 2:
			all = append(all, commands.Imported{Refused: fault.New(fault.Unreadable, "unreadable", "not JSON")})
		}
	}
	report, err := w.ImportUsers(t.Context(), call, "merge", lines(all, nil))
	if err != nil || report.Created != every/3 || report.Failed != 2*every/3 || len(report.Errors) != 1000 {
		t.Fatalf("created %d, failed %d, %d errors, %v", report.Created, report.Failed, len(report.Errors), err)
	}
	for i, e := range report.Errors { // lines 2, 3, 5, 6, …: the first thousand
		wantLine, wantCode := i/2*3+2+i%2, []string{"invalid", "unreadable"}[i%2]
		if e.Line != wantLine || e.Fault.Code != wantCode {
			t.Fatalf("error %d is of line %d (%s), want line %d (%s)", i, e.Line, e.Fault.Code, wantLine, wantCode)
		}
	}
}

func TestAnImportThatBreaksOffSaysSoAndKeepsWhatItApplied(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	broken := errors.New("the connection broke")
	if _, err := w.ImportUsers(t.Context(), call, "merge", lines([]commands.Imported{line("u1", `{}`)}, broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	life := &life{left: 5}
	var many []commands.Imported
	for n := range 2000 {
		many = append(many, line(fmt.Sprint("v", n), `{}`))
	}
	report, err := w.process(mortalStore{w.store, life}, w.keys).ImportUsers(t.Context(), call, "merge", lines(many, nil))
	if !errors.Is(err, errDied) || report.Created != 5 {
		t.Errorf("created %d, %v", report.Created, err)
	}
}

func TestAnImportThatWasAcceptedBringsNobodyBack(t *testing.T) {
	for _, repeats := range []bool{false, true} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		erase := func(external string) {
			t.Helper()
			if _, err := w.CreateUser(t.Context(), call, external, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := w.EraseUser(t.Context(), call, commands.UserRef("ext:"+external)); err != nil {
				t.Fatal(err)
			}
		}
		erase("before")
		accepted := w.accept(call)
		accepted.Accepted = testkit.Must(w.store.Head(t.Context()))(t)
		erase("since")
		run := func(key string, all ...commands.Imported) commands.ImportReport {
			t.Helper()
			if repeats { // the users whom its lines would create are the same then
				accepted = seeded(accepted, key, "")
			}
			return testkit.Must(w.ImportUsers(t.Context(), accepted, "merge", lines(all, nil)))(t)
		}
		if alone := run("alone", line("since", `{}`)); alone.Created != 0 || alone.Failed != 1 || alone.Errors[0].Fault.Code != "erased_since" {
			t.Errorf("repeats %t: %+v", repeats, alone)
		}
		all := []commands.Imported{line("before", `{}`), line("since", `{}`), line("new", `{}`)}
		for range 1_000 { // they are refused before the second line is
			all = append(all, line("no\x00", `{}`))
		}
		report := run("all", all...)
		told := report.Errors
		if report.Created != 2 || report.Failed != 1_001 || len(told) != 1_000 || told[0].Line != 2 || told[0].Fault.Code != "erased_since" || told[999].Line != 1_002 {
			t.Errorf("repeats %t: created %d, failed %d, %d told, from %+v to %+v", repeats, report.Created, report.Failed, len(told), told[0], told[len(told)-1])
		}
	}
}

func TestAnImportThatIsRepeatedUndoesNothing(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		for external, traits := range map[string]string{"there": `{"a":0}`, "same": `{"a":1}`, "once": `{}`, "new": `{}`} {
			u, err := w.CreateUser(t.Context(), call, external, []byte(traits))
			if err == nil && (external == "once" || external == "new") {
				_, err = w.EraseUser(t.Context(), call, commands.UserRef(u.ID))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		accepted := seeded(call, "import", "")
		var err error
		if accepted.Accepted, err = w.store.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := []commands.Imported{
			line("there", `{"a":1}`), line("same", `{"a":1}`), line("new", `{"a":1}`), line("once", `{"a":1}`), line("erased", `{"a":1}`),
		}
		all = append(all, file(600, `{"a":1}`)...) // more than a batch
		all = append(all, line("same", `{"a":2}`), line("new", `{"a":2}`), line("new", `{"a":2}`), line("u3", `{"a":2}`), line("no\x00", `{}`))
		run := func() commands.ImportReport {
			t.Helper()
			c := w.process(w.store, w.keys)
			if bulk {
				w.inBulk(c)
			}
			return testkit.Must(c.ImportUsers(t.Context(), accepted, "merge", lines(all, nil)))(t)
		}
		first := run()
		if first.Created != 603 || first.Updated != 4 || first.Unchanged != 2 || first.Failed != 1 {
			t.Errorf("%+v", first)
		}
		changed := []string{"there", "same", "once", "u2", "u3"}
		for _, external := range changed {
			if _, err := w.ChangeTraits(t.Context(), call, commands.UserRef("ext:"+external), []byte(`{"a":3}`)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.EraseUser(t.Context(), call, "ext:erased"); err != nil {
			t.Fatal(err)
		}
		recorded := w.length(t)
		again := run()
		first.Position, again.Position = "", ""
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("in bulk %t: the repetition reports %s", bulk, diff)
		}
		if n := w.length(t); n != recorded {
			t.Errorf("in bulk %t: repeating recorded %d events", bulk, n-recorded)
		}
		for _, external := range changed {
			u, err := w.ChangeTraits(t.Context(), call, commands.UserRef("ext:"+external), []byte(`{}`))
			if err != nil || !jsonEqual(t, string(u.Traits), `{"a":3}`) {
				t.Errorf("in bulk %t: %s ends with %s, %v", bulk, external, u.Traits, err)
			}
		}
	}
}

// What an import did not change is changed by others before it is repeated.
func TestAnImportThatIsRepeatedLeavesAloneWhatItDidNotChange(t *testing.T) {
	for _, mode := range []string{"merge", "replace"} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		for _, external := range []string{"same", "twice", "later", "other"} {
			if _, err := w.CreateUser(t.Context(), call, external, []byte(`{"a":1}`)); err != nil {
				t.Fatal(err)
			}
		}
		head := testkit.Must(w.store.Head(t.Context()))(t)
		accepted := seeded(call, "import", "")
		accepted.Accepted, accepted.Begun = head, head
		run := func(all ...commands.Imported) (report commands.ImportReport) {
			t.Helper()
			for i := range all {
				all[i].Line = i + 1
			}
			report, err := w.ImportUsers(t.Context(), accepted, mode, lines(all, nil))
			if err != nil {
				t.Fatal(err)
			}
			return report
		}
		first := []commands.Imported{line("same", `{"a":1}`), line("twice", `{"a":2}`), line("twice", `{"a":2}`)}
		run(first...)
		for _, external := range []string{"same", "twice", "later", "other"} {
			if _, err := w.ChangeTraits(t.Context(), call, commands.UserRef("ext:"+external), []byte(`{"a":3}`)); err != nil {
				t.Fatal(err)
			}
		}
		again := run(append(first, line("later", `{"a":1}`), line("later", `{"a":4}`), line("other", `{"a":4}`))...)
		if again.Updated != 3 || again.Unchanged != 3 {
			t.Errorf("%s: %+v", mode, again)
		}
		for external, want := range map[string]string{"same": `{"a":3}`, "twice": `{"a":3}`, "later": `{"a":4}`, "other": `{"a":4}`} {
			u, err := w.ChangeTraits(t.Context(), call, commands.UserRef("ext:"+external), []byte(`{}`))
			if err != nil || !jsonEqual(t, string(u.Traits), want) {
				t.Errorf("%s: %s ends with %s, %v", mode, external, u.Traits, err)
			}
		}
	}
}

func TestACrashedImportGoesOn(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
			t.Helper()
			_, call := w.client(t, "ada@example.com")
			if _, err := w.CreateUser(t.Context(), call, "same", []byte(`{"a":1}`)); err != nil {
				t.Fatal(err)
			}
			call = seeded(call, "import", "")
			command := func(c *commands.Commands) error {
				if bulk {
					w.inBulk(c)
				}
				_, err := c.ImportUsers(t.Context(), call, "merge", lines([]commands.Imported{
					line("same", `{"a":1}`), line("u1", `{"a":1}`), line("u2", `{"a":1}`), line("same", `{"a":2}`), line("u1", `{"a":2}`), line("u2", `{"a":2}`),
				}, nil))
				return err
			}
			return command, func(bool) {
				if err := command(w.process(w.store, w.keys)); err != nil {
					t.Fatal(err)
				}
				for _, external := range []string{"same", "u1", "u2"} {
					u, err := w.ChangeTraits(t.Context(), call, commands.UserRef("ext:"+external), []byte(`{}`))
					if err != nil || u.Outcome.Revision != 1 || !jsonEqual(t, string(u.Traits), `{"a":2}`) {
						t.Errorf("%s ends with %s at %d, %v", external, u.Traits, u.Outcome.Revision, err)
					}
				}
			}
		})
	}
}

// Of large lines, an import holds a few MiB and no more while the log is slow.
func TestAnImportReadsAheadByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		slow := &slowStore{Store: w.store, entered: make(chan struct{}, 1_000), release: make(chan struct{})}
		const size, most = 250 << 10, 10 << 20
		all := file(200, `{"text":"`+strings.Repeat("x", size)+`"}`)
		read := 0
		next := lines(all, nil)
		counted := func() ([]commands.Imported, error) {
			some, err := next()
			read += len(some)
			return some, err
		}
		done := make(chan error, 1)
		go func() {
			report, err := w.process(slow, w.keys).ImportUsers(t.Context(), call, "merge", counted)
			if err == nil && report.Created != len(all) {
				err = fmt.Errorf("created %d", report.Created)
			}
			done <- err
		}()
		synctest.Wait()
		if read*size > most {
			t.Errorf("%d MiB were read ahead", read*size>>20)
		}
		close(slow.release)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// placesUntil are so many places for large appends, which readers see once shown is closed.
func placesUntil(places int, shown <-chan struct{}) commands.Slices {
	return commands.Slices{
		Semaphore: &semaphore.Semaphore{Places: places, Half: true, Waiting: 8},
		Shown:     func(context.Context, eventstore.Position) { <-shown },
	}
}

// What others wrote stands behind two batches of a client's imports at most, however many it
// streams: the next one is appended once the first can be read.
func TestImportsAppendNoFurtherThanWhatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		_, acme := w.client(t, "ada@example.com")
		_, bolt := w.client(t, "bob@example.com")
		shown := make(chan struct{})
		w.Slices = placesUntil(4, shown)
		const batch = 512
		for i, call := range []commands.Call{acme, acme, acme, bolt} {
			var users []commands.Imported
			for n := range 2 * batch {
				users = append(users, line(fmt.Sprint(i, "-", n), `{}`))
			}
			go func() {
				if report, err := w.ImportUsers(t.Context(), call, "merge", lines(users, nil)); err != nil || report.Created != len(users) {
					t.Errorf("%+v, %v", report, err)
				}
			}()
		}
		for round, created := 0, 0; created < 8*batch; round++ {
			synctest.Wait()
			created = w.count(t, "end_user.created")
			if most := (3 + round) * batch; created > most || created == 0 {
				t.Errorf("%d are created after %d batches could be read", created, round)
			}
			shown <- struct{}{}
		}
		close(shown)
		synctest.Wait()
	})
}

// A request survives its panic, so that must not cost a place; who has gone is not told to try again.
func TestAPlaceOfALargeChangeIsGivenBackWhateverEndsIt(t *testing.T) {
	c := &commands.Commands{Slices: commands.Slices{Semaphore: &semaphore.Semaphore{Places: 1, Waiting: 1}}}
	err := panics.Caught(func() error {
		return c.Slice(t.Context(), "cli_acme", func() (eventstore.Position, error) { panic("appending") })
	})
	if held, _ := c.Slices.Count(); err == nil || held != 0 {
		t.Fatalf("%d places are held after a panic: %v", held, err)
	}
	c.Slices.Take(t.Context(), "cli_acme")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Slice(gone, "cli_acme", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever has gone is told %v", err)
	}
}

// A large change counts as a batch of an import does, a patch by what it makes of the user's
// traits; an import's own changes have their place already.
func TestLargeChangesAppendNoFurtherThanWhatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		_, acme := w.client(t, "ada@example.com")
		_, bolt := w.client(t, "bob@example.com")
		large := json.RawMessage(`{"bio":"` + strings.Repeat("x", 40_000) + `"}`)
		if _, err := w.CreateUser(t.Context(), acme, "first", large); err != nil {
			t.Fatal(err)
		}
		shown := make(chan struct{})
		w.Slices = placesUntil(2, shown)
		var done atomic.Int64
		begin := func(change func() error) {
			go func() {
				if err := change(); err != nil {
					t.Error(err)
				}
				done.Add(1)
			}()
			synctest.Wait()
		}
		create := func(call commands.Call, external string, traits json.RawMessage) {
			begin(func() error {
				_, err := w.CreateUser(t.Context(), call, external, traits)
				return err
			})
		}
		for i, want := range []int64{1, 1, 1, 2, 3} {
			switch i {
			case 0, 1:
				create(acme, fmt.Sprint("large", i), large)
			case 2:
				begin(func() error {
					_, err := w.ChangeTraits(t.Context(), acme, "ext:first", json.RawMessage(`{"age":4}`))
					return err
				})
			case 3:
				create(acme, "small", json.RawMessage(`{"age":4}`))
			case 4:
				create(bolt, "large", large)
			}
			if n := done.Load(); n != want {
				t.Errorf("after change %d, %d are made, not %d", i, n, want)
			}
		}
		close(shown)
		synctest.Wait()
		if n := done.Load(); n != 5 {
			t.Errorf("in the end %d are made", n)
		}
		report, err := w.ImportUsers(t.Context(), acme, "merge", lines([]commands.Imported{line("first", `{"age":5}`)}, nil))
		if err != nil || report.Updated != 1 {
			t.Errorf("the import: %+v, %v", report, err)
		}
	})
}

func TestManyMatchesAppendNoFurtherThanWhatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		for n := range 100 {
			w.matcher.found = append(w.matcher.found, event.MatchComputed{MatchedUser: id.User(fmt.Sprintf("usr_%026d", n)), Score: .5})
		}
		shown := make(chan struct{})
		w.MatchSlices = placesUntil(2, shown)
		var done atomic.Int64
		for i, of := range []struct {
			limit int
			done  int64
		}{{20, 1}, {100, 2}, {100, 2}, {21, 2}, {20, 3}} {
			external := fmt.Sprint("of", i)
			if _, err := w.CreateUser(t.Context(), call, external, json.RawMessage(`{}`)); err != nil {
				t.Fatal(err)
			}
			go func() {
				found, err := w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: commands.UserRef("ext:" + external), Limit: of.limit, Record: true})
				if err != nil || len(found.Matches) != of.limit {
					t.Errorf("%d matches, %v", len(found.Matches), err)
				}
				done.Add(1)
			}()
			synctest.Wait()
			if n := done.Load(); n != of.done {
				t.Errorf("after request %d, %d are answered, not %d", i, n, of.done)
			}
		}
		close(shown)
		synctest.Wait()
		if n := done.Load(); n != 5 {
			t.Errorf("in the end %d are answered", n)
		}
	})
}
