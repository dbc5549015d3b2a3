package app

import (
	"context"
	"slices"
	"time"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/pacing"
	"kindred/domain/ranking"
	"kindred/projections"
	"kindred/projections/feeds"
)

// shownCampaigns tells feeds which campaigns may be shown, and records those
// that are.
type shownCampaigns struct {
	commands *commands.Commands
	model    projections.Campaigns
	clusters projections.Clusters
}

var _ feeds.Campaigns = shownCampaigns{}

// Running implements [feeds.Campaigns].
func (s shownCampaigns) Running(ctx context.Context, client id.Client, user id.User) ([]feeds.Running, error) {
	now := time.Now()
	since := now.Add(-ranking.FatigueWindow)
	found, err := s.model.Showable(ctx, client, user, now, since, nil)
	if err == nil && slices.ContainsFunc(found, func(c projections.Showable) bool { return c.Audience != domain.AudienceAll }) {
		var in []id.Cluster
		if in, err = s.in(ctx, client, user); err == nil {
			found, err = s.model.Showable(ctx, client, user, now, since, in)
		}
	}
	if err != nil {
		return nil, err
	}
	running := make([]feeds.Running, 0, len(found))
	for _, c := range found {
		spending := pacing.Spending{SpentMinor: c.SpentMinor, BudgetMinor: c.BudgetMinor, StartedAt: c.StartedAt}
		if c.EndsAt != nil {
			spending.EndsAt = *c.EndsAt
		}
		running = append(running, feeds.Running{
			Campaign: c.ID, Unanswered: c.Unanswered, Since: c.StartedAt,
			Response: ranking.Response{Impressions: float64(c.Impressions), Clicks: float64(c.Clicks)},
			Pace:     pacing.Probability(spending, now),
		})
	}
	return running, nil
}

// in are the clusters that a user is in now; never nil.
func (s shownCampaigns) in(ctx context.Context, client id.Client, user id.User) ([]id.Cluster, error) {
	found, err := s.clusters.OfUser(ctx, client, false, user)
	in := make([]id.Cluster, len(found))
	for i, c := range found {
		in[i] = c.ID
	}
	return in, err
}

// notShown are the refusals that only mean that something else is shown.
var notShown = []string{"frequency_capped", "campaign_not_running", "campaign_unknown", "not_in_audience"}

// Impression implements [feeds.Campaigns]: the impression is recorded at the
// revision at which the cap was counted, and its id follows from the showing.
func (s shownCampaigns) Impression(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string) (id.Impression, bool, error) {
	call := commands.Call{Client: client, Actor: "policy:feed", Seed: []string{string(client), "feed", string(user), showing}}
	recorded, err := s.commands.RecordEngagement(ctx, call, commands.Engage{
		Campaign: campaign, Kind: domain.Impression, User: commands.UserRef(user),
		Clusters: func(ctx context.Context) ([]id.Cluster, error) { return s.in(ctx, client, user) },
	})
	if f := fault.As(err); f != nil && slices.Contains(notShown, f.Code) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return recorded.Event.(event.CampaignEngagementRecorded).Impression, true, nil
}
