package commands

import (
	"context"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Waiting says how many requests wait for a campaign.
func (c *Commands) Waiting(client id.Client, campaign id.Campaign) int {
	return c.ledgers.of(c, client, campaign).rounds.Waits()
}

// Slice appends as imports and large changes do.
func (c *Commands) Slice(ctx context.Context, client id.Client, appends func() (eventstore.Position, error)) error {
	return c.slice(ctx, c.Slices, client, appends)
}
