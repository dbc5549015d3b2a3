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
		"shared_buffers=" + strconv.FormatUint(sharedBuffers(memory())>>20, 10) + "MB",
		// The defaults count segments, which are short here: a checkpoint every few seconds of
		// an import, and whole pages in the log after each. Segments that were used are used
		// again: that costs less than to make new ones.
		"max_wal_size=2GB",
		"min_wal_size=1GB",
		"wal_buffers=16MB", // by default a segment: a batch of a projection writes more
		// What is to be written is written soon, and little by little: whoever commits
		// while the disk catches up waits for it, a tenth of a second at a time.
		"backend_flush_after=256kB",
		"bgwriter_delay=20ms",
		"bgwriter_lru_maxpages=1000",
		"bgwriter_lru_multiplier=4",
	}, settings...) {
		args = append(args, "-c", setting)
	}
	return args
}

// findSurvivor returns the server of the layout that runs although its owner has gone, or
// nil. Notes of a process that is alive but not that server are disarmed, because
// they would keep a new server from starting; those of a dead process do not.
func findSurvivor(l layout) (*server, error) {
	pid, err := notedPID(l.note())
	if err != nil || pid == 0 {
		return nil, err
	}
	if !isServerOf(pid, l.data()) {
		if isAlive(pid) {
			return nil, errors.Join(disarm(l.note()), disarm(l.socketNote()))
		}
		return nil, nil
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	s := &server{process: process, ended: make(chan struct{})}
	go func() {
		for isServerOf(pid, l.data()) { // it is not our child: there is nothing to wait on
			time.Sleep(alivePoll)
		}
		s.err = errors.New("it is gone")
		close(s.ended)
	}()
	return s, nil
}

// disarm puts our own process id into the note: a server takes the note of its parent
// for a stale one. What else the note says stays, so that the server still finds out, by
// the shared memory named there, about sessions of the one before that go on.
func disarm(note string) error {
	// The directory is another account's, which must not lead us out of it by a link.
	dir, err := os.OpenRoot(filepath.Dir(note))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(note)
	content, err := dir.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := dir.Stat(".")
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	_, rest, _ := strings.Cut(string(content), "\n")
	return errors.Join(
		dir.WriteFile(name+".new", fmt.Appendf(nil, "%d\n%s", os.Getpid(), rest), 0o600),
		dir.Chown(name+".new", int(owner.Uid), int(owner.Gid)),
		dir.Rename(name+".new", name),
	)
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

// stop ends the process: in order, then at once, then by force. The end of ctx
// hurries the first step alone.
func (s *server) stop(ctx context.Context) error {
	hurry := ctx.Done()
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
		select {
		case <-s.ended:
			return nil
		case <-hurry:
		case <-time.After(step.within):
		}
		hurry = nil
	}
	return fmt.Errorf("PostgreSQL (pid %d) cannot be ended", s.process.Pid)
}
