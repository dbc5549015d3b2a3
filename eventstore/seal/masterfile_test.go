package seal_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kindred/eventstore/seal"
	"kindred/testkit"
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
	if made, err := seal.MakeMasterKeyFile(path, true, rand.Reader, func(string) error { return trouble }); made || !errors.Is(err, trouble) {
		t.Errorf("a key that another process has made, and may be lost, is used: %v, %v", made, err)
	}
}

// What is sealed opens under the first key alone: it is never replaced.
func TestAMasterKeyIsMadeOnceAndNeverForWhatIsSealed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "master.key")
	synced := func(string) error { return nil }
	if made, err := seal.MakeMasterKeyFile(path, true, rand.Reader, synced); made || err == nil {
		t.Errorf("another key is made for what is sealed: %v, %v", made, err)
	}
	var first []byte
	for n := range 2 {
		made, err := seal.MakeMasterKeyFile(path, n > 0, rand.Reader, synced)
		if err != nil || made != (n == 0) {
			t.Errorf("made for the %d. time: %v, %v", n+1, made, err)
		}
		text := testkit.Must(os.ReadFile(path))(t)
		if _, err := seal.ParseMasterKeys(string(text)); err != nil || n > 0 && !bytes.Equal(text, first) {
			t.Errorf("the file holds %d bytes, %v", len(text), err)
		}
		first = text
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
