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
	"kindred/eventstore/seal"
	"kindred/jobs"
)

const (
	pause = 200 * time.Millisecond // between looks for imports
	// limit: imports | attempts of a piece that fails, or ends its process, 1 MiB of lines | {maxAttempts} | the import is failed
	maxAttempts = 10
	outageRest  = 10 * time.Second // after trouble that passes
	// limit: kept | what became of imports, rebuilds | {retentionDays} days
	retentionDays = 30 // of what became of an import
	// staleAfter is longer than a receiver takes for a chunk, chunkWithin and a line after it:
	// one that keeps nothing for so long is gone.
	// limit: imports | time after which the lines of an import whose process was killed while it came no longer wait | {staleAfter} | until then they count
	staleAfter  = 5 * time.Minute
	forgetBatch = 100       // imports whose keys are destroyed at once
	kind        = "imports" // of jobs
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
	return w.Lead(ctx, "policy_imports", func(ctx context.Context) error {
		w.queue().Run(ctx, w.Logger, pause, w.turn, w.prune)
		return nil
	})
}

func (w *Worker) queue() jobs.Queue { return jobs.Queue{Pool: w.Pool, Kind: kind} }

// task is the next chunk of an import.
type task struct {
	Import
	call     commands.Call
	chunk    int
	chunks   int
	accepted time.Time
}

// What is running goes on to its end, also where one accepted earlier is seen later.
const first = `
SELECT id, client, mode, actor, member, correlation, log_end, trace, applied, chunks, lines_done, created_at FROM imports
WHERE client = $1 AND status IN ('pending', 'running') ORDER BY status DESC, accepted LIMIT 1`

// turn applies the next chunk of a client's imports.
func (w *Worker) turn(ctx context.Context, job jobs.Job) (jobs.Outcome, error) {
	var t task
	err := w.Pool.QueryRow(ctx, first, job.Client).Scan(&t.ID, &t.call.Client, &t.Mode, &t.call.Actor, &t.call.Member, &t.call.Correlation, &t.call.Accepted, &t.call.Trace,
		&t.chunk, &t.chunks, &t.LinesDone, &t.accepted)
	if errors.Is(err, pgx.ErrNoRows) {
		return jobs.Outcome{Done: true}, nil
	}
	if err != nil {
		return jobs.Outcome{Passing: true}, fmt.Errorf("find an import: %w", err)
	}
	if t.chunk == t.chunks { // it had no lines
		return jobs.Outcome{}, w.note(ctx, t, 0, commands.ImportReport{})
	}
	if job.Attempts > maxAttempts {
		err := fmt.Errorf("chunk %d of %s ended its process %d times", t.chunk, t.ID, maxAttempts)
		return jobs.Outcome{}, errors.Join(err, w.fail(ctx, t))
	}
	lines, report, err := w.apply(ctx, t)
	switch {
	case err == nil:
		return jobs.Outcome{}, w.note(ctx, t, lines, report)
	case errors.Is(err, errForgotten):
		return jobs.Outcome{}, w.fail(ctx, t)
	case ctx.Err() != nil: // whoever leads next goes on
		return jobs.Outcome{Passing: true}, err
	case w.passes(err):
		return jobs.Outcome{Passing: true, Rest: outageRest}, err
	case job.Attempts < maxAttempts:
		return jobs.Outcome{Failed: true}, err
	}
	return jobs.Outcome{}, errors.Join(err, w.fail(ctx, t))
}

// passes says whether trouble has nothing to do with the chunk that met it.
func (w *Worker) passes(err error) bool {
	return fault.Of(err, fault.Unavailable) || errors.Is(err, context.Canceled) || w.Passing(err)
}

// errForgotten: no attempt will open the lines again.
var errForgotten = errors.New("the key of the lines was destroyed with their client")

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
	if errors.Is(err, seal.ErrErased) {
		err = errForgotten
	}
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
		applied = least($2 + 1, chunks), lines_done = lines_done + $3,
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
WHERE keyed AND (ended_at IS NOT NULL OR status = 'receiving' AND received_at < now() - $1::interval) ORDER BY client, id LIMIT $2`
	noteForgotten = `UPDATE imports SET keyed = false WHERE client = $1 AND id = $2`
)

// forget destroys the keys of imports that have ended, or whose receiver is gone:
// what they held of people opens nowhere any more.
func (w *Worker) forget(ctx context.Context) error {
	for {
		rows, _ := w.Pool.Query(ctx, selectEnded, staleAfter, forgetBatch) // what it fails with, its rows end with
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

// What is left of it is not kept.
const fail = `
WITH failed AS (UPDATE imports SET status = 'failed', waiting = 0, ended_at = now() WHERE client = $1 AND id = $2 AND status IN ('pending', 'running') RETURNING client, id),
over AS (DELETE FROM import_erasures e USING failed WHERE e.client = failed.client AND e.import = failed.id)
DELETE FROM import_chunks c USING failed WHERE c.client = failed.client AND c.import = failed.id`

func (w *Worker) fail(ctx context.Context, t task) error {
	_, err := w.Pool.Exec(ctx, fail, t.call.Client, t.ID)
	return errors.Join(err, w.forget(ctx))
}

const prune = `DELETE FROM imports WHERE NOT keyed AND (ended_at < now() - $1::interval OR status = 'receiving' AND received_at < now() - $2::interval)`

// left are what an import that has ended may leave behind: chunks, where a process was killed while it dropped what was not
// received, and an erasure that was noted meanwhile.
var left = []string{
	`DELETE FROM import_chunks c USING imports i WHERE i.client = c.client AND i.id = c.import AND i.ended_at IS NOT NULL`,
	`DELETE FROM import_erasures e USING imports i WHERE i.client = e.client AND i.id = e.import AND i.ended_at IS NOT NULL`,
}

// prune forgets imports that ended long ago, and those that were never received to their
// end, once their keys are destroyed, and what others have left behind.
func (w *Worker) prune(ctx context.Context) error {
	if err := w.forget(ctx); err != nil {
		return err
	}
	if _, err := w.Pool.Exec(ctx, prune, retentionDays*24*time.Hour, staleAfter); err != nil {
		return fmt.Errorf("forget old imports: %w", err)
	}
	for _, rows := range left {
		if _, err := w.Pool.Exec(ctx, rows); err != nil {
			return fmt.Errorf("forget what imports have left: %w", err)
		}
	}
	return nil
}
