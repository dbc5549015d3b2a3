package projector

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/backoff"
	"kindred/eventstore"
)

// Difference is a row that a live read model and one built anew do not share.
type Difference struct {
	Table   string
	Missing bool   // the live model lacks it; else the live model has it alone
	Row     string // the key's columns, as text; no more of the row is shown
}

// Checked is what Verify has compared.
type Checked struct {
	Rows        int64 // of the live model
	Differences int64
	// Incomplete is an ErrIncomplete, where the log holds what cannot be applied.
	Incomplete error
}

// Verify builds a read model anew beside the live one, which goes on serving,
// and compares both row by row as of one moment, by digests. It tells found
// each row that differs. What it builds is dropped after.
func (r *Runner) Verify(ctx context.Context, m ReadModel, report func(Rebuilding), found func(Difference)) (checked Checked, err error) {
	shadow := ID(m) + "_verify"
	err = r.alone(ctx, shadow, ErrRebuilding, func(ctx context.Context, l lease) error {
		if err := r.dropShadow(ctx, l); err != nil {
			return err
		}
		checked, err = r.verifyUnder(ctx, m, l, report, found)
		l.reached.Store(nil) // its checkpoint goes
		// Broken off as well: no later run goes on with what was built.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTime)
		defer cancel()
		return errors.Join(err, r.dropShadow(ctx, l))
	})
	if err != nil {
		return checked, fmt.Errorf("verify %s: %w", m.Name(), err)
	}
	return checked, nil
}

// verifyUnder does so under a lease, whose name the model beside has.
func (r *Runner) verifyUnder(ctx context.Context, m ReadModel, l lease, report func(Rebuilding), found func(Difference)) (checked Checked, err error) {
	s, err := r.beginShadow(ctx, m, l)
	if err != nil {
		return checked, err
	}
	if err := s.catchUp(ctx, report); err != nil {
		return checked, err
	}
	if err := r.awaitLive(ctx, m, s.at.position); err != nil {
		return checked, err
	}
	if checked, err = s.compare(ctx, found); err != nil {
		return checked, err
	}
	if err := r.complete(ctx, l.name, ""); errors.Is(err, ErrIncomplete) {
		checked.Incomplete = err
	} else if err != nil {
		return checked, err
	}
	return checked, nil
}

const (
	// limit: models | time that `projections verify` waits for the live model and its slow clients | {liveWithin}
	liveWithin = 5 * time.Minute
	selectLive = `SELECT position, EXISTS (` + selectSlow + `) OR EXISTS (` + allDeletions + `) FROM checkpoints WHERE name = $1`
)

// awaitLive waits until the live model has passed a position, no client of it is slow, and no
// rows of one that was deleted are yet to go. Where no process leads it any more, this one does meanwhile.
func (r *Runner) awaitLive(ctx context.Context, m ReadModel, position eventstore.Position) error {
	ctx, cancel := context.WithTimeoutCause(ctx, liveWithin, errBehind)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var leads sync.WaitGroup
	defer leads.Wait()
	leading, stop := context.WithCancel(ctx)
	defer stop()
	var rest backoff.Backoff
	for begun := false; ; begun = true {
		var at eventstore.Position
		var busy bool
		switch err := r.Pool.QueryRow(ctx, selectLive, ID(m)).Scan(&at, &busy); {
		case errors.Is(err, pgx.ErrNoRows):
			return errBehind // it has never served
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		case at >= position && !busy:
			return nil
		}
		if !begun {
			leads.Go(func() { fail(r.Run(leading, m)) })
		}
		if rest.Wait(ctx) != nil {
			return context.Cause(ctx)
		}
	}
}

// dropShadow drops what an earlier run may have left.
func (r *Runner) dropShadow(ctx context.Context, l lease) error {
	return pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `DROP SCHEMA IF EXISTS `+quote(l.name)+` CASCADE`); err != nil {
			return err
		}
		for _, rows := range []string{deleteCheckpoint, resetQuarantine} {
			if _, err := tx.Exec(ctx, rows, l.name); err != nil {
				return err
			}
		}
		return r.fence(ctx, tx, l)
	})
}

// compare takes a snapshot of the live model, brings the one beside to exactly
// where that is, and compares.
func (s *shadow) compare(ctx context.Context, found func(Difference)) (Checked, error) {
	var checked Checked
	err := pgx.BeginTxFunc(ctx, s.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(live pgx.Tx) error {
		var (
			place  eventstore.Position
			events int64
		)
		err := live.QueryRow(ctx, selectPlaces, SearchPath(s.model)).Scan(&place, &events)
		if errors.Is(err, pgx.ErrNoRows) {
			return errBehind
		}
		if err != nil {
			return fmt.Errorf("read the live model's place in the log: %w", err)
		}
		for s.at.events < events {
			page, err := s.Log.Store.ReadAll(ctx, s.at.position, int(min(MaxBatch, events-s.at.events)))
			if err != nil {
				return fmt.Errorf("read the log: %w", err)
			}
			if len(page) == 0 {
				return errors.New("the log ends before the live model's place in it")
			}
			if err := s.apply(ctx, page); err != nil {
				return err
			}
		}
		if s.at.position != place {
			return errBehind
		}
		tables, err := tablesOf(ctx, live, ID(s.model))
		if err != nil {
			return err
		}
		for _, table := range tables {
			if err := s.compareTable(ctx, live, table, &checked, found); err != nil {
				return fmt.Errorf("compare %s: %w", table, err)
			}
		}
		return nil
	})
	return checked, err
}

// errBehind: the live model, or a part of it that is being replaced, is behind the
// log as it was when catching up.
var errBehind = errors.New("the live model is behind the log; try again once it has caught up")

func tablesOf(ctx context.Context, tx pgx.Tx, schema string) ([]string, error) {
	rows, _ := tx.Query(ctx, `SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY 1`, schema) // what it fails with, its rows end with
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const selectKeyColumns = `
SELECT coalesce(string_agg('t.' || quote_ident(a.attname) || '::text', ' || '','' || ' ORDER BY array_position(i.indkey::int[], a.attnum::int)), '''''')
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = $1::regclass AND i.indisprimary`

// compareTable goes through the rows of both in the order of their digests.
func (s *shadow) compareTable(ctx context.Context, live pgx.Tx, table string, checked *Checked, found func(Difference)) error {
	var key string
	name := quote(ID(s.model)) + "." + quote(table)
	if err := live.QueryRow(ctx, selectKeyColumns, name).Scan(&key); err != nil {
		return err
	}
	rows, _ := live.Query(ctx, selectColumns, name) // what it fails with, its rows end with
	columns, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (column string, err error) { return column, row.Scan(&column, nil) })
	if err != nil {
		return err
	}
	conn, err := s.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	a, err := digests(ctx, live, s.model, ID(s.model), table, key, columns)
	if err != nil {
		return err
	}
	defer a.rows.Close()
	b, err := digests(ctx, conn, s.model, s.projectionID, table, key, columns)
	if err != nil {
		return err
	}
	defer b.rows.Close()
	return merge(a, b, table, checked, found)
}

// merge goes through the rows of two tables in the order of their digests.
func merge(a, b *digested, table string, checked *Checked, found func(Difference)) error {
	differ := func(missing bool, row string) {
		checked.Differences++
		found(Difference{Table: table, Missing: missing, Row: row})
	}
	inA, inB := a.next(), b.next()
	for inA || inB {
		order := strings.Compare(string(a.digest[:]), string(b.digest[:]))
		switch {
		case inA && (!inB || order < 0):
			checked.Rows++
			differ(false, a.key)
			inA = a.next()
		case inB && (!inA || order > 0):
			differ(true, b.key)
			inB = b.next()
		default:
			checked.Rows++
			inA, inB = a.next(), b.next()
		}
	}
	return errors.Join(a.err, b.err, a.rows.Err(), b.rows.Err())
}

// digested is the rows of a table, in the order of their digests.
type digested struct {
	rows   pgx.Rows
	digest [sha256.Size]byte
	key    string
	err    error
}

func digests(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, m ReadModel, schema, table, key string, columns []string,
) (*digested, error) {
	instead, completed := inProgress(m, schema, table)
	values := make([]string, 0, len(columns))
	for _, column := range columns {
		other, is := instead[column]
		switch {
		case !is:
			values = append(values, "t."+quote(column))
		case other != "":
			values = append(values, other)
		}
	}
	rows, err := db.Query(ctx, `SELECT sha256(convert_to(ROW(`+strings.Join(values, ", ")+`)::text, 'UTF8')) AS digest, `+key+` FROM `+
		pgx.Identifier{schema, table}.Sanitize()+` t WHERE `+completed+` ORDER BY digest`)
	if err != nil {
		return nil, err
	}
	return &digested{rows: rows}, nil
}

func (d *digested) next() bool {
	if !d.rows.Next() {
		return false
	}
	var raw []byte
	if d.err = d.rows.Scan(&raw, &d.key); d.err != nil || len(raw) != len(d.digest) {
		d.rows.Close()
		return false
	}
	d.digest = [sha256.Size]byte(raw)
	return true
}
