package seal_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kindred/eventstore/seal"
)

func TestAMasterKeyIsDurableBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "too")
	path := filepath.Join(dir, "master.key")
	var synced []string
	note := func(of string) error {
		synced = append(synced, of)
		if _, err := os.Stat(path); of == dir && err != nil {
			t.Errorf("its directory is synced without it: %v", err)
		}
		return nil
	}
	if made, err := seal.MakeMasterKeyFile(path, false, rand.Reader, note); err != nil || !made {
		t.Fatal(made, err)
	}
	for _, of := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if !slices.Contains(synced, of) {
			t.Errorf("%s is not synced", of)
		}
	}
	trouble := errors.New("trouble")
	if made, err := seal.MakeMasterKeyFile(filepath.Join(t.TempDir(), "master.key"), false, rand.Reader, func(string) error { return trouble }); made || !errors.Is(err, trouble) {
		t.Errorf("a key that may be lost is used: %v, %v", made, err)
	}
}
