package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"kindred/backoff"
	"kindred/commands"
	"kindred/domain/clustering"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/panics"
	"kindred/projections"
)

// Runs finds clustering runs and shows how far they have come.
type Runs interface {
	// Next returns, of each client, the oldest run that is open and is not
	// among those given.
	Next(ctx context.Context, except []id.Run) ([]projections.OpenRun, error)
	// EndedRuns returns those of the runs given that are not open any more.
	EndedRuns(ctx context.Context, runs map[id.Run]id.Client) ([]id.Run, error)
	// Unjudged returns, of each client, the oldest completed run that is to be
	// judged and is not among those given.
	Unjudged(ctx context.Context, except []id.Run) ([]projections.OpenRun, error)
	// JudgedRuns returns those of the runs given that have a verdict.
	JudgedRuns(ctx context.Context, runs map[id.Run]id.Client) ([]id.Run, error)
	// ShowProgress notes how far a run has come: the share that is done, 0 to 1, and in how
	// many seconds it may end, nil where that is not known yet. HideProgress forgets it.
	ShowProgress(ctx context.Context, client id.Client, run id.Run, phase string, share float64, etaSeconds *int) error
	HideProgress(ctx context.Context, client id.Client, run id.Run) error
}

// Inputs reads what a run looks at.
type Inputs interface {
	// Reached waits until the read models have taken in what the log says of a
	// client up to a position.
	Reached(ctx context.Context, client id.Client, at eventstore.Position) error
	// Granted returns, in order of their ids, the users who had granted a layer
	// at a position and have not withdrawn since.
	Granted(ctx context.Context, client id.Client, layer id.ConsentLayer, at eventstore.Position) ([]id.User, error)
	// Among returns those of some users who are in a segment now, in the same order, once
	// what the log says up to a position is known of it. It fails with a fault of kind
	// Missing where the segment is no more.
	Among(ctx context.Context, client id.Client, segment id.Segment, at eventstore.Position, users []id.User) ([]id.User, error)
	// Traits returns what users say now, in order of their ids. Who is not
	// there any more is left out.
	Traits(ctx context.Context, client id.Client, users []id.User) ([]projections.UserChange, error)
}

// Clustering carries out the clustering runs of all clients. One process does
// at a time; a run that another has left is begun again, with the same result.
type Clustering struct {
	Commands *commands.Commands
	Runs     Runs
	Inputs   Inputs
	// Lead does work whenever no other process does, until ctx ends.
	Lead    func(ctx context.Context, name string, work func(context.Context) error) error
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics *Metrics // nil: nothing is counted

	Slots  int           // runs at once
	Memory int64         // bytes that the vectors of all runs may take; at least one of this size
	Limit  time.Duration // for one attempt to read what it looks at, and again from when it has its memory
}

const (
	runPause   = 200 * time.Millisecond // between looks for runs that were requested or cancelled
	firstRest  = time.Second            // of a run whose turn is over and that is not seen to have ended; doubles
	fullRest   = 32 * time.Second
	longRest   = time.Hour // after which a turn is forgotten
	policyName = "policy:clustering"
)

// Run carries out runs until ctx ends.
func (c *Clustering) Run(ctx context.Context) error {
	return c.Lead(ctx, "policy_clustering", c.Drive)
}

// stage is what is done about runs: they are carried out, or judged.
type stage struct {
	slots    int // runs at once, half of them for one client and its sandboxes
	next     func(ctx context.Context, except []id.Run) ([]projections.OpenRun, error)
	ended    func(ctx context.Context, runs map[id.Run]id.Client) ([]id.Run, error)
	carryOut func(ctx context.Context, run projections.OpenRun, memory *memory)
}

// turns is what a leader knows of the runs of a stage.
type turns struct {
	stage
	active map[id.Run]turn
	over   map[id.Run]id.Client // runs whose turn is over, until everybody can see that they have ended
	rest   map[id.Run]rest
	served map[string]int // when a client or a sandbox of it last had its turn, by their owner
	count  int
	done   chan projections.OpenRun
	memory *memory
}

type turn struct {
	client id.Client
	cancel context.CancelFunc
}

type rest struct {
	until time.Time
	times int
}

// Drive carries out runs and judges them until ctx ends, the clients in turn: it
// carries out at most Slots at once, half of them for one client, and judges one at a
// time on half of the processors, so that a run never waits for a verdict.
func (c *Clustering) Drive(ctx context.Context) error {
	var stages sync.WaitGroup
	stages.Go(func() { c.drive(ctx, stage{1, c.Runs.Unjudged, c.Runs.JudgedRuns, c.judge}) })
	c.drive(ctx, stage{c.Slots, c.Runs.Next, c.Runs.EndedRuns, c.carryOut})
	stages.Wait()
	return nil
}

func (c *Clustering) drive(ctx context.Context, s stage) {
	t := &turns{
		stage:  s,
		active: map[id.Run]turn{}, over: map[id.Run]id.Client{}, rest: map[id.Run]rest{}, served: map[string]int{},
		done: make(chan projections.OpenRun), memory: c.newMemory(),
	}
	var working sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		go func() { working.Wait(); close(t.done) }()
		for range t.done { // nobody waits to tell
		}
	}()
	tick := time.NewTicker(runPause)
	defer tick.Stop()
	var seldom backoff.Seldom
	for {
		if err := c.look(ctx, t, &working); err != nil && ctx.Err() == nil {
			seldom.Do(func() { c.Logger.WarnContext(ctx, "clustering runs not found, trying again", "error", err) })
		}
		select {
		case <-ctx.Done():
			return
		case run := <-t.done:
			t.end(run, c.Now())
		case <-tick.C:
		}
	}
}

// end notes that a turn is over. Until the run is seen to have ended, it rests:
// its attempt came to no end, or the read model does not know of it yet.
func (t *turns) end(run projections.OpenRun, now time.Time) {
	t.active[run.ID].cancel()
	delete(t.active, run.ID)
	t.over[run.ID] = run.Client
	r := t.rest[run.ID]
	r.until = now.Add(backoff.Doubled(firstRest, fullRest, r.times))
	r.times++
	t.rest[run.ID] = r
}

// look gives free slots to the runs that wait.
func (c *Clustering) look(ctx context.Context, t *turns, working *sync.WaitGroup) error {
	if err := c.leave(ctx, t); err != nil {
		return err
	}
	for len(t.active) < t.slots {
		waiting, err := t.next(ctx, t.busy(c.Now()))
		if err != nil {
			return err
		}
		next, ok := t.choose(waiting, max(1, t.slots/2))
		if !ok {
			return nil
		}
		t.count++
		t.served[next.Client.Owner()] = t.count
		running, cancel := context.WithCancel(ctx)
		t.active[next.ID] = turn{next.Client, cancel}
		delete(t.over, next.ID)
		working.Go(func() {
			if err := panics.Caught(func() error { t.carryOut(running, next, t.memory); return nil }); err != nil {
				c.Logger.ErrorContext(ctx, "turn of a clustering run broken off", "run", next.ID, "client", next.Client, "error", err)
			}
			t.done <- next
		})
	}
	return nil
}

// leave stops runs that have ended, which those do that were cancelled, and
// forgets what was shown of them.
func (c *Clustering) leave(ctx context.Context, t *turns) error {
	known := maps.Clone(t.over)
	for run, a := range t.active {
		known[run] = a.client
	}
	if len(known) == 0 {
		return nil
	}
	ended, err := t.ended(ctx, known)
	if err != nil {
		return err
	}
	for _, run := range ended {
		if a, active := t.active[run]; active {
			a.cancel()
			continue
		}
		if err := c.Runs.HideProgress(ctx, t.over[run], run); err != nil {
			return err
		}
		delete(t.over, run)
		delete(t.rest, run)
		t.memory.forget(run)
	}
	return nil
}

// busy are the runs that are under way, rest or wait for memory.
func (t *turns) busy(now time.Time) []id.Run {
	busy := slices.AppendSeq(t.memory.blocked(now), maps.Keys(t.active))
	for run, r := range t.rest {
		switch {
		case now.Before(r.until):
			busy = append(busy, run)
		case now.Sub(r.until) > longRest: // it may be another leader's
			delete(t.rest, run)
		}
	}
	return busy
}

// choose takes the run of the client that has the fewest under way; among
// those, of the one that has waited for its turn the longest. A client that has
// most already waits, so that there is room for others.
func (t *turns) choose(waiting []projections.OpenRun, most int) (next projections.OpenRun, ok bool) {
	under := map[string]int{}
	for _, a := range t.active {
		under[a.client.Owner()]++
	}
	waiting = slices.DeleteFunc(waiting, func(r projections.OpenRun) bool { return under[r.Client.Owner()] >= most })
	if len(waiting) == 0 {
		return projections.OpenRun{}, false
	}
	return slices.MinFunc(waiting, func(a, b projections.OpenRun) int {
		return cmp.Or(
			cmp.Compare(under[a.Client.Owner()], under[b.Client.Owner()]),
			cmp.Compare(t.served[a.Client.Owner()], t.served[b.Client.Owner()]),
			a.CreatedAt.Compare(b.CreatedAt),
		)
	}), true
}

// call is on behalf of whoever requested a run.
func (c *Clustering) call(ctx context.Context, run projections.OpenRun) commands.Call {
	return commands.Call{Client: run.Client, Actor: policyName, Trace: c.Commands.TraceAt(ctx, run.CreatedPosition)}
}

// carryOut makes one attempt at a run, or goes on with one that waited.
func (c *Clustering) carryOut(ctx context.Context, run projections.OpenRun, memory *memory) {
	log := c.Logger.With("run", run.ID, "client", run.Client)
	call := c.call(ctx, run)
	number, tooLong := memory.waits(run.ID, c.Now())
	var err error
	if number == 0 {
		var givenUp bool
		number, givenUp, err = c.Commands.StartRun(ctx, call, run.Scope(), run.ID)
		if givenUp {
			log.ErrorContext(ctx, "clustering run failed, it was interrupted too often")
			c.Metrics.runs(c.Now())(runFailed, c.Now())
		}
		if err == nil && number == 0 {
			return
		}
	}
	status, ended := runInterrupted, c.Metrics.runs(c.Now())
	defer func() { ended(status, c.Now()) }()
	var code, why string
	if err == nil {
		a := &attempt{Clustering: c, run: run, number: number, by: call, memory: memory}
		if err = errNoTurn; !tooLong {
			err = panics.Caught(func() error { return a.make(ctx) })
		}
		if errors.Is(err, errNoRoom) {
			status = runWaiting
			return
		}
		memory.forget(run.ID)
		code, why = a.excuse(ctx, err)
	}
	if err != nil && code != "" {
		log.InfoContext(ctx, "clustering run failed", "code", code)
		if err = c.Commands.FailRun(ctx, call, run.Scope(), run.ID, number, code, why); err == nil {
			status = runFailed
		}
	} else if err == nil {
		status = runCompleted
	}
	if isTold(ctx, err) {
		log.WarnContext(ctx, "clustering run interrupted, trying again", "attempt", number, "error", err)
	}
}

// excuse says why an attempt has failed for good; code is empty where another
// may succeed.
func (a *attempt) excuse(ctx context.Context, err error) (code, why string) {
	if failure, ok := errors.AsType[*clustering.Failure](err); ok {
		return failure.Code, failure.Detail
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case fault.Is(err, "consent_layer_unknown"):
		return "consent_layer_gone", "The consent layer has been retired."
	case fault.Is(err, "segment_unknown"):
		return "segment_gone", "The segment has been retired."
	case errors.Is(err, errTooLarge):
		return "time_or_memory_limit", fmt.Sprintf("The %d users have too many different traits to be compared in memory. "+
			"Permit fewer trait paths in the consent layer, or ignore those with many values.", len(a.users))
	case errors.Is(err, errTooLong):
		return "time_or_memory_limit", fmt.Sprintf("It took longer than %s.", a.Limit)
	case errors.Is(err, errNoTurn):
		return "time_or_memory_limit", fmt.Sprintf("It waited longer than %s for the memory that other runs took. "+
			"Please request it again later.", a.memory.longest)
	}
	return "", ""
}
