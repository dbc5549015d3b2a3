// Package idempotency keeps the Idempotency-Keys of requests in Postgres: of
// the requests with one key at most one runs at a time, and a key that took
// effect belongs to its body for at least 24 hours.
package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/fault"
	"kindred/httpapi"
)

const (
	lease = 3 * time.Second // prolonged while the request runs
	// limit: kept | Idempotency-Keys | {retention}, of which 24 are promised; what was recorded under one is found however old it is
	retention = 48 * time.Hour // promised are 24 hours
	batch     = 1_000          // rows to a DELETE
	// limit: models | batches of expired Idempotency-Keys that one round deletes | {maxRounds}, of {batch}
	maxRounds = 1_000 // batches to a Prune
	// pruneEvery is often enough for more keys than all clients can send: of a million an hour, 280
	// a second, those of one busy client would be more, and the table would grow for ever.
	pruneEvery = time.Minute
)

// Store is the table idempotency. [Store.Run] must run beside it: it keeps the keys
// of slow requests from being taken for those of a dead process.
type Store struct {
	Pool   *pgxpool.Pool
	Leases *pgxpool.Pool // for prolonging leases, which must not wait; nil: Pool
	Lease  time.Duration // how long a process that died keeps its keys; 0: 3 s

	mu   sync.Mutex
	held map[string]httpapi.Repeat // requests under way, by the holder of the key
}

// A dead holder's key goes to the next request with the same body. A lease that ends later
// than any was written before the database's clock was set back.
const reserve = `
INSERT INTO idempotency AS held (client, route, key, body, lease_until)
VALUES ($1, $2, $3, $4, now() + $5::interval)
ON CONFLICT (client, route, key) DO UPDATE
	SET holder = excluded.holder, lease_until = excluded.lease_until, created_at = excluded.created_at
	WHERE NOT held.done AND held.body = excluded.body AND held.lease_until NOT BETWEEN now() AND now() + 2 * $5::interval
RETURNING holder::text`

const lookUp = `
SELECT body, done FROM idempotency WHERE client = $1 AND route = $2 AND key = $3`

// Reserve takes the key of r, or refuses with a fault of the code
// "idempotency_key_reused" (another body used it) or "in_flight" (the request
// is under way, or its process has just died). A request that succeeded before may run again, any number of
// times at once.
// Faults: idempotency_key_reused, in_flight.
func (s *Store) Reserve(ctx context.Context, r httpapi.Repeat) (httpapi.Complete, error) {
	for range 3 { // the row may go away between the two statements
		var holder string
		err := s.Pool.QueryRow(ctx, reserve, r.Client, r.Route, r.Key, r.Body, s.lease()).Scan(&holder)
		if err == nil {
			return s.complete(r, holder), nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("reserve idempotency key: %w", err)
		}
		var (
			body []byte
			done bool
		)
		err = s.Pool.QueryRow(ctx, lookUp, r.Client, r.Route, r.Key).Scan(&body, &done)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			continue
		case err != nil:
			return nil, fmt.Errorf("look up idempotency key: %w", err)
		case !bytes.Equal(body, r.Body):
			return nil, fault.New(fault.Invalid, "idempotency_key_reused",
				"This Idempotency-Key was used for another request. Use a new one.")
		case done:
			return func(context.Context, bool) error { return nil }, nil
		}
		return nil, inFlight()
	}
	return nil, inFlight()
}

func inFlight() error {
	return fault.New(fault.Conflict, "in_flight",
		"A request with this Idempotency-Key is under way. Try again to get its answer.").After(time.Second)
}

const (
	finish  = `UPDATE idempotency SET done = true WHERE client = $1 AND route = $2 AND key = $3 AND holder = $4::uuid`
	release = `DELETE FROM idempotency WHERE client = $1 AND route = $2 AND key = $3 AND holder = $4::uuid AND NOT done`
)

func (s *Store) complete(r httpapi.Repeat, holder string) httpapi.Complete {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = map[string]httpapi.Repeat{}
	}
	s.held[holder] = r
	return func(ctx context.Context, succeeded bool) error {
		s.mu.Lock()
		delete(s.held, holder)
		s.mu.Unlock()
		statement := release
		if succeeded {
			statement = finish
		}
		_, err := s.Pool.Exec(ctx, statement, r.Client, r.Route, r.Key, holder)
		return err
	}
}

const prune = `
DELETE FROM idempotency WHERE ctid = ANY (ARRAY (
	SELECT ctid FROM idempotency WHERE created_at < now() - $1::interval ORDER BY created_at LIMIT $2))`

// Prune forgets the keys that are older than 48 hours.
func (s *Store) Prune(ctx context.Context) (n int64, err error) {
	for range maxRounds {
		tag, err := s.Pool.Exec(ctx, prune, retention, batch)
		if err != nil {
			return n, fmt.Errorf("prune idempotency keys: %w", err)
		}
		n += tag.RowsAffected()
		if tag.RowsAffected() < batch {
			break
		}
	}
	return n, nil
}

// Run keeps the keys of requests under way, and prunes every minute, until ctx ends.
func (s *Store) Run(ctx context.Context, log *slog.Logger) {
	var pruning sync.WaitGroup
	defer pruning.Wait()
	pruning.Go(func() {
		every(ctx, pruneEvery, func() {
			if n, err := s.Prune(ctx); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "idempotency keys not pruned", slog.Any("error", err))
			} else if n > 0 {
				log.InfoContext(ctx, "idempotency keys pruned", slog.Int64("keys", n))
			}
		})
	})
	every(ctx, s.lease()/4, func() {
		if err := s.prolong(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "idempotency keys not prolonged", slog.Any("error", err))
		}
	})
}

const prolong = `
UPDATE idempotency SET lease_until = now() + $1::interval
WHERE NOT done AND (client, route, key, holder) IN (SELECT * FROM unnest($2::text[], $3::text[], $4::bytea[], $5::uuid[]))`

// prolong prolongs the leases of all requests under way.
func (s *Store) prolong(ctx context.Context) error {
	var (
		clients, routes, holders []string
		keys                     [][]byte
	)
	s.mu.Lock()
	for holder, r := range s.held {
		clients, routes = append(clients, string(r.Client)), append(routes, r.Route)
		keys, holders = append(keys, r.Key), append(holders, holder)
	}
	s.mu.Unlock()
	if len(holders) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.lease())
	defer cancel()
	_, err := cmp.Or(s.Leases, s.Pool).Exec(ctx, prolong, s.lease(), clients, routes, keys, holders)
	return err
}

func (s *Store) lease() time.Duration { return cmp.Or(s.Lease, lease) }

// every does something at once, and then in a rhythm until ctx ends.
func every(ctx context.Context, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
