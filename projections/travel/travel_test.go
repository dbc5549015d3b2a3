package travel

import (
	"testing"
	"time"

	"kindred/domain/fault"
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
