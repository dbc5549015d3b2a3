package travel

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// visit waits for a state, and does not read it.
func visit(ctx context.Context, t *Traveller, m moment) error {
	return fault.Await(ctx, func(context.Context) error {
		_, done, err := t.Visit(m.client, m.size)
		if err == nil {
			done()
		}
		return err
	})
}

// trip is a Traveller whose states are built as soon as the test says so.
type trip struct {
	*Traveller
	built map[moment]chan struct{}
}

func (p trip) ask(t *testing.T, m moment) (asked chan error) {
	t.Helper()
	asked = make(chan error, 1)
	if p.built[m] == nil {
		p.built[m] = make(chan struct{})
	}
	go func() {
		asked <- visit(t.Context(), p.Traveller, m)
	}()
	synctest.Wait()
	return asked
}

func TestOneClientsStatesLeaveRoomForThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := trip{New(Sources{Runner: &projector.Runner{}, Now: time.Now}), map[moment]chan struct{}{}}
		ctx, stop := context.WithCancel(t.Context())
		p.build = func(ctx context.Context, client id.Client, size int64, _ func(projector.Rebuilding), work func(context.Context, *State) error) error {
			select {
			case <-p.built[moment{client, size}]:
				return work(ctx, &State{Client: client, Size: size})
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var building sync.WaitGroup
		building.Go(func() {
			for {
				select {
				case k := <-p.begin:
					building.Go(func() { p.keep(ctx, k) })
				case <-ctx.Done():
					return
				}
			}
		})
		first := p.ask(t, moment{"cli_acme", 1})
		for size := range int64(40) {
			p.ask(t, moment{"cli_acme", 2 + size})
		}
		for _, client := range []id.Client{"cli_bolt", "cli_core"} {
			asked := p.ask(t, moment{client, 1})
			close(p.built[moment{client, 1}])
			if err := <-asked; err != nil {
				t.Errorf("%s: %v", client, err)
			}
		}
		close(p.built[moment{"cli_acme", 1}])
		if err := <-first; err != nil {
			t.Errorf("the first: %v", err)
		}
		stop()
		building.Wait()
	})
}

// States that nobody reads any more are others' as soon as they ask.
func TestAStateThatIsNotReadGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traveller := New(Sources{Runner: &projector.Runner{}, Now: time.Now})
		ctx, stop := context.WithCancel(t.Context())
		traveller.build = func(ctx context.Context, _ id.Client, _ int64, _ func(projector.Rebuilding), work func(context.Context, *State) error) error {
			return work(ctx, &State{})
		}
		var building sync.WaitGroup
		for _, client := range []id.Client{"cli_a", "cli_b", "cli_c", "cli_d"} {
			for size := range int64(3) {
				building.Go(func() { traveller.keep(ctx, <-traveller.begin) })
				if err := visit(ctx, traveller, moment{client, size + 1}); err != nil {
					t.Fatalf("%s, %d: %v", client, size+1, err)
				}
			}
		}
		stop()
		building.Wait()
	})
}

// A reader may come between the choice of the state that gives way and its end.
func TestAStateThatIsReadAsItIsToGiveWayGoesWithItsLastReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traveller := New(Sources{Runner: &projector.Runner{}, Now: time.Now})
		traveller.build = func(ctx context.Context, _ id.Client, _ int64, _ func(projector.Rebuilding), work func(context.Context, *State) error) error {
			return work(ctx, &State{})
		}
		var building sync.WaitGroup
		building.Go(func() { traveller.keep(t.Context(), <-traveller.begin) })
		m := moment{"cli_acme", 1}
		if err := visit(t.Context(), traveller, m); err != nil {
			t.Fatal(err)
		}
		k := traveller.states[m]
		_, done, err := traveller.Visit(m.client, m.size)
		if err != nil {
			t.Fatal(err)
		}
		traveller.holder(k).End()
		select {
		case <-k.leave:
			t.Error("it went while it was read")
		default:
		}
		done()
		building.Wait()
	})
}

func TestAStateThatIsBeingBuiltSaysHowToWait(t *testing.T) {
	traveller := New(Sources{Runner: &projector.Runner{}, Now: time.Now})
	_, _, err := traveller.Visit("cli_acme", 1)
	f := fault.As(err)
	if !fault.Is(err, "building") || f.Soon == nil {
		t.Fatal(err)
	}
	built := <-traveller.begin
	built.state = &State{Size: 1}
	close(built.ready)
	if _, err := f.Soon(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, done, err := traveller.Visit("cli_acme", 1)
	if err != nil || state.Size != 1 || len(traveller.begin) > 0 {
		t.Fatalf("%+v, %v", state, err)
	}
	done()
}

// Whoever waits asks again: the state that was half built is dropped.
func TestAStateWhoseLeaseWasLostIsBuiltAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traveller := New(Sources{Runner: &projector.Runner{}, Now: time.Now})
		lost := fmt.Errorf("build the state: %w", projector.ErrLost)
		traveller.build = func(ctx context.Context, _ id.Client, _ int64, _ func(projector.Rebuilding), work func(context.Context, *State) error) error {
			if err := lost; err != nil {
				lost = nil
				return err
			}
			return work(ctx, &State{})
		}
		ctx, stop := context.WithCancel(t.Context())
		var building sync.WaitGroup
		for _, want := range []string{"building", ""} {
			building.Go(func() { traveller.keep(ctx, <-traveller.begin) })
			if err := visit(ctx, traveller, moment{"cli_acme", 1}); want != "" && !fault.Is(err, want) || want == "" && err != nil {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		stop()
		building.Wait()
	})
}

// Its connection stays for who reads it, and nobody else comes to it, however long its
// tables take to be dropped.
func TestAStateWhoseLeaseIsLostAsItIsReadGoesWithItsLastReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traveller := New(Sources{Runner: &projector.Runner{}, Now: time.Now})
		leased, lose := context.WithCancel(t.Context())
		read, dropped := make(chan struct{}), make(chan struct{})
		traveller.build = func(_ context.Context, _ id.Client, _ int64, _ func(projector.Rebuilding), work func(context.Context, *State) error) error {
			err := work(leased, &State{})
			close(read)
			<-dropped
			return err
		}
		var building sync.WaitGroup
		building.Go(func() { traveller.keep(t.Context(), <-traveller.begin) })
		m := moment{"cli_acme", 1}
		if err := visit(t.Context(), traveller, m); err != nil {
			t.Fatal(err)
		}
		_, done, err := traveller.Visit(m.client, m.size)
		if err != nil {
			t.Fatal(err)
		}
		lose()
		synctest.Wait()
		select {
		case <-read:
			t.Error("its connection is closed while it is read")
		default:
		}
		done()
		<-read
		if _, _, err := traveller.Visit(m.client, m.size); !fault.Is(err, "building") || len(traveller.begin) != 1 {
			t.Errorf("who comes after that gets %v", err)
		}
		close(dropped)
		building.Wait()
	})
}

// Operators count them: where the server allows no more, requests of all clients fail.
func TestStatesHaveNoMoreConnectionsThanAreCounted(t *testing.T) {
	t.Parallel()
	like := testkit.Must(pgxpool.New(t.Context(), "postgres://127.0.0.1:1/nowhere"))(t)
	t.Cleanup(like.Close)
	pool := testkit.Must(within(t.Context(), like, "scratch_0_1", nil))(t)
	t.Cleanup(pool.Close)
	if most := atOnce * pool.Config().MaxConns; most > Conns {
		t.Errorf("%d states have %d connections, and %d are counted", atOnce, most, Conns)
	}
}
