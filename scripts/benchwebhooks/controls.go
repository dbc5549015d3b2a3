package main

import (
	"context"
	"fmt"
	"time"
)

// controls measures what an owner may choose about an endpoint: how fast one is that
// is ordered, whether its order holds while kindred is killed, and how others fare beside
// one that is ordered, paced, or holds by Retry-After.
func controls(ctx context.Context, b *bench) error {
	n := 20_000
	if b.quick {
		n = 4_000
	}
	var rates []float64
	inversions := 0
	for range b.runs {
		rate, inverted, err := b.inOrder(ctx, n, false)
		if err != nil {
			return err
		}
		rates, inversions = append(rates, rate), inversions+inverted
	}
	b.add(row{What: fmt.Sprintf("%d queued, drained to one ordered endpoint", n), Unit: "/s", Figures: rates, AtLeast: 2000})
	b.none("  inversions of first attempts", inversions)
	_, inverted, err := b.inOrder(ctx, n, true)
	if err != nil {
		return err
	}
	b.none("  the same while kindred is killed once", inverted)
	return besideControlled(ctx, b)
}

// inOrder drains n deliveries to an ordered endpoint, and counts those whose first
// attempt came before that of one that was queued earlier.
func (b *bench) inOrder(ctx context.Context, n int, killed bool) (rate float64, inversions int, err error) {
	c, _, err := b.signUp(ctx)
	if err != nil {
		return 0, 0, err
	}
	to, err := c.subscribeAs(ctx, map[string]any{"ordered": true}, fast)
	if err != nil {
		return 0, 0, err
	}
	began, err := c.queue(ctx, to[0], n)
	if err != nil {
		return 0, 0, err
	}
	if killed {
		if err := arrived(ctx, to[0], n/4); err != nil {
			return 0, 0, err
		}
		if err := b.kill(); err != nil {
			return 0, 0, err
		}
		if err := b.restart(ctx); err != nil {
			return 0, 0, err
		}
	}
	var ended int
	err = eventually(ctx, "all of it ends", func() (bool, error) {
		err := c.pool.QueryRow(ctx, `SELECT count(*) FROM dispatch_deliveries WHERE webhook = $1`, c.hooks[0]).Scan(&ended)
		return ended > n, err // the model is among them
	})
	if err != nil {
		return 0, 0, err
	}
	rows, err := c.pool.Query(ctx, `SELECT delivery, made FROM dispatch_deliveries WHERE webhook = $1`, c.hooks[0])
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	made := map[string]int64{}
	for rows.Next() {
		var (
			delivery string
			place    int64
		)
		if err := rows.Scan(&delivery, &place); err != nil {
			return 0, 0, err
		}
		made[delivery] = place
	}
	if err := rows.Err(); err != nil {
		return 0, 0, err
	}
	var newest int64
	seen := map[string]bool{}
	got := to[0].take()
	for _, a := range got {
		if seen[a.id] {
			continue // a repetition
		}
		seen[a.id] = true
		if made[a.id] < newest {
			inversions++
		}
		newest = max(newest, made[a.id])
	}
	return float64(n) / got[len(got)-1].at.Sub(began).Seconds(), inversions, c.leave(ctx)
}

// besideControlled compares nine endpoints at a steady rate while the tenth is like
// them, and while it is ordered, paced or holds.
func besideControlled(ctx context.Context, b *bench) error {
	measure := func(chosen map[string]any, tenth kind) (float64, error) {
		c, nine, err := b.signUp(ctx, fast, fast, fast, fast, fast, fast, fast, fast, fast)
		if err != nil {
			return 0, err
		}
		if _, err := c.subscribeAs(ctx, chosen, tenth); err != nil {
			return 0, err
		}
		if _, err := c.atRate(ctx, 200, time.Second, 0); err != nil {
			return 0, err
		}
		events, err := c.atRate(ctx, 200, b.shorter, 200)
		if err != nil {
			return 0, err
		}
		took, err := delays(ctx, events, nine)
		if err != nil {
			return 0, err
		}
		return quantile(took, 0.99), c.leave(ctx)
	}
	ways := []struct {
		what   string
		chosen map[string]any
		tenth  kind
	}{
		{"is ordered", map[string]any{"ordered": true}, fast},
		{"is paced, 10 a second", map[string]any{"max_per_second": 10}, fast},
		{"holds by Retry-After", map[string]any{"respect_retry_after": true}, holding},
	}
	plain, ratios := []float64{}, make([][]float64, len(ways))
	for range b.runs {
		alike, err := measure(nil, fast)
		if err != nil {
			return err
		}
		plain = append(plain, alike)
		for i, way := range ways {
			beside, err := measure(way.chosen, way.tenth)
			if err != nil {
				return err
			}
			ratios[i] = append(ratios[i], beside/alike)
		}
	}
	b.add(row{What: "10 endpoints at 200 events/s, nine of them, p99", Unit: "ms", Figures: plain})
	for i, way := range ways {
		b.add(row{What: "  p99 while the tenth " + way.what + " : while it is like them", Unit: "x", Figures: ratios[i], AtMost: 1.2})
	}
	return nil
}
