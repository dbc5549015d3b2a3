package projections

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kindred/coalesce"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
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

// wantedUsers is a client's user, or the page of users after a position.
type wantedUsers struct {
	client id.Client
	at     string
}

// foundUsers is what there is of wanted users, in order of creation, up to the
// one that does not fit on their page any more.
type foundUsers struct {
	at    projector.At
	users []storedUser
	size  int // bytes that they take on the page
}

// add adds a user, in whatever order they come.
func (f *foundUsers) add(u storedUser) {
	f.users = append(f.users, u)
	f.size += u.size()
	if f.size-u.size() < MaxPage {
		return
	}
	f.sort()
	for end := Fitting(f.users, (*storedUser).size) + 1; len(f.users) > end; {
		last := len(f.users) - 1
		f.size -= f.users[last].size()
		f.users = f.users[:last]
	}
}

func (f *foundUsers) sort() {
	slices.SortFunc(f.users, func(a, b storedUser) int {
		return strings.Compare(string(a.CreatedPosition), string(b.CreatedPosition))
	})
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
LEFT JOIN LATERAL ` + usersOf(`w.client`, which) + ` ON true` + joinKey(`w.client`)
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
		column(wanted, func(w wantedUsers) string { return string(w.client) }),
		column(wanted, func(w wantedUsers) string { return w.at }))
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
		head    = append([]any{&n, text(&at.Reached), text(&at.Head), &at.Quarantined, columns[0]}, make([]any, len(columns)-1)...)
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
