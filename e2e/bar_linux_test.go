package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal returns a pseudo-terminal, and what is shown on it so far.
func openTerminal(t *testing.T) (on *os.File, shown func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	on, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return on, func() string {
		_ = on.Close()
		text, _ := io.ReadAll(master) // ends with an error, as the terminal is closed
		return string(text)
	}
}

func TestATerminalShowsABar(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	export := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(export, a.export(), 0o600); err != nil {
		t.Fatal(err)
	}
	jwks := filepath.Join(t.TempDir(), "jwks")
	if err := os.WriteFile(jwks, s.send("GET", "/.well-known/audit-jwks.json", nil).Body, 0o600); err != nil {
		t.Fatal(err)
	}
	for of, args := range map[string][]string{
		"bytes verified":          {"history", "verify", "--jwks", jwks, export},
		"events exported":         {"history", "export", "--client", string(a.Client.ID)},
		"events applied":          {"history", "state", "--client", string(a.Client.ID), "--at", "0"},
		"events applied to users": {"projections", "rebuild", "users"},
	} {
		terminal, shown := openTerminal(t)
		kindred := exec.CommandContext(t.Context(), os.Args[0], args...)
		kindred.Env = append(os.Environ(), asKindred+"=1")
		for name, value := range settingsOf(s.Config) {
			kindred.Env = append(kindred.Env, name+"="+value)
		}
		kindred.Stderr = terminal
		if _, err := kindred.StdinPipe(); err != nil { // see TestMain
			t.Fatal(err)
		}
		if err := kindred.Run(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		if text := shown(); !strings.Contains(text, "[####") || !strings.Contains(text, of) {
			t.Errorf("%q shows no bar: %q", args, text)
		}
	}
}
