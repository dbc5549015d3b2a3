package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// hostileRule takes as many steps of a judgement as it may.
const hostileRule = `traits.likes.exists(a, traits.likes.exists(b, a.matches("(a|aa)+$") && b.matches("(b|bb)+$")))`

const segmentReadyWithin = 5 * time.Minute

// measureSegments makes segments of the largest client there is: how long its users take
// to be judged, and what that and a client of hostile rules cost another one.
func measureSegments(ctx context.Context, b *bench) (figures []Figure, err error) {
	const row = "segments"
	if err := b.needBulk(ctx); err != nil {
		return nil, err
	}
	if err := b.fixture.rest(ctx, b.kindred); err != nil {
		return nil, err
	}
	other := b.small.clients[1]
	one, err := b.small.define(ctx, other, `traits.age > 30`)
	if err != nil {
		return nil, err
	}
	if err := b.small.built(ctx, other, one); err != nil {
		return nil, err
	}
	var firsts, alone, building, kept, beside []float64
	for round := range b.repetitions() {
		calm, err := b.changesRead(ctx, other, one)
		if err != nil {
			return figures, err
		}
		began := time.Now()
		segment, err := b.small.define(ctx, b.bulk.client, fmt.Sprintf(`traits.age > %d`, 20+round))
		if err != nil {
			return figures, err
		}
		ready := make(chan error, 1)
		go func() { ready <- b.small.built(ctx, b.bulk.client, segment) }()
		meanwhile, err := b.changesRead(ctx, other, one)
		if err := errors.Join(err, <-ready); err != nil {
			return figures, err
		}
		firsts, alone, building = append(firsts, time.Since(began).Seconds()), append(alone, calm), append(building, meanwhile)
	}
	for range 20 {
		segment, err := b.small.define(ctx, b.bulk.client, hostileRule)
		if err != nil {
			return figures, err
		}
		if err := b.small.built(ctx, b.bulk.client, segment); err != nil {
			return figures, err
		}
	}
	of := &population{addr: b.small.addr, http: b.small.http, clients: []client{b.bulk.client}}
	for range b.repetitions() {
		calm, err := b.changesRead(ctx, other, one)
		if err != nil {
			return figures, err
		}
		ended := make(chan error, 1)
		go func() {
			_, err := requests(ctx, b.small.addr, createUser(of), calmWrites(b.calm()))
			ended <- err
		}()
		disturbed, err := b.changesRead(ctx, other, one)
		if err := errors.Join(err, <-ended); err != nil {
			return figures, err
		}
		kept, beside = append(kept, calm), append(beside, disturbed)
	}
	name := "first rule over " + number(float64(b.bulk.lines)) + " users"
	return []Figure{
		measured(row, name, "s", firsts, nil, atMost(20*float64(b.bulk.lines)/1e6)),
		measured(row, name+", another's change and read meanwhile, p99", "ms", building, alone, ratioAtMost(2)),
		measured(row, "twenty hostile rules, another's change and read beside, p99", "ms", beside, kept, ratioAtMost(2)),
	}, nil
}

// define makes a segment.
func (p *population) define(ctx context.Context, c client, rule string) (segment string, err error) {
	body, err := json.Marshal(map[string]string{"name": "bench", "rule": rule})
	if err != nil {
		return "", err
	}
	var made struct{ ID string }
	err = p.send(ctx, http.MethodPost, "/api/v1/segments", c.token, body, &made)
	return made.ID, err
}

// built waits until a segment is ready.
func (p *population) built(ctx context.Context, c client, segment string) error {
	for until := time.Now().Add(segmentReadyWithin); ; {
		var s struct{ State string }
		if err := p.send(ctx, http.MethodGet, "/api/v1/segments/"+segment, c.token, nil, &s); err != nil || s.State == "ready" {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s is still %s", segment, s.State)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// changesRead changes a user of a client every now and then and reads a segment of it at once, which waits
// until that is judged. It returns the p99 of both together in ms.
func (b *bench) changesRead(ctx context.Context, c client, segment string) (float64, error) {
	var took []time.Duration
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for n, until := 0, time.Now().Add(b.calm()); time.Now().Before(until); n++ {
		began := time.Now()
		path := usersPath + "/" + c.users[n%len(c.users)].ID
		if err := b.small.send(ctx, http.MethodPatch, path, c.token, fmt.Appendf(nil, `{"traits":{"age":%d}}`, 20+n%40), new(json.RawMessage)); err != nil {
			return 0, err
		}
		if err := b.small.send(ctx, http.MethodGet, "/api/v1/segments/"+segment, c.token, nil, new(json.RawMessage)); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	slices.Sort(took)
	return milliseconds(percentile(took, 0.99)), nil
}
