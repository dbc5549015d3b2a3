package writeapi

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// CreateCampaign drafts a campaign.
func (a *API) CreateCampaign(ctx context.Context, r httpapi.CreateCampaignRequestObject) (httpapi.CreateCampaignResponseObject, error) {
	body := r.Body
	audience := httpapi.AudienceAll
	switch {
	case len(body.ClusterIDs) > 0:
		audience = httpapi.AudienceClusters
	case body.Segments != nil:
		audience = httpapi.AudienceSegments
	}
	drafted, err := a.Commands.DraftCampaign(ctx, call(ctx), event.CampaignTerms{
		Name: body.Name, BudgetMinor: body.BudgetMinor, Currency: body.Currency,
		Audience: string(httpapi.Or(body.Audience, audience)), Clusters: body.ClusterIDs, Segments: (*event.SegmentAudience)(body.Segments),
		StartsAt: moment(body.StartsAt), EndsAt: moment(body.EndsAt),
		FrequencyCap: httpapi.Or(body.FrequencyCap, 0), FrequencyWindow: httpapi.Or(body.FrequencyWindowSeconds, 0),
	})
	if err != nil {
		return nil, err
	}
	return httpapi.CreateCampaign201JSONResponse{
		Body: campaignBody(drafted),
		Headers: httpapi.CreateCampaign201ResponseHeaders{
			Location: "/api/v1/campaigns/" + string(drafted.ID),
			ETag:     httpapi.ETag(int64(drafted.Changes)), XKindredPosition: string(drafted.Position),
		},
	}, nil
}

// ChangeCampaign changes a campaign's terms or status.
func (a *API) ChangeCampaign(ctx context.Context, r httpapi.ChangeCampaignRequestObject) (httpapi.ChangeCampaignResponseObject, error) {
	campaign, err := httpapi.Named[id.Campaign](r.CampaignID, fault.UnknownCampaign)
	if err != nil {
		return nil, err
	}
	changed, err := a.Commands.ChangeCampaign(ctx, call(ctx), campaign, commands.ChangeCampaign{
		Terms:    func(t event.CampaignTerms) event.CampaignTerms { return patched(t, r.Body) },
		Segments: (*event.SegmentAudience)(r.Body.Segments),
		Status:   string(httpapi.Or(r.Body.Status, "")),
	})
	if err != nil {
		return nil, err
	}
	return httpapi.ChangeCampaign200JSONResponse{
		Body: campaignBody(changed),
		Headers: httpapi.ChangeCampaign200ResponseHeaders{
			ETag: httpapi.ETag(int64(changed.Changes)), XKindredPosition: positionIfAny(changed.Position),
		},
	}, nil
}

// patched are terms with what a change names. Naming clusters or segments makes them the
// audience, and another audience takes them away.
func patched(t event.CampaignTerms, change *httpapi.CampaignChange) event.CampaignTerms {
	t.Name = httpapi.Or(change.Name, t.Name)
	t.BudgetMinor = httpapi.Or(change.BudgetMinor, t.BudgetMinor)
	t.Currency = httpapi.Or(change.Currency, t.Currency)
	if change.ClusterIDs != nil {
		t.Clusters, t.Audience = change.ClusterIDs, domain.AudienceClusters
	}
	if change.Segments != nil {
		t.Segments, t.Audience = (*event.SegmentAudience)(change.Segments), domain.AudienceSegments
	}
	t.Audience = string(httpapi.Or(change.Audience, httpapi.Audience(t.Audience)))
	if t.Audience != domain.AudienceClusters && change.ClusterIDs == nil {
		t.Clusters = nil
	}
	if t.Audience != domain.AudienceSegments && change.Segments == nil {
		t.Segments = nil
	}
	t.StartsAt = moment(change.StartsAt.Or(t.StartsAt))
	t.EndsAt = moment(change.EndsAt.Or(t.EndsAt))
	t.FrequencyCap = httpapi.Or(change.FrequencyCap.Or(&t.FrequencyCap), 0)
	t.FrequencyWindow = httpapi.Or(change.FrequencyWindowSeconds.Or(&t.FrequencyWindow), 0)
	if change.FrequencyCap.Given && t.FrequencyCap == 0 && !change.FrequencyWindowSeconds.Given {
		t.FrequencyWindow = 0
	}
	return t
}

// RecordSpend counts what was spent.
func (a *API) RecordSpend(ctx context.Context, r httpapi.RecordSpendRequestObject) (httpapi.RecordSpendResponseObject, error) {
	campaign, err := httpapi.Named[id.Campaign](r.CampaignID, fault.UnknownCampaign)
	if err != nil {
		return nil, err
	}
	spendID := httpapi.Or(r.Body.SpendID, httpapi.CallFrom(ctx).IdempotencyKey)
	if spendID == "" {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/spend_id", Detail: "is required where there is no Idempotency-Key"})
	}
	spend, err := a.Commands.RecordSpend(ctx, call(ctx), commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: r.Body.AmountMinor})
	if err != nil {
		return nil, err
	}
	status := httpapi.CampaignRunning
	if spend.SpentMinor >= spend.BudgetMinor {
		status = httpapi.CampaignCompleted
	}
	return httpapi.RecordSpend201JSONResponse{
		Body: httpapi.Spend{
			CampaignID: campaign, SpendID: spend.SpendID, AmountMinor: spend.AmountMinor, Currency: spend.Currency,
			SpentMinor: spend.SpentMinor, RemainingMinor: max(0, spend.BudgetMinor-spend.SpentMinor),
			Status: status, RecordedAt: httpapi.Time{Time: spend.At},
		},
		Headers: httpapi.RecordSpend201ResponseHeaders{XKindredPosition: string(spend.Position)},
	}, nil
}

// RecordEngagement records an impression, a click or a conversion.
func (a *API) RecordEngagement(ctx context.Context, r httpapi.RecordEngagementRequestObject) (httpapi.RecordEngagementResponseObject, error) {
	campaign, err := httpapi.Named[id.Campaign](r.CampaignID, fault.UnknownCampaign)
	if err != nil {
		return nil, err
	}
	in := commands.Engage{Campaign: campaign, Kind: string(r.Body.Type), User: commands.UserRef(httpapi.Or(r.Body.UserID, ""))}
	if in.Impression, err = httpapi.NamedIfAny[id.Impression](r.Body.ImpressionID, fault.UnknownImpression); err != nil {
		return nil, err
	}
	recorded, err := a.Commands.RecordEngagement(ctx, call(ctx), in)
	if err != nil {
		return nil, err
	}
	e := recorded.Event.(event.CampaignEngagementRecorded)
	return httpapi.RecordEngagement201JSONResponse{
		Body: httpapi.Engagement{
			CampaignID: e.Campaign, ImpressionID: e.Impression, UserID: e.User, Type: httpapi.EngagementType(e.Kind),
			RecordedAt: httpapi.Time{Time: recorded.RecordedAt},
		},
		Headers: httpapi.RecordEngagement201ResponseHeaders{XKindredPosition: positionIfAny(recorded.Position)},
	}, nil
}

// moment is a time as it is recorded: UTC, microseconds.
func moment(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC().Truncate(time.Microsecond)
	return &at
}

func campaignBody(c commands.Campaign) httpapi.Campaign {
	return httpapi.Campaign{
		ID: c.ID, Name: c.Name, Status: httpapi.CampaignStatus(c.Status), Currency: c.Currency,
		BudgetMinor: c.BudgetMinor, SpentMinor: c.SpentMinor, RemainingMinor: max(0, c.BudgetMinor-c.SpentMinor),
		Audience: httpapi.Audience(c.Audience), ClusterIDs: append([]id.Cluster{}, c.Clusters...), Segments: (*httpapi.SegmentAudience)(c.Segments),
		StartsAt: httpapi.TimeOrNull(c.StartsAt), EndsAt: httpapi.TimeOrNull(c.EndsAt), StartedAt: httpapi.TimeOrNull(httpapi.OrNull(c.StartedAt)),
		FrequencyCap: httpapi.OrNull(c.FrequencyCap), FrequencyWindowSeconds: httpapi.OrNull(c.FrequencyWindow),
		CreatedAt: httpapi.Time{Time: c.CreatedAt}, UpdatedAt: httpapi.Time{Time: c.UpdatedAt},
	}
}
