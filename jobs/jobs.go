// Package jobs hands out what is done behind requests: clients take turns, whoever fails
// rests for longer each time, and what a crash cut short is handed out again.
//
// There is one job of a client for each kind of work, for as long as there is something to
// do. What that is stands in tables of the kind's own; whoever writes there asks for the
// job in the same transaction, see [Ask].
package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/panics"
)

const (
	firstRest = time.Second // after a failed attempt; doubles
	// limit: imports | rest of an import that fails, before it is tried again | 1 s, doubled up to {mostRest} | it waits
	mostRest   = 5 * time.Minute
	endWithin  = 5 * time.Second // how a job went on is written down, also once its time is over
	pruneEvery = time.Minute
)

// Ask is the statement that asks for the job of a client ($1) and a kind ($2). It belongs
// into the transaction that writes what is to be done.
const Ask = `
INSERT INTO public.jobs (client, kind) VALUES ($1, $2) ON CONFLICT (client, kind) DO UPDATE SET asked = jobs.asked + 1`

// Queue hands out the jobs of one kind. It may be used by many goroutines and processes.
type Queue struct {
	Pool *pgxpool.Pool
	Kind string
	// Lease is how long a job is handed out to nobody else. 0: whoever works on this
	// kind of job is the only one, as its leader.
	Lease time.Duration
}

// Job is the turn of a client.
type Job struct {
	Client   id.Client
	Attempts int // since something went well, with this one

	handed, asked int64
}

// Outcome says how a job goes on.
type Outcome struct {
	// Done: there was nothing more to do when the job was handed out. What was asked
	// for since is not lost.
	Done bool
	// Failed: the attempt counts, and the job rests from 1 s up to 5 min.
	Failed bool
	// Passing: the attempt counts neither as a failure nor as what went well.
	Passing bool
	Rest    time.Duration // of what has not failed
}

const (
	// No rest and no lease is longer than an hour. A job that is due later was put off before
	// the clock was set back, and is due now.
	isDue = `(due_at <= now() OR due_at > now() + interval '1 hour')`
	// A client and its sandboxes take one turn together: as one of them gets it (next), those
	// of the others that are due (beside) go behind all that wait (behind).
	take = `
WITH next AS (
	SELECT client, kind FROM public.jobs WHERE kind = $1 AND ` + isDue + ` ORDER BY due_at, handed LIMIT 1 FOR UPDATE SKIP LOCKED
), beside AS (
	SELECT j.client, j.kind FROM next n JOIN public.jobs j ON j.kind = n.kind AND j.client <> n.client
		AND j.client >= left(n.client, $3) AND j.client < left(n.client, $3) || '~'
	WHERE ` + isDue + ` FOR UPDATE OF j SKIP LOCKED
), behind AS (
	UPDATE public.jobs j SET due_at = now() FROM beside b WHERE j.client = b.client AND j.kind = b.kind
)
UPDATE public.jobs j SET due_at = now() + $2::interval, handed = handed + 1, attempts = attempts + 1
FROM next n WHERE j.client = n.client AND j.kind = n.kind
RETURNING j.client, attempts, handed, asked`
	end = `
WITH over AS (DELETE FROM public.jobs WHERE client = $1 AND kind = $2 AND handed = $3 AND asked = $4 AND $5 RETURNING client)
UPDATE public.jobs SET due_at = now() + $6::interval, attempts = $7
WHERE client = $1 AND kind = $2 AND handed = $3 AND NOT EXISTS (SELECT FROM over)`
)

// Turn has the job carried out that has waited longest; it is false where none is due. The
// error of do is returned, too; where ctx has ended, the attempt does not count.
func (q Queue) Turn(ctx context.Context, do func(context.Context, Job) (Outcome, error)) (bool, error) {
	var job Job
	err := q.Pool.QueryRow(ctx, take, q.Kind, q.Lease, id.OwnerSize).Scan(&job.Client, &job.Attempts, &job.handed, &job.asked)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take a job of %s: %w", q.Kind, err)
	}
	next, err := attempt(ctx, job, do)
	if err != nil {
		err = fmt.Errorf("for %s: %w", job.Client, err)
	}
	if ctx.Err() != nil {
		next = Outcome{Passing: true}
	}
	return true, errors.Join(err, q.end(ctx, job, next))
}

// attempt has a job carried out; where that panics, it has failed.
func attempt(ctx context.Context, job Job, do func(context.Context, Job) (Outcome, error)) (next Outcome, err error) {
	next.Failed = true
	defer panics.Catch(&err)
	return do(ctx, job)
}

func (q Queue) end(ctx context.Context, job Job, next Outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	attempts, rest := 0, next.Rest
	switch {
	case next.Failed:
		attempts, rest = job.Attempts, backoff.Doubled(firstRest, mostRest, job.Attempts-1)
	case next.Passing:
		attempts = job.Attempts - 1
	}
	if _, err := q.Pool.Exec(ctx, end, job.Client, q.Kind, job.handed, job.asked, next.Done, rest, attempts); err != nil {
		return fmt.Errorf("write down how a job of %s went: %w", q.Kind, err)
	}
	return nil
}

// Run has jobs carried out one after the other until ctx ends, looks for more after a
// pause, and prunes once a minute.
func (q Queue) Run(ctx context.Context, logger *slog.Logger, pause time.Duration,
	do func(context.Context, Job) (Outcome, error), prune func(context.Context) error,
) {
	var seldom backoff.Seldom
	due := time.NewTimer(0)
	defer due.Stop()
	for ctx.Err() == nil {
		worked, err := q.Turn(ctx, do)
		select {
		case <-due.C:
			due.Reset(pruneEvery)
			err = errors.Join(err, prune(ctx))
		default:
		}
		if err != nil && ctx.Err() == nil {
			seldom.Do(func() { logger.WarnContext(ctx, "a job failed, trying again", "kind", q.Kind, "error", err) })
		}
		if !worked || err != nil {
			_ = backoff.Sleep(ctx, pause)
		}
	}
}
