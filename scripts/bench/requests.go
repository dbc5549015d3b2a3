package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// requestRow is a row of one kind of request, sent to kindred and the ceiling
// by turns.
type requestRow struct {
	row, name string
	least     float64 // of the ceiling's requests a second
	workload  func(p *population) workload
	writes    bool // the lag of what is read is watched meanwhile
}

func requestRows() []requestRow {
	return []requestRow{
		{row: "user", name: "GET user", least: 0.8, workload: getUser},
		{row: "list", name: "GET users, limit 50", least: 0.6, workload: listUsers},
		{row: "create", name: "POST users", least: 0.6, workload: createUser, writes: true},
		{row: "exchange", name: "POST exchange", least: 0.85, workload: exchangeKey},
	}
}

func (p *population) any(random *rand.Rand) client { return p.clients[random.IntN(len(p.clients))] }

func getUser(p *population) workload {
	return workload{http.StatusOK, func(random *rand.Rand, buf []byte) []byte {
		c := p.any(random)
		return request(buf, "GET", usersPath+"/"+c.users[random.IntN(len(c.users))].ID, c.token, c.id, nil)
	}}
}

func listUsers(p *population) workload {
	path := fmt.Sprintf("%s?limit=%d", usersPath, listLimit)
	return workload{http.StatusOK, func(random *rand.Rand, buf []byte) []byte {
		c := p.any(random)
		return request(buf, "GET", path, c.token, c.id, nil)
	}}
}

func createUser(p *population) workload {
	var made atomic.Int64
	series := time.Now().UnixNano() // no run repeats another's external ids
	return workload{http.StatusCreated, func(random *rand.Rand, buf []byte) []byte {
		c := p.any(random)
		return request(buf, "POST", usersPath, c.token, c.id, person(random, fmt.Sprintf("n%d-%d", series, made.Add(1))))
	}}
}

func exchangeKey(p *population) workload {
	return workload{http.StatusOK, func(random *rand.Rand, buf []byte) []byte {
		return request(buf, "POST", exchangePath, "", "", fmt.Appendf(nil, `{"api_key":"%s"}`, p.any(random).key))
	}}
}

// measure runs the row by turns on both sides.
func (b *bench) measure(ctx context.Context, r requestRow) ([]Figure, error) {
	var ours, theirs [3][]float64 // requests a second, p50, p99
	var lags []float64
	w := r.workload(b.small)
	for round := range b.o.rounds {
		var watch *lagWatch
		if r.writes {
			watch = watchLag(ctx, b.small)
		}
		got, err := requests(ctx, b.small.addr, w, b.pace(connections))
		if watch != nil {
			lag, lagErr := watch.end()
			lags, err = append(lags, lag), errors.Join(err, lagErr)
		}
		if err != nil {
			return nil, fmt.Errorf("kindred: %w", err)
		}
		if r.writes {
			if err := b.awaitFollowers(ctx, b.small); err != nil {
				return nil, err
			}
		}
		beside, err := requests(ctx, b.ceiling.addr, w, b.pace(connections))
		if err != nil {
			return nil, fmt.Errorf("the ceiling: %w", err)
		}
		for i, pair := range [][2]float64{{got.PerSecond, beside.PerSecond}, {got.P50, beside.P50}, {got.P99, beside.P99}} {
			ours[i], theirs[i] = append(ours[i], pair[0]), append(theirs[i], pair[1])
		}
		fmt.Fprintf(b.say, "  %s %d/%d: %s/s beside %s/s\n", r.row, round+1, b.o.rounds, number(got.PerSecond), number(beside.PerSecond))
	}
	figures := []Figure{
		measured(r.row, r.name, "req/s", ours[0], theirs[0], ratioAtLeast(r.least)),
		measured(r.row, r.name+", p50", "ms", ours[1], theirs[1], nil),
		measured(r.row, r.name+", p99", "ms", ours[2], theirs[2], ratioAtMost(1/r.least)),
	}
	if r.writes {
		figures = append(figures, measured(r.row, r.name+", read model behind, p99", "ms", lags, nil, atMost(100)))
	}
	return figures, nil
}

func (b *bench) pace(workers int) pace {
	return pace{workers: workers, warm: b.o.warm, length: b.o.run}
}

// awaitFollowers waits until what follows the log has caught up, so that a run does
// not pay for the one before.
func (b *bench) awaitFollowers(ctx context.Context, p *population) error {
	c := p.clients[0]
	var u user
	if err := p.send(ctx, http.MethodGet, usersPath+"/"+c.users[0].ID, c.token, nil, &u); err != nil {
		return err
	}
	select {
	case <-time.After(b.o.warm):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lagWatch tells how far reads are behind writes: it creates a user now and
// then, and asks for it at once. The answer waits until the read model has it.
type lagWatch struct {
	cancel context.CancelFunc
	done   chan struct{}
	took   []time.Duration
	err    error
}

const lagEvery = 10 * time.Millisecond

func watchLag(ctx context.Context, p *population) *lagWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &lagWatch{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = w.watch(ctx, p)
	}()
	return w
}

func (w *lagWatch) watch(ctx context.Context, p *population) error {
	random := chance()
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	asking := context.WithoutCancel(ctx) // what was begun is ended
	for ctx.Err() == nil {
		c := p.any(random)
		var u user
		if err := p.send(asking, http.MethodPost, usersPath, c.token, person(random, fmt.Sprintf("lag%d", time.Now().UnixNano())), &u); err != nil {
			return err
		}
		began := time.Now()
		if err := p.send(asking, http.MethodGet, usersPath+"/"+u.ID, c.token, nil, &u); err != nil {
			return err
		}
		w.took = append(w.took, time.Since(began))
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// end returns the p99 in ms.
func (w *lagWatch) end() (float64, error) {
	w.cancel()
	<-w.done
	slices.Sort(w.took)
	return milliseconds(percentile(w.took, 0.99)), w.err
}
