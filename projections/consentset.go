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
// limit: models | consent layers in memory | {maxLayers}
const maxLayers = 256

// consentSet is who has granted a layer. Each request first takes in what has
// changed.
type consentSet struct {
	lock    ctxLock
	reached eventstore.Position // guarded by lock, as is the next
	server  int64               // that they were read from
	held    holding

	mu      sync.RWMutex // guards the rest; it is not held while the database is waited for
	granted map[id.User]struct{}

	// distribution is that of the population among the layer's traits.
	distribution *matching.Distribution
	population   *matching.Population
	version      int // of the schema, whose weights the population may take over
	paths        string
}

func newConsentSet() *consentSet {
	return &consentSet{lock: newCtxLock(), granted: map[id.User]struct{}{}}
}

// takeIn reads what has changed in a layer since the last time.
func (p *Populations) takeIn(ctx context.Context, of layerOf, c *consentSet) error {
	if err := c.lock.lockSoon(ctx); err != nil {
		return err
	}
	defer c.lock.unlock()
	server, into := p.Consent.Progress.Server(), c
	if c.server != server {
		into = newConsentSet() // everything is read anew, beside requests that compare
	}
	consent := p.Consent
	consent.AtOnce = true // while one waits for the first page, others have the lock
	for ; ; consent.AtOnce = false {
		page, err := consent.ChangedConsents(ctx, of.client, of.layer, into.reached, changesAtOnce)
		if err != nil {
			return err
		}
		into.apply(page)
		if len(page) < changesAtOnce {
			break
		}
	}
	if into != c {
		c.mu.Lock()
		c.granted, c.reached, c.server = into.granted, into.reached, server
		c.mu.Unlock()
	}
	const grant = 80 // bytes
	return p.memory.resize(&c.held, int64(grant*len(c.granted)))
}

func (c *consentSet) apply(page []ConsentChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range page {
		if c.reached = change.At; change.Granted {
			c.granted[change.User] = struct{}{}
		} else {
			delete(c.granted, change.User)
		}
	}
}

func (c *consentSet) has(user string) bool {
	_, granted := c.granted[id.User(user)]
	return granted
}

// share is about how many of so many users have granted the layer, at least one.
func (c *consentSet) share(of int) float64 {
	return min(1, float64(max(1, len(c.granted)))/float64(max(1, of)))
}

// among returns how alike two random users are in the layer's traits.
func (c *consentSet) among(users *matching.Population, version int, paths string, permit func(string) bool) matching.Distribution {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.distribution == nil || c.population != users || c.version != version || c.paths != paths {
		d := users.Distribution(pairsSeed, permit)
		c.distribution, c.population, c.version, c.paths = &d, users, version, paths
	}
	return *c.distribution
}
