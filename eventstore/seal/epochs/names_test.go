package epochs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"kindred/golden"
	"kindred/testkit"
)

// Operators copy the directory and keep snapshots of it.
func TestFilesAndSnapshotsOfEpochKeysStay(t *testing.T) {
	at, key := dir(t.TempDir()), bytes.Repeat([]byte{7}, keySize)
	const name = "x0707070707070707"
	if err := at.putKey(name, key); err != nil {
		t.Fatal(err)
	}
	text := testkit.Must(os.ReadFile(at.file(name)))(t)
	snap, err := json.Marshal(snapshot{
		Version: snapshotFormat, Directory: "d", TakenAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Keys: map[string][]byte{name: key},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "epochs.txt", []string{
		fmt.Sprintf("file %s %q", name, text),
		"file " + ownerFile,
		"snapshot, encrypted with age " + string(snap),
		fmt.Sprintf("fingerprint of %s %x", name, fingerprint(name, key)),
	})
}
