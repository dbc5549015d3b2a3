package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/id"
	"kindred/projections"
)

// matchPause is how long nobody looks after there was nobody to match.
const matchPause = 250 * time.Millisecond

// matchAutomatically computes the matches of users who were created or have
// changed.
func (p *Policies) matchAutomatically(ctx context.Context) (worked bool, err error) {
	worked, err = p.Matching.Take(ctx, p.match)
	if err != nil && ctx.Err() == nil {
		p.Metrics.notMatched()
	}
	return worked, err
}

// match records what is worth telling of one user; its identifiers follow from
// the event that called for it.
func (p *Policies) match(ctx context.Context, client id.Client, k int, minScore float64, user projections.QueuedUser) (int, error) {
	const policy = "policy:matching"
	call := commands.Call{
		Client: client, Actor: policy, Causation: user.Event, Trace: p.Commands.TraceAt(ctx, user.Position),
		Seed: []string{policy, string(client), string(user.Event)},
	}
	recorded, err := p.Commands.MatchAutomatically(ctx, call, user.User, k, minScore)
	if err == nil {
		p.Metrics.matched(recorded)
	}
	return recorded, err
}
