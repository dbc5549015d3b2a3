package main

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kindred/domain/id"
	"kindred/postgres/pgtest"
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
	if made, err := makeMasterKey(path, false, note); err != nil || !made {
		t.Fatal(made, err)
	}
	for _, of := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if !slices.Contains(synced, of) {
			t.Errorf("%s is not synced", of)
		}
	}
	trouble := errors.New("trouble")
	if made, err := makeMasterKey(filepath.Join(t.TempDir(), "master.key"), false, func(string) error { return trouble }); made || !errors.Is(err, trouble) {
		t.Errorf("a key that may be lost is used: %v, %v", made, err)
	}
}

func TestAMasterKeyThatIsLostIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	config := testConfig(t)
	config.MasterKey, config.DatabaseURL = "", pgtest.URL(t)
	path := filepath.Join(config.DataDir, "master.key")
	seals := func() error {
		f, err := found(t.Context(), config, slog.New(slog.DiscardHandler), true)
		if err != nil {
			return err
		}
		defer f.close()
		return f.vault.Prepare(t.Context(), id.Next[id.Client](id.Random(rand.Reader)), "somebody")
	}
	if err := seals(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".lost"); err != nil {
		t.Fatal(err)
	}
	err := seals()
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "KINDRED_MASTER_KEY") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another key was made: %v", err)
	}
	if err := os.Rename(path+".lost", path); err != nil {
		t.Fatal(err)
	}
	if err := seals(); err != nil {
		t.Errorf("with the key at its place again: %v", err)
	}
}
