package commands_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// posts are the requests that can be repeated. Each returns what its answer
// shows.
func posts(t *testing.T, w *fixture) map[string]func(call commands.Call) (any, error) {
	t.Helper()
	return map[string]func(call commands.Call) (any, error){
		"user": func(call commands.Call) (any, error) {
			u, err := w.CreateUser(t.Context(), call, "new", []byte(`{"a":1}`))
			return []any{u.ID, u.ExternalID, string(u.Traits), u.CreatedAt, u.UpdatedAt, u.Outcome.Position, u.Outcome.Revision}, err
		},
		"webhook": func(call commands.Call) (any, error) {
			secret := "s3cret"
			h, err := w.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}, Secret: &secret})
			return []any{h.Webhook, h.CreatedAt, h.Outcome.Position}, err
		},
		"member": func(call commands.Call) (any, error) {
			m, err := w.AddMember(t.Context(), call, commands.AddMember{Email: "new@example.com", Role: "admin", Password: "x"})
			return []any{m.Member, m.Email, m.Role, m.CreatedAt, m.Outcome.Position}, err
		},
		"matches": func(call commands.Call) (any, error) {
			found, err := w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Limit: 5, Record: true})
			return shown(found), err
		},
	}
}

// shown is what an answer shows of matches.
func shown(m commands.Matches) []any {
	answer := []any{m.User, m.Position}
	for _, m := range m.Matches {
		answer = append(answer, m.MatchedUser, m.Score, len(m.Explanation))
	}
	return answer
}

func fixtureWithUser(t *testing.T) (*fixture, commands.Call) {
	t.Helper()
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	if _, err := w.CreateUser(t.Context(), call, "u1", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	w.matcher.found = manyMatches(4, 10)
	return w, call
}

func TestARepeatedRequestGetsTheSameAnswer(t *testing.T) {
	for _, name := range []string{"user", "webhook", "member", "matches"} {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			post := posts(t, w)[name]
			first := testkit.Must(post(seeded(call, "k1", "b1")))(t)
			recorded := w.length(t)
			w.later()
			w.matcher.found = manyMatches(2, 10)
			again, err := post(seeded(call, "k1", "b1"))
			if err != nil || !cmp.Equal(first, again) {
				t.Errorf("the repetition gives %v, %s", err, cmp.Diff(first, again))
			}
			_, err = post(seeded(call, "k1", "b2"))
			wantFault(t, err, "idempotency_key_reused")
			if n := w.length(t); n != recorded {
				t.Errorf("repeating recorded %d events", n-recorded)
			}
			w.check(t)
		})
	}
}

// What the first request was allowed was decided then: the layer is retired since, and its
// trait is sensitive.
func TestARepeatedRequestIsNotRefusedForWhatChangedSince(t *testing.T) {
	layered := func(layer id.ConsentLayer) commands.RequestRun {
		return commands.RequestRun{RunScope: event.RunScope{Layer: layer}}
	}
	for name, post := range map[string]func(w *fixture, call commands.Call, layer id.ConsentLayer) (any, error){
		"a consent layer": func(w *fixture, call commands.Call, _ id.ConsentLayer) (any, error) {
			l, err := w.DefineConsentLayer(t.Context(), call, "Research", []string{"a"}, "traits.a > 1")
			return l.ID, err
		},
		"a segment": func(w *fixture, call commands.Call, layer id.ConsentLayer) (any, error) {
			s, err := w.DefineSegment(t.Context(), call, "S", "traits.a > 1", layer)
			return s.ID, err
		},
		"a run": func(w *fixture, call commands.Call, layer id.ConsentLayer) (any, error) {
			run, err := w.RequestRun(t.Context(), call, layered(layer))
			return []any{run.Run, run.TraitPaths, run.Position}, err
		},
		"matches": func(w *fixture, call commands.Call, _ id.ConsentLayer) (any, error) {
			found, err := w.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Limit: 5, Filter: "traits.a > 1", Record: true})
			return shown(found), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			var in members
			for _, m := range w.matcher.found {
				in.ids = append(in.ids, m.MatchedUser)
			}
			w.Filter = in
			layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "Ads", []string{"a"}, ""))(t)
			first := testkit.Must(post(w, seeded(call, "k1", "b1"), layer.ID))(t)
			_, err1 := w.OverrideTraits(t.Context(), call, []byte(`{"a":{"sensitive":true}}`))
			_, err2 := w.RetireConsentLayer(t.Context(), call, layer.ID)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			recorded := w.length(t)
			again, err := post(w, seeded(call, "k1", "b1"), layer.ID)
			if err != nil || !cmp.Equal(first, again) {
				t.Errorf("the repetition gives %v, %s", err, cmp.Diff(first, again))
			}
			if _, err := post(w, seeded(call, "k2", "b1"), layer.ID); err == nil {
				t.Error("another request is not refused")
			}
			if n := w.length(t); n != recorded {
				t.Errorf("%d events were recorded", n-recorded)
			}
		})
	}
}

func TestARequestThatIsSentTwiceAtOnceIsCarriedOutOnce(t *testing.T) {
	for _, name := range []string{"user", "webhook", "member", "matches"} {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			post := posts(t, w)[name]
			answers := make([]any, 10)
			atOnce(len(answers), func(n int) {
				var err error
				if answers[n], err = post(seeded(call, "k1", "b1")); err != nil {
					t.Error(err)
				}
			})
			for _, a := range answers {
				if !cmp.Equal(a, answers[0]) {
					t.Errorf("the answers differ: %s", cmp.Diff(answers[0], a))
				}
			}
			w.check(t)
		})
	}
}

func TestARepeatedKeyIsNotShownTwice(t *testing.T) {
	w, call := fixtureWithUser(t)
	in := commands.IssueAPIKey{Name: "server"}
	key := testkit.Must(w.IssueAPIKey(t.Context(), seeded(call, "k1", "b1"), in))(t)
	again, err := w.IssueAPIKey(t.Context(), seeded(call, "k1", "b1"), in)
	wantFault(t, err, "secret_already_shown")
	if again.Raw != "" {
		t.Error("a raw key was shown that is not the key's")
	}
	_, err = w.IssueAPIKey(t.Context(), seeded(call, "k1", "b2"), in)
	wantFault(t, err, "idempotency_key_reused")
	if other, err := w.IssueAPIKey(t.Context(), seeded(call, "k2", "b1"), in); err != nil || other.Key == key.Key {
		t.Errorf("another request gets %s, %v", other.Key, err)
	}
}

// A subscription that is not there is none that an answer may show, whoever removed it.
func TestARepeatedSubscriptionIsRefusedOnceItWasRemoved(t *testing.T) {
	in := commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}}
	t.Run("by the client", func(t *testing.T) {
		w, call := fixtureWithUser(t)
		made, err := w.Subscribe(t.Context(), seeded(call, "k1", "b1"), in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.RemoveWebhook(t.Context(), call, made.ID); err != nil {
			t.Fatal(err)
		}
		_, err = w.Subscribe(t.Context(), seeded(call, "k1", "b1"), in)
		wantFault(t, err, "webhook_unknown")
	})
	t.Run("as one too many", func(t *testing.T) {
		w, call := fixtureWithUser(t)
		w.WebhooksBefore = func(context.Context, id.Client, id.Webhook) (int, error) { return 100, nil }
		_, err := w.Subscribe(t.Context(), seeded(call, "k1", "b1"), in)
		wantFault(t, err, "too_many_webhooks")
		_, err = w.Subscribe(t.Context(), seeded(call, "k1", "b1"), in)
		wantFault(t, err, "webhook_unknown")
	})
}

func TestRepeatingACreationDoesNotBringBackWhoWasErased(t *testing.T) {
	w, call := fixtureWithUser(t)
	post := seeded(call, "k1", "b1")
	if _, err := w.CreateUser(t.Context(), post, "new", []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.EraseUser(t.Context(), call, "ext:new"); err != nil {
		t.Fatal(err)
	}
	_, err := w.CreateUser(t.Context(), post, "new", []byte(`{"a":1}`))
	wantFault(t, err, "user_erased")
	_, err = w.EraseUser(t.Context(), call, "ext:new")
	wantFault(t, err, "user_unknown")
	if _, err := w.CreateUser(t.Context(), seeded(call, "k2", "b1"), "new", []byte(`{}`)); err != nil {
		t.Error(err)
	}
}

// The refusal gave the address back; the repetition must take it again.
func TestARequestThatWasRefusedCanBeRepeatedLater(t *testing.T) {
	w, call := fixtureWithUser(t)
	admin, err := w.AddMember(t.Context(), call, commands.AddMember{Email: "admin@example.com", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	post := seeded(call, "k1", "b1")
	post.Member = admin.Member
	in := commands.AddMember{Email: "new@example.com", Role: "owner"}
	_, err = w.AddMember(t.Context(), post, in)
	wantFault(t, err, "owner_only")
	post.Member = call.Member // who acts is not part of the key
	if _, err := w.AddMember(t.Context(), post, in); err != nil {
		t.Fatal(err)
	}
	_, err = w.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: in.Email, CompanyName: "Other"})
	wantFault(t, err, "email_exists")
	w.check(t)
}

// The sweep took the first run for crashed, and barred its member.
func TestARequestThatWasSweptAwayCanBeRepeated(t *testing.T) {
	w, call := fixtureWithUser(t)
	in := commands.AddMember{Email: "new@example.com", Role: "viewer"}
	life := &life{left: 1}
	_, err := w.process(mortalStore{w.store, life}, w.keys).AddMember(t.Context(), seeded(call, "k1", "b1"), in)
	if !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	w.driveOn(t)
	if n := w.count(t, "member.abandoned"); n != 1 {
		t.Fatalf("%d members are abandoned", n)
	}
	if _, err := w.AddMember(t.Context(), seeded(call, "k1", "b1"), in); err != nil {
		t.Fatal(err)
	}
	w.check(t)
}

func TestARemovedMembersRequestIsRepeatedWithoutAddingItAgain(t *testing.T) {
	w, call := fixtureWithUser(t)
	post := seeded(call, "k1", "b1")
	in := commands.AddMember{Email: "new@example.com", Role: "viewer"}
	added := testkit.Must(w.AddMember(t.Context(), post, in))(t)
	if _, err := w.RemoveMember(t.Context(), call, added.Member); err != nil {
		t.Fatal(err)
	}
	again, err := w.AddMember(t.Context(), post, in)
	if err != nil || again.Member != added.Member {
		t.Errorf("the repetition gives %s, %v", again.Member, err)
	}
	w.check(t)
	if _, err := w.AddMember(t.Context(), call, in); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
}

func TestMatchesAreFoundAgainBehindManyOthers(t *testing.T) {
	w, call := fixtureWithUser(t)
	in := commands.ComputeMatches{User: "ext:u1", Limit: 500, Record: true}
	post := seeded(call, "k1", "b1")
	first := testkit.Must(w.ComputeMatches(t.Context(), post, in))(t)
	w.matcher.found = make([]event.MatchComputed, 500)
	for i := range w.matcher.found {
		w.matcher.found[i].MatchedUser = id.Next[id.User](id.Random(w.Entropy))
	}
	for range 4 {
		if _, err := w.ComputeMatches(t.Context(), call, in); err != nil {
			t.Fatal(err)
		}
	}
	recorded := w.length(t)
	again, err := w.ComputeMatches(t.Context(), post, in)
	if err != nil || w.length(t) != recorded {
		t.Errorf("the repetition gives %v", err)
	}
	if diff := cmp.Diff(shown(first), shown(again)); diff != "" {
		t.Error(diff)
	}
}

// What a run recorded without getting as far as noting the head must be noted
// by the repetition that answers from it, or a reader may miss it.
func TestARepetitionNotesTheHeadItAnswersFrom(t *testing.T) {
	for _, name := range []string{"user", "webhook", "member", "matches"} {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			call = seeded(call, "k1", "b1")
			noted, died := eventstore.Position(""), errors.New("died before the head was noted")
			w.log.Acknowledge = func(context.Context, id.Client, eventstore.Position) error { return died }
			if _, err := posts(t, w)[name](call); !errors.Is(err, died) {
				t.Fatalf("got %v", err)
			}
			w.log.Acknowledge = func(_ context.Context, _ id.Client, at eventstore.Position) error {
				noted = max(noted, at)
				return nil
			}
			if _, err := posts(t, w)[name](call); err != nil {
				t.Fatal(err)
			}
			for _, r := range w.records(t) {
				if r.Client == call.Client && r.Type != "claim.reserved" && r.Type != "claim.confirmed" && r.Position > noted {
					t.Errorf("%s at %s was answered from, %s was noted", r.Type, r.Position, noted)
				}
			}
		})
	}
}

// Also who is refused, or told that nothing is left to do, is answered from what
// was recorded.
func TestWhoeverAnswersFromWhatStandsThereNotesTheHead(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *fixture, commands.Call) func() error{
		"an erasure": func(t *testing.T, w *fixture, call commands.Call) func() error {
			t.Helper()
			return func() error {
				_, err := w.EraseUser(t.Context(), call, "ext:u1")
				return err
			}
		},
		"a spend": func(t *testing.T, w *fixture, call commands.Call) func() error {
			t.Helper()
			c := w.spender(w.store, always(0))
			campaign := running(t, c, call, euros)
			c.Log = w.log
			return func() error {
				_, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: "one", AmountMinor: 1})
				return err
			}
		},
		"an impression": func(t *testing.T, w *fixture, call commands.Call) func() error {
			t.Helper()
			c := w.spender(w.store, always(0))
			campaign := running(t, c, call, euros)
			c.Log = w.log
			return func() error {
				_, err := c.RecordEngagement(t.Context(), seeded(call, "k1", "b1"), commands.Engage{Campaign: campaign, Kind: "impression", User: "ext:u1"})
				return err
			}
		},
		"ends of deliveries": func(t *testing.T, w *fixture, call commands.Call) func() error {
			t.Helper()
			ended := event.DeliveriesEnded{Webhook: id.From[id.Webhook]([16]byte{2}), Deliveries: []event.Ending{{State: "dropped"}}}
			return func() error {
				return w.RecordEndings(t.Context(), call.Client, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), eventstore.NoStream, ended)
			}
		},
		"a log-in": func(t *testing.T, w *fixture, call commands.Call) func() error {
			t.Helper()
			name := "Another"
			return func() error {
				_, err := w.ChangeClient(t.Context(), call, commands.ClientChange{Name: &name})
				if err == nil {
					_, err = w.AccountByEmail(t.Context(), "ada@example.com")
				}
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			do := prepare(t, w, call)
			noted, died := eventstore.Position(""), errors.New("died before the head was noted")
			w.log.Acknowledge = func(context.Context, id.Client, eventstore.Position) error { return died }
			if err := do(); !errors.Is(err, died) {
				t.Fatalf("got %v", err)
			}
			w.log.Acknowledge = func(_ context.Context, _ id.Client, at eventstore.Position) error {
				noted = max(noted, at)
				return nil
			}
			if err := do(); err != nil && fault.As(err) == nil {
				t.Fatalf("got %v", err)
			}
			records := w.records(t)
			if last := records[len(records)-1]; last.Position > noted {
				t.Errorf("%s at %s was answered from, %s was noted", last.Type, last.Position, noted)
			}
		})
	}
}
