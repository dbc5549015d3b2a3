package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Endings hands out how deliveries ended, for the log.
type Endings struct{ Pool *pgxpool.Pool }

const (
	// limit: deliveries | endings of one event | {maxEndings}
	maxEndings = 1_000 // of one batch, which becomes one event
	// limit: deliveries | endings of one statement | {maxBatched}
	maxBatched = 10_000
	// limit: deliveries | batches of endings that one call hands out | {maxBatches}
	maxBatches = 50 // of one call

	endingsTimeout = 20 * time.Second
)

const (
	// One process at a time records, so that batches of a stream keep their order.
	lockEndings = `SELECT pg_try_advisory_xact_lock(hashtextextended('kindred delivery endings', 0))`

	batchEndings = `
WITH taken AS (
	DELETE FROM dispatch_endings e USING (SELECT client, id FROM dispatch_endings ORDER BY id LIMIT $1) first
	WHERE e.client = first.client AND e.id = first.id
	RETURNING e.id, e.client, webhook, (ended_at AT TIME ZONE 'UTC')::date AS day, delivery, event, state, attempts
), numbered AS (
	SELECT *, (row_number() OVER (PARTITION BY client, webhook, day ORDER BY id) - 1) / $2::int AS part FROM taken
), batched AS (
	INSERT INTO dispatch_ending_batches (client, webhook, day, endings)
	SELECT client, webhook, day, json_agg(json_build_object(
		'delivery_id', delivery, 'event_id', event, 'state', state, 'attempts', attempts) ORDER BY id)::text
	FROM numbered GROUP BY client, webhook, day, part ORDER BY min(id)
)
SELECT count(*) FROM taken`

	// Clients take turns, and who comes first changes, so that those whose batches fail keep no
	// other waiting, however many they are.
	selectBatches = `
SELECT id, client, webhook, day, endings, after FROM (
	SELECT *, row_number() OVER (PARTITION BY client ORDER BY id) AS turn FROM dispatch_ending_batches) b
ORDER BY turn, random() LIMIT $1`
	// noteAfter keeps what a process noted that took over as this one lost its lock.
	noteAfter   = `UPDATE dispatch_ending_batches SET after = coalesce(after, $3) WHERE client = $1 AND id = $2 RETURNING after`
	deleteBatch = `DELETE FROM dispatch_ending_batches WHERE client = $1 AND id = $2`
)

// EndingsLog records batches of endings, each in a stream of its webhook and day.
type EndingsLog interface {
	// EndingsRevision is where the stream of a batch ends.
	EndingsRevision(ctx context.Context, client id.Client, webhook id.Webhook, day time.Time) (eventstore.Revision, error)
	// RecordEndings records a batch, unless it stands in its stream behind a revision.
	RecordEndings(ctx context.Context, client id.Client, day time.Time, after eventstore.Revision, ended event.DeliveriesEnded) error
}

// Record hands what has ended to a log, in batches, and says whether there may be more. A
// batch is handed over until the log has taken it: after a crash it is the same as before,
// and is told where in its stream to look for itself. What fails for one client keeps no
// other waiting. While another process records, there is nothing to do.
// Faults: busy.
func (e Endings) Record(ctx context.Context, log EndingsLog) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, endingsTimeout)
	defer cancel()
	guard, err := e.Pool.Begin(ctx) // holds the lock alone; the work is committed step by step
	if err != nil {
		return false, fmt.Errorf("record endings: %w", err)
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
		defer cancel()
		_ = guard.Rollback(ending) // nothing was written in it
	}()
	var mine bool
	if err := guard.QueryRow(ctx, lockEndings).Scan(&mine); err != nil || !mine {
		return false, err
	}
	var batched int
	if err := e.Pool.QueryRow(ctx, batchEndings, maxBatched, maxEndings).Scan(&batched); err != nil {
		return false, fmt.Errorf("batch endings: %w", err)
	}
	rows, _ := e.Pool.Query(ctx, selectBatches, maxBatches) // what it fails with, its rows end with
	batches, err := pgx.CollectRows(rows, pgx.RowToStructByPos[endingBatch])
	if err != nil {
		return false, fmt.Errorf("read batches of endings: %w", err)
	}
	var failed []error
	stopped := map[id.Client]bool{} // its batches keep their order
	for _, b := range batches {
		if stopped[b.Client] {
			continue
		}
		if err := e.record(ctx, log, b); err != nil {
			failed, stopped[b.Client] = append(failed, err), true
		}
		if ctx.Err() != nil {
			break
		}
	}
	return batched == maxBatched || len(batches) == maxBatches, errors.Join(failed...)
}

// endingBatch is a batch that is handed to the log.
type endingBatch struct {
	ID      int64
	Client  id.Client
	Webhook id.Webhook
	Day     time.Time
	Endings string
	After   *eventstore.Revision
}

// record hands one batch to the log, and forgets it.
// Faults: busy.
func (e Endings) record(ctx context.Context, log EndingsLog, b endingBatch) error {
	ended := event.DeliveriesEnded{Webhook: b.Webhook}
	if err := json.Unmarshal([]byte(b.Endings), &ended.Deliveries); err != nil {
		return fmt.Errorf("read a batch of endings: %w", err)
	}
	if b.After == nil {
		at, err := log.EndingsRevision(ctx, b.Client, b.Webhook, b.Day)
		if err != nil {
			return err
		}
		err = e.Pool.QueryRow(ctx, noteAfter, b.Client, b.ID, at).Scan(&b.After)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil // it was recorded meanwhile
		}
		if err != nil {
			return fmt.Errorf("note where a batch of endings begins: %w", err)
		}
	}
	if err := log.RecordEndings(ctx, b.Client, b.Day, *b.After, ended); err != nil && !errors.Is(err, eventstore.ErrDeleted) {
		return err
	}
	if _, err := e.Pool.Exec(ctx, deleteBatch, b.Client, b.ID); err != nil {
		return fmt.Errorf("forget a recorded batch of endings: %w", err)
	}
	return nil
}
