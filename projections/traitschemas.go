package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// TraitSchemas is the read model of what was learnt about the traits of each
// client's users, and of what the client has decided about them.
type TraitSchemas struct{ readmodel.Reader }

// Name of the read model.
func (TraitSchemas) Name() string { return "trait_schemas" }

// Wants says which events the model is made of.
func (TraitSchemas) Wants(t string) bool { return strings.HasPrefix(t, "trait_schema.") }

// Version of the read model's tables.
func (TraitSchemas) Version() int { return 2 }

// Schema of the read model. Versions count the facts of the client's stream.
func (TraitSchemas) Schema() string {
	return `
CREATE TABLE trait_schemas (
	client     text COLLATE "C" PRIMARY KEY,
	version    int NOT NULL,
	overridden int NOT NULL DEFAULT 0, -- the version of the last override
	overrides  text NOT NULL DEFAULT '{}', -- JSON
	learnt     int NOT NULL DEFAULT 0, -- the version that inference made
	learnt_at  log_position NOT NULL DEFAULT '', -- its position
	users      int NOT NULL DEFAULT 0, -- that there were then
	inferred   bytea,
	inferred_event text
);`
}

const (
	inferSchema = `
INSERT INTO trait_schemas AS s (client, version, learnt, learnt_at, users, inferred, inferred_event) VALUES ($1, $2, $2, $3, $4, $5, $6)
ON CONFLICT (client) DO UPDATE SET version = excluded.version, learnt = excluded.learnt, learnt_at = excluded.learnt_at,
	users = excluded.users, inferred = excluded.inferred, inferred_event = excluded.inferred_event`
	overrideSchema = `
INSERT INTO trait_schemas AS s (client, version, overridden, overrides) VALUES ($1, $2, $2, $3)
ON CONFLICT (client) DO UPDATE SET version = excluded.version, overridden = excluded.overridden, overrides = excluded.overrides`
)

// Apply changes the model by a batch of events.
func (TraitSchemas) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var b pgx.Batch
	for _, r := range batch {
		version := int64(r.Revision) + 1
		switch e := r.Event.(type) {
		case event.TraitSchemaInferred:
			box, err := readmodel.SealedOf(r, e.Schema)
			if err != nil {
				return err
			}
			b.Queue(inferSchema, string(r.Client), version, string(r.Position), e.Users, box.Box, string(box.Event))
		case event.TraitSchemaOverridden:
			overrides, err := json.Marshal(e.Overrides)
			if err != nil {
				return fmt.Errorf("encode overrides: %w", err)
			}
			b.Queue(overrideSchema, string(r.Client), version, string(overrides))
		}
	}
	return readmodel.Send(ctx, tx, "trait_schemas", &b)
}

// RecordedSchema is what the log says about a client's traits.
type RecordedSchema struct {
	Version    int
	Overridden int
	Overrides  map[string]traits.Override
	Learnt     int
	LearntAt   eventstore.Position
	Users      int           // that there were then
	Inferred   traits.Schema // the zero value: nothing was learnt yet
}

const getTraitSchema = `
SELECT s.version, s.overridden, s.overrides, s.learnt, s.learnt_at, s.users, s.inferred, s.inferred_event,
	k.id AS key, k.client_key, k.wrapped
FROM trait_schemas s LEFT JOIN subject_keys k ON k.client = s.client AND k.subject = s.client
WHERE s.client = $1`

// Recorded reads it; [traits.Schema.Decide] puts what the client has decided since on what was learnt.
// Faults: building, overloaded, quarantined, stale.
func (m TraitSchemas) Recorded(ctx context.Context, client id.Client, eventual bool) (RecordedSchema, error) {
	type row struct {
		RecordedSchema
		inferred readmodel.Sealed
		key      seal.WrappedKey
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getTraitSchema, nil, func(r *row) []any {
		return []any{
			&r.Version, &r.Overridden, readmodel.Document(&r.Overrides), &r.Learnt, readmodel.Text(&r.LearntAt), &r.Users, &r.inferred.Box,
			readmodel.Text(&r.inferred.Event), readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped,
		}
	})
	if err != nil || len(rows) == 0 {
		return RecordedSchema{}, err
	}
	r := rows[0]
	found := r.RecordedSchema
	schema, err := m.Open(ctx, r.key, string(client), r.inferred, client, eventstore.TraitSchemaStream(client), "schema")
	if err != nil || schema == nil {
		return found, err
	}
	found.Inferred, err = traits.Decode(schema)
	return found, err
}

const decidedTraits = `SELECT s.overrides FROM trait_schemas s WHERE s.client = $1`

// Sensitive are the paths that the client has decided are sensitive, or are not.
// Faults: building, overloaded, quarantined, stale.
func (m TraitSchemas) Sensitive(ctx context.Context, client id.Client, eventual bool) (map[string]bool, error) {
	type row struct {
		decided map[string]event.TraitOverride
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, decidedTraits, nil, func(r *row) []any { return []any{readmodel.Document(&r.decided)} })
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return event.Sensitive(rows[0].decided), nil
}

const lastDecision = `SELECT s.overridden, s.version FROM trait_schemas s WHERE s.client = $1`

// LastDecision returns the version of a client's schema that was the last to be
// decided, 0 where none was, of those up to one that is about the newest.
// Faults: building, overloaded, quarantined, stale.
func (m TraitSchemas) LastDecision(ctx context.Context, client id.Client) (last, version int, err error) {
	type row struct{ last, version int }
	rows, err := readmodel.Query(ctx, m.Reader, m, client, true, lastDecision, nil, func(r *row) []any { return []any{&r.last, &r.version} })
	if err != nil || len(rows) == 0 {
		return 0, 0, err
	}
	return rows[0].last, rows[0].version, nil
}

// Schema is the schema of the newest version; false where it has to be learnt.
func (r RecordedSchema) Schema() (traits.Schema, bool) {
	if r.Learnt == 0 {
		return traits.Schema{Version: r.Version}, false
	}
	schema, ok := r.Inferred.Decide(r.Overrides)
	schema.Version = r.Version
	return schema, ok
}

// OverridesOf are decisions as they are recorded, for inference and decisions.
func OverridesOf(decisions map[string]event.TraitOverride) map[string]traits.Override {
	overrides := make(map[string]traits.Override, len(decisions))
	for path, o := range decisions {
		overrides[path] = traits.Override{Type: traits.Type(o.Type), Weight: o.Weight, Ignore: o.Ignore, Sensitive: o.Sensitive}
	}
	return overrides
}
