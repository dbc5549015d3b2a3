package main

import (
	"context"
	"fmt"
)

// growth is how many times as many events, users and clients the larger
// kindred holds.
const growth = 10

// measureGrowth fills a second kindred with more of everything, and lets both
// take turns at each kind of request.
func measureGrowth(ctx context.Context, b *bench) (figures []Figure, err error) {
	fmt.Fprintf(b.say, "  filling a second kindred with %d times as much\n", growth)
	larger, err := b.fixture.kindred(ctx, "large")
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopped := larger.stop(); err == nil {
			err = stopped
		}
	}()
	large, err := seed(ctx, b.say, larger, growth*b.o.clients, growth*b.o.users, false)
	if err != nil {
		return nil, err
	}
	for _, filled := range []*server{b.kindred, larger} {
		if err := b.fixture.rest(ctx, filled); err != nil {
			return nil, err
		}
	}
	for _, r := range requestRows() {
		var p99s, rates [2][]float64 // of the larger one, and the smaller
		for round := range b.o.rounds {
			for i, p := range []*population{large, b.small} {
				got, err := requests(ctx, p.addr, r.workload(p), b.pace(connections))
				if err != nil {
					return figures, fmt.Errorf("%s: %w", r.name, err)
				}
				if err := b.awaitFollowers(ctx, p); err != nil {
					return figures, err
				}
				p99s[i], rates[i] = append(p99s[i], got.P99), append(rates[i], got.PerSecond)
			}
			fmt.Fprintf(b.say, "  grow, %s %d/%d: p99 %s ms, of the smaller %s ms\n", r.name, round+1, b.o.rounds,
				number(p99s[0][round]), number(p99s[1][round]))
		}
		name := fmt.Sprintf("%s, %d × the size", r.name, growth)
		figures = append(figures,
			measured("grow", name, "req/s", rates[0], rates[1], nil),
			measured("grow", name+", p99", "ms", p99s[0], p99s[1], ratioAtMost(1.3)))
	}
	return figures, nil
}
