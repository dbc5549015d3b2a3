package projector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres"
)

// ErrRebuilding: another process is building this read model already.
var ErrRebuilding = errors.New("this read model is being rebuilt already")

// Phases of a rebuild.
const (
	Building  = "building"
	Replacing = "replacing"
)

// Rebuilding is how far a rebuild has come.
type Rebuilding struct {
	Phase    string
	Events   int64         // applied
	Expected int64         // to be applied: what the live model has passed; 0 where it has none
	Rate     float64       // events per second of this run
	Left     time.Duration // estimated from that; 0 where there is nothing to estimate from
}

func tell(report func(Rebuilding), now Rebuilding) {
	if report != nil {
		report(now)
	}
}

// Rebuild builds a read model anew beside the live one, which serves
// meanwhile, and puts it in its place in one transaction. After a crash it
// goes on where it was. Quarantined clients and events that were left out get
// another chance; where some are again, it fails with ErrIncomplete once the model
// is in place. Report, which may be nil, is called after each batch.
func (r *Runner) Rebuild(ctx context.Context, m ReadModel, report func(Rebuilding)) error {
	err := r.buildShadow(ctx, m, ID(m)+"_rebuild", func(ctx context.Context, s *shadow) error {
		if err := s.catchUp(ctx, report); err != nil {
			return err
		}
		if err := s.finish(ctx); err != nil {
			return err
		}
		// The live model stands still from takeOver on: what came meanwhile is applied before.
		if err := s.catchUp(ctx, report); err != nil {
			return err
		}
		if err := s.callOffVacuum(ctx); err != nil {
			return err
		}
		tell(report, Rebuilding{Phase: Replacing, Events: s.at.events, Expected: s.at.events})
		if err := s.lowerHeads(ctx); err != nil {
			return err
		}
		return s.takeOver(ctx)
	})
	if err != nil {
		return err
	}
	return r.complete(ctx, ID(m), "")
}

const (
	// leaseTries is how often a leader that lost the lease, on a machine that was too busy
	// to prolong it, takes it again.
	leaseTries = 5
	// awayTries is how often one that lost it because the database is away tries to
	// reach that: for a minute at least.
	awayTries = 20
)

// insist repeats work under a lease that was lost. The database may be away
// since; work that fails for that is repeated as well.
func insist(ctx context.Context, work func() error) error {
	err := work()
	var rest backoff.Backoff
	for lost, away := 0, 0; ; err = work() {
		switch {
		case errors.Is(err, ErrLost):
			lost++
		case lost > 0 && isAway(err):
			away++
		default:
			return err
		}
		if lost == leaseTries || away == awayTries || rest.Wait(ctx) != nil {
			return err
		}
	}
}

// isAway says whether an error is the database's own trouble.
func isAway(err error) bool {
	return err != nil && !isPoison(err) && !errors.Is(err, context.Canceled)
}

// buildShadow builds a read model under another name, if nobody else does so.
func (r *Runner) buildShadow(ctx context.Context, m ReadModel, projectionID string, build func(context.Context, *shadow) error) error {
	err := insist(ctx, func() error {
		return r.alone(ctx, projectionID, ErrRebuilding, func(ctx context.Context, l lease) error {
			s, err := r.beginShadow(ctx, m, l)
			if err != nil {
				return err
			}
			return build(ctx, s)
		})
	})
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", m.Name(), err)
	}
	return nil
}

// shadow is the leader of a read model that is built beside the live one, under another id (Rebuild, Verify).
type shadow struct {
	*leader
	model ReadModel
}

// beginShadow goes on with a rebuild that was broken off, unless the log was
// restored since.
func (r *Runner) beginShadow(ctx context.Context, m ReadModel, l lease) (*shadow, error) {
	led, err := r.begin(ctx, m, l)
	if errors.Is(err, ErrRestored) {
		if _, err := r.Pool.Exec(ctx, resetCheckpoint, l.name, l.epoch); err != nil {
			return nil, err
		}
		led, err = r.begin(ctx, m, l)
	}
	return &shadow{led, m}, err
}

// catchUp applies events until next to none is left to the end of the log.
func (a *applier) catchUp(ctx context.Context, report func(Rebuilding)) error {
	before, began := a.at.events, a.Now()
	expected, err := a.expected(ctx)
	if err != nil {
		return err
	}
	told := func() {
		now := Rebuilding{Phase: Building, Events: a.at.events, Expected: expected}
		if took, done := a.Now().Sub(began), a.at.events-before; took > 0 && done > 0 {
			now.Rate = float64(done) / took.Seconds()
			now.Left = time.Duration(float64(max(0, expected-a.at.events)) / now.Rate * float64(time.Second))
		}
		tell(report, now)
	}
	for last := int64(math.MaxInt64); ; {
		end, err := a.target(ctx)
		if err != nil {
			return fmt.Errorf("read how far to go: %w", err)
		}
		start := a.at.events
		if err := a.catchUpTo(ctx, end, told); err != nil {
			return err
		}
		done := a.at.events - start
		if done < MaxBatch {
			return nil
		}
		if done > last/2 { // the log grows nearly as fast: beside others it might never be done
			a.throttle.hurry()
		}
		last = done
	}
}

// catchUpTo applies events until the one at head has been.
func (a *applier) catchUpTo(ctx context.Context, head eventstore.Position, tell func()) error {
	ctx, stop := context.WithCancel(ctx)
	pages := a.readAhead(ctx, head)
	defer func() {
		stop()
		for range pages { // until whoever reads ahead has ended
		}
	}()
	for page := range pages {
		if page.err != nil {
			return page.err
		}
		if err := a.role.page(ctx, page.items); err != nil {
			return err
		}
		if page.unknown != nil {
			return page.unknown
		}
		tell()
	}
	return ctx.Err()
}

// A plan that was made while the tables were small stays until they are analyzed, which a vacuum does
// beside a live model a minute later, and beside a shadow never: to look 150 users up took 130 ms once
// there were 60,000 of them, and to read one user 220 ms after an import of as many.
const (
	analyzeFrom = 2_000 // events
	analyzeGrew = 8     // times as many as when they last were
)

// analyzeGrown lets statements be planned anew where the tables of a read model have grown.
func (l *leader) analyzeGrown(ctx context.Context) error {
	if _, ok := l.projection.(ReadModel); !ok || l.at.events < max(analyzeFrom, analyzeGrew*l.analyzed) {
		return nil
	}
	l.analyzed = l.at.events
	if err := l.define(ctx, analyze); err != nil {
		return fmt.Errorf("analyze the tables of %s: %w", l.projectionID, err)
	}
	return nil
}

// decoded is a page of the log, ready to be applied.
type decoded struct {
	items        []item
	unknown, err error
}

// readAhead reads and decodes the next page while one is applied.
func (a *applier) readAhead(ctx context.Context, upTo eventstore.Position) <-chan decoded {
	pages := make(chan decoded, 1)
	at, limit := a.at.position, firstPage
	go func() {
		defer close(pages)
		for at < upTo {
			var page decoded
			page.err = a.throttle.step(ctx, func() error {
				records, err := a.next(ctx, at, upTo, limit)
				if err != nil {
					return fmt.Errorf("read the log: %w", err)
				}
				if len(records) > 0 {
					records = records[:fitting(records)]
					at = records[len(records)-1].Position
					limit = min(2*limit, eventstore.Fitting(records, bulkSize), a.throttle.most(ctx))
					page.items, page.unknown = a.decode(records)
				}
				return nil
			})
			if page.err == nil && len(page.items) == 0 && page.unknown == nil {
				if a.only != "" {
					return // the client's last event was before
				}
				page.err = fmt.Errorf("the log ends at %s, before %s", at, upTo)
			}
			select {
			case pages <- page:
			case <-ctx.Done():
				return
			}
			if page.err != nil || page.unknown != nil {
				return
			}
		}
	}()
	return pages
}

const (
	firstPage = 100     // events
	bulkSize  = 3 << 20 // bytes that the events of a page may have, but for one that has more by itself
)

// fitting is how many records, from the first on, make a page.
func fitting(records []eventstore.Record) int {
	size := 0
	for n, r := range records {
		if size += len(r.Data) + len(r.Meta); size > bulkSize && n > 0 {
			return n
		}
	}
	return len(records)
}

const selectEvents = `SELECT coalesce((SELECT events FROM checkpoints WHERE name = $1), 0)`

func (a *applier) expected(ctx context.Context) (n int64, err error) {
	if store, ok := a.Log.Store.(eventstore.ClientReader); ok && a.only != "" {
		return store.CountClient(ctx, a.only)
	}
	err = a.Pool.QueryRow(ctx, selectEvents, ID(a.projection)).Scan(&n)
	return n, err
}

// takeOver stops the live model, catches up with it and takes its place.
func (s *shadow) takeOver(ctx context.Context) error {
	return s.inPlaceOf(ctx, ID(s.model), s.at.epoch, func(ctx context.Context, live lease, old checkpoint) error {
		// The live model stands still; the new one must not be behind it, nor
		// behind what was noted in its tables before it came by in the log.
		head, err := s.Log.Store.Head(ctx)
		if err != nil {
			return fmt.Errorf("read the head of the log: %w", err)
		}
		if err := s.catchUpTo(ctx, head, func() {}); err != nil {
			return err
		}
		return s.replace(ctx, live, old)
	})
}

// inPlaceOf takes a projection's lease from its leader, which can write no more, and
// works while the projection stands still.
func (r *Runner) inPlaceOf(ctx context.Context, projectionID, logEpoch string, work func(context.Context, lease, checkpoint) error) error {
	l, _, err := r.seize(ctx, projectionID, true)
	if err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	return r.hold(ctx, l, func(ctx context.Context) error {
		var at checkpoint
		if err := pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) (err error) {
			at, err = claim(ctx, tx, l, logEpoch)
			return err
		}); err != nil {
			return fmt.Errorf("claim the checkpoint: %w", err)
		}
		return work(ctx, l, at)
	})
}

// Readers hold locks on tables only for the time of a statement. Where one
// waits for us while we wait for it, we give way and come again.
const (
	firstLockWait = 20 * time.Millisecond
	lastLockWait  = 1500 * time.Millisecond // longer than a server takes to call off its own vacuum
	replaceTries  = 20
)

func (s *shadow) replace(ctx context.Context, live lease, old checkpoint) error {
	s.lease.reached.Store(nil) // its checkpoint goes
	var err error
	for try := range replaceTries {
		lockWait := backoff.Doubled(firstLockWait, lastLockWait, try)
		err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
			return s.replaceIn(ctx, tx, live, old, lockWait)
		})
		if pg, ok := errors.AsType[*pgconn.PgError](err); !postgres.LockTimedOut(err) && (!ok || pg.Code != "40P01") {
			break
		}
		if err := backoff.Sleep(ctx, lockWait); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("put the new tables in place: %w", err)
	}
	s.Progress.advance(live.name, s.at.position)
	return nil
}

const (
	moveQuarantine = `
WITH moved AS (UPDATE left_out SET projection = $2 WHERE projection = $1) UPDATE quarantine SET projection = $2 WHERE projection = $1`
	deleteCheckpoint = `DELETE FROM checkpoints WHERE name = $1`
)

// replaceIn drops the old tables first: that waits for every statement that
// reads them, so none can see the new checkpoint beside the old tables.
func (s *shadow) replaceIn(ctx context.Context, tx pgx.Tx, live lease, old checkpoint, lockWait time.Duration) error {
	err := execAll(ctx, tx,
		fmt.Sprintf(`SET LOCAL lock_timeout TO %d`, lockWait.Milliseconds()),
		`DROP SCHEMA IF EXISTS `+quote(live.name)+` CASCADE`,
		`ALTER SCHEMA `+quote(s.projectionID)+` RENAME TO `+quote(live.name),
		`SET LOCAL search_path TO `+quote(live.name)+`, public`, vacuumAgain, `SET LOCAL search_path TO public`)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, resetQuarantine, live.name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, moveQuarantine, s.projectionID, live.name); err != nil {
		return err
	}
	if err := s.noteOver(ctx, tx, old.position); err != nil {
		return err
	}
	if err := advance(ctx, tx, live, old, s.at); err != nil {
		return err
	}
	if err := advance(ctx, tx, s.lease, s.at, s.at); err != nil {
		return err // somebody else rebuilds it now
	}
	_, err = tx.Exec(ctx, deleteCheckpoint, s.projectionID)
	return err
}

// Skip lets a follower go on from the end of the log, without what it has not
// seen. It is for policies and what else is no read model, after the log was
// restored: clients that have stopped at what is not in it any more go on, too. The name is that of its Status.
func (r *Runner) Skip(ctx context.Context, name string) error {
	var isModel bool
	err := r.Pool.QueryRow(ctx, schemaExists, quote(name)).Scan(&isModel)
	if err == nil && isModel {
		err = errors.New("it is a read model, which can be rebuilt instead")
	}
	if err == nil {
		err = r.followed(ctx, name)
	}
	if err == nil {
		err = r.skip(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("skip %s to the end of the log: %w", name, err)
	}
	return nil
}

// deleteStops has clients that are slow, and others, go on with all.
const deleteStops = `DELETE FROM quarantine WHERE projection = $1 AND (paused AND slow OR client = ANY ($2))`

const selectFollowed = `SELECT EXISTS (SELECT FROM checkpoints WHERE name = $1)`

// followed fails where nobody ever followed the log under a name.
func (r *Runner) followed(ctx context.Context, projectionID string) error {
	var known bool
	err := r.Pool.QueryRow(ctx, selectFollowed, projectionID).Scan(&known)
	if err == nil && !known {
		err = errors.New("there is none of that name; kindred projections list shows them")
	}
	return err
}

func (r *Runner) skip(ctx context.Context, projectionID string) error {
	epoch, err := r.Log.Store.Epoch(ctx)
	if err != nil {
		return err
	}
	if err := r.lowerHeads(ctx); err != nil {
		return err
	}
	end, err := r.end(ctx)
	if err != nil {
		return err
	}
	return r.inPlaceOf(ctx, projectionID, epoch, func(ctx context.Context, l lease, old checkpoint) error {
		next := old
		next.epoch, next.position, next.event = epoch, end.Position, end.ID
		lost, err := r.stoppedElsewhere(ctx, projectionID, end.Position)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, deleteStops, projectionID, lost); err != nil {
				return err
			}
			return advance(ctx, tx, l, old, next)
		})
	})
}

const selectStops = `SELECT client, position, event_id FROM quarantine WHERE projection = $1 AND NOT slow`

// stoppedElsewhere lists the clients that have stopped at what the log does not hold, since it
// was restored: they cannot be resumed from there.
func (r *Runner) stoppedElsewhere(ctx context.Context, projectionID string, end eventstore.Position) (clients []id.Client, err error) {
	rows, _ := r.Pool.Query(ctx, selectStops, projectionID) // what it fails with, its rows end with
	stops, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Quarantined, err error) {
		err = row.Scan(&s.Client, &s.Position, &s.Event)
		return s, err
	})
	for _, s := range stops {
		held := s.Position <= end
		if held && s.Event != "" { // else it is being resumed, from there on
			held, err = holds(ctx, r.Log.Store, s.Position, s.Event)
		}
		if err != nil {
			break
		}
		if !held {
			clients = append(clients, s.Client)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look for where clients have stopped: %w", err)
	}
	return clients, nil
}

// holds says whether an event stands at a position of a log.
func holds(ctx context.Context, store eventstore.Store, position eventstore.Position, event id.Event) (bool, error) {
	record, err := store.At(ctx, position)
	if errors.Is(err, eventstore.ErrNotFound) {
		return false, nil
	}
	return err == nil && record.ID == event, err
}

// end is the last event of the log; its zero value where there is none.
func (r *Runner) end(ctx context.Context) (eventstore.Record, error) {
	head, err := r.Log.Store.Head(ctx)
	if err != nil || head == eventstore.Start {
		return eventstore.Record{}, err
	}
	return r.Log.Store.At(ctx, head)
}
