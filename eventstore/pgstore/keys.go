package pgstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"kindred/eventstore"
	"kindred/postgres"
)

// A commit of keys waits for the disk: a server that crashed and lost them would still
// accept the events that they seal. Rows are made in one order, so that no two callers wait
// for each other.
const (
	insertKeys = `
INSERT INTO public.subject_keys (client, subject, id, client_key, wrapped, lookup)
SELECT k.client, k.subject, k.id, k.root, k.wrapped, nullif(k.lookup, '')
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[]) AS k (client, subject, id, root, wrapped, lookup)
ORDER BY k.lookup, k.client COLLATE "C", k.subject COLLATE "C"`
	insertMissingKeys = insertKeys + ` ON CONFLICT DO NOTHING`
	selectKeysMade    = `
SELECT EXISTS (SELECT FROM public.subject_keys s WHERE s.subject = k.subject AND s.client = k.client AND s.id = k.id)
FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (client, subject, id, n) ORDER BY k.n`
)

// MakeKeys implements [eventstore.Bulk]. It is an optimistic insert, as the committer's is.
func (s *Store) MakeKeys(ctx context.Context, keys []eventstore.Key) ([]bool, error) {
	n := len(keys)
	switch {
	case n == 0:
		return nil, nil
	case n > eventstore.MaxMany:
		return nil, fmt.Errorf("make %d keys: at most %d are allowed", n, eventstore.MaxMany)
	}
	clients, subjects, ids, roots := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	wrapped, lookups := make([][]byte, n), make([][]byte, n)
	for i, k := range keys {
		clients[i], subjects[i], ids[i], roots[i] = string(k.Client), k.Subject, k.ID, k.Under
		wrapped[i], lookups[i] = k.Wrapped, k.Lookup
	}
	made := slices.Repeat([]bool{true}, n)
	_, err := postgres.Exec(ctx, s.pool, insertKeys, clients, subjects, ids, roots, wrapped, lookups)
	for range readTries {
		if err == nil || ctx.Err() != nil || !exists(err) && !passing(err) {
			break
		}
		// Some are there, which may be those of the last try: they are confirmed.
		if _, err = postgres.Exec(ctx, s.pool, insertMissingKeys, clients, subjects, ids, roots, wrapped, lookups); err == nil {
			var rows pgx.Rows
			if rows, err = s.pool.Query(ctx, selectKeysMade, clients, subjects, ids); err == nil {
				made, err = pgx.CollectRows(rows, pgx.RowTo[bool])
			}
			if err == nil {
				err = s.Confirm(ctx)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make %d keys: %w", n, deleted(unavailable(err)))
	}
	return made, nil
}
