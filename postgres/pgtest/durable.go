package pgtest

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/postgres"
)

// Crashable is a server of one test, with the settings of production, which the test
// may kill. Its database is migrated.
type Crashable struct {
	t     testing.TB
	dir   string
	local *postgres.Local
	data  string // the server's directory, once a copy of it was kept
}

// Durable starts such a server. It goes with its data when the test ends. Its files
// are in memory where there is room: what a killed process has handed to the system is
// not lost, on disk or not.
func Durable(t testing.TB) *Crashable {
	t.Helper()
	return durable(t, Dir(t))
}

// OnDisk is Durable on a disk, which flushing waits for: for measurements.
func OnDisk(b *testing.B) *Crashable {
	b.Helper()
	return durable(b, DiskDir(b))
}

func durable(t testing.TB, dir string) *Crashable {
	t.Helper()
	made, err := sharedCluster()
	if err != nil {
		t.Fatalf("pgtest: make a server to copy: %v", err)
	}
	c := &Crashable{t: t, dir: dir}
	t.Cleanup(c.stop) // runs first
	c.copy(made+"/.", c.dir)
	c.start()
	return c
}

// sharedCluster is the directory of a server that this test binary has made, migrated
// and stopped: a copy of it needs neither initdb nor migrations.
var sharedCluster = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	dir, err := makeDir(roomiest())
	if err != nil {
		return "", err
	}
	if _, err := startCleaner(ctx, 0, dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	local, err := postgres.StartLocal(ctx, dir, slog.New(slog.DiscardHandler), noShmFiles)
	if err != nil {
		return "", err
	}
	err = postgres.Migrate(ctx, local.URL())
	return dir, errors.Join(err, local.Stop(ctx))
})

// URL is the URL of the database. It stays the same across restarts.
func (c *Crashable) URL() string { return c.local.URL() }

// Another is the URL of a further database of the server, a copy of the first as that
// is, which nobody may be connected to meanwhile. It goes with the test: each would
// make every recovery longer.
func (c *Crashable) Another(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal("pgtest: the server's URL cannot be parsed")
	}
	return clone(t, withDatabase(c.URL(), "postgres"), strings.TrimPrefix(u.Path, "/"), "file_copy")
}

// Kill ends the server and its sessions as kill -9 does, and returns when it has ended.
func (c *Crashable) Kill() {
	c.t.Helper()
	victims, err := c.processes()
	if err != nil {
		c.t.Fatalf("pgtest: list the sessions: %v", err)
	}
	for _, pid := range append([]int{c.local.PID()}, victims...) { // the server first: it would replace the others
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			c.t.Fatalf("pgtest: kill the server: %v", err)
		}
	}
	select {
	case <-c.local.Done():
	case <-time.After(timeout):
		c.t.Fatal("pgtest: the killed server did not end")
	}
}

// Restart starts the server again, in order if it still runs, and returns when it has
// recovered.
func (c *Crashable) Restart() {
	c.t.Helper()
	c.stop()
	c.start()
}

// Keep keeps a copy of what the server holds on disk, as a standby that lags or a
// volume's snapshot does, for Lose. It kills the server, and starts it again.
func (c *Crashable) Keep() {
	c.t.Helper()
	c.data = c.flush()
	c.Kill()
	c.copy(c.data, c.data+".kept")
	c.Restart()
}

// Lose kills the server and starts the copy that was kept in its place, without
// what was committed since.
func (c *Crashable) Lose() {
	c.t.Helper()
	c.Kill()
	if err := os.RemoveAll(c.data); err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	c.copy(c.data+".kept", c.data)
	c.Restart()
}

func (c *Crashable) copy(from, to string) {
	c.t.Helper()
	if said, err := exec.CommandContext(c.t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		c.t.Fatalf("pgtest: copy the server's files: %v: %s", err, said)
	}
}

// flush brings to the disk also what did not wait for it, and says where that is.
func (c *Crashable) flush() (dir string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `CHECKPOINT`); err != nil {
		c.t.Fatalf("pgtest: bring what is committed to the disk: %v", err)
	}
	if err := conn.QueryRow(ctx, `SHOW data_directory`).Scan(&dir); err != nil {
		c.t.Fatalf("pgtest: ask where the server keeps its files: %v", err)
	}
	return dir
}

// processes returns the sessions and the workers, which a killed server leaves to end
// at their leisure.
func (c *Crashable) processes() ([]int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, `SELECT pid FROM pg_stat_activity`) // what it fails with, its rows end with
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

func (c *Crashable) start() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), timeout)
	defer cancel()
	var err error
	if c.local, err = postgres.StartLocal(ctx, c.dir, slog.New(slog.DiscardHandler), noShmFiles); err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
}

func (c *Crashable) stop() {
	c.t.Helper()
	if c.local == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), timeout)
	defer cancel()
	if err := c.local.Stop(ctx); err != nil {
		c.t.Errorf("pgtest: %v", err)
	}
}
