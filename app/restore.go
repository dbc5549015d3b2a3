package app

import (
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"kindred/eventstore/seal/epochs"
)

const selectServed = `SELECT EXISTS (SELECT FROM leases WHERE expires_at > clock_timestamp())`

// RestoreEpochs gives the database, on which no service may run, a directory of
// epoch keys from snapshots. What has none of its own is given up where that is said.
func (a *App) RestoreEpochs(ctx context.Context, identities []age.Identity, snapshots []io.Reader, giveUp bool) (epochs.Restoring, error) {
	var served bool
	if err := a.Pool.QueryRow(ctx, selectServed).Scan(&served); err != nil {
		return epochs.Restoring{}, fmt.Errorf("look for a service: %w", err)
	}
	if served {
		return epochs.Restoring{}, errors.New("a service runs on this database: stop it first")
	}
	return epochs.Restore(ctx, a.Pool, a.epochOptions(ctx), identities, snapshots, giveUp)
}
