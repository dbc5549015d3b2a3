package seal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MakeMasterKeyFile makes a key file unless there is one; there must be where
// something is sealed. Of several processes that start at once, one makes it: the
// link fails for the others. All return once it is durable.
func MakeMasterKeyFile(path string, sealed bool, entropy io.Reader, sync func(dir string) error) (made bool, err error) {
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
	key, err := GenerateMasterKey(entropy)
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
