// Package pgkeys keeps the wrapped keys of package seal in Postgres: what it
// has answered is committed, and a destroyed key is never there again.
package pgkeys

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/postgres"
)

// Keys is the key table. It fulfils seal.Keys.
type Keys struct{ Pool *pgxpool.Pool }

var _ seal.Keys = Keys{}

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
(SELECT 'client key', client, id, master, wrapped FROM client_keys WHERE master <> $1 LIMIT $2)
UNION ALL
(SELECT 'pepper', client, id, master, wrapped FROM peppers WHERE master <> $1 LIMIT $2)
LIMIT $2`

// RootsNotUnder lists root keys that another master key wraps.
func (k Keys) RootsNotUnder(ctx context.Context, master string, limit int) ([]seal.RootKey, error) {
	rows, err := k.Pool.Query(ctx, selectRootsNotUnder, master, limit)
	if err != nil {
		return nil, fmt.Errorf("list root keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key seal.RootKey, err error) {
		err = row.Scan(&key.Kind, &key.Client, &key.ID, &key.Under, &key.Wrapped)
		return key, err
	})
	if err != nil {
		return nil, fmt.Errorf("list root keys: %w", err)
	}
	return keys, nil
}

const updateRoots = `
UPDATE %s AS k SET master = n.master, wrapped = n.wrapped
FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) AS n (client, id, master, wrapped)
WHERE k.client = n.client AND k.id = n.id`

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
	SELECT client, subject, id, client_key, wrapped
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[])
		AS w (client, subject, id, client_key, wrapped)
), present AS (
	SELECT DISTINCT k.client, k.subject, k.id, k.client_key, k.wrapped
	FROM subject_keys k JOIN wanted w USING (client, subject)
), made AS (
	INSERT INTO subject_keys (client, subject, id, client_key, wrapped)
	SELECT client, subject, id, client_key, wrapped FROM wanted w
	WHERE NOT EXISTS (SELECT FROM present p WHERE p.client = w.client AND p.subject = w.subject)
	ORDER BY client COLLATE "C", subject COLLATE "C"
	ON CONFLICT (client, subject) DO NOTHING
	RETURNING client, subject, id, client_key, wrapped
)
SELECT client, subject, id, client_key, wrapped FROM present
UNION ALL
SELECT client, subject, id, client_key, wrapped FROM made`

const makeTries = 3

// MakeSubjects stores the keys that are missing: one statement, and another
// only where a concurrent one made the same.
func (k Keys) MakeSubjects(ctx context.Context, keys []seal.SubjectKey) ([]seal.WrappedKey, error) {
	type name struct {
		client  id.Client
		subject string
	}
	found := make(map[name]seal.WrappedKey, len(keys))
	for range makeTries {
		var clients, subjects, names, roots []string
		var wrapped [][]byte
		for _, key := range keys {
			if _, done := found[name{key.Client, key.Subject}]; !done {
				clients, subjects = append(clients, string(key.Client)), append(subjects, key.Subject)
				names, roots = append(names, key.ID), append(roots, key.Under)
				wrapped = append(wrapped, key.Wrapped)
			}
		}
		if len(clients) == 0 {
			break
		}
		rows, err := k.Pool.Query(ctx, insertSubjects, clients, subjects, names, roots, wrapped)
		if err != nil {
			return nil, fmt.Errorf("make keys: %w", err)
		}
		var n name
		var key seal.WrappedKey
		if _, err := pgx.ForEachRow(rows, []any{&n.client, &n.subject, &key.ID, &key.Under, &key.Wrapped}, func() error {
			found[n] = key
			return nil
		}); err != nil {
			return nil, fmt.Errorf("make keys: %w", err)
		}
	}
	stored := make([]seal.WrappedKey, len(keys))
	for i, key := range keys {
		var done bool
		if stored[i], done = found[name{key.Client, key.Subject}]; !done {
			return nil, errors.New("make keys: a key is neither there nor can it be made")
		}
	}
	return stored, nil
}

const destroySubject = `
INSERT INTO subject_keys (client, subject, id, client_key, destroyed_at) VALUES ($1, $2, '', '', now())
ON CONFLICT (client, subject) DO UPDATE SET wrapped = NULL, destroyed_at = now()
WHERE subject_keys.wrapped IS NOT NULL`

// Destroy leaves a tombstone.
func (k Keys) Destroy(ctx context.Context, client id.Client, subject string) error {
	if err := k.change(ctx, 1, destroySubject, client, subject); err != nil {
		return fmt.Errorf("destroy the key of %s: %w", subject, err)
	}
	return nil
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
