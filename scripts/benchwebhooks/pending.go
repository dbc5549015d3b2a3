package main

import (
	"context"
	"fmt"
	"time"
)

const million = 1_000_000

// pending measures what a long queue costs: memory, each claim, and who shares
// the queue with it.
func pending(ctx context.Context, b *bench) error {
	if err := b.stop(); err != nil { // what it occupies is to come from the queue alone
		return err
	}
	if err := b.restart(ctx); err != nil {
		return err
	}
	full, blocked, err := b.signUp(ctx, fast)
	if err != nil {
		return err
	}
	beside, good, err := b.signUp(ctx, fast)
	if err != nil {
		return err
	}
	from, most := 0, 0.0
	// fill has the receiver hang and n more wait for it; then it measures the other client's.
	fill := func(n int) (claims, p99 []float64, err error) {
		if _, err := full.queue(ctx, blocked[0], 1); err != nil {
			return nil, nil, err
		}
		if err := arrived(ctx, blocked[0], 1); err != nil {
			return nil, nil, err
		}
		if err := blocked[0].become(ctx, hanging); err != nil {
			return nil, nil, err
		}
		if err := full.copies(ctx, n); err != nil {
			return nil, nil, err
		}
		for range b.runs {
			before, err := b.claimed(ctx)
			if err != nil {
				return nil, nil, err
			}
			events, err := beside.atRate(ctx, 100, b.shorter/2, from)
			if err != nil {
				return nil, nil, err
			}
			from += len(events)
			took, err := delays(ctx, events, good)
			if err != nil {
				return nil, nil, err
			}
			after, err := b.claimed(ctx)
			if err != nil {
				return nil, nil, err
			}
			memory, err := b.memory()
			if err != nil {
				return nil, nil, err
			}
			most = max(most, memory)
			claims, p99 = append(claims, after.since(before)), append(p99, quantile(took, 0.99))
		}
		return claims, p99, nil
	}
	short, shortP99, err := fill(1000)
	if err != nil {
		return err
	}
	if err := blocked[0].become(ctx, fast); err != nil {
		return err
	}
	long, longP99, err := fill(million)
	if err != nil {
		return err
	}
	rate, memory, err := b.drainMillion(ctx, blocked[0])
	if err != nil {
		return err
	}
	b.add(row{What: "a claim beside 1k pending deliveries, mean", Unit: "ms", Figures: short})
	b.add(row{What: "a claim beside 1M pending deliveries, mean", Unit: "ms", Figures: long})
	b.add(row{What: "  1M : 1k", Unit: "x", Figures: []float64{median(long) / median(short)}, AtMost: 1.25})
	b.add(row{What: "another client at 100 events/s beside 1k pending, p99", Unit: "ms", Figures: shortP99})
	b.add(row{What: "another client at 100 events/s beside 1M pending, p99", Unit: "ms", Figures: longP99})
	b.add(row{What: "1M pending, drained to one endpoint", Unit: "/s", Figures: rate})
	b.add(row{What: "memory of the process at 1M pending, also while they are drained", Unit: "MiB", Figures: []float64{max(most, memory)}, AtMost: 150})
	return nil
}

// drainMillion measures how fast they go, second by second, once the receiver answers again.
func (b *bench) drainMillion(ctx context.Context, r *receiver) (rate []float64, memory float64, err error) {
	if err := r.become(ctx, fast); err != nil {
		return nil, 0, err
	}
	if err := eventually(ctx, "its failures are behind it", func() (bool, error) { return r.count() > 10_000, nil }); err != nil {
		return nil, 0, err
	}
	for range b.runs {
		began, before := time.Now(), r.count()
		if err := pause(ctx, time.Second); err != nil {
			return nil, 0, err
		}
		rate = append(rate, float64(r.count()-before)/time.Since(began).Seconds())
		now, err := b.memory()
		if err != nil {
			return nil, 0, err
		}
		memory = max(memory, now)
	}
	return rate, memory, nil
}

// claimed is what all claims so far were.
type claimed struct{ seconds, n float64 }

func (b *bench) claimed(ctx context.Context) (c claimed, err error) {
	if c.seconds, err = b.metric(ctx, "kindred_webhook_claim_seconds_sum"); err != nil {
		return c, err
	}
	c.n, err = b.metric(ctx, "kindred_webhook_claim_seconds_count")
	if err == nil && c.n == 0 {
		err = fmt.Errorf("no claims are counted")
	}
	return c, err
}

// since is how long a claim took, in milliseconds.
func (c claimed) since(before claimed) float64 {
	return 1000 * (c.seconds - before.seconds) / (c.n - before.n)
}
