package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/feed"
)

// APIKeys is the read model of API keys.
type APIKeys struct{ Reader }

// APIKey is the record of a key. The raw key is nowhere.
type APIKey struct {
	ID          id.Key
	Client      id.Client
	Name        string
	Fingerprint string
	Scopes      []string
	IssuedBy    id.Member
	Revoked     bool
	CreatedAt   time.Time
	Born        eventstore.Position
}

// Name of the read model.
func (APIKeys) Name() string { return "api_keys" }

// Wants says which events the model is made of.
func (APIKeys) Wants(t string) bool { return strings.HasPrefix(t, "api_key.") }

// Version of the read model's tables.
func (APIKeys) Version() int { return 1 }

// Schema of the read model.
func (APIKeys) Schema() string {
	return `
CREATE TABLE api_keys (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	born        text COLLATE "C" NOT NULL,
	name        text NOT NULL,
	hash        bytea NOT NULL, -- SHA-256 of the raw key
	fingerprint text NOT NULL,
	scopes      text[] NOT NULL,
	issued_by   text NOT NULL,
	revoked     boolean NOT NULL DEFAULT false,
	created_at  timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash);
CREATE INDEX api_keys_listed ON api_keys (client, born);`
}

const (
	insertAPIKey = `
INSERT INTO api_keys (client, id, born, name, hash, fingerprint, scopes, issued_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	revokeAPIKey = `UPDATE api_keys SET revoked = true WHERE client = $1 AND id = $2`
)

// Apply changes the model by a batch of events.
func (APIKeys) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		switch e := r.Event.(type) {
		case event.APIKeyIssued:
			b.Queue(insertAPIKey, string(r.Client), string(e.Key), string(r.Position), e.Name, e.Hash, e.Fingerprint,
				e.Scopes, string(e.IssuedBy), r.RecordedAt)
		case event.APIKeyRevoked:
			b.Queue(revokeAPIKey, string(r.Client), string(e.Key))
		}
	}
	return send(ctx, tx, "api keys", &b)
}

const apiKeyColumns = `SELECT a.id, a.client, a.name, a.fingerprint, a.scopes, a.issued_by, a.revoked, a.created_at, a.born FROM api_keys a `

const listAPIKeys = apiKeyColumns + `WHERE a.client = $1 AND a.born > $2 ORDER BY a.born LIMIT $3`

func scanAPIKey(k *APIKey) []any {
	return []any{
		text(&k.ID), text(&k.Client), text(&k.Name), text(&k.Fingerprint), &k.Scopes, text(&k.IssuedBy),
		&k.Revoked, &k.CreatedAt, text(&k.Born),
	}
}

// List returns the keys of a client in order of creation, revoked ones too.
func (m APIKeys) List(ctx context.Context, client id.Client, eventual bool, page Page) ([]APIKey, error) {
	return query(ctx, m.Reader, m, client, eventual, listAPIKeys, []any{string(page.After), page.Limit}, scanAPIKey)
}

const apiKeyByHash = `
SELECT a.id, a.client, a.scopes, a.issued_by, a.revoked, c.position >= coalesce(h.position, '')
	AND NOT EXISTS (SELECT FROM quarantine q WHERE q.projection = c.name AND q.client = a.client)
FROM checkpoints c LEFT JOIN api_keys a ON a.hash = $2 LEFT JOIN heads h ON h.client = a.client
WHERE c.name = $1 AND a.id IS NOT NULL`

// ByHash finds a key by the SHA-256 of its raw form, or fails with a fault of
// kind Missing. head is the last position of the log; it is asked for only
// where the model may not know the key, or its newest state, yet.
func (m APIKeys) ByHash(ctx context.Context, hash [32]byte, head func(context.Context) (eventstore.Position, error)) (APIKey, error) {
	key, fresh, err := m.byHash(ctx, hash)
	if err != nil || fresh {
		return key, err
	}
	last, err := head(ctx)
	if err != nil {
		return APIKey{}, fmt.Errorf("read the head of the log: %w", err)
	}
	if err := m.Progress.Wait(ctx, m, last); err != nil {
		return APIKey{}, err
	}
	key, _, err = m.byHash(ctx, hash)
	if err == nil && key.ID == "" {
		err = fault.New(fault.Missing, "api_key_unknown", "There is no such API key.")
	}
	return key, err
}

// byHash returns the key, if any, and whether that is the newest state.
func (m APIKeys) byHash(ctx context.Context, hash [32]byte) (k APIKey, fresh bool, err error) {
	err = m.Pool.QueryRow(ctx, apiKeyByHash, feed.Slot(m), hash[:]).
		Scan(&k.ID, &k.Client, &k.Scopes, &k.IssuedBy, &k.Revoked, &fresh)
	if errors.Is(err, pgx.ErrNoRows) || unbuilt(err) {
		return APIKey{}, false, nil
	}
	return k, fresh, err
}

// unbuilt: the tables that a query reads are yet to be made (undefined_table).
func unbuilt(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "42P01"
}
