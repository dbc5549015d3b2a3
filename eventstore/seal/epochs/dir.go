package epochs

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"kindred/eventstore/seal"
	"kindred/postgres"
)

// dir is the directory of the epochs of one database: a file for each, named by
// its id, that holds its key in base64; and a file that names the database.
type dir string

const (
	ownerFile  = "database"
	unfinished = "new-" // begins the names of files that were not written to their end
)

var (
	epochName = regexp.MustCompile(`^x[0-9a-f]{16}$`)
	encoding  = base64.StdEncoding.Strict()
)

func (d dir) file(name string) string { return filepath.Join(string(d), name) }

// put makes a file durable, whole or not at all.
func (d dir) put(name string, content []byte) error {
	file, err := os.CreateTemp(string(d), unfinished+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, wipe(file.Name()))
	}
	if err := os.Rename(file.Name(), d.file(name)); err != nil {
		return errors.Join(err, wipe(file.Name()))
	}
	return postgres.SyncDir(string(d))
}

func (d dir) putKey(name string, key []byte) error {
	if err := d.put(name, []byte(encoding.EncodeToString(key)+"\n")); err != nil {
		return fmt.Errorf("keep the key of epoch %s: %w", name, err)
	}
	return nil
}

// key reads the key of an epoch, or fails with seal.ErrEpoch.
func (d dir) key(name string) ([]byte, error) {
	if !epochName.MatchString(name) {
		return nil, fmt.Errorf("%w: %q is not the name of an epoch", seal.ErrEpoch, name)
	}
	text, err := os.ReadFile(d.file(name))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", seal.ErrEpoch, err)
	}
	key, err := encoding.DecodeString(strings.TrimSuffix(string(text), "\n"))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%w: %s is damaged", seal.ErrEpoch, d.file(name))
	}
	return key, nil
}

// destroy destroys the key of an epoch for good. It may have been done before.
func (d dir) destroy(name string) error {
	err := wipe(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // whoever removed it may have died before that was durable
	}
	if err = errors.Join(err, postgres.SyncDir(string(d))); err != nil {
		return fmt.Errorf("destroy the key of epoch %s: %w", name, err)
	}
	return nil
}

// wipe overwrites a file where it stands, and removes it.
func wipe(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = file.Write(bytes.Repeat([]byte{'\n'}, int(info.Size())))
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Remove(path)
}

// old lists the files of epochs that were made before a time, and removes what
// was never finished.
func (d dir) old(before time.Time) (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case info.ModTime().After(before):
		case epochName.MatchString(entry.Name()):
			names = append(names, entry.Name())
		case strings.HasPrefix(entry.Name(), unfinished):
			if err := wipe(d.file(entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return names, nil
}

// makeDir makes a directory, and those above it, durably.
func makeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return postgres.SyncDir(filepath.Dir(path)) // whoever made it may have died before that
}
