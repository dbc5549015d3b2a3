package commands

import "kindred/domain/id"

// Waiting says how many requests wait for a campaign.
func (c *Commands) Waiting(client id.Client, campaign id.Campaign) int {
	return c.ledgers.of(c, client, campaign).rounds.Waits()
}
