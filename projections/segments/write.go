package segments

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/projections/readmodel"
)

const (
	eraseSegmentUsers = `DELETE FROM segment_users WHERE client = $1 AND id = ANY($2)`
	eraseChangesOf    = `DELETE FROM segment_changes WHERE client = $1 AND user_id = ANY($2) RETURNING position, coalesce(number, 0), entered, went`
	updateUsers       = `
UPDATE segment_users u SET traits = n.traits, traits_event = n.traits_event, updated_at = n.updated_at, versions = n.versions::int[], due = n.due
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::timestamptz[], $6::text[], $7::timestamptz[])
	AS n (client, id, traits, traits_event, updated_at, versions, due) WHERE u.client = n.client AND u.id = n.id`
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
	var changed []userOfClient
	var judged []*segmentUser
	var gone []string
	var numbers []int64 // of these
	for _, user := range readmodel.SortedKeys(touched) {
		switch u := touched[user]; {
		case u.erased:
			gone, numbers = append(gone, string(user)), append(numbers, u.number)
		case u.changed:
			changed = append(changed, userOfClient{c.client, u})
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
	if err := writeUsers(ctx, c.tx, changed); err != nil {
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

type userOfClient struct {
	client id.Client
	*segmentUser
}

// writeUsers writes users that events made or changed.
func writeUsers(ctx context.Context, tx pgx.Tx, users []userOfClient) error {
	var created, changed []userOfClient
	for _, u := range users {
		if u.created {
			created = append(created, u)
		} else {
			changed = append(changed, u)
		}
	}
	if err := copyRows(ctx, tx, "segment_users", userColumns, created, func(u userOfClient) []any {
		return []any{
			string(u.client), string(u.id), u.number, u.external.Box, string(u.external.Event), u.traits.Box, string(u.traits.Event),
			u.createdAt, u.updatedAt, append([]int32{}, u.versions...), u.due,
		}
	}); err != nil || len(changed) == 0 {
		return err
	}
	return readmodel.Do(ctx, tx, "write users of segments", updateUsers,
		readmodel.Column(changed, func(u userOfClient) string { return string(u.client) }),
		readmodel.Column(changed, func(u userOfClient) string { return string(u.id) }),
		readmodel.Column(changed, func(u userOfClient) []byte { return u.traits.Box }),
		readmodel.Column(changed, func(u userOfClient) string { return string(u.traits.Event) }),
		readmodel.Column(changed, func(u userOfClient) time.Time { return u.updatedAt }),
		readmodel.Column(changed, func(u userOfClient) string { return intArray(u.versions) }),
		readmodel.Column(changed, func(u userOfClient) *time.Time { return u.due }),
	)
}

// eraseChanges takes out what changed of users, and out of the blocks what they said before it.
func (c *segmented) eraseChanges(ctx context.Context, users []string, of members) error {
	var u userChange
	return c.each(ctx, "erase changes of segments", []any{readmodel.Text(&u.position), &u.number, &u.entered, &u.went}, func() {
		if u.position > c.folded {
			c.unsay(of, u)
		}
	}, eraseChangesOf, users)
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
