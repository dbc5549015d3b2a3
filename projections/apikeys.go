package projections

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/feed"
)

// APIKeys is the read model of API keys.
type APIKeys struct {
	Reader
	gathered *gathering[[32]byte, foundKey]
}

// Gathering is the model with keys looked up together by their hashes while
// many are asked for at once. Its copies share the gathering.
func (m APIKeys) Gathering() APIKeys {
	m.gathered = &gathering[[32]byte, foundKey]{answer: m.lookUp}
	return m
}

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

// The sub-select hides how many keys are asked for from the planner, so that
// it plans once for any number.
const apiKeysByHash = `
SELECT w.n, a.id, a.client, a.scopes, a.issued_by, a.revoked,
	c.position >= coalesce((SELECT h.position FROM heads h WHERE h.client = a.client), '')
		AND NOT EXISTS (SELECT FROM quarantine q WHERE q.projection = $1 AND q.client = a.client)
FROM checkpoints c, unnest((SELECT $2::bytea[])) WITH ORDINALITY AS w (hash, n), LATERAL (
	SELECT a.id, a.client, a.scopes, a.issued_by, a.revoked FROM api_keys a WHERE a.hash = w.hash LIMIT 1
) a
WHERE c.name = $1`

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
	if err := m.Progress.Wait(ctx, m, key.Client, last); err != nil {
		return APIKey{}, err
	}
	key, _, err = m.byHash(ctx, hash)
	if err == nil && key.ID == "" {
		err = fault.New(fault.Missing, "api_key_unknown", "There is no such API key.")
	}
	return key, err
}

// foundKey is a key, if any, and whether that is its newest state.
type foundKey struct {
	APIKey
	fresh bool
}

// byHash returns the key, if any, and whether that is the newest state.
func (m APIKeys) byHash(ctx context.Context, hash [32]byte) (APIKey, bool, error) {
	if m.gathered != nil {
		k, err := m.gathered.ask(ctx, hash)
		return k.APIKey, k.fresh, err
	}
	found, err := m.lookUp(ctx, [][32]byte{hash})
	if err != nil {
		return APIKey{}, false, err
	}
	return found[0].APIKey, found[0].fresh, nil
}

func (m APIKeys) lookUp(ctx context.Context, hashes [][32]byte) ([]foundKey, error) {
	found := make([]foundKey, len(hashes))
	// What the statement fails with, its rows end with.
	rows, _ := m.Pool.Query(ctx, apiKeysByHash, feed.Slot(m), column(hashes, func(h [32]byte) []byte { return h[:] }))
	var n int64
	var k foundKey
	_, err := pgx.ForEachRow(rows, []any{&n, text(&k.ID), text(&k.Client), &k.Scopes, text(&k.IssuedBy), &k.Revoked, &k.fresh}, func() error {
		found[n-1] = k
		k.Scopes = nil
		return nil
	})
	if feed.TablesMissing(err) {
		return make([]foundKey, len(hashes)), nil
	}
	return found, err
}
