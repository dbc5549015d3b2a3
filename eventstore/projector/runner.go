package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

const (
	batchTimeout = time.Minute
	// limit: models | timeouts of one event before it is left out | {maxTimeouts}
	maxTimeouts = 15 // that one event may take, which cannot be divided
	pause       = 5 * time.Second
	largeBatch  = 128     // items
	largeBytes  = 1 << 20 // of data
	bulkBatch   = 32      // many come, or somebody appended them together
)

// Runner leads projections. One value serves a whole process; each projection
// that it runs has a lease of its own.
type Runner struct {
	Pool   *pgxpool.Pool
	Log    *eventstore.Log
	Name   string // names this process among those that may lead
	Logger *slog.Logger
	Now    func() time.Time // for the lag in the metrics

	Leases   *pgxpool.Pool // for leases alone, so that no work keeps them waiting; nil: Pool
	Renewals *Renewals     // of all leases of the process; nil: each alone
	Large    chan struct{} // of capacity 1: held while a large batch is applied; nil: any number are
	Progress *Progress     // told after each commit; may be nil
	Metrics  *Metrics      // may be nil
	Lease    time.Duration // 0: 2.5 s
	Pause    time.Duration // before leading again after giving up; 0: 5 s
	// MaxLeftOut is how many events of a client may be left out of a projection
	// before its part stops. 0: 1,000; below: none.
	MaxLeftOut int
	Batch      time.Duration // that a batch may take until it is tried in halves, and one event with more time; 0: 1 min

	unreachable, unapplied, undeleted backoff.Seldom // of all projections: what one meets some 30 do
}

// Run leads a projection whenever no other process does, until ctx ends; then
// it returns nil. It fails with ErrRestored, and a sentence that says what to
// do, when the log does not fit the projection's checkpoint.
func (r *Runner) Run(ctx context.Context, p Projection) error {
	return r.terms(ctx, ID(p), nil, func(ctx context.Context, l lease) error {
		leader, err := r.begin(ctx, p, l)
		if err != nil {
			model, _ := p.(ReadModel)
			return r.remedy(ctx, ID(p), model, err)
		}
		return (&follower{leader: leader, prompt: OptionsOf(p).Prompt}).follow(ctx)
	})
}

// terms waits for a lease and works under it, term after term, until ctx
// ends or the log does not fit. Standby, which may be nil, is called now and then
// while another process has the lease.
func (r *Runner) terms(ctx context.Context, name string, standby func(), work func(context.Context, lease) error) error {
	r.Metrics.leads(name, false) // so that a sum over processes tells that nobody leads, of what this one never led as well
	var failed backoff.Backoff
	unreachable := backoff.Backoff{Most: standbyPoll}
	for ctx.Err() == nil {
		l, got, err := r.acquire(ctx, name)
		switch {
		case err != nil && ctx.Err() != nil: // it is to stop
		case err != nil:
			r.unreachable.Do(func() { r.Logger.WarnContext(ctx, "lease not reachable", "projection", name, "error", reason(err)) })
			_ = unreachable.Wait(ctx) // the loop looks at ctx, here and below
		case !got:
			if standby != nil {
				standby()
			}
			_ = backoff.Sleep(ctx, min(standbyPoll, r.leaseTime()/3))
		default:
			if err := r.term(ctx, l, &failed, work); errors.Is(err, ErrRestored) {
				return err
			}
		}
	}
	return nil
}

// term works under a lease until it is lost or given up, and rests after. It
// fails with ErrRestored, or because ctx has ended.
func (r *Runner) term(ctx context.Context, l lease, failed *backoff.Backoff, work func(context.Context, lease) error) error {
	log := r.Logger.With("projection", l.name, "lease_epoch", l.epoch)
	log.InfoContext(ctx, "leading")
	r.Metrics.leads(l.name, true)
	began := r.Now()
	err := r.hold(ctx, l, func(ctx context.Context) error { return work(ctx, l) })
	r.Metrics.leads(l.name, false)
	if r.Now().Sub(began) > backoff.DefaultMost {
		failed.Reset() // it did work
	}
	switch {
	case ctx.Err() != nil:
		log.DebugContext(ctx, "lease given back")
		return ctx.Err()
	case errors.Is(err, ErrRestored):
		return err
	case errors.Is(err, errStopped), errors.Is(err, event.ErrUnknown):
		log.ErrorContext(ctx, "leadership given up", "error", reason(err))
		return backoff.Sleep(ctx, cmp.Or(r.Pause, pause))
	case errors.Is(err, ErrLost): // whoever rebuilds takes it, for clients as often as they ask; that a database is away is told of apart
		log.InfoContext(ctx, "leadership lost")
		failed.Reset() // whoever took it may be done with it
	default:
		log.ErrorContext(ctx, "leading failed", "error", reason(err))
	}
	return failed.Wait(ctx)
}

// Lead does work under a lease of its own whenever no other process does,
// until ctx ends; then it returns nil. The context of the work ends with the
// lease; work that returns before rests and is begun again.
func (r *Runner) Lead(ctx context.Context, name string, work func(context.Context) error) error {
	return r.terms(ctx, name, nil, func(ctx context.Context, _ lease) error { return work(ctx) })
}

// follower is the leader of a live projection, which follows the log (Run).
type follower struct {
	*leader
	prompt  bool
	asked   bool // somebody waited for the last batch that was passed over
	newest  bool // nothing is known to be behind the batch
	applied bool // the last batch held more than was passed over
}

// follow applies what the log has and gets, until ctx ends.
func (f *follower) follow(ctx context.Context) (err error) {
	f.role = f
	sub, err := f.Log.Store.Subscribe(ctx, f.at.position)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	applyRead, applied := f.apply, func([]eventstore.Record) {}
	var meanwhile []func(context.Context)
	if _, ok := f.projection.(PerClient); ok {
		slow, err := f.findSlow(ctx)
		if err != nil {
			return err
		}
		applyRead, f.spending, meanwhile = slow.apply, slow.spending, append(meanwhile, slow.run)
	}
	if forgets(f.projection) {
		deletions := &deletions{leader: f.leader, more: make(chan struct{}, 1)}
		applied, f.forget, meanwhile = deletions.applied, deletions.note, append(meanwhile, deletions.run)
	}
	f.tellRefused() // another process may have changed that
	var working sync.WaitGroup
	following, stop := context.WithCancel(ctx)
	defer working.Wait()
	defer stop()
	for _, run := range meanwhile {
		working.Go(func() { run(following) })
	}
	for {
		batch, err := f.lease.next(ctx, sub)
		if err != nil {
			return err
		}
		f.applied, f.newest = false, batch.Newest
		if len(batch.Records) > 0 {
			f.Metrics.behind(f.projectionID, batch.Records, f.Now())
			if err := applyRead(ctx, batch.Records); err != nil {
				return err
			}
			if err := f.analyzeGrown(ctx); err != nil {
				return err
			}
			applied(batch.Records)
		}
		if batch.CaughtUp {
			f.Metrics.caughtUp(f.projectionID)
		}
		if !batch.Newest {
			continue
		}
		if _, err := f.Progress.waitForBatch(ctx, f.projectionID, f.patience(len(batch.Records))); err != nil {
			return fmt.Errorf("follow the log: %w", err)
		}
	}
}

// patience is how long what follows a batch of n may be gathered.
func (f *follower) patience(n int) time.Duration {
	switch {
	case f.prompt && (f.applied || n < bulkBatch):
		return promptTime
	case f.applied && n >= bulkBatch:
		return bulkWait
	case f.applied || f.prompt: // behind an import, that is
		return batchWait
	}
	return 0 // it was gathered before it was passed over
}

// take notes whether items are more than what is passed over, and waits where they are not.
func (f *follower) take(ctx context.Context, items []item) error {
	if f.applied = slices.ContainsFunc(items, func(i item) bool { return !i.passed }); !f.applied {
		if err := f.letPass(ctx); err != nil {
			return err
		}
	}
	return f.leader.take(ctx, items)
}

// letPass waits before a batch is passed over: projections that it concerns go first,
// and the others not all at once. Who asks may mean what was appended since the
// batch was read, so the next one is not waited for.
func (f *follower) letPass(ctx context.Context) (err error) {
	if f.prompt || !f.newest || f.asked {
		f.asked = false
		return nil
	}
	f.asked, err = f.Progress.waitForBatch(ctx, f.projectionID, passTime/2+rand.N(passTime/2)) //nolint:gosec,forbidigo // G404: it spreads load, and keeps no secret
	return err
}

// leader applies under the lease of a checkpoint, that of a projection (CatchUp) or of a shadow.
type leader struct {
	applier
	unkeyed  LateKey // while it is yet to be made; else zero
	analyzed int64   // events that were applied when the tables last were
}

// begin claims the checkpoint of a projection, makes the tables of a read model that
// has none, and makes sure that the log fits.
func (r *Runner) begin(ctx context.Context, p Projection, l lease) (*leader, error) {
	epoch, err := r.Log.Store.Epoch(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the log's epoch: %w", err)
	}
	led := &leader{applier: newApplier(r, p, l.name, l)}
	led.role = led
	err = pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if led.at, err = claim(ctx, tx, l, epoch); err != nil {
			return err
		}
		if m, ok := p.(ReadModel); ok {
			if err := led.makeTables(ctx, tx, m); err != nil {
				return err
			}
			if err := led.findKey(ctx, tx, m); err != nil {
				return err
			}
			if err := led.findDeleted(ctx, tx); err != nil {
				return err
			}
		}
		if err := led.findQuarantined(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, countLeftOut, l.name).Scan(&led.leftOut)
	})
	if err != nil {
		return nil, fmt.Errorf("claim the checkpoint: %w", err)
	}
	if err := verify(ctx, r.Log.Store, led.at, epoch); err != nil {
		return nil, err
	}
	l.reach(led.at.position)
	if l.name == ID(p) {
		led.analyzed = led.at.events // by the leader before
	}
	return led, nil
}

// apply applies records in a transaction, as often as the database's trouble
// makes it necessary. It fails when this process must not or cannot go on.
func (l *leader) apply(ctx context.Context, records []eventstore.Record) error {
	items, unknown := l.decode(records)
	if err := l.applyKeyed(ctx, items); err != nil {
		return err
	}
	return unknown
}

// applyKeyed applies items with the key that they need.
func (l *leader) applyKeyed(ctx context.Context, items []item) error {
	if err := l.makeKeyFor(ctx, items); err != nil {
		return err
	}
	return l.applyItems(ctx, items)
}

// page applies items while others use the database, too, and sees to the tables, which grow.
func (l *leader) page(ctx context.Context, items []item) error {
	if err := l.throttle.step(ctx, func() error { return l.applyKeyed(ctx, items) }); err != nil {
		return err
	}
	return l.analyzeGrown(ctx)
}

// take applies items, or passes them where none concerns the projection, or all that do are of clients
// that have stopped or are applied in slices.
func (l *leader) take(ctx context.Context, items []item) error {
	if slices.ContainsFunc(items, func(i item) bool { return !i.passed && (!l.skip[i.Client] || i.Type == clientDeleted) }) {
		return l.transact(ctx, items, l.together)
	}
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	next := l.at.after(len(items), items[len(items)-1].Record)
	if err := pass(ctx, l.Pool, l.lease, l.at, next); err != nil {
		return Transient(err)
	}
	l.reach(next, len(items))
	return nil
}

// moveWith advances the checkpoint past what was applied.
func (l *leader) moveWith(ctx context.Context, tx pgx.Tx, to checkpoint, apply func() error) error {
	if err := apply(); err != nil {
		return err
	}
	return Transient(advance(ctx, tx, l.lease, l.at, to))
}

// applier applies events to the tables of a projection, in transactions that also move where it stands in the
// log: it is a leader's, or of the part of a paused client. That of Fold and that of a resumption move nothing.
type applier struct {
	*Runner
	projection   Projection
	projectionID string
	only         id.Client // whose events are applied; empty: all
	role         role      // nil: it moves nothing
	lease        lease
	start        string // begins a transaction that sees the projection's tables
	at           checkpoint
	skip         map[id.Client]bool                             // quarantined
	slow         int                                            // of those, clients whose events are applied in slices
	leftOut      int                                            // events, of all clients
	spending     func(id.Client) Spend                          // counts what a PerClient does
	forget       func(context.Context, pgx.Tx, id.Client) error // deletes a deleted client's rows, or notes that
	over         over                                           // clients that were deleted, of whom nothing more is applied
	timeouts     int                                            // that the next transaction may take; 0: 1
	throttle     *throttle                                      // in bulk
}

// role is what a leader and the part of a paused client do otherwise.
type role interface {
	take(ctx context.Context, items []item) error // applies items, or passes them over
	// moveWith moves to where it stands after what apply applies, in the same transaction.
	moveWith(ctx context.Context, tx pgx.Tx, to checkpoint, apply func() error) error
	page(ctx context.Context, items []item) error // applies items in bulk
}

// A lost commit takes its checkpoint with it and is done again from the log,
// which is durable, so none waits for the disk. A leader that stands still
// within a transaction does not keep its locks from the next one.
const startTransaction = `BEGIN; SET LOCAL synchronous_commit TO off; SET LOCAL idle_in_transaction_session_timeout TO '3s'`

// newApplier makes an applier that has no role yet.
func newApplier(r *Runner, p Projection, projectionID string, l lease) applier {
	start := startTransaction
	if _, ok := p.(ReadModel); ok {
		start += `; SET LOCAL search_path TO ` + quote(projectionID) + `, public`
	}
	return applier{
		Runner: r, projection: p, projectionID: projectionID, lease: l, start: start,
		skip: map[id.Client]bool{}, spending: unbounded, forget: forgetAll, over: over{}, throttle: newThrottle(r.Pool),
	}
}

func (a *applier) applyItems(ctx context.Context, items []item) error {
	var retry backoff.Backoff
	for most := len(items); len(items) > 0; {
		n := min(most, len(items))
		err := a.role.take(ctx, items[:n])
		if isPoison(err) {
			err = a.transact(ctx, items[:n], a.singly)
		}
		if err == nil {
			items, a.timeouts = items[n:], 0
			retry.Reset()
			continue
		}
		if ctx.Err() != nil || errors.Is(err, ErrLost) {
			return err
		}
		if slow, ok := errors.AsType[slowError](err); ok {
			if slow.among == nil {
				return err
			}
			if err := slow.among.pause(ctx, slow.client); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) { // its own: there may be too much to do for the time
			if most = n / 2; n == 1 {
				most, a.timeouts = 1, min(2*max(a.timeouts, 1), maxTimeouts)
			}
		}
		a.unapplied.Do(func() {
			a.Logger.WarnContext(ctx, "batch not applied, trying again", "projection", a.projectionID,
				"position", items[0].Position, "events", n, "error", reason(err))
		})
		if err := retry.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// item is an event, or why it cannot be read.
type item struct {
	eventstore.Recorded
	err    error
	passed bool // over: it does not concern the projection
}

// decode reads records up to the first that only a newer release knows.
func (a *applier) decode(records []eventstore.Record) (items []item, unknown error) {
	items = make([]item, 0, len(records))
	selective, _ := a.projection.(Selective)
	verbatim := OptionsOf(a.projection).Verbatim
	forgetting := forgets(a.projection)
	for _, record := range records {
		wanted := selective == nil || selective.Wants(record.Type) || forgetting && record.Type == clientDeleted
		it := item{passed: a.only != "" && record.Client != a.only || !wanted}
		if !it.passed && !verbatim {
			it.Recorded, it.err = a.Log.Decode(record)
		}
		if errors.Is(it.err, event.ErrUnknown) {
			return items, fmt.Errorf("at position %s: %w", record.Position, it.err)
		}
		it.Record = record
		items = append(items, it)
	}
	return items, nil
}

// transact applies items, moves past them and commits both.
func (a *applier) transact(ctx context.Context, items []item, apply func(context.Context, pgx.Tx, []item) ([]refused, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(a.timeouts, 1))*cmp.Or(a.Batch, batchTimeout))
	defer cancel()
	if a.Large != nil && large(items) {
		select {
		case a.Large <- struct{}{}:
			defer func() { <-a.Large }()
		case <-a.Progress.asks(a.projectionID): // whoever waits for it is not to wait for the others
		case <-ctx.Done():
			return Transient(fmt.Errorf("wait for a turn: %w", ctx.Err()))
		}
	}
	tx, err := a.Pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: a.start})
	if err != nil {
		return Transient(fmt.Errorf("begin: %w", err))
	}
	defer rollback(ctx, tx)
	next := a.at.after(len(items), items[len(items)-1].Record)
	var all []refused
	err = a.role.moveWith(ctx, tx, next, func() (err error) {
		if all, err = apply(ctx, tx, items); err != nil && tx.Conn().IsClosed() {
			err = Transient(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return Transient(fmt.Errorf("commit: %w", err))
	}
	a.reach(next, len(items))
	a.report(ctx, all)
	return nil
}

// large says whether items are so much that others wait for the processors meanwhile.
func large(items []item) bool {
	size := 0
	for _, i := range items {
		if !i.passed {
			size += len(i.Data)
		}
	}
	return len(items) >= largeBatch || size >= largeBytes
}

// reach notes that n items are done.
func (a *applier) reach(next checkpoint, n int) {
	a.at = next
	a.lease.reach(next.position)
	a.Progress.advance(a.projectionID, next.position)
	a.Metrics.applied(a.projectionID, n)
}

// rollback ends a transaction that may have ended already.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // it fails after a commit, and with a lost connection, which rolls back as well
}
