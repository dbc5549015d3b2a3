package commands_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/testkit"
)

// interleaver lets processes take turns: each runs alone until it next uses the
// store.
type interleaver struct{ parked chan *process }

// process is one of those; nil on the stage's channel says that one has ended.
type process struct {
	eventstore.Store
	stage    *interleaver
	turn     chan struct{}
	priority float64
}

func (p *process) wait() {
	p.stage.parked <- p
	<-p.turn
}

func (p *process) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	p.wait()
	return p.Store.Append(ctx, stream, expected, events)
}

func (p *process) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	p.wait()
	return p.Store.ReadStream(ctx, stream, from, limit)
}

func (p *process) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	p.wait()
	return p.Store.ReadBack(ctx, stream, from, limit)
}

// interleave runs each of these in a process of its own, in an order that
// follows from the seed alone. The process of the highest priority has the turn;
// after one turn in eight its priority is drawn anew (after Burckhardt et al.,
// "A randomized scheduler with probabilistic guarantees of finding bugs", 2010):
// where each turn is drawn, no process gets far ahead of the others, and a
// sign-up succeeded in 4 of 200 orders.
func interleave(w *fixture, seed uint64, run []func(*commands.Commands)) {
	random := rand.New(rand.NewPCG(seed, 0))
	s := &interleaver{parked: make(chan *process)}
	var waiting []*process
	for _, r := range run {
		p := &process{Store: w.store, stage: s, turn: make(chan struct{}), priority: random.Float64()}
		go func() {
			p.wait()
			r(w.process(p, w.keys))
			s.parked <- nil
		}()
		waiting = append(waiting, <-s.parked) // in turn: else the order follows from the machine's load, too
	}
	for alive := len(run); alive > 0; {
		for len(waiting) < alive {
			if p := <-s.parked; p != nil {
				waiting = append(waiting, p)
			} else {
				alive--
			}
		}
		if alive == 0 {
			return
		}
		slices.SortFunc(waiting, func(a, b *process) int { return cmp.Compare(a.priority, b.priority) })
		p := waiting[alive-1]
		waiting = waiting[:alive-1]
		if random.IntN(8) == 0 {
			p.priority = random.Float64()
		}
		p.turn <- struct{}{}
	}
}

// A sign-up, or an addition, may be so slow that the sweep takes it for
// crashed at any moment; and others want the same address meanwhile.
func TestNoOrderOfSlowCommandsAndSweepsLosesAnAddress(t *testing.T) {
	orders := uint64(200)
	if testing.Short() {
		orders = 50
	}
	succeeded := map[string]int{}
	for seed := range orders {
		t.Run(fmt.Sprintf("order %d", seed), func(t *testing.T) {
			w := newFixture(t)
			_, ada := w.client(t, "ada@example.com")
			_, eve := w.client(t, "eve@example.com")
			bob := testkit.Must(w.AddMember(t.Context(), ada, commands.AddMember{Email: "bob@example.com", Role: "viewer"}))(t)
			var signedUp, invited, repeated, other commands.Account
			outcome := func(name string, err error) {
				switch f := fault.As(err); {
				case err == nil:
					succeeded[name]++
				case f == nil:
					t.Errorf("%s: %v", name, err)
				case f.Code != "email_exists" && f.Code != "sign_up_again" && f.Code != "add_again" && f.Code != "busy":
					t.Errorf("%s is refused: %v", name, err)
				}
			}
			sweep := func(c *commands.Commands) {
				if err := w.sweep(t.Context(), c); err != nil {
					t.Errorf("sweep: %v", err)
				}
			}
			wanted := commands.AddMember{Email: "bob@example.com", Role: "viewer"}
			interleave(w, seed, []func(*commands.Commands){
				func(c *commands.Commands) {
					var err error
					signedUp, err = c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "bob@example.com", CompanyName: "Acme"})
					outcome("sign-up", err)
				},
				func(c *commands.Commands) {
					var err error
					invited, err = c.AddMember(t.Context(), seeded(eve, "k1", "b1"), wanted)
					outcome("addition", err)
				},
				func(c *commands.Commands) { // the same request, though nobody should send it twice at once
					var err error
					repeated, err = c.AddMember(t.Context(), seeded(eve, "k1", "b1"), wanted)
					outcome("repetition", err)
				},
				func(c *commands.Commands) {
					var err error
					other, err = c.AddMember(t.Context(), eve, commands.AddMember{Email: "new@example.com", Role: "viewer"})
					outcome("other", err)
				},
				func(c *commands.Commands) {
					_, err := c.RemoveMember(t.Context(), ada, bob.Member)
					outcome("removal", err)
				},
				sweep, sweep, sweep,
			})
			w.driveOn(t)
			w.check(t)
			if invited.Member != "" && repeated.Member != "" && invited.Member != repeated.Member {
				t.Errorf("one request added %s and %s", invited.Member, repeated.Member)
			}
			for _, acknowledged := range []commands.Account{signedUp, invited, repeated, other} {
				if acknowledged.Member == "" {
					continue
				}
				found, err := w.AccountByEmail(t.Context(), acknowledged.Email)
				if err != nil || found.Member != acknowledged.Member {
					t.Errorf("acknowledged %s for %s, found %s, %v", acknowledged.Member, acknowledged.Email, found.Member, err)
				}
			}
		})
	}
	for _, name := range []string{"sign-up", "addition", "repetition", "other", "removal"} {
		if n := succeeded[name]; n == 0 || name != "removal" && n == int(orders) {
			t.Errorf("%s: %d of %d succeeded; the orders show nothing", name, n, orders)
		}
	}
}

// Two delete a sandbox at once, and whoever comes second finds it done.
func TestNoOrderOfTwoDeletionsRefusesOne(t *testing.T) {
	for seed := range uint64(50) {
		w := newFixture(t)
		_, call := w.client(t, "ada@example.com")
		sandbox := testkit.Must(w.CreateSandbox(t.Context(), call, "ci", 0))(t)
		deletes := func(c *commands.Commands) {
			if _, err := c.DeleteSandbox(t.Context(), call, sandbox.Sandbox); err != nil && !fault.Is(err, "sandbox_unknown") {
				t.Errorf("order %d: %v", seed, err)
			}
		}
		interleave(w, seed, []func(*commands.Commands){deletes, deletes})
		if n := w.count(t, "client.deleted"); n != 1 {
			t.Errorf("order %d: deleted %d times", seed, n)
		}
	}
}

// A client is deleted by two at once, while others add to it and want what it has.
func TestNoOrderOfADeletionAndOtherCommandsLosesAnAddress(t *testing.T) {
	orders := uint64(200)
	if testing.Short() {
		orders = 50
	}
	for seed := range orders {
		t.Run(fmt.Sprintf("order %d", seed), func(t *testing.T) {
			w := newFixture(t)
			ada, call := w.client(t, "ada@example.com")
			bob := testkit.Must(w.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "viewer"}))(t)
			allow := func(err error, codes ...string) {
				t.Helper()
				f := fault.As(err)
				if err != nil && !errors.Is(err, eventstore.ErrDeleted) && !errors.Is(err, seal.ErrErased) && (f == nil || !slices.Contains(codes, f.Code)) {
					t.Error(err)
				}
			}
			deletes := func(c *commands.Commands) {
				_, err := c.EndClient(t.Context(), commands.Call{Client: ada.Client, Actor: "operator"})
				allow(err, "busy")
			}
			interleave(w, seed, []func(*commands.Commands){
				deletes, deletes,
				func(c *commands.Commands) {
					_, err := c.SignUp(t.Context(), commands.Call{}, commands.SignUp{Email: "eve@example.com", CompanyName: "Acme"})
					allow(err, "email_exists", "sign_up_again", "busy")
				},
				func(c *commands.Commands) {
					_, err := c.AddMember(t.Context(), call, commands.AddMember{Email: "eve@example.com", Role: "viewer"})
					allow(err, "email_exists", "client_unknown", "add_again", "busy")
				},
				func(c *commands.Commands) {
					_, err := c.RemoveMember(t.Context(), call, bob.Member)
					allow(err, "member_unknown", "busy")
				},
				func(c *commands.Commands) {
					allow(w.sweep(t.Context(), c))
				},
			})
			w.driveOn(t)
			w.check(t)
			if n := w.count(t, "client.deleted"); n != 1 || !testkit.Must(w.log.IsDeleted(t.Context(), ada.Client))(t) {
				t.Errorf("deleted %d times, or something of the client came after that", n)
			}
		})
	}
}

// Where many change one stream at once, each loads it once: none begins again since another appended first.
func TestChangesOfOneStreamWaitForEachOther(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	store := &countingReads{Store: w.store}
	c := w.process(store, w.keys)
	const many = 30
	var changing errgroup.Group
	for i := range many {
		changing.Go(func() error {
			name := fmt.Sprintf("name %d", i)
			_, err := c.ChangeClient(t.Context(), call, commands.ClientChange{Name: &name})
			return err
		})
	}
	if err := changing.Wait(); err != nil {
		t.Fatal(err)
	}
	if reads := store.reads.Load(); reads != many {
		t.Errorf("the stream was loaded %d times for %d changes", reads, many)
	}
}

// countingReads counts how often the end of a stream is read, and gives way to others then.
type countingReads struct {
	eventstore.Store
	reads atomic.Int64
}

func (s *countingReads) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	s.reads.Add(1)
	runtime.Gosched()
	return s.Store.ReadBack(ctx, stream, from, limit)
}
