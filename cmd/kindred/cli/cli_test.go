package cli

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kindred/testkit"
)

const asMain = "KINDRED_TEST_MAIN" // the test is the command line itself

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

func TestASecondSignalEndsWhatDoesNotHeedTheFirst(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := syscall.Mkfifo(keys, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0], "history", "verify", "--jwks", keys, "-")
	command.Env = append(os.Environ(), asMain+"=yes")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	defer func() { _ = command.Process.Kill() }()    // it may have ended
	writer, err := os.OpenFile(keys, os.O_WRONLY, 0) // once it reads
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close() // which writes nothing
	testkit.Eventually(t, "it ends", func() bool {
		_ = command.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case err := <-ended:
			return err != nil
		default:
			return false
		}
	})
}

func TestHelpAboutNothingIsRefused(t *testing.T) {
	t.Parallel()
	for line, code := range map[string]int{
		"help": 0, "help events": 0, "help users import": 0, "help nope": 2, "help users nope": 2, "nope": 1, "users nope": 1,
	} {
		var out bytes.Buffer
		c := Command(func(string) string { return "" }, &out, io.Discard)
		c.SetArgs(strings.Fields(line))
		err := c.Execute()
		if got := exitCode(err); got != code || code == 0 && !strings.Contains(out.String(), "Usage:") {
			t.Errorf("kindred %s ends with %d (%v), want %d:\n%s", line, got, err, code, &out)
		}
		if name := line[strings.LastIndex(line, " ")+1:]; code == 2 && !strings.Contains(err.Error(), name) {
			t.Errorf("kindred %s says %v", line, err)
		}
	}
}
