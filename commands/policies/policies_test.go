package policies

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/testkit"
)

// frailKeys cannot destroy anything: as for a process that dies just before.
type frailKeys struct{ seal.Keys }

var errDied = errors.New("the process died")

func (frailKeys) Destroy(context.Context, id.Client, string) error { return errDied }

// frailStore takes one append and no more.
type frailStore struct {
	eventstore.Store
	appends *int
}

func (s frailStore) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if *s.appends++; *s.appends > 1 {
		return eventstore.Appended{}, errDied
	}
	return s.Store.Append(ctx, stream, expected, events)
}

// fixture is a log, the process that runs the policies, and one that dies.
type fixture struct {
	store    *memstore.Store
	keys     *keystest.Memory
	master   seal.MasterKeys
	policies *Policies
	open     []eventstore.Stream
	asked    time.Time
	made     []id.Key // by the member who was removed
	waiting  []id.Client
}

// Take implements [MatchTurns]: nobody waits.
func (*fixture) Take(context.Context, projections.MatchUser) (bool, error) {
	return false, nil
}

// WaitingOf implements [Segments].
func (*fixture) WaitingOf(_ context.Context, _ id.Client, now time.Time) (due time.Time, number int64, some bool, err error) {
	return now, 0, true, nil
}

// Due implements [DueCampaigns]: there is none.
func (*fixture) Due(context.Context, time.Time, int) (map[id.Campaign]id.Client, error) {
	return nil, nil
}

// MadeBy implements [commands.Keys].
func (o *fixture) MadeBy(context.Context, id.Client, id.Member) ([]id.Key, error) { return o.made, nil }

// Before implements [commands.Keys].
func (*fixture) Before(context.Context, id.Client, id.Key) (int, error) { return 0, nil }

func newFixture(t *testing.T) *fixture {
	t.Helper()
	master := keystest.NewMaster(t)
	o := &fixture{store: memstore.New("test"), keys: keystest.NewMemory(), master: master}
	o.policies = &Policies{
		Commands: o.process(o.store, o.keys), Claims: o, Campaigns: o, Segments: o, Sandboxes: noSandboxes{}, Matching: o, RecordEndings: nothingEnded, DisableFailing: func(context.Context) error { return nil }, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	return o
}

func (o *fixture) process(store eventstore.Store, keys seal.Keys) *commands.Commands {
	return &commands.Commands{
		Log: &eventstore.Log{
			Store: store, Vault: seal.New(keys, o.master, rand.Reader), Registry: event.All(), Now: time.Now,
		},
		Entropy:      rand.Reader,
		HashPassword: func(context.Context, string, ...string) (string, error) { return "hash", nil },
		Keys:         o,
		Revoked:      func(context.Context, id.Client, string, time.Time) error { return nil },
	}
}

func (*fixture) Building(context.Context) ([]id.Client, error) { return nil, nil }
func (*fixture) Restored(context.Context) ([]id.Client, error) { return nil, nil }
func (*fixture) RestoredOf(context.Context, id.Client) (segment id.Segment, rule string, changed eventstore.Revision, ok bool, err error) {
	return "", "", 0, false, nil
}
func (o *fixture) Waiting(context.Context, time.Time) ([]id.Client, error) { return o.waiting, nil }
func (*fixture) Build(context.Context, id.Client) (bool, int64, error)     { return false, -1, nil }

// OpenSince implements [OpenClaims].
func (o *fixture) OpenSince(_ context.Context, before time.Time, _ int) ([]eventstore.Stream, error) {
	o.asked = before
	return o.open, nil
}

type noSandboxes struct{}

// Due implements [Sandboxes].
func (noSandboxes) Due(context.Context, int) (map[id.Client]id.Client, error) {
	return nil, nil
}

func nothingEnded(context.Context) (bool, error) { return false, nil }

// leave erases a user and removes a member in a process that dies before it
// has destroyed their keys, and returns what that recorded.
func (o *fixture) leave(t *testing.T) (left []eventstore.Recorded) {
	t.Helper()
	c := o.process(o.store, frailKeys{o.keys})
	ada := testkit.Must(c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}))(t)
	call := commands.Call{Client: ada.Client, Member: ada.Member, Actor: string(ada.Member)}
	bob, err1 := c.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "viewer"})
	_, err2 := c.CreateUser(t.Context(), call, "u1", []byte(`{}`))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := c.EraseUser(t.Context(), call, "ext:u1"); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	if _, err := c.RemoveMember(t.Context(), call, bob.Member); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	records := testkit.Must(o.store.ReadAll(t.Context(), eventstore.Start, 1000))(t)
	for _, r := range records {
		recorded := testkit.Must(c.Log.Decode(r))(t)
		left = append(left, recorded)
	}
	return left
}

// forgotten says whether what is known of the two who left cannot be read.
func (o *fixture) forgotten(t *testing.T, left []eventstore.Recorded) (user, member bool) {
	t.Helper()
	log := o.process(o.store, o.keys).Log // no cached keys
	erased := func(r eventstore.Recorded, field string) bool {
		_, err := log.Open(t.Context(), r, field)
		if err != nil && !errors.Is(err, seal.ErrErased) {
			t.Fatal(err)
		}
		return err != nil
	}
	for _, r := range left {
		switch e := r.Event.(type) {
		case event.EndUserCreated:
			user = erased(r, "traits")
		case event.MemberAdded:
			if e.Role == "viewer" {
				member = erased(r, "email")
			} else if erased(r, "email") {
				t.Error("the owner was forgotten")
			}
		}
	}
	return user, member
}

func TestForgettingTwiceDoesNoMore(t *testing.T) {
	o := newFixture(t)
	left := o.leave(t)
	if user, member := o.forgotten(t, left); user || member {
		t.Fatal("forgotten before the policy ran")
	}
	var recorded eventstore.Position
	for range 3 {
		for _, r := range left {
			if err := o.policies.forget(t.Context(), r); err != nil {
				t.Fatalf("%s: %v", r.Type, err)
			}
		}
		if user, member := o.forgotten(t, left); !user || !member {
			t.Errorf("forgotten: user %t, member %t", user, member)
		}
		head, err := o.store.Head(t.Context())
		if err != nil || recorded != "" && head != recorded {
			t.Errorf("the log grew to %s, %v", head, err)
		}
		recorded = head
	}
	if _, err := o.policies.Commands.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "bob@example.com", CompanyName: "Bob"}); err != nil {
		t.Errorf("the address is not free: %v", err)
	}
}

// An event whose key could not be destroyed comes again: what is not told as failed is never erased.
func TestAKeyThatCannotBeDestroyedIsToldOf(t *testing.T) {
	o := newFixture(t)
	keys := keystest.NewMemory()
	vault := o.process(o.store, keys).Log.Vault
	for subject, e := range map[string]event.Event{
		"usr_1": event.EndUserErased{User: "usr_1"},
		"lay_1": event.ConsentLayerRetired{Layer: "lay_1"},
		"seg_1": event.SegmentRetired{Segment: "seg_1"},
	} {
		if err := vault.Prepare(t.Context(), "cli_1", subject); err != nil {
			t.Fatal(err)
		}
		ended := eventstore.Recorded{Record: eventstore.Record{Proposed: eventstore.Proposed{Client: "cli_1"}}, Event: e}
		o.policies.Commands = o.process(o.store, frailKeys{keys})
		if err := o.policies.forget(t.Context(), ended); !errors.Is(err, errDied) {
			t.Errorf("%T: %v", e, err)
		}
		o.policies.Commands = o.process(o.store, keys)
		if err := o.policies.forget(t.Context(), ended); err != nil {
			t.Errorf("%T, again: %v", e, err)
		}
		if key, err := keys.Subject(t.Context(), "cli_1", subject); err != nil || len(key.Wrapped) > 0 {
			t.Errorf("%T leaves a key of %d bytes, %v", e, len(key.Wrapped), err)
		}
	}
}

// A sandbox that a policy opens names no event of the client beside it, as one that its
// request opens does not.
func TestASandboxIsOpenedWithoutACauseInAnotherHistory(t *testing.T) {
	o := newFixture(t)
	c := o.policies.Commands
	ada := testkit.Must(c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}))(t)
	sandbox := id.NextSandbox(id.Random(rand.Reader), ada.Client)
	added := eventstore.Recorded{
		Record: eventstore.Record{Proposed: eventstore.Proposed{ID: "evt_beside", Client: ada.Client}},
		Event:  event.SandboxAdded{Sandbox: sandbox, Name: "ci"},
	}
	if err := o.policies.forget(t.Context(), added); err != nil {
		t.Fatal(err)
	}
	opened, err := o.store.ReadStream(t.Context(), eventstore.ClientStream(sandbox), 0, 10)
	if err != nil || len(opened) == 0 {
		t.Fatal(opened, err)
	}
	for _, r := range opened {
		if strings.Contains(string(r.Meta), "evt_") {
			t.Errorf("%s: %s", r.Type, r.Meta)
		}
	}
}

// A process died after it had recorded that a sandbox is deleted: its place beside the client is
// given back all the same.
func TestADeletedSandboxGivesItsPlaceBackAfterACrash(t *testing.T) {
	o := newFixture(t)
	c := o.policies.Commands
	ada := testkit.Must(c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}))(t)
	call := commands.Call{Client: ada.Client, Member: ada.Member, Actor: string(ada.Member)}
	made := testkit.Must(c.CreateSandbox(t.Context(), call, "ci", 0))(t)
	died := o.process(o.store, o.keys)
	died.Revoked = func(context.Context, id.Client, string, time.Time) error { return errDied }
	if _, err := died.DeleteSandbox(t.Context(), call, made.Sandbox); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	deleted := eventstore.Recorded{
		Record: eventstore.Record{Proposed: eventstore.Proposed{ID: "evt_deleted", Client: made.Sandbox}},
		Event:  event.ClientDeleted{Client: made.Sandbox, Parent: ada.Client},
	}
	added := eventstore.Recorded{Record: deleted.Record, Event: event.SandboxAdded{Sandbox: made.Sandbox, Name: "ci"}}
	added.Client = ada.Client
	for range 2 {
		if err := errors.Join(o.policies.forget(t.Context(), deleted), o.policies.forget(t.Context(), added)); err != nil {
			t.Fatal(err) // the policy would stand still
		}
		if _, err := c.DeleteSandbox(t.Context(), call, made.Sandbox); !fault.Is(err, "sandbox_unknown") {
			t.Errorf("its place is still taken: %v", err)
		}
	}
}

// The same of a client: its keys are destroyed, and its sandbox and the address are not left behind.
func TestADeletedClientIsGoneAfterACrash(t *testing.T) {
	o := newFixture(t)
	c := o.policies.Commands
	in := commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}
	ada := testkit.Must(c.SignUp(t.Context(), commands.Call{}, in))(t)
	call := commands.Call{Client: ada.Client, Member: ada.Member, Actor: string(ada.Member)}
	made := testkit.Must(c.CreateSandbox(t.Context(), call, "ci", 0))(t)
	died := o.process(o.store, o.keys)
	died.Revoked = func(context.Context, id.Client, string, time.Time) error { return errDied }
	if _, err := died.EndClient(t.Context(), call); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	last := testkit.Must(c.Log.ReadBack(t.Context(), eventstore.ClientStream(ada.Client), eventstore.End, 1))(t)
	if !Wants(last[0].Record) {
		t.Error("no policy wants it")
	}
	for range 2 {
		if err := o.policies.forget(t.Context(), last[0]); err != nil {
			t.Fatal(err) // the policy would stand still
		}
	}
	for _, client := range []id.Client{ada.Client, made.Sandbox} {
		deleted, err := c.Log.IsDeleted(t.Context(), client)
		if late := c.Log.Vault.Prepare(t.Context(), client, "late"); err != nil || !deleted || !errors.Is(late, seal.ErrDeleted) {
			t.Errorf("%s: deleted: %t, %v, and another key: %v", client, deleted, err, late)
		}
	}
	testkit.Must(c.SignUp(t.Context(), commands.Call{}, in))(t)
}

func TestOnlyWhatAPolicyAnswersIsWanted(t *testing.T) {
	wanted := 0
	for _, r := range newFixture(t).leave(t) {
		switch r.Type {
		case "end_user.erased", "member.removed":
			wanted++
			if !Wants(r.Record) {
				t.Errorf("%s is passed over", r.Type)
			}
		default:
			if Wants(r.Record) {
				t.Errorf("%s is wanted", r.Type)
			}
		}
	}
	if wanted != 2 {
		t.Errorf("%d events are wanted", wanted)
	}
}

func TestThePoliciesFinishWhatACrashLeft(t *testing.T) {
	o := newFixture(t)
	left := o.leave(t)
	runner := &projector.Runner{
		Pool: pgtest.New(t), Log: o.policies.Commands.Log, Name: "a", Logger: o.policies.Logger, Now: time.Now,
	}
	o.policies.Subscriber = &projector.Subscriber{Runner: runner, Wants: Wants}
	run(t, o.policies)
	testkit.Eventually(t, "both are forgotten", func() bool {
		user, member := o.forgotten(t, left)
		return user && member
	})
}

// run runs the policies until the test ends.
func run(t *testing.T, p *Policies) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// handing is a subscriber that hands out what the test gives it.
type handing chan *message.Message

func (h handing) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	context.AfterFunc(ctx, func() { close(h) })
	return h, nil
}

func (h handing) Close() error { return nil }

func TestAnEventThatIsNotHandledIsNotAcknowledged(t *testing.T) {
	o := newFixture(t)
	messages := make(handing)
	o.policies.Subscriber = messages
	run(t, o.policies)
	for range 2 { // the router goes on after a failure
		foreign := message.NewMessage("x", nil)
		messages <- foreign
		select {
		case <-foreign.Nacked():
		case <-foreign.Acked():
			t.Error("acknowledged")
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
	}
}

// abandoned begins a sign-up in a process that dies after the reservation,
// and returns its claim.
func (o *fixture) abandoned(t *testing.T, email string) eventstore.Stream {
	t.Helper()
	c := o.process(frailStore{o.store, new(int)}, o.keys)
	_, err := c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: email, CompanyName: "Acme"})
	if !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	records := testkit.Must(o.store.ReadAll(t.Context(), eventstore.Start, 1000))(t)
	return records[len(records)-1].Stream
}

func TestTheSweepResolvesWhatIsOlderThanACommandTakes(t *testing.T) {
	o := newFixture(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o.policies.Now = func() time.Time { return now }
	o.open = []eventstore.Stream{o.abandoned(t, "ada@example.com"), o.abandoned(t, "bob@example.com")}
	signUp := commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}
	if _, err := o.policies.Commands.SignUp(t.Context(), commands.Call{}, signUp); !fault.Is(err, "email_exists") {
		t.Fatalf("before the sweep: %v", err)
	}
	for range 2 { // resolving what is resolved does nothing
		if err := o.policies.ResolveClaims(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !o.asked.Equal(now.Add(-time.Minute)) {
		t.Errorf("asked for claims before %s", o.asked)
	}
	for _, email := range []string{"ada@example.com", "bob@example.com"} {
		signUp.Email = email
		if _, err := o.policies.Commands.SignUp(t.Context(), commands.Call{}, signUp); err != nil {
			t.Errorf("after the sweep: %v", err)
		}
	}
}

func TestAClaimThatCannotBeResolvedKeepsBackNoOther(t *testing.T) {
	o := newFixture(t)
	newer := eventstore.Proposed{
		ID: id.Next[id.Event](id.Random(rand.Reader)), Type: "claim.reserved", Version: 99,
		RecordedAt: time.Now(), Data: []byte(`{}`), Meta: []byte(`{}`),
	}
	if _, err := o.store.Append(t.Context(), "email-x", eventstore.NoStream, []eventstore.Proposed{newer}); err != nil {
		t.Fatal(err)
	}
	o.open = []eventstore.Stream{"email-x", o.abandoned(t, "ada@example.com")}
	if err := o.policies.ResolveClaims(t.Context()); !errors.Is(err, event.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if _, err := o.policies.Commands.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}); err != nil {
		t.Error(err)
	}
}

// brokenStore panics at each append of a stream.
type brokenStore struct {
	eventstore.Store
	stream eventstore.Stream
}

func (s brokenStore) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if stream == s.stream {
		panic("it cannot be appended")
	}
	return s.Store.Append(ctx, stream, expected, events)
}

func TestAClaimWhoseResolutionPanicsKeepsBackNoOther(t *testing.T) {
	o := newFixture(t)
	o.open = []eventstore.Stream{o.abandoned(t, "bob@example.com"), o.abandoned(t, "ada@example.com")}
	o.policies.Commands = o.process(brokenStore{o.store, o.open[0]}, o.keys)
	if err := o.policies.ResolveClaims(t.Context()); err == nil || !strings.Contains(err.Error(), "it cannot be appended") {
		t.Errorf("got %v", err)
	}
	if _, err := o.policies.Commands.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}); err != nil {
		t.Error(err)
	}
}

// stuckStore answers no append of a stream.
type stuckStore struct {
	eventstore.Store
	stream eventstore.Stream
}

func (s stuckStore) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if stream == s.stream {
		<-ctx.Done()
		return eventstore.Appended{}, ctx.Err()
	}
	return s.Store.Append(ctx, stream, expected, events)
}

func TestAClientForWhichTimeDoesNotPassKeepsBackNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFixture(t)
		ids := id.Random(rand.Reader)
		o.waiting = []id.Client{id.Next[id.Client](ids), id.Next[id.Client](ids)}
		o.policies.Commands = o.process(stuckStore{o.store, eventstore.SegmentTimeStream(o.waiting[0])}, o.keys)
		if err := o.policies.PassTime(t.Context()); err != nil {
			t.Error(err)
		}
		passed, err := o.store.ReadStream(t.Context(), eventstore.SegmentTimeStream(o.waiting[1]), 0, 1)
		if err != nil || len(passed) != 1 {
			t.Errorf("of the other client: %v, %v", passed, err)
		}
	})
}

func TestThePoliciesSweepFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFixture(t)
		o.open = []eventstore.Stream{o.abandoned(t, "ada@example.com")}
		o.policies.Subscriber = make(handing)
		run(t, o.policies)
		time.Sleep(claimPause + time.Second)
		synctest.Wait()
		if claim := testkit.Must(o.store.ReadStream(t.Context(), o.open[0], 0, 10))(t); len(claim) != 2 { // it is reserved, and given back
			t.Errorf("after %s it has %d events", claimPause, len(claim))
		}
		if _, err := o.policies.Commands.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "ada@example.com", CompanyName: "Acme"}); err != nil {
			t.Errorf("after %s: %v", claimPause, err)
		}
	})
}
