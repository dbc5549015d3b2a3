package cli

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
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

// reading starts a command that waits for what is in a file.
func reading(t *testing.T) (command *exec.Cmd, file io.Closer) {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := syscall.Mkfifo(keys, 0o600); err != nil {
		t.Fatal(err)
	}
	command = exec.Command(os.Args[0], "history", "verify", "--jwks", keys, "-")
	command.Env = append(os.Environ(), asMain+"=yes")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() }) // it may have ended
	file, err := os.OpenFile(keys, os.O_WRONLY, 0)   // once it reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // it may be closed
	return command, file
}

func TestASecondSignalEndsWhatDoesNotHeedTheFirst(t *testing.T) {
	t.Parallel()
	command, _ := reading(t)
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
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

func TestWhoHangsUpLetsACommandEndInOrder(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if slices.Contains(endings(), os.Signal(syscall.SIGHUP)) {
		t.Error("it would end though it was told to ignore that")
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // not ignored: the command inherits that
	command, file := reading(t)
	if err := command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil { // what it waited for
		t.Fatal(err)
	}
	if err := command.Wait(); command.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended by itself with %v", err)
	}
}

func TestHelpAboutNothingIsRefused(t *testing.T) {
	t.Parallel()
	for line, code := range map[string]int{
		"help": 0, "help events": 0, "help users import": 0, "help nope": 2, "help users nope": 2, "nope": 1, "users nope": 1,
		"completion": 0, "completion bash --help": 0, "completion tcsh": 1,
	} {
		var out bytes.Buffer
		c := Command(func(string) string { return "" }, &out, io.Discard)
		c.SetArgs(strings.Fields(line))
		err := c.Execute()
		if got := exitCode(err); got != code || code == 0 && !strings.Contains(out.String(), "Usage:") {
			t.Errorf("kindred %s ends with %d (%v), want %d:\n%s", line, got, err, code, &out)
		}
		if name := line[strings.LastIndex(line, " ")+1:]; code > 0 && !strings.Contains(err.Error(), name) {
			t.Errorf("kindred %s says %v", line, err)
		}
		if strings.HasSuffix(line, "nope") && !strings.Contains(err.Error(), "kindred help") {
			t.Errorf("kindred %s names no help: %v", line, err)
		}
	}
}
