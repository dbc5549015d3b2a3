package main

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// measureStart starts kindred with the PostgreSQL that it brings: on an empty
// data directory, then on what that has become.
func measureStart(ctx context.Context, b *bench) ([]Figure, error) {
	var took [2][]float64
	var memory []float64
	for round := range b.repetitions() {
		for i := range took {
			began := time.Now()
			s, err := b.fixture.serve(ctx, "start"+strconv.Itoa(round))
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], time.Since(began).Seconds())
			resident, err := residentMemory(s.PID())
			if err = errors.Join(err, s.stop()); err != nil {
				return nil, err
			}
			memory = append(memory, resident)
		}
	}
	return []Figure{
		measured("start", "start on nothing", "s", took[0], nil, nil),
		measured("start", "start on existing data", "s", took[1], nil, atMost(2)),
		measured("start", "memory at rest", "MiB", memory, nil, atMost(100)),
	}, nil
}
