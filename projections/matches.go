package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Matches is the read model of computed matches: of each pair the newest one.
type Matches struct{ readmodel.Reader }

// Match is a match that was recorded for a user.
type Match struct {
	Matched         id.User
	ExternalID      string // of the matched user
	Score           float64
	Percentile      float64
	Explanation     []event.Term
	ComputedAt      time.Time
	CreatedPosition eventstore.Position // of the pair's first computation: its place in lists
}

// Name of the read model.
func (Matches) Name() string { return "matches" }

// Wants says which events the model is made of.
func (Matches) Wants(t string) bool { return t == "match.computed" || t == "end_user.erased" }

// Version of the read model's tables.
func (Matches) Version() int { return 3 }

// Schema of the read model. Who was erased is kept, so that a match that was on
// its way then leaves no trace.
func (Matches) Schema() string {
	return `
CREATE TABLE matches (
	client      text COLLATE "C" NOT NULL,
	user_id     text COLLATE "C" NOT NULL,
	matched     text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	score       double precision NOT NULL,
	percentile  double precision NOT NULL,
	explanation text NOT NULL, -- JSON
	computed_at timestamptz NOT NULL,
	PRIMARY KEY (client, user_id, matched)
);
CREATE INDEX matches_listed ON matches (client, user_id, created_position);
CREATE INDEX matches_matched ON matches (client, matched);
CREATE TABLE match_erased (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, user_id)
);`
}

const (
	upsertMatches = `
INSERT INTO matches (client, user_id, matched, created_position, score, percentile, explanation, computed_at)
SELECT n.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::float8[], $7::text[], $8::timestamptz[])
	AS n (client, user_id, matched, created_position, score, percentile, explanation, computed_at)
WHERE NOT EXISTS (SELECT FROM match_erased e WHERE e.client = n.client AND e.user_id = n.user_id)
	AND NOT EXISTS (SELECT FROM match_erased e WHERE e.client = n.client AND e.user_id = n.matched)
ON CONFLICT (client, user_id, matched) DO UPDATE SET score = excluded.score,
	percentile = excluded.percentile, explanation = excluded.explanation, computed_at = excluded.computed_at`
	noteMatchErased = `INSERT INTO match_erased (client, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	eraseMatches    = `DELETE FROM matches WHERE client = $1 AND user_id = $2`
	eraseMatched    = `DELETE FROM matches WHERE client = $1 AND matched = $2`
)

type matchRow struct {
	client          id.Client
	event           event.MatchComputed
	explanation     string
	createdPosition eventstore.Position
	time            time.Time
}

// Apply changes the model by a batch of events.
func (Matches) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	rows := map[string]matchRow{}
	for _, r := range batch {
		switch e := r.Event.(type) {
		case event.MatchComputed:
			explanation, err := json.Marshal(e.Explanation)
			if err != nil {
				return fmt.Errorf("encode an explanation: %w", err)
			}
			key := string(r.Client) + "/" + string(e.User) + "/" + string(e.MatchedUser)
			createdPosition := r.Position
			if earlier, found := rows[key]; found {
				createdPosition = earlier.createdPosition
			}
			rows[key] = matchRow{r.Client, e, string(explanation), createdPosition, r.RecordedAt}
		case event.EndUserErased:
			// What else this batch says of the user is left out when it is written.
			for _, sql := range []string{noteMatchErased, eraseMatches, eraseMatched} {
				if err := readmodel.Do(ctx, tx, "erase matches", sql, string(r.Client), string(e.User)); err != nil {
					return err
				}
			}
		}
	}
	return writeMatches(ctx, tx, rows)
}

func writeMatches(ctx context.Context, tx pgx.Tx, rows map[string]matchRow) error {
	if len(rows) == 0 {
		return nil
	}
	sorted := readmodel.SortedValues(rows)
	return readmodel.Do(ctx, tx, "upsert matches", upsertMatches,
		readmodel.Column(sorted, func(r matchRow) string { return string(r.client) }),
		readmodel.Column(sorted, func(r matchRow) string { return string(r.event.User) }),
		readmodel.Column(sorted, func(r matchRow) string { return string(r.event.MatchedUser) }),
		readmodel.Column(sorted, func(r matchRow) string { return string(r.createdPosition) }),
		readmodel.Column(sorted, func(r matchRow) float64 { return r.event.Score }),
		readmodel.Column(sorted, func(r matchRow) float64 { return r.event.Percentile }),
		readmodel.Column(sorted, func(r matchRow) string { return r.explanation }),
		readmodel.Column(sorted, func(r matchRow) time.Time { return r.time }),
	)
}

// The external id comes from the users model; see listWithExternalIDs.
const listMatches = `
SELECT m.matched, m.created_position, m.score, m.percentile, m.explanation, m.computed_at, u.external, u.external_event,
	k.id AS key, k.client_key, k.wrapped
FROM matches m
LEFT JOIN users u ON u.client = m.client AND u.id = m.matched
JOIN subject_keys k ON k.client = m.client AND k.subject = m.matched
WHERE m.client = $1 AND m.user_id = $2 AND m.created_position > $3 AND u.erased IS NOT true ORDER BY m.created_position LIMIT $4`

// List returns the matches that were recorded for a user, in the order in which
// the pairs were first computed.
// Faults: building, overloaded, quarantined, stale.
func (m Matches) List(ctx context.Context, client id.Client, eventual bool, user id.User, page readmodel.Page) ([]Match, error) {
	return listWithExternalIDs(ctx, m.Reader, m, client, eventual, page, listMatches, []any{string(user)},
		func(found *Match) []any {
			return []any{readmodel.Text(&found.Matched), readmodel.Text(&found.CreatedPosition), &found.Score, &found.Percentile, readmodel.Document(&found.Explanation), &found.ComputedAt}
		},
		func(found *Match) (id.User, *string, eventstore.Position) {
			return found.Matched, &found.ExternalID, found.CreatedPosition
		})
}
