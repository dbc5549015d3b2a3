package projections

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kindred/coalesce"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Single users and pages of users that are asked for at the same time are read
// together: the statement for many does what that for one does, many times.

// Coalescing is the model with requests for users, and for pages of them,
// answered together while many come at once. Its copies share the coalescers.
func (m Users) Coalescing() Users {
	plain := m
	m.lookUps = map[int]*coalesce.Coalescer[wantedUsers, foundUsers]{}
	for _, size := range append(pageSizes(), singly) {
		sql := selectWanted(size)
		m.lookUps[size] = coalesced(min(lookUpsMost, lookUpUsers/max(size, 1)), func(ctx context.Context, wanted []wantedUsers) ([]foundUsers, error) {
			return plain.lookUp(ctx, sql, wanted)
		})
	}
	return m
}

const (
	lookUpsRunning = 2 // statements under way at a time
	// limit: models | questions of one statement | {lookUpsMost}, and {lookUpsWaiting} that wait
	lookUpsMost    = 128
	lookUpsWaiting = 4096
	lookUpsTimeout = 10 * time.Second

	lookUpUsers = 512 // in one statement
	singly      = 0   // stands for the size of a page where one user is wanted
)

// coalesced answers at most so many questions in one statement.
func coalesced[Q, A any](most int, answer func(context.Context, []Q) ([]A, error)) *coalesce.Coalescer[Q, A] {
	return &coalesce.Coalescer[Q, A]{
		Answer: answer, Most: most, Waiting: lookUpsWaiting, Running: lookUpsRunning, Timeout: lookUpsTimeout,
	}
}

// selectWanted selects pages of users, or single ones, for many w. The
// sub-selects hide how many from the planner, so that it plans once for any
// number.
func selectWanted(size int) string {
	which := `u.id = w.at LIMIT 1`
	if size != singly {
		which = `u.created_position > w.at ORDER BY u.created_position LIMIT ` + strconv.Itoa(size)
	}
	fresh, joins := projector.FreshEach(Users{})
	return `
SELECT w.n, ` + fresh + `, ` + storedColumns + `
FROM unnest((SELECT $1::text[]), (SELECT $2::text[])) WITH ORDINALITY AS w (client, at, n)` + joins + `
LEFT JOIN LATERAL ` + usersOf(`w.client`, which) + ` ON true` + readmodel.JoinKey(`w.client`)
}

// wanted reads what there is of wanted users.
func (m Users) wanted(ctx context.Context, eventual bool, size int, wanted wantedUsers) ([]storedUser, error) {
	var found foundUsers
	reader := projector.Reader{Of: m, Progress: m.Progress, AtOnce: m.AtOnce}
	err := reader.Read(ctx, eventual, func(ctx context.Context) (at projector.At, err error) {
		found, err = m.ask(ctx, size, wanted)
		return found.at, err
	})
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	return found.users, nil
}

func (m Users) ask(ctx context.Context, size int, wanted wantedUsers) (foundUsers, error) {
	if lookUp := m.lookUps[size]; lookUp != nil {
		return lookUp.Ask(ctx, wanted)
	}
	found, err := m.lookUp(ctx, selectWanted(size), []wantedUsers{wanted})
	if err != nil {
		return foundUsers{}, err
	}
	return found[0], nil
}

// lookUp finds what there is of all that is wanted, in one statement.
func (m Users) lookUp(ctx context.Context, sql string, wanted []wantedUsers) ([]foundUsers, error) {
	rows, err := m.Pool.Query(ctx, sql,
		readmodel.Column(wanted, func(w wantedUsers) string { return string(w.client) }),
		readmodel.Column(wanted, func(w wantedUsers) string { return w.at }))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make([]foundUsers, len(wanted))
	var (
		n       int64
		at      projector.At
		row     storedUser
		columns = row.columns() // the first one is the ID
		head    = append([]any{&n, readmodel.Text(&at.Reached), readmodel.Text(&at.Head), &at.Quarantined, columns[0]}, make([]any, len(columns)-1)...)
		rest    = append(make([]any, 5), columns[1:]...)
	)
	for rows.Next() {
		row = storedUser{}
		if err := rows.Scan(head...); err != nil {
			return nil, err
		}
		f := &found[n-1]
		f.at = at
		if row.ID == "" {
			continue // there is none
		}
		if err := rows.Scan(rest...); err != nil {
			return nil, err
		}
		f.add(row)
	}
	for i := range found {
		found[i].sort()
	}
	return found, rows.Err()
}

// page reads at most limit users in order of creation after a position.
func (m Users) page(ctx context.Context, client id.Client, eventual bool, after eventstore.Position, limit int) ([]User, error) {
	found, err := m.wanted(ctx, eventual, pageSize(limit), wantedUsers{client, string(after)})
	if err != nil {
		return nil, err
	}
	return m.opened(ctx, client, limit, found)
}

// UserQuery selects users. An empty field selects all. They are listed in order
// of creation, or of their last change where that is what selects them.
type UserQuery struct {
	IDs          []id.User
	UpdatedSince time.Time
	Page         readmodel.Page
}

// Place is where a user stands in the list.
func (q UserQuery) Place(u User) eventstore.Position {
	if q.UpdatedSince.IsZero() {
		return u.CreatedPosition
	}
	return eventstore.Position(strconv.FormatInt(u.UpdatedAt.UnixMicro(), 10) + "/" + string(u.CreatedPosition))
}

// updatedAfter is the time and the place at which a list in order of the last
// change goes on.
func (q UserQuery) updatedAfter(after eventstore.Position) (time.Time, eventstore.Position, error) {
	if after == eventstore.Start {
		return q.UpdatedSince, eventstore.Start, nil
	}
	micros, createdPosition, _ := strings.Cut(string(after), "/")
	at, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return time.Time{}, "", fmt.Errorf("read the place of a user: %w", err)
	}
	return time.UnixMicro(at), eventstore.Position(createdPosition), nil
}

// Each combination of filters is a statement of its own: one for all would be
// planned anew for every request.
const (
	UsersAmong = `u.id = ANY($2::text[])`
	usersAfter = `u.created_position > $2`
	usersSince = `(u.updated_at, u.created_position) > ($2::timestamptz, $3)`
	usersIn    = ` AND u.id = ANY($%d::text[])`

	byCreation = `u.created_position`
	byChange   = `u.updated_at, u.created_position`
)

// usersPage selects a page of users in an order.
func usersPage(where, order string, limit int) string {
	return SelectUsers(where+` ORDER BY `+order+` LIMIT `+strconv.Itoa(pageSize(limit))) + ` ORDER BY ` + order
}

// pageSizes are those that statements have: a plan that did not know how large
// a page is would seem so dear that each request would be planned for itself.
// One more than is shown tells whether there is a next page.
func pageSizes() []int { return []int{11, 21, 51, 101, 201} }

// pageSize is the least of them that holds as many.
func pageSize(limit int) int {
	for _, size := range pageSizes() {
		if limit <= size {
			return size
		}
	}
	return limit
}

// List returns users in the order of the query: as many as are asked for where
// there are, or more than fit on a page.
// Faults: building, overloaded, quarantined, stale.
func (m Users) List(ctx context.Context, client id.Client, eventual bool, q UserQuery) ([]User, error) {
	return readmodel.Filled(q.Page, UserSize, func(page readmodel.Page) ([]User, bool, eventstore.Position, error) {
		found, err := m.selected(ctx, client, eventual, q, page)
		if err != nil || len(found) == 0 {
			return nil, false, "", err
		}
		more := len(found) == page.Limit || readmodel.Fitting(found, UserSize) < len(found)
		last := q.Place(found[len(found)-1])
		return Readable(found), more, last, nil
	})
}

// UserSize is how much of a page a user takes.
func UserSize(u *User) int { return u.Size }

// selected reads a page of the users that a query selects.
func (m Users) selected(ctx context.Context, client id.Client, eventual bool, q UserQuery, page readmodel.Page) ([]User, error) {
	if q.IDs == nil && q.UpdatedSince.IsZero() {
		return m.page(ctx, client, eventual, page.After, page.Limit)
	}
	where, order := readmodel.Where{SQL: usersAfter, Args: []any{string(page.After)}}, byCreation
	if !q.UpdatedSince.IsZero() {
		at, createdPosition, err := q.updatedAfter(page.After)
		if err != nil {
			return nil, err
		}
		where.SQL, where.Args, order = usersSince, []any{at, string(createdPosition)}, byChange
	}
	if q.IDs != nil {
		where.And(usersIn, readmodel.Texts(q.IDs))
	}
	sql := usersPage(where.SQL, order, page.Limit)
	rows, err := readmodel.QueryPage(ctx, m.Reader, m, client, eventual, sql, where.Args, (*storedUser).columns, (*storedUser).size)
	if err != nil {
		return nil, err
	}
	return m.opened(ctx, client, page.Limit, rows)
}

// ListAll is List of everybody, also of those whose key was destroyed since.
// Faults: building, quarantined, stale.
func (m Users) ListAll(ctx context.Context, client id.Client, page readmodel.Page) ([]User, error) {
	return m.page(ctx, client, true, page.After, page.Limit)
}

// Readable leaves out those whose key is destroyed already, and whose erasure
// is on its way here.
func Readable(users []User) []User {
	return slices.DeleteFunc(users, func(u User) bool { return u.Erased })
}

// Get returns one user, or fails with a fault of kind Missing.
// Faults: building, quarantined, stale, user_unknown.
func (m Users) Get(ctx context.Context, client id.Client, eventual bool, user id.User) (User, error) {
	rows, err := m.wanted(ctx, eventual, singly, wantedUsers{client, string(user)})
	found, err := readmodel.Only(rows, err, fault.UnknownUser())
	if err != nil {
		return User{}, err
	}
	shown, err := m.shown(ctx, client, &found)
	if err == nil && shown.Erased {
		err = fault.UnknownUser()
	}
	return shown, err
}

// GetAny is Get of anybody, also of one whose key was destroyed since; empty where there
// is nobody.
// Faults: building, quarantined, stale.
func (m Users) GetAny(ctx context.Context, client id.Client, user id.User) ([]User, error) {
	found, err := m.wanted(ctx, true, singly, wantedUsers{client, string(user)})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	shown, err := m.shown(ctx, client, &found[0])
	return []User{shown}, err
}
