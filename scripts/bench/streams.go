package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	followed     = 10  // clients
	streamsEach  = 100 // as many as one may have
	eventsEvery  = 10 * time.Millisecond
	toldOf       = 1000 // events a round: one that hangs is not yet a p99
	streamsReady = 30 * time.Second
)

// followers are streams of events, and what they were told.
type followers struct {
	end  context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	told int
	took []time.Duration // from the moment that an event bears to its arrival
	err  error
}

// follow opens streams of some clients, and waits until all are told of what is new.
func follow(ctx context.Context, p *population, clients []client) (*followers, error) {
	ctx, end := context.WithCancel(ctx)
	f := &followers{end: end}
	caller := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: -1}}
	began := make(chan error, len(clients)*streamsEach)
	for _, c := range clients {
		for range streamsEach {
			f.done.Go(func() {
				if err := f.stream(ctx, caller, p.addr, c.token, began); ctx.Err() == nil {
					f.mu.Lock()
					f.err = errors.Join(f.err, err)
					f.mu.Unlock()
				}
			})
		}
	}
	for range cap(began) {
		select {
		case err := <-began:
			if err != nil {
				return nil, errors.Join(err, f.close())
			}
		case <-time.After(streamsReady):
			return nil, errors.Join(errors.New("streams do not begin"), f.close())
		}
	}
	return f, nil
}

// stream reads one stream, from now on, until it ends.
func (f *followers) stream(ctx context.Context, caller *http.Client, addr, token string, began chan<- error) error {
	url := "http://" + addr + "/api/v1/events/stream?since=" + time.Now().UTC().Format(time.RFC3339Nano)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		began <- err
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := caller.Do(r)
	if err != nil {
		began <- err
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		err := fmt.Errorf("a stream is answered %d", answer.StatusCode)
		began <- err
		return err
	}
	ready := false
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		arrived := time.Now()
		data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !ready { // the first line of all says that it has caught up
			ready = true
			began <- nil
		}
		if !is {
			continue
		}
		var e struct{ Timestamp time.Time }
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		f.mu.Lock()
		f.told, f.took = f.told+1, append(f.took, arrived.Sub(e.Timestamp))
		f.mu.Unlock()
	}
	return errors.New("a stream has ended")
}

// heard waits until so many events were told of in all.
func (f *followers) heard(ctx context.Context, n int) error {
	for until := time.Now().Add(streamsReady); ; {
		f.mu.Lock()
		told, err := f.told, f.err
		f.mu.Unlock()
		switch {
		case err != nil || told >= n:
			return err
		case time.Now().After(until):
			return fmt.Errorf("%d of %d are told of", told, n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (f *followers) close() error {
	f.end()
	f.done.Wait()
	return f.err
}

// record has matches of one of a client's users recorded, an event each.
func (p *population) record(ctx context.Context, c client, n, matches int) error {
	user := c.users[n%len(c.users)].ID
	return p.send(ctx, http.MethodPost, usersPath+"/"+user+"/matches", c.token, fmt.Appendf(nil, `{"limit":%d}`, matches), new(json.RawMessage))
}

// measureStreams opens 1,000 streams, looks at other clients' reads beside them, and then
// tells them of 100 events a second.
func measureStreams(ctx context.Context, b *bench) ([]Figure, error) {
	const row = "streams"
	if err := b.fixture.rest(ctx, b.kindred); err != nil {
		return nil, err
	}
	clients := b.small.clients[:followed]
	for _, c := range clients { // whoever is matched first has the users read
		if err := b.small.record(ctx, c, 0, 1); err != nil {
			return nil, err
		}
	}
	others := getUser(&population{clients: b.small.clients[followed:]})
	var alone, beside, p99s, missed []float64
	for round := range b.o.rounds {
		calm, err := requests(ctx, b.small.addr, others, calmReads(b.calm()))
		if err != nil {
			return nil, err
		}
		f, err := follow(ctx, b.small, clients)
		if err != nil {
			return nil, err
		}
		open, err := requests(ctx, b.small.addr, others, calmReads(b.calm()))
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		err = b.tell(ctx, clients, toldOf)
		if err == nil {
			err = f.heard(ctx, toldOf*streamsEach)
		}
		if err := errors.Join(err, f.close()); err != nil {
			return nil, err
		}
		slices.Sort(f.took)
		alone, beside = append(alone, calm.P99), append(beside, open.P99)
		p99s, missed = append(p99s, milliseconds(percentile(f.took, 0.99))), append(missed, float64(toldOf*streamsEach-f.told))
		fmt.Fprintf(b.say, "  %s %d/%d: %d messages, p99 %.1f ms; GET user p99 %.1f ms beside, %.1f alone\n",
			row, round+1, b.o.rounds, f.told, p99s[round], open.P99, calm.P99)
	}
	return []Figure{
		measured(row, "100 events/s to 1,000 streams, recorded to told, p99", "ms", p99s, nil, atMost(30)),
		measured(row, "  not told of, or twice", "messages", missed, nil, atMost(0)),
		measured(row, "GET user beside 1,000 open streams, p99", "ms", beside, alone, ratioAtMost(1.2)),
	}, nil
}

// tell has so many events recorded at a steady rate, by the clients in turn.
func (b *bench) tell(ctx context.Context, clients []client, events int) error {
	group, ctx := errgroup.WithContext(ctx)
	tick := time.NewTicker(eventsEvery)
	defer tick.Stop()
	for n := range events {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return group.Wait()
		}
		group.Go(func() error { return b.small.record(ctx, clients[n%len(clients)], n, 1) })
	}
	return group.Wait()
}

const (
	pulled     = 100_000 // events, each in a page once
	pulledOnce = 10      // are recorded by one request
	pullPage   = 1000
)

// measurePull records many events of one client, and pulls them all.
func measurePull(ctx context.Context, b *bench) ([]Figure, error) {
	const row = "pull"
	c, events := b.small.clients[0], pulled
	if b.o.quick {
		events = pulled / 10
	}
	group, making := errgroup.WithContext(ctx)
	group.SetLimit(seedWorkers)
	for n := range events / pulledOnce {
		group.Go(func() error { return b.small.record(making, c, n, pulledOnce) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := b.fixture.rest(ctx, b.kindred); err != nil {
		return nil, err
	}
	var rates []float64
	read := 0
	for range b.repetitions() {
		began := time.Now()
		var err error
		if read, err = b.small.pull(ctx, c); err != nil {
			return nil, err
		}
		rates = append(rates, float64(read)/time.Since(began).Seconds())
	}
	return []Figure{measured(row, "pull of "+number(float64(read))+" events", "events/s", rates, nil, atLeast(30_000))}, nil
}

// pull reads all events of a client, and says how many there are.
func (p *population) pull(ctx context.Context, c client) (n int, err error) {
	for after := ""; ; {
		var page struct {
			Data    []json.RawMessage
			HasMore bool    `json:"has_more"`
			LastID  *string `json:"last_id"`
		}
		if err := p.send(ctx, http.MethodGet, fmt.Sprintf("/api/v1/events?limit=%d%s", pullPage, after), c.token, nil, &page); err != nil {
			return n, err
		}
		if n += len(page.Data); !page.HasMore {
			return n, nil
		}
		after = "&after=" + *page.LastID
	}
}
