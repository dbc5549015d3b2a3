package dispatcher

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
)

// keys are the key pairs that sign the deliveries of clients, at a place of the log, the
// newest first.
type keys map[id.Client]*keyring

type keyring struct {
	pairs   []secret
	changed bool
}

const selectKeys = `SELECT client, keys FROM dispatch_clients WHERE client = ANY($1) AND keys <> '[]'`

func (k keys) read(rows pgx.Rows) error {
	var (
		client id.Client
		pairs  []secret
	)
	_, err := pgx.ForEachRow(rows, []any{&client, &pairs}, func() error {
		k[client], pairs = &keyring{pairs: pairs}, nil
		return nil
	})
	return err
}

func (k keys) rotate(rec eventstore.Recorded, e event.WebhookKeyMade, at time.Time) {
	ring := k[rec.Client]
	if ring == nil {
		ring = new(keyring)
		k[rec.Client] = ring
	}
	ring.changed = true
	ring.pairs = rotated(ring.pairs, secret{
		sealed: sealed{Stream: string(rec.Stream), Event: rec.ID, Box: e.PrivateKey.Box},
		Key:    &publicKey{e.Key, e.PublicKey, at},
	}, at)
}

const upsertKeys = `
INSERT INTO dispatch_clients (client, keys) VALUES ($1, $2) ON CONFLICT (client) DO UPDATE SET keys = excluded.keys`

func (k keys) store(ctx context.Context, tx pgx.Tx) error {
	for client, ring := range k {
		if !ring.changed {
			continue
		}
		if _, err := tx.Exec(ctx, upsertKeys, client, ring.pairs); err != nil {
			return fmt.Errorf("write the keys that sign: %w", err)
		}
	}
	return nil
}

// Key is a key pair that signs a client's deliveries.
type Key struct {
	ID     id.WebhookKey
	Public ed25519.PublicKey
	Made   time.Time
	Until  *time.Time // it signs beside the newest until then; nil: it is the newest
}

const readKeys = `
SELECT f.reached, f.head, f.quarantined, coalesce(c.keys, '[]') FROM fresh f LEFT JOIN dispatch_clients c ON c.client = $1`

// Keys returns the key pairs that sign a client's deliveries at a time, the newest first.
// Faults: building, quarantined, stale.
func (l Log) Keys(ctx context.Context, client id.Client, eventual bool, at time.Time) ([]Key, error) {
	reader := projector.Reader{Of: (*Dispatcher)(nil), Progress: l.Progress, AtOnce: l.AtOnce}
	var pairs []secret
	err := reader.Read(ctx, eventual, func(ctx context.Context) (reached projector.At, err error) {
		pairs = nil
		err = l.Pool.QueryRow(ctx, `WITH `+projector.Fresh(reader.Of)+readKeys, client).Scan(&reached.Reached, &reached.Head, &reached.Quarantined, &pairs)
		return reached, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys that sign: %w", err)
	}
	var found []Key
	for _, pair := range pairs {
		if pair.signs(at) {
			found = append(found, Key{pair.Key.ID, pair.Key.Public, pair.Key.Made, pair.Until})
		}
	}
	return found, nil
}
