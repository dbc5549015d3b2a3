package commands

import "kindred/domain/id"

// Waiting says how many requests wait for a campaign.
func (c *Commands) Waiting(client id.Client, campaign id.Campaign) int {
	l := c.ledgers.of(c, client, campaign)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}
