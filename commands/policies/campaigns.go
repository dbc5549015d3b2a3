package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/id"
	"kindred/panics"
)

const (
	campaignPause = 500 * time.Millisecond
	// campaignBatch is how many are advanced before those are looked for whose time has come
	// meanwhile.
	campaignBatch = 100
	// advanceTimeout bounds how long one campaign may keep the others waiting.
	advanceTimeout = 30 * time.Second
)

// DueCampaigns finds campaigns whose time to start or to end has come.
type DueCampaigns interface {
	// Due returns at most limit of them, and whose they are.
	Due(ctx context.Context, now time.Time, limit int) (map[id.Campaign]id.Client, error)
}

// AdvanceCampaigns starts and completes campaigns whose time has come, and says whether
// there may be more. One that cannot be advanced does not keep back the others.
// Faults: busy.
func (p *Policies) AdvanceCampaigns(ctx context.Context) (more bool, err error) {
	due, err := p.Campaigns.Due(ctx, p.Now(), campaignBatch)
	if err != nil {
		return false, err
	}
	for campaign, client := range due {
		advanced, err := p.advance(ctx, client, campaign)
		if isTold(ctx, err) {
			p.Logger.WarnContext(ctx, "campaign not advanced, trying again", "campaign", campaign, "error", err)
		}
		more = more || advanced // where nothing was, the read model is behind
	}
	return more && len(due) == campaignBatch, nil
}

func (p *Policies) advance(ctx context.Context, client id.Client, campaign id.Campaign) (advanced bool, err error) {
	defer panics.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, advanceTimeout)
	defer cancel()
	const actor = "policy:campaigns"
	call := commands.Call{Client: client, Actor: actor, Seed: []string{actor, string(client), string(campaign)}}
	after, err := p.Commands.AdvanceCampaign(ctx, call, campaign)
	return after.Position != "", err
}
