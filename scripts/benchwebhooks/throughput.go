package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const crowd = 20_000 // events of a burst

// surroundings notes what the machine gives: how long its disk takes to flush.
func (b *bench) surroundings(context.Context) error {
	file, err := os.Create(filepath.Join(b.dir, "fsync"))
	if err != nil {
		return err
	}
	defer file.Close()
	var took []time.Duration
	for range 200 {
		if _, err := file.Write(make([]byte, 8<<10)); err != nil {
			return err
		}
		began := time.Now()
		if err := file.Sync(); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.add(row{What: "fsync of this disk, p50", Unit: "ms", Figures: []float64{quantile(took, 0.5)}})
	b.add(row{What: "fsync of this disk, p99", Unit: "ms", Figures: []float64{quantile(took, 0.99)}})
	return nil
}

// bare is how many requests a second a bare client and receiver reach.
func (b *bench) bare(ctx context.Context) (float64, error) {
	r, err := b.receive(ctx, fast)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), 330)
	var (
		next atomic.Int64
		errs [64]error
		all  sync.WaitGroup
	)
	began := time.Now()
	for w := range errs {
		all.Go(func() {
			for next.Add(1) <= crowd && errs[w] == nil {
				errs[w] = post(ctx, transport, r.url, body)
			}
		})
	}
	all.Wait()
	return crowd / time.Since(began).Seconds(), errors.Join(errs[:]...)
}

func post(ctx context.Context, transport *http.Transport, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// queueCopies queues copies of the last delivery to a webhook, all at once.
const queueCopies = `
WITH model AS (
	SELECT * FROM dispatch_deliveries WHERE webhook = $1 ORDER BY made DESC LIMIT 1
), made AS (
	INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at)
	SELECT 'dlv_' || left(md5($3 || n), 26), client, webhook, event, (SELECT cancelled_through FROM dispatch_endpoints WHERE webhook = $1) || 'f',
		event_type, body, now()
	FROM model, generate_series(1, $2::int) n
	RETURNING 1
)
SELECT count(*), pg_notify('kindred_deliveries', '') IS NULL FROM made`

// queue queues n deliveries to a client's first webhook, and returns when they
// began to be.
func (c *client) queue(ctx context.Context, r *receiver, n int) (time.Time, error) {
	if _, err := c.match(ctx, 0); err != nil {
		return time.Time{}, err
	}
	err := eventually(ctx, "the model is delivered", func() (bool, error) {
		var there int
		err := c.pool.QueryRow(ctx, `SELECT count(*) FROM dispatch_deliveries WHERE webhook = $1`, c.hooks[0]).Scan(&there)
		return there > 0, err
	})
	if err != nil {
		return time.Time{}, err
	}
	r.take()
	return time.Now(), c.copies(ctx, n)
}

// copies queues copies of what a client's first webhook got last.
func (c *client) copies(ctx context.Context, n int) error {
	var made int
	err := c.pool.QueryRow(ctx, queueCopies, c.hooks[0], n, fmt.Sprint(time.Now().UnixNano())).Scan(&made, nil)
	if err == nil && made != n {
		err = fmt.Errorf("%d queued, not %d", made, n)
	}
	return err
}

// drain measures how fast n queued deliveries go out to one receiver.
func (b *bench) drain(ctx context.Context, n int) (float64, error) {
	c, all, err := b.signUp(ctx, fast)
	if err != nil {
		return 0, err
	}
	began, err := c.queue(ctx, all[0], n)
	if err != nil {
		return 0, err
	}
	if err := arrived(ctx, all[0], n); err != nil {
		return 0, err
	}
	got := all[0].take()
	seen := map[string]bool{}
	for _, a := range got {
		seen[a.id] = true
	}
	if len(seen) != n {
		return 0, fmt.Errorf("%d different deliveries, not %d", len(seen), n)
	}
	return float64(n) / got[len(got)-1].at.Sub(began).Seconds(), c.leave(ctx)
}

func arrived(ctx context.Context, r *receiver, n int) error {
	return eventually(ctx, fmt.Sprintf("%d deliveries", n), func() (bool, error) { return r.count() >= n, nil })
}

// endToEnd measures how fast events go from the API to one receiver.
func (b *bench) endToEnd(ctx context.Context, n, most, workers int) (rate, accepted float64, err error) {
	c, all, err := b.signUp(ctx, fast)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	pairs, err := c.burst(ctx, n, most, workers, "", nil)
	if err != nil {
		return 0, 0, err
	}
	acked := time.Since(began)
	if err := arrived(ctx, all[0], n); err != nil {
		return 0, 0, err
	}
	got := all[0].take()
	if lost := missing(pairs, got); lost > 0 {
		return 0, 0, fmt.Errorf("%d of %d events did not arrive", lost, n)
	}
	return float64(n) / got[len(got)-1].at.Sub(began).Seconds(), float64(n) / acked.Seconds(), c.leave(ctx)
}

// drains compares what is queued already with the most that a client and a
// receiver could do, turn by turn.
func drains(ctx context.Context, b *bench) error {
	var (
		ceiling, drained, share []float64
		cost                    costs
	)
	for range b.runs {
		bare, err := b.bare(ctx)
		if err != nil {
			return err
		}
		ceiling = append(ceiling, bare)
		if err := cost.of(b, crowd, func() error {
			rate, err := b.drain(ctx, crowd)
			drained, share = append(drained, rate), append(share, 100*rate/bare)
			return err
		}); err != nil {
			return err
		}
	}
	b.add(row{What: "a bare Go client and receiver", Unit: "/s", Figures: ceiling})
	b.add(row{What: "20k queued, drained to one endpoint", Unit: "/s", Figures: drained, AtLeast: 8000})
	b.add(row{What: "  of the bare client's rate", Unit: "%", Figures: share})
	cost.add(b)
	return nil
}

// bursts does the same for what comes through the API: in requests for the best
// matches of a user, and in requests for one pair.
func bursts(ctx context.Context, b *bench) error {
	const fewer = crowd / 10
	var (
		ceiling, burst, accepted, share, single []float64
		cost, singleCost                        costs
	)
	for range b.runs {
		bare, err := b.bare(ctx)
		if err != nil {
			return err
		}
		ceiling = append(ceiling, bare)
		if err := cost.of(b, crowd, func() error {
			rate, acked, err := b.endToEnd(ctx, crowd, batch, publishers)
			burst, accepted, share = append(burst, rate), append(accepted, acked), append(share, 100*rate/bare)
			return err
		}); err != nil {
			return err
		}
		if err := singleCost.of(b, fewer, func() error {
			rate, _, err := b.endToEnd(ctx, fewer, 1, 4*publishers)
			single = append(single, rate)
			return err
		}); err != nil {
			return err
		}
	}
	b.add(row{What: "a bare Go client and receiver", Unit: "/s", Figures: ceiling})
	b.add(row{What: "20k through the API to one endpoint, 100 a request, end to end", Unit: "/s", Figures: burst, AtLeast: 4000})
	b.add(row{What: "  of the bare client's rate", Unit: "%", Figures: share})
	b.add(row{What: "  acknowledged by the API", Unit: "/s", Figures: accepted})
	cost.add(b)
	b.add(row{What: "2k through the API to one endpoint, 1 a request, end to end", Unit: "/s", Figures: single})
	singleCost.add(b)
	return nil
}
