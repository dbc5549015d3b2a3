package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/backoff"
)

// What a process holds is free when its leases end, and sooner where the process is dead.
// Another process takes it for dead once its heartbeats have stood still during deadAfter of
// the other's own. So none is taken for dead while no process reaches the database, and it
// does not matter that clocks jump.
const (
	heartbeatEvery = 400 * time.Millisecond
	deadAfter      = 6 // heartbeats

	// reapTimeout bounds one reaping, during which this process gives no heartbeat.
	reapTimeout = deadAfter / 2 * heartbeatEvery
)

// registry is what one process knows of all workers, which are processes that deliver.
type registry struct {
	queue   *queue
	longest time.Duration // that a delivery or an endpoint waits
	seen    map[int64]heartbeats
	told    time.Time // the time of the database's clock at the last heartbeat
}

// heartbeats is the count of another worker's heartbeats when it was last seen to grow, and
// for how many heartbeats of our own it has not grown since.
type heartbeats struct {
	count int64
	stood int
}

const (
	insertWorker   = `INSERT INTO dispatch_workers DEFAULT VALUES RETURNING id`
	countHeartbeat = `UPDATE dispatch_workers SET heartbeats = heartbeats + 1 WHERE id = $1 RETURNING heartbeats, clock_timestamp()`
	selectWorkers  = `SELECT id, heartbeats FROM dispatch_workers WHERE id <> $1 ORDER BY id LIMIT 1000`

	// A worker that is alive after all finds its row gone, and registers anew.
	deleteWorker = `DELETE FROM dispatch_workers WHERE id = $1 AND heartbeats = $2`

	// What a worker holds stands at the beginning of each index, so that a bounded part of
	// them is read. A delivery that is set free keeps its token: what its worker, alive after
	// all, still notes of it counts until another claims it, under a higher token.
	release = `
WITH first AS (
	SELECT e.client, q.delivery FROM dispatch_endpoints e CROSS JOIN LATERAL (
		SELECT delivery, holder, leased_until FROM dispatch_queue
		WHERE client = e.client AND webhook = e.webhook AND failed = 0 ORDER BY made LIMIT $2) q
	WHERE q.holder = $1 AND q.leased_until > now()
), retry AS (
	SELECT e.client, q.delivery FROM dispatch_endpoints e CROSS JOIN LATERAL (
		SELECT delivery, holder, leased_until FROM dispatch_queue
		WHERE client = e.client AND webhook = e.webhook AND failed > 0 AND due_at <= ` + clockOf + ` ORDER BY due_at LIMIT $2) q
	WHERE q.holder = $1 AND q.leased_until > now()
), held AS (
	SELECT client, delivery FROM dispatch_queue
	WHERE (client, delivery) IN (SELECT client, delivery FROM first UNION ALL SELECT client, delivery FROM retry) AND holder = $1
	FOR UPDATE SKIP LOCKED
)
UPDATE dispatch_queue q SET leased_until = NULL FROM held h WHERE q.client = h.client AND q.delivery = h.delivery`

	// Nothing waits longer than anything does ($1) for what the clock told before it was set
	// back, and no lease is longer than one ($2).
	setBack = `
WITH held AS (
	UPDATE dispatch_endpoints e SET held_until = ` + clockOf + ` + $1::interval WHERE held_until > ` + clockOf + ` + $1::interval
)
UPDATE dispatch_queue e SET due_at = least(due_at, ` + clockOf + ` + $1::interval),
	leased_until = CASE WHEN leased_until > now() + $2::interval THEN now() + $2::interval ELSE leased_until END
WHERE failed > 0 AND due_at > ` + clockOf + ` + $1::interval OR leased_until > now() + $2::interval`

	// maxHeld is how far into an endpoint's work the claims of all processes reach.
	// limit: deliveries | deliveries of an endpoint that all processes hold | {maxHeld}
	maxHeld = 2_000
)

// register makes the queue's claims those of a new worker.
func (r *registry) register(ctx context.Context) error {
	var me int64
	if err := r.queue.control.QueryRow(ctx, insertWorker).Scan(&me); err != nil {
		return fmt.Errorf("register a worker: %w", err)
	}
	r.queue.holder.Store(me)
	return nil
}

// heartbeat counts up this process's heartbeats and reads those of the others. It
// reaps one process that is dead, if any, and returns how many deliveries it has set free.
func (r *registry) heartbeat(ctx context.Context) (freed int64, err error) {
	me := r.queue.holder.Load()
	var told time.Time
	err = r.queue.control.QueryRow(ctx, countHeartbeat, me).Scan(nil, &told)
	if errors.Is(err, pgx.ErrNoRows) { // this process stood still for so long that it was reaped
		return 0, r.register(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("count a heartbeat: %w", err)
	}
	if told.Before(r.told) {
		if _, err := r.queue.control.Exec(ctx, setBack, r.longest, r.queue.lease); err != nil {
			return 0, fmt.Errorf("follow a clock that was set back: %w", err)
		}
	}
	r.told = told
	rows, _ := r.queue.control.Query(ctx, selectWorkers, me) // what it fails with, its rows end with
	type other struct{ ID, Count int64 }
	others, err := pgx.CollectRows(rows, pgx.RowToStructByPos[other])
	if err != nil {
		return 0, fmt.Errorf("read the heartbeats of others: %w", err)
	}
	seen := make(map[int64]heartbeats, len(others))
	for _, o := range others {
		b, known := r.seen[o.ID]
		if known && b.count == o.Count {
			b.stood++
		} else {
			b = heartbeats{count: o.Count}
		}
		seen[o.ID] = b
	}
	r.seen = seen
	for dead, b := range seen {
		if b.stood >= deadAfter {
			return r.reap(ctx, dead, b.count)
		}
	}
	return 0, nil
}

// reap removes a worker that is dead, or stops, and sets free what it holds. Where
// that takes too long, its deliveries are free when their leases end.
func (r *registry) reap(ctx context.Context, dead, count int64) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	tag, err := r.queue.control.Exec(ctx, deleteWorker, dead, count)
	if err != nil {
		return 0, fmt.Errorf("remove a dead worker: %w", err)
	}
	if tag.RowsAffected() == 0 { // another has done so, or it lives
		return 0, nil
	}
	err = pgx.BeginFunc(ctx, r.queue.control, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, planAfresh); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, release, dead, maxHeld)
		if n = tag.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, notifyQueue)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("set free what a dead process holds: %w", err)
	}
	return n, nil
}

// deregister removes this worker, and sets free what could not be noted.
func (r *registry) deregister(ctx context.Context) error {
	var count int64
	me := r.queue.holder.Load()
	err := r.queue.control.QueryRow(ctx, countHeartbeat, me).Scan(&count, nil)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deregister a worker: %w", err)
	}
	_, err = r.reap(ctx, me, count)
	return err
}

// keepAlive gives heartbeats until ctx ends. Failures that last are logged once, until one
// is given again.
func (w *worker) keepAlive(ctx context.Context) {
	r := &registry{queue: w.queue, longest: max(maxRetryAfter, 2*slices.Max(w.config.RetryDelays))}
	for told := false; backoff.Sleep(ctx, heartbeatEvery) == nil; {
		bounded, cancel := context.WithTimeout(ctx, dbTimeout)
		freed, err := r.heartbeat(bounded)
		cancel()
		if err != nil && !told && ctx.Err() == nil {
			w.Logger.WarnContext(ctx, "worker heartbeat failed, trying until one is given", "error", err)
		}
		told = err != nil
		if freed > 0 {
			w.Logger.InfoContext(ctx, "deliveries of a dead process are taken over", "deliveries", freed)
		}
	}
}

// deregister removes this worker when it stops. Where the database does not answer
// within the time after which a worker is dead, the others reap it.
func (w *worker) deregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadAfter*heartbeatEvery)
	defer cancel()
	if err := (&registry{queue: w.queue}).deregister(ctx); err != nil {
		w.Logger.WarnContext(ctx, "worker cannot be deregistered", "error", err)
	}
}
