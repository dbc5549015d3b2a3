package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"kindred/eventstore/seal"
)

// masterKeys finds the master keys: the variable, the file, or a file that is
// made at the first start.
func masterKeys(c Config, logger *slog.Logger) (seal.MasterKeys, error) {
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
		var err error
		if made, err = makeMasterKey(path); err != nil {
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
		logger.Warn("made a master key; keep a copy as safe as the database, without it nothing personal can be read again", "file", path)
	}
	return keys, nil
}

// makeMasterKey makes a key file unless there is one. Of several processes
// that start at once, one makes it: the link fails for the others.
func makeMasterKey(path string) (made bool, err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	key, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, fmt.Errorf("make the data directory: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "master.key.new-*") // mode 0600
	if err != nil {
		return false, fmt.Errorf("make a master key: %w", err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(key + "\n")
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return false, fmt.Errorf("write a master key: %w", err)
	}
	err = os.Link(temporary.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}
