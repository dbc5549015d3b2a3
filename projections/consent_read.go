package projections

import (
	"context"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// ConsentLayer is a purpose that users may consent to.
type ConsentLayer struct {
	ID              id.ConsentLayer
	Name            string
	TraitPaths      []string
	MatchRule       string // "": none
	Revision        eventstore.Revision
	CreatedAt       time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position
}

const layerColumns = `
SELECT l.id, l.name, l.trait_paths, l.match_rule, l.revision, l.created_at, l.updated_at, l.created_position FROM consent_layers l
WHERE l.client = $1 AND NOT l.retired`

const (
	listLayers = layerColumns + ` AND l.created_position > $2 ORDER BY l.created_position LIMIT $3`
	getLayer   = layerColumns + ` AND l.id = $2`
)

func scanLayer(l *ConsentLayer) []any {
	return []any{readmodel.Text(&l.ID), readmodel.Text(&l.Name), &l.TraitPaths, &l.MatchRule, &l.Revision, &l.CreatedAt, &l.UpdatedAt, readmodel.Text(&l.CreatedPosition)}
}

// Layers returns the layers of a client in order of creation.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) Layers(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]ConsentLayer, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, listLayers, []any{string(page.After), page.Limit}, scanLayer)
}

// Layer returns one layer, or fails with a fault of kind Missing.
// Faults: building, consent_layer_unknown, overloaded, quarantined, stale.
func (m Consent) Layer(ctx context.Context, client id.Client, eventual bool, layer id.ConsentLayer) (ConsentLayer, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, getLayer, []any{string(layer)}, scanLayer)
	return readmodel.Only(found, err, fault.UnknownConsentLayer())
}

// UserConsent is what a user has said under a layer.
type UserConsent struct {
	User       id.User
	ExternalID string
	Granted    bool
	ChangedAt  time.Time
	Changed    eventstore.Position
}

// The external id comes from the users model; see listWithExternalIDs.
const listConsents = `
SELECT c.user_id, c.granted, c.changed_at, c.changed, u.external, u.external_event, k.id AS key, k.client_key, k.wrapped
FROM consents c
LEFT JOIN users u ON u.client = c.client AND u.id = c.user_id
JOIN subject_keys k ON k.client = c.client AND k.subject = c.user_id
WHERE c.client = $1 AND c.layer = $2 AND c.granted = $3 AND c.changed > $4 AND u.erased IS NOT true ORDER BY c.changed LIMIT $5`

// Consents returns the users who have granted a layer, or have withdrawn what
// they granted, in order of that change.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) Consents(ctx context.Context, client id.Client, eventual bool, layer id.ConsentLayer, granted bool, page readmodel.Page) ([]UserConsent, error) {
	return listWithExternalIDs(ctx, m.Reader, m, client, eventual, page, listConsents, []any{string(layer), granted},
		func(c *UserConsent) []any {
			return []any{readmodel.Text(&c.User), &c.Granted, &c.ChangedAt, readmodel.Text(&c.Changed)}
		},
		func(c *UserConsent) (id.User, *string, eventstore.Position) { return c.User, &c.ExternalID, c.Changed })
}

// ConsentEntry is one thing that a user has said under a layer.
type ConsentEntry struct {
	Granted bool
	Source  *string
	Actor   string
	At      time.Time
}

// maxConsentHistory bounds the history of one consent; the newest count.
// limit: client | history of one consent | {maxConsentHistory}, the newest | older ones stand in the user's history
const maxConsentHistory = 1_000

const consentHistory = `
SELECT c.granted, c.source, c.source_event, c.actor, c.changed_at, k.id AS key, k.client_key, k.wrapped
FROM consent_changes c LEFT JOIN subject_keys k ON k.client = c.client AND k.subject = c.user_id
WHERE c.client = $1 AND c.layer = $2 AND c.user_id = $3 ORDER BY c.at DESC LIMIT $4`

// ConsentHistory returns all that a user has said under a layer, the newest
// first.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) ConsentHistory(ctx context.Context, client id.Client, eventual bool, layer id.ConsentLayer, user id.User) ([]ConsentEntry, error) {
	type row struct {
		ConsentEntry
		source readmodel.Sealed
		key    seal.WrappedKey
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, eventual, consentHistory, []any{string(layer), string(user), maxConsentHistory},
		func(r *row) []any {
			return []any{
				&r.Granted, &r.source.Box, readmodel.Text(&r.source.Event), &r.Actor, &r.At,
				readmodel.Text(&r.key.ID), readmodel.Text(&r.key.Under), &r.key.Wrapped,
			}
		})
	if err != nil {
		return nil, err
	}
	entries := make([]ConsentEntry, len(rows))
	stream := eventstore.ConsentStream(client, layer, user)
	for i, r := range rows {
		source, err := m.Open(ctx, r.key, string(user), r.source, client, stream, "source")
		if err != nil {
			return nil, err
		}
		if source != nil {
			r.Source = new(string(source))
		}
		entries[i] = r.ConsentEntry
	}
	return entries, nil
}

// LayerOfUser is a layer that a user has said something of.
type LayerOfUser struct {
	Layer     id.ConsentLayer
	Name      string
	Granted   bool
	ChangedAt time.Time
}

const layersSaidOf = `
SELECT c.layer, l.name, c.granted, c.changed_at FROM consents c JOIN consent_layers l ON l.client = c.client AND l.id = c.layer
WHERE c.client = $1 AND c.user_id = $2 AND NOT l.retired ORDER BY c.granted DESC, l.created_position LIMIT $3`

// LayersOf returns the layers that a user has granted, and then those that it has
// withdrawn: 200 at most.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) LayersOf(ctx context.Context, client id.Client, eventual bool, user id.User) ([]LayerOfUser, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, layersSaidOf, []any{string(user), maxStreams}, func(l *LayerOfUser) []any {
		return []any{readmodel.Text(&l.Layer), readmodel.Text(&l.Name), &l.Granted, &l.ChangedAt}
	})
}

const grantedAmong = `
SELECT c.user_id FROM consents c WHERE c.client = $1 AND c.layer = $2 AND c.user_id = ANY($3) AND c.granted`

// Granted returns who of these users has granted a layer.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) Granted(ctx context.Context, client id.Client, eventual bool, layer id.ConsentLayer, users []id.User) (map[id.User]bool, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, grantedAmong,
		[]any{string(layer), readmodel.Texts(users)}, readmodel.OneText[id.User])
	granted := make(map[id.User]bool, len(found))
	for _, u := range found {
		granted[u] = true
	}
	return granted, err
}

const consentingUsers = `
SELECT c.user_id FROM consents c
WHERE c.client = $1 AND c.layer = $2 AND c.granted AND c.user_id > $3 ORDER BY c.user_id LIMIT $4`

// Consenting returns, in order of their ids, at most limit users after one who
// have granted a layer.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) Consenting(ctx context.Context, client id.Client, layer id.ConsentLayer, after id.User, limit int) ([]id.User, error) {
	return readmodel.Query(ctx, m.Reader, m, client, false, consentingUsers, []any{string(layer), string(after), limit}, readmodel.OneText[id.User])
}

const usersBefore = `
SELECT u.id FROM users u
WHERE u.client = $1 AND NOT u.erased AND u.created_position < $2 AND u.id > $3 ORDER BY u.id LIMIT $4`

// NotConsenting returns the others, of those who were created before a position
// and are still there. The first page waits for what was acknowledged, since a consent that
// was withdrawn would count where the consents lag behind. Later pages do not wait: what was
// granted meanwhile returns too many. Each of the two is asked for itself: a join would be
// planned by what was known of the consents before many of them came.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) NotConsenting(ctx context.Context, client id.Client, layer id.ConsentLayer, before eventstore.Position, after id.User, limit int) ([]id.User, error) {
	var others []id.User
	for len(others) < limit {
		users, err := readmodel.Query(ctx, m.Reader, Users{}, client, false, usersBefore, []any{string(before), string(after), limit}, readmodel.OneText[id.User])
		if err != nil || len(users) == 0 {
			return others, err
		}
		granted, err := m.Granted(ctx, client, after != "", layer, users)
		if err != nil {
			return nil, err
		}
		for _, u := range users {
			if !granted[u] && len(others) < limit {
				others = append(others, u)
			}
		}
		after = users[len(users)-1]
	}
	return others, nil
}

const countUsersBefore = `SELECT count(*) FROM users u WHERE u.client = $1 AND NOT u.erased AND u.created_position < $2`

// CountUsers counts the users who were created before a position and are still
// there.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) CountUsers(ctx context.Context, client id.Client, before eventstore.Position) (int, error) {
	return readmodel.Count(ctx, m.Reader, Users{}, client, false, countUsersBefore, string(before))
}

const countConsents = `
SELECT count(*) FROM consents c WHERE c.client = $1 AND c.layer = $2 AND c.granted = $3 AND c.changed > $4`

// CountChanged counts those who have granted a layer, or withdrawn that, since
// a position.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) CountChanged(ctx context.Context, client id.Client, layer id.ConsentLayer, granted bool, since eventstore.Position) (int, error) {
	return readmodel.Count(ctx, m.Reader, m, client, false, countConsents, string(layer), granted, string(since))
}
