package auth

import (
	"context"
	"fmt"
	"slices"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/jackc/pgx/v5"
)

const (
	selectKeysSQL = `
SELECT kid, alg, public_jwk, sealed_private_jwk, activates_at, retires_at, removed_at
FROM signing_keys
ORDER BY alg, activates_at, kid`

	// One process at a time changes the keys; the lock goes with the transaction.
	lockKeysSQL = `SELECT pg_advisory_xact_lock(hashtextextended('kindred signing keys', 0))`

	insertKeySQL = `
INSERT INTO signing_keys (kid, alg, public_jwk, sealed_private_jwk, created_at, activates_at)
VALUES ($1, $2, $3, $4, $5, $6)`

	retireKeysSQL = `
UPDATE signing_keys SET retires_at = $2, removed_at = $3
WHERE alg = $1 AND retires_at IS NULL`

	deleteRemovedSQL = `DELETE FROM signing_keys WHERE removed_at <= $1`
	deleteAllSQL     = `DELETE FROM signing_keys WHERE alg = $1`
)

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func selectKeys(ctx context.Context, db querier) ([]keyRow, error) {
	rows, _ := db.Query(ctx, selectKeysSQL) // what it fails with, its rows end with
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (keyRow, error) {
		var r keyRow
		err := row.Scan(&r.kid, &r.alg, &r.publicJWK, &r.sealedJWK, &r.activatesAt, &r.retiresAt, &r.removedAt)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read signing keys: %w", err)
	}
	return keys, nil
}

// makeMissing gives each algorithm that has no key one that signs at once.
func (k *Keyring) makeMissing(ctx context.Context) error {
	present, err := selectKeys(ctx, k.Pool)
	if err != nil || len(missing(present)) == 0 {
		return err
	}
	return k.change(ctx, func(tx pgx.Tx, now time.Time, present []keyRow, fresh map[jose.SignatureAlgorithm]keyRow) error {
		for _, alg := range missing(present) {
			if err := insertKey(ctx, tx, fresh[alg], now, now); err != nil {
				return err
			}
		}
		return nil
	})
}

// missing returns the algorithms without a key that signs or will.
func missing(present []keyRow) []jose.SignatureAlgorithm {
	var without []jose.SignatureAlgorithm
	for _, alg := range algorithms {
		if !slices.ContainsFunc(present, func(r keyRow) bool { return r.alg == alg && r.retiresAt == nil }) {
			without = append(without, alg)
		}
	}
	return without
}

func (k *Keyring) rotate(ctx context.Context, leaked bool) ([]KeyInfo, error) {
	err := k.change(ctx, func(tx pgx.Tx, now time.Time, present []keyRow, fresh map[jose.SignatureAlgorithm]keyRow) error {
		for _, alg := range algorithms {
			activates := now
			switch {
			case leaked:
				if _, err := tx.Exec(ctx, deleteAllSQL, alg); err != nil {
					return err
				}
			case slices.ContainsFunc(present, func(r keyRow) bool { return r.alg == alg && r.stateAt(now) == Next }):
				continue
			default:
				activates = now.Add(JWKSMaxAge + Skew)
				if _, err := tx.Exec(ctx, retireKeysSQL, alg, activates, activates.Add(k.TokenTTL+Skew)); err != nil {
					return err
				}
			}
			if err := insertKey(ctx, tx, fresh[alg], now, activates); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, deleteRemovedSQL, now)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rotate signing keys: %w", err)
	}
	return k.List(ctx)
}

// keyChange changes the table, knowing the keys that are present, with a fresh
// one at hand for each algorithm.
type keyChange func(tx pgx.Tx, now time.Time, present []keyRow, fresh map[jose.SignatureAlgorithm]keyRow) error

// change runs do in a transaction that no other process's change overlaps.
func (k *Keyring) change(ctx context.Context, do keyChange) error {
	// Sealing may want a connection of its own, so it comes before the transaction.
	fresh := make(map[jose.SignatureAlgorithm]keyRow, len(algorithms))
	for _, alg := range algorithms {
		row, err := generate(ctx, alg, k.Entropy, k.Secrets)
		if err != nil {
			return fmt.Errorf("make a key for %s: %w", alg, err)
		}
		fresh[alg] = row
	}
	return pgx.BeginFunc(ctx, k.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockKeysSQL); err != nil {
			return err
		}
		present, err := selectKeys(ctx, tx)
		if err != nil {
			return err
		}
		return do(tx, k.Now(), present, fresh)
	})
}

func insertKey(ctx context.Context, tx pgx.Tx, row keyRow, created, activates time.Time) error {
	_, err := tx.Exec(ctx, insertKeySQL, row.kid, row.alg, row.publicJWK, row.sealedJWK, created, activates)
	return err
}
