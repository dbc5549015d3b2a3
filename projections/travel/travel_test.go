package travel

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/id"
	"kindred/eventstore/projector"
)

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
		_, done, err := p.Visit(t.Context(), m.client, m.size)
		if err == nil {
			done()
		}
		asked <- err
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
		visit := func(m moment) {
			building.Go(func() { traveller.keep(ctx, <-traveller.begin) })
			_, done, err := traveller.Visit(ctx, m.client, m.size)
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			done()
		}
		for _, client := range []id.Client{"cli_a", "cli_b", "cli_c", "cli_d"} {
			for size := range int64(3) {
				visit(moment{client, size + 1})
			}
		}
		stop()
		building.Wait()
	})
}

func TestAStateThatIsBeingBuiltIsWaitedForOutside(t *testing.T) {
	progress, outside := projector.NewProgress(nil, nil), 0
	traveller := New(Sources{Runner: &projector.Runner{Progress: progress}, Now: time.Now})
	progress.Outside = func(ctx context.Context, wait func(context.Context) error) error {
		outside++
		built := <-traveller.begin
		built.state = &State{Size: 1}
		close(built.ready)
		return wait(ctx)
	}
	for range 2 { // of which the second finds it built
		state, done, err := traveller.Visit(t.Context(), "cli_acme", 1)
		if err != nil || state.Size != 1 || outside != 1 {
			t.Fatalf("%+v, %v, outside %d times", state, err, outside)
		}
		done()
	}
}
