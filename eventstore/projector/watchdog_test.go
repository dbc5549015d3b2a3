package projector_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"kindred/eventstore"
	"kindred/eventstore/projector"
)

func TestAProjectionThatStandsStillIsFound(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	watch := &projector.Watchdog{Pool: w.pool, Projections: []projector.Projection{names{}}, Now: func() time.Time { return now }}
	check := func(head eventstore.Position) error {
		t.Helper()
		now = now.Add(time.Minute)
		return watch.Check(t.Context(), head)
	}
	if err := check(eventstore.Start); err != nil {
		t.Errorf("with an empty log: %v", err)
	}
	first := w.rename(t, acme, "one")
	for range 2 {
		if err := check(first); err != nil {
			t.Errorf("behind for a minute: %v", err)
		}
	}
	if err := check(first); err == nil || !strings.Contains(err.Error(), "names_2 does not follow the log") {
		t.Errorf("behind for two minutes: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.runner("another process").Run(ctx, names{}) }()
	w.passed(t, "names_2", first)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range 5 { // nothing is appended, and no projection is stalled
		if err := check(first); err != nil {
			t.Errorf("at the end of the log: %v", err)
		}
	}
	second := w.rename(t, acme, "two")
	if err := check(second); err != nil {
		t.Errorf("just behind: %v", err)
	}
	now = now.Add(time.Minute)
	if err := check(second); err == nil {
		t.Error("it stands still anew, and is not found")
	}
}
