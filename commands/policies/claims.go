package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kindred/commands"
)

const (
	// claimGrace is how long a command has between a reservation and what it
	// is for; afterwards a crash is assumed.
	claimGrace = time.Minute
	claimPause = 15 * time.Second
	claimBatch = 100
)

// sweepClaims settles reservations that a crash left open, until ctx ends.
// Several processes may sweep at once: settling is decided by the log.
func (p *Policies) sweepClaims(ctx context.Context) {
	ticker := time.NewTicker(claimPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := p.SettleClaims(ctx); err != nil && ctx.Err() == nil {
			p.Logger.WarnContext(ctx, "claims not settled, trying again", "error", err)
		}
	}
}

// SettleClaims settles the reservations that have been open for longer than a
// command takes. One that fails does not keep back the others.
func (p *Policies) SettleClaims(ctx context.Context) error {
	open, err := p.Claims.OpenSince(ctx, p.Now().Add(-claimGrace), claimBatch)
	if err != nil {
		return err
	}
	var failed []error
	for _, stream := range open {
		if err := p.Commands.SettleClaim(ctx, commands.Call{Actor: "policy:claims"}, stream); err != nil {
			failed = append(failed, fmt.Errorf("settle %s: %w", stream, err))
		}
	}
	return errors.Join(failed...)
}
