// Package populations holds the users of clients in memory, as columns that are compared, and
// who has granted consent layers; both are kept up with the read models of users and consent.
package populations

import (
	"context"
	"fmt"
	"log/slog"

	lru "github.com/hashicorp/golang-lru/v2"

	"kindred/domain/id"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// Populations keeps the users of the clients that were last asked about in
// memory, ready to be compared. Each request first takes in what has changed.
type Populations struct {
	Users   projections.Users
	Consent projections.Consent
	Schemas projections.TraitSchemas
	// Record records a schema that was learnt from so many users while the
	// given version was the newest; where it is not any more, nothing.
	Record func(ctx context.Context, client id.Client, under, users int, schema []byte) error
	Logger *slog.Logger

	memory  budget
	clients *lru.Cache[id.Client, *population]
	layers  *lru.Cache[layerOf, *consentSet]
	behind  chan id.Client // clients whose population is to be built anew
	wanted  *wantedQueue
}

// maxPopulations bounds how many clients are kept in memory.
// limit: models | clients whose users are in memory | {maxPopulations}
const maxPopulations = 1024

// New keeps nothing in memory yet, and never more than so many bytes.
// Record and Logger are set before it is used.
func New(reader readmodel.Reader, memory int64) (*Populations, error) {
	p := &Populations{
		Users: projections.Users{Reader: reader}, Consent: projections.Consent{Reader: reader}, Schemas: projections.TraitSchemas{Reader: reader},
		behind: make(chan id.Client, maxPopulations), wanted: newWantedQueue(maxPopulations),
	}
	p.memory.whole, p.memory.forget = memory, p.forget
	var err error
	p.clients, err = lru.NewWithEvict(maxPopulations, func(_ id.Client, pop *population) { p.memory.release(&pop.held) })
	if err != nil {
		return nil, fmt.Errorf("keep populations: %w", err)
	}
	p.layers, err = lru.NewWithEvict(maxLayers, func(_ layerOf, c *consentSet) {
		c.evict()
		p.memory.release(&c.held)
	})
	if err != nil {
		return nil, fmt.Errorf("keep consents: %w", err)
	}
	return p, nil
}

// heldBy is a population, or the consents of a layer, in memory.
type heldBy struct {
	*holding
	owner  string
	forget func()
}

// all are the populations and then the consents, those first that were used longest ago.
func (p *Populations) all() (all []heldBy) {
	for _, client := range p.clients.Keys() {
		if pop, found := p.clients.Peek(client); found {
			all = append(all, heldBy{&pop.held, client.Owner(), func() { p.clients.Remove(client) }})
		}
	}
	for _, of := range p.layers.Keys() {
		if c, found := p.layers.Peek(of); found {
			all = append(all, heldBy{&c.held, of.client.Owner(), func() { p.layers.Remove(of) }})
		}
	}
	return all
}

// forget forgets one of all but one, which is to have a size: the first one of a client that
// has more than its part with its sandboxes, else the first one.
func (p *Populations) forget(but *holding, size int64) bool {
	all, has := p.all(), map[string]int64{}
	for _, k := range all {
		if k.holding == but {
			has[k.owner] += size
		} else {
			has[k.owner] += k.bytes.Load()
		}
	}
	for _, most := range []int64{p.memory.whole / clientPart, -1} {
		for _, k := range all {
			if k.holding != but && k.bytes.Load() > 0 && has[k.owner] > most {
				k.forget() // unless another has just done it
				return true
			}
		}
	}
	return false
}

// getOrAdd returns what is in memory under a key, or fresh, which is from now on.
func getOrAdd[K comparable, V any](memory *lru.Cache[K, V], key K, fresh V) V {
	known, found, _ := memory.PeekOrAdd(key, fresh)
	if !found {
		return fresh
	}
	memory.Get(key) // it was used just now
	return known
}
