package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// faults breaks something in the middle of a burst, and looks for each event
// that was acknowledged.
func faults(ctx context.Context, b *bench) error {
	for _, fault := range []struct {
		what   string
		strike func(context.Context, *receiver) error
		within float64 // seconds after it is mended
	}{
		{"kindred killed in a burst of 20k", func(ctx context.Context, _ *receiver) error {
			if err := b.kill(); err != nil {
				return err
			}
			return b.restart(ctx)
		}, 15},
		{fmt.Sprintf("PostgreSQL stopped for %s in a burst of 20k", b.outage), func(ctx context.Context, _ *receiver) error {
			if err := b.database.Stop(ctx); err != nil {
				return err
			}
			if err := pause(ctx, b.outage); err != nil {
				return err
			}
			return b.startDatabase(ctx)
		}, 15},
		{fmt.Sprintf("the receiver down for %s in a burst of 20k", b.outage), func(ctx context.Context, r *receiver) error {
			if err := r.become(ctx, down); err != nil {
				return err
			}
			if err := pause(ctx, b.outage); err != nil {
				return err
			}
			return r.become(ctx, fast)
		}, 120},
	} {
		if err := b.broken(ctx, fault.what, fault.strike, fault.within); err != nil {
			return fmt.Errorf("%s: %w", fault.what, err)
		}
	}
	return nil
}

func (b *bench) broken(ctx context.Context, what string, strike func(context.Context, *receiver) error, within float64) error {
	c, to, err := b.signUp(ctx, fast)
	if err != nil {
		return err
	}
	var (
		mu     sync.Mutex
		acked  int
		third  = make(chan struct{})
		mended time.Time
		struck = make(chan error, 1)
	)
	go func() {
		select {
		case <-third:
			err := strike(ctx, to[0])
			mended = time.Now()
			struck <- err
		case <-ctx.Done():
			struck <- ctx.Err()
		}
	}()
	pairs, err := c.burst(ctx, crowd, batch, publishers, fmt.Sprint("burst-", time.Now().UnixNano()), func(n int) {
		mu.Lock()
		defer mu.Unlock()
		if acked < crowd/3 && acked+n >= crowd/3 {
			close(third)
		}
		acked += n
	})
	if err != nil {
		return err
	}
	if err := <-struck; err != nil {
		return err
	}
	var got []arrival
	there := map[string]bool{}
	err = eventually(ctx, "every acknowledged event arrives", func() (bool, error) {
		for _, a := range to[0].take() {
			got = append(got, a)
			there[a.pair] = true
		}
		return len(there) >= len(pairs), nil
	})
	lost := missing(pairs, got)
	if err != nil && lost == 0 {
		return err
	}
	b.none(what+": acknowledged events that did not arrive, by id", lost)
	b.add(row{What: "  until the last of them arrived, once it was mended", Unit: "s", Figures: []float64{max(0, got[len(got)-1].at.Sub(mended).Seconds())}, AtMost: within})
	b.add(row{What: "  deliveries that arrived twice", Unit: "", Figures: []float64{float64(len(got) - len(there))}})
	if err := b.serving(ctx, c); err != nil {
		return err
	}
	return c.leave(ctx)
}

// serving waits until a client's webhooks can be read again.
func (b *bench) serving(ctx context.Context, c *client) error {
	return eventually(ctx, "kindred answers", func() (bool, error) {
		return c.call(ctx, "GET", "/api/v1/clients/"+c.id+"/webhooks", nil, nil) == nil, nil
	})
}
