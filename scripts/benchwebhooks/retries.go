package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// schedule is that of docs/contract.md#retries.
func schedule() []time.Duration {
	return []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute}
}

// retries follows 10,000 deliveries that fail at the same time through the
// schedule: for the whole of it, or as far as its first delay.
func retries(ctx context.Context, b *bench) error {
	const n = 10_000
	delays := schedule()
	if b.quick {
		delays = delays[:1]
	}
	c, to, err := b.signUp(ctx, failing)
	if err != nil {
		return err
	}
	if _, err := c.burst(ctx, n, batch, publishers, "", nil); err != nil {
		return err
	}
	if err := arrived(ctx, to[0], n); err != nil {
		return err
	}
	for i, delay := range delays {
		if err := pause(ctx, delay); err != nil {
			return err
		}
		if err := arrived(ctx, to[0], n*(i+2)); err != nil {
			return err
		}
	}
	if !b.quick {
		const queued = `SELECT count(*) FROM dispatch_queue WHERE webhook = $1`
		err := eventually(ctx, "all are dropped", func() (bool, error) {
			var left int
			err := b.pool.QueryRow(ctx, queued, c.hooks[0]).Scan(&left)
			return left == 0, err
		})
		if err != nil {
			return err
		}
	}
	attempts := map[string][]time.Time{}
	for _, a := range to[0].take() {
		attempts[a.id] = append(attempts[a.id], a.at)
	}
	early, wrong := 0, n-len(attempts)
	late := make([]float64, len(delays))
	for _, at := range attempts {
		if len(at) != len(delays)+1 {
			wrong++
			continue
		}
		for i, delay := range delays {
			over := at[i+1].Sub(at[i]) - delay
			if over < 0 {
				early++
			}
			late[i] = math.Max(late[i], ms(over))
		}
	}
	b.none("10k retries at once: attempts that came early", early)
	b.none(fmt.Sprintf("  deliveries with other than 1 + %d attempts", len(delays)), wrong)
	for i, delay := range delays {
		b.add(row{What: fmt.Sprintf("  the latest of 10k retries after %s", delay), Unit: "ms late", Figures: []float64{late[i]}, AtMost: 1000})
	}
	return c.leave(ctx)
}
