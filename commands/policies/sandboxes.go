package policies

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/id"
	"kindred/panics"
)

const (
	sandboxPause = time.Second
	// limit: models | sandboxes that are deleted in one sweep, since their time is over | {sandboxBatch}
	sandboxBatch   = 10          // which what is due meanwhile waits for: they come one after the other
	sandboxTimeout = time.Minute // in which one is deleted, so that it keeps back no other
	sandboxesActor = "policy:sandboxes"
)

// Sandboxes finds sandboxes whose time is over.
type Sandboxes interface {
	// Due returns at most limit of them, each with the client beside which it stands.
	Due(ctx context.Context, limit int) (map[id.Client]id.Client, error)
}

// EndSandboxes deletes the sandboxes whose time is over. One that fails keeps back no
// other.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (p *Policies) EndSandboxes(ctx context.Context) error {
	due, err := p.Sandboxes.Due(ctx, sandboxBatch)
	if err != nil {
		return err
	}
	for sandbox, parent := range due {
		if err := p.endSandbox(ctx, parent, sandbox); isTold(ctx, err) {
			p.Logger.WarnContext(ctx, "sandbox not deleted, trying again", "client", sandbox, "error", err)
		}
	}
	return nil
}

func (p *Policies) endSandbox(ctx context.Context, parent, sandbox id.Client) (err error) {
	defer panics.Catch(&err)
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	_, err = p.Commands.EndSandbox(ctx, commands.Call{Client: parent, Actor: sandboxesActor}, sandbox)
	return err
}
