package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kindred/commands"
	"kindred/panics"
)

const (
	// claimGrace is how long a command has between a reservation and what it
	// is for; afterwards a crash is assumed.
	claimGrace = time.Minute
	claimPause = 15 * time.Second
	claimBatch = 100
)

// ResolveClaims resolves the reservations that have been open for longer than a
// command takes. One that fails does not keep back the others.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (p *Policies) ResolveClaims(ctx context.Context) error {
	open, err := p.Claims.OpenSince(ctx, p.Now().Add(-claimGrace), claimBatch)
	if err != nil {
		return err
	}
	var failed []error
	for _, stream := range open {
		if err := panics.Caught(func() error {
			return p.Commands.ResolveClaim(ctx, commands.Call{Actor: commands.ClaimsActor}, stream)
		}); err != nil {
			failed = append(failed, fmt.Errorf("resolve %s: %w", stream, err))
		}
	}
	return errors.Join(failed...)
}
