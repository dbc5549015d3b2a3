package imports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
)

const (
	pause = 200 * time.Millisecond // between looks for imports
	// limit: imports | attempts of a piece that fails, 1 MiB of lines | {maxAttempts} | the import is failed
	maxAttempts = 10               // of a chunk
	firstRest   = time.Second      // after a failed attempt; doubles
	outageRest  = 10 * time.Second // after trouble that passes
	// limit: kept | what became of imports, rebuilds | {retentionDays} days
	retentionDays = 30        // of what became of an import
	staleAfter    = time.Hour // a receiver that keeps nothing for so long is gone
	pruneEvery    = time.Minute
	forgetBatch   = 100 // imports whose keys are destroyed at once
)

// Worker applies imports. One process does at a time; chunks of the clients'
// imports take turns, so that a large one delays nobody for long.
type Worker struct {
	*Spool
	// Apply upserts the users of body, one a line. With the same Seed, applying
	// it again undoes nothing that was written since.
	Apply func(ctx context.Context, call commands.Call, mode string, body io.Reader) (commands.ImportReport, error)
	// Passing says whether an error of Apply tells of an outage, not of what is
	// applied. Such a chunk is tried until it is applied.
	Passing func(error) bool
	// Lead does work whenever no other process does, until ctx ends.
	Lead   func(ctx context.Context, name string, work func(context.Context) error) error
	Logger *slog.Logger
}

// Run applies imports until ctx ends.
// Faults: import_unknown.
func (w *Worker) Run(ctx context.Context) error {
	return w.Lead(ctx, "policy_imports", w.drive)
}

func (w *Worker) drive(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	prune := time.NewTimer(0)
	defer prune.Stop()
	for {
		worked, err := w.Turn(ctx)
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-prune.C:
			prune.Reset(pruneEvery)
			err = errors.Join(err, w.prune(ctx))
		default:
		}
		if err != nil {
			w.Logger.WarnContext(ctx, "imports are not applied, trying again", "error", err)
		}
		if worked && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// task is the next chunk of an import.
type task struct {
	Import
	call     commands.Call
	chunk    int
	chunks   int
	attempts int
	accepted time.Time
}

// What is running goes on to its end, also where one accepted earlier is seen later.
const take = `
SELECT id, client, mode, actor, member, correlation, log_end, applied, chunks, lines_done, attempts, created_at FROM (
	SELECT DISTINCT ON (client) * FROM imports WHERE status IN ('pending', 'running') ORDER BY client, status DESC, accepted
) first WHERE turn_at <= now() ORDER BY turn_at LIMIT 1`

// Turn applies one chunk. It is false where none waits.
// Faults: import_unknown.
func (w *Worker) Turn(ctx context.Context) (bool, error) {
	var t task
	err := w.Pool.QueryRow(ctx, take).Scan(&t.ID, &t.call.Client, &t.Mode, &t.call.Actor, &t.call.Member, &t.call.Correlation, &t.call.Accepted,
		&t.chunk, &t.chunks, &t.LinesDone, &t.attempts, &t.accepted)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find an import: %w", err)
	}
	if t.chunk == t.chunks { // it had no lines
		return true, w.note(ctx, t, 0, commands.ImportReport{})
	}
	lines, report, err := w.apply(ctx, t)
	switch {
	case err == nil:
		return true, w.note(ctx, t, lines, report)
	case ctx.Err() != nil: // whoever leads next goes on
		return true, err
	case w.passes(err):
		return true, errors.Join(err, w.wait(ctx, t))
	}
	return true, errors.Join(err, w.rest(ctx, t))
}

// passes says whether trouble has nothing to do with the chunk that met it.
func (w *Worker) passes(err error) bool {
	return fault.Of(err, fault.Unavailable) || errors.Is(err, context.Canceled) || w.Passing(err)
}

const begin = `
UPDATE import_chunks SET begun = coalesce(begun, $4) WHERE client = $1 AND import = $2 AND chunk = $3
RETURNING lines, body, begun`

func (w *Worker) apply(ctx context.Context, t task) (lines int64, report commands.ImportReport, err error) {
	end, err := w.LogEnd(ctx)
	if err != nil {
		return 0, report, fmt.Errorf("find the end of the log: %w", err)
	}
	var sealed []byte
	err = w.Pool.QueryRow(ctx, begin, t.call.Client, t.ID, t.chunk, string(end)).Scan(&lines, &sealed, &t.call.Begun)
	if err != nil {
		return 0, report, fmt.Errorf("read a chunk of %s: %w", t.ID, err)
	}
	body, err := w.open(ctx, t, sealed)
	if err != nil {
		return 0, report, err
	}
	t.call.Import = t.ID
	t.call.Seed = []string{string(t.call.Client), "import", string(t.ID), strconv.Itoa(t.chunk)}
	report, err = w.Apply(ctx, t.call, t.Mode, bytes.NewReader(body))
	if err != nil {
		return 0, report, fmt.Errorf("apply a chunk of %s: %w", t.ID, err)
	}
	return lines, report, nil
}

// The chunk counts once, whoever else has applied it meanwhile.
const note = `
WITH noted AS (
	UPDATE imports SET
		applied = least($2 + 1, chunks), lines_done = lines_done + $3, attempts = 0, turn_at = now(),
		waiting = greatest(waiting - (SELECT length(body) FROM import_chunks WHERE client = $8 AND import = $1 AND chunk = $2), 0), created = created + $4, updated = updated + $5, failed = failed + $6, errors = $7,
		status = CASE WHEN $2 + 1 >= chunks THEN 'completed' ELSE 'running' END,
		ended_at = CASE WHEN $2 + 1 >= chunks THEN now() END
	WHERE client = $8 AND id = $1 AND applied = $2 AND status IN ('pending', 'running') RETURNING client, id, status
), over AS (
	DELETE FROM import_erasures e USING noted WHERE e.client = noted.client AND e.import = noted.id AND noted.status = 'completed'
)
DELETE FROM import_chunks c USING noted WHERE c.client = noted.client AND c.import = noted.id AND c.chunk = $2`

func (w *Worker) note(ctx context.Context, t task, lines int64, report commands.ImportReport) error {
	known, err := w.Get(ctx, t.call.Client, t.ID)
	if err != nil {
		return err
	}
	refused := known.Errors
	for _, e := range report.Errors[:min(len(report.Errors), commands.MaxLineErrors-len(refused))] {
		refused = append(refused, commands.LineError{Line: int(t.LinesDone) + e.Line, Fault: e.Fault})
	}
	written, err := json.Marshal(refused)
	if err != nil {
		return fmt.Errorf("write the errors of %s: %w", t.ID, err)
	}
	_, err = w.Pool.Exec(ctx, note, t.ID, t.chunk, lines,
		report.Created, report.Updated+report.Unchanged, report.Failed, string(written), t.call.Client)
	if err != nil {
		return fmt.Errorf("note a chunk of %s: %w", t.ID, err)
	}
	if t.chunk+1 >= t.chunks {
		return w.forget(ctx)
	}
	return nil
}

const (
	selectEnded = `
SELECT id, client FROM imports
WHERE keyed AND (ended_at IS NOT NULL OR status = 'receiving' AND turn_at < now() - $1::interval) ORDER BY client, id LIMIT $2`
	noteForgotten = `UPDATE imports SET keyed = false WHERE client = $1 AND id = $2`
)

// forget destroys the keys of imports that have ended, or whose receiver is gone:
// what they held of people opens nowhere any more.
func (w *Worker) forget(ctx context.Context) error {
	for {
		rows, err := w.Pool.Query(ctx, selectEnded, staleAfter, forgetBatch)
		if err != nil {
			return fmt.Errorf("find imports that ended: %w", err)
		}
		type ended struct {
			id     id.Import
			client id.Client
		}
		all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e ended, err error) { return e, row.Scan(&e.id, &e.client) })
		if err != nil {
			return fmt.Errorf("find imports that ended: %w", err)
		}
		for _, e := range all {
			if err := w.Secrets.Destroy(ctx, e.client, string(e.id)); err != nil {
				return err
			}
			if _, err := w.Pool.Exec(ctx, noteForgotten, e.client, e.id); err != nil {
				return fmt.Errorf("note that the key of %s is destroyed: %w", e.id, err)
			}
		}
		if len(all) < forgetBatch {
			return nil
		}
	}
}

// wait lets an import rest without an attempt that counts.
func (w *Worker) wait(ctx context.Context, t task) error {
	const later = `UPDATE imports SET turn_at = now() + $3::interval WHERE client = $4 AND id = $1 AND applied = $2`
	_, err := w.Pool.Exec(ctx, later, t.ID, t.chunk, outageRest, t.call.Client)
	return err
}

// rest lets an import wait after a failed attempt, and ends it after many.
func (w *Worker) rest(ctx context.Context, t task) error {
	const again = `UPDATE imports SET attempts = attempts + 1, turn_at = now() + $3::interval WHERE client = $4 AND id = $1 AND applied = $2`
	if t.attempts+1 < maxAttempts {
		_, err := w.Pool.Exec(ctx, again, t.ID, t.chunk, firstRest<<t.attempts, t.call.Client)
		return err
	}
	return errors.Join(w.fail(ctx, t.call.Client, t.ID), w.forget(ctx))
}

// What is left of it is not kept.
const fail = `
WITH failed AS (UPDATE imports SET status = 'failed', waiting = 0, ended_at = now() WHERE client = $1 AND id = $2 AND status IN ('pending', 'running') RETURNING client, id),
over AS (DELETE FROM import_erasures e USING failed WHERE e.client = failed.client AND e.import = failed.id)
DELETE FROM import_chunks c USING failed WHERE c.client = failed.client AND c.import = failed.id`

func (w *Worker) fail(ctx context.Context, client id.Client, named id.Import) error {
	_, err := w.Pool.Exec(ctx, fail, client, named)
	return err
}

const prune = `DELETE FROM imports WHERE NOT keyed AND (ended_at < now() - $1::interval OR status = 'receiving' AND turn_at < now() - $2::interval)`

// prune forgets imports that ended long ago, and those that were never
// received to their end, once their keys are destroyed.
func (w *Worker) prune(ctx context.Context) error {
	if err := w.forget(ctx); err != nil {
		return err
	}
	if _, err := w.Pool.Exec(ctx, prune, retentionDays*24*time.Hour, staleAfter); err != nil {
		return fmt.Errorf("forget old imports: %w", err)
	}
	return nil
}
