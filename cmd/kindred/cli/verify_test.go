package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kindred/eventstore/audit"
	"kindred/testkit"
)

// An export comes from who may be proven to have changed it.
func TestWhatAnExportSaysIsNoCommandToATerminal(t *testing.T) {
	t.Parallel()
	hostile := `{"ordinal":0,"id":"evt_\u001b]0;owned\u0007","type":"x","stream":"\u001b[2J","position":"\u001b[2J","data":"{}","meta":"{}","hash":"` + strings.Repeat("0", 64) + `"}` + "\n"
	path := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(path, []byte(strings.Repeat(hostile, 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	export := testkit.Must(os.Open(path))(t)
	defer export.Close()
	var out bytes.Buffer
	if err := verifyExport(export, audit.Keys{}, nil, &out, io.Discard); err == nil {
		t.Error("it is genuine")
	}
	if said := out.String(); !strings.Contains(said, `evt_\x1b]0;owned`) || strings.ContainsAny(said, "\x1b\a") {
		t.Errorf("%q", said)
	}
}

func TestAHeadIsFoundHoweverItWasKept(t *testing.T) {
	t.Parallel()
	for what, kept := range map[string]struct {
		text  string
		heads []string
	}{
		"a JWS":                           {"a.b.c", []string{"a.b.c"}},
		"several":                         {"a.b.c\r\n\n d.e.f \n", []string{"a.b.c", "d.e.f"}},
		"a proof":                         {`{"head":"a.b.c","size":2}` + "\n", []string{"a.b.c"}},
		"a proof as jq prints it":         {"\n {\n  \"head\": \"a.b.c\",\n  \"size\": 2\n}\n", []string{"a.b.c"}},
		"an export":                       {`{"ordinal":0}` + "\n" + `{"head":"a.b.c"}` + "\n", []string{"a.b.c"}},
		"no head":                         {`{"size":2}`, nil},
		"an empty file":                   {"", nil},
		"a proof that was not kept whole": {`{"head":"a.b.c","size`, nil},
	} {
		path := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(path, []byte(kept.text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := readHeads([]string{path})
		if !slices.Equal(found, kept.heads) || (err == nil) != (len(kept.heads) > 0) {
			t.Errorf("%s: got %q, %v; want %q", what, found, err, kept.heads)
		}
	}
}

// An auditor who has kept a refusal is not told of a forgery.
func TestARefusalIsNoProof(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "proof")
	if err := os.WriteFile(path, []byte(`{"code":"token_expired","status":401}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verifyProof(path, audit.Keys{}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), path+" is no answer of history/proof") {
		t.Errorf("it is told of as %v", err)
	}
}
