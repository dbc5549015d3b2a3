package readapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/projections"
)

// limit: requests | what `attention` names | {maxAttention} | the rest is left out, `has_more` says so
const maxAttention = 50

const (
	nearlySpent  = 0.9 // of a budget
	expiresSoon  = 14 * 24 * time.Hour
	expiresNow   = 3 * 24 * time.Hour // critical from then on
	failsForLong = time.Hour          // likewise
	isBehind     = time.Minute
	isFarBehind  = 10 * time.Minute // likewise
)

// ListAttention lists what needs somebody: as far as the read models have come, and
// from those that can be read.
func (a *API) ListAttention(ctx context.Context, _ httpapi.ListAttentionRequestObject) (httpapi.ListAttentionResponseObject, error) {
	client, _ := asked(ctx)
	sources := []func(context.Context, id.Client, time.Time) ([]httpapi.AttentionItem, error){
		a.stoppedProjections, a.failingEndpoints, a.failedRuns, a.driftingClusters, a.nearlySpentCampaigns,
	}
	if httpapi.PrincipalFrom(ctx).May("admin") {
		sources = append(sources, a.expiringKeys)
	}
	items, now := []httpapi.AttentionItem{}, a.Now()
	for _, source := range sources {
		found, err := source(ctx, client, now)
		if fault.Is(err, "quarantined") || fault.Is(err, "building") {
			continue // what needs somebody is the model itself
		}
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	slices.SortStableFunc(items, func(a, b httpapi.AttentionItem) int { return cmp.Compare(urgency(a), urgency(b)) })
	shown := items[:min(len(items), maxAttention)]
	return httpapi.ListAttention200JSONResponse{Data: shown, HasMore: len(shown) < len(items)}, nil
}

func urgency(i httpapi.AttentionItem) int {
	if i.Severity == httpapi.AttentionCritical {
		return 0
	}
	return 1
}

func severity(critical bool) httpapi.AttentionSeverity {
	if critical {
		return httpapi.AttentionCritical
	}
	return httpapi.AttentionWarning
}

func (a *API) stoppedProjections(ctx context.Context, client id.Client, now time.Time) (items []httpapi.AttentionItem, _ error) {
	found, err := a.Projections.List(ctx, client)
	for _, p := range found {
		switch behind := time.Duration(p.LagSeconds * float64(time.Second)); {
		case p.Quarantined != nil:
			items = append(items, httpapi.AttentionItem{
				Kind: httpapi.ProjectionQuarantined, Severity: httpapi.AttentionCritical, SubjectID: p.Name, Since: &p.Quarantined.Since,
			})
		case behind > isBehind:
			items = append(items, httpapi.AttentionItem{
				Kind: httpapi.ProjectionBehind, Severity: severity(behind > isFarBehind), SubjectID: p.Name,
				Since: &httpapi.Time{Time: now.Add(-behind)},
			})
		}
	}
	return items, err
}

func (a *API) failingEndpoints(ctx context.Context, client id.Client, now time.Time) ([]httpapi.AttentionItem, error) {
	found, err := a.Deliveries.Failing(ctx, client, maxAttention+1)
	return each(found, func(e FailingEndpoint) httpapi.AttentionItem {
		return httpapi.AttentionItem{
			Kind: httpapi.EndpointFailing, Severity: severity(now.Sub(e.Since) > failsForLong), SubjectID: string(e.Webhook),
			Since: &httpapi.Time{Time: e.Since}, DeliveriesWaiting: &e.Waiting,
		}
	}), err
}

func (a *API) failedRuns(ctx context.Context, client id.Client, _ time.Time) ([]httpapi.AttentionItem, error) {
	found, err := projections.Clusters{Reader: a.Reader}.LastFailed(ctx, client, maxAttention+1)
	return each(found, func(r projections.Run) httpapi.AttentionItem {
		return httpapi.AttentionItem{
			Kind: httpapi.ClusteringRunFailed, Severity: httpapi.AttentionWarning, SubjectID: string(r.ID),
			Since: httpapi.TimeOrNull(r.EndedAt), ConsentLayerID: &r.Layer, ErrorCode: &r.ErrorCode,
		}
	}), err
}

func (a *API) driftingClusters(ctx context.Context, client id.Client, _ time.Time) ([]httpapi.AttentionItem, error) {
	found, err := projections.Clusters{Reader: a.Reader}.Drifting(ctx, client, maxAttention+1)
	return each(found, func(d projections.DriftingCluster) httpapi.AttentionItem {
		return httpapi.AttentionItem{
			Kind: httpapi.ClusterDrifted, Severity: severity(d.Severity == string(httpapi.DriftMajor)), SubjectID: string(d.Cluster),
			Since: &httpapi.Time{Time: d.At}, ConsentLayerID: &d.Layer, ClusteringRunID: &d.Run,
		}
	}), err
}

func (a *API) nearlySpentCampaigns(ctx context.Context, client id.Client, _ time.Time) ([]httpapi.AttentionItem, error) {
	found, err := projections.Campaigns{Reader: a.Reader}.NearlySpent(ctx, client, nearlySpent, maxAttention+1)
	return each(found, func(c projections.Campaign) httpapi.AttentionItem {
		return httpapi.AttentionItem{
			Kind: httpapi.BudgetNearlySpent, Severity: httpapi.AttentionWarning, SubjectID: string(c.ID),
			SpentMinor: &c.SpentMinor, BudgetMinor: &c.BudgetMinor, Currency: &c.Currency,
		}
	}), err
}

func (a *API) expiringKeys(ctx context.Context, client id.Client, now time.Time) ([]httpapi.AttentionItem, error) {
	found, err := projections.APIKeys{Reader: a.Reader}.Expiring(ctx, client, now, now.Add(expiresSoon), maxAttention+1)
	return each(found, func(k projections.APIKey) httpapi.AttentionItem {
		return httpapi.AttentionItem{
			Kind: httpapi.APIKeyExpires, Severity: severity(k.ExpiresAt.Sub(now) < expiresNow), SubjectID: string(k.ID),
			Since: &httpapi.Time{Time: k.ExpiresAt.Add(-expiresSoon)}, ExpiresAt: httpapi.TimeOrNull(k.ExpiresAt),
		}
	}), err
}
