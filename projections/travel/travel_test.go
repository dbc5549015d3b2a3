package travel

import (
	"context"
	"testing"
	"time"

	"kindred/domain/fault"
	"kindred/eventstore/feed"
)

func TestOneClientsStatesLeaveRoomForThoseOfOthers(t *testing.T) {
	traveller := New(Sources{Now: time.Now}) // nothing is built: it does not run
	for _, ask := range []struct {
		moment
		busy bool
	}{
		{moment{"cli_acme", 1}, false},
		{moment{"cli_acme", 2}, false},
		{moment{"cli_acme", 3}, true},
		{moment{"cli_acme", 1}, false}, // is being built already
		{moment{"cli_bolt", 2}, false},
	} {
		if _, err := traveller.enter(ask.moment); fault.Is(err, "busy") != ask.busy {
			t.Errorf("%+v: %v", ask, err)
		}
	}

	<-traveller.begin
	built := traveller.states[moment{"cli_acme", 1}]
	built.state = &State{}
	traveller.exit(built)
	traveller.exit(built)
	if _, err := traveller.enter(moment{"cli_acme", 3}); err != nil {
		t.Error("the first is built and read, and yet:", err)
	}
}

func TestAStateThatIsBeingBuiltIsWaitedForOutside(t *testing.T) {
	progress, outside := feed.NewProgress(nil, nil), 0
	traveller := New(Sources{Runner: &feed.Runner{Progress: progress}, Now: time.Now})
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
