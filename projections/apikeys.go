package projections

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/coalesce"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// APIKeys is the read model of API keys.
type APIKeys struct {
	readmodel.Reader
	lookUps *coalesce.Coalescer[[32]byte, foundKey]
}

// Coalescing is the model with keys looked up together by their hashes while
// many are asked for at once. Its copies share the coalescer.
func (m APIKeys) Coalescing() APIKeys {
	m.lookUps = coalesced(lookUpsMost, m.lookUp)
	return m
}

// APIKey is the record of a key. The raw key is nowhere.
type APIKey struct {
	ID              id.Key
	Client          id.Client
	Name            string
	Fingerprint     string
	Scopes          []string
	Implied         []string // scopes that its tokens have beyond those
	IssuedBy        id.Member
	Revoked         bool
	CreatedAt       time.Time
	ExpiresAt       *time.Time // nil: never
	LastUsedAt      *time.Time // the hour of its last exchange; nil: none was noted
	CreatedPosition eventstore.Position
}

// Name of the read model.
func (APIKeys) Name() string { return "api_keys" }

// Wants says which events the model is made of.
func (APIKeys) Wants(t string) bool { return strings.HasPrefix(t, "api_key.") }

// Version of the read model's tables.
func (APIKeys) Version() int { return 3 }

// Options of the read model. With a client goes when its keys were last used.
func (APIKeys) Options() projector.Options {
	return projector.Options{AlsoForgets: []string{"public.api_key_uses"}}
}

// Schema of the read model.
func (APIKeys) Schema() string {
	return `
CREATE TABLE api_keys (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	name        text NOT NULL,
	hash        bytea NOT NULL, -- SHA-256 of the raw key
	fingerprint text NOT NULL,
	scopes      text[] NOT NULL,
	implied     text[] NOT NULL,
	issued_by   text NOT NULL,
	revoked     boolean NOT NULL DEFAULT false,
	created_at  timestamptz NOT NULL,
	expires_at  timestamptz,
	PRIMARY KEY (client, id)
);
CREATE INDEX api_keys_hash ON api_keys (hash);
CREATE INDEX api_keys_listed ON api_keys (client, created_position);
CREATE INDEX api_keys_in_force ON api_keys (client, created_position) WHERE NOT revoked;`
}

const (
	insertAPIKey = `
INSERT INTO api_keys (client, id, created_position, name, hash, fingerprint, scopes, issued_by, created_at, implied, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10::text[], '{}'), $11) ON CONFLICT (client, id) DO NOTHING`
	revokeAPIKey = `UPDATE api_keys SET revoked = true WHERE client = $1 AND id = $2`
)

// Apply changes the model by a batch of events.
func (APIKeys) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		switch e := r.Event.(type) {
		case event.APIKeyIssued:
			b.Queue(insertAPIKey, string(r.Client), string(e.Key), string(r.Position), e.Name, e.Hash, e.Fingerprint,
				e.Scopes, string(e.IssuedBy), r.RecordedAt, e.Implied, e.ExpiresAt)
		case event.APIKeyRevoked:
			b.Queue(revokeAPIKey, string(r.Client), string(e.Key))
		}
	}
	return readmodel.Send(ctx, tx, "api keys", &b)
}

const listAPIKeys = `
SELECT a.id, a.client, a.name, a.fingerprint, a.scopes, a.issued_by, a.revoked, a.created_at, a.expires_at, u.used_at, a.created_position
FROM api_keys a LEFT JOIN public.api_key_uses u ON u.client = a.client AND u.key = a.id
WHERE a.client = $1 AND a.created_position > $2 ORDER BY a.created_position LIMIT $3`

func scanAPIKey(k *APIKey) []any {
	return []any{
		readmodel.Text(&k.ID), readmodel.Text(&k.Client), readmodel.Text(&k.Name), readmodel.Text(&k.Fingerprint), &k.Scopes, readmodel.Text(&k.IssuedBy),
		&k.Revoked, &k.CreatedAt, &k.ExpiresAt, &k.LastUsedAt, readmodel.Text(&k.CreatedPosition),
	}
}

// List returns the keys of a client in order of creation, revoked ones too.
// Faults: building, overloaded, quarantined, stale.
func (m APIKeys) List(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]APIKey, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, listAPIKeys, []any{string(page.After), page.Limit}, scanAPIKey)
}

const keysInForce = ` FROM api_keys a WHERE a.client = $1 AND NOT a.revoked AND (a.expires_at IS NULL OR a.expires_at > now()) AND `

const keysMadeBy = `SELECT a.id` + keysInForce + `a.issued_by = $2`

// MadeBy returns the keys in force that a member made.
// Faults: building, overloaded, quarantined, stale.
func (m APIKeys) MadeBy(ctx context.Context, client id.Client, member id.Member) ([]id.Key, error) {
	return readmodel.Query(ctx, m.Reader, m, client, false, keysMadeBy, []any{string(member)}, readmodel.OneText[id.Key])
}

const keysBefore = `SELECT count(*)` + keysInForce + `
	($2 = '' OR a.created_position < (SELECT b.created_position FROM api_keys b WHERE b.client = $1 AND b.id = $2))`

// Before counts the keys in force that were made before a key, or all where that
// is "".
// Faults: building, overloaded, quarantined, stale.
func (m APIKeys) Before(ctx context.Context, client id.Client, key id.Key) (int, error) {
	return readmodel.Count(ctx, m.Reader, m, client, false, keysBefore, string(key))
}

const noteUse = `
INSERT INTO api_key_uses AS u (client, key, used_at) VALUES ($1, $2, date_trunc('hour', now()))
ON CONFLICT (client, key) DO UPDATE SET used_at = excluded.used_at WHERE u.used_at < excluded.used_at`

// NoteUse notes that a key was exchanged in this hour.
func (m APIKeys) NoteUse(ctx context.Context, client id.Client, key id.Key) error {
	if _, err := m.Pool.Exec(ctx, noteUse, string(client), string(key)); err != nil {
		return fmt.Errorf("note the use of an API key: %w", err)
	}
	return nil
}

// The sub-select hides how many keys are asked for from the planner, so that
// it plans once for any number.
const apiKeysByHash = `
SELECT w.n, a.id, a.client, a.scopes, a.implied, a.issued_by,
	a.revoked OR EXISTS (SELECT FROM public.deletions d WHERE d.client = a.client AND d.projection = $1), -- the client was deleted
	a.expires_at, a.used_at,
	c.position >= coalesce((SELECT h.position FROM heads h WHERE h.client = a.client), '')
		AND NOT EXISTS (SELECT FROM quarantine q WHERE q.projection = $1 AND q.client = a.client)
FROM checkpoints c, unnest((SELECT $2::bytea[])) WITH ORDINALITY AS w (hash, n), LATERAL (
	SELECT a.id, a.client, a.scopes, a.implied, a.issued_by, a.revoked, a.expires_at,
		(SELECT u.used_at FROM public.api_key_uses u WHERE u.client = a.client AND u.key = a.id) AS used_at
	FROM api_keys a WHERE a.hash = w.hash LIMIT 1
) a
WHERE c.name = $1`

// ByHash finds a key by the SHA-256 of its raw form, or fails with a fault of
// kind Missing. head is the last position of the log; it is asked for only
// where the model may not know the key, or its newest state, yet.
// Faults: api_key_unknown, stale.
func (m APIKeys) ByHash(ctx context.Context, hash [32]byte, head func(context.Context) (eventstore.Position, error)) (APIKey, error) {
	key, fresh, err := m.byHash(ctx, hash)
	if err != nil || fresh {
		return key, err
	}
	last, err := head(ctx)
	if err != nil {
		return APIKey{}, fmt.Errorf("read the head of the log: %w", err)
	}
	wait := m.Progress.Wait
	if m.AtOnce {
		wait = m.Progress.Passed
	}
	if err := wait(ctx, m, key.Client, last); err != nil {
		return APIKey{}, err
	}
	key, _, err = m.byHash(ctx, hash)
	if err == nil && key.ID == "" {
		err = fault.UnknownAPIKey()
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
	if m.lookUps != nil {
		k, err := m.lookUps.Ask(ctx, hash)
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
	rows, _ := m.Pool.Query(ctx, apiKeysByHash, projector.ID(m), readmodel.Column(hashes, func(h [32]byte) []byte { return h[:] }))
	var n int64
	var k foundKey
	_, err := pgx.ForEachRow(rows, []any{&n, readmodel.Text(&k.ID), readmodel.Text(&k.Client), &k.Scopes, &k.Implied, readmodel.Text(&k.IssuedBy), &k.Revoked, &k.ExpiresAt, &k.LastUsedAt, &k.fresh}, func() error {
		found[n-1], k = k, foundKey{}
		return nil
	})
	if projector.TablesMissing(err) {
		return make([]foundKey, len(hashes)), nil
	}
	return found, err
}
