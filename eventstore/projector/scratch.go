package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/backoff"
	"kindred/eventstore"
)

// ErrBusy: there are as many throw-away schemas as there may be.
var ErrBusy = errors.New("too many are being built at once")

const (
	// limit: models | scratch schemas of all processes | {maxScratches}
	maxScratches = 16 // throw-away schemas at once, of all processes
	scratchWait  = 100 * time.Millisecond
	scratchTries = 20 // waits for one of them

	sweepTimeout = 20 * time.Second // of one schema, which a busy disk may take long to drop
)

// scratchPlace is what a lease is of. Each lease has a schema of its own, so that who lost
// one writes into no other's.
func scratchPlace(n int) string { return fmt.Sprintf("scratch_%d", n) }

func (l lease) scratchSchema() string { return fmt.Sprintf("%s_%d", l.name, l.epoch) }

// The tables fill once and go, so they need no log of the server's; whether a
// client is quarantined in the live models does not matter in these. A crash of
// the server empties them, under whatever lease, and whole with them.
const scratchTables = `
CREATE UNLOGGED TABLE quarantine (LIKE public.quarantine);
CREATE UNLOGGED TABLE whole AS SELECT`

// unlogged: a table that is made so is made once. ALTER TABLE SET UNLOGGED writes it and its indexes anew.
var unlogged = strings.NewReplacer("CREATE TABLE ", "CREATE UNLOGGED TABLE ")

// Scratch makes the empty tables of read models in a throw-away schema, and runs
// work with its name. The schema is dropped after; where that takes long, and after the death
// of this process, by the next call of SweepScratches. The context of
// work ends with the lease that keeps the schema from those. It fails
// with ErrBusy where there are too many already, and with ErrLost where the lease ended
// before work.
func (r *Runner) Scratch(ctx context.Context, models []ReadModel, work func(ctx context.Context, schema string) error) error {
	for range scratchTries {
		for n := range maxScratches {
			l, got, err := r.acquire(ctx, scratchPlace(n))
			if err != nil {
				return fmt.Errorf("make throw-away tables: %w", err)
			}
			if got {
				return r.hold(ctx, l, func(ctx context.Context) error { return r.scratch(ctx, l.scratchSchema(), models, work) })
			}
		}
		if err := backoff.Sleep(ctx, scratchWait); err != nil {
			return err
		}
	}
	return ErrBusy
}

func (r *Runner) scratch(ctx context.Context, schema string, models []ReadModel, work func(context.Context, string) error) error {
	err := pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		statements := []string{
			`DROP SCHEMA IF EXISTS ` + quote(schema) + ` CASCADE`, `CREATE SCHEMA ` + quote(schema),
			`SET LOCAL search_path TO ` + quote(schema) + `, public`,
		}
		for _, m := range models {
			statements = append(statements, unlogged.Replace(m.Schema()), OptionsOf(m).Key.DDL)
		}
		return execAll(ctx, tx, append(statements, scratchTables)...)
	})
	if err != nil {
		return fmt.Errorf("make throw-away tables: %w", err)
	}
	err = work(ctx, schema)
	if dropErr := r.dropScratch(context.WithoutCancel(ctx), schema, leaseTimeout); dropErr != nil {
		r.Logger.WarnContext(ctx, "throw-away tables stay until the next sweep", "schema", schema, "error", reason(dropErr))
	}
	return err
}

func (r *Runner) dropScratch(ctx context.Context, schema string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := r.Pool.Exec(ctx, `DROP SCHEMA IF EXISTS `+quote(schema)+` CASCADE`); err != nil {
		return fmt.Errorf("drop throw-away tables: %w", err)
	}
	return nil
}

// ScratchWhole says whether the throw-away tables that conn finds hold what was written
// into them. They do as long as conn lasts: a crash of the server ends it.
func ScratchWhole(ctx context.Context, conn *pgx.Conn) (whole bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM whole)`).Scan(&whole)
	return whole, err
}

const selectScratches = `SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'scratch\_%'`

// SweepScratches drops the throw-away schemas of processes that have died. One that cannot go yet,
// as while a dump reads it, is left for the next time, and so delays it by sweepTimeout.
func (r *Runner) SweepScratches(ctx context.Context) error {
	rows, _ := r.Pool.Query(ctx, selectScratches) // what it fails with, its rows end with
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list throw-away tables: %w", err)
	}
	var failed []error
	for _, name := range left {
		l, got, err := r.acquire(ctx, name[:strings.LastIndexByte(name, '_')])
		if err != nil {
			return fmt.Errorf("sweep throw-away tables: %w", err)
		}
		if !got {
			continue // it is in use
		}
		if err := r.hold(ctx, l, func(ctx context.Context) error { return r.dropScratch(ctx, name, sweepTimeout) }); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Fold applies records to the tables of a projection that the search path of
// tx finds, as its leader would: without those that cannot be applied.
func Fold(ctx context.Context, tx pgx.Tx, log *eventstore.Log, p Projection, records []eventstore.Record) error {
	a := newApplier(&Runner{Log: log}, p, "", lease{})
	attempt := func(items []item) (refused bool, err error) {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint
			_, err := a.together(ctx, tx, items)
			return err
		})
		if isPoison(err) && !tx.Conn().IsClosed() {
			return true, nil
		}
		return false, err
	}
	items, err := a.decode(records)
	if err == nil {
		var refused bool
		refused, err = attempt(items)
		for n := 0; refused && err == nil && n < len(items); n++ {
			_, err = attempt(items[n : n+1])
		}
	}
	if err != nil {
		return fmt.Errorf("apply to %s: %w", p.Name(), err)
	}
	return nil
}
