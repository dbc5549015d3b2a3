package segments

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/projections/readmodel"
)

const (
	eraseSegmentUsers = `DELETE FROM segment_users WHERE client = $1 AND id = ANY($2)`
	eraseChangesOf    = `DELETE FROM segment_changes WHERE client = $1 AND user_id = ANY($2) RETURNING position, coalesce(number, 0), entered, went`
	insertSegmentUser = `
INSERT INTO segment_users (client, id, number, external, external_event, traits, traits_event, created_at, updated_at, versions, due)
SELECT n.client, n.id, n.number, n.external, n.external_event, n.traits, n.traits_event, n.created_at, n.updated_at, n.versions::int[], n.due
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::timestamptz[], $9::timestamptz[], $10::text[], $11::timestamptz[])
	AS n (client, id, number, external, external_event, traits, traits_event, created_at, updated_at, versions, due)
ON CONFLICT (client, id) DO UPDATE SET traits = excluded.traits, traits_event = excluded.traits_event,
	updated_at = excluded.updated_at, versions = excluded.versions, due = excluded.due`
	updateJudged = `
UPDATE segment_users u SET versions = n.versions::int[], due = n.due
FROM unnest($2::bigint[], $3::text[], $4::timestamptz[]) AS n (number, versions, due) WHERE u.client = $1 AND u.number = n.number`
)

var (
	userColumns   = []string{"client", "id", "number", "external", "external_event", "traits", "traits_event", "created_at", "updated_at", "versions", "due"}
	changeColumns = []string{"client", "position", "user_id", "number", "changed_at", "entered", "went", "erased"}
)

// write writes users as they were judged, and what that changed.
func (c *segmented) write(ctx context.Context, touched map[id.User]*segmentUser, f flips) error {
	var created, kept, judged []*segmentUser
	var gone []string
	var numbers []int64 // of these
	for _, user := range readmodel.SortedKeys(touched) {
		switch u := touched[user]; {
		case u.erased:
			gone, numbers = append(gone, string(user)), append(numbers, u.number)
		case u.created:
			created = append(created, u)
		case u.changed:
			kept = append(kept, u)
		default:
			judged = append(judged, u)
		}
	}
	client := string(c.client)
	if len(gone) > 0 {
		if err := readmodel.Do(ctx, c.tx, "erase users of segments", eraseSegmentUsers, client, gone); err != nil {
			return err
		}
		if err := c.eraseChanges(ctx, gone, f.members); err != nil {
			return err
		}
		if err := c.eraseDeltas(ctx, numbers, f.members); err != nil {
			return err
		}
		for _, sql := range eraseKnown {
			if err := readmodel.Do(ctx, c.tx, "erase what is known of users", sql, client, gone); err != nil {
				return err
			}
		}
	}
	if err := copyRows(ctx, c.tx, "segment_users", userColumns, created, func(u *segmentUser) []any {
		return []any{
			client, string(u.id), u.number, u.external.Box, string(u.external.Event), u.traits.Box, string(u.traits.Event),
			u.createdAt, u.updatedAt, append([]int32{}, u.versions...), u.due,
		}
	}); err != nil {
		return err
	}
	of := slices.Repeat([]string{client}, len(kept))
	if err := writeUsers(ctx, c.tx, of, kept); err != nil {
		return err
	}
	if err := c.writeJudged(ctx, judged); err != nil {
		return err
	}
	if err := copyRows(ctx, c.tx, "segment_changes", changeColumns, f.changes, func(u userChange) []any {
		var number *int64
		if !u.erased {
			number = &u.number
		}
		return []any{client, string(u.position), string(u.user), number, u.at, u.entered, u.went, u.erased}
	}); err != nil {
		return err
	}
	return c.writeMembers(ctx, f.members)
}

// writeJudged writes which versions name users of whom nothing else has changed.
func (c *segmented) writeJudged(ctx context.Context, users []*segmentUser) error {
	if len(users) == 0 {
		return nil
	}
	return readmodel.Do(ctx, c.tx, "write judgements of users", updateJudged, string(c.client),
		readmodel.Column(users, func(u *segmentUser) int64 { return u.number }),
		readmodel.Column(users, func(u *segmentUser) string { return intArray(u.versions) }),
		readmodel.Column(users, func(u *segmentUser) *time.Time { return u.due }),
	)
}

// copyRows inserts rows, of which none is there yet.
func copyRows[T any](ctx context.Context, tx pgx.Tx, table string, columns []string, of []T, row func(T) []any) error {
	if len(of) == 0 {
		return nil
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromSlice(len(of), func(i int) ([]any, error) {
		return row(of[i]), nil
	})); err != nil {
		return fmt.Errorf("write %s: %w", table, err)
	}
	return nil
}

// writeUsers writes users, of a client each.
func writeUsers(ctx context.Context, tx pgx.Tx, of []string, users []*segmentUser) error {
	if len(users) == 0 {
		return nil
	}
	return readmodel.Do(ctx, tx, "write users of segments", insertSegmentUser, of,
		readmodel.Column(users, func(u *segmentUser) string { return string(u.id) }),
		readmodel.Column(users, func(u *segmentUser) int64 { return u.number }),
		readmodel.Column(users, func(u *segmentUser) []byte { return u.external.Box }),
		readmodel.Column(users, func(u *segmentUser) string { return string(u.external.Event) }),
		readmodel.Column(users, func(u *segmentUser) []byte { return u.traits.Box }),
		readmodel.Column(users, func(u *segmentUser) string { return string(u.traits.Event) }),
		readmodel.Column(users, func(u *segmentUser) time.Time { return u.createdAt }),
		readmodel.Column(users, func(u *segmentUser) time.Time { return u.updatedAt }),
		readmodel.Column(users, func(u *segmentUser) string { return intArray(u.versions) }),
		readmodel.Column(users, func(u *segmentUser) *time.Time { return u.due }),
	)
}

// eraseChanges takes out what changed of users, and out of the blocks what they said before it.
func (c *segmented) eraseChanges(ctx context.Context, users []string, of members) error {
	rows, _ := c.tx.Query(ctx, eraseChangesOf, string(c.client), users) // what it fails with, its rows end with
	var u userChange
	_, err := pgx.ForEachRow(rows, []any{readmodel.Text(&u.position), &u.number, &u.entered, &u.went}, func() error {
		if u.position > c.folded {
			c.unsay(of, u)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("erase changes of segments: %w", err)
	}
	return nil
}

// intArray writes an array as Postgres reads it: arrays of arrays have no unnest.
func intArray(numbers []int32) string {
	b := []byte{'{'}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}
