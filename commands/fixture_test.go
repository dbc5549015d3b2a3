package commands_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"kindred/commands"
	"kindred/commands/policies"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/testkit"
)

// fixture is a log, its keys and a clock, which any number of processes share.
type fixture struct {
	store   *memstore.Store
	keys    *keystest.Memory
	master  seal.MasterKeys
	matcher *matcher
	decided [2]int // what is known of every client's LastDecision
	model   *model // made when it is needed
	log     *eventstore.Log
	erased  map[string]bool // the lookups that were noted while an import is open; nil: none is
	*commands.Commands

	mu  sync.Mutex
	now time.Time
}

// countWebhooks counts the subscriptions of a client by reading the log.
func (w *fixture) countWebhooks(ctx context.Context, client id.Client) (n int, err error) {
	records, err := w.store.ReadAll(ctx, eventstore.Start, 1_000_000)
	for _, r := range records {
		switch {
		case r.Client != client:
		case r.Type == "webhook.subscribed":
			n++
		case r.Type == "webhook.removed":
			n--
		}
	}
	return n, err
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	master := keystest.NewMaster(t)
	w := &fixture{
		store: memstore.New("test"), keys: keystest.NewMemory(), master: master,
		matcher: &matcher{}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	w.Commands = w.process(w.store, w.keys)
	w.log = w.Log
	return w
}

// process is a process of its own, with caches of its own.
func (w *fixture) process(store eventstore.Store, keys seal.Keys) *commands.Commands {
	vault := seal.New(keys, w.master, rand.Reader)
	vault.Now = w.clock
	return w.spending(&commands.Commands{
		Log:     &eventstore.Log{Store: store, Vault: vault, Registry: event.All(), Now: w.clock},
		Entropy: rand.Reader, Writers: commands.NewWriters(), CountWebhooks: w.countWebhooks, Matcher: w.matcher,
		WebhooksBefore: func(context.Context, id.Client, id.Webhook) (int, error) { return 0, nil },
		LastDecision: func(context.Context, id.Client) (last, version int, err error) {
			return w.decided[0], w.decided[1], nil
		},
		Erasures: erasures{w},
		Keys:     keysInLog{w.store},
		Revoked:  func(context.Context, id.Client, string, time.Time) error { return nil },
		HashPassword: func(_ context.Context, password string, _ ...string) (string, error) {
			return "hash of " + password, nil
		},
		NewAPIKey: func(id.Client) (commands.APIKeySecret, error) {
			raw := rand.Text()
			return commands.APIKeySecret{Raw: raw, Hash: sha256.Sum256([]byte(raw)), Fingerprint: raw[:4]}, nil
		},
		CheckURL: func(url string) error {
			if url == "http://10.0.0.1" {
				return fault.NewInvalid(fault.Field{Pointer: "/url", Detail: "is private"})
			}
			return nil
		},
	}, always(0))
}

// allEvents is made once: a test may decode thousands.
var allEvents = event.All()

// keysInLog finds API keys by reading the log.
type keysInLog struct{ store eventstore.Store }

func (k keysInLog) inForce(ctx context.Context, client id.Client) (issued []event.APIKeyIssued, err error) {
	records, err := k.store.ReadAll(ctx, eventstore.Start, 1_000_000)
	for _, r := range records {
		if r.Client != client || r.Type != "api_key.issued" && r.Type != "api_key.revoked" {
			continue
		}
		e, err := allEvents.Decode(r.Type, r.Version, r.Data)
		if err != nil {
			return nil, err
		}
		switch e := e.(type) {
		case event.APIKeyIssued:
			issued = append(issued, e)
		case event.APIKeyRevoked:
			issued = slices.DeleteFunc(issued, func(i event.APIKeyIssued) bool { return i.Key == e.Key })
		}
	}
	return issued, err
}

func (k keysInLog) MadeBy(ctx context.Context, client id.Client, member id.Member) (made []id.Key, err error) {
	issued, err := k.inForce(ctx, client)
	for _, e := range issued {
		if e.IssuedBy == member {
			made = append(made, e.Key)
		}
	}
	return made, err
}

func (k keysInLog) Before(ctx context.Context, client id.Client, key id.Key) (int, error) {
	issued, err := k.inForce(ctx, client)
	if at := slices.IndexFunc(issued, func(e event.APIKeyIssued) bool { return e.Key == key }); at >= 0 {
		return at, err
	}
	return len(issued), err
}

// erasures notes who is erased while an import is open.
type erasures struct{ *fixture }

// Note notes an erasure.
func (e erasures) Note(_ context.Context, _ id.Client, lookup []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.erased != nil {
		e.erased[string(lookup)] = true
	}
	return nil
}

// Since says who was erased.
func (e erasures) Since(_ context.Context, _ id.Client, _ id.Import, lookups [][]byte) ([]bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	erased := make([]bool, len(lookups))
	for i, lookup := range lookups {
		erased[i] = e.erased[string(lookup)]
	}
	return erased, nil
}

// accept opens an import.
func (w *fixture) accept(call commands.Call) commands.Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.erased = map[string]bool{}
	call.Import = "imp_1"
	return call
}

func (w *fixture) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Microsecond)
	return w.now
}

// later moves the clock on, beyond every cache and every grace.
func (w *fixture) later() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Hour)
}

// jump moves the clock on, or back.
func (w *fixture) jump(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(by)
}

// client signs a company up.
func (w *fixture) client(t *testing.T, email string) (commands.Account, commands.Call) {
	t.Helper()
	a := testkit.Must(w.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: email, Password: "secret", CompanyName: "Acme"}))(t)
	return a, commands.Call{Client: a.Client, Member: a.Member, Actor: string(a.Member)}
}

// records reads the whole log.
func (w *fixture) records(t *testing.T) (all []eventstore.Recorded) {
	t.Helper()
	records := testkit.Must(w.store.ReadAll(t.Context(), eventstore.Start, 1_000_000))(t)
	for _, r := range records {
		recorded := testkit.Must(w.log.Decode(r))(t)
		all = append(all, recorded)
	}
	return all
}

// length is how many events the log holds.
func (w *fixture) length(t *testing.T) int {
	t.Helper()
	records := testkit.Must(w.store.ReadAll(t.Context(), eventstore.Start, 1_000_000))(t)
	return len(records)
}

// count says how many events of a type the log holds.
func (w *fixture) count(t *testing.T, name string) (n int) {
	t.Helper()
	for _, r := range w.records(t) {
		if r.Type == name {
			n++
		}
	}
	return n
}

// OpenSince implements [policies.OpenClaims] by reading the log.
func (w *fixture) OpenSince(ctx context.Context, before time.Time, limit int) ([]eventstore.Stream, error) {
	records, err := w.store.ReadAll(ctx, eventstore.Start, 1_000_000)
	var open []eventstore.Stream
	last := map[eventstore.Stream]eventstore.Record{}
	for _, r := range records {
		last[r.Stream] = r
	}
	for _, r := range records {
		if r.Type == "claim.reserved" && last[r.Stream].ID == r.ID && r.RecordedAt.Before(before) && len(open) < limit {
			open = append(open, r.Stream)
		}
	}
	return open, err
}

// sweep resolves what is open, in a process of its own.
func (w *fixture) sweep(ctx context.Context, c *commands.Commands) error {
	p := policies.Policies{
		Commands: c, Claims: w, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return w.clock().Add(time.Hour) },
	}
	return p.ResolveClaims(ctx)
}

// driveOn does what the policies do after a crash, until nothing is left.
func (w *fixture) driveOn(t *testing.T) {
	t.Helper()
	w.later()
	for _, r := range w.records(t) {
		var err error
		switch e := r.Event.(type) {
		case event.EndUserErased:
			err = w.ForgetUser(t.Context(), r.Client, e.User)
		case event.MemberRemoved:
			err = w.ForgetMember(t.Context(), commands.Call{Client: r.Client, Actor: "policy:forget"}, e)
		case event.SandboxAdded:
			err = w.OpenSandbox(t.Context(), commands.Call{Client: r.Client, Actor: "policy:forget"}, event.SandboxStanding{Sandbox: e.Sandbox, Name: e.Name})
		case event.ClientDeleted:
			if e.Parent == "" {
				_, err = w.EndClient(t.Context(), commands.Call{Client: e.Client, Actor: "policy:forget"})
			} else {
				_, err = w.EndSandbox(t.Context(), commands.Call{Client: e.Parent, Actor: "policy:forget"}, e.Client)
			}
		}
		if err != nil {
			t.Fatalf("forget after %s: %v", r.Type, err)
		}
	}
	if err := w.sweep(t.Context(), w.Commands); err != nil {
		t.Fatalf("sweep: %v", err)
	}
}

// check holds the log against what must be true once the policies have run.
func (w *fixture) check(t *testing.T) {
	t.Helper()
	claims, clients := map[eventstore.Stream]*domain.Claim{}, map[id.Client]*domain.Client{}
	held := map[eventstore.Stream]domain.Holder{} // what clients and members say they hold
	records := w.records(t)
	ids := map[id.Event]bool{}
	for _, r := range records {
		if ids[r.ID] {
			t.Errorf("%s is recorded twice", r.ID)
		}
		ids[r.ID] = true
		switch r.Event.(type) {
		case event.Reserved, event.Confirmed, event.Released:
			if claims[r.Stream] == nil {
				claims[r.Stream] = &domain.Claim{}
			}
			claims[r.Stream].Apply(r.Event)
			continue
		}
		if r.Stream != eventstore.Stream("client-"+r.Client) {
			continue
		}
		if clients[r.Client] == nil {
			clients[r.Client] = &domain.Client{}
		}
		clients[r.Client].Apply(r.Event)
	}
	for _, r := range records {
		client := clients[r.Client]
		switch e := r.Event.(type) {
		case event.ClientSignedUp:
			if client.Abandoned {
				t.Errorf("%s was signed up and abandoned", r.Client)
			}
			if client.Lives() {
				w.hold(t, held, "slug", e.Slug, domain.Holder{Client: e.Client})
			}
		case event.MemberAdded:
			email, err := w.log.Open(t.Context(), r, "email")
			if client.Member(e.Member) == nil {
				if !errors.Is(err, seal.ErrErased) {
					t.Errorf("what is known of removed %s can be read: %v", e.Member, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			w.hold(t, held, "email", domain.EmailKey(string(email)), domain.Holder{Client: r.Client, Member: e.Member})
		case event.EndUserCreated:
			last := testkit.Must(w.log.ReadBack(t.Context(), r.Stream, eventstore.End, 1))(t)
			_, erased := last[0].Event.(event.EndUserErased)
			erased = erased || client.Deleted
			if _, err := w.log.Open(t.Context(), r, "traits"); erased != errors.Is(err, seal.ErrErased) {
				t.Errorf("%s: erased is %t, but reading its traits says %v", e.User, erased, err)
			}
		}
	}
	for stream, claim := range claims {
		h, wanted := held[stream]
		switch {
		case claim.Held && !wanted:
			t.Errorf("%s is held by %v, who does not have it: it is lost", stream, claim.Holder)
		case wanted && (!claim.Held || claim.Holder != h):
			t.Errorf("%s belongs to %v, but its claim says %+v", stream, h, *claim)
		case claim.Held && !claim.Confirmed:
			t.Errorf("%s is still open", stream)
		}
	}
}

func (w *fixture) hold(t *testing.T, held map[eventstore.Stream]domain.Holder, kind, value string, h domain.Holder) {
	t.Helper()
	keyed := testkit.Must(w.log.Vault.Index(t.Context(), "", kind, value))(t)
	stream := eventstore.Stream(kind + "-" + hex.EncodeToString(keyed[:]))
	if other, taken := held[stream]; taken {
		t.Errorf("%s %q belongs to %v and to %v", kind, value, other, h)
	}
	held[stream] = h
}

// matcher finds what it was told to.
type matcher struct {
	mu    sync.Mutex
	found []event.MatchComputed
	calls int

	explained int // matches
}

func (m *matcher) Top(_ context.Context, _ id.Client, user id.User, _ event.Within, limit int) ([]event.MatchComputed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	found := make([]event.MatchComputed, min(limit, len(m.found)))
	for i := range found {
		found[i] = m.found[i]
		found[i].User = user
	}
	m.explained += len(found)
	return found, nil
}

func (m *matcher) Candidates(_ context.Context, _ id.Client, _ id.User, _ event.Within, limit int) (users []id.User, err error) {
	for _, found := range m.found[:min(limit, len(m.found))] {
		users = append(users, found.MatchedUser)
	}
	return users, nil
}

func (m *matcher) Explained(_ context.Context, _ id.Client, user id.User, _ event.Within, others []id.User) (found []event.MatchComputed, err error) {
	for _, one := range m.found {
		if one.User = user; slices.Contains(others, one.MatchedUser) {
			found = append(found, one)
		}
	}
	m.explained += len(found)
	return found, nil
}

func (m *matcher) TopKept(context.Context, id.Client, id.User, event.Within, int) ([]event.MatchComputed, bool, error) {
	return nil, false, nil
}

func (m *matcher) Pair(_ context.Context, _ id.Client, user, other id.User, _ event.Within) (event.MatchComputed, bool, error) {
	return event.MatchComputed{User: user, MatchedUser: other, Score: 0.5}, true, nil
}

// Like is a tenth less for each byte of the traits.
func (m *matcher) Under(context.Context, id.Client, id.User, event.Within, map[string]event.TraitOverride, []id.User, int) ([]event.MatchComputed, bool, error) {
	return nil, true, nil
}

func (m *matcher) CandidatesUnder(context.Context, id.Client, id.User, event.Within, map[string]event.TraitOverride, int) ([]id.User, bool, error) {
	return nil, true, nil
}

func (m *matcher) Like(_ context.Context, _ id.Client, traits json.RawMessage, _ id.User) (float64, bool, error) {
	return 1 - float64(len(traits))/10, true, nil
}

// wantFault checks that an error is the fault with this code.
func wantFault(t *testing.T, err error, code string) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Fatalf("got %v, want the fault %s", err, code)
	}
}

func seeded(call commands.Call, key, body string) commands.Call {
	call.Seed, call.Request = []string{string(call.Client), key}, body
	return call
}
