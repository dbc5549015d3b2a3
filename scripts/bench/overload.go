package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	openConnections = 4096 // as many callers as ever wait at one time
	arrivalTick     = time.Millisecond
	// lateness is how late a request may be sent, before it counts as one that
	// the driver was too slow for.
	lateness = 100 * time.Millisecond
)

// arrival is a request of an open loop: it is sent when its time has come,
// whatever became of those before.
type arrival struct {
	due  time.Time
	took time.Duration // from due to the end of its answer
	end  time.Time
	answer
	err error
}

// flood is an open loop under way.
type flood struct {
	addr   string
	w      workload
	random *rand.Rand

	mu   sync.Mutex
	idle []*conn
	open atomic.Int64
}

// run sends rate requests a second for a time and returns all of them, in
// order, once the last is answered.
func (f *flood) run(ctx context.Context, rate float64, length time.Duration) ([]arrival, error) {
	total := int(rate * length.Seconds())
	all := make([]arrival, total)
	var (
		group sync.WaitGroup
		tick  = time.NewTicker(arrivalTick)
		start = time.Now()
	)
	defer tick.Stop()
	for sent := 0; sent < total; {
		due := min(int(time.Since(start).Seconds()*rate)+1, total)
		for ; sent < due; sent++ {
			at := &all[sent]
			at.due = start.Add(time.Duration(float64(sent) / rate * float64(time.Second)))
			request := f.w.next(f.random, nil)
			group.Go(func() { f.send(ctx, at, request) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			group.Wait()
			return nil, ctx.Err()
		}
	}
	group.Wait()
	return all, nil
}

func (f *flood) send(ctx context.Context, at *arrival, request []byte) {
	c, err := f.take(ctx)
	if err == nil {
		if late := time.Since(at.due); late > lateness {
			at.err = errLate
			f.give(c)
			return
		}
		at.answer, err = c.do(request)
	}
	at.end = time.Now()
	at.took, at.err = at.end.Sub(at.due), err
	switch {
	case c == nil:
	case err != nil || at.closed:
		f.open.Add(-1)
		_ = c.Close()
	default:
		f.give(c)
	}
}

var (
	errLate = errors.New("the driver was late")
	errFull = fmt.Errorf("%d requests are unanswered", openConnections)
)

func (f *flood) take(ctx context.Context) (*conn, error) {
	f.mu.Lock()
	if n := len(f.idle); n > 0 {
		c := f.idle[n-1]
		f.idle = f.idle[:n-1]
		f.mu.Unlock()
		return c, nil
	}
	f.mu.Unlock()
	if f.open.Add(1) > openConnections {
		f.open.Add(-1)
		return nil, errFull
	}
	c, err := dial(ctx, f.addr)
	if err != nil {
		f.open.Add(-1)
		return nil, err
	}
	return c, nil
}

func (f *flood) give(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = append(f.idle, c)
}

func (f *flood) close() {
	for _, c := range f.idle {
		_ = c.Close()
	}
}

// tally is what became of the requests of an open loop.
type tally struct {
	good, shed, late, wrong int
	took                    []time.Duration // of the good ones, sorted
	example                 string          // of the wrong ones
}

func count(all []arrival, want int) (t tally) {
	for _, a := range all {
		switch {
		case errors.Is(a.err, errLate):
			t.late++
		case a.err != nil:
			t.wrong++
			t.example = a.err.Error()
		case a.status == want:
			t.good++
			t.took = append(t.took, a.took)
		case (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable) && a.retryAfter:
			t.shed++
		default:
			t.wrong++
			t.example = fmt.Sprintf("answered %d (Retry-After: %t)", a.status, a.retryAfter)
		}
	}
	slices.Sort(t.took)
	return t
}

// recovered is how long after the first of them requests were still not
// answered as they should be within the patience given.
func recovered(all []arrival, want int, patience time.Duration) time.Duration {
	var last time.Duration
	for _, a := range all {
		if a.err != nil || a.status != want || a.took > patience {
			last = a.due.Sub(all[0].due)
		}
	}
	return last
}

// overloadOf is a workload that is asked for at twice the rate that can be met.
var overloadOf = []struct {
	name     string
	workload func(*population) workload
}{{"GET user", getUser}, {"POST users", createUser}}

// peak is the best that a workload is met with, by few callers or by many:
// appends that wait together share a commit.
func (b *bench) peak(ctx context.Context, w workload) (best outcome, err error) {
	for _, callers := range []int{connections, 8 * connections} {
		got, err := requests(ctx, b.small.addr, w, b.pace(callers))
		if err != nil {
			return outcome{}, err
		}
		if got.PerSecond > best.PerSecond {
			best = got
		}
	}
	return best, nil
}

// measureOverload finds out what can be done at best, asks for twice as much,
// and then for half of it.
func measureOverload(ctx context.Context, b *bench) ([]Figure, error) {
	const row = "overload"
	var figures []Figure
	for _, of := range overloadOf {
		var peaks, good, p99s, recoveries, wrong, driver []float64
		w := of.workload(b.small)
		for round := range b.o.rounds {
			peak, err := b.peak(ctx, w)
			if err != nil {
				return figures, err
			}
			f := &flood{addr: b.small.addr, w: w, random: chance()}
			over, err := f.run(ctx, 2*peak.PerSecond, 2*b.o.run)
			if err != nil {
				return figures, err
			}
			after, err := f.run(ctx, peak.PerSecond/2, max(b.o.run, 3*time.Second))
			f.close()
			if err != nil {
				return figures, err
			}
			t := count(over, w.want)
			span := over[len(over)-1].due.Sub(over[0].due)
			peaks, good = append(peaks, peak.PerSecond), append(good, float64(t.good)/span.Seconds())
			p99s = append(p99s, milliseconds(percentile(t.took, 0.99)))
			recoveries = append(recoveries, recovered(after, w.want, lateness+time.Duration(10*peak.P99*float64(time.Millisecond))).Seconds())
			wrong, driver = append(wrong, float64(t.wrong)), append(driver, 100*float64(t.late)/float64(len(over)))
			fmt.Fprintf(b.say, "  overload, %s %d/%d: peak %s/s; of %s at twice that %d good, %d shed, %d late, %d wrong %s; recovered after %.2f s\n",
				of.name, round+1, b.o.rounds, number(peak.PerSecond), number(float64(len(over))), t.good, t.shed, t.late, t.wrong, t.example, recoveries[round])
		}
		name := "overload, " + of.name
		figures = append(figures,
			measured(row, name+", goodput beside peak", "req/s", good, peaks, ratioAtLeast(0.9)),
			measured(row, name+", p99 of the good", "ms", p99s, nil, nil),
			measured(row, name+", neither good nor 429/503 with Retry-After", "req", wrong, nil, atMost(0)),
			measured(row, name+", not sent in time by the driver", "%", driver, nil, nil),
			measured(row, name+", recovery", "s", recoveries, nil, atMost(2)))
	}
	return figures, nil
}
