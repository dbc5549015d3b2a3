package policies

import (
	"context"
	"slices"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Impressions records that a feed shows a campaign.
type Impressions struct{ Commands *commands.Commands }

// notShown are the refusals that only mean that something else is shown.
var notShown = []string{"frequency_capped", "campaign_not_running", "campaign_unknown", "not_in_audience"}

// Record records an impression of a user who stands where the campaign is for, at the
// revision at which the cap was counted; its id follows from the showing. It is not ok where
// the campaign may not be shown any more.
// Faults: building, busy, campaign_not_running, campaign_unknown, catching_up, frequency_capped,
// idempotency_key_reused, impression_unknown, invalid, not_in_audience, overloaded, quarantined, stale,
// too_many_engagements, user_unknown.
func (i Impressions) Record(ctx context.Context, client id.Client, user id.User, campaign id.Campaign, showing string,
	standing func(context.Context, event.CampaignTerms) (domain.Standing, error),
) (impression id.Impression, ok bool, err error) {
	call := commands.Call{Client: client, Actor: "policy:feed", Trace: eventstore.TraceOf(ctx), Seed: []string{string(client), "feed", string(user), showing}}
	recorded, err := i.Commands.RecordEngagement(ctx, call, commands.Engage{
		Campaign: campaign, Kind: domain.Impression, User: commands.UserRef(user), Standing: standing,
	})
	if f := fault.As(err); f != nil && slices.Contains(notShown, f.Code) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return recorded.Event.(event.CampaignEngagementRecorded).Impression, true, nil
}
