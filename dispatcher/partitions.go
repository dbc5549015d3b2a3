package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	partitionDay   = "20060102"
	partitionAhead = 3 // days
	maintainEvery  = time.Hour
)

const (
	// One process at a time, and never long in the way of those that deliver.
	lockMaintenance = `SELECT pg_advisory_xact_lock(hashtextextended('kindred dispatcher maintenance', 0)), set_config('lock_timeout', '5s', true), now()`

	selectPartitions = `
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = $1::regclass`

	// A removed subscription is kept while something in the log may name it.
	deleteRemoved = `
DELETE FROM dispatch_endpoints e
WHERE e.webhook IN (
	SELECT webhook FROM dispatch_endpoints WHERE state = 'removed' AND changed_at < $1 ORDER BY changed_at LIMIT 1000)
AND NOT EXISTS (SELECT FROM dispatch_queue q WHERE q.webhook = e.webhook)`
)

// maintain makes the partitions of the days to come and drops those past their
// retention. It runs before anything is delivered, and then every hour.
func (d *Dispatcher) maintain(ctx context.Context, c Config) error {
	return pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(ctx, lockMaintenance).Scan(nil, nil, &now); err != nil {
			return fmt.Errorf("take the maintenance lock: %w", err)
		}
		now = now.UTC()
		for _, table := range []string{"dispatch_deliveries", "dispatch_attempts"} {
			if err := partition(ctx, tx, table, now, now.Add(-c.Retention)); err != nil {
				return fmt.Errorf("partitions of %s: %w", table, err)
			}
		}
		if _, err := tx.Exec(ctx, deleteRemoved, now.Add(-c.Retention)); err != nil {
			return fmt.Errorf("delete removed endpoints: %w", err)
		}
		return nil
	})
}

// partition keeps a table's partitions: one for each day from yesterday to some
// days ahead, and none whose last instant is before keepFrom.
func partition(ctx context.Context, tx pgx.Tx, table string, now, keepFrom time.Time) error {
	rows, err := tx.Query(ctx, selectPartitions, table)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
		day, err := time.Parse(partitionDay, strings.TrimPrefix(name, table+"_"))
		if err != nil || !day.AddDate(0, 0, 1).Before(keepFrom) {
			continue // not one of ours, or still to be kept
		}
		if _, err := tx.Exec(ctx, "DROP TABLE "+pgx.Identifier{name}.Sanitize()); err != nil {
			return err
		}
	}
	today := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	for ahead := -1; ahead <= partitionAhead; ahead++ {
		day := today.AddDate(0, 0, ahead)
		name := table + "_" + day.Format(partitionDay)
		if there[name] {
			continue
		}
		// Identifiers and bounds of partitions cannot be parameters.
		sql := fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')",
			pgx.Identifier{name}.Sanitize(), pgx.Identifier{table}.Sanitize(),
			day.Format(time.RFC3339), day.AddDate(0, 0, 1).Format(time.RFC3339))
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) maintainHourly(ctx context.Context) {
	for sleep(ctx, maintainEvery) {
		if err := w.maintain(ctx, w.config); err != nil && ctx.Err() == nil {
			w.logger.ErrorContext(ctx, "delivery log cannot be maintained", "error", err)
		}
	}
}
