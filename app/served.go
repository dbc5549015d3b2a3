package app

import (
	"context"
	"errors"
	"fmt"

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
	if err == nil && !there {
		err = errors.New("nothing was ever served from the database that KINDRED_DATABASE_URL names: it holds no kindred")
	}
	return err
}
