package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"syscall"
	"time"
)

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

// overloadOf is a workload that is asked for at twice the rate that can be met, and
// how many callers its peak is looked for with: appends that wait together share a
// commit, and reads of users a statement.
var overloadOf = []struct {
	name     string
	workload func(*population) workload
	callers  []int
	least    float64 // of the peak, beside one greedy client
}{
	{"GET user", getUser, []int{connections, 8 * connections}, 0.95},
	{"POST users", createUser, []int{connections, 8 * connections}, 0.9},
}

// peak is the best that a workload is met with.
func (b *bench) peak(ctx context.Context, w workload, of []int) (best outcome, err error) {
	for _, callers := range of {
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

// overload asks for twice as much as can be done, and then for half of it. It
// says what percentage of all processors the driver took for the former.
func (b *bench) overload(ctx context.Context, w workload, peak float64) (over, after []arrival, share float64, err error) {
	f, err := newFlood(b.small.addr, w, openConnections)
	if err != nil {
		return nil, nil, 0, err
	}
	defer f.close()
	began, used := time.Now(), ownTime()
	over, err = f.run(ctx, 2*peak, 2*b.o.run)
	if err != nil {
		return nil, nil, 0, err
	}
	share = 100 * (ownTime() - used).Seconds() / time.Since(began).Seconds() / float64(runtime.NumCPU())
	after, err = f.run(ctx, peak/2, max(b.o.run, 3*time.Second))
	return over, after, share, err
}

// ownTime is what this process has used of the processors.
func ownTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it fails for nobody
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// measureOverload finds out what can be done at best, asks for twice as much,
// and then for half of it. The driver has a processor of its own meanwhile: it
// works twice as hard for the second, and would take that from what it measures.
func measureOverload(ctx context.Context, b *bench) (figures []Figure, err error) {
	const row = "overload"
	if err := b.fixture.rest(ctx, b.kindred); err != nil { // an import may have come before
		return nil, err
	}
	together, err := apart()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, together()) }()
	for _, of := range overloadOf {
		var peaks, good, p99s, recoveries, wrong, driver, shares []float64
		w := of.workload(b.small)
		for round := range b.o.rounds {
			peak, err := b.peak(ctx, w, of.callers)
			if err != nil {
				return figures, err
			}
			over, after, share, err := b.overload(ctx, w, peak.PerSecond)
			if err != nil {
				return figures, err
			}
			t := count(over, w.want)
			span := over[len(over)-1].due.Sub(over[0].due)
			peaks, good = append(peaks, peak.PerSecond), append(good, float64(t.good)/span.Seconds())
			p99s = append(p99s, milliseconds(percentile(t.took, 0.99)))
			recoveries = append(recoveries, recovered(after, w.want, lateness+time.Duration(10*peak.P99*float64(time.Millisecond))).Seconds())
			wrong, driver = append(wrong, float64(t.wrong)), append(driver, 100*float64(t.late)/float64(len(over)))
			shares = append(shares, share)
			fmt.Fprintf(b.say, "  overload, %s %d/%d: peak %s/s; of %s at twice that %d good, %d shed, %d late, %d wrong %s; recovered after %.2f s\n",
				of.name, round+1, b.o.rounds, number(peak.PerSecond), number(float64(len(over))), t.good, t.shed, t.late, t.wrong, t.example, recoveries[round])
		}
		name := "overload, " + of.name
		figures = append(figures,
			measured(row, name+", goodput beside peak", "req/s", good, peaks, ratioAtLeast(0.9)),
			measured(row, name+", p99 of the good", "ms", p99s, nil, nil),
			measured(row, name+", neither good nor 429/503 with Retry-After", "req", wrong, nil, atMost(0)),
			measured(row, name+", not sent in time by the driver", "%", driver, nil, nil),
			measured(row, name+", the driver's part of the processors", "%", shares, nil, nil),
			measured(row, name+", recovery", "s", recoveries, nil, atMost(2)))
	}
	return figures, nil
}

const (
	greedyConnections = 100
	modestClients     = 9
	modestRate        = 20 // requests a second of each
)

// open asks at a rate, whatever becomes of it, over so many connections at most.
func (b *bench) open(ctx context.Context, w workload, connections int, rate float64) (tally, error) {
	f, err := newFlood(b.small.addr, w, connections)
	if err != nil {
		return tally{}, err
	}
	defer f.close()
	all, err := f.run(ctx, rate, 2*b.o.run)
	return count(all, w.want), err
}

// measureGreedy has one client ask for twice what can be done, on as many
// connections as it may have, beside a few that ask for little.
func measureGreedy(ctx context.Context, b *bench) (figures []Figure, err error) {
	const row = "greedy"
	if err := b.fixture.rest(ctx, b.kindred); err != nil {
		return nil, err
	}
	together, err := apart()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, together()) }()
	of := func(clients []client) *population {
		return &population{addr: b.small.addr, http: b.small.http, clients: clients}
	}
	one, few := of(b.small.clients[:1]), of(b.small.clients[1:1+modestClients])
	for _, o := range overloadOf {
		var alone, beside, refused, peaks, good []float64
		for round := range b.o.rounds {
			peak, err := b.peak(ctx, o.workload(b.small), o.callers)
			if err != nil {
				return figures, err
			}
			modest := func() (tally, error) {
				return b.open(ctx, o.workload(few), openConnections, modestClients*modestRate)
			}
			before, err := modest()
			if err != nil {
				return figures, err
			}
			var greedy tally
			ended := make(chan error, 1)
			go func() {
				var err error
				greedy, err = b.open(ctx, o.workload(one), greedyConnections, 2*peak.PerSecond)
				ended <- err
			}()
			meanwhile, err := modest()
			if err := errors.Join(err, <-ended); err != nil {
				return figures, err
			}
			p99 := func(t tally) float64 { return milliseconds(percentile(t.took, 0.99)) }
			alone, beside, refused = append(alone, p99(before)), append(beside, p99(meanwhile)), append(refused, float64(meanwhile.shed+meanwhile.wrong))
			peaks, good = append(peaks, peak.PerSecond), append(good, float64(greedy.good+meanwhile.good)/(2*b.o.run).Seconds())
			fmt.Fprintf(b.say, "  greedy, %s %d/%d: p99 of the modest %.1f ms beside it, %.1f alone, %.0f not answered; %s/s good of a peak of %s/s, %d of the greedy one's shed\n",
				o.name, round+1, b.o.rounds, beside[round], alone[round], refused[round], number(good[round]), number(peak.PerSecond), greedy.shed)
		}
		name := "one greedy client, " + o.name
		figures = append(figures,
			measured(row, name+", p99 of nine modest ones", "ms", beside, alone, ratioAtMost(2)),
			measured(row, name+", requests of theirs without an answer", "req", refused, nil, atMost(0)),
			measured(row, name+", goodput beside peak", "req/s", good, peaks, ratioAtLeast(o.least)))
	}
	return figures, nil
}
