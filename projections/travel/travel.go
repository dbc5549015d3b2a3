// Package travel shows clients as they were: it applies their events up to a
// moment to throw-away tables, by the very code that keeps the live ones, and
// reads these as the live ones are read. What was erased since stays erased.
package travel

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/panics"
	"kindred/semaphore"
)

// Conns are the connections to the database that all states of a process are built
// and read over, each over one.
const Conns = atOnce

const (
	atOnce   = 6 // states of this process, being built or kept
	ofClient = 2 // of one client
	// limit: models | states of the past that wait to be built | {waiting}
	waiting  = 32               // to be built
	patience = 10 * time.Second // that a caller waits for one to be built
	// limit: kept | a state of the past | {keepFor} after its last reader; {atOnce} in a process, {ofClient} of a client
	keepFor    = 2 * time.Minute // after its last reader, so that pages are read from one state
	sweepEvery = time.Minute
)

// Traveller builds states and keeps them for a moment. Any goroutine may use
// it; Visit needs Run to run.
type Traveller struct {
	Sources

	places *semaphore.Semaphore // a state that waits for a reader gives way
	build  func(context.Context, id.Client, int64, func(projector.Rebuilding), func(context.Context, *State) error) error

	mu     sync.Mutex
	states map[moment]*kept
	begin  chan *kept
}

// New makes a Traveller.
func New(s Sources) *Traveller {
	t := &Traveller{
		Sources: s, places: &semaphore.Semaphore{Places: atOnce, Each: ofClient, Waiting: waiting},
		states: map[moment]*kept{}, begin: make(chan *kept, atOnce+waiting),
	}
	t.build = t.Build
	return t
}

// moment is when a client had so many events.
type moment struct {
	client id.Client
	size   int64
}

// kept is a state that is being built, or is kept for its readers.
type kept struct {
	moment
	ready chan struct{} // closed once state or err is set
	leave chan struct{} // closed to have it dropped
	state *State
	err   error

	over     bool // it goes once nobody reads
	readers  int
	lastRead time.Time
	progress projector.Rebuilding
}

// aPosition is what the stores write a place in the log as. No ordinal has so
// many digits.
var aPosition = regexp.MustCompile(`^([0-9a-f]{16}){1,2}$`)

// Resolve says how many events a client had at a moment: an ordinal or a
// position, the event there included, or a time (RFC 3339). It fails with a
// fault.
// Faults: building, invalid, overloaded, quarantined, stale.
func (t *Traveller) Resolve(ctx context.Context, client id.Client, eventual bool, at string) (int64, error) {
	if aPosition.MatchString(at) {
		head, err := t.Log.Store.Head(ctx)
		if err != nil {
			return 0, fmt.Errorf("find the end of the log: %w", err)
		}
		if position := eventstore.Position(at); len(position) == len(head) && position <= head {
			return t.History.SizeUpTo(ctx, client, eventual, position)
		}
		return 0, wrongMoment("must be a position in the log, as X-Kindred-Position tells it")
	}
	if ordinal, err := strconv.ParseInt(at, 10, 64); err == nil {
		tree, err := t.History.Tree(ctx, client, eventual)
		if err != nil {
			return 0, err
		}
		if ordinal < 0 || ordinal >= tree.Size {
			return 0, wrongMoment("must be an ordinal below %d, which is the number of events", tree.Size)
		}
		return ordinal + 1, nil
	}
	moment, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || strings.Contains(at, ",") || at[len("2006-01-02T15")] != ':' { // Go takes a comma and T9:00, RFC 3339 neither
		return 0, wrongMoment("must be an ordinal, a position, or a time such as 2026-01-31T12:00:00Z")
	}
	now, err := t.Log.TimeOf(ctx, client)
	if err != nil {
		return 0, err
	}
	if moment.After(now) {
		return 0, wrongMoment("must not be in the future")
	}
	return t.History.SizeAt(ctx, client, eventual, moment)
}

func wrongMoment(detail string, args ...any) error {
	return fault.NewInvalid(fault.Field{Pointer: "at", Detail: fmt.Sprintf(detail, args...)})
}

// Visit returns the state of a client when it had so many events; done must be
// called after it was read. It fails with a fault of kind Unavailable where it is
// being built, which goes on, and can be waited for (fault.Fault.Soon), or where too
// much is.
// Faults: building, busy.
func (t *Traveller) Visit(client id.Client, size int64) (s *State, done func(), err error) {
	k, err := t.enter(moment{client, size})
	if err != nil {
		return nil, nil, err
	}
	done = func() { t.exit(k) }
	if err := t.await(k); err != nil {
		done()
		return nil, nil, err
	}
	return k.state, done, nil
}

// await fails where a state is yet to be built, with a fault that says how to wait.
func (t *Traveller) await(k *kept) error {
	select {
	case <-k.ready:
		return k.err
	default:
	}
	f := t.stillBuilding(k)
	f.Soon = func(ctx context.Context) (context.Context, error) {
		wait := time.NewTimer(patience)
		defer wait.Stop()
		select {
		case <-k.ready:
			return ctx, k.err
		case <-ctx.Done():
			return ctx, ctx.Err()
		case <-wait.C:
			return ctx, t.stillBuilding(k)
		}
	}
	return f
}

func (t *Traveller) stillBuilding(k *kept) *fault.Fault {
	t.mu.Lock()
	p := k.progress
	t.mu.Unlock()
	return fault.New(fault.Unavailable, "building", "This state is being built: %d of %d events. Ask again.", p.Events, k.size).
		After(min(max(p.Left, time.Second), keepFor/2).Round(time.Second))
}

// enter joins the readers of a state, and has it built where there is none.
func (t *Traveller) enter(m moment) (*kept, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, found := t.states[m]
	if !found {
		k = &kept{moment: m, ready: make(chan struct{}), leave: make(chan struct{})}
		select {
		case t.begin <- k:
		default:
			return nil, tooBusy()
		}
		t.states[m] = k
	}
	k.readers++
	return k, nil
}

func tooBusy() error {
	return fault.New(fault.Unavailable, "busy", "Too many states of the past are being built; try again.").After(5 * time.Second)
}

// idle says whether a state waits for a reader. The lock is held.
func (k *kept) idle() bool { return k.state != nil && k.readers == 0 }

// drop ends a state that has no readers. The lock is held.
func (t *Traveller) drop(k *kept) {
	t.hide(k)
	select {
	case <-k.leave:
	default:
		close(k.leave)
	}
}

// hide has a state built anew for whoever comes from now on. The lock is held.
func (t *Traveller) hide(k *kept) {
	if t.states[k.moment] == k {
		delete(t.states, k.moment)
	}
}

// end has a state go once nobody reads it.
func (t *Traveller) end(k *kept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hide(k)
	if k.over = true; k.idle() { // else its last reader drops it
		t.drop(k)
	}
}

func (t *Traveller) exit(k *kept) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.readers--
	k.lastRead = t.Now()
	if k.over && k.idle() {
		t.drop(k)
	}
}

// Run builds what is asked for, and drops what is not read any more, until ctx
// ends.
func (t *Traveller) Run(ctx context.Context) {
	var building sync.WaitGroup
	defer building.Wait()
	building.Go(func() { t.sweepOften(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case k := <-t.begin:
			building.Go(func() { t.keep(ctx, k) })
		}
	}
}

// sweepOften sweeps beside what is built: a sweep may take long.
func (t *Traveller) sweepOften(ctx context.Context) {
	again := time.NewTicker(sweepEvery)
	defer again.Stop()
	for {
		t.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func (t *Traveller) sweep(ctx context.Context) {
	t.mu.Lock()
	for _, k := range t.states {
		if k.idle() && t.Now().Sub(k.lastRead) > keepFor {
			t.drop(k)
		}
	}
	t.mu.Unlock()
	if err := t.Runner.SweepScratches(ctx); err != nil && ctx.Err() == nil {
		t.Logger.WarnContext(ctx, "throw-away tables not swept", "error", err)
	}
}

// holder is what a state holds its place as: it gives way once nobody reads it.
func (t *Traveller) holder(k *kept) *semaphore.Holder {
	return &semaphore.Holder{
		Slow: func(time.Duration) float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			if !k.idle() {
				return 0
			}
			return semaphore.Idle + t.Now().Sub(k.lastRead).Seconds()
		},
		End: func() { t.end(k) },
	}
}

// keep builds a state once there is a place for it, and holds it until it may go.
func (t *Traveller) keep(ctx context.Context, k *kept) {
	h := t.holder(k)
	err := tooBusy()
	if t.places.Hold(ctx, k.client.Owner(), h) {
		defer t.places.Drop(h)
		err = t.hold(ctx, k)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(k)
	if k.state == nil {
		k.err = err
		switch {
		case errors.Is(err, projector.ErrBusy):
			k.err = tooBusy()
		case errors.Is(err, projector.ErrLost), ctx.Err() != nil: // this process, or Postgres, stood still for longer than a lease lasts, or ends
			k.err = toBuildAnew()
		}
		close(k.ready)
	} else if err != nil && ctx.Err() == nil {
		t.Logger.WarnContext(ctx, "state of the past not dropped in order", "client", k.client, "error", err)
	}
}

func toBuildAnew() *fault.Fault {
	return fault.New(fault.Unavailable, "building", "This state has to be built anew. Ask again.").After(time.Second)
}

func (t *Traveller) hold(ctx context.Context, k *kept) (err error) {
	defer panics.Catch(&err)
	report := func(p projector.Rebuilding) {
		t.mu.Lock()
		defer t.mu.Unlock()
		k.progress = p
	}
	return t.build(ctx, k.client, k.size, report, func(ctx context.Context, s *State) error {
		t.mu.Lock()
		k.state, k.lastRead = s, t.Now()
		t.mu.Unlock()
		close(k.ready)
		select {
		case <-k.leave:
		case <-ctx.Done():
			t.end(k)
			<-k.leave // its connection stays for those who read
		}
		return nil
	})
}
