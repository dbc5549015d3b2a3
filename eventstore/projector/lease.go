package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore"
	"kindred/postgres"
)

const (
	leaseTime    = 2500 * time.Millisecond // how long a dead leader blocks the others
	standbyPoll  = 300 * time.Millisecond
	leaseTimeout = 2 * time.Second // of one statement
)

// ErrLost: the lease ended before what was done under it, and somebody else may have it now.
var ErrLost = errors.New("the lease was lost")

// lease is the right to lead, until somebody else has a higher epoch, or the
// server has ended: what was read before may be missing in its successor.
type lease struct {
	name    string // the projection id, of a leader
	epoch   int64
	server  int64                                // the run of the server on which it was taken, and holds
	reached *atomic.Pointer[eventstore.Position] // where the leader's checkpoint stands, as far as it knows; nil: anywhere
}

// reach notes where the leader's checkpoint stands.
func (l lease) reach(at eventstore.Position) {
	if l.reached != nil {
		l.reached.Store(&at)
	}
}

// The epoch also grows beyond what a checkpoint has seen, should the row of
// the lease itself have been lost. $4 takes the lease from whoever has it.
const acquireLease = `
INSERT INTO leases (name, holder, epoch, expires_at)
VALUES ($1, $2, 1 + (SELECT coalesce(max(lease_epoch), 0) FROM checkpoints WHERE name = $1),
	clock_timestamp() + $3::interval)
ON CONFLICT (name) DO UPDATE SET
	holder = excluded.holder, epoch = greatest(leases.epoch + 1, excluded.epoch), expires_at = excluded.expires_at
WHERE $4 OR NOT ` + leaseInForce + `
RETURNING epoch, ` + postgres.Run

// leaseInForce is false of a lease that ends later than any lasts: it was written before the
// server's clock was set back, and whoever holds it renews it or is dead.
const leaseInForce = `(leases.expires_at > clock_timestamp() AND leases.expires_at < clock_timestamp() + interval '1 minute')`

const leaseTaken = `SELECT EXISTS (SELECT FROM leases WHERE name = $1 AND ` + leaseInForce + `)`

// leases is the pool that only leases use, where there is one.
func (r *Runner) leases() *pgxpool.Pool { return cmp.Or(r.Leases, r.Pool) }

// acquire tries to take a lease that is free.
func (r *Runner) acquire(ctx context.Context, name string) (lease, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	var taken bool
	if err := r.leases().QueryRow(ctx, leaseTaken, name).Scan(&taken); err != nil || taken {
		return lease{}, false, err
	}
	return r.seize(ctx, name, false)
}

// seize takes a lease; by force also from somebody else, whom the new epoch
// then keeps from writing.
func (r *Runner) seize(ctx context.Context, name string, force bool) (lease, bool, error) {
	l := lease{name: name, reached: new(atomic.Pointer[eventstore.Position])}
	err := r.leases().QueryRow(ctx, acquireLease, name, r.Name, r.leaseTime(), force).Scan(&l.epoch, &l.server)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease{}, false, nil
	}
	if err == nil {
		r.Progress.meet(l.server)
	}
	return l, err == nil, err
}

// next is what a subscription tells, while the log is on the lease's server and
// holds what was told before. Else the leader has to begin again from where the
// checkpoint is.
func (l lease) next(ctx context.Context, sub eventstore.Subscription) (eventstore.Batch, error) {
	batch, err := sub.Next(ctx, MaxBatch)
	switch {
	case errors.Is(err, eventstore.ErrNotFound), err == nil && batch.Server != 0 && batch.Server != l.server:
		return batch, ErrLost
	case err != nil:
		return batch, fmt.Errorf("follow the log: %w", err)
	}
	return batch, nil
}

const endLeases = `UPDATE leases SET expires_at = clock_timestamp() WHERE expires_at > clock_timestamp()`

// EndLeases ends the leases of all processes. It is for a process that knows
// that it is alone, since the others are dead.
func (r *Runner) EndLeases(ctx context.Context) error {
	if _, err := r.leases().Exec(ctx, endLeases); err != nil {
		return fmt.Errorf("end the leases of dead processes: %w", err)
	}
	return nil
}

// A renewal does not wait for the disk: where a crash takes it, the lease ends
// sooner, and its epoch keeps the leader from writing all the same. A server that
// lost commits may have given the same epoch to another holder.
const renewLease = `
UPDATE leases SET expires_at = clock_timestamp() + $3::interval WHERE name = $1 AND epoch = $2 AND holder = $4
	AND ` + postgres.Run + ` = $5` + inMemory + `
RETURNING coalesce((SELECT position FROM checkpoints WHERE name = $1), '')`

const releaseLease = `UPDATE leases SET expires_at = clock_timestamp() WHERE name = $1 AND epoch = $2 AND holder = $3`

const stillLeads = `SELECT FROM leases WHERE name = $1 AND epoch = $2 AND holder = $3 FOR SHARE`

// fence, last in a transaction, keeps a leader that is late from what no checkpoint keeps it from:
// nobody takes the lease between it and the commit.
func (r *Runner) fence(ctx context.Context, tx pgx.Tx, l lease) error {
	return exactlyOne(ctx, tx, stillLeads, l.name, l.epoch, r.Name)
}

// alone runs work under a lease that is free; where another process has it, it
// fails with busy.
func (r *Runner) alone(ctx context.Context, name string, busy error, work func(context.Context, lease) error) error {
	l, got, err := r.acquire(ctx, name)
	switch {
	case err != nil:
		return err
	case !got:
		return busy
	}
	return r.hold(ctx, l, func(ctx context.Context) error { return work(ctx, l) })
}

// hold runs work while it keeps the lease, and gives it back after. Work's
// context ends with the lease; then hold fails with ErrLost.
func (r *Runner) hold(ctx context.Context, l lease, work func(context.Context) error) error {
	leased, lose := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { r.renew(leased, l, lose) })
	err := work(leased)
	if cause := context.Cause(leased); errors.Is(cause, ErrLost) {
		err = cause
	}
	lose(nil)
	renewing.Wait()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
	defer cancel()
	if _, releaseErr := r.leases().Exec(ctx, releaseLease, l.name, l.epoch, r.Name); releaseErr != nil && err == nil {
		return fmt.Errorf("give back the lease of %s: %w", l.name, releaseErr)
	}
	return err
}

// renew prolongs a lease until ctx ends, or the lease does. A server that
// crashed may have forgotten the leader's last commits, which did not wait for
// the disk; then the leader has to begin again from where the checkpoint is.
func (r *Runner) renew(ctx context.Context, l lease, lose context.CancelCauseFunc) {
	tick := time.NewTimer(untilRenewal(r.leaseTime()))
	defer tick.Stop()
	end := time.AfterFunc(r.leaseTime(), func() { lose(ErrLost) })
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(untilRenewal(r.leaseTime()))
		}
		reached := l.reached.Load()
		asked := time.Now() //nolint:forbidigo // a lease is measured on the process's monotonic clock
		stands, err := r.prolong(ctx, l)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && reached != nil && stands < *reached:
			lose(ErrLost)
			return
		case err == nil:
			end.Reset(r.leaseTime() - time.Since(asked))
		default: // the next tick tries again; the timer ends it
		}
	}
}

// prolong renews a lease and returns where its leader's checkpoint stands. It fails with
// pgx.ErrNoRows where the lease is lost.
func (r *Runner) prolong(ctx context.Context, l lease) (stands eventstore.Position, err error) {
	if r.Renewals != nil {
		found, err := r.Renewals.rounds.Ask(ctx, renewal{l, r.Name, r.leaseTime()})
		if err != nil || found.renewed {
			return found.stands, err
		}
	}
	err = r.leases().QueryRow(ctx, renewLease, l.name, l.epoch, r.leaseTime(), r.Name, l.server).Scan(&stands)
	return stands, err
}

func (r *Runner) leaseTime() time.Duration { return cmp.Or(r.Lease, leaseTime) }
