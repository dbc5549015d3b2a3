package populations

import (
	"context"
	"weak"

	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/eventstore/projector"
	"kindred/projections"
)

// Lose leaves a client's population as one who has waited long finds it: since
// it came, changes were taken in, and then the next turn has failed.
func (p *Populations) Lose(client id.Client) {
	pop, _ := p.clients.Peek(client)
	pop.lock <- struct{}{}
	pop.known, pop.done = known{}, pop.begun.Load()+1
	<-pop.lock
}

// Build reads a population that nobody then has.
func (p *Populations) Build(ctx context.Context, client id.Client) (users int, err error) {
	built, taken, err := p.build(ctx, client, projections.RecordedSchema{}, new(holding))
	p.memory.used.Add(-taken)
	if err != nil {
		return 0, err
	}
	return built.users.Len(), nil
}

// Reread has populations find what they know of a server that has taken the place
// of the one that it was read from.
func (p *Populations) Reread(progress *projector.Progress) {
	p.Users.Progress, p.Consent.Progress, p.Schemas.Progress = progress, progress, progress
}

// InMemory are the users of a client, and the consents of its layers, for as long as anything
// holds them.
func (p *Populations) InMemory(client id.Client) (users weak.Pointer[matching.Population], layers []weak.Pointer[consentSet]) {
	pop, _ := p.clients.Peek(client)
	for _, c := range p.layers.Values() {
		layers = append(layers, weak.Make(c))
	}
	return weak.Make(pop.users), layers
}

// ForgetLayers forgets the consents of all layers, as where their memory is taken for others.
func (p *Populations) ForgetLayers() { p.layers.Purge() }
