// Package pgkeys keeps the wrapped keys of package seal in Postgres: what it
// has answered is committed, and a destroyed key is never there again.
package pgkeys

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/postgres"
)

// Keys is the key table. It fulfils seal.Keys.
type Keys struct{ Pool *pgxpool.Pool }

var _ seal.Keys = Keys{}

const anySealed = `SELECT EXISTS (SELECT FROM client_keys)`

// Any says whether there is a key at all, and so what is sealed.
func (k Keys) Any(ctx context.Context) (any bool, err error) {
	err = k.Pool.QueryRow(ctx, anySealed).Scan(&any)
	return any, err
}

// table names where keys of a kind stand.
func table(kind seal.Kind) string {
	if kind == seal.Pepper {
		return "peppers"
	}
	return "client_keys"
}

const selectRoot = `SELECT id, master, wrapped FROM %s WHERE client = $1`

// Root finds a root key.
func (k Keys) Root(ctx context.Context, kind seal.Kind, client id.Client) (seal.WrappedKey, error) {
	key, err := k.one(ctx, fmt.Sprintf(selectRoot, table(kind)), client)
	if err != nil {
		return key, fmt.Errorf("read the %s of %q: %w", kind, client, err)
	}
	return key, nil
}

const insertRoot = `
INSERT INTO %s (client, id, master, wrapped) VALUES ($1, $2, $3, $4)
ON CONFLICT (client) DO NOTHING`

// MakeRoot stores a root key unless there is one.
func (k Keys) MakeRoot(ctx context.Context, key seal.RootKey) (seal.WrappedKey, error) {
	if err := k.change(ctx, 1, fmt.Sprintf(insertRoot, table(key.Kind)),
		key.Client, key.ID, key.Under, key.Wrapped); err != nil {
		return seal.WrappedKey{}, fmt.Errorf("store the %s of %q: %w", key.Kind, key.Client, err)
	}
	return k.Root(ctx, key.Kind, key.Client)
}

const selectRootsNotUnder = `
(SELECT 'client key', client, id, master, wrapped FROM client_keys WHERE master <> $1 AND wrapped <> '' LIMIT $2)
UNION ALL
(SELECT 'pepper', client, id, master, wrapped FROM peppers WHERE master <> $1 AND wrapped <> '' LIMIT $2)
LIMIT $2`

// RootsNotUnder lists root keys that another master key wraps.
func (k Keys) RootsNotUnder(ctx context.Context, master string, limit int) ([]seal.RootKey, error) {
	rows, _ := k.Pool.Query(ctx, selectRootsNotUnder, master, limit) // what it fails with, its rows end with
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key seal.RootKey, err error) {
		err = row.Scan(&key.Kind, &key.Client, &key.ID, &key.Under, &key.Wrapped)
		return key, err
	})
	if err != nil {
		return nil, fmt.Errorf("list root keys: %w", err)
	}
	return keys, nil
}

// What was destroyed since it was listed stays a tombstone.
const updateRoots = `
UPDATE %s AS k SET master = n.master, wrapped = n.wrapped
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) AS n (client, id, master, wrapped)
WHERE k.client = n.client AND k.id = n.id AND k.wrapped <> ''`

// Rewrap stores root keys in their new wrapping, all or none.
func (k Keys) Rewrap(ctx context.Context, keys []seal.RootKey) error {
	batch := &pgx.Batch{}
	for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
		var clients, names, masters []string
		var wrapped [][]byte
		for _, key := range keys {
			if key.Kind == kind {
				clients, names = append(clients, string(key.Client)), append(names, key.ID)
				masters, wrapped = append(masters, key.Under), append(wrapped, key.Wrapped)
			}
		}
		batch.Queue(fmt.Sprintf(updateRoots, table(kind)), clients, names, masters, wrapped)
	}
	if err := k.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store rewrapped keys: %w", err)
	}
	return nil
}

const selectSubject = `SELECT id, client_key, wrapped FROM subject_keys WHERE client = $1 AND subject = $2`

// Subject finds the key of a subject.
func (k Keys) Subject(ctx context.Context, client id.Client, subject string) (seal.WrappedKey, error) {
	key, err := k.one(ctx, selectSubject, client, subject)
	if err != nil {
		return key, fmt.Errorf("read the key of %s: %w", subject, err)
	}
	return key, nil
}

// The order of the inserts keeps two processes from waiting for each other. A
// row that another transaction commits while this one waits for it shows up
// in neither half; the next try sees it.
const insertSubjects = `
WITH wanted AS (
	SELECT client, subject, id, client_key, wrapped, nullif(lookup, '') AS lookup
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[])
		AS w (client, subject, id, client_key, wrapped, lookup)
), present AS (
	SELECT k.client, k.subject, k.id, k.client_key, k.wrapped, k.lookup
	FROM subject_keys k JOIN wanted w USING (client, subject)
	UNION
	SELECT k.client, k.subject, k.id, k.client_key, k.wrapped, k.lookup
	FROM subject_keys k JOIN wanted w USING (client, lookup)
), made AS (
	INSERT INTO subject_keys (client, subject, id, client_key, wrapped, lookup)
	SELECT client, subject, id, client_key, wrapped, lookup FROM wanted w
	WHERE NOT EXISTS (SELECT FROM present p WHERE p.client = w.client AND p.subject = w.subject)
		AND NOT EXISTS (SELECT FROM present p WHERE p.client = w.client AND p.lookup = w.lookup)
	ORDER BY lookup, client COLLATE "C", subject COLLATE "C"
	ON CONFLICT DO NOTHING
	RETURNING client, subject, id, client_key, wrapped, lookup
)
SELECT client, subject, id, client_key, wrapped, lookup FROM present
UNION ALL
SELECT client, subject, id, client_key, wrapped, lookup FROM made`

const makeTries = 3

// MakeSubjects stores the keys that are missing: one statement, and another
// only where a concurrent one made the same.
func (k Keys) MakeSubjects(ctx context.Context, keys []seal.SubjectKey) ([]seal.SubjectKey, error) {
	type name struct {
		client   id.Client
		by, what string // a subject's name, or its lookup
	}
	const named, looked = "name", "lookup"
	found := make(map[name]seal.SubjectKey, len(keys))
	standing := func(key seal.SubjectKey) (seal.SubjectKey, bool) {
		own, done := found[name{key.Client, named, key.Subject}]
		if !done && key.Lookup != nil {
			own, done = found[name{key.Client, looked, string(key.Lookup)}]
		}
		return own, done
	}
	for range makeTries {
		var clients, subjects, names, roots []string
		var wrapped, lookups [][]byte
		for _, key := range keys {
			if _, done := standing(key); !done {
				clients, subjects = append(clients, string(key.Client)), append(subjects, key.Subject)
				names, roots = append(names, key.ID), append(roots, key.Under)
				wrapped, lookups = append(wrapped, key.Wrapped), append(lookups, key.Lookup)
			}
		}
		if len(clients) == 0 {
			break
		}
		rows, _ := k.Pool.Query(ctx, insertSubjects, clients, subjects, names, roots, wrapped, lookups) // what it fails with, its rows end with
		var key seal.SubjectKey
		if _, err := pgx.ForEachRow(rows, []any{&key.Client, &key.Subject, &key.ID, &key.Under, &key.Wrapped, &key.Lookup}, func() error {
			found[name{key.Client, named, key.Subject}] = key
			if key.Lookup != nil {
				found[name{key.Client, looked, string(key.Lookup)}] = key
			}
			return nil
		}); err != nil {
			if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
				switch pg.ConstraintName {
				case "subject_keys_epoch":
					err = fmt.Errorf("%w: %w", seal.ErrEpoch, err)
				case "subject_keys_client":
					err = fmt.Errorf("%w: %w", seal.ErrDeleted, err)
				}
			}
			return nil, fmt.Errorf("make keys: %w", err)
		}
	}
	stored := make([]seal.SubjectKey, len(keys))
	for i, key := range keys {
		var done bool
		if stored[i], done = standing(key); !done {
			return nil, errors.New("make keys: a key is neither there nor can it be made")
		}
	}
	return stored, nil
}

// The sub-selects hide how many are wanted from the planner, which would plan anew for fewer than
// ten: 125 µs.
const findSubjects = `
SELECT coalesce(k.client, ''), coalesce(k.subject, ''), coalesce(k.id, ''), coalesce(k.client_key, ''), k.wrapped
FROM unnest((SELECT $1::text[]), (SELECT $2::bytea[])) WITH ORDINALITY AS w (client, lookup, n) LEFT JOIN LATERAL (
	SELECT client, subject, id, client_key, wrapped FROM subject_keys WHERE client = w.client AND lookup = w.lookup LIMIT 1) k ON true
ORDER BY w.n`

// Find finds subjects by their lookups.
func (k Keys) Find(ctx context.Context, wanted []seal.Lookup) ([]seal.SubjectKey, error) {
	clients, lookups := make([]string, len(wanted)), make([][]byte, len(wanted))
	for i, w := range wanted {
		clients[i], lookups[i] = string(w.Client), w.Value
	}
	rows, err := k.Pool.Query(ctx, findSubjects, clients, lookups)
	if err == nil {
		var found []seal.SubjectKey
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (key seal.SubjectKey, err error) {
			return key, row.Scan(&key.Client, &key.Subject, &key.ID, &key.Under, &key.Wrapped)
		})
		if err == nil {
			return found, nil
		}
	}
	return nil, fmt.Errorf("look subjects up: %w", err)
}

// LookupOf returns the lookup of a subject.
func (k Keys) LookupOf(ctx context.Context, client id.Client, subject string) (lookup []byte, err error) {
	err = k.Pool.QueryRow(ctx, `SELECT lookup FROM subject_keys WHERE client = $1 AND subject = $2`, client, subject).Scan(&lookup)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read the lookup of %s: %w", subject, err)
	}
	return lookup, nil
}

// Each is a statement of its own, which one index answers.
const (
	allUsers = `
SELECT client, subject, lookup FROM subject_keys
WHERE subject >= 'usr_' AND left(subject, 4) = 'usr_' AND wrapped IS NOT NULL
	AND (subject, client) > ($1, $2) AND ($3 = '' OR client = $3) ORDER BY subject, client LIMIT $4`
	usersUnfound = `
SELECT client, subject, lookup FROM subject_keys
WHERE lookup IS NULL AND wrapped IS NOT NULL AND left(subject, 4) = 'usr_'
	AND (subject, client) > ($1, $2) AND ($3 = '' OR client = $3) ORDER BY subject, client LIMIT $4`
)

// Users implements [eventstore.Lookups].
func (k Keys) Users(ctx context.Context, client id.Client, missing bool, after seal.SubjectKey, limit int) ([]seal.SubjectKey, error) {
	sql := allUsers
	if missing {
		sql = usersUnfound
	}
	rows, err := k.Pool.Query(ctx, sql, after.Subject, string(after.Client), string(client), limit)
	if err == nil {
		var users []seal.SubjectKey
		users, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (user seal.SubjectKey, err error) {
			return user, row.Scan(&user.Client, &user.Subject, &user.Lookup)
		})
		if err == nil {
			return users, nil
		}
	}
	return nil, fmt.Errorf("list users: %w", err)
}

// Who was erased meanwhile gets none.
const setLookups = `
UPDATE subject_keys k SET lookup = nullif(n.lookup, '')
FROM (
	SELECT DISTINCT ON (client, nullif(lookup, ''), CASE WHEN lookup = '' THEN n END) client, subject, lookup
	FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS w (client, subject, lookup, n)
) n
WHERE k.client = n.client AND k.subject = n.subject AND k.wrapped IS NOT NULL
	AND NOT EXISTS (SELECT FROM subject_keys other WHERE other.client = n.client AND other.lookup = n.lookup)`

// SetLookups implements [eventstore.Lookups].
func (k Keys) SetLookups(ctx context.Context, keys []seal.SubjectKey) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	clients, subjects, lookups := make([]string, len(keys)), make([]string, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		clients[i], subjects[i], lookups[i] = string(key.Client), key.Subject, append([]byte{}, key.Lookup...)
	}
	tag, err := k.Pool.Exec(ctx, setLookups, clients, subjects, lookups)
	if err != nil {
		return 0, fmt.Errorf("set lookups: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

const destroySubject = `
INSERT INTO subject_keys (client, subject, id, client_key, destroyed_at) VALUES ($1, $2, '', '', now())
ON CONFLICT (client, subject) DO UPDATE SET wrapped = NULL, lookup = NULL, destroyed_at = now()
WHERE subject_keys.wrapped IS NOT NULL`

// Destroy leaves a tombstone. It names the epoch of the key until that is over.
func (k Keys) Destroy(ctx context.Context, client id.Client, subject string) error {
	if err := k.change(ctx, 1, destroySubject, client, subject); err != nil {
		return fmt.Errorf("destroy the key of %s: %w", subject, err)
	}
	return nil
}

const (
	// destroyBatch is how many keys one statement destroys.
	// limit: log | keys of a deleted client that are destroyed in one statement | {destroyBatch}
	destroyBatch = 5_000
	// Whoever makes keys of the client is done before, or is refused, see check_client_keys; and two
	// that destroy them come one after the other, since they find keys in no certain order.
	lockClient = `SELECT FROM public.client_keys WHERE client = $1 FOR UPDATE`
	// No key leaves an epoch as long as the epochs are held: what a look finds is all.
	holdEpochs = `SELECT count(*) FROM (SELECT FROM public.epochs FOR KEY SHARE) e`
	// A client's keys are found by what they are under, which an index holds.
	destroySubjects = `
UPDATE public.subject_keys k SET wrapped = NULL, lookup = NULL, destroyed_at = now()
FROM (
	SELECT s.client, s.subject FROM public.client_keys c, LATERAL (SELECT c.id AS under UNION ALL SELECT e.id || '/' || c.id FROM public.epochs e) u
	JOIN public.subject_keys s ON s.client_key = u.under AND s.wrapped IS NOT NULL AND s.client = $1
	WHERE c.client = $1 LIMIT $2
) d
WHERE k.client = d.client AND k.subject = d.subject`
	destroyRoot = `
INSERT INTO %s AS k (client, id, master, wrapped) VALUES ($1, '', '', '')
ON CONFLICT (client) DO UPDATE SET wrapped = '', master = '' WHERE k.wrapped <> ''`
)

// DestroyClient destroys a client's root keys, and some more of the keys under them.
func (k Keys) DestroyClient(ctx context.Context, client id.Client) (more bool, err error) {
	err = pgx.BeginFunc(ctx, k.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockClient, client); err != nil {
			return err
		}
		for _, kind := range []seal.Kind{seal.ClientKey, seal.Pepper} {
			if _, err := tx.Exec(ctx, fmt.Sprintf(destroyRoot, table(kind)), client); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, holdEpochs); err != nil {
			return err
		}
		done, err := tx.Exec(ctx, destroySubjects, client, destroyBatch)
		more = done.RowsAffected() == destroyBatch
		return err
	})
	if err != nil || more {
		return more, err
	}
	return false, postgres.Confirm(ctx, k.Pool) // what was destroyed before need not have been acknowledged
}

const burySubjects = `
INSERT INTO subject_keys (client, subject, id, client_key, destroyed_at)
SELECT DISTINCT client, subject, '', '', now() FROM unnest($1::text[], $2::text[]) AS b (client, subject)
ON CONFLICT (client, subject) DO NOTHING`

// Bury leaves tombstones of keys that are not here, for what they sealed
// elsewhere: none is made anew.
func (k Keys) Bury(ctx context.Context, keys []seal.SubjectKey) error {
	clients, subjects := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		clients[i], subjects[i] = string(key.Client), key.Subject
	}
	if err := k.change(ctx, len(keys), burySubjects, clients, subjects); err != nil {
		return fmt.Errorf("bury keys: %w", err)
	}
	return nil
}

// change makes a change that is durable when it returns. Where it is to fewer than
// most rows, some were changed before, by a commit that need not have been
// acknowledged: it is confirmed.
func (k Keys) change(ctx context.Context, most int, sql string, args ...any) error {
	done, err := postgres.Exec(ctx, k.Pool, sql, args...)
	if err == nil && done.RowsAffected() < int64(most) {
		err = postgres.Confirm(ctx, k.Pool)
	}
	return err
}

func (k Keys) one(ctx context.Context, sql string, args ...any) (key seal.WrappedKey, err error) {
	err = k.Pool.QueryRow(ctx, sql, args...).Scan(&key.ID, &key.Under, &key.Wrapped)
	if errors.Is(err, pgx.ErrNoRows) {
		return key, seal.ErrNoKey
	}
	return key, err
}

// Copy puts the keys of another database, wrapped as they are, in place of those that
// are here: all, or a client's. The epochs that they are under come first.
func Copy(ctx context.Context, source, to pgx.Tx, client id.Client) error {
	where := ""
	if client != "" {
		where = ` WHERE client = '` + string(client) + `'` // it was parsed: letters, digits and an underscore
	}
	for _, table := range []struct{ name, columns string }{
		{"client_keys", "client, id, master, wrapped, created_at"},
		{"peppers", "client, id, master, wrapped, created_at"},
		{"subject_keys", "client, subject, id, client_key, wrapped, lookup, created_at, destroyed_at"},
	} {
		if err := postgres.CopyRows(ctx, source, to, table.name, table.columns, where); err != nil {
			return fmt.Errorf("copy %s: %w", table.name, err)
		}
	}
	return nil
}
