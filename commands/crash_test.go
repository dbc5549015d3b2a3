package commands_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/testkit"
)

var errDied = errors.New("the process died")

// life ends before or after the nth thing that a process makes durable. From
// then on nothing works.
type life struct {
	mu    sync.Mutex
	left  int
	after bool // the last thing is still done, but nobody hears of it
	dead  bool
}

// step does something durable, unless the process dies.
func (l *life) step(do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDied
	}
	if l.left--; l.left >= 0 {
		return do()
	}
	l.dead = true
	if l.after {
		if err := do(); err != nil {
			return errors.Join(errDied, err)
		}
	}
	return errDied
}

func (l *life) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return errDied
	}
	return nil
}

type mortalStore struct {
	eventstore.Store
	life *life
}

func (s mortalStore) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (done eventstore.Appended, err error) {
	err = s.life.step(func() (err error) {
		done, err = s.Store.Append(ctx, stream, expected, events)
		return err
	})
	return done, err
}

func (s mortalStore) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	if err := s.life.alive(); err != nil {
		return nil, err
	}
	return s.Store.ReadStream(ctx, stream, from, limit)
}

func (s mortalStore) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	if err := s.life.alive(); err != nil {
		return nil, err
	}
	return s.Store.ReadBack(ctx, stream, from, limit)
}

type mortalKeys struct {
	seal.Keys
	life *life
}

func (k mortalKeys) Destroy(ctx context.Context, client id.Client, subject string) error {
	return k.life.step(func() error { return k.Keys.Destroy(ctx, client, subject) })
}

func (k mortalKeys) DestroyClient(ctx context.Context, client id.Client) (more bool, err error) {
	err = k.life.step(func() (err error) {
		more, err = k.Keys.DestroyClient(ctx, client)
		return err
	})
	return more, err
}

// everyDeath runs a story once for each moment at which its command can die.
// The story prepares a fixture and returns the command, and what must be true
// once the policies have run.
func everyDeath(t *testing.T, story func(t *testing.T, w *fixture) (command func(*commands.Commands) error, then func(acknowledged bool))) {
	t.Helper()
	for n := 0; ; n++ {
		died := false
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("dies at step %d, done: %t", n, after), func(t *testing.T) {
				w := newFixture(t)
				command, then := story(t, w)
				life := &life{left: n, after: after}
				err := command(w.process(mortalStore{w.store, life}, mortalKeys{w.keys, life}))
				died = died || life.dead
				if err != nil && !errors.Is(err, errDied) {
					t.Fatal(err)
				}
				w.driveOn(t)
				w.check(t)
				then(err == nil)
				w.driveOn(t)
				w.check(t)
			})
		}
		if !died || t.Failed() {
			if n < 2 {
				t.Errorf("the command never died: it has %d steps", n)
			}
			return
		}
	}
}

func TestACrashedSignUpLeavesTheAddressUsable(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		w.client(t, "first@example.com") // has the slug acme
		in := commands.SignUp{Email: "ada@example.com", Password: "secret", CompanyName: "Acme"}
		command := func(c *commands.Commands) error {
			_, err := c.SignUp(t.Context(), commands.Call{}, in)
			return err
		}
		return command, func(acknowledged bool) {
			before, missing := w.AccountByEmail(t.Context(), in.Email)
			if acknowledged && missing != nil {
				t.Fatalf("it was acknowledged, but there is no account: %v", missing)
			}
			again, err := w.SignUp(t.Context(), commands.Call{}, in)
			switch {
			case missing == nil && before.PasswordHash != "hash of secret":
				t.Errorf("the account has the password hash %q", before.PasswordHash)
			case missing == nil:
				wantFault(t, err, "email_exists")
			case err != nil || again.ClientSlug != "acme-2":
				t.Errorf("signing up again gives %q, %v; want the slug that was given back", again.ClientSlug, err)
			}
		}
	})
}

func TestACrashedAdditionOfAMemberCanBeRepeated(t *testing.T) {
	for _, key := range []string{"", "k1"} {
		everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
			t.Helper()
			_, call := w.client(t, "ada@example.com")
			if key != "" {
				call = seeded(call, key, "b1")
			}
			in := commands.AddMember{Email: "bob@example.com", Role: "viewer", Password: "secret"}
			var first commands.Account
			command := func(c *commands.Commands) (err error) {
				first, err = c.AddMember(t.Context(), call, in)
				return err
			}
			return command, func(acknowledged bool) {
				was, missing := w.AccountByEmail(t.Context(), in.Email)
				again, err := w.AddMember(t.Context(), call, in)
				switch {
				case acknowledged && first.Member != was.Member:
					t.Errorf("acknowledged %s, found %s", first.Member, was.Member)
				case missing != nil && err != nil:
					t.Errorf("nobody has the address, but it cannot be used: %v", err)
				case missing == nil && key == "":
					wantFault(t, err, "email_exists")
				case missing == nil && (err != nil || again.Member != was.Member):
					t.Errorf("the repetition gives %s, %v; want %s", again.Member, err, was.Member)
				}
				if n := w.count(t, "member.added"); n != 2 {
					t.Errorf("%d members were added, want the owner and one", n)
				}
			}
		})
	}
}

// Here the caller does not wait for the policies.
func TestACrashedAdditionOfAMemberCanBeRepeatedAtOnce(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		call = seeded(call, "k1", "b1")
		in := commands.AddMember{Email: "bob@example.com", Role: "viewer", Password: "secret"}
		var again commands.Account
		command := func(c *commands.Commands) error {
			_, err := c.AddMember(t.Context(), call, in)
			var retry error
			if again, retry = w.AddMember(t.Context(), call, in); retry != nil {
				t.Errorf("the repetition: %v", retry)
			}
			return err
		}
		return command, func(bool) {
			if was, err := w.AccountByEmail(t.Context(), in.Email); err != nil || was.Member != again.Member {
				t.Errorf("answered %s, found %s, %v", again.Member, was.Member, err)
			}
		}
	})
}

func TestACrashedRemovalIsFinished(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		in := commands.AddMember{Email: "bob@example.com", Role: "viewer", Password: "secret"}
		bob := testkit.Must(w.AddMember(t.Context(), call, in))(t)
		bobs := call
		bobs.Member = bob.Member
		revoked, err1 := w.IssueAPIKey(t.Context(), bobs, commands.IssueAPIKey{Name: "revoked with him"})
		kept, err2 := w.IssueAPIKey(t.Context(), bobs, commands.IssueAPIKey{Name: "kept"})
		adas, err3 := w.IssueAPIKey(t.Context(), call, commands.IssueAPIKey{Name: "of another"})
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		command := func(c *commands.Commands) error {
			_, err := c.RemoveMember(t.Context(), call, bob.Member, kept.Key)
			return err
		}
		return command, func(acknowledged bool) {
			left, err := keysInLog{w.store}.inForce(t.Context(), call.Client)
			gone := !slices.ContainsFunc(left, func(e event.APIKeyIssued) bool { return e.Key == revoked.Key })
			if err != nil || gone != (len(left) == 2) || acknowledged && !gone || left[len(left)-1].Key != adas.Key {
				t.Errorf("%d keys are left, %v", len(left), err)
			}
			_, err = w.RemoveMember(t.Context(), call, bob.Member)
			if acknowledged && !fault.Is(err, "member_unknown") || err != nil && !fault.Is(err, "member_unknown") {
				t.Errorf("removing again: %v", err)
			}
			if again, err := w.AddMember(t.Context(), call, in); err != nil || again.Member == bob.Member {
				t.Errorf("adding the same address anew gives %s, %v", again.Member, err)
			}
		}
	})
}

func TestACrashedDeletionOfAClientIsFinished(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		ada, call := w.client(t, "ada@example.com")
		bob := testkit.Must(w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "viewer", Password: "secret"}))(t)
		testkit.Must(w.CreateUser(t.Context(), call, "u1", []byte(`{"city":"Bern"}`)))(t)
		sandbox := testkit.Must(w.CreateSandbox(t.Context(), call, "ci", 0))(t)
		command := func(c *commands.Commands) error {
			_, err := c.EndClient(t.Context(), commands.Call{Client: ada.Client, Actor: "operator"})
			return err
		}
		return command, func(acknowledged bool) {
			deleted := testkit.Must(w.log.IsDeleted(t.Context(), ada.Client))(t)
			if acknowledged && !deleted {
				t.Error("it was acknowledged, but the client is there")
			}
			for _, member := range []commands.Account{ada, bob} {
				if _, err := w.AccountByMember(t.Context(), ada.Client, member.Member); fault.Is(err, "account_unknown") != deleted || !deleted && err != nil {
					t.Errorf("deleted: %t, but %s is found: %v", deleted, member.Email, err)
				}
			}
			if gone := testkit.Must(w.log.IsDeleted(t.Context(), sandbox.Sandbox))(t); gone != deleted {
				t.Errorf("deleted: %t, its sandbox: %t", deleted, gone)
			}
			again, err := w.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: ada.Email, Password: "secret", CompanyName: "Acme"})
			if !deleted {
				wantFault(t, err, "email_exists")
			} else if err != nil || again.ClientSlug != ada.ClientSlug {
				t.Errorf("signing up again gives the slug %q, %v", again.ClientSlug, err)
			}
			if _, err := w.AddMember(t.Context(), call, commands.AddMember{Email: "eve@example.com", Role: "viewer"}); fault.Is(err, "client_unknown") != deleted {
				t.Errorf("deleted: %t, adding somebody: %v", deleted, err)
			}
		}
	})
}

func TestACrashedErasureIsFinished(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		user := testkit.Must(w.CreateUser(t.Context(), call, "u1", []byte(`{"city":"Bern"}`)))(t)
		command := func(c *commands.Commands) error {
			_, err := c.EraseUser(t.Context(), call, "ext:u1")
			return err
		}
		return command, func(acknowledged bool) {
			_, err := w.EraseUser(t.Context(), call, "ext:u1")
			if acknowledged && !fault.Is(err, "user_unknown") || err != nil && !fault.Is(err, "user_unknown") {
				t.Errorf("erasing again: %v", err)
			}
			if again, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`)); err != nil || again.ID == user.ID {
				t.Errorf("creating anew gives %s, %v", again.ID, err)
			}
		}
	})
}

// No policy has run: whoever hears that there is no such user may count on it.
func TestErasingAgainFinishesAnErasure(t *testing.T) {
	for _, external := range []bool{false, true} {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		user, err := w.CreateUser(t.Context(), call, "u1", []byte(`{"city":"Bern"}`))
		if err != nil {
			t.Fatal(err)
		}
		ref := commands.UserRef(user.ID)
		if external {
			ref = "ext:u1"
		}
		broken := w.process(w.store, mortalKeys{w.keys, &life{}})
		for range 2 {
			if _, err := broken.EraseUser(t.Context(), call, ref); !errors.Is(err, errDied) {
				t.Errorf("without the keys: %v", err)
			}
		}
		_, err = w.EraseUser(t.Context(), call, ref)
		wantFault(t, err, "user_unknown")
		w.check(t)
	}
}

// large is the size of a match of which an append holds no two.
const large = 460 << 10

// manyMatches makes n matches, each with so many bytes.
func manyMatches(n, size int) []event.MatchComputed {
	found := make([]event.MatchComputed, n)
	for i := range found {
		found[i] = event.MatchComputed{
			MatchedUser: id.Next[id.User](id.Derived(fmt.Sprint(i))), Score: 1 - float64(i)/1000,
			Explanation: []event.Term{{Trait: strings.Repeat("x", size), Weight: 1}},
		}
	}
	return found
}

func TestCrashedMatchesAreCompletedByTheRepetition(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		call = seeded(call, "k1", "b1")
		if _, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		w.matcher.found = manyMatches(3, large)
		in := commands.ComputeMatches{User: "ext:u1", Limit: 10, Record: true}
		command := func(c *commands.Commands) error {
			_, err := c.ComputeMatches(t.Context(), call, in)
			return err
		}
		return command, func(acknowledged bool) {
			calls := w.matcher.calls
			again := testkit.Must(w.ComputeMatches(t.Context(), call, in))(t)
			if acknowledged && w.matcher.calls != calls {
				t.Error("an answered request was computed again")
			}
			recorded := w.count(t, "match.computed")
			if recorded != 3 || len(again.Matches) != 3 {
				t.Errorf("%d matches are recorded and %d answered, want 3", recorded, len(again.Matches))
			}
			for i, m := range again.Matches {
				if m.MatchedUser != w.matcher.found[i].MatchedUser {
					t.Errorf("match %d is another one", i)
				}
			}
		}
	})
}

// meddling does something right after the nth append.
type meddling struct {
	eventstore.Store
	appends int
	nth     int
	do      func()
}

func (m *meddling) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	done, err := m.Store.Append(ctx, stream, expected, events)
	if m.appends++; m.appends == m.nth {
		m.do()
	}
	return done, err
}

func TestARefusalAfterTheReservationGivesTheAddressBackAtOnce(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	bob, err := w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	removeBob := func() {
		if _, err := w.RemoveMember(t.Context(), call, bob.Member); err != nil {
			t.Error(err)
		}
	}
	asBob := commands.Call{Client: call.Client, Member: bob.Member, Actor: string(bob.Member)}
	in := commands.AddMember{Email: "eve@example.com", Role: "owner"}
	_, err = w.process(&meddling{Store: w.store, nth: 1, do: removeBob}, w.keys).AddMember(t.Context(), asBob, in)
	wantFault(t, err, "owner_only")
	w.check(t)
	if _, err := w.AddMember(t.Context(), call, in); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
}

func TestASignUpThatWasTakenForCrashedGivesEverythingBackAtOnce(t *testing.T) {
	for nth := 1; nth <= 2; nth++ { // the address, the slug
		w := newFixture(t)
		sweep := func() {
			if err := w.sweep(t.Context(), w.Commands); err != nil {
				t.Error(err)
			}
		}
		in := commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}
		_, err := w.process(&meddling{Store: w.store, nth: nth, do: sweep}, w.keys).SignUp(t.Context(), commands.Call{}, in)
		wantFault(t, err, "sign_up_again")
		w.check(t)
		if a, err := w.SignUp(t.Context(), commands.Call{}, in); err != nil || a.ClientSlug != "acme" {
			t.Errorf("signing up again gives %q, %v", a.ClientSlug, err)
		}
	}
}

// Whoever repeats a sign-up of which the end was not known need not wait for the policy: after a moment the
// address and the slug are free again, or have their account.
func TestASignUpCanBeRepeatedSoonAfterACrash(t *testing.T) {
	in := commands.SignUp{Email: "ada@example.com", Password: "secret", CompanyName: "Acme"}
	for n, died := 0, true; died; n++ {
		for _, after := range []bool{false, true} {
			w := newFixture(t)
			life := &life{left: n, after: after}
			_, err := w.process(mortalStore{w.store, life}, mortalKeys{w.keys, life}).SignUp(t.Context(), commands.Call{}, in)
			if died = life.dead; err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			_, missing := w.AccountByEmail(t.Context(), in.Email)
			w.jump(3 * time.Second)
			again, err := w.SignUp(t.Context(), commands.Call{}, in)
			switch {
			case missing == nil:
				wantFault(t, err, "email_exists")
			case err != nil || again.ClientSlug != "acme":
				t.Errorf("died at step %d, done: %t: signing up again gives %q, %v", n, after, again.ClientSlug, err)
			}
			w.driveOn(t)
			w.check(t)
		}
	}
}

// Until then it is the other's.
func TestASignUpOfWhatAnotherReservesAtThisMomentIsRefused(t *testing.T) {
	w := newFixture(t)
	in := commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}
	_, err := w.process(&meddling{Store: w.store, nth: 1, do: func() {
		_, err := w.SignUp(t.Context(), commands.Call{}, in)
		wantFault(t, err, "email_exists")
	}}, w.keys).SignUp(t.Context(), commands.Call{}, in)
	if err != nil {
		t.Error(err)
	}
	w.driveOn(t)
	w.check(t)
}

// The thousandth spend ends a stream of them, and the next begins another.
func TestACrashWhereTheSpendsGoOnInAnotherStreamLosesNone(t *testing.T) {
	everyDeath(t, func(t *testing.T, w *fixture) (func(*commands.Commands) error, func(bool)) {
		t.Helper()
		_, call := w.client(t, "ada@example.com")
		c := w.spender(w.store, always(0))
		campaign := running(t, c, call, euros)
		spend := func(c *commands.Commands, n int) error {
			_, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(n), AmountMinor: 7})
			return err
		}
		const first, last = 998, 1_001
		for n := range first {
			if err := spend(c, n); err != nil {
				t.Fatal(err)
			}
		}
		heard := first // spends that were acknowledged
		command := func(c *commands.Commands) error {
			w.spending(c, always(0))
			for ; heard <= last; heard++ {
				if err := spend(c, heard); err != nil {
					return err
				}
			}
			return nil
		}
		return command, func(bool) {
			if ids, total := w.spends(t, campaign); len(ids) < heard || total != int64(7*len(ids)) {
				t.Errorf("%d were acknowledged, %d are recorded, which make %d", heard, len(ids), total)
			}
			c := w.spender(w.store, always(0))
			for n := first; n <= last; n++ {
				if err := spend(c, n); err != nil {
					t.Error(err)
				}
			}
			if ids, total := w.spends(t, campaign); len(ids) != last+1 || total != 7*(last+1) {
				t.Errorf("after the repetition %d are recorded, which make %d", len(ids), total)
			}
			if opened, closed := w.count(t, "campaign.spending_opened"), w.count(t, "campaign.spending_closed"); opened != 2 || closed != 1 {
				t.Errorf("%d streams were begun and %d ended", opened, closed)
			}
		}
	})
}
