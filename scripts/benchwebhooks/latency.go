package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// published is when an event was on its way to the API, and when it was
// acknowledged.
type published struct{ at, acked time.Time }

// atRate publishes single events, evenly, whether those before are answered or
// not. from numbers the first pair.
func (c *client) atRate(ctx context.Context, perSecond int, during time.Duration, from int) (map[string]published, error) {
	var (
		mu      sync.Mutex
		events  = map[string]published{}
		failure error
		all     sync.WaitGroup
	)
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := range int(during.Seconds() * float64(perSecond)) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		all.Go(func() {
			at := time.Now()
			pair, err := c.match(ctx, from+n)
			acked := time.Now()
			mu.Lock()
			defer mu.Unlock()
			events[pair] = published{at, acked}
			if err != nil {
				failure = err
			}
		})
	}
	all.Wait()
	return events, failure
}

// delays waits until receivers got all events, and returns how long each took
// to each, the shortest first.
func delays(ctx context.Context, events map[string]published, to []*receiver) ([]time.Duration, error) {
	var took []time.Duration
	for i, r := range to {
		seen := map[string]bool{}
		err := eventually(ctx, fmt.Sprintf("receiver %d gets all", i), func() (bool, error) {
			for _, a := range r.take() {
				if event, ours := events[a.pair]; ours && !seen[a.pair] {
					seen[a.pair] = true
					took = append(took, a.at.Sub(event.at))
				}
			}
			return len(seen) == len(events), nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// steadyRate measures publish to receive at 100 events a second.
func steadyRate(ctx context.Context, b *bench) error {
	c, to, err := b.signUp(ctx, fast)
	if err != nil {
		return err
	}
	const warm = 200
	if _, err := c.atRate(ctx, 100, 2*time.Second, 0); err != nil {
		return err
	}
	events, err := c.atRate(ctx, 100, b.steady, warm)
	if err != nil {
		return err
	}
	took, err := delays(ctx, events, to)
	if err != nil {
		return err
	}
	var acked []time.Duration
	for _, event := range events {
		acked = append(acked, event.acked.Sub(event.at))
	}
	slices.Sort(acked)
	b.add(row{What: "100 events/s for " + b.steady.String() + ", publish -> receive, p50", Unit: "ms", Figures: []float64{quantile(took, 0.5)}, AtMost: 5})
	b.add(row{What: "100 events/s for " + b.steady.String() + ", publish -> receive, p99", Unit: "ms", Figures: []float64{quantile(took, 0.99)}, AtMost: 30})
	b.add(row{What: "  of which the API takes to acknowledge, p50", Unit: "ms", Figures: []float64{quantile(acked, 0.5)}})
	b.add(row{What: "  of which the API takes to acknowledge, p99", Unit: "ms", Figures: []float64{quantile(acked, 0.99)}})
	return c.leave(ctx)
}

// ten makes a client with nine fast receivers and a tenth.
func (b *bench) ten(ctx context.Context, tenth kind) (c *client, nine []*receiver, err error) {
	c, all, err := b.signUp(ctx, fast, fast, fast, fast, fast, fast, fast, fast, fast, tenth)
	if err != nil {
		return nil, nil, err
	}
	return c, all[:9], nil
}

// isolation compares how nine receivers fare while the tenth answers, and while
// it hangs: at a steady rate, and in a burst.
func isolation(ctx context.Context, b *bench) error {
	steady := func(tenth kind) (float64, float64, error) {
		c, nine, err := b.ten(ctx, tenth)
		if err != nil {
			return 0, 0, err
		}
		if _, err := c.atRate(ctx, 200, time.Second, 0); err != nil { // until the tenth hangs in earnest
			return 0, 0, err
		}
		events, err := c.atRate(ctx, 200, b.shorter, 200)
		if err != nil {
			return 0, 0, err
		}
		took, err := delays(ctx, events, nine)
		if err != nil {
			return 0, 0, err
		}
		return quantile(took, 0.5), quantile(took, 0.99), c.leave(ctx)
	}
	burst := func(tenth kind) (float64, float64, error) {
		c, nine, err := b.ten(ctx, tenth)
		if err != nil {
			return 0, 0, err
		}
		began := time.Now()
		pairs, err := c.burst(ctx, crowd/10, batch, publishers, "", nil)
		if err != nil {
			return 0, 0, err
		}
		events := map[string]published{}
		for _, pair := range pairs {
			events[pair] = published{at: began}
		}
		took, err := delays(ctx, events, nine)
		if err != nil {
			return 0, 0, err
		}
		return quantile(took, 0.5), quantile(took, 0.99), c.leave(ctx)
	}
	for _, way := range []struct {
		what    string
		measure func(kind) (float64, float64, error)
	}{
		{"10 endpoints at 200 events/s", steady},
		{"10 endpoints, a burst of 20k deliveries", burst},
	} {
		var p50, p99, hungP50, hungP99, ratio []float64
		for range b.runs {
			h50, h99, err := way.measure(fast)
			if err != nil {
				return err
			}
			x50, x99, err := way.measure(hanging)
			if err != nil {
				return err
			}
			p50, p99, hungP50, hungP99 = append(p50, h50), append(p99, h99), append(hungP50, x50), append(hungP99, x99)
			ratio = append(ratio, x99/h99)
		}
		b.add(row{What: way.what + ", nine of them, p50", Unit: "ms", Figures: p50})
		b.add(row{What: way.what + ", nine of them, p99", Unit: "ms", Figures: p99})
		b.add(row{What: "  the same while the tenth hangs, p50", Unit: "ms", Figures: hungP50})
		b.add(row{What: "  the same while the tenth hangs, p99", Unit: "ms", Figures: hungP99})
		b.add(row{What: "  p99 hanging : healthy", Unit: "x", Figures: ratio, AtMost: 2})
	}
	return nil
}

// badCompany measures two good receivers among two of each bad kind.
func badCompany(ctx context.Context, b *bench) error {
	c, good, err := b.signUp(ctx, fast, fast)
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := c.subscribe(ctx, bad()...); err != nil {
			return err
		}
	}
	events, err := c.atRate(ctx, 50, b.shorter, 0)
	if err != nil {
		return err
	}
	took, err := delays(ctx, events, good)
	if err != nil {
		return err
	}
	memory, err := b.memory()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("50 events/s to 2 good receivers among %d bad ones, publish -> receive, ", 2*len(bad()))
	b.add(row{What: what + "p50", Unit: "ms", Figures: []float64{quantile(took, 0.5)}})
	b.add(row{What: what + "p99", Unit: "ms", Figures: []float64{quantile(took, 0.99)}})
	b.add(row{What: "  memory of the process", Unit: "MiB", Figures: []float64{memory}})
	return c.leave(ctx)
}
