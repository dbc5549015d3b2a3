package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"kindred/postgres"
)

// Served refuses a place where nothing was ever served: a tool would make a new
// kindred there.
func (c Config) Served(ctx context.Context) error {
	if c.DatabaseURL == "" {
		there, err := postgres.LocalExists(c.DataDir)
		if err == nil && !there {
			err = fmt.Errorf("nothing was ever served from %s: there is no database under it. "+
				"Set KINDRED_DATA_DIR or KINDRED_DATABASE_URL to where the service keeps its data", c.DataDir)
		}
		return err
	}
	there, err := postgres.Migrated(ctx, c.DatabaseURL)
	err = c.unreached(err)
	if err == nil && !there {
		err = errors.New("nothing was ever served from the database that KINDRED_DATABASE_URL names: it holds no kindred")
	}
	return err
}

// unreached adds to what keeps a process from the database which setting names that.
func (c Config) unreached(err error) error {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok && c.DatabaseURL != "" {
		return fmt.Errorf("KINDRED_DATABASE_URL: %w", err)
	}
	return err
}
