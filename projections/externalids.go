package projections

import (
	"context"
	"fmt"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// externalName is what a statement reads of a user to say how the client names it:
// the columns u.external, u.external_event, k.id AS key, k.client_key and
// k.wrapped, in this order.
type externalName struct {
	external readmodel.Sealed
	key      seal.WrappedKey
}

func (n *externalName) columns() []any {
	return []any{&n.external.Box, readmodel.Text(&n.external.Event), readmodel.Text(&n.key.ID), readmodel.Text(&n.key.Under), &n.key.Wrapped}
}

// open opens the external id of a user; nil: the user was erased just now.
func (n *externalName) open(ctx context.Context, r readmodel.Reader, client id.Client, user id.User) ([]byte, error) {
	return r.Open(ctx, n.key, string(user), n.external, client, eventstore.UserStream(client, user), "external_id")
}

// listWithExternalIDs reads a page of a list of items about users, with the users' external
// ids from the users model. The statement sql selects the fields of an item and then those
// of externalName; its last arguments are those of the page. about returns the user of an
// item, where its external id goes, and its place in the list. Where the users model does
// not know one of the users yet, the rows are read again once it has caught up. Items about
// users who were erased just now are left out.
func listWithExternalIDs[T any](ctx context.Context, r readmodel.Reader, of projector.Projection, client id.Client, eventual bool, page readmodel.Page,
	sql string, args []any, fields func(*T) []any, about func(*T) (user id.User, external *string, place eventstore.Position),
) ([]T, error) {
	type row struct {
		item T
		externalName
	}
	return readmodel.Filled(page, nil, func(page readmodel.Page) (found []T, more bool, last eventstore.Position, err error) {
		read := func() ([]row, error) {
			return readmodel.Query(ctx, r, of, client, eventual, sql, append(slices.Clip(args), string(page.After), page.Limit),
				func(r *row) []any { return append(fields(&r.item), r.columns()...) })
		}
		rows, err := read()
		if err == nil && slices.ContainsFunc(rows, func(r row) bool { return r.external.Event == "" }) {
			if _, err = readmodel.Count(ctx, r, Users{}, client, eventual, `SELECT 0 AS n`); err == nil {
				rows, err = read()
			}
		}
		if err != nil {
			return nil, false, "", err
		}
		for i := range rows {
			user, external, place := about(&rows[i].item)
			name, err := rows[i].open(ctx, r, client, user)
			if err != nil {
				return nil, false, "", err
			}
			if last = place; name != nil {
				*external = string(name)
				found = append(found, rows[i].item)
			}
		}
		return found, len(rows) == page.Limit, last, nil
	})
}

const externalIDs = `
SELECT u.id, u.erased, u.external, u.external_event, k.id AS key, k.client_key, k.wrapped
FROM users u LEFT JOIN subject_keys k ON k.client = u.client AND k.subject = u.id
WHERE u.client = $1 AND u.id = ANY($2)`

// ExternalIDs names users as their client does. Those who are gone are left
// out.
// Faults: building, overloaded, quarantined, stale.
func (m Users) ExternalIDs(ctx context.Context, client id.Client, eventual bool, users []id.User) (map[id.User]string, error) {
	names, _, err := m.externalIDs(ctx, client, eventual, users)
	return names, err
}

// ExternalIDsOfAll is ExternalIDs of users who were all created: those who are left out were
// erased. Where the model does not know one of them yet, it waits, and is [event.ErrUnnamed] if
// that does not help.
// Faults: building, overloaded, quarantined, stale.
func (m Users) ExternalIDsOfAll(ctx context.Context, client id.Client, eventual bool, users []id.User) (map[id.User]string, error) {
	users = slices.Compact(slices.Sorted(slices.Values(users)))
	names, known, err := m.externalIDs(ctx, client, eventual, users)
	if err == nil && known < len(users) && eventual {
		names, known, err = m.externalIDs(ctx, client, false, users)
	}
	if err == nil && known < len(users) {
		err = fault.New(fault.Unavailable, "stale", "A user who was just created cannot be read yet; try again.").After(time.Second)
		err = fmt.Errorf("%w: %w", event.ErrUnnamed, err)
	}
	return names, err
}

// externalIDs also counts the users whom the model knows, those who were erased among them.
func (m Users) externalIDs(ctx context.Context, client id.Client, eventual bool, users []id.User) (names map[id.User]string, known int, err error) {
	type row struct {
		id     id.User
		erased bool
		externalName
	}
	names = make(map[id.User]string, len(users))
	if len(users) == 0 {
		return names, 0, nil
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, externalIDs, []any{readmodel.Texts(users)},
		func(r *row) []any { return append([]any{readmodel.Text(&r.id), &r.erased}, r.columns()...) })
	if err != nil {
		return nil, 0, err
	}
	for _, r := range rows {
		if r.erased {
			continue
		}
		external, err := r.open(ctx, m.Reader, client, r.id)
		if err != nil {
			return nil, 0, err
		}
		if external != nil {
			names[r.id] = string(external)
		}
	}
	return names, len(rows), nil
}
