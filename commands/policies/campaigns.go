package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/id"
)

const (
	campaignPause = 500 * time.Millisecond
	campaignBatch = 1_000
)

// DueCampaigns finds campaigns whose time to start or to end has come.
type DueCampaigns interface {
	// Due returns at most limit of them, and whose they are.
	Due(ctx context.Context, now time.Time, limit int) (map[id.Campaign]id.Client, error)
}

// sweepCampaigns starts and completes campaigns when their time comes, until
// ctx ends. Several processes may sweep at once: the log decides.
func (p *Policies) sweepCampaigns(ctx context.Context) {
	ticker := time.NewTicker(campaignPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := p.AdvanceCampaigns(ctx); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "campaigns not swept, trying again", "error", err)
		}
	}
}

// AdvanceCampaigns starts and completes the campaigns whose time has come. One
// that cannot be advanced does not keep back the others.
func (p *Policies) AdvanceCampaigns(ctx context.Context) error {
	due, err := p.Campaigns.Due(ctx, p.Now(), campaignBatch)
	if err != nil {
		return err
	}
	const actor = "policy:campaigns"
	for campaign, client := range due {
		call := commands.Call{Client: client, Actor: actor, Seed: []string{actor, string(client), string(campaign)}}
		if _, err := p.Commands.AdvanceCampaign(ctx, call, campaign); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "campaign not advanced, trying again", "campaign", campaign, "error", err)
		}
	}
	return nil
}
