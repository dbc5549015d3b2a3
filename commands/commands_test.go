package commands_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/testkit"
)

func TestSigningUpMakesAClientWithItsOwner(t *testing.T) {
	w := newFixture(t)
	a, _ := w.client(t, " Ada@Example.com ")
	if a.ClientName != "Acme" || a.ClientSlug != "acme" || a.Role != "owner" || a.Email != "Ada@Example.com" || a.CreatedAt.IsZero() {
		t.Errorf("signed up as %+v", a)
	}
	found, err := w.AccountByEmail(t.Context(), "ada@example.COM")
	if err != nil || found.Client != a.Client || found.Member != a.Member || found.PasswordHash != "hash of secret" || found.ClientSlug != "acme" {
		t.Errorf("found %+v, %v", found, err)
	}
	w.check(t)
	if n := w.count(t, "claim.confirmed"); n != 2 {
		t.Errorf("%d claims are confirmed, want the address and the slug", n)
	}
}

func TestASignUpThatIsRefusedReservesNothing(t *testing.T) {
	w := newFixture(t)
	w.client(t, "ada@example.com")
	before := w.length(t)
	for _, in := range []commands.SignUp{
		{Email: "ADA@example.com", CompanyName: "Acme"},
		{Email: "nobody", CompanyName: "Acme"},
		{Email: "bob@example.com", CompanyName: " "},
	} {
		if _, err := w.SignUp(t.Context(), commands.Call{}, in); fault.As(err) == nil {
			t.Errorf("%+v: %v", in, err)
		}
	}
	if after := w.length(t); after != before {
		t.Errorf("%d events were recorded", after-before)
	}
}

func TestPersonalFieldsAreNowhereInTheLog(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	hook := "whsec_dmVyeSB3aHNlY192ZXJ5c2VjcmV0"
	_, err1 := w.CreateUser(t.Context(), call, "external-7", []byte(`{"city":"Winterthur"}`))
	_, err2 := w.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}, Secret: &hook})
	key, err3 := w.IssueAPIKey(t.Context(), call, commands.IssueAPIKey{Name: "server"})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for _, r := range w.records(t) {
		for _, private := range []string{"ada@", "hash of", "external-7", "Winterthur", "verysecret", key.Raw} {
			if bytes.Contains(r.Data, []byte(private)) || bytes.Contains(r.Meta, []byte(private)) || strings.Contains(string(r.Stream), private) {
				t.Errorf("%s shows %q", r.Type, private)
			}
		}
	}
}

func TestOfTwentyCreationsAtOnceOneSucceeds(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	for name, create := range map[string]struct {
		do   func(n int) error
		code string
	}{
		"external id": {func(int) error {
			_, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`))
			return err
		}, "user_exists"},
		"address": {func(n int) error {
			_, err := w.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "bob@example.com", CompanyName: fmt.Sprint("Company ", n)})
			return err
		}, "email_exists"},
		"address of a member": {func(int) error {
			_, err := w.AddMember(t.Context(), call, commands.AddMember{Email: "eve@example.com", Role: "viewer"})
			return err
		}, "email_exists"},
	} {
		var succeeded, refused atomic.Int32
		atOnce(20, func(n int) {
			switch err := create.do(n); {
			case err == nil:
				succeeded.Add(1)
			case fault.Is(err, create.code):
				refused.Add(1)
			default:
				t.Errorf("%s: %v", name, err)
			}
		})
		if succeeded.Load() != 1 || refused.Load() != 19 {
			t.Errorf("%s: %d succeeded and %d were refused", name, succeeded.Load(), refused.Load())
		}
	}
	w.driveOn(t)
	w.check(t)
}

func TestCompaniesOfOneNameGetSlugsOfTheirOwn(t *testing.T) {
	w := newFixture(t)
	var mu sync.Mutex
	slugs := map[string]bool{}
	const companies = 60 // more than are counted
	atOnce(companies, func(n int) {
		a, err := w.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: fmt.Sprintf("u%d@example.com", n), CompanyName: "Acme"})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		slugs[a.ClientSlug] = true
	})
	if len(slugs) != companies || !slugs["acme"] || !slugs["acme-2"] {
		t.Errorf("%d companies have %d slugs", companies, len(slugs))
	}
	w.driveOn(t)
	w.check(t)
}

func atOnce(n int, do func(n int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { do(i) })
	}
	group.Wait()
}

func TestConcurrentPatchesLoseNothing(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	if _, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	atOnce(30, func(n int) {
		if _, err := w.ChangeTraits(t.Context(), call, "ext:u1", fmt.Appendf(nil, `{"t%d":%d}`, n, n)); err != nil {
			t.Error(err)
		}
	})
	u, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{}`))
	var traits map[string]int
	if err := errors.Join(err, json.Unmarshal(u.Traits, &traits)); err != nil || len(traits) != 30 {
		t.Errorf("%d traits are left: %v", len(traits), err)
	}
}

// A panic beside the request, where an import applies its lines, would end the process.
func TestListsThatHoldNullsAreMerged(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	const held = `{"list":[null,[null],{"a":null}]}`
	for n, traits := range []string{held, held, `{"list":[null,[0],{"a":null}]}`, held} {
		report, err := w.ImportUsers(t.Context(), call, "merge", lines(file(2, traits), nil))
		if err != nil || report.Created+report.Updated+report.Unchanged != 2 || report.Unchanged == 2 != (n == 1) {
			t.Errorf("import %d: %+v, %v", n, report, err)
		}
	}
	for patch, want := range map[string]string{`{"list":[null,[null],{"a":null}]}`: held, `{"list":[null]}`: `{"list":[null]}`} {
		u, err := w.ChangeTraits(t.Context(), call, "ext:u0", []byte(patch))
		if err != nil || !jsonEqual(t, string(u.Traits), want) {
			t.Errorf("%s: %s, %v", patch, u.Traits, err)
		}
	}
}

func TestPatchesMergeAsRFC7396Says(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	if _, err := w.CreateUser(t.Context(), call, "u1", []byte(`{ "a": 1, "b": {"c": [1, 2], "d": "<x>"}, "big": 12345678901234567890 }`)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		patch, want string
		revision    eventstore.Revision
	}{
		{`{}`, `{ "a": 1, "b": {"c": [1, 2], "d": "<x>"}, "big": 12345678901234567890 }`, 0},
		{`{"a":1}`, `{ "a": 1, "b": {"c": [1, 2], "d": "<x>"}, "big": 12345678901234567890 }`, 0},
		{`{"a":null,"b":{"c":[3]}}`, `{"b":{"c":[3],"d":"<x>"},"big":12345678901234567890}`, 1},
		{`{"b":"flat","e":{"f":null}}`, `{"b":"flat","big":12345678901234567890,"e":{}}`, 2},
	} {
		u, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(step.patch))
		if err != nil || !jsonEqual(t, string(u.Traits), step.want) || u.Outcome.Revision != step.revision {
			t.Errorf("after %s: %s at revision %d, %v; want %s at %d", step.patch, u.Traits, u.Outcome.Revision, err, step.want, step.revision)
		}
	}
	for _, patch := range []string{`[]`, `"x"`, `null`, `{`} {
		if _, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(patch)); fault.As(err) == nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

func jsonEqual(t *testing.T, a, b string) bool {
	t.Helper()
	parse := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		return v
	}
	return cmp.Equal(parse(a), parse(b))
}

func TestAnUpdateOfWhatHasChangedIsRefused(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	u, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	call.IfMatch = &u.Outcome.Revision
	if _, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	_, err = w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{"a":2}`))
	wantFault(t, err, "stale")
	_, err = w.EraseUser(t.Context(), call, "ext:u1")
	wantFault(t, err, "stale")
}

// Else a DELETE whose answer was lost would be refused as stale when it is repeated.
func TestWhatIsNotThereAnyMoreIsToldAsThatWithAConditionToo(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	u := testkit.Must(w.CreateUser(t.Context(), call, "u1", []byte(`{}`)))(t)
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "Layer", []string{"a"}, ""))(t)
	hook, err := w.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://example.com/hook", EventTypes: []string{"match.computed"}})
	if err != nil {
		t.Fatal(err)
	}
	for code, remove := range map[string]func(commands.Call) error{
		"user_unknown": func(call commands.Call) error {
			_, err := w.EraseUser(t.Context(), call, commands.UserRef(u.ID))
			return err
		},
		"consent_layer_unknown": func(call commands.Call) error {
			_, err := w.RetireConsentLayer(t.Context(), call, layer.ID)
			return err
		},
		"webhook_unknown": func(call commands.Call) error {
			_, err := w.RemoveWebhook(t.Context(), call, hook.ID)
			return err
		},
	} {
		stale, fresh := call, call
		stale.IfMatch, fresh.IfMatch = new(eventstore.Revision(7)), new(eventstore.Revision(0))
		wantFault(t, remove(stale), "stale")
		if err := remove(fresh); err != nil {
			t.Errorf("%s: removed: %v", code, err)
		}
		wantFault(t, remove(fresh), code)
	}
	fresh := call
	fresh.IfMatch = new(eventstore.Revision(0))
	_, err = w.ChangeTraits(t.Context(), fresh, commands.UserRef(u.ID), []byte(`{"a":1}`))
	wantFault(t, err, "user_unknown")
}

// The revision that a caller expects is the client's, not that of the claim
// that is released beside it.
func TestAMemberIsRemovedAtAnExpectedRevision(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	bob := testkit.Must(w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "viewer"}))(t)
	call.IfMatch = &bob.Outcome.Revision
	if _, err := w.RemoveMember(t.Context(), call, bob.Member); err != nil {
		t.Error(err)
	}
	w.check(t)
}

func TestAnErasedUserIsGoneAndCanBeCreatedAnew(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	first := testkit.Must(w.CreateUser(t.Context(), call, "u1", []byte(`{"a":1}`)))(t)
	if _, err := w.EraseUser(t.Context(), call, commands.UserRef(first.ID)); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []commands.UserRef{"ext:u1", commands.UserRef(first.ID), "ext:nobody", "ext:", "usr_x"} {
		_, err := w.EraseUser(t.Context(), call, ref)
		wantFault(t, err, "user_unknown")
		_, err = w.ChangeTraits(t.Context(), call, ref, []byte(`{"b":1}`))
		wantFault(t, err, "user_unknown")
		_, err = w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: ref, Limit: 1, Record: true})
		wantFault(t, err, "user_unknown")
	}
	second, err := w.CreateUser(t.Context(), call, "u1", []byte(`{"a":2}`))
	if err != nil || second.ID == first.ID {
		t.Fatalf("created anew: %+v, %v", second, err)
	}
	if u, err := w.ChangeTraits(t.Context(), call, "ext:u1", []byte(`{"b":3}`)); err != nil || u.ID != second.ID || !jsonEqual(t, string(u.Traits), `{"a":2,"b":3}`) {
		t.Errorf("changed %+v, %v", u, err)
	}
	w.check(t)
}

func TestOneClientsUsersAreNotAnothers(t *testing.T) {
	w := newFixture(t)
	_, ada := w.client(t, "ada@example.com")
	_, eve := w.client(t, "eve@example.com")
	u := testkit.Must(w.CreateUser(t.Context(), ada, "u1", []byte(`{}`)))(t)
	for _, ref := range []commands.UserRef{"ext:u1", commands.UserRef(u.ID)} {
		_, err := w.EraseUser(t.Context(), eve, ref)
		wantFault(t, err, "user_unknown")
	}
	if other, err := w.CreateUser(t.Context(), eve, "u1", []byte(`{}`)); err != nil || other.ID == u.ID {
		t.Errorf("the same external id of another client: %s, %v", other.ID, err)
	}
}

func TestAKeyIsRevokedOnce(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	key, err := w.IssueAPIKey(t.Context(), call, commands.IssueAPIKey{Name: "server"})
	if err != nil || key.IssuedBy != call.Member || !cmp.Equal(key.Scopes, []string{"read", "write"}) {
		t.Fatalf("issued %+v, %v", key, err)
	}
	for range 2 {
		if _, err := w.RevokeAPIKey(t.Context(), call, key.Key); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(t, "api_key.revoked"); n != 1 {
		t.Errorf("%d revocations are recorded", n)
	}
	_, err = w.RevokeAPIKey(t.Context(), call, "key_00000000000000000000000000")
	wantFault(t, err, "api_key_unknown")
}

func TestASubscriptionIsChangedPausedAndRemoved(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	for _, in := range []commands.Subscribe{
		{URL: "http://10.0.0.1", EventTypes: []string{"match.computed"}},
		{URL: "https://x.example", EventTypes: []string{"end_user.created"}},
	} {
		_, err := w.Subscribe(t.Context(), call, in)
		wantFault(t, err, "invalid")
	}
	hook, err := w.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}})
	if err != nil || hook.Signed || hook.Status() != "active" {
		t.Fatalf("subscribed %+v, %v", hook, err)
	}
	paused, secret, private := domain.WebhookPaused, "s3cret", "http://10.0.0.1"
	hook, err = w.ChangeWebhook(t.Context(), call, hook.ID, commands.ChangeWebhook{Status: &paused, Secret: &secret})
	if err != nil || hook.Status() != "paused" || !hook.Signed || !hook.UpdatedAt.After(hook.CreatedAt) {
		t.Fatalf("changed to %+v, %v", hook, err)
	}
	_, err = w.ChangeWebhook(t.Context(), call, hook.ID, commands.ChangeWebhook{URL: &private})
	wantFault(t, err, "invalid")
	if _, err := w.RemoveWebhook(t.Context(), call, hook.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.RemoveWebhook(t.Context(), call, hook.ID)
	wantFault(t, err, "webhook_unknown")
}

func TestASubscriptionWhoseKeyWasLostCanOnlyBeRemoved(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	hook := testkit.Must(w.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}}))(t)
	if err := w.Log.Vault.Destroy(t.Context(), call.Client, string(hook.ID)); err != nil {
		t.Fatal(err)
	}
	url := "https://y.example"
	_, err := w.ChangeWebhook(t.Context(), call, hook.ID, commands.ChangeWebhook{URL: &url})
	wantFault(t, err, "webhook_unknown")
	_, _, err = w.RotateSecret(t.Context(), call, hook.ID, nil)
	wantFault(t, err, "webhook_unknown")
	if _, err := w.RemoveWebhook(t.Context(), call, hook.ID); err != nil {
		t.Error(err)
	}
}

func TestAClientHasAHundredSubscriptionsAtMost(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	_, other := w.client(t, "bob@example.com")
	in := commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}}
	again := call
	again.Seed, again.Request = []string{"the first"}, "body"
	first, err := w.Subscribe(t.Context(), again, in)
	if err != nil {
		t.Fatal(err)
	}
	for range 99 {
		if _, err := w.Subscribe(t.Context(), call, in); err != nil {
			t.Fatal(err)
		}
	}
	_, err = w.Subscribe(t.Context(), call, in)
	wantFault(t, err, "too_many_webhooks")
	if repeated, err := w.Subscribe(t.Context(), again, in); err != nil || repeated.ID != first.ID {
		t.Errorf("the first request, repeated: %v, %v", repeated, err)
	}
	if _, err := w.Subscribe(t.Context(), other, in); err != nil {
		t.Errorf("another client: %v", err)
	}
	if _, err := w.RemoveWebhook(t.Context(), call, first.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Subscribe(t.Context(), call, in); err != nil {
		t.Errorf("after one was removed: %v", err)
	}
	w.CountWebhooks = func(context.Context, id.Client) (int, error) {
		return 0, fault.New(fault.Unavailable, "building", "This list is being built.")
	}
	if _, err := w.Subscribe(t.Context(), call, in); err != nil {
		t.Errorf("where they cannot be counted: %v", err)
	}
}

func TestAClientIsRenamedAndItsSettingsChange(t *testing.T) {
	w := newFixture(t)
	a, call := w.client(t, "ada@example.com")
	name := "Acme & Sons"
	c, err := w.ChangeClient(t.Context(), call, commands.ClientChange{Name: &name, Settings: domain.SettingsChange{WebhookUserIDs: new("external_id")}})
	if err != nil || c.Name != name || c.Slug != a.ClientSlug || c.Settings.WebhookUserIDs != "external_id" {
		t.Errorf("changed to %+v, %v", c.Client, err)
	}
	_, err = w.ChangeClient(t.Context(), call, commands.ClientChange{Settings: domain.SettingsChange{WebhookUserIDs: new("")}})
	wantFault(t, err, "invalid")
}

func TestARemovedMemberCannotLogInAndItsAddressIsFree(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	bob, err := w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "owner"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.RemoveMember(t.Context(), call, bob.Member); err != nil {
		t.Fatal(err)
	}
	_, err = w.AccountByEmail(t.Context(), "bob@example.com")
	wantFault(t, err, "account_unknown")
	_, err = w.AccountByMember(t.Context(), call.Client, bob.Member)
	wantFault(t, err, "account_unknown")
	history, _, err := w.log.Load(t.Context(), bob.Outcome.History[0].Stream)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.log.Open(t.Context(), history[2], "email"); !errors.Is(err, seal.ErrErased) {
		t.Errorf("the address can still be read: %v", err)
	}
	if _, err := w.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "bob@example.com", CompanyName: "Bob"}); err != nil {
		t.Error(err)
	}
	_, err = w.RemoveMember(t.Context(), call, call.Member)
	wantFault(t, err, "last_owner")
	w.check(t)
}

func TestAPairIsComparedAndRecorded(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	_, err1 := w.CreateUser(t.Context(), call, "u1", []byte(`{}`))
	u2, err2 := w.CreateUser(t.Context(), call, "u2", []byte(`{}`))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	got, err := w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Other: "ext:u2", Record: true})
	if err != nil || len(got.Matches) != 1 || got.Matches[0].MatchedUser != u2.ID || got.Position == "" {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Other: "ext:u1", Record: true})
	wantFault(t, err, "invalid")
	if _, err := w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Other: "ext:u2"}); err != nil {
		t.Fatal(err)
	}
	if n := w.count(t, "match.computed"); n != 1 {
		t.Errorf("%d matches are recorded, want 1", n)
	}
}

func TestMatchesAtOnceAreAllRecorded(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	if _, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	w.matcher.found = manyMatches(2, large)
	in := commands.ComputeMatches{User: "ext:u1", Limit: 2, Record: true}
	atOnce(8, func(n int) {
		call := call
		if n%2 == 0 { // these are one and the same request
			call = seeded(call, "k1", "b1")
		}
		if got, err := w.ComputeMatches(t.Context(), call, in); err != nil || len(got.Matches) != 2 {
			t.Errorf("%d matches, %v", len(got.Matches), err)
		}
	})
	w.check(t)
	if n := w.count(t, "match.computed"); n != 2*5 {
		t.Errorf("%d matches are recorded, want 2 each of 5 requests", n)
	}
}

// lateKeys counts keys as they were before others came in.
type lateKeys struct {
	keysInLog
	before, after int
}

func (k lateKeys) Before(_ context.Context, _ id.Client, key id.Key) (int, error) {
	if key == "" {
		return k.before, nil
	}
	return k.after, nil
}

func TestAClientHas2000KeysInForceAtMost(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	for name, test := range map[string]struct {
		before, after int
		refused       bool
	}{
		"the last one": {1_999, 1_999, false},
		"one more":     {2_000, 2_000, true},
		"one of many at once that is not the last": {1_999, 2_000, true},
	} {
		w.Keys = lateKeys{keysInLog{w.store}, test.before, test.after}
		if _, err := w.IssueAPIKey(t.Context(), call, commands.IssueAPIKey{Name: "server"}); fault.Is(err, "too_many_api_keys") != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, err := keysInLog{w.store}.inForce(t.Context(), call.Client)
	if err != nil || len(left) != 1 {
		t.Errorf("%d keys are in force, %v; want 1", len(left), err)
	}
}

// laggingKeys know what was there before, and have not come as far as a new key.
type laggingKeys struct{ keysInLog }

func (k laggingKeys) Before(ctx context.Context, client id.Client, key id.Key) (int, error) {
	if key != "" {
		return 0, fault.New(fault.Unavailable, "stale", "It is behind.")
	}
	return k.keysInLog.Before(ctx, client, key)
}

func TestAKeyThatWasRecordedIsShownThoughTheReadModelLags(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	w.Keys = laggingKeys{keysInLog{w.store}}
	key, err := w.IssueAPIKey(t.Context(), seeded(call, "k1", "b1"), commands.IssueAPIKey{Name: "server"})
	if err != nil || key.Raw == "" {
		t.Errorf("%+v, %v", key, err)
	}
	if left, err := (keysInLog{w.store}).inForce(t.Context(), call.Client); err != nil || len(left) != 1 {
		t.Errorf("%d keys are in force, %v", len(left), err)
	}
}

func TestWhoIsRemovedWhileMakingAKeyLeavesNone(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	bob := testkit.Must(w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "admin", Password: "secret"}))(t)
	if _, err := w.RemoveMember(t.Context(), call, bob.Member); err != nil {
		t.Fatal(err)
	}
	bobs := call // his token is good for another moment
	bobs.Member = bob.Member
	if _, err := w.IssueAPIKey(t.Context(), bobs, commands.IssueAPIKey{Name: "late"}); !fault.Is(err, "member_removed") {
		t.Errorf("got %v; want member_removed", err)
	}
	if left, err := (keysInLog{w.store}).inForce(t.Context(), call.Client); err != nil || len(left) != 0 {
		t.Errorf("%d keys are in force, %v", len(left), err)
	}
}

// Another process deletes a sandbox at each moment at which an API key of it is made.
func TestAKeyIsMadeAsItsSandboxIsDeleted(t *testing.T) {
	atEachRead(t, func(w *fixture, call commands.Call) (func(*commands.Commands) error, func() error) {
		made := testkit.Must(w.CreateSandbox(t.Context(), call, "ci", 0))(t)
		inside := call
		inside.Client = made.Sandbox
		return func(c *commands.Commands) error {
				_, err := c.IssueAPIKey(t.Context(), inside, commands.IssueAPIKey{Name: "server"})
				return err
			}, func() error {
				_, err := w.DeleteSandbox(t.Context(), call, made.Sandbox)
				return err
			}
	}, func(err error) bool {
		return err == nil || fault.As(err) == nil && errors.Is(err, eventstore.ErrDeleted)
	})
}

// Another process deletes a client at each moment at which a sandbox is made beside it.
func TestASandboxIsMadeAsItsClientIsDeleted(t *testing.T) {
	var w *fixture
	atEachRead(t, func(f *fixture, call commands.Call) (func(*commands.Commands) error, func() error) {
		w = f
		return func(c *commands.Commands) error {
				_, err := c.CreateSandbox(t.Context(), call, "ci", 0)
				return err
			}, func() error {
				_, err := w.EndClient(t.Context(), call)
				return err
			}
	}, func(err error) bool {
		for _, r := range w.records(t) {
			if added, ok := r.Event.(event.SandboxAdded); ok && !testkit.Must(w.log.IsDeleted(t.Context(), added.Sandbox))(t) {
				t.Errorf("%s is left of a client that was deleted", added.Sandbox)
			}
		}
		return err == nil
	})
}

func TestOnlyKeysThatTheMemberMadeAreKept(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	bob := testkit.Must(w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "admin", Password: "secret"}))(t)
	adas := testkit.Must(w.IssueAPIKey(t.Context(), call, commands.IssueAPIKey{Name: "of another"}))(t)
	if _, err := w.RemoveMember(t.Context(), call, bob.Member, adas.Key); !fault.Is(err, "api_key_unknown") {
		t.Errorf("got %v; want api_key_unknown", err)
	}
	if _, err := w.AccountByMember(t.Context(), call.Client, bob.Member); err != nil {
		t.Errorf("he is gone nevertheless: %v", err)
	}
}

func TestALoginIsRecordedOnceAnHourForEachNetwork(t *testing.T) {
	w := newFixture(t)
	ada, call := w.client(t, "ada@example.com")
	logIn := func(network string) {
		t.Helper()
		if err := w.NoteLogin(t.Context(), call, ada.Member, network); err != nil {
			t.Fatal(err)
		}
	}
	noted := func() (networks []string) {
		t.Helper()
		history, _, err := w.log.Load(t.Context(), eventstore.LoginsStream(call.Client, ada.Member))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range history {
			if bytes.Contains(r.Data, []byte("192.0.2")) {
				t.Errorf("the log shows where from: %s", r.Data)
			}
			network := testkit.Must(w.log.Open(t.Context(), r, "network"))(t)
			networks = append(networks, string(network))
		}
		return networks
	}
	for range 3 {
		logIn("192.0.2.1")
		logIn("192.0.2.2")
	}
	w.later()
	logIn("192.0.2.2")
	if diff := cmp.Diff([]string{"192.0.2.1", "192.0.2.2", "192.0.2.2"}, noted()); diff != "" {
		t.Error(diff)
	}
	for i := range 100 {
		logIn(fmt.Sprintf("198.51.100.%d", i))
	}
	if n := len(noted()); n != 2+32 {
		t.Errorf("%d logins are recorded; want 32 within an hour", n)
	}
}

func TestARefusedSubscriptionMakesNoKeyPair(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	in := commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}}
	hook := testkit.Must(w.Subscribe(t.Context(), call, in))(t)
	signed := domain.ControlsChange{Ed25519: new(true)}
	wrong := domain.ControlsChange{Ed25519: new(true), MaxPerSecond: new(-1)}
	stale := call
	stale.IfMatch = new(eventstore.Revision(7))
	for code, refused := range map[string]func() error{
		"invalid": func() error {
			in.Controls = wrong
			_, err := w.Subscribe(t.Context(), call, in)
			_, changed := w.ChangeWebhook(t.Context(), call, hook.ID, commands.ChangeWebhook{Controls: wrong})
			wantFault(t, changed, "invalid")
			return err
		},
		"webhook_unknown": func() error {
			_, err := w.ChangeWebhook(t.Context(), call, id.Next[id.Webhook](id.Random(rand.Reader)), commands.ChangeWebhook{Controls: signed})
			return err
		},
		"stale": func() error {
			_, err := w.ChangeWebhook(t.Context(), stale, hook.ID, commands.ChangeWebhook{Controls: signed})
			return err
		},
	} {
		wantFault(t, refused(), code)
		if n := w.count(t, "webhook_key.made"); n != 0 {
			t.Fatalf("%s: %d key pairs are made", code, n)
		}
	}
	fresh := call
	fresh.IfMatch = &hook.Outcome.Revision
	if _, err := w.ChangeWebhook(t.Context(), fresh, hook.ID, commands.ChangeWebhook{Controls: signed}); err != nil {
		t.Fatal(err)
	}
	in.Controls = signed
	if _, err := w.Subscribe(t.Context(), call, in); err != nil {
		t.Fatal(err)
	}
	records := w.records(t)
	made := slices.IndexFunc(records, func(r eventstore.Recorded) bool { return r.Type == "webhook_key.made" })
	changed := slices.IndexFunc(records, func(r eventstore.Recorded) bool { return r.Type == "webhook.controls_set" })
	if n := w.count(t, "webhook_key.made"); n != 1 || made > changed {
		t.Errorf("%d key pairs are made, the first at %d, the change is at %d", n, made, changed)
	}
}

func TestTheAddressOfAWebhookIsSealedAndKept(t *testing.T) {
	const url = "https://x.example/hunter2"
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	hook, err := w.Subscribe(t.Context(), call, commands.Subscribe{URL: url, EventTypes: []string{"match.computed"}})
	if err != nil || hook.URL != url {
		t.Fatalf("subscribed to %q, %v", hook.URL, err)
	}
	// One of a release before, in whose event the address is in the clear.
	old := id.Next[id.Webhook](id.Random(rand.Reader))
	data := fmt.Sprintf(`{"webhook_id":%q,"url":"https://x.example/old","event_types":["match.computed"]}`, old)
	meta := testkit.Must(json.Marshal(eventstore.Meta{Client: call.Client, Version: 1, RecordedAt: w.clock(), Actor: call.Actor}))(t)
	if _, err := w.store.Append(t.Context(), eventstore.WebhookStream(call.Client, old), eventstore.NoStream, []eventstore.Proposed{{
		ID: id.Next[id.Event](id.Random(rand.Reader)), Type: "webhook.subscribed", Version: 1, Client: call.Client,
		RecordedAt: w.clock(), Data: []byte(data), Meta: meta,
	}}); err != nil {
		t.Fatal(err)
	}
	types := [][]string{{"match.computed"}, {"clustering.failed"}}
	for n := range 210 { // beyond two snapshots
		for _, of := range []struct {
			webhook id.Webhook
			url     string
		}{{hook.ID, url}, {old, "https://x.example/old"}} {
			c := w.process(w.store, w.keys)
			changed, err := c.ChangeWebhook(t.Context(), seeded(call, fmt.Sprint(n), "b"), of.webhook, commands.ChangeWebhook{EventTypes: &types[(n+1)%2]})
			if err != nil || changed.URL != of.url {
				t.Fatalf("change %d: the address is %q, %v", n, changed.URL, err)
			}
			again, err := c.ChangeWebhook(t.Context(), seeded(call, fmt.Sprint(n), "b"), of.webhook, commands.ChangeWebhook{EventTypes: &types[(n+1)%2]})
			if err != nil || again.URL != of.url || !again.Outcome.Repeated {
				t.Fatalf("change %d, repeated: the address is %q, %v", n, again.URL, err)
			}
		}
	}
	if n := w.count(t, "webhook.snapshot_taken"); n < 2 {
		t.Errorf("%d snapshots", n)
	}
	for _, r := range w.records(t) {
		if bytes.Contains(r.Data, []byte("x.example")) && r.Version > 1 {
			t.Errorf("%s shows the address: %s", r.Type, r.Data)
		}
	}
}

func TestALoginOfTheFutureHidesNone(t *testing.T) {
	w := newFixture(t)
	ada, call := w.client(t, "ada@example.com")
	for _, jump := range []time.Duration{365 * 24 * time.Hour, -365 * 24 * time.Hour, 0} {
		w.jump(jump)
		if err := w.NoteLogin(t.Context(), call, ada.Member, "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(t, "member.logged_in"); n != 2 {
		t.Errorf("%d logins are recorded; want one by the clock that was ahead, and one since it is right", n)
	}
}

func TestWhoWasRemovedDoesNotLogIn(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	bob := testkit.Must(w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "viewer", Password: "secret"}))(t)
	if _, err := w.RemoveMember(t.Context(), call, bob.Member); err != nil {
		t.Fatal(err)
	}
	if err := w.NoteLogin(t.Context(), call, bob.Member, "192.0.2.1"); !fault.Of(err, fault.Missing) {
		t.Errorf("got %v; want a fault of kind Missing", err)
	}
}
