package projections

import (
	"context"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// maxStreams bounds the streams of each kind that a user's timeline is made of.
// limit: models | consent layers, campaigns and items that a user's timeline looks at, each | {maxStreams}
const maxStreams = 200

const (
	layersOfUser    = `SELECT c.layer FROM consents c WHERE c.client = $1 AND c.user_id = $2 ORDER BY c.changed DESC LIMIT $3`
	campaignsOfUser = `SELECT u.campaign FROM campaign_users u WHERE u.client = $1 AND u.user_id = $2 ORDER BY u.campaign LIMIT $3`
	itemsOfUser     = `SELECT i.item FROM interactions i WHERE i.client = $1 AND i.user_id = $2 ORDER BY i.item LIMIT $3`
)

// StreamsOfUser names the streams that tell of a user: its own, its matches, what it
// said of consent layers, which campaigns it was shown and what it did about items.
// Faults: building, overloaded, quarantined, stale.
func StreamsOfUser(ctx context.Context, r readmodel.Reader, client id.Client, eventual bool, user id.User) ([]eventstore.Stream, error) {
	streams := []eventstore.Stream{eventstore.UserStream(client, user), eventstore.MatchStream(client, user)}
	args := []any{string(user), maxStreams}
	layers, err := readmodel.Query(ctx, r, Consent{}, client, eventual, layersOfUser, args, readmodel.OneText[id.ConsentLayer])
	if err != nil {
		return nil, err
	}
	campaigns, err := readmodel.Query(ctx, r, Campaigns{}, client, eventual, campaignsOfUser, args, readmodel.OneText[id.Campaign])
	if err != nil {
		return nil, err
	}
	items, err := readmodel.Query(ctx, r, Interactions{}, client, eventual, itemsOfUser, args, func(i *string) []any { return []any{i} })
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		streams = append(streams, eventstore.ConsentStream(client, l, user))
	}
	for _, c := range campaigns {
		streams = append(streams, eventstore.ImpressionsStream(client, c, user))
	}
	for _, i := range items {
		streams = append(streams, eventstore.InteractionStream(client, user, i))
	}
	return streams, nil
}

// Each stream is a walk of its index of its own.
const entriesOfStreams = `
SELECT e.* FROM unnest($2::text[]) AS wanted (stream), LATERAL (
	SELECT e.ordinal, e.position, e.hash FROM history_events e
	WHERE e.client = $1 AND hashtextextended(e.stream, 0) = hashtextextended(wanted.stream, 0) AND e.stream = wanted.stream AND e.ordinal < $3
	ORDER BY e.ordinal DESC LIMIT $4) e
ORDER BY e.ordinal DESC LIMIT $4`

// Newest returns the newest entries of some streams of a client below an ordinal, the
// newest first.
// Faults: building, overloaded, quarantined, stale.
func (m History) Newest(ctx context.Context, client id.Client, eventual bool, streams []eventstore.Stream, below int64, limit int) ([]Entry, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, entriesOfStreams, []any{readmodel.Texts(streams), below, limit},
		func(e *Entry) []any { return []any{&e.Ordinal, readmodel.Text(&e.Position), hashInto{&e.Hash}} })
}
