package projections

import (
	"context"
	"sync"

	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/eventstore"
)

// layerOf names a consent layer among those of all clients.
type layerOf struct {
	client id.Client
	layer  id.ConsentLayer
}

// maxLayers bounds how many layers are kept in memory.
const maxLayers = 256

// consenting is who has granted a layer. Each request first takes in what has
// changed.
type consenting struct {
	mu      sync.RWMutex
	reached eventstore.Position
	granted map[id.User]struct{}
	server  int64 // that they were read from

	// distribution is that of the population among the layer's traits.
	distribution *matching.Distribution
	population   *matching.Population
	version      int // of the schema, whose weights the population may take over
	paths        string
}

// takeIn reads what has changed since the last time.
func (c *consenting) takeIn(ctx context.Context, consent Consent, of layerOf) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if server := consent.Progress.Server(); c.granted == nil || c.server != server {
		c.granted, c.reached, c.server = map[id.User]struct{}{}, eventstore.Start, server
	}
	for {
		page, err := consent.ChangedConsents(ctx, of.client, of.layer, c.reached, changesAtOnce)
		if err != nil {
			return err
		}
		for _, change := range page {
			if c.reached = change.At; change.Granted {
				c.granted[change.User] = struct{}{}
			} else {
				delete(c.granted, change.User)
			}
		}
		if len(page) < changesAtOnce {
			return nil
		}
	}
}

func (c *consenting) has(user string) bool {
	_, granted := c.granted[id.User(user)]
	return granted
}

// among returns how alike two random users are in the layer's traits.
func (c *consenting) among(users *matching.Population, version int, paths string, permit func(string) bool) matching.Distribution {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.distribution == nil || c.population != users || c.version != version || c.paths != paths {
		d := users.Distribution(pairsSeed, permit)
		c.distribution, c.population, c.version, c.paths = &d, users, version, paths
	}
	return *c.distribution
}
