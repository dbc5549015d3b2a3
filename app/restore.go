package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/epochs"
	"kindred/eventstore/seal/pgkeys"
)

// RestoreEpochs gives the database, on which no service may run, a directory of
// epoch keys from snapshots, where the master keys open what stands under them. What has none of its own is given up where that is said.
func (a *App) RestoreEpochs(ctx context.Context, identities []age.Identity, snapshots []io.Reader, giveUp bool) (epochs.Restoring, error) {
	served, err := projector.Served(ctx, a.Pool)
	if err != nil {
		return epochs.Restoring{}, fmt.Errorf("look for a service: %w", err)
	}
	if served {
		return epochs.Restoring{}, errors.New("a service runs on this database: stop it first")
	}
	master, err := MasterKeys(ctx, a.Config, a.Pool, a.logger)
	if err != nil {
		return epochs.Restoring{}, err
	}
	if err := seal.New(pgkeys.Keys{Pool: a.Pool}, master, rand.Reader).CheckMaster(ctx); err != nil {
		return epochs.Restoring{}, fmt.Errorf("nothing is restored, since it could not be opened: %w", err)
	}
	return epochs.Restore(ctx, a.Pool, a.epochOptions(ctx), identities, snapshots, giveUp)
}
