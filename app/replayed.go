package app

import (
	"context"
	"errors"
	"fmt"

	"kindred/eventstore"
)

const unfinished = `SELECT EXISTS (SELECT FROM replay WHERE finished_at IS NULL)`

const selectThrough = `SELECT coalesce((SELECT through FROM replay), '')`

// ReplayedThrough is where the log ends that was replayed into the database;
// Start where none was.
func (a *App) ReplayedThrough(ctx context.Context) (end eventstore.Position, err error) {
	if err = a.Pool.QueryRow(ctx, selectThrough).Scan(&end); err != nil {
		err = fmt.Errorf("look for a replay: %w", err)
	}
	return end, err
}

// refuseReplay keeps a service from a database that is not whole yet: it would
// deliver what the other kindred has delivered.
func (a *App) refuseReplay(ctx context.Context) error {
	var is bool
	if err := a.Pool.QueryRow(ctx, unfinished).Scan(&is); err != nil {
		return fmt.Errorf("look for a replay: %w", err)
	}
	if is {
		return errors.New("a replay into this database has not ended well: run kindred history replay again, or begin with an empty database")
	}
	return nil
}
