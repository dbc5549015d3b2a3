package projections

import (
	"context"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// Showable is a running campaign that a user has not seen too often.
type Showable struct {
	ID id.Campaign
	event.CampaignTerms
	SpentMinor  int64
	StartedAt   time.Time
	Impressions int64 // of everybody
	Engaged     int64 // impressions of everybody with a click or a conversion
	Unanswered  int   // impressions of the user within a window, after the newest that something came of

	CreatedPosition eventstore.Position
}

// MaxShowable bounds the campaigns that one feed chooses from, and those that are read at
// a time; the oldest count.
// limit: client | campaigns that one feed chooses from | {MaxShowable}, the oldest | the rest waits
const MaxShowable = 500

// An impression is capped by the newest frequency_cap ones of its window, as
// the command does that decides.
const showableCampaigns = `
SELECT c.id, c.created_position, c.terms, c.spent_minor, c.started_at, c.impressions, c.engaged, coalesce(seen.unanswered, 0) AS unanswered
FROM campaigns c
CROSS JOIN LATERAL (SELECT coalesce((c.terms::jsonb ->> 'frequency_cap')::int, 0) AS cap,
	make_interval(secs => (c.terms::jsonb ->> 'frequency_window_seconds')::int) AS span, -- NULL: the campaign's life
	$3::timestamptz + $7::interval AS ahead, -- see event.Ahead
	(c.terms::jsonb ->> 'ends_at')::timestamptz AS ends) t
LEFT JOIN LATERAL (SELECT count(*) FILTER (WHERE i.position > i.answered AND i.shown_at > $4 AND i.shown_at <= t.ahead) AS unanswered,
		count(*) FILTER (WHERE t.span IS NULL OR i.shown_at > $3 - t.span AND i.shown_at <= t.ahead) AS within
	FROM (SELECT position, shown_at, coalesce(max(position) FILTER (WHERE answers > 0) OVER (), '') AS answered
		FROM campaign_impressions WHERE client = c.client AND user_id = $2 AND campaign = c.id) i) seen ON true
WHERE c.client = $1 AND c.status = 'running' AND c.spent_minor < (c.terms::jsonb ->> 'budget_minor')::bigint
	AND c.created_position > $6
	AND (t.ends IS NULL OR t.ends > $3) AND (t.cap = 0 OR seen.within < t.cap)
ORDER BY c.created_position LIMIT $5`

// Showable returns the campaigns that run now and that a user has not seen as
// often as their frequency caps allow, whomever they are for: a page, in order of
// creation. since begins the window of what was unanswered.
// Faults: building, overloaded, quarantined, stale.
func (m Campaigns) Showable(ctx context.Context, client id.Client, user id.User, now, since time.Time, p readmodel.Page) ([]Showable, error) {
	return readmodel.Query(ctx, m.Reader, m, client, false, showableCampaigns, []any{string(user), now, since, p.Limit, string(p.After), event.MaxDrift}, func(s *Showable) []any {
		return []any{readmodel.Text(&s.ID), readmodel.Text(&s.CreatedPosition), readmodel.Document(&s.CampaignTerms), &s.SpentMinor, &s.StartedAt, &s.Impressions, &s.Engaged, &s.Unanswered}
	})
}

const campaignNaming = `
SELECT c.id FROM campaigns c WHERE c.client = $1 AND c.status IN ('draft', 'scheduled', 'running', 'paused')
	AND (c.terms::jsonb -> 'segments' -> 'any_of' ? $2 OR c.terms::jsonb -> 'segments' -> 'none_of' ? $2) ORDER BY c.created_position LIMIT 1`

// Naming returns the oldest campaign, of those that have not ended, whose audience names a
// segment; "" where there is none.
// Faults: building, overloaded, quarantined, stale.
func (m Campaigns) Naming(ctx context.Context, client id.Client, segment id.Segment) (id.Campaign, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, false, campaignNaming, []any{string(segment)}, readmodel.OneText[id.Campaign])
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}
