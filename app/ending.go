package app

import (
	"context"
	"crypto/rand"
	"fmt"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/id"
	"kindred/projections"
)

// EndClient deletes a client and all in it, for those who run kindred. It refuses where the
// client has another slug, or is a sandbox; one that was deleted is deleted to the end.
// Faults: building, busy, catching_up, client_unknown, idempotency_key_reused, not_in_sandbox, overloaded,
// quarantined, stale.
func (a *App) EndClient(ctx context.Context, client id.Client, slug string) error {
	if client.Sandbox() {
		return fmt.Errorf("%s is a sandbox: delete it with kindred sandboxes delete, or with the client beside which it stands", client)
	}
	deleted, err := a.Log.IsDeleted(ctx, client)
	if err != nil {
		return err
	}
	if !deleted {
		found, err := projections.Clients{Reader: a.Reader()}.Get(ctx, client, false, domain.DefaultSettings())
		if err != nil {
			return err
		}
		if found.Slug != slug {
			return fmt.Errorf("the slug of %s is %s, not %q; nothing was deleted", client, found.Slug, slug)
		}
	}
	ends := &commands.Commands{Log: a.Log, Entropy: rand.Reader, Revoked: a.revocations().Note}
	_, err = ends.EndClient(ctx, commands.Call{Client: client, Actor: "operator"})
	return err
}
