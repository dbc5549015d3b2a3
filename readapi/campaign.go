package readapi

import (
	"context"
	"errors"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/pacing"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// ListCampaigns lists the campaigns of the client.
func (a *API) ListCampaigns(ctx context.Context, r httpapi.ListCampaignsRequestObject) (httpapi.ListCampaignsResponseObject, error) {
	name, status := "campaigns", (*string)(r.Params.Status)
	if status != nil {
		name = filtered(name, *status)
	}
	data, next, err := list(ctx, a, name, r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.Campaign, error) {
			return projections.Campaigns{Reader: a.Reader}.List(ctx, client, eventual, status, page)
		}, func(c projections.Campaign) eventstore.Position { return c.CreatedPosition }, campaignBody)
	return httpapi.ListCampaigns200JSONResponse{Data: data, NextCursor: next}, err
}

// GetCampaign shows a campaign.
func (a *API) GetCampaign(ctx context.Context, r httpapi.GetCampaignRequestObject) (httpapi.GetCampaignResponseObject, error) {
	found, err := a.campaign(ctx, r.CampaignID)
	if err != nil {
		return nil, err
	}
	return httpapi.GetCampaign200JSONResponse{
		Body:    campaignBody(found),
		Headers: httpapi.GetCampaign200ResponseHeaders{ETag: httpapi.ETag(int64(found.Revision))},
	}, nil
}

func (a *API) campaign(ctx context.Context, ref string) (projections.Campaign, error) {
	return get(ctx, ref, fault.UnknownCampaign, projections.Campaigns{Reader: a.Reader}.Get)
}

func errZoneUnknown() error {
	return fault.NewInvalid(fault.Field{Pointer: "timezone", Detail: "is not a time zone of the IANA database, such as Europe/Berlin"})
}

// zoneOf reads a time zone; UTC where none is named.
func zoneOf(named *string) (*time.Location, error) {
	if named == nil {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(*named)
	if err != nil || zone == time.Local || *named < "A" || *named >= "[" { // localtime and posix/… are files of the host
		return nil, errZoneUnknown()
	}
	return zone, nil
}

// GetCampaignAnalytics tells what came of a campaign.
func (a *API) GetCampaignAnalytics(ctx context.Context, r httpapi.GetCampaignAnalyticsRequestObject) (httpapi.GetCampaignAnalyticsResponseObject, error) {
	interval := httpapi.Or(r.Params.Interval, httpapi.IntervalDay)
	zone, err := zoneOf(r.Params.Timezone)
	if err != nil {
		return nil, err
	}
	c, err := a.campaign(ctx, r.CampaignID)
	if err != nil {
		return nil, err
	}
	client, eventual := asked(ctx)
	series, err := projections.Campaigns{Reader: a.Reader}.Series(ctx, client, eventual, c.ID, string(interval), zone)
	if errors.Is(err, projections.ErrZoneUnknown) {
		return nil, errZoneUnknown()
	}
	if err != nil {
		return nil, err
	}
	shares, err := projections.Campaigns{Reader: a.Reader}.Shares(ctx, client, eventual, c)
	if err != nil {
		return nil, err
	}
	now, _, err := a.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	return httpapi.GetCampaignAnalytics200JSONResponse{
		CampaignID: c.ID, Status: httpapi.CampaignStatus(c.Status), Currency: c.Currency,
		BudgetMinor: c.BudgetMinor, SpentMinor: c.SpentMinor, RemainingMinor: max(0, c.BudgetMinor-c.SpentMinor),
		Spends: c.Spends, Impressions: c.Impressions, Engaged: c.Engaged, Clicks: c.Clicks, Conversions: c.Conversions,
		EngagementRate: c.EngagementRate(), Reach: c.Reach, Pacing: paced(c, now), Clusters: each(shares, shareBody),
		Interval: string(interval), Timezone: zone.String(), Series: each(series, intervalBody),
	}, nil
}

// paced is how a campaign stands beside an even pace, now or, where it is over, at its end.
func paced(c projections.Campaign, now time.Time) httpapi.Pacing {
	switch httpapi.CampaignStatus(c.Status) {
	case httpapi.CampaignCompleted, httpapi.CampaignCancelled:
		now = c.UpdatedAt // its last change
	default:
	}
	spending := pacing.Spending{SpentMinor: c.SpentMinor, BudgetMinor: c.BudgetMinor, StartedAt: c.StartedAt}
	if c.EndsAt != nil && !c.StartedAt.IsZero() {
		spending.EndsAt = *c.EndsAt
	}
	return httpapi.Pacing{Ratio: pacing.Ratio(spending, now), Probability: pacing.Probability(spending, now)}
}

func shareBody(s projections.ClusterShare) httpapi.AnalyticsCluster {
	return httpapi.AnalyticsCluster{
		ClusterID: s.Cluster, ConsentLayerID: s.Layer, Label: s.Label, ClusterSize: s.Size,
		Reach: s.Reach, Impressions: s.Impressions, Engaged: s.Engaged, EngagementRate: s.EngagementRate(),
	}
}

func intervalBody(i projections.Interval) httpapi.AnalyticsInterval {
	return httpapi.AnalyticsInterval{
		Start: httpapi.Time{Time: i.Start}, SpentMinor: i.SpentMinor, Spends: i.Spends, Impressions: i.Impressions,
		Engaged: i.Engaged, Clicks: i.Clicks, Conversions: i.Conversions, EngagementRate: i.EngagementRate(),
	}
}

func campaignBody(c projections.Campaign) httpapi.Campaign {
	return httpapi.Campaign{
		ID: c.ID, Name: c.Name, Status: httpapi.CampaignStatus(c.Status), Currency: c.Currency,
		BudgetMinor: c.BudgetMinor, SpentMinor: c.SpentMinor, RemainingMinor: max(0, c.BudgetMinor-c.SpentMinor),
		Audience: httpapi.Audience(c.Audience), ClusterIDs: append([]id.Cluster{}, c.Clusters...), Segments: (*httpapi.SegmentAudience)(c.Segments),
		StartsAt: httpapi.TimeOrNull(c.StartsAt), EndsAt: httpapi.TimeOrNull(c.EndsAt), StartedAt: httpapi.TimeOrNull(httpapi.OrNull(c.StartedAt)),
		FrequencyCap: httpapi.OrNull(c.FrequencyCap), FrequencyWindowSeconds: httpapi.OrNull(c.FrequencyWindow),
		CreatedAt: httpapi.Time{Time: c.CreatedAt}, UpdatedAt: httpapi.Time{Time: c.UpdatedAt},
	}
}
