package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// hostileRule is long, and each part of it takes as many steps as it may: 60 regular expressions over
// a short text.
func hostileRule(n int) string {
	return strings.Repeat(fmt.Sprintf(`traits.city.matches("((a|b)?(c|d)?(e|f)?)+%d$") || `, n), 60) + "false"
}

const hostileRules = 20

const (
	segmentsPath       = "/api/v1/segments"
	segmentReadyWithin = 5 * time.Minute
)

// measureSegments makes segments of the largest client there is: how long its users take
// to be judged, and what that and a client of hostile rules cost another one.
func measureSegments(ctx context.Context, b *bench) (figures []Figure, err error) {
	const row = "segments"
	if err := b.needBulk(ctx); err != nil {
		return nil, err
	}
	if err := b.small.until(ctx, b.bulk.client, segmentsPath, new(json.RawMessage), func() bool { return true }); err != nil {
		return nil, err
	}
	if err := b.fixture.rest(ctx, b.kindred); err != nil {
		return nil, err
	}
	other := b.small.clients[1]
	one, err := b.small.judged(ctx, other, `traits.age > 30`)
	if err != nil {
		return nil, err
	}
	var firsts, alone, building, kept, beside []float64
	for round := range b.repetitions() {
		calm, err := b.changesRead(ctx, other, one)
		if err != nil {
			return figures, err
		}
		judged, took := make(chan error, 1), time.Duration(0)
		go func() {
			began := time.Now()
			_, err := b.small.judged(ctx, b.bulk.client, fmt.Sprintf(`traits.age > %d`, 20+round))
			took = time.Since(began)
			judged <- err
		}()
		meanwhile, err := b.changesRead(ctx, other, one)
		if err := errors.Join(err, <-judged); err != nil {
			return figures, err
		}
		firsts, alone, building = append(firsts, took.Seconds()), append(alone, calm), append(building, meanwhile)
	}
	hostile := b.small.clients[2]
	for n := range hostileRules {
		if _, err := b.small.judged(ctx, hostile, hostileRule(n)); err != nil {
			return figures, err
		}
	}
	of := &population{addr: b.small.addr, http: b.small.http, clients: []client{hostile}}
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

// judged makes a segment, and waits until its rule has judged everyone.
func (p *population) judged(ctx context.Context, c client, rule string) (segment string, err error) {
	body, err := json.Marshal(map[string]string{"name": "bench", "rule": rule})
	if err != nil {
		return "", err
	}
	var s struct{ ID string }
	if err := p.send(ctx, http.MethodPost, segmentsPath, c.token, body, &s); err != nil {
		return "", err
	}
	return s.ID, p.ready(ctx, c, s.ID)
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
		if err := b.small.send(ctx, http.MethodGet, segmentsPath+"/"+segment, c.token, nil, new(json.RawMessage)); err != nil {
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
