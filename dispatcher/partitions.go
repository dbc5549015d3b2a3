package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/backoff"
	"kindred/postgres"
)

const maintainEvery = time.Hour

// partitioned are the tables of which each day is a partition.
func partitioned() []string { return []string{"dispatch_deliveries", "dispatch_attempts"} }

const (
	// One process at a time, and never long in the way of those that deliver.
	lockMaintenance = `
SELECT pg_advisory_xact_lock(hashtextextended('kindred dispatcher maintenance', 0)), set_config('lock_timeout', '5s', true), now()`

	// A removed subscription is kept while something in the log may name it.
	deleteRemoved = `
DELETE FROM dispatch_endpoints e
WHERE (e.client, e.webhook) IN (
	SELECT client, webhook FROM dispatch_endpoints WHERE state = 'removed' AND changed_at < $1 ORDER BY changed_at LIMIT 1000)
AND NOT EXISTS (SELECT FROM dispatch_queue q WHERE q.client = e.client AND q.webhook = e.webhook)`

	deleteHealth = `
DELETE FROM dispatch_health h WHERE NOT EXISTS (SELECT FROM dispatch_endpoints e WHERE e.client = h.client AND e.webhook = h.webhook)`
	deleteRecoveries = `DELETE FROM dispatch_recoveries WHERE at < $1`
)

// maintain keeps the delivery log within its retention, now and every hour.
func (d *Dispatcher) maintain(ctx context.Context, retention time.Duration) {
	for {
		err := errors.Join(d.makePartitions(ctx), d.dropExpired(ctx, retention))
		if err != nil && ctx.Err() == nil {
			d.Logger.ErrorContext(ctx, "delivery log cannot be maintained", "error", err)
		}
		if backoff.Sleep(ctx, maintainEvery) != nil {
			return
		}
	}
}

// maintenance runs work in a transaction that excludes other processes' maintenance.
func (d *Dispatcher) maintenance(ctx context.Context, work func(tx pgx.Tx, now time.Time) error) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(ctx, lockMaintenance).Scan(nil, nil, &now); err != nil {
			return fmt.Errorf("take the maintenance lock: %w", err)
		}
		return work(tx, now.UTC())
	})
}

// makePartitions makes what is missing of the days around this one.
func (d *Dispatcher) makePartitions(ctx context.Context) error {
	return d.maintenance(ctx, func(tx pgx.Tx, now time.Time) error {
		for _, table := range partitioned() {
			if err := postgres.MakePartitions(ctx, tx, table, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropExpired drops the partitions, and forgets the removed subscriptions, that
// are past the retention.
func (d *Dispatcher) dropExpired(ctx context.Context, retention time.Duration) error {
	return d.maintenance(ctx, func(tx pgx.Tx, now time.Time) error {
		keepFrom := now.Add(-retention)
		for _, table := range partitioned() {
			if err := postgres.DropPartitions(ctx, tx, table, keepFrom); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, deleteRemoved, keepFrom); err != nil {
			return fmt.Errorf("forget removed endpoints: %w", err)
		}
		if _, err := tx.Exec(ctx, deleteHealth); err != nil {
			return fmt.Errorf("forget the health of removed endpoints: %w", err)
		}
		if _, err := tx.Exec(ctx, deleteRecoveries, keepFrom); err != nil {
			return fmt.Errorf("forget recoveries: %w", err)
		}
		return nil
	})
}

// noPartition says that there is no partition for a row.
func noPartition(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && failed.Code == "23514" // check_violation
}
