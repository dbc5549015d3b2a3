package main

import (
	"bufio"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// asTestpg makes a process of these tests be testpg itself.
const asTestpg = "KINDRED_TEST_AS_TESTPG"

func TestMain(m *testing.M) {
	if os.Getenv(asTestpg) != "" {
		main()
	}
	os.Exit(m.Run())
}

func testpg(command ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], command...)
	cmd.Env = append(os.Environ(), asTestpg+"=1", pgtest.EnvURL+"=")
	return cmd
}

func TestTheExitCodeIsTheCommands(t *testing.T) {
	t.Parallel()
	for code, command := range map[int][]string{
		0:   {"true"},
		7:   {"sh", "-c", "exit 7"},
		127: {"no-such-command"},
	} {
		err := testpg(command...).Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() != code || (err == nil) != (code == 0) {
			t.Errorf("%s: %v instead of %d", command, err, code)
		}
	}
}

func TestNothingIsLeftHoweverItEnds(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{
		"interrupted": syscall.SIGINT, "terminated": syscall.SIGTERM, "killed": syscall.SIGKILL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := testpg("sh", "-c", `echo "$`+pgtest.EnvURL+`"; exec sleep 60`)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			server, err := url.Parse(line[:len(line)-1])
			if err != nil {
				t.Fatal(err)
			}
			socket := server.Query().Get("host")
			if _, err := os.Stat(socket); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it ended well")
			}
			goes(t, socket)
		})
	}
}

func goes(t *testing.T, path string) {
	t.Helper()
	testkit.Eventually(t, path+" is gone", func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func TestAServerThatIsThereIsUsed(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "sh", "-c", `printf %s "$`+pgtest.EnvURL+`"`)
	cmd.Env = append(os.Environ(), asTestpg+"=1", pgtest.EnvURL+"=postgres://there")
	out, err := cmd.Output()
	if err != nil || string(out) != "postgres://there" {
		t.Errorf("%s, %v", out, err)
	}
}
