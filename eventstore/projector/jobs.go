package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/jobs"
)

// Jobs carries out rebuilds of one client's part of a read model that were
// asked for, one after the other, clients in turn, in whichever process leads: a queue
// of jobs (package jobs).
type Jobs struct {
	Runner *Runner
	Models []ReadModel
}

// Job is a rebuild that was asked for.
type Job struct {
	ID          id.Rebuild
	Client      id.Client
	Model       string
	RequestedBy string
	RequestedAt time.Time
	Phase       string // waiting, building, replacing, done, failed
	Done        int64  // events
	Total       int64  // 0: not known yet
	Rate        float64
	SecondsLeft float64
	Error       *string
	EndedAt     *time.Time
}

const (
	jobColumns = `id, client, model, requested_by, requested_at, phase, done, total, rate, seconds_left, error, ended_at`
	insertJob  = `
INSERT INTO public.rebuilds (id, client, model, requested_by) SELECT $1, $2, $3, $4
WHERE NOT EXISTS (SELECT FROM public.rebuilds WHERE client = $2 AND model = $3 AND ended_at > clock_timestamp() - $5::interval)
ON CONFLICT (client, id) DO NOTHING`
	getJob   = `SELECT ` + jobColumns + ` FROM public.rebuilds WHERE id = $1 AND client = $2`
	listJobs = `
SELECT DISTINCT ON (model) ` + jobColumns + ` FROM public.rebuilds WHERE client = $1 ORDER BY model, requested_at DESC, id`
	forgetJobs = `DELETE FROM public.rebuilds WHERE ended_at < now() - interval '30 days'`
)

// Request asks for a rebuild, once for each id. It fails with a fault:
// projection_unknown, projection_shared, rebuild_in_progress while another one
// of the same part is under way, or rebuilt_recently for a minute after: each
// stops the live model for a moment, for everybody.
// Faults: projection_shared, projection_unknown, rebuild_in_progress, rebuilt_recently.
func (j Jobs) Request(ctx context.Context, job id.Rebuild, model string, client id.Client, by string) (Job, error) {
	m, err := j.model(model)
	if err != nil {
		return Job{}, err
	}
	switch err := j.Runner.divided(ctx, m); {
	case errors.Is(err, ErrShared):
		return Job{}, fault.New(fault.Conflict, "projection_shared", "%s is not divided by client; only an operator can rebuild it.", model)
	case err != nil:
		return Job{}, fmt.Errorf("look at %s: %w", model, err)
	}
	var b pgx.Batch // one transaction
	b.Queue(insertJob, job, client, model, by, jobRest)
	b.Queue(jobs.Ask, client, jobKind)
	err = j.Runner.Pool.SendBatch(ctx, &b).Close()
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "rebuilds_open" {
		return Job{}, fault.New(fault.Conflict, "rebuild_in_progress", "Your part of %s is being rebuilt already.", model)
	}
	if err != nil {
		return Job{}, fmt.Errorf("ask for a rebuild: %w", err)
	}
	asked, err := j.one(ctx, getJob, job, client)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fault.New(fault.Limited, "rebuilt_recently", "Your part of %s was rebuilt within the last minute.", model).After(jobRest)
	}
	return asked, err
}

func (j Jobs) model(name string) (ReadModel, error) {
	i := slices.IndexFunc(j.Models, func(m ReadModel) bool { return m.Name() == name })
	if i < 0 {
		return nil, fault.New(fault.Missing, "projection_unknown", "There is no such projection.")
	}
	return j.Models[i], nil
}

// Newest returns, by name of the model, a client's newest rebuild of each.
func (j Jobs) Newest(ctx context.Context, client id.Client) (map[string]Job, error) {
	rows, err := j.Runner.Pool.Query(ctx, listJobs, client)
	if err != nil {
		return nil, fmt.Errorf("list rebuilds: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Job])
	newest := make(map[string]Job, len(jobs))
	for _, job := range jobs {
		newest[job.Model] = job
	}
	return newest, err
}

func (j Jobs) one(ctx context.Context, sql string, args ...any) (Job, error) {
	rows, _ := j.Runner.Pool.Query(ctx, sql, args...) // what it fails with, its rows end with
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Job])
}

const (
	jobKind     = "rebuilds"
	jobRest     = time.Minute // between rebuilds of one part
	jobPoll     = time.Second // between looks for something to do
	jobWait     = time.Second // for somebody else who rebuilds the same part
	jobAttempts = 5           // of what fails
	jobTell     = 500 * time.Millisecond
)

// Run carries out what is asked for whenever no other process does, until ctx
// ends; then it returns nil.
// Faults: projection_unknown.
func (j Jobs) Run(ctx context.Context) error {
	return j.Runner.Lead(ctx, "rebuilds", func(ctx context.Context) error {
		jobs.Queue{Pool: j.Runner.Pool, Kind: jobKind}.Run(ctx, j.Runner.Logger, jobPoll, j.next, j.prune)
		return nil
	})
}

const (
	// Of a client's rebuilds the one that waited for somebody else longest ago comes
	// first, so that none blocks the others.
	nextJob = `
SELECT ` + jobColumns + ` FROM public.rebuilds WHERE client = $1 AND ended_at IS NULL ORDER BY tried_at, requested_at, id LIMIT 1`
	tellJob = `UPDATE public.rebuilds SET phase = $2, done = $3, total = $4, rate = $5, seconds_left = $6 WHERE client = $7 AND id = $1 AND ended_at IS NULL`
	waitJob = `UPDATE public.rebuilds SET phase = 'waiting', tried_at = clock_timestamp() WHERE client = $2 AND id = $1 AND ended_at IS NULL`
	failJob = `
UPDATE public.rebuilds SET phase = CASE WHEN $2 THEN 'failed' ELSE 'waiting' END, error = $3,
	ended_at = CASE WHEN $2 THEN clock_timestamp() END WHERE client = $4 AND id = $1 AND ended_at IS NULL`
	endJob = `
UPDATE public.rebuilds SET phase = 'done', done = greatest(done, total), total = greatest(done, total), seconds_left = 0, error = NULL,
	ended_at = clock_timestamp() WHERE client = $2 AND id = $1 AND ended_at IS NULL`
)

// next rebuilds once what a client asked for. What fails is tried again, a few times; what
// somebody else is rebuilding just now waits for that.
func (j Jobs) next(ctx context.Context, asked jobs.Job) (jobs.Outcome, error) {
	job, err := j.one(ctx, nextJob, asked.Client)
	if errors.Is(err, pgx.ErrNoRows) {
		return jobs.Outcome{Done: true}, nil
	}
	if err != nil {
		return jobs.Outcome{Passing: true}, fmt.Errorf("find a rebuild: %w", err)
	}
	log := j.Runner.Logger.With("projection", job.Model, "client", job.Client, "rebuild", job.ID)
	m, err := j.model(job.Model)
	if err == nil {
		err = j.Runner.RebuildClient(ctx, m, job.Client, j.telling(ctx, job))
	}
	pool := j.Runner.Pool
	var outcome jobs.Outcome
	switch {
	case ctx.Err() != nil:
		return jobs.Outcome{Passing: true}, ctx.Err() // the next leader goes on
	case errors.Is(err, ErrRebuilding):
		outcome = jobs.Outcome{Passing: true, Rest: jobWait}
		_, err = pool.Exec(ctx, waitJob, job.ID, job.Client)
	case errors.Is(err, ErrIncomplete):
		log.ErrorContext(ctx, "rebuilt, but not whole", "error", reason(err))
		_, err = pool.Exec(ctx, failJob, job.ID, true, "The part was rebuilt, but not every event could be applied; the log of the service says which.", job.Client)
	case err != nil:
		log.ErrorContext(ctx, "rebuild failed", "error", reason(err))
		outcome.Failed = asked.Attempts < jobAttempts
		_, err = pool.Exec(ctx, failJob, job.ID, !outcome.Failed, "The rebuild failed; the log of the service says why.", job.Client)
	default:
		log.InfoContext(ctx, "rebuilt")
		_, err = pool.Exec(ctx, endJob, job.ID, job.Client)
	}
	if err != nil {
		return outcome, fmt.Errorf("write down how a rebuild went: %w", err)
	}
	return outcome, nil
}

// prune forgets rebuilds that ended long ago.
func (j Jobs) prune(ctx context.Context) error {
	if _, err := j.Runner.Pool.Exec(ctx, forgetJobs); err != nil {
		return fmt.Errorf("forget old rebuilds: %w", err)
	}
	return nil
}

// telling writes down how far a rebuild has come, now and then.
func (j Jobs) telling(ctx context.Context, job Job) func(Rebuilding) {
	var phase string
	var told time.Time
	return func(r Rebuilding) {
		now := j.Runner.Now()
		if r.Phase == phase && now.Sub(told) < jobTell {
			return
		}
		phase, told = r.Phase, now
		if _, err := j.Runner.Pool.Exec(ctx, tellJob, job.ID, r.Phase, r.Events, max(r.Expected, r.Events), r.Rate, r.Left.Seconds(), job.Client); err != nil {
			j.Runner.Logger.WarnContext(ctx, "progress of a rebuild not written down", "error", reason(err))
		}
	}
}
