package projections

import (
	"context"
	"fmt"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/ranking"
	"kindred/projections/readmodel"
)

// Standing is what counts, beside a match, when a user is ranked in another
// one's feed.
type Standing struct {
	User       id.User
	UpdatedAt  time.Time
	Unanswered int // impressions without a click within ranking.FatigueWindow
	Response   ranking.Response
}

// maxHidden bounds how many dismissals and conversions are looked at before the
// ranking; all of them are when a page is read.
// limit: models | dismissals and conversions that are looked at before a feed is ranked | {maxHidden}
const maxHidden = 10_000

const hiddenItems = `
SELECT i.item FROM interactions i WHERE i.client = $1 AND i.user_id = $2 AND i.hidden
	AND ($3::text[] IS NULL OR i.item = ANY($3)) LIMIT $4`

// Hidden returns which of these items a user has dismissed, or has converted on; of
// all, where items is nil.
// Faults: building, overloaded, quarantined, stale.
func (m Interactions) Hidden(ctx context.Context, client id.Client, eventual bool, user id.User, items []string) (map[string]bool, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, eventual, hiddenItems, []any{string(user), items, maxHidden}, readmodel.OneText[string])
	hidden := make(map[string]bool, len(found))
	for _, item := range found {
		hidden[item] = true
	}
	return hidden, err
}

// seenLately says what lies in the window that ends at $3, or event.MaxDrift later.
var seenLately = fmt.Sprintf(`s.at > $3::timestamptz - interval '%d seconds' AND s.at <= $3::timestamptz + interval '%d seconds'`,
	ranking.FatigueWindow/time.Second, event.MaxDrift/time.Second)

// standing selects from users u with their popularity p. The users model may lag
// behind this one, as for matches. $2 is whose feed it is, $3 the time, by the client's
// clock.
func standing(from, where string) string {
	return `
SELECT u.id, u.updated_at, (SELECT count(*) FROM unnest(i.seen) AS s (at) WHERE ` + seenLately + `) AS unanswered,
	coalesce(p.impressions, 0) AS impressions, coalesce(p.clicks, 0) AS clicks
FROM ` + from + `
LEFT JOIN interactions i ON i.client = u.client AND i.user_id = $2 AND i.item = u.id
WHERE u.client = $1 AND NOT u.erased AND NOT coalesce(i.hidden, false) AND ` + where
}

const (
	popularityOfUser = ` LEFT JOIN popularity p ON p.client = u.client AND p.item = u.id`
	grantedUsers     = `consents c JOIN users u ON u.client = c.client AND u.id = c.user_id` + popularityOfUser
	// A layer may be granted by few of many users: the others are passed over, so
	// they are bounded.
	mostPopular = `(SELECT t.client, t.item, t.impressions, t.clicks, t.rate FROM popularity t
	WHERE t.client = $1 AND t.clicks > 0 ORDER BY t.rate DESC, t.item LIMIT 5000) p
JOIN users u ON u.client = p.client AND u.id = p.item`
	// Ids are random, so users whose ids stand next to a random one are drawn evenly; behind the last comes the first.
	drawn = `(SELECT * FROM (
	(SELECT client, id, updated_at, erased FROM users WHERE client = $1 AND NOT erased AND id > $5 ORDER BY id LIMIT $6) UNION ALL
	(SELECT client, id, updated_at, erased FROM users WHERE client = $1 AND NOT erased AND id <= $5 ORDER BY id LIMIT $6)) w LIMIT $6) u`
	// $4 is the consent layer, '' for none.
	inLayer = `($4 = '' OR EXISTS (SELECT FROM consents c WHERE c.client = u.client AND c.layer = $4 AND c.user_id = u.id AND c.granted))`
)

var (
	standingsOf          = standing(`users u`+popularityOfUser, `u.id = ANY($4)`)
	newestStanding       = standing(`users u`+popularityOfUser, `u.id <> $2 ORDER BY u.created_position DESC LIMIT $4`)
	newestInLayer        = standing(grantedUsers, `u.id <> $2 AND c.client = $1 AND c.layer = $5 AND c.granted ORDER BY c.changed DESC LIMIT $4`)
	popularStanding      = standing(mostPopular, `u.id <> $2 AND `+inLayer+` ORDER BY p.rate DESC, p.item LIMIT $5`)
	underexposedStanding = standing(drawn+popularityOfUser, `u.id <> $2 AND coalesce(p.impressions, 0) < $7 AND `+inLayer+
		` ORDER BY coalesce(p.impressions, 0), md5(u.id || $5)`)
)

// Standings returns how users stand in the feed of another one.
// Faults: building, overloaded, quarantined, stale.
func (m Interactions) Standings(ctx context.Context, client id.Client, eventual bool, of id.User, now time.Time, users []id.User) ([]Standing, error) {
	return m.standings(ctx, client, eventual, standingsOf, string(of), now, readmodel.Texts(users))
}

// Newest returns the users who came last, the newest first; within a layer, those
// who granted it last.
// Faults: building, overloaded, quarantined, stale.
func (m Interactions) Newest(ctx context.Context, client id.Client, eventual bool, of id.User, now time.Time, within event.Within, limit int) ([]Standing, error) {
	if within.Layer != "" {
		return m.standings(ctx, client, eventual, newestInLayer, string(of), now, limit, string(within.Layer))
	}
	return m.standings(ctx, client, eventual, newestStanding, string(of), now, limit)
}

// Popular returns the users with the highest expected click rate among those
// who were clicked at all, the highest first. Those within a layer are looked for
// among the first 5,000.
// Faults: building, overloaded, quarantined, stale.
func (m Interactions) Popular(ctx context.Context, client id.Client, eventual bool, of id.User, now time.Time, within event.Within, limit int) ([]Standing, error) {
	return m.standings(ctx, client, eventual, popularStanding, string(of), now, string(within.Layer), limit)
}

// A user is underexposed with fewer impressions than exposed; drawnEach users are looked at.
const (
	exposed   = 50
	drawnEach = 100
)

// Underexposed draws users who have seldom been shown to anybody, from an id on, those first who were shown least. Within a
// layer they are those of the drawn who grant it.
// Faults: building, overloaded, quarantined, stale.
func (m Interactions) Underexposed(ctx context.Context, client id.Client, eventual bool, of id.User, now time.Time, within event.Within, from id.User) ([]Standing, error) {
	return m.standings(ctx, client, eventual, underexposedStanding, string(of), now, string(within.Layer), string(from), drawnEach, exposed)
}

func (m Interactions) standings(ctx context.Context, client id.Client, eventual bool, sql string, args ...any) ([]Standing, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, sql, args, func(s *Standing) []any {
		return []any{readmodel.Text(&s.User), &s.UpdatedAt, &s.Unanswered, &s.Response.Impressions, &s.Response.Clicks}
	})
}
