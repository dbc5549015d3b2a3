package projections_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/projections"
)

// While somebody waits for the consents to a layer, the others wait outside, and
// no longer than they want to.
func TestALayerThatLagsBehindIsWaitedForOutside(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 2)
	stop := c.follow(projections.Consent{})
	ada := c.join("ada", 3)
	within := event.Within{Layer: c.define(c.acme, "Research"), TraitPaths: []string{"age"}}
	c.grant(c.acme, within.Layer, ada, true)
	if _, err := c.populations.Top(t.Context(), c.acme, ada, within, 1); err != nil {
		t.Fatal(err)
	}
	stop()
	c.grant(c.acme, within.Layer, c.join("bob", 4), true)
	c.top(ada, 1) // the users have come so far

	outside := make(chan struct{})
	c.reader.Progress.Outside = func(ctx context.Context, _ func(context.Context) error) error {
		outside <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 { // of which the second waits for the first
		go func() {
			_, err := c.populations.Top(ctx, c.acme, ada, within, 1)
			ended <- err
		}()
		select {
		case <-outside:
		case <-time.After(10 * time.Second):
			t.Error("one waits inside")
		}
	}
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	}
}
