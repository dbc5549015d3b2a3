package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore/seal"
	"kindred/postgres"
)

const anySealed = `SELECT EXISTS (SELECT FROM client_keys)`

// MasterKeys finds the master keys: the variable, the file, or a file that is
// made at the first start, and then never again.
func MasterKeys(ctx context.Context, c Config, pool *pgxpool.Pool, logger *slog.Logger) (seal.MasterKeys, error) {
	if c.MasterKey != "" {
		keys, err := seal.ParseMasterKeys(c.MasterKey)
		if err != nil {
			return keys, fmt.Errorf("KINDRED_MASTER_KEY: %w", err)
		}
		return keys, nil
	}
	path, made := c.MasterKeyFile, false
	if path == "" {
		path = filepath.Join(c.DataDir, "master.key")
		// First: who starts at the same time seals nothing before the file is there.
		var sealed bool
		err := pool.QueryRow(ctx, anySealed).Scan(&sealed)
		if err != nil {
			return seal.MasterKeys{}, fmt.Errorf("look for what is sealed: %w", err)
		}
		if made, err = makeMasterKey(path, sealed, postgres.SyncDir); err != nil {
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

// makeMasterKey makes a key file unless there is one; there must be where
// something is sealed. Of several processes that start at once, one makes it: the
// link fails for the others. All return once it is durable.
func makeMasterKey(path string, sealed bool, sync func(dir string) error) (made bool, err error) {
	dir := filepath.Dir(path)
	_, err = os.Stat(path)
	switch {
	case err == nil:
		return false, sync(dir) // whoever made it may have been killed before that
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	case sealed:
		return false, fmt.Errorf("%s is missing, and what the database holds is sealed under it: put it back from its copy, "+
			"or set KINDRED_MASTER_KEY or KINDRED_MASTER_KEY_FILE; a new one would open nothing", path)
	}
	key, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		return false, err
	}
	if err := makeDir(dir, sync); err != nil {
		return false, fmt.Errorf("make the data directory: %w", err)
	}
	temporary, err := os.CreateTemp(dir, "master.key.new-*") // mode 0600
	if err != nil {
		return false, fmt.Errorf("make a master key: %w", err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(key + "\n")
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return false, fmt.Errorf("write a master key: %w", err)
	}
	err = os.Link(temporary.Name(), path)
	if made = err == nil; !made && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if err := sync(dir); err != nil {
		return false, fmt.Errorf("make a master key durable: %w", err)
	}
	return made, nil
}

// makeDir makes a directory, and those above it, durably.
func makeDir(dir string, sync func(dir string) error) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(dir), sync); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	switch {
	case err == nil:
		return sync(filepath.Dir(dir))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}
