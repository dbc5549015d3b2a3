package console

import (
	"net/url"
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
	return p.show("campaigns", "Campaigns", say("titles.campaigns"), map[string]any{
		"Campaigns": found.Data, "Clusters": clusters, "Next": next("campaigns", asked, found.NextCursor),
	})
}

// typedTime reads a time that was typed in the reader's zone.
func (p *page) typedTime(name string) (at kindred.Nullable[time.Time], err error) {
	text := p.form(name)
	if text == "" {
		return kindred.Null[time.Time](), nil
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

// typedCampaign reads the form of a campaign.
func (p *page) typedCampaign() (c kindred.CampaignChange, err error) {
	currency := p.form("currency")
	budget, ok := minor(p.form("budget_minor"), currency)
	if !ok {
		return c, invalid("budget_minor", say("campaign.this_must_be_an"))
	}
	audience := kindred.AudienceAll
	if ids := p.r.Form["cluster_ids"]; len(ids) > 0 {
		audience, c.ClusterIDs = kindred.AudienceClusters, ids
	}
	c.Name, c.BudgetMinor, c.Currency, c.Audience = new(p.form("name")), &budget, &currency, &audience
	if c.StartsAt, err = p.typedTime("starts_at"); err != nil {
		return c, err
	}
	if c.EndsAt, err = p.typedTime("ends_at"); err != nil {
		return c, err
	}
	if c.FrequencyCap, err = p.nullable("frequency_cap"); err != nil {
		return c, err
	}
	days, err := p.whole("window_days")
	if days != nil {
		c.FrequencyWindowSeconds = kindred.Value(*days * 86400)
	}
	return c, err
}

func (p *page) createCampaign() error {
	c, err := p.typedCampaign()
	if err != nil {
		return p.again(err, p.campaigns)
	}
	made, err := p.api.Campaigns.Create(p.r.Context(), kindred.NewCampaign{
		Name: *c.Name, BudgetMinor: *c.BudgetMinor, Currency: *c.Currency, Audience: c.Audience, ClusterIDs: c.ClusterIDs,
		StartsAt: c.StartsAt, EndsAt: c.EndsAt, FrequencyCap: c.FrequencyCap, FrequencyWindowSeconds: c.FrequencyWindowSeconds,
	}, p.once())
	if err != nil {
		return p.again(err, p.campaigns)
	}
	return p.done(Path+"campaigns/"+url.PathEscape(made.ID), "created")
}

func (p *page) campaign() error {
	ctx := p.r.Context()
	one, err := p.api.Campaigns.Get(ctx, p.r.PathValue("id"))
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
	shown := chart.Data{Title: say("campaign.engagement_by", interval), Label: say("campaign.from"), Newest: true, Series: []chart.Series{{Name: say("campaign.series_clicks")}, {Name: say("campaign.series_conversions")}, {Name: say("campaign.impressions_without_either")}}}
	spent := chart.Data{Label: say("campaign.from"), Newest: true, Places: decimals(one.Currency), Series: []chart.Series{{Name: say("campaign.spent", one.Currency)}}}
	unit := float64(1)
	for range decimals(one.Currency) {
		unit *= 10
	}
	total := 0.0
	for _, i := range came.Series {
		label := i.Start.In(zoneOf(p.r)).Format(layout)
		shown.Labels, spent.Labels = append(shown.Labels, label), append(spent.Labels, label)
		for n, v := range []int64{i.Clicks, i.Conversions, max(i.Impressions-i.Engaged, 0)} {
			shown.Series[n].Values = append(shown.Series[n].Values, float64(v))
		}
		total += float64(i.SpentMinor) / unit
		spent.Series[0].Values = append(spent.Series[0].Values, total)
	}
	spent.Series = append(spent.Series, evenPace(one, came.Series, interval, unit, p.Now())...)
	shown.Description = say("campaign.impressions_clicks_conversions", number(came.Impressions), number(came.Clicks), number(came.Conversions))
	spent.Title = say("campaign.spent_so_far_by", interval)
	spent.Description = say("campaign.of", money(came.SpentMinor, one.Currency), money(one.BudgetMinor, one.Currency))
	clusters, _, err := collect(p.api.Clusters.List(ctx, kindred.ListClustersParams{}), allOf)
	if err != nil {
		return err
	}
	return p.show("campaign", "Campaigns", one.Name, map[string]any{
		"Campaign": one, "Analytics": came, "Shown": shown, "Spent": spent, "Interval": interval, "Clusters": clusters,
		"Share": float64(one.SpentMinor) / float64(max(one.BudgetMinor, 1)), "Expected": p.expected(one),
	})
}

// evenPace is what an even pace has spent by the end of each interval, as far as it has
// come; none where the campaign has no end.
func evenPace(c *kindred.Campaign, intervals []kindred.AnalyticsInterval, interval string, unit float64, now time.Time) []chart.Series {
	if c.StartedAt == nil || c.EndsAt == nil || !c.EndsAt.After(*c.StartedAt) {
		return nil
	}
	line := chart.Series{Name: say("campaign.even_pace")}
	for i, at := range intervals {
		end := now
		if i+1 < len(intervals) {
			end = intervals[i+1].Start
		} else if next := at.Start.Add(map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour}[interval]); next.Before(now) {
			end = next
		}
		share := float64(end.Sub(*c.StartedAt)) / float64(c.EndsAt.Sub(*c.StartedAt))
		line.Values = append(line.Values, min(max(share, 0), 1)*float64(c.BudgetMinor)/unit)
	}
	return []chart.Series{line}
}

// expected is the share of the budget that an even pace has spent by now; -1 where the
// campaign has no end.
func (p *page) expected(c *kindred.Campaign) float64 {
	if c.StartedAt == nil || c.EndsAt == nil || !c.EndsAt.After(*c.StartedAt) {
		return -1
	}
	return min(max(float64(p.Now().Sub(*c.StartedAt))/float64(c.EndsAt.Sub(*c.StartedAt)), 0), 1)
}

func (p *page) changeCampaign() error {
	id := p.r.PathValue("id")
	change, notice := kindred.CampaignChange{}, "saved"
	if command := p.form("status"); command != "" {
		change.Status, notice = new(kindred.CampaignCommand(command)), command
		if notices[notice] == "" {
			return p.again(invalid("status", say("campaign.a_campaign_can_be")), p.campaign)
		}
	} else {
		var err error
		if change, err = p.typedCampaign(); err != nil {
			return p.again(err, p.campaign)
		}
	}
	if _, err := p.api.Campaigns.Change(p.r.Context(), id, change); err != nil {
		return p.again(err, p.campaign)
	}
	return p.done(Path+"campaigns/"+url.PathEscape(id), notice)
}
