package populations_test

import (
	"context"
	"errors"
	"testing"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/projections"
)

// While the consents to a layer lag behind, nobody waits for another who waits.
func TestALayerThatLagsBehindSaysHowToWait(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 2)
	stop := c.Follow(projections.Consent{})
	ada := c.join("ada", 3)
	within := event.Within{Layer: c.Define(c.Acme, "Research"), TraitPaths: []string{"age"}}
	c.Grant(c.Acme, within.Layer, ada, true)
	if _, err := c.populations.Top(t.Context(), c.Acme, ada, within, 1); err != nil {
		t.Fatal(err)
	}
	stop()
	c.Grant(c.Acme, within.Layer, c.join("bob", 4), true)
	c.top(ada, 1) // the users have come so far

	// Each is told to wait, and nobody waits for another to have been told.
	for range 2 {
		_, err := c.populations.Populations.Top(t.Context(), c.Acme, ada, within, 1)
		f := fault.As(err)
		if !fault.Is(err, "stale") || f.Soon == nil {
			t.Fatalf("it ends with %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Soon(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the wait ends with %v", err)
		}
	}
	defer c.Follow(projections.Consent{})()
	if err := fault.Await(t.Context(), func(ctx context.Context) error {
		_, err := c.populations.Top(ctx, c.Acme, ada, within, 1)
		return err
	}); err != nil {
		t.Error(err)
	}
}
