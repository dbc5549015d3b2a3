package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"kindred/eventstore/projector"
	"kindred/eventstore/seal/epochs"
)

// RestoreEpochs gives the database, on which no service may run, a directory of
// epoch keys from snapshots. What has none of its own is given up where that is said.
func (a *App) RestoreEpochs(ctx context.Context, identities []age.Identity, snapshots []io.Reader, giveUp bool) (epochs.Restoring, error) {
	served, err := projector.Served(ctx, a.Pool)
	if err != nil {
		return epochs.Restoring{}, fmt.Errorf("look for a service: %w", err)
	}
	if served {
		return epochs.Restoring{}, errors.New("a service runs on this database: stop it first")
	}
	return epochs.Restore(ctx, a.Pool, a.epochOptions(ctx), identities, snapshots, giveUp)
}
