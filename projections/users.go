package projections

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/coalesce"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// Users is the read model of end users.
type Users struct {
	readmodel.Reader
	lookUps map[int]*coalesce.Coalescer[wantedUsers, foundUsers] // by the size of pages
}

// User is an end user.
type User struct {
	ID              id.User
	ExternalID      string
	Traits          json.RawMessage
	Revision        eventstore.Revision
	CreatedAt       time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position // of its creation: its place in lists
	Erased          bool                // since: nothing personal is left
	Size            int                 // bytes that it takes on a page
}

// Name of the read model.
func (Users) Name() string { return "users" }

// Wants says which events the model is made of.
func (Users) Wants(t string) bool { return strings.HasPrefix(t, "end_user.") }

// Version of the read model's tables.
func (Users) Version() int { return 3 }

// Options of the read model. Apply looks a user up who may have been there before.
func (Users) Options() projector.Options {
	return projector.Options{
		Key: projector.LateKey{
			DDL:     `ALTER TABLE users ADD PRIMARY KEY (client, id);`,
			LooksUp: func(t string) bool { return t != "end_user.created" },
		},
		Indexes: userIndexes,
	}
}

// Schema of the read model. A user who was erased leaves a row that says no
// more than that, so that whoever follows the changes hears of it.
func (Users) Schema() string {
	return `
CREATE TABLE users (
	client         text COLLATE "C" NOT NULL,
	id             text COLLATE "C" NOT NULL,
	created_position           log_position NOT NULL, -- position of the creation
	changed        log_position NOT NULL, -- position of the last change
	revision       bigint NOT NULL,
	erased         boolean NOT NULL,
	external       bytea,
	external_event text,
	traits         bytea,
	traits_event   text,
	created_at     timestamptz NOT NULL,
	updated_at     timestamptz NOT NULL
);`
}

var userIndexes = []string{
	`CREATE INDEX IF NOT EXISTS users_listed ON users (client, created_position) WHERE NOT erased;`,
	`CREATE INDEX IF NOT EXISTS users_changed ON users (client, changed);`,
	`CREATE INDEX IF NOT EXISTS users_updated ON users (client, updated_at, created_position) WHERE NOT erased;`,
}

// userRow is what a batch of events makes of one user.
type userRow struct {
	client                   id.Client
	id                       id.User
	createdPosition, changed eventstore.Position
	revision                 eventstore.Revision
	erased                   bool
	external, traits         readmodel.Carried
	createdAt                time.Time
	updatedAt                time.Time
}

var userColumnsWritten = []string{
	"client", "id", "created_position", "changed", "revision", "erased", "external", "external_event", "traits", "traits_event", "created_at", "updated_at",
}

const updateUsers = `
UPDATE users SET changed = new.changed, revision = new.revision, erased = new.erased, updated_at = new.updated_at,
	external = CASE WHEN new.erased THEN NULL ELSE users.external END,
	external_event = CASE WHEN new.erased THEN '' ELSE users.external_event END,
	traits = new.traits, traits_event = new.traits_event
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::boolean[], $6::bytea[], $7::text[], $8::timestamptz[])
	AS new (client, id, changed, revision, erased, traits, traits_event, updated_at)
WHERE users.client = new.client AND users.id = new.id`

// Apply changes the model by a batch of events.
func (Users) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	users := userBatch{rows: make(map[userKey]*userRow, len(batch))}
	for _, r := range batch {
		users.apply(r)
	}
	if len(users.created) > 0 {
		if err := insertUsers(ctx, tx, users.created); err != nil {
			return fmt.Errorf("insert users: %w", err)
		}
	}
	if len(users.updated) == 0 {
		return nil
	}
	updated, traits := users.updated, make([]readmodel.Sealed, len(users.updated))
	for i, row := range updated {
		var err error
		if traits[i], err = row.traits.Sealed(); err != nil {
			return err
		}
	}
	return readmodel.Do(ctx, tx, "update users", updateUsers,
		readmodel.Column(updated, func(r *userRow) string { return string(r.client) }),
		readmodel.Column(updated, func(r *userRow) string { return string(r.id) }),
		readmodel.Column(updated, func(r *userRow) string { return string(r.changed) }),
		readmodel.Column(updated, func(r *userRow) int64 { return int64(r.revision) }),
		readmodel.Column(updated, func(r *userRow) bool { return r.erased }),
		readmodel.Column(traits, func(s readmodel.Sealed) []byte { return s.Box }),
		readmodel.Column(traits, func(s readmodel.Sealed) string { return string(s.Event) }),
		readmodel.Column(updated, func(r *userRow) time.Time { return r.updatedAt }),
	)
}

// insertUsers writes rows in their order, which is that of lists. Each is made
// while the server takes the one before.
func insertUsers(ctx context.Context, tx pgx.Tx, rows []*userRow) error {
	var failed error // that of a row; the server's would hide it
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"users"}, userColumnsWritten, pgx.CopyFromSlice(len(rows), func(i int) (values []any, err error) {
		values, failed = rows[i].values()
		return values, failed
	}))
	return cmp.Or(failed, err)
}

func (r *userRow) values() ([]any, error) {
	external, err := r.external.Sealed()
	if err != nil {
		return nil, err
	}
	traits, err := r.traits.Sealed()
	if err != nil {
		return nil, err
	}
	return []any{
		string(r.client), string(r.id), string(r.createdPosition), string(r.changed), int64(r.revision), r.erased,
		external.Box, string(external.Event), traits.Box, string(traits.Event), r.createdAt, r.updatedAt,
	}, nil
}

// userBatch is the users whom a batch of events concerns, in the order of their
// first one.
type userBatch struct {
	rows             map[userKey]*userRow
	created, updated []*userRow
}

type userKey struct {
	client id.Client
	user   id.User
}

func (b *userBatch) apply(r eventstore.Recorded) {
	switch e := r.Event.(type) {
	case event.EndUserCreated:
		u := &userRow{
			createdPosition: r.Position, createdAt: r.RecordedAt,
			external: readmodel.Carried{Field: e.ExternalID, By: r.ID}, traits: readmodel.Carried{Field: e.Traits, By: r.ID},
		}
		b.created = append(b.created, u)
		b.note(r, e.User, u)
	case event.EndUserTraitsChanged:
		b.changed(r, e.User).traits = readmodel.Carried{Field: e.Traits, By: r.ID}
	case event.EndUserErased:
		u := b.changed(r, e.User)
		u.erased, u.external, u.traits = true, readmodel.Carried{}, readmodel.Carried{}
	}
}

func (b *userBatch) changed(r eventstore.Recorded, user id.User) *userRow {
	u := b.rows[userKey{r.Client, user}]
	if u == nil {
		u = &userRow{}
		b.updated = append(b.updated, u)
	}
	b.note(r, user, u)
	return u
}

func (b *userBatch) note(r eventstore.Recorded, user id.User, u *userRow) {
	b.rows[userKey{r.Client, user}] = u
	u.client, u.id, u.changed, u.revision, u.updatedAt = r.Client, user, r.Position, r.Revision, r.RecordedAt
}

// What storedUser.columns reads: a user u, and the key k that opens it.
const (
	userColumns   = `u.id, u.created_position, u.revision, u.external, u.external_event, u.traits, u.traits_event, u.created_at, u.updated_at`
	storedColumns = userColumns + `, k.id AS key, k.client_key, k.wrapped`
)

// usersOf selects those of a client's users u that a condition names.
func usersOf(client, where string) string {
	return `(SELECT ` + userColumns + ` FROM users u WHERE u.client = ` + client + ` AND NOT u.erased AND ` + where + `) u`
}

// SelectUsers selects the users of the client $1 that a condition names.
func SelectUsers(where string) string {
	return `SELECT ` + storedColumns + ` FROM ` + usersOf(`$1`, where) + readmodel.JoinKey(`$1`)
}

// changeSize is how much of a page a change takes.
func changeSize(c *UserChange) int { return c.Size }

// storedUser is a user as it stands in the tables, with the key that opens it.
type storedUser struct {
	User
	external, traits readmodel.Sealed
	key              seal.WrappedKey
}

func (r *storedUser) columns() []any {
	return []any{
		readmodel.Text(&r.ID), readmodel.Text(&r.CreatedPosition), (*int64)(&r.Revision), &r.external.Box, readmodel.Text(&r.external.Event), &r.traits.Box,
		readmodel.Text(&r.traits.Event), &r.CreatedAt, &r.UpdatedAt, readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped,
	}
}

func (r *storedUser) size() int { return len(r.external.Box) + len(r.traits.Box) }

// shown opens what is sealed of a user, who is Erased where the key is gone.
func (m Users) shown(ctx context.Context, client id.Client, r *storedUser) (User, error) {
	user, err := m.Subject(ctx, r.key, client, string(r.ID), eventstore.UserStream(client, r.ID))
	if err != nil {
		return User{}, err
	}
	external, err := user.Open("external_id", r.external)
	if err != nil {
		return User{}, err
	}
	traits, err := user.Open("traits", r.traits)
	if err != nil {
		return User{}, err
	}
	r.ExternalID, r.Traits, r.Erased, r.Size = string(external), traits, external == nil || traits == nil, r.size()
	return r.User, nil
}

// Stored returns at most limit of the users that a statement selects, as the model stands.
// Faults: building, overloaded, quarantined, stale.
func (m Users) Stored(ctx context.Context, client id.Client, limit int, sql string, args ...any) ([]User, error) {
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, sql, args, (*storedUser).columns)
	if err != nil {
		return nil, err
	}
	return m.opened(ctx, client, limit, rows)
}

// opened opens what is sealed of at most limit users.
func (m Users) opened(ctx context.Context, client id.Client, limit int, rows []storedUser) ([]User, error) {
	users := make([]User, min(limit, len(rows)))
	for i := range users {
		var err error
		if users[i], err = m.shown(ctx, client, &rows[i]); err != nil {
			return nil, err
		}
	}
	return users, nil
}

const foundUser = `
SELECT u.id FROM users u
WHERE u.client = $1 AND NOT u.erased AND u.id = (SELECT k.subject FROM subject_keys k WHERE k.client = $1 AND k.lookup = $2)`

// Find returns the id of the user that an external id names now, or fails
// with a fault of kind Missing.
// Faults: building, overloaded, quarantined, stale, user_unknown.
func (m Users) Find(ctx context.Context, client id.Client, eventual bool, external string) (id.User, error) {
	lookup, err := m.Vault.Lookup(ctx, client, event.ExternalName, external)
	if errors.Is(err, seal.ErrErased) { // with its client
		return "", fault.UnknownUser()
	}
	if err != nil {
		return "", err
	}
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, foundUser, []any{lookup}, readmodel.OneText[id.User])
	return readmodel.Only(found, err, fault.UnknownUser())
}

// UserChange is the newest state of a user that has changed.
type UserChange struct {
	ID     id.User
	Traits json.RawMessage // nil: erased
	At     eventstore.Position
	Size   int // bytes that its traits take on a page
}

const changedUsers = `
SELECT u.id, u.changed, u.traits, u.traits_event, k.id AS key, k.client_key, k.wrapped
FROM users u LEFT JOIN subject_keys k ON k.client = u.client AND k.subject = u.id
WHERE u.client = $1 AND u.changed > $2 ORDER BY u.changed LIMIT $3`

// changed returns users that were created, changed or erased after a position, as the
// model stands, in order of their last change: as many as limit where there are, or more
// than fit on a page.
func (m Users) changed(ctx context.Context, client id.Client, after eventstore.Position, limit int) ([]UserChange, error) {
	return m.changes(ctx, client, (*changedUser).size, changedUsers, string(after), limit)
}

type changedUser struct {
	UserChange
	traits readmodel.Sealed
	key    seal.WrappedKey
}

func (r *changedUser) size() int { return len(r.traits.Box) }

func (m Users) changes(ctx context.Context, client id.Client, size func(*changedUser) int, sql string, args ...any) ([]UserChange, error) {
	rows, err := readmodel.QueryPage(ctx, m.Reader, m, client, true, sql, args, func(r *changedUser) []any {
		return []any{
			&r.ID, &r.At, &r.traits.Box, readmodel.Text(&r.traits.Event),
			readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped,
		}
	}, size)
	if err != nil {
		return nil, err
	}
	changes := make([]UserChange, len(rows))
	for i, r := range rows {
		traits, err := m.Open(ctx, r.key, string(r.ID), r.traits, client, eventstore.UserStream(client, r.ID), "traits")
		if err != nil {
			return nil, err
		}
		changes[i] = UserChange{ID: r.ID, Traits: traits, At: r.At, Size: r.size()}
	}
	return changes, nil
}

const presentUsers = `
SELECT u.id, u.changed FROM users u WHERE u.client = $1 AND u.changed > $2 AND NOT u.erased ORDER BY u.changed LIMIT $3`

// Present returns at most limit users that are there as the model stands, without
// their traits, in order of their last change after a position.
// Faults: building, overloaded, quarantined, stale.
func (m Users) Present(ctx context.Context, client id.Client, after eventstore.Position, limit int) ([]UserChange, error) {
	return readmodel.Query(ctx, m.Reader, m, client, true, presentUsers, []any{string(after), limit},
		func(r *UserChange) []any { return []any{readmodel.Text(&r.ID), readmodel.Text(&r.At)} })
}

const countChanged = `
SELECT count(*) AS n FROM (SELECT FROM users u WHERE u.client = $1 AND u.changed > $2 LIMIT $3) AS changed`

// CountChanged counts the users that have changed after a position, up to a limit,
// as the model stands.
// Faults: building, overloaded, quarantined, stale.
func (m Users) CountChanged(ctx context.Context, client id.Client, after eventstore.Position, limit int) (int, error) {
	return readmodel.Count(ctx, m.Reader, m, client, true, countChanged, string(after), limit)
}

const (
	// ChangesAtOnce is how many changed users are read in one statement at most;
	// the first is for firstChanges.
	// limit: models | changed users of one statement | {ChangesAtOnce}, of those sampled {SampledAtOnce}
	ChangesAtOnce = 5_000
	firstChanges  = 500
	// SampledAtOnce is how many sampled ones are: of the largest, 4 MB.
	SampledAtOnce = 16
)

// AllChanged reads all changes after *reached, as the model stands, and moves it on.
// Faults: building, quarantined.
func (m Users) AllChanged(ctx context.Context, client id.Client, reached *eventstore.Position) iter.Seq2[UserChange, error] {
	return func(yield func(UserChange, error) bool) {
		for limit := firstChanges; ; {
			page, err := m.changed(ctx, client, *reached, limit)
			if err != nil {
				yield(UserChange{}, err)
				return
			}
			for _, change := range page {
				*reached = change.At
				if !yield(change, nil) {
					return
				}
			}
			if len(page) < limit && readmodel.Fitting(page, changeSize) == len(page) {
				return
			}
			limit = min(2*len(page), ChangesAtOnce)
		}
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
	if f.size-u.size() < readmodel.MaxPage {
		return
	}
	f.sort()
	for end := readmodel.Fitting(f.users, (*storedUser).size) + 1; len(f.users) > end; {
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

// Flatten makes of a user's traits what is compared.
func Flatten(user id.User, document json.RawMessage) (traits.Flat, error) {
	flat, err := traits.Flatten(document)
	if err != nil {
		return flat, fmt.Errorf("read the traits of %s: %w", user, err)
	}
	return flat, nil
}
