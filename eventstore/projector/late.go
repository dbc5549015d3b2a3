package projector

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"kindred/eventstore"
	"kindred/postgres"
)

// eachTable is a statement for each table of the first schema in the search
// path, with %I for its name, of which a condition is true.
func eachTable(statement, condition string) string {
	return `
DO $$ DECLARE name text; BEGIN
	FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND ` + condition + ` LOOP
		EXECUTE format('` + statement + `', name);
	END LOOP;
END $$;`
}

// While a rebuild fills its tables, a vacuum would only read and write them
// beside it, and keep their indexes waiting.
var (
	noVacuum    = eachTable(`ALTER TABLE %I SET (autovacuum_enabled = off)`, `true`)
	vacuumAgain = eachTable(`ALTER TABLE %I RESET (autovacuum_enabled)`, `true`)
	analyze     = eachTable(`ANALYZE (SKIP_LOCKED) %I`, `true`)
)

// largeClients has a client taken for a hundredth of each table from its next analysis on. Statements are planned once
// for all clients, as of an average one: where a large one stands among very many small ones, some rows of it, by their
// ids, would be looked for among all that an index which begins with the client has of it.
var largeClients = eachTable(`ALTER TABLE %I ALTER COLUMN client SET (n_distinct = 100)`,
	`EXISTS (SELECT FROM pg_attribute WHERE attrelid = format('%I', tablename)::regclass AND attname = 'client' AND attoptions IS NULL)`)

const (
	schemaExists    = `SELECT to_regnamespace($1) IS NOT NULL`
	resetCheckpoint = `UPDATE checkpoints SET position = '', event_id = '', events = 0 WHERE name = $1 AND lease_epoch = $2`
	resetQuarantine = `WITH gone AS (DELETE FROM left_out WHERE projection = $1) DELETE FROM quarantine WHERE projection = $1`
)

// makeTables makes the tables of a read model that has applied nothing yet, or
// has lost them.
func (l *leader) makeTables(ctx context.Context, tx pgx.Tx, m ReadModel) error {
	var exists bool
	if err := tx.QueryRow(ctx, schemaExists, quote(l.projectionID)).Scan(&exists); err != nil {
		return err
	}
	live, indexes := l.projectionID == ID(m), strings.Join(OptionsOf(m).Indexes, "")
	if exists && l.at.position != eventstore.Start {
		if !live {
			return nil
		}
		// The live model may have come to have these since its tables were made.
		if err := inSchema(ctx, tx, l.projectionID, indexes, largeClients); err != nil {
			return fmt.Errorf("add the indexes of %s: %w", l.projectionID, err)
		}
		return nil
	}
	l.at = checkpoint{epoch: l.at.epoch}
	schema, rest := quote(l.projectionID), noVacuum
	if live {
		rest = OptionsOf(m).Key.DDL + indexes
	}
	_, err := tx.Exec(ctx, `DROP SCHEMA IF EXISTS `+schema+` CASCADE; CREATE SCHEMA `+schema)
	if err == nil {
		err = inSchema(ctx, tx, l.projectionID, m.Schema(), rest, largeClients)
	}
	if err != nil {
		return fmt.Errorf("make the tables of %s: %w", l.projectionID, err)
	}
	if _, err := tx.Exec(ctx, resetCheckpoint, l.projectionID, l.lease.epoch); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, resetQuarantine, l.projectionID)
	return err
}

// inSchema runs statements that name the tables of a schema without it.
func inSchema(ctx context.Context, tx pgx.Tx, schema string, statements ...string) error {
	all := append([]string{`SET LOCAL search_path TO ` + quote(schema) + `, public`}, statements...)
	return execAll(ctx, tx, append(all, `SET LOCAL search_path TO public`)...)
}

func execAll(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

const selectKeyed = `SELECT EXISTS (SELECT FROM pg_constraint WHERE connamespace = to_regnamespace($1) AND contype = 'p')`

// findKey notes whether the model's key is yet to be made. The live model has
// it from the start.
func (l *leader) findKey(ctx context.Context, tx pgx.Tx, m ReadModel) error {
	key := OptionsOf(m).Key
	if key.DDL == "" || l.projectionID == ID(m) {
		return nil
	}
	var keyed bool
	err := tx.QueryRow(ctx, selectKeyed, quote(l.projectionID)).Scan(&keyed)
	if err == nil && !keyed {
		l.unkeyed = key
	}
	return err
}

// makeKeyFor makes the key, if it is yet to be made and an item needs it.
func (l *leader) makeKeyFor(ctx context.Context, items []item) error {
	if l.unkeyed.DDL == "" || !slices.ContainsFunc(items, func(i item) bool { return !i.passed && l.unkeyed.LooksUp(i.Type) }) {
		return nil
	}
	return l.makeKey(ctx)
}

func (l *leader) makeKey(ctx context.Context) error {
	if l.unkeyed.DDL == "" {
		return nil
	}
	if err := l.define(ctx, l.unkeyed.DDL); err != nil {
		return fmt.Errorf("make the key of %s: %w", l.projectionID, err)
	}
	l.unkeyed = LateKey{}
	return nil
}

// finish makes what was left for after the bulk, and what queries are planned
// by.
func (s *shadow) finish(ctx context.Context) error {
	if err := s.makeKey(ctx); err != nil {
		return err
	}
	making, within := errgroup.WithContext(ctx)
	for _, index := range OptionsOf(s.model).Indexes {
		making.Go(func() error { return s.define(within, index) })
	}
	if err := making.Wait(); err != nil {
		return fmt.Errorf("make the indexes of %s: %w", s.projectionID, err)
	}
	return s.define(ctx, analyze)
}

const (
	roomToSort = `SET LOCAL maintenance_work_mem TO '256MB'`
	oneWorker  = `SET LOCAL max_parallel_maintenance_workers TO 0` // keeps a statement to one processor
)

// define runs DDL on the tables, which are full.
func (l *leader) define(ctx context.Context, ddl string) error {
	settings := roomToSort
	if l.throttle.busy(ctx) { // asked here, since who holds a connection must not wait for another
		settings += `;` + oneWorker
	}
	return pgx.BeginTxFunc(ctx, l.Pool, pgx.TxOptions{BeginQuery: l.start}, func(tx pgx.Tx) error {
		if err := execAll(ctx, tx, settings, ddl); err != nil {
			return err
		}
		return l.fence(ctx, tx, l.lease)
	})
}

// callOffVacuum ends a vacuum of the live tables, which would hold up the one
// that drops them, and with it everybody else: the server gives way to a lock
// that no reader or writer waits for.
func (s *shadow) callOffVacuum(ctx context.Context) error {
	projectionID := ID(s.model)
	err := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		tables, err := tablesOf(ctx, tx, projectionID)
		if err != nil || len(tables) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout TO %d`, lastLockWait.Milliseconds())); err != nil {
			return err
		}
		for _, table := range tables {
			if _, err := tx.Exec(ctx, `LOCK TABLE `+pgx.Identifier{projectionID, table}.Sanitize()+` IN SHARE UPDATE EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		return nil
	})
	if postgres.LockTimedOut(err) {
		return nil // it does not give way: an operator's own, or one against wraparound
	}
	return err
}
