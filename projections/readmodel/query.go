package readmodel

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore/projector"
)

// Query runs a statement on the tables of a read model, with the client as $1
// and args from $2 on, once the model has reached what the client has been
// told; the check is part of the same statement. fields are where the columns
// of a row go.
// Faults: building, overloaded, quarantined, stale.
func Query[R any](ctx context.Context, r Reader, of projector.Projection, client id.Client, eventual bool,
	sql string, args []any, fields func(*R) []any,
) ([]R, error) {
	return QueryPage(ctx, r, of, client, eventual, sql, args, fields, nil)
}

// QueryPage is query for rows that may be large: it ends with the one that does not
// fit on the page any more.
// Faults: building, overloaded, quarantined, stale.
func QueryPage[R any](ctx context.Context, r Reader, of projector.Projection, client id.Client, eventual bool,
	sql string, args []any, fields func(*R) []any, size func(*R) int,
) (found []R, err error) {
	sql = `WITH ` + projector.Fresh(of) + `
SELECT fresh.reached, fresh.head, fresh.quarantined, q.*
FROM fresh LEFT JOIN (SELECT true AS present, p.* FROM (` + sql + `) p) q ON true`
	args = append([]any{string(client)}, args...)
	reader := projector.Reader{Of: of, Progress: r.Progress, AtOnce: r.AtOnce, Client: client, Look: r.InPlace}
	ctx, cancel := r.Bounded(ctx)
	defer cancel()
	err = reader.Read(ctx, eventual, func(ctx context.Context) (at projector.At, err error) {
		at, found, err = freshRows(ctx, r, sql, args, fields, size)
		return at, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", of.Name(), err)
	}
	return found, nil
}

// Where is the condition of a statement, with its arguments from $2 on. Each
// combination of filters is a statement of its own: one for all could not be
// planned for the index of one.
type Where struct {
	SQL  string
	Args []any
}

// And adds a condition, which names its one argument as $%d, or $%[1]d.
func (w *Where) And(condition string, arg any) {
	w.Args = append(w.Args, arg)
	w.SQL += fmt.Sprintf(condition, len(w.Args)+1)
}

// AndText is and where a filter is set.
func (w *Where) AndText(condition, arg string) {
	if arg != "" {
		w.And(condition, arg)
	}
}

// freshRows reads the rows of a statement that query has composed: how fresh
// they are, whether there is a row at all, and the row.
func freshRows[R any](ctx context.Context, r Reader, sql string, args []any, fields func(*R) []any, size func(*R) int) (
	at projector.At, found []R, err error,
) {
	rows, err := r.Pool.Query(ctx, sql, args...)
	if err != nil {
		return at, nil, err
	}
	defer rows.Close()
	var row R
	var present *bool
	into := append([]any{nil, nil, nil, nil}, fields(&row)...)
	taken := 0
	for first := true; rows.Next(); first = false {
		if first { // what every row says
			head := make([]any, len(into))
			copy(head, []any{&at.Reached, &at.Head, &at.Quarantined, &present})
			if err := rows.Scan(head...); err != nil {
				return at, nil, err
			}
			if present == nil {
				break // nothing but how fresh that is
			}
		}
		row = *new(R)
		if err := rows.Scan(into...); err != nil {
			return at, nil, err
		}
		found = append(found, row)
		if size != nil {
			if taken >= MaxPage {
				break // this one tells of more
			}
			taken += size(&row)
		}
	}
	rows.Close()
	return at, found, rows.Err()
}

// Only is the one row that was found, or fails with what says that there is none.
func Only[R any](found []R, err error, none *fault.Fault) (row R, _ error) {
	switch {
	case err != nil:
		return row, err
	case len(found) == 0:
		return row, none
	}
	return found[0], nil
}

// Count runs a statement that finds one number.
// Faults: building, overloaded, quarantined, stale.
func Count(ctx context.Context, r Reader, of projector.Projection, client id.Client, eventual bool, sql string, args ...any) (n int, err error) {
	found, err := Query(ctx, r, of, client, eventual, sql, args, func(n *int) []any { return []any{n} })
	if err == nil {
		n = found[0]
	}
	return n, err
}

// OfAll collects the rows of a statement about all clients; none while the tables of the model are
// yet to be made.
func OfAll[T any](ctx context.Context, r Reader, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := r.Pool.Query(ctx, sql, args...) // what it fails with, its rows end with
	found, err := pgx.CollectRows(rows, row)
	if projector.TablesMissing(err) {
		return nil, nil
	}
	return found, err
}

// Text takes a text column that may be NULL, which is "".
func Text[T ~string](into *T) any { return nullableText[T]{into} }

// OneText takes a row that is one such column.
func OneText[T ~string](into *T) []any { return []any{Text(into)} }

type nullableText[T ~string] struct{ into *T }

// ScanText takes the value (pgtype.TextScanner).
func (t nullableText[T]) ScanText(v pgtype.Text) error {
	*t.into = T(v.String)
	return nil
}

// Document takes a text column of JSON. Where that is NULL, into stays as it is.
func Document(into any) any { return jsonText{into} }

type jsonText struct{ into any }

// ScanText takes the value (pgtype.TextScanner).
func (t jsonText) ScanText(v pgtype.Text) error {
	if !v.Valid {
		return nil
	}
	return json.Unmarshal([]byte(v.String), t.into)
}

// Send runs the statements of an Apply in one round trip.
func Send(ctx context.Context, tx pgx.Tx, what string, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("apply to %s: %w", what, err)
	}
	return nil
}

// JoinKey adds the key of a client's user u.
func JoinKey(client string) string { return JoinKeyOf(client, `u.id`) }

// JoinKeyOf adds the key of a client's subject. Keys are looked up one by one,
// however long a page the planner expects: it plans once for all of them.
func JoinKeyOf(client, subject string) string {
	return `
LEFT JOIN LATERAL (
	SELECT k.id, k.client_key, k.wrapped FROM subject_keys k WHERE k.client = ` + client + ` AND k.subject = ` + subject + ` LIMIT 1
) k ON true`
}

// UsersAtOnce is how many users are read in one statement.
// limit: models | users with a consent, of one statement | {UsersAtOnce}
const UsersAtOnce = 20_000
