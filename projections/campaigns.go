package projections

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/readmodel"
)

// Campaigns is the read model of campaigns and of what came of them.
type Campaigns struct{ readmodel.Reader }

// Campaign is a campaign with its totals.
type Campaign struct {
	ID id.Campaign
	event.CampaignTerms
	Status          string
	SpentMinor      int64
	Revision        eventstore.Revision // counts the changes to anything but the totals
	StartedAt       time.Time           // zero: it never ran
	CreatedAt       time.Time
	UpdatedAt       time.Time
	CreatedPosition eventstore.Position
	Totals
	Reach int64 // users who have seen it
}

// Totals count what came of a campaign.
type Totals struct {
	Spends      int64
	Impressions int64
	Engaged     int64 // impressions with a click or a conversion
	Clicks      int64
	Conversions int64
}

// EngagementRate is the share of the impressions with a click or a conversion;
// 0 where there is no impression.
func (t Totals) EngagementRate() float64 {
	if t.Impressions == 0 {
		return 0
	}
	return float64(t.Engaged) / float64(t.Impressions)
}

// Name of the read model.
func (Campaigns) Name() string { return "campaigns" }

// Wants says which events concern the read model.
func (Campaigns) Wants(t string) bool {
	return strings.HasPrefix(t, "campaign.") || t == "end_user.erased" || t == "client.clock_moved"
}

// Version of the read model's tables.
func (Campaigns) Version() int { return 5 }

// Options of the read model.
func (Campaigns) Options() projector.Options { return projector.Options{Indexes: campaignIndexes} }

const campaignClocks readmodel.Clocks = "campaign_clocks"

// Schema of the read model. Slots are quarters of an hour: the hours and the
// days of every time zone are made of them. An erased user's impressions stay,
// and are nobody's. Who was erased is kept, so that an impression that was on
// its way then is nobody's too.
func (Campaigns) Schema() string {
	return `
CREATE TABLE campaigns (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	created_position        log_position NOT NULL,
	terms       text NOT NULL, -- JSON
	status      text NOT NULL,
	spent_minor bigint NOT NULL,
	revision    bigint NOT NULL,
	started_at  timestamptz,
	created_at  timestamptz NOT NULL,
	updated_at  timestamptz NOT NULL,
	due         timestamptz, -- when its status changes by itself
	spends      bigint NOT NULL,
	impressions bigint NOT NULL,
	engaged     bigint NOT NULL,
	clicks      bigint NOT NULL,
	conversions bigint NOT NULL,
	reach       bigint NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX campaigns_listed ON campaigns (client, created_position);
CREATE INDEX campaigns_due ON campaigns (due) WHERE due IS NOT NULL;
CREATE TABLE campaign_slots (
	client      text COLLATE "C" NOT NULL,
	campaign    text COLLATE "C" NOT NULL,
	slot        timestamptz NOT NULL,
	spent_minor bigint NOT NULL,
	spends      bigint NOT NULL,
	impressions bigint NOT NULL,
	engaged     bigint NOT NULL, -- of the impressions of this slot
	clicks      bigint NOT NULL,
	conversions bigint NOT NULL,
	PRIMARY KEY (client, campaign, slot)
);
CREATE TABLE campaign_impressions (
	client   text COLLATE "C" NOT NULL,
	id       text COLLATE "C" NOT NULL,
	campaign text COLLATE "C" NOT NULL,
	user_id  text COLLATE "C",
	shown_at timestamptz NOT NULL,
	position log_position NOT NULL,
	answers  bigint NOT NULL DEFAULT 0, -- clicks and conversions
	PRIMARY KEY (client, id)
);
CREATE INDEX campaign_impressions_users ON campaign_impressions (client, user_id, campaign);
CREATE TABLE campaign_users (
	client      text COLLATE "C" NOT NULL,
	campaign    text COLLATE "C" NOT NULL,
	user_id     text COLLATE "C" NOT NULL,
	impressions bigint NOT NULL,
	engaged     bigint NOT NULL,
	PRIMARY KEY (client, campaign, user_id)
);
CREATE INDEX campaign_users_users ON campaign_users (client, user_id);
CREATE TABLE campaign_erased (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, user_id)
);` + campaignClocks.Table()
}

var campaignIndexes = []string{`CREATE INDEX IF NOT EXISTS campaigns_in ON campaigns (client, status, created_position);`}

const campaignColumns = `
SELECT c.id, c.created_position, c.terms, c.status, c.spent_minor, c.revision, c.started_at, c.created_at, c.updated_at,
	c.spends, c.impressions, c.engaged, c.clicks, c.conversions, c.reach
FROM campaigns c `

const (
	listCampaigns = campaignColumns + `
WHERE c.client = $1 AND c.created_position > $2`
	campaignsIn   = ` AND c.status = $%d`
	campaignsPage = ` ORDER BY c.created_position LIMIT $%d`
	getCampaign   = campaignColumns + `WHERE c.client = $1 AND c.id = $2`
)

// List returns the campaigns of a client in order of creation; status selects
// those that have it, nil all.
// Faults: building, overloaded, quarantined, stale.
func (m Campaigns) List(ctx context.Context, client id.Client, eventual bool, status *string, page readmodel.Page) ([]Campaign, error) {
	w := readmodel.Where{SQL: listCampaigns, Args: []any{string(page.After)}}
	if status != nil {
		w.And(campaignsIn, *status)
	}
	w.And(campaignsPage, page.Limit)
	return m.campaigns(ctx, client, eventual, w.SQL, w.Args...)
}

// Get returns one campaign, or fails with a fault of kind Missing.
// Faults: building, campaign_unknown, overloaded, quarantined, stale.
func (m Campaigns) Get(ctx context.Context, client id.Client, eventual bool, campaign id.Campaign) (Campaign, error) {
	found, err := m.campaigns(ctx, client, eventual, getCampaign, string(campaign))
	return readmodel.Only(found, err, fault.UnknownCampaign())
}

func (m Campaigns) campaigns(ctx context.Context, client id.Client, eventual bool, sql string, args ...any) ([]Campaign, error) {
	return readmodel.Query(ctx, m.Reader, m, client, eventual, sql, args, func(c *Campaign) []any {
		return []any{
			readmodel.Text(&c.ID), readmodel.Text(&c.CreatedPosition), readmodel.Document(&c.CampaignTerms), readmodel.Text(&c.Status), &c.SpentMinor, &c.Revision,
			(*zeronull.Timestamptz)(&c.StartedAt), &c.CreatedAt, &c.UpdatedAt,
			&c.Spends, &c.Impressions, &c.Engaged, &c.Clicks, &c.Conversions, &c.Reach,
		}
	})
}

const findImpression = `
SELECT i.campaign, i.user_id, i.shown_at, i.position FROM campaign_impressions i
WHERE i.client = $1 AND i.id = $2`

// Find returns an impression, or fails with a fault of kind Missing. One of a
// user who was erased is nobody's.
// Faults: building, impression_unknown, overloaded, quarantined, stale.
func (m Campaigns) Find(ctx context.Context, client id.Client, impression id.Impression) (eventstore.Recorded, error) {
	type row struct {
		campaign id.Campaign
		user     id.User
		at       time.Time
		position eventstore.Position
	}
	rows, err := readmodel.Query(ctx, m.Reader, m, client, false, findImpression, []any{string(impression)}, func(r *row) []any {
		return []any{readmodel.Text(&r.campaign), readmodel.Text(&r.user), &r.at, readmodel.Text(&r.position)}
	})
	r, err := readmodel.Only(rows, err, fault.UnknownImpression())
	if err != nil {
		return eventstore.Recorded{}, err
	}
	return eventstore.Recorded{
		Record: eventstore.Record{Position: r.position, Proposed: eventstore.Proposed{RecordedAt: r.at}},
		Event:  event.CampaignEngagementRecorded{Campaign: r.campaign, Impression: impression, User: r.user, Kind: "impression"},
	}, nil
}

// A quarantined client's campaigns stay due here after they have been advanced. Those of
// a sandbox are due by its clock. Clients take turns: however many of one are due at once,
// as at midnight, the first of each other comes among the first. Who comes first changes, so
// that campaigns which cannot be advanced keep no other waiting.
const dueCampaigns = `
SELECT c.client, c.id FROM (
	SELECT c.client, c.id, c.due, row_number() OVER (PARTITION BY c.client ORDER BY c.due) AS turn FROM (
		SELECT c.client, c.id, c.due FROM campaigns c WHERE c.due <= $1
		UNION
		SELECT c.client, c.id, c.due FROM campaign_clocks k CROSS JOIN LATERAL (
			SELECT c.client, c.id, c.due FROM campaigns c WHERE c.client = k.client AND c.due > $1 AND c.due <= $1 + k.ahead OFFSET 0) c
	) c
) c LEFT JOIN quarantine q ON q.projection = $3 AND q.client = c.client
ORDER BY q.client IS NOT NULL, c.turn, random() LIMIT $2`

// Due returns campaigns whose time to start or to end has come, at most limit,
// and whose they are, of all clients in turn, those of quarantined ones only where there
// is room; none while the read model is yet to be made.
func (m Campaigns) Due(ctx context.Context, now time.Time, limit int) (map[id.Campaign]id.Client, error) {
	due := map[id.Campaign]id.Client{}
	rows, err := m.Pool.Query(ctx, dueCampaigns, now, limit, projector.ID(m))
	if projector.TablesMissing(err) {
		return due, nil
	}
	if err != nil {
		return nil, err
	}
	var (
		client   id.Client
		campaign id.Campaign
	)
	_, err = pgx.ForEachRow(rows, []any{readmodel.Text(&client), readmodel.Text(&campaign)}, func() error {
		due[campaign] = client
		return nil
	})
	return due, err
}

// Interval is the totals of an hour, a day, a week or a month.
type Interval struct {
	Start      time.Time
	SpentMinor int64
	Totals
}

// maxIntervals bounds a series.
// limit: client | intervals of a series | {maxIntervals} | the rest is left out
const maxIntervals = 1_000

const campaignSeries = `
SELECT date_trunc($3, s.slot, $4) AS start, sum(s.spent_minor)::bigint AS spent_minor, sum(s.spends)::bigint AS spends,
	sum(s.impressions)::bigint AS impressions, sum(s.engaged)::bigint AS engaged, sum(s.clicks)::bigint AS clicks,
	sum(s.conversions)::bigint AS conversions
FROM campaign_slots s WHERE s.client = $1 AND s.campaign = $2 GROUP BY 1 ORDER BY 1 DESC LIMIT $5`

// startOf is when an interval begins, by a moment that the database says: where midnight comes
// twice that is the second one.
func startOf(unit string, at time.Time, zone *time.Location) time.Time {
	at = at.In(zone)
	if unit == "hour" {
		return at
	}
	return DayBegins(at.Year(), at.Month(), at.Day(), zone)
}

// DayBegins is the first moment of a day in a time zone: midnight, the first one where it comes
// twice, or the moment at which clocks pass over it.
func DayBegins(year int, month time.Month, day int, zone *time.Location) time.Time {
	utc, at := time.Date(year, month, day, 0, 0, 0, 0, time.UTC), time.Date(year, month, day, 0, 0, 0, 0, zone)
	since, until := at.ZoneBounds()
	if !since.IsZero() {
		_, before := since.Add(-1).Zone()
		if first := utc.Add(-time.Duration(before) * time.Second); first.Before(since) {
			return first.In(zone)
		}
	}
	if at.Day() != utc.Day() {
		return until
	}
	return at
}

// ErrZoneUnknown says that the database does not know a time zone.
var ErrZoneUnknown = errors.New("the database does not know the time zone")

// Series returns the totals of a campaign's intervals, the newest 1,000 of
// those in which there was something, in order. unit is "hour", "day", "week"
// or "month" in a time zone of the IANA database, else it is ErrZoneUnknown.
// Faults: building, overloaded, quarantined, stale.
func (m Campaigns) Series(ctx context.Context, client id.Client, eventual bool, campaign id.Campaign, unit string, zone *time.Location) ([]Interval, error) {
	intervals, err := readmodel.Query(ctx, m.Reader, m, client, eventual, campaignSeries,
		[]any{string(campaign), unit, zone.String(), maxIntervals}, func(i *Interval) []any {
			return []any{&i.Start, &i.SpentMinor, &i.Spends, &i.Impressions, &i.Engaged, &i.Clicks, &i.Conversions}
		})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "22023" { // invalid_parameter_value
		return nil, ErrZoneUnknown
	}
	for i := range intervals {
		intervals[i].Start = startOf(unit, intervals[i].Start, zone)
	}
	slices.SortFunc(intervals, func(a, b Interval) int { return a.Start.Compare(b.Start) })
	return intervals, err
}
