package projector

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres"
)

const (
	channel     = "kindred_checkpoint"
	announceGap = 10 * time.Millisecond  // announcements of a burst go together
	batchWait   = 20 * time.Millisecond  // between two batches of a projection that has caught up
	bulkWait    = 100 * time.Millisecond // of one whose batches hold bulkBatch events and more
	promptTime  = 2 * time.Millisecond   // of one that is prompt
	passTime    = 60 * time.Millisecond  // at most, before a batch that does not concern a projection is passed over
	firstPoll   = 20 * time.Millisecond
	lastPoll    = 160 * time.Millisecond // so that many that wait do not make it worse
	waitsGap    = 100 * time.Millisecond // between two announcements that reads wait for one projection
	waits       = "?"                    // before the name of a projection, an announcement of that
	// limit: requests | wait of a read for what was written | {maxWait} | 503 `stale`
	maxWait = 2 * time.Second
	// limit: imports | time after a read has waited, in which imports and many matches keep to what can be read | {waitedLately} | a model may be 40 of them behind
	waitedLately = 10 * time.Second
)

// Progress is what a process knows of how far the followers have come: those
// it leads by itself at once, the others through the database.
type Progress struct {
	Pool   *pgxpool.Pool
	Logger *slog.Logger
	// Listener hears of the others; nil: a connection of its own does.
	Listener *postgres.Listener

	server atomic.Int64
	heard  atomic.Int64 // the server that is listened to; 0: none

	mu          sync.Mutex
	projections map[string]*reached
	pending     map[string]eventstore.Position // to be announced
	wanted      map[string]bool                // projections that reads wait for, to be announced
	dirty       chan struct{}
}

// reached is how far a projection is known to be. Changed is closed with each change.
type reached struct {
	position eventstore.Position
	changed  chan struct{}
	asked    chan struct{} // of capacity 1: somebody waits for the projection
	waited   time.Time     // when a read last did, in any process; zero: never
	moved    time.Time     // when it came to its position; zero: never
	told     time.Time     // when the others were last told of reads that wait
}

// NewProgress makes a Progress that knows nothing. Run keeps it informed.
func NewProgress(pool *pgxpool.Pool, logger *slog.Logger) *Progress {
	return &Progress{
		Pool: pool, Logger: logger, projections: map[string]*reached{},
		pending: map[string]eventstore.Position{}, wanted: map[string]bool{}, dirty: make(chan struct{}, 1),
	}
}

// Run announces the progress of this process to the others, and listens to
// theirs, until ctx ends. Readers fall back to
// polling while the database cannot be reached.
func (p *Progress) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { p.announce(ctx) })
	both.Go(func() { p.listen(ctx) })
	both.Wait()
}

// Wait waits, at most 2 s, until a projection has passed a position for a
// client, or, without one, for every client; then it fails with a fault of
// kind Unavailable.
// Faults: stale.
func (p *Progress) Wait(ctx context.Context, of Projection, client id.Client, position eventstore.Position) error {
	return fault.Await(anew(ctx, ID(of)), func(ctx context.Context) error { return p.Passed(ctx, of, client, position) })
}

// Passed is Wait, which fails at once where the projection has not passed the position
// yet, with a fault that says how to wait (fault.Fault.Soon).
// Faults: stale.
func (p *Progress) Passed(ctx context.Context, of Projection, client id.Client, position eventstore.Position) error {
	return p.await(ctx, ID(of), func(wanted *eventstore.Position) (content bool, err error) {
		if *wanted == "" {
			*wanted = position
		}
		return p.passed(ctx, ID(of), client, *wanted)
	}, stale)
}

// passed says whether a projection has passed a position for a client, as Wait has it.
func (p *Progress) passed(ctx context.Context, projectionID string, client id.Client, position eventstore.Position) (bool, error) {
	var at eventstore.Position
	err := p.Pool.QueryRow(ctx, placeFor, projectionID, client).Scan(&at)
	return at >= position, err
}

const placeFor = `
SELECT coalesce((SELECT least(position,
		(SELECT min(position) FROM quarantine WHERE projection = $1 AND paused AND ($2 = '' OR client = $2)))
	FROM checkpoints WHERE name = $1), '')`

// await looks at the database once. It fails with late, a fault that says how to
// wait, where the look is not content; asked again with the context of that wait,
// it looks for what was wanted at first.
func (p *Progress) await(ctx context.Context, projectionID string,
	look func(wanted *eventstore.Position) (content bool, err error), late func() *fault.Fault,
) error {
	w, _ := ctx.Value(projectionKey(projectionID)).(*waiting)
	if w == nil {
		w = &waiting{progress: p, projectionID: projectionID, every: firstPoll, left: maxWait}
	}
	_, w.changed = p.look(projectionID) // before the statement, so that no change is missed
	content, err := look(&w.wanted)
	if err != nil || content {
		return err
	}
	p.wait(projectionID)
	f := late()
	w.late, f.Soon = *f, w.wait
	return f
}

// wait notes that a read waits for a projection, and tells the other processes: one of them may
// lead it, or append what the read is behind.
func (p *Progress) wait(projectionID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.projection(projectionID)
	r.wait()
	if r.waited.Sub(r.told) >= waitsGap {
		r.told, p.wanted[projectionID] = r.waited, true
		signal(p.dirty)
	}
}

// wait notes that a read waits, in this process or another.
func (r *reached) wait() {
	r.waited = time.Now() //nolint:forbidigo // measured on the process's monotonic clock
	signal(r.asked)
}

// stale is what a reader hears that does not wait any longer.
func stale() *fault.Fault {
	return fault.New(fault.Unavailable, "stale", "What was just written cannot be read yet; try again.").After(time.Second)
}

// projectionKey is where a context holds how long its request has waited for a projection, and
// for what: what is acknowledged meanwhile is not waited for.
type projectionKey string

// anew forgets what the request of ctx has waited for.
func anew(ctx context.Context, projectionID string) context.Context {
	if ctx.Value(projectionKey(projectionID)) == nil {
		return ctx
	}
	return context.WithValue(ctx, projectionKey(projectionID), nil)
}

// waiting is a reader's wait for a projection. It counts what it has waited poll by
// poll: a process that stood still has given nobody the time to come by.
type waiting struct {
	progress     *Progress
	projectionID string
	wanted       eventstore.Position
	changed      <-chan struct{}
	late         fault.Fault // when it has waited for too long
	every, left  time.Duration
	poll         *time.Timer // nil until it waits
}

// wait waits until another look is worth it.
func (w *waiting) wait(ctx context.Context) (context.Context, error) {
	if w.poll == nil {
		w.poll = time.NewTimer(w.every)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx, ctx.Err()
		case <-w.poll.C:
			if w.left -= w.every; w.left <= 0 {
				return ctx, &w.late
			}
			w.every = min(2*w.every, lastPoll, w.left)
			w.poll.Reset(w.every)
			return context.WithValue(ctx, projectionKey(w.projectionID), w), nil
		case <-w.changed:
			var at eventstore.Position
			if at, w.changed = w.progress.look(w.projectionID); at >= w.wanted {
				return context.WithValue(ctx, projectionKey(w.projectionID), w), nil
			}
		}
	}
}

// Server numbers the run of the Postgres server that this process last met (see
// postgres.Run), 0 before the first. Where it differs from what it was, what was
// read before may not be there: another server may have taken the place of one
// that was lost, without its last commits.
func (p *Progress) Server() int64 {
	if p == nil {
		return 0
	}
	return p.server.Load()
}

// meet notes which server answers.
func (p *Progress) meet(server int64) {
	if p != nil {
		p.server.Store(server)
	}
}

// meets returns the server that is listened to; heard is false while none is.
func (p *Progress) meets() (server int64, heard bool) {
	if p == nil {
		return 0, false
	}
	server = p.heard.Load()
	return server, server != 0
}

// Reached returns how far a projection is known to have come, "" where nothing is
// known, and a channel that is closed once it has come further.
func (p *Progress) Reached(of Projection) (eventstore.Position, <-chan struct{}) {
	return p.look(ID(of))
}

func (p *Progress) look(projectionID string) (eventstore.Position, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.projection(projectionID)
	return r.position, r.changed
}

// Ask tells the leaders of this process that somebody is about to read.
func (p *Progress) Ask(of ...Projection) {
	if p == nil {
		return
	}
	for _, projection := range of {
		p.ask(ID(projection))
	}
}

// ask keeps a leader of this process from waiting for a fuller batch while a reader waits.
func (p *Progress) ask(projectionID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	signal(p.projection(projectionID).asked)
}

// waitForBatch waits a moment at most, so that what is appended meanwhile goes into one batch
// of a projection. It says whether it ended sooner, because somebody waits.
func (p *Progress) waitForBatch(ctx context.Context, projectionID string, most time.Duration) (asked bool, err error) {
	if p == nil || most == 0 {
		return false, nil
	}
	moment := time.NewTimer(most)
	defer moment.Stop()
	select {
	case <-moment.C:
		return false, nil
	case <-p.asks(projectionID):
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// asks tells once that somebody waits for a projection.
func (p *Progress) asks(projectionID string) <-chan struct{} {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.projection(projectionID).asked
}

func (p *Progress) projection(name string) *reached {
	r, found := p.projections[name]
	if !found {
		r = &reached{changed: make(chan struct{}), asked: make(chan struct{}, 1)}
		p.projections[name] = r
	}
	return r
}

// advance notes what a leader of this process has committed.
func (p *Progress) advance(projectionID string, at eventstore.Position) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(projectionID, at)
	p.pending[projectionID] = at
	signal(p.dirty)
}

// signal has whoever listens to a channel of capacity 1 look, unless it has yet to do so anyway.
func signal(listens chan<- struct{}) {
	select {
	case listens <- struct{}{}:
	default:
	}
}

func (p *Progress) note(projectionID string, at eventstore.Position) {
	r := p.projection(projectionID)
	if at <= r.position {
		return
	}
	r.position, r.moved = at, time.Now() //nolint:forbidigo // measured on the process's monotonic clock
	close(r.changed)
	r.changed = make(chan struct{})
}

// Announcing stays out of the transactions that advance checkpoints: those
// that notify commit one after the other.
const notify = `SELECT pg_notify('` + channel + `', said) FROM unnest($1::text[]) AS said`

func (p *Progress) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.dirty:
		}
		p.mu.Lock()
		said := make([]string, 0, len(p.pending)+len(p.wanted))
		for projectionID, at := range p.pending {
			said = append(said, projectionID+" "+string(at))
		}
		for projectionID := range p.wanted {
			said = append(said, waits+projectionID)
		}
		clear(p.pending)
		clear(p.wanted)
		p.mu.Unlock()
		if _, err := p.Pool.Exec(ctx, notify, said); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "progress not announced", "error", err) // the others poll
		}
		if backoff.Sleep(ctx, announceGap) != nil {
			return
		}
	}
}

// listen hears how far the followers of other processes have come.
func (p *Progress) listen(ctx context.Context) {
	p.Listener.Shared(p.Pool, p.Logger).Follow(ctx, postgres.Follow{
		Channel: channel,
		Begin: func(server int64) {
			p.meet(server)
			p.heard.Store(server)
		},
		Lost: func() { p.heard.Store(0) },
		Heard: func(said string) {
			if projectionID, found := strings.CutPrefix(said, waits); found {
				p.mu.Lock()
				p.projection(projectionID).wait()
				p.mu.Unlock()
			} else if projectionID, at, found := strings.Cut(said, " "); found {
				p.mu.Lock()
				p.note(projectionID, eventstore.Position(at))
				p.mu.Unlock()
			}
		},
	})
	p.heard.Store(0)
}
