package postgres

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	stopTimeout = 30 * time.Second
	quitTimeout = 10 * time.Second
	alivePoll   = 200 * time.Millisecond
)

// server is one server process, started by us or met alive.
type server struct {
	process *os.Process
	ended   chan struct{}
	err     error // how it ended; set before ended is closed
}

// startServer starts the server of the layout, with its own log as output.
func startServer(ctx context.Context, l layout, bin binaries, logFile *os.File, settings []string) (*server, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin.dir, "postgres"), serverArgs(l, settings)...)
	l.account.prepare(cmd)
	dieWithUs(cmd.SysProcAttr, syscall.SIGINT)
	cmd.Stdout, cmd.Stderr = logFile, logFile

	s := &server{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel tells the server of our death when the thread that started it
		// ends, so this thread does nothing else for as long as the server lives.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.err = endOf(cmd.Wait())
			close(s.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s as %s: %w", cmd.Path, l.account.name, err)
	}
	s.process = cmd.Process
	return s, nil
}

func endOf(err error) error {
	if err == nil {
		return errors.New("it was told to stop")
	}
	return err
}

func serverArgs(l layout, settings []string) []string {
	args := []string{"-D", l.data()}
	for _, setting := range append([]string{
		"listen_addresses=",
		"port=" + localPort,
		"unix_socket_directories=" + `"` + l.socketDir + `"`,
		"unix_socket_permissions=0700",
		// Failed statements and their values are for the client to hear of, not for a file.
		"log_min_messages=log",
		"log_min_error_statement=panic",
		"log_error_verbosity=terse",
		"log_checkpoints=off",
	}, settings...) {
		args = append(args, "-c", setting)
	}
	return args
}

// findSurvivor returns the server that runs on data although its owner has gone, or
// nil. A note of a process that is alive but no server of data is removed, because
// it would keep a new server from starting; one of a dead process does not.
func findSurvivor(data string) (*server, error) {
	note := filepath.Join(data, "postmaster.pid")
	pid, err := notedPID(note)
	if err != nil || pid == 0 {
		return nil, err
	}
	if !isServerOf(pid, data) {
		if isAlive(pid) {
			return nil, os.Remove(note)
		}
		return nil, nil
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	s := &server{process: process, ended: make(chan struct{})}
	go func() {
		for isServerOf(pid, data) { // it is not our child: there is nothing to wait on
			time.Sleep(alivePoll)
		}
		s.err = errors.New("it is gone")
		close(s.ended)
	}()
	return s, nil
}

// notedPID reads the first line of postmaster.pid; 0 when there is no such file.
func notedPID(note string) (int, error) {
	file, err := os.Open(note)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Scan()
	pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
	if err != nil || pid <= 0 {
		return 0, nil // cut off by a crash: PostgreSQL says so itself
	}
	return pid, nil
}

func isAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// stop ends the process: in order, then at once, then by force.
func (s *server) stop(ctx context.Context) error {
	for _, step := range []struct {
		signal os.Signal
		within time.Duration
	}{
		{syscall.SIGINT, stopTimeout},  // cut sessions off, checkpoint, end
		{syscall.SIGQUIT, quitTimeout}, // end; recover at the next start
		{syscall.SIGKILL, quitTimeout},
	} {
		err := s.process.Signal(step.signal)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal PostgreSQL (pid %d): %w", s.process.Pid, err)
		}
		asked, cancel := context.WithTimeout(ctx, step.within)
		if step.signal != syscall.SIGINT {
			asked, cancel = context.WithTimeout(context.WithoutCancel(ctx), step.within)
		}
		select {
		case <-s.ended:
			cancel()
			return nil
		case <-asked.Done():
			cancel()
		}
	}
	return fmt.Errorf("PostgreSQL (pid %d) cannot be ended", s.process.Pid)
}
