package feeds

import (
	"context"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/id"
	"kindred/domain/pacing"
	"kindred/domain/ranking"
	"kindred/projections"
)

// ShownCampaigns is [Campaigns] by the read models; what is shown is recorded as
// Record does.
type ShownCampaigns struct {
	Model    projections.Campaigns
	Clusters projections.Clusters
	// Clock is what a client's clock says.
	Clock func(ctx context.Context, client id.Client) (time.Time, error)
	// Record records an impression of a user who is in the clusters that are
	// called for, or says that none is allowed any more.
	Record func(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string,
		clusters func(context.Context) ([]id.Cluster, error)) (impression id.Impression, ok bool, err error)
}

var _ Campaigns = ShownCampaigns{}

// Running implements [Campaigns].
// Faults: building, quarantined, stale.
func (s ShownCampaigns) Running(ctx context.Context, client id.Client, user id.User) ([]Running, error) {
	now, err := s.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	since := now.Add(-ranking.FatigueWindow)
	found, err := s.Model.Showable(ctx, client, user, now, since, nil)
	if err == nil && slices.ContainsFunc(found, func(c projections.Showable) bool { return c.Audience != domain.AudienceAll }) {
		var in []id.Cluster
		if in, err = s.in(ctx, client, user); err == nil {
			found, err = s.Model.Showable(ctx, client, user, now, since, in)
		}
	}
	if err != nil {
		return nil, err
	}
	running := make([]Running, 0, len(found))
	for _, c := range found {
		spending := pacing.Spending{SpentMinor: c.SpentMinor, BudgetMinor: c.BudgetMinor, StartedAt: c.StartedAt}
		if c.EndsAt != nil {
			spending.EndsAt = *c.EndsAt
		}
		running = append(running, Running{
			Campaign: c.ID, Unanswered: c.Unanswered, Since: c.StartedAt,
			Response: ranking.Response{Impressions: float64(c.Impressions), Clicks: float64(c.Clicks)},
			Pace:     pacing.Probability(spending, now),
		})
	}
	return running, nil
}

// in are the clusters that a user is in now; never nil.
func (s ShownCampaigns) in(ctx context.Context, client id.Client, user id.User) ([]id.Cluster, error) {
	found, err := s.Clusters.OfUser(ctx, client, false, user)
	in := make([]id.Cluster, len(found))
	for i, c := range found {
		in[i] = c.ID
	}
	return in, err
}

// Impression implements [Campaigns].
// Faults: building, quarantined, stale.
func (s ShownCampaigns) Impression(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string) (id.Impression, bool, error) {
	return s.Record(ctx, client, user, campaign, showing, func(ctx context.Context) ([]id.Cluster, error) { return s.in(ctx, client, user) })
}
