package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"kindred/console/chart"
	kindred "kindred/sdk/go"
)

func (p *page) campaigns() error {
	asked := p.r.URL.Query()
	found, err := p.api.Campaigns.ListPage(p.r.Context(), kindred.ListCampaignsParams{Limit: new(int64(pageOf)), Cursor: asked.Get("cursor")})
	if err != nil {
		return err
	}
	clusters, _, err := collect(p.api.Clusters.List(p.r.Context(), kindred.ListClustersParams{}), allOf)
	if err != nil {
		return err
	}
	segments, err := p.allSegments()
	if err != nil {
		return err
	}
	return p.show("campaigns", "Campaigns", say("titles.campaigns"), map[string]any{
		"Campaigns": found.Data, "Clusters": clusters, "Segments": segments, "Next": next("campaigns", asked, found.NextCursor),
	})
}

// typedTime reads a time that was typed in the reader's zone. One that is as its field shows it is left out: the field has
// no seconds.
func (p *page) typedTime(name string, shown *time.Time) (at kindred.Nullable[time.Time], err error) {
	text := p.form(name)
	switch {
	case text == "":
		return kindred.Null[time.Time](), nil
	case text == inputTime(shown, zoneOf(p.r)):
		return at, nil
	}
	t, err := time.ParseInLocation(typedLayout, text, zoneOf(p.r))
	if err != nil {
		return at, invalid(name, say("campaign.this_must_be_a"))
	}
	return kindred.Value(t), nil
}

// nullable reads a whole number that can be taken away.
func (p *page) nullable(name string) (kindred.Nullable[int64], error) {
	n, err := p.whole(name)
	if err != nil || n == nil {
		return kindred.Null[int64](), err
	}
	return kindred.Value(*n), nil
}

// typedSpan reads a whole number of a unit, in seconds, of which the API takes so many at most. What is as its field shows it
// is left out: it may be a part of one.
func (p *page) typedSpan(name string, unit time.Duration, most int64, shown *int64) (seconds kindred.Nullable[int64], err error) {
	if shown != nil && p.form(name) == inUnits(shown, unit) {
		return seconds, nil
	}
	seconds, err = p.nullable(name)
	if n, typed := seconds.Get(); typed {
		if n < 1 || n > most {
			return seconds, invalid(name, say("problem.from_to", number(most)))
		}
		seconds = kindred.Value(n * int64(unit/time.Second))
	}
	return seconds, err
}

// largestBudget is the API's, in minor units, of which a form has none.
const largestBudget = 1<<53 - 1

// typedCampaign reads the form of a campaign that is before, or of a new one.
func (p *page) typedCampaign(before kindred.Campaign) (c kindred.CampaignChange, err error) {
	currency := p.form("currency")
	budget, ok := minor(p.form("budget_minor"), currency)
	if !ok || budget == 0 {
		return c, invalid("budget_minor", say("campaign.this_must_be_an"))
	}
	if budget > largestBudget {
		return c, invalid("budget_minor", say("campaign.at_most", money(largestBudget, currency)))
	}
	audience := kindred.AudienceAll
	if ids := p.r.Form["cluster_ids"]; len(ids) > 0 {
		audience, c.ClusterIDs = kindred.AudienceClusters, ids
	}
	if c.Segments, err = p.typedSegments(); err != nil {
		return c, err
	}
	if c.Segments != nil {
		if c.ClusterIDs != nil {
			return c, invalid("cluster_ids", say("campaign.clusters_or_segments"))
		}
		audience = kindred.AudienceSegments
	}
	c.Name, c.BudgetMinor, c.Currency, c.Audience = new(p.form("name")), &budget, &currency, &audience
	if c.StartsAt, err = p.typedTime("starts_at", before.StartsAt); err != nil {
		return c, err
	}
	if c.EndsAt, err = p.typedTime("ends_at", before.EndsAt); err != nil {
		return c, err
	}
	if c.FrequencyCap, err = p.nullable("frequency_cap"); err != nil {
		return c, err
	}
	c.FrequencyWindowSeconds, err = p.typedSpan("window_days", 24*time.Hour, 366, before.FrequencyWindowSeconds)
	return c, err
}

// allSegments are those that can be chosen from.
func (p *page) allSegments() ([]kindred.Segment, error) {
	segments, _, err := collect(p.api.Segments.List(p.r.Context(), kindred.ListSegmentsParams{}), allOf)
	return segments, err
}

// typedSegments reads which segments an audience is in, or is not in, each as "any_of seg_…"
// or "none_of seg_…"; nil: none is chosen. All are of the layer of the first.
func (p *page) typedSegments() (*kindred.SegmentAudience, error) {
	var of kindred.SegmentAudience
	first := ""
	for _, chosen := range p.r.Form["segments"] {
		list, segment, _ := strings.Cut(chosen, " ")
		switch list {
		case "any_of":
			of.AnyOf = append(of.AnyOf, segment)
		case "none_of":
			of.NoneOf = append(of.NoneOf, segment)
		default:
			continue
		}
		first = cmp.Or(first, segment)
	}
	if first == "" {
		return nil, nil
	}
	segment, err := p.api.Segments.Get(p.r.Context(), first)
	if err != nil {
		return nil, err
	}
	of.ConsentLayerID = segment.ConsentLayerID
	return &of, nil
}

// clustersOf are the clusters that can be chosen from, and those that a campaign is for.
func (p *page) clustersOf(c *kindred.Campaign) ([]kindred.Cluster, error) {
	clusters, _, err := collect(p.api.Clusters.List(p.r.Context(), kindred.ListClustersParams{}), allOf)
	if err != nil {
		return nil, err
	}
	return p.withClusters(clusters, c.ClusterIDs)
}

// audience are the segments that a campaign is for, by what they are called.
type audience struct {
	AnyOf, NoneOf []segmentName
	Layer         string // its name, "" where that is none
}

type segmentName struct{ ID, Name string }

// audienceOf says whom a campaign is for, nil where no segments decide it, and returns the
// segments with those that it names and that are not among them.
func (p *page) audienceOf(c *kindred.Campaign, segments []kindred.Segment) (*audience, []kindred.Segment, error) {
	if c.Segments == nil {
		return nil, segments, nil
	}
	named := func(ids []string) (all []segmentName) {
		for _, id := range ids {
			i := slices.IndexFunc(segments, func(s kindred.Segment) bool { return s.ID == id })
			if i < 0 { // beyond those that can be chosen from, or no more
				i, segments = len(segments), append(segments, kindred.Segment{ID: id, Name: short(id)})
			}
			all = append(all, segmentName{id, segments[i].Name})
		}
		return all
	}
	of := &audience{AnyOf: named(c.Segments.AnyOf), NoneOf: named(c.Segments.NoneOf)}
	if c.Segments.ConsentLayerID != nil {
		layer, err := p.api.Consent.GetLayer(p.r.Context(), *c.Segments.ConsentLayerID)
		switch {
		case err == nil:
			of.Layer = layer.Name
		case problemOf(err).Status == http.StatusNotFound:
			of.Layer = short(*c.Segments.ConsentLayerID)
		default:
			return nil, nil, err
		}
	}
	return of, segments, nil
}

// chosenAs says whether a form that came back, or else a campaign, has a segment in a list;
// both may be missing.
func chosenAs(typed url.Values, campaign any, list, segment string) bool {
	if typed.Has("segments") {
		return slices.Contains(typed["segments"], list+" "+segment)
	}
	c, _ := campaign.(*kindred.Campaign)
	if c == nil || c.Segments == nil {
		return false
	}
	return slices.Contains(map[string][]string{"any_of": c.Segments.AnyOf, "none_of": c.Segments.NoneOf}[list], segment)
}

// clusterIDs are the clusters that a form that came back, or else a campaign, is for; both may
// be missing.
func clusterIDs(typed url.Values, campaign any) []string {
	if typed.Has("budget_minor") {
		return typed["cluster_ids"]
	}
	if c, ok := campaign.(*kindred.Campaign); ok {
		return c.ClusterIDs
	}
	return nil
}

func (p *page) createCampaign() error {
	c, err := p.typedCampaign(kindred.Campaign{})
	if err != nil {
		return p.again(err, p.campaigns)
	}
	made, err := p.api.Campaigns.Create(p.r.Context(), kindred.NewCampaign{
		Name: *c.Name, BudgetMinor: *c.BudgetMinor, Currency: *c.Currency, Audience: c.Audience, ClusterIDs: c.ClusterIDs, Segments: c.Segments,
		StartsAt: c.StartsAt, EndsAt: c.EndsAt, FrequencyCap: c.FrequencyCap, FrequencyWindowSeconds: c.FrequencyWindowSeconds,
	}, p.once())
	if err != nil {
		return p.again(err, p.campaigns)
	}
	return p.done(Path+"campaigns/"+url.PathEscape(made.ID), "created")
}

func (p *page) campaign() error {
	ctx := p.r.Context()
	var read kindred.Answer
	one, err := p.api.Campaigns.Get(ctx, p.r.PathValue("id"), kindred.WithAnswer(&read))
	if err != nil {
		return err
	}
	now, err := p.clock()
	if err != nil {
		return err
	}
	interval := p.r.URL.Query().Get("interval")
	if interval == "" {
		interval = "day"
	}
	came, err := p.api.Campaigns.GetAnalytics(ctx, one.ID, kindred.GetCampaignAnalyticsParams{Interval: interval, Timezone: zoneOf(p.r).String()})
	if err != nil {
		return err
	}
	layout := map[string]string{"hour": "2 Jan 15:04", "day": "2 Jan", "week": "2 Jan", "month": "Jan 2006"}[interval]
	shown := chart.Data{Title: say("campaign.engagement_by", interval), Label: say("campaign.from"), Newest: true, Series: []chart.Series{{Name: say("campaign.series_impressions")}, {Name: say("campaign.series_clicks")}, {Name: say("campaign.series_conversions")}}}
	spent := chart.Data{Label: say("campaign.from"), Newest: true, Places: decimals(one.Currency), Series: []chart.Series{{Name: say("campaign.spent", one.Currency)}}}
	unit := float64(1)
	for range decimals(one.Currency) {
		unit *= 10
	}
	total := came.SpentMinor // less what the series tells: it leaves out the oldest of many intervals
	for _, i := range came.Series {
		total -= i.SpentMinor
	}
	for _, i := range came.Series {
		label := i.Start.In(zoneOf(p.r)).Format(layout)
		shown.Labels, spent.Labels = append(shown.Labels, label), append(spent.Labels, label)
		for n, v := range []int64{i.Impressions, i.Clicks, i.Conversions} {
			shown.Series[n].Values = append(shown.Series[n].Values, float64(v))
		}
		total += i.SpentMinor
		spent.Series[0].Values = append(spent.Series[0].Values, float64(total)/unit)
	}
	spent.Series = append(spent.Series, evenPace(one, came.Series, interval, unit, lastOf(one, now).In(zoneOf(p.r)))...)
	shown.Description = say("campaign.impressions_clicks_conversions", number(came.Impressions), number(came.Clicks), number(came.Conversions))
	spent.Title = say("campaign.spent_so_far_by", interval)
	spent.Description = say("campaign.of", money(came.SpentMinor, one.Currency), money(one.BudgetMinor, one.Currency))
	clusters, err := p.clustersOf(one)
	if err != nil {
		return err
	}
	segments, err := p.allSegments()
	if err != nil {
		return err
	}
	of, segments, err := p.audienceOf(one, segments)
	if err != nil {
		return err
	}
	return p.show("campaign", "Campaigns", one.Name, map[string]any{
		"Segments": segments, "Audience": of, "ETag": p.etag(read),
		"Campaign": one, "Analytics": came, "Shown": shown, "Spent": spent, "Interval": interval, "Clusters": clusters,
		"Share": float64(one.SpentMinor) / float64(max(one.BudgetMinor, 1)), "Expected": expected(one, lastOf(one, now)), "Over": over(one, now),
	})
}

// over says whether a campaign that does not run has an end in the past. The API takes that of a draft, and refuses to start it.
func over(c *kindred.Campaign, now time.Time) bool {
	return c.EndsAt != nil && !c.EndsAt.After(now) && slices.Contains([]kindred.CampaignStatus{kindred.CampaignStatusDraft, kindred.CampaignStatusScheduled, kindred.CampaignStatusPaused}, c.Status)
}

// lastOf is when a campaign ended, which was its last change, or now where it has not.
func lastOf(c *kindred.Campaign, now time.Time) time.Time {
	if c.Status == kindred.CampaignStatusCompleted || c.Status == kindred.CampaignStatusCancelled {
		return c.UpdatedAt
	}
	return now
}

// evenPace is what an even pace has spent by the end of each interval in the zone of last, as
// far as that lies before it; none where the campaign has no end.
func evenPace(c *kindred.Campaign, intervals []kindred.AnalyticsInterval, interval string, unit float64, last time.Time) []chart.Series {
	if c.StartedAt == nil || c.EndsAt == nil || !c.EndsAt.After(*c.StartedAt) {
		return nil
	}
	line := chart.Series{Name: say("campaign.even_pace")}
	for i, at := range intervals {
		start := at.Start.In(last.Location())
		end := map[string]time.Time{"hour": start.Add(time.Hour), "day": start.AddDate(0, 0, 1), "week": start.AddDate(0, 0, 7), "month": start.AddDate(0, 1, 0)}[interval]
		if i+1 < len(intervals) && intervals[i+1].Start.Before(end) { // as after a day that begins at one o'clock
			end = intervals[i+1].Start
		}
		if end.After(last) {
			end = last
		}
		share := float64(end.Sub(*c.StartedAt)) / float64(c.EndsAt.Sub(*c.StartedAt))
		line.Values = append(line.Values, min(max(share, 0), 1)*float64(c.BudgetMinor)/unit)
	}
	return []chart.Series{line}
}

// expected is the share of the budget that an even pace has spent by a time; -1 where the
// campaign has no end.
func expected(c *kindred.Campaign, at time.Time) float64 {
	if c.StartedAt == nil || c.EndsAt == nil || !c.EndsAt.After(*c.StartedAt) {
		return -1
	}
	return min(max(float64(at.Sub(*c.StartedAt))/float64(c.EndsAt.Sub(*c.StartedAt)), 0), 1)
}

func (p *page) changeCampaign() error {
	id := p.r.PathValue("id")
	change, notice := kindred.CampaignChange{}, "saved"
	if command := p.form("status"); command != "" {
		change.Status, notice = new(kindred.CampaignCommand(command)), command
		if notices[notice] == "" {
			return p.again(invalid("status", say("campaign.a_campaign_can_be")), p.campaign)
		}
		if command == string(kindred.CampaignCommandCancelled) {
			one, err := p.api.Campaigns.Get(p.r.Context(), id)
			if err == nil {
				err = p.confirmed(id, one.Name, say("campaign.type_the_campaign"))
			}
			if err != nil {
				return p.again(err, p.campaign)
			}
		}
	} else {
		before, err := p.api.Campaigns.Get(p.r.Context(), id)
		if err == nil {
			change, err = p.typedCampaign(*before)
		}
		if err != nil {
			return p.again(err, p.campaign)
		}
	}
	if _, err := p.api.Campaigns.Change(p.r.Context(), id, change, p.asSeen()...); err != nil {
		return p.again(err, p.campaign)
	}
	return p.done(Path+"campaigns/"+url.PathEscape(id), notice)
}
