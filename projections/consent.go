package projections

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Consent is the read model of consent layers and of who has granted them.
type Consent struct{ readmodel.Reader }

// Name of the read model.
func (Consent) Name() string { return "consent" }

// Wants says which events the model is made of.
func (Consent) Wants(t string) bool {
	return strings.HasPrefix(t, "consent") || t == "end_user.erased"
}

// Version of the read model's tables.
func (Consent) Version() int { return 4 }

// Schema of the read model. Who was erased, and which layers were retired, is
// kept, so that a grant that was on its way then leaves no trace.
func (Consent) Schema() string {
	return `
CREATE TABLE consent_layers (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	name        text NOT NULL,
	trait_paths text[] NOT NULL,
	match_rule  text NOT NULL,
	revision    bigint NOT NULL,
	created_at  timestamptz NOT NULL,
	updated_at  timestamptz NOT NULL,
	retired     boolean NOT NULL DEFAULT false,
	PRIMARY KEY (client, id)
);
CREATE INDEX consent_layers_listed ON consent_layers (client, created_position);
CREATE TABLE consents (
	client  text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	granted boolean NOT NULL,
	changed log_position NOT NULL, -- position of the last change
	changed_at timestamptz NOT NULL,
	PRIMARY KEY (client, layer, user_id)
);
CREATE INDEX consents_listed ON consents (client, layer, changed);
CREATE INDEX consents_of_user ON consents (client, user_id);
CREATE TABLE consent_changes (
	client       text COLLATE "C" NOT NULL,
	layer        text COLLATE "C" NOT NULL,
	user_id      text COLLATE "C" NOT NULL,
	at           log_position NOT NULL,
	granted      boolean NOT NULL,
	source       bytea,
	source_event text,
	actor        text NOT NULL,
	changed_at   timestamptz NOT NULL,
	PRIMARY KEY (client, user_id, layer, at)
);
CREATE TABLE consent_erased (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	at      log_position NOT NULL,
	PRIMARY KEY (client, user_id)
);
CREATE INDEX consent_erased_lately ON consent_erased (client, at);`
}

// consentRow is a change of one user's consent.
type consentRow struct {
	client  id.Client
	layer   id.ConsentLayer
	user    id.User
	granted bool
	hidden  bool // withdrew at some time; for the clusters model
	source  readmodel.Sealed
	actor   string
	at      eventstore.Position
	time    time.Time
}

const (
	insertLayer = `
INSERT INTO consent_layers (client, id, created_position, name, trait_paths, match_rule, revision, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT DO NOTHING`
	changeLayer = `
UPDATE consent_layers SET name = $3, trait_paths = $4, match_rule = $5, revision = $6, updated_at = $7 WHERE client = $1 AND id = $2`
	retireLayer    = `UPDATE consent_layers SET retired = true WHERE client = $1 AND id = $2`
	retireConsents = `DELETE FROM consents WHERE client = $1 AND layer = $2`
	// retireChanges finds the changes by their users, each of whom has a consent, not among those of all layers.
	retireChanges = `
DELETE FROM consent_changes h USING consents c
WHERE c.client = $1 AND c.layer = $2 AND h.client = $1 AND h.user_id = c.user_id AND h.layer = $2`
	noteErased    = `INSERT INTO consent_erased (client, user_id, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	eraseConsents = `DELETE FROM consents WHERE client = $1 AND user_id = $2`
	eraseChanges  = `DELETE FROM consent_changes WHERE client = $1 AND user_id = $2`

	// insertChanges leaves out who was erased and what was retired; of each
	// user and layer the last change of the batch is the state.
	insertChanges = `
WITH new AS (
	SELECT n.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::bytea[], $7::text[], $8::text[], $9::timestamptz[])
		AS n (client, layer, user_id, at, granted, source, source_event, actor, changed_at)
	WHERE EXISTS (SELECT FROM consent_layers l WHERE l.client = n.client AND l.id = n.layer AND NOT l.retired)
		AND NOT EXISTS (SELECT FROM consent_erased e WHERE e.client = n.client AND e.user_id = n.user_id)
), history AS (
	INSERT INTO consent_changes (client, layer, user_id, at, granted, source, source_event, actor, changed_at)
	SELECT client, layer, user_id, at, granted, source, source_event, actor, changed_at FROM new
)
INSERT INTO consents (client, layer, user_id, granted, changed, changed_at)
SELECT DISTINCT ON (client, layer, user_id) client, layer, user_id, granted, at, changed_at FROM new
ORDER BY client, layer, user_id, at DESC
ON CONFLICT (client, layer, user_id) DO UPDATE SET
	granted = excluded.granted, changed = excluded.changed, changed_at = excluded.changed_at`
)

const consentsOfLayer = `SELECT FROM consents WHERE client = $1 AND layer = $2`

// ApplyTogether implements [projector.PerClient]: of clients whose layers stay.
func (m Consent) ApplyTogether(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (rest []eventstore.Recorded, err error) {
	together, rest := readmodel.Apart(batch, func(e event.Event) bool {
		_, retires := e.(event.ConsentLayerRetired)
		return retires
	})
	return rest, m.Apply(ctx, tx, together)
}

// ApplyClient implements [projector.PerClient]: the end of a layer that many granted keeps
// nobody waiting.
func (m Consent) ApplyClient(ctx context.Context, tx pgx.Tx, _ *eventstore.Log, client id.Client, batch []eventstore.Recorded, spend projector.Spend) error {
	for _, r := range batch {
		if e, retires := r.Event.(event.ConsentLayerRetired); retires {
			if err := readmodel.SpendOnRows(ctx, tx, spend, readmodel.StepsToDelete, consentsOfLayer, string(client), string(e.Layer)); err != nil {
				return err
			}
		}
	}
	return m.Apply(ctx, tx, batch)
}

// Apply changes the model by a batch of events.
func (Consent) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var rows []consentRow
	for _, r := range batch {
		row, changed, err := consentChange(r)
		if err != nil {
			return err
		}
		if changed {
			rows = append(rows, row)
			continue
		}
		var b pgx.Batch
		if applyConsentLayer(&b, r); b.Len() == 0 {
			continue
		}
		// It must find in the tables what came before it in this batch.
		if err := writeConsents(ctx, tx, rows); err != nil {
			return err
		}
		rows = nil
		if err := readmodel.Send(ctx, tx, "consent", &b); err != nil {
			return err
		}
	}
	return writeConsents(ctx, tx, rows)
}

func consentChange(r eventstore.Recorded) (row consentRow, changed bool, err error) {
	var source *event.Personal
	row = consentRow{client: r.Client, at: r.Position, time: r.RecordedAt}
	switch e := r.Event.(type) {
	case event.ConsentGranted:
		row.layer, row.user, row.granted, source = e.Layer, e.User, true, e.Source
	case event.ConsentWithdrawn:
		row.layer, row.user, source = e.Layer, e.User, e.Source
	default:
		return row, false, nil
	}
	if row.source, err = readmodel.SealedOf(r, source); err != nil {
		return row, false, err
	}
	meta, err := eventstore.DecodeMeta(r.Meta)
	row.actor = meta.Actor
	return row, true, err
}

func applyConsentLayer(b *pgx.Batch, r eventstore.Recorded) {
	client := string(r.Client)
	switch e := r.Event.(type) {
	case event.ConsentLayerDefined:
		b.Queue(insertLayer, client, string(e.Layer), string(r.Position), e.Name, e.TraitPaths, e.MatchRule, int64(r.Revision), r.RecordedAt)
	case event.ConsentLayerChanged:
		b.Queue(changeLayer, client, string(e.Layer), e.Name, e.TraitPaths, e.MatchRule, int64(r.Revision), r.RecordedAt)
	case event.ConsentLayerRetired:
		for _, sql := range []string{retireLayer, retireChanges, retireConsents} {
			b.Queue(sql, client, string(e.Layer))
		}
	case event.EndUserErased:
		b.Queue(noteErased, client, string(e.User), string(r.Position))
		b.Queue(eraseConsents, client, string(e.User))
		b.Queue(eraseChanges, client, string(e.User))
	}
}

func writeConsents(ctx context.Context, tx pgx.Tx, rows []consentRow) error {
	if len(rows) == 0 {
		return nil
	}
	return readmodel.Do(ctx, tx, "write consents", insertChanges,
		readmodel.Column(rows, func(r consentRow) string { return string(r.client) }),
		readmodel.Column(rows, func(r consentRow) string { return string(r.layer) }),
		readmodel.Column(rows, func(r consentRow) string { return string(r.user) }),
		readmodel.Column(rows, func(r consentRow) string { return string(r.at) }),
		readmodel.Column(rows, func(r consentRow) bool { return r.granted }),
		readmodel.Column(rows, func(r consentRow) []byte { return r.source.Box }),
		readmodel.Column(rows, func(r consentRow) string { return string(r.source.Event) }),
		readmodel.Column(rows, func(r consentRow) string { return r.actor }),
		readmodel.Column(rows, func(r consentRow) time.Time { return r.time }),
	)
}

// ConsentChange is a user's consent as it is now. Of a user who was erased it
// says that nothing is granted.
type ConsentChange struct {
	User    id.User
	Granted bool
	At      eventstore.Position
}

const changedConsents = `
SELECT c.user_id, c.granted, c.changed FROM consents c WHERE c.client = $1 AND c.layer = $2 AND c.changed > $3
UNION ALL
SELECT e.user_id, false, e.at FROM consent_erased e WHERE e.client = $1 AND e.at > $3 AND $3 <> ''
ORDER BY 3 LIMIT $4`

// ChangedConsents returns at most limit consents of a layer that have changed
// after a position, in order of their last change.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) ChangedConsents(ctx context.Context, client id.Client, layer id.ConsentLayer, eventual bool, after eventstore.Position, limit int) ([]ConsentChange, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, changedConsents, []any{string(layer), string(after), limit},
		func(c *ConsentChange) []any { return []any{readmodel.Text(&c.User), &c.Granted, readmodel.Text(&c.At)} })
	if err != nil {
		return nil, fmt.Errorf("read the consents of %s: %w", layer, err)
	}
	return found, nil
}
