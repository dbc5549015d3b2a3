package pgtest

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kindred/postgres"
)

// EnvURL names the variable that holds the URL of the run's server.
const EnvURL = "KINDRED_TEST_DATABASE_URL"

// The server and the template are made once in a test binary, whichever test is first.
var (
	sharedServer = sync.OnceValues(func() (string, error) {
		if url := os.Getenv(EnvURL); url != "" {
			return url, nil
		}
		server, err := StartServer(context.Background())
		if err != nil {
			return "", err
		}
		return server.URL(), nil
	})
	sharedTemplate = sync.OnceValues(func() (string, error) {
		server, err := sharedServer()
		if err != nil {
			return "", err
		}
		return makeTemplate(context.Background(), server)
	})
)

// noShmFiles keeps even a killed server from leaving anything outside of its directory.
const noShmFiles = "dynamic_shared_memory_type=mmap"

// Server is a private server whose data is worth nothing: in memory where there is
// room, never flushed to disk.
type Server struct {
	*postgres.Local
	dir     string
	cleaner *cleaner
}

// StartServer starts a server for tests, with settings of its own beside those of all.
// When the process ends without having called Stop, however it ends, the server is ended and
// its directory removed.
func StartServer(ctx context.Context, settings ...string) (*Server, error) {
	dir, err := makeDir(roomiest())
	if err != nil {
		return nil, err
	}
	local, err := postgres.StartLocal(ctx, dir, slog.New(slog.DiscardHandler), append([]string{
		noShmFiles, "fsync=off", "synchronous_commit=off", "full_page_writes=off",
		"wal_level=minimal", "max_wal_senders=0", "max_wal_size=256MB", "min_wal_size=80MB", "shared_buffers=128MB",
		"max_connections=400", "autovacuum_naptime=10min",
	}, settings...)...)
	if err != nil {
		os.RemoveAll(dir) // what matters is the error above
		return nil, err
	}
	s := &Server{Local: local, dir: dir}
	if s.cleaner, err = startCleaner(ctx, s.PID(), s.dir); err != nil {
		return nil, errors.Join(err, local.Stop(ctx), os.RemoveAll(dir))
	}
	return s, nil
}

// Stop ends the server and removes its data.
func (s *Server) Stop(ctx context.Context) error {
	err := s.cleaner.stop() // its work is done here
	return errors.Join(err, s.Local.Stop(ctx), os.RemoveAll(s.dir))
}

// roomiest returns the directory that test data is best kept in: memory, unless it
// is as small as containers have it by default.
func roomiest() string {
	const enough = 1 << 30
	var memory unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &memory); err == nil && memory.Bavail*uint64(memory.Bsize) >= enough {
		return "/dev/shm"
	}
	return os.TempDir()
}

// Dir returns a directory for a private server of one test, in memory where there is
// room. Every account can walk to it; it goes with the test.
func Dir(t testing.TB) string {
	t.Helper()
	return dirIn(t, roomiest())
}

// DiskDir is Dir on a disk, which /tmp may not be.
func DiskDir(t testing.TB) string {
	t.Helper()
	return dirIn(t, "/var/tmp")
}

func dirIn(t testing.TB, parent string) string {
	t.Helper()
	dir, err := makeDir(parent)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// makeDir makes a directory that every account can walk through: the server may run
// as another one.
func makeDir(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "kindred-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// cleaner waits for the end of this process, then ends another and removes its
// directory.
type cleaner struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the cleaner has ended
}

// startCleaner starts a process that waits for our end (its standard input closes,
// which not even kill -9 prevents), then ends process pid, unless that is 0, and removes its directory.
func startCleaner(ctx context.Context, pid int, dir string) (*cleaner, error) {
	const script = `cat; [ "$1" = 0 ] || kill -QUIT "$1"; n=0
		while [ "$1" != 0 ] && kill -0 "$1" && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; rm -rf "$2"`
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", script, "sh", strconv.Itoa(pid), dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &cleaner{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // killed by stop; it also keeps our end of the pipe
		close(c.ended)
	}()
	return c, nil
}

// stop calls the cleaner off.
func (c *cleaner) stop() error {
	err := c.cmd.Process.Kill()
	<-c.ended
	return err
}
