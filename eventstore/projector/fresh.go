package projector

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// At is how fresh a read model was when it was read: the one row of Fresh.
type At struct {
	Reached     eventstore.Position // of the read model
	Head        eventstore.Position // of the client's last acknowledged event
	Quarantined bool                // the client's part has stopped
}

// Fresh is SQL for a common table expression fresh(reached, head, quarantined)
// of one row, for the statement that reads the tables of p. The client is $1:
//
//	WITH ` + projector.Fresh(p) + ` SELECT f.reached, f.head, f.quarantined, u.id …
//	FROM fresh f LEFT JOIN users u ON u.client = $1 …
func Fresh(p Projection) string {
	projectionID := `'` + ID(p) + `'` // letters, digits and underscores
	return freshPaused + projectionID + freshReached + projectionID + freshHead + projectionID + freshQuarantined
}

const (
	freshPaused = `fresh AS (SELECT
	coalesce((SELECT position FROM quarantine WHERE projection = `
	freshReached = ` AND client = $1 AND paused),
		(SELECT position FROM checkpoints WHERE name = `
	freshHead = `), '') AS reached,
	coalesce((SELECT position FROM heads WHERE client = $1), '') AS head,
	EXISTS (SELECT FROM quarantine WHERE projection = `
	freshQuarantined = ` AND client = $1 AND NOT paused) AS quarantined)`
)

// FreshEach is Fresh for many clients in one statement, those of a relation w
// with a column client: columns is what tells of At, in its order, and joins
// what it needs after w. A row of w stays one row, looked up for itself,
// however many the planner expects.
func FreshEach(p Projection) (columns, joins string) {
	projectionID := `'` + ID(p) + `'`
	columns = `coalesce(CASE WHEN paused.paused THEN paused.position ELSE (SELECT position FROM checkpoints WHERE name = ` + projectionID + `) END, '') AS reached,
	coalesce(heads.position, '') AS head, coalesce(NOT paused.paused, false) AS quarantined`
	joins = `
LEFT JOIN LATERAL (SELECT h.position FROM heads h WHERE h.client = w.client LIMIT 1) heads ON true
LEFT JOIN LATERAL (
	SELECT q.position, q.paused FROM quarantine q WHERE q.projection = ` + projectionID + ` AND q.client = w.client LIMIT 1
) paused ON true`
	return columns, joins
}

// Reader reads a projection's tables no earlier than they hold what was
// acknowledged before.
type Reader struct {
	Of       Projection
	Progress *Progress
	// Client is whose the rows are: while its part is behind, no more is read again than how far that
	// is. Empty: all is.
	Client id.Client
	// AtOnce fails at once where the model is behind, with a fault that says how to
	// wait (fault.Fault.Soon). Asked again with the context of that wait, it does not
	// wait for what was acknowledged since. Else the reader waits itself.
	AtOnce bool
	// Look has each look at the tables done, as in a place for it; nil: it is done at once.
	Look func(ctx context.Context, client id.Client, look func() error) error
}

// Read calls read, which runs one statement with Fresh in it, until the read
// model has reached the client's head as of the first call; eventual takes the
// first answer. It fails with a fault of kind Unavailable: "stale" after 2 s,
// "quarantined", or "building" where the tables are not there yet.
// Faults: building, quarantined, stale.
func (r Reader) Read(ctx context.Context, eventual bool, read func(context.Context) (At, error)) error {
	once := func(ctx context.Context) error { return r.once(ctx, eventual, read) }
	if r.AtOnce {
		return once(ctx)
	}
	return fault.Await(anew(ctx, ID(r.Of)), once)
}

func (r Reader) once(ctx context.Context, eventual bool, read func(context.Context) (At, error)) error {
	late := stale
	look := func(wanted *eventstore.Position) (bool, error) {
		if *wanted != "" && r.Client != "" {
			if passed, err := r.Progress.passed(ctx, ID(r.Of), r.Client, *wanted); err != nil || !passed {
				return false, err
			}
		}
		at, err := read(ctx)
		switch {
		case TablesMissing(err) && eventual:
			return false, building()
		case TablesMissing(err):
			late = building
			return false, nil
		case err != nil:
			return false, err
		case at.Quarantined:
			return false, fault.New(fault.Unavailable, "quarantined",
				"This part of the client's data cannot be read until an operator has repaired it.").After(time.Minute)
		}
		if *wanted == "" {
			*wanted = at.Head
		}
		return eventual || at.Reached >= *wanted, nil
	}
	return r.Progress.await(ctx, ID(r.Of), func(wanted *eventstore.Position) (done bool, err error) {
		if r.Look == nil {
			return look(wanted)
		}
		err = r.Look(ctx, r.Client, func() (err error) {
			done, err = look(wanted)
			return err
		})
		return done, err
	}, func() *fault.Fault { return late() })
}

func building() *fault.Fault {
	return fault.New(fault.Unavailable, "building", "This list is being built; try again.").After(5 * time.Second)
}

// TablesMissing says whether a statement failed because the tables of a read model
// are yet to be made: undefined_table or invalid_schema_name.
func TablesMissing(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42P01" || pg.Code == "3F000")
}
