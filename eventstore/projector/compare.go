package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

// ErrLed: another process leads this projection.
var ErrLed = errors.New("another process leads it")

// CatchUp applies what the log holds to a projection that nobody leads, up to
// the log's end. Report, which may be nil, is called after each batch.
func (r *Runner) CatchUp(ctx context.Context, p Projection, report func(Rebuilding)) error {
	err := insist(ctx, func() error {
		return r.alone(ctx, ID(p), ErrLed, func(ctx context.Context, l lease) error {
			led, err := r.begin(ctx, p, l)
			if err != nil {
				return err
			}
			return led.catchUp(ctx, report)
		})
	})
	if err != nil {
		return fmt.Errorf("catch up with the log in %s: %w", p.Name(), err)
	}
	return nil
}

// A client's part that is being replaced may be behind the model's place, and one that was deleted
// has rows that are yet to go.
const selectPlaces = `
SELECT position, events FROM checkpoints c
WHERE name = ANY($1) AND NOT EXISTS (SELECT FROM quarantine q WHERE q.projection = c.name AND q.paused)
	AND NOT EXISTS (SELECT FROM public.deletions d WHERE d.projection = c.name)`

// Snapshot begins a transaction that sees all read models as of a moment. It waits, for
// as long as that takes, until as much was copied, built and compared.
var Snapshot = pgx.TxOptions{BeginQuery: `BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL idle_in_transaction_session_timeout TO 0`}

// Places tells how far read models have come, in the snapshot of a
// transaction. It is false where they are not all at one place, with all clients.
func Places(ctx context.Context, tx pgx.Tx, models []ReadModel) (at eventstore.Position, same bool, err error) {
	projectionIDs := SearchPath(models...)
	rows, _ := tx.Query(ctx, selectPlaces, projectionIDs) // what it fails with, its rows end with
	places, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (place eventstore.Position, err error) {
		return place, row.Scan(&place, nil)
	})
	if err != nil {
		return "", false, fmt.Errorf("read the checkpoints: %w", err)
	}
	if len(places) < len(projectionIDs) {
		return "", false, nil
	}
	for _, place := range places {
		if place != places[0] {
			return "", false, nil
		}
	}
	return places[0], true, nil
}

// Side is a database whose read models are compared with another's.
type Side struct {
	tx     pgx.Tx
	client id.Client // "": all
}

// Two logs hold the same events at other positions, so a position is compared
// as what it means: the ordinal of a client's event.
const makePlaces = `
CREATE TEMP TABLE places ON COMMIT DROP AS
SELECT position, client || '/' || ordinal AS place FROM HISTORY.history_events WHERE $1 = '' OR client = $1;`

// NewSide prepares a transaction for Compare. History is the read model that
// knows the clients' ordinals. Only the rows of a client are compared, unless
// that is empty.
func NewSide(ctx context.Context, tx pgx.Tx, history ReadModel, client id.Client) (Side, error) {
	fill := strings.ReplaceAll(makePlaces, "HISTORY", quote(ID(history)))
	if _, err := tx.Exec(ctx, fill, string(client)); err != nil {
		return Side{}, fmt.Errorf("read the places of events: %w", err)
	}
	if _, err := tx.Exec(ctx, `CREATE INDEX ON pg_temp.places (position); ANALYZE pg_temp.places`); err != nil {
		return Side{}, fmt.Errorf("read the places of events: %w", err)
	}
	return Side{tx, client}, nil
}

// Compare compares a read model of two databases row by row, by digests, and
// tells found each row that they do not share: Missing is what there has and
// here lacks. Positions need not be the same, but must mean the same events.
func Compare(ctx context.Context, m ReadModel, here, there Side, found func(Difference)) (checked Checked, err error) {
	tables, err := tablesOf(ctx, there.tx, ID(m))
	if err != nil {
		return checked, fmt.Errorf("compare %s: %w", m.Name(), err)
	}
	for _, table := range tables {
		a, err := here.digests(ctx, m, table)
		if err != nil {
			return checked, fmt.Errorf("compare %s: %w", table, err)
		}
		b, err := there.digests(ctx, m, table)
		if err == nil {
			err = merge(a, b, table, &checked, found)
			b.rows.Close()
		}
		a.rows.Close()
		if err != nil {
			return checked, fmt.Errorf("compare %s: %w", table, err)
		}
	}
	return checked, nil
}

const selectColumns = `
SELECT a.attname::text, a.atttypid = 'public.log_position'::regtype
FROM pg_attribute a WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

// inProgress says what is compared in the place of columns of a table in a schema, and which rows.
func inProgress(m ReadModel, schema, table string) (instead map[string]string, completed string) {
	instead, completed = map[string]string{}, `true`
	work := OptionsOf(m).InProgress
	in := strings.NewReplacer("SCHEMA.", quote(schema)+".")
	for column, other := range work.Columns {
		if name, of := strings.CutPrefix(column, table+"."); of {
			instead[name] = in.Replace(other)
		}
	}
	if condition := work.Completed[table]; condition != "" {
		completed = in.Replace(condition)
	}
	return instead, completed
}

func (s Side) digests(ctx context.Context, m ReadModel, table string) (*digested, error) {
	instead, completed := inProgress(m, ID(m), table)
	where := ` WHERE ` + completed
	name := quote(ID(m)) + "." + quote(table)
	rows, err := s.tx.Query(ctx, selectColumns, name)
	if err != nil {
		return nil, err
	}
	var (
		column   string
		position bool
		columns  []string
		args     []any
		whose    bool // the table says whose its rows are
	)
	if _, err := pgx.ForEachRow(rows, []any{&column, &position}, func() error {
		value := "t." + quote(column)
		if position {
			value = `coalesce((SELECT p.place FROM pg_temp.places p WHERE p.position = ` + value + `), ` + value + `)`
		}
		whose = whose || column == "client"
		if other, is := instead[column]; is {
			value = other
		}
		if value != "" {
			columns = append(columns, value)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	switch {
	case s.client != "" && whose:
		where, args = where+` AND t.client = $1`, []any{string(s.client)}
	case s.client != "":
		where = ` WHERE false`
	}
	var key string
	if err := s.tx.QueryRow(ctx, selectKeyColumns, name).Scan(&key); err != nil {
		return nil, err
	}
	found, err := s.tx.Query(ctx, `SELECT sha256(convert_to(ROW(`+strings.Join(columns, ", ")+`)::text, 'UTF8')) AS digest, `+key+
		` FROM `+name+` t`+where+` ORDER BY digest`, args...)
	return &digested{rows: found}, err
}
