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
	campaignBatch = 1_000
	// advanceTimeout bounds how long one campaign may keep the others waiting.
	advanceTimeout = 30 * time.Second
)

// DueCampaigns finds campaigns whose time to start or to end has come.
type DueCampaigns interface {
	// Due returns at most limit of them, and whose they are.
	Due(ctx context.Context, now time.Time, limit int) (map[id.Campaign]id.Client, error)
}

// AdvanceCampaigns starts and completes the campaigns whose time has come. One
// that cannot be advanced does not keep back the others.
// Faults: busy.
func (p *Policies) AdvanceCampaigns(ctx context.Context) error {
	due, err := p.Campaigns.Due(ctx, p.Now(), campaignBatch)
	if err != nil {
		return err
	}
	for campaign, client := range due {
		if err := p.advance(ctx, client, campaign); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "campaign not advanced, trying again", "campaign", campaign, "error", err)
		}
	}
	return nil
}

func (p *Policies) advance(ctx context.Context, client id.Client, campaign id.Campaign) (err error) {
	defer panics.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, advanceTimeout)
	defer cancel()
	const actor = "policy:campaigns"
	call := commands.Call{Client: client, Actor: actor, Seed: []string{actor, string(client), string(campaign)}}
	_, err = p.Commands.AdvanceCampaign(ctx, call, campaign)
	return err
}
