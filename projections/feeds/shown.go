package feeds

import (
	"context"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/pacing"
	"kindred/domain/ranking"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
)

// ShownCampaigns is [Campaigns] by the read models; what is shown is recorded as
// Record does.
type ShownCampaigns struct {
	Model    projections.Campaigns
	Clusters projections.Clusters
	Segments segments.Model
	// Clock is what a client's clock says.
	Clock func(ctx context.Context, client id.Client) (time.Time, error)
	// Record records an impression of a user who stands where the campaign is for, or
	// says that none is allowed any more.
	Record func(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string,
		standing func(context.Context, event.CampaignTerms) (domain.Standing, error)) (impression id.Impression, ok bool, err error)
}

// maxLooked bounds the campaigns of which one feed looks whom they are for.
// limit: client | running campaigns of which one feed looks whom they are for | {maxLooked}, the oldest | the rest waits
const maxLooked = 20 * projections.MaxShowable

var _ Campaigns = ShownCampaigns{}

// Running implements [Campaigns].
// Faults: building, overloaded, quarantined, stale.
func (s ShownCampaigns) Running(ctx context.Context, client id.Client, user id.User) ([]Running, error) {
	now, err := s.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	found, err := s.reaching(ctx, client, user, now)
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
			Response: ranking.Response{Impressions: float64(c.Impressions), Clicks: float64(c.Engaged)},
			Pace:     pacing.Probability(spending, now),
		})
	}
	return running, nil
}

// reaching are the campaigns that are for a user, of those that may be shown.
func (s ShownCampaigns) reaching(ctx context.Context, client id.Client, user id.User, now time.Time) (found []projections.Showable, err error) {
	page := readmodel.Page{Limit: projections.MaxShowable}
	for looked := 0; looked < maxLooked; looked += projections.MaxShowable {
		some, err := s.Model.Showable(ctx, client, user, now, now.Add(-ranking.FatigueWindow), page)
		if err != nil {
			return nil, err
		}
		terms := make([]event.CampaignTerms, len(some))
		for i, c := range some {
			terms[i], page.After = c.CampaignTerms, c.CreatedPosition
		}
		standing, err := s.standing(ctx, client, user, terms)
		if err != nil {
			return nil, err
		}
		for _, c := range some {
			if domain.Reaches(c.CampaignTerms, standing) {
				found = append(found, c)
			}
		}
		if len(some) < projections.MaxShowable || len(found) >= projections.MaxShowable {
			break
		}
	}
	return found[:min(len(found), projections.MaxShowable)], nil
}

// standing is where a user stands, as far as some campaigns ask.
func (s ShownCampaigns) standing(ctx context.Context, client id.Client, user id.User, of []event.CampaignTerms) (at domain.Standing, err error) {
	var segments []id.Segment
	clusters := false
	for _, t := range of {
		clusters = clusters || t.Audience == domain.AudienceClusters
		if t.Segments != nil {
			segments = append(append(segments, t.Segments.AnyOf...), t.Segments.NoneOf...)
		}
	}
	if clusters {
		found, err := s.Clusters.OfUser(ctx, client, false, user)
		if err != nil {
			return at, err
		}
		for _, c := range found {
			at.Clusters = append(at.Clusters, c.ID)
		}
	}
	if len(segments) > 0 {
		slices.Sort(segments)
		at.In, at.Out, at.Granted, err = s.Segments.Standing(ctx, client, false, user, slices.Compact(segments))
	}
	return at, err
}

// Impression implements [Campaigns].
// Faults: building, overloaded, quarantined, stale.
func (s ShownCampaigns) Impression(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string) (id.Impression, bool, error) {
	return s.Record(ctx, client, user, campaign, showing, func(ctx context.Context, terms event.CampaignTerms) (domain.Standing, error) {
		return s.standing(ctx, client, user, []event.CampaignTerms{terms})
	})
}
