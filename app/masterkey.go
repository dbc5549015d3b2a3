package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore/seal"
	"kindred/eventstore/seal/pgkeys"
	"kindred/postgres"
)

// MasterKeys finds the master keys: the variable, the file, or a file that is
// made at the first start, and then never again.
func MasterKeys(ctx context.Context, c Config, pool *pgxpool.Pool, logger *slog.Logger) (seal.MasterKeys, error) {
	if c.MasterKey != "" {
		return seal.ParseMasterKeys(c.MasterKey)
	}
	path, made := c.MasterKeyFile, false
	if path == "" {
		path = filepath.Join(c.DataDir, "master.key")
		// First: who starts at the same time seals nothing before the file is there.
		sealed, err := pgkeys.Keys{Pool: pool}.Any(ctx)
		if err != nil {
			return seal.MasterKeys{}, fmt.Errorf("look for what is sealed: %w", err)
		}
		if made, err = seal.MakeMasterKeyFile(path, sealed, rand.Reader, postgres.SyncDir); err != nil {
			return seal.MasterKeys{}, err
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return seal.MasterKeys{}, fmt.Errorf("read the master key: %w", err)
	}
	keys, err := seal.ParseMasterKeys(strings.TrimSpace(string(text)))
	if err != nil {
		return keys, fmt.Errorf("the master key in %s: %w", path, err)
	}
	if made {
		logger.WarnContext(ctx, "made a master key; keep a copy as safe as the database, without it nothing personal can be read again", "file", path)
	}
	return keys, nil
}
