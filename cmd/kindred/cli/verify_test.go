package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kindred/eventstore/audit"
)

// An export comes from who may be proven to have changed it.
func TestWhatAnExportSaysIsNoCommandToATerminal(t *testing.T) {
	t.Parallel()
	hostile := `{"ordinal":0,"id":"evt_\u001b]0;owned\u0007","type":"x","stream":"\u001b[2J","position":"\u001b[2J","data":"{}","meta":"{}","hash":"` + strings.Repeat("0", 64) + `"}` + "\n"
	path := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(path, []byte(strings.Repeat(hostile, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	export, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer export.Close()
	var out bytes.Buffer
	if err := verifyExport(export, audit.Keys{}, nil, &out, io.Discard); err == nil {
		t.Error("it is genuine")
	}
	if said := out.String(); !strings.Contains(said, `evt_\x1b]0;owned`) || strings.ContainsAny(said, "\x1b\a") {
		t.Errorf("%q", said)
	}
}
