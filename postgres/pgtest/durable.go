package pgtest

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"kindred/postgres"
)

// Crashable is a server of one test, on disk and flushing as in production, which the
// test may kill. Its database is migrated.
type Crashable struct {
	t     testing.TB
	dir   string
	local *postgres.Local
}

// Durable starts such a server. It goes with its data when the test ends.
func Durable(t testing.TB) *Crashable {
	t.Helper()
	dir, err := makeDir("/var/tmp") // on disk where /tmp may not be
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	c := &Crashable{t: t, dir: dir}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Cleanup(c.stop) // runs first
	c.start()
	if err := postgres.Migrate(t.Context(), c.URL()); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return c
}

// URL is the URL of the database. It stays the same across restarts.
func (c *Crashable) URL() string { return c.local.URL() }

// Kill ends the server as kill -9 does, and returns when it has ended.
func (c *Crashable) Kill() {
	c.t.Helper()
	if err := syscall.Kill(c.local.PID(), syscall.SIGKILL); err != nil {
		c.t.Fatalf("pgtest: kill the server: %v", err)
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

func (c *Crashable) start() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.t.Context()), timeout)
	defer cancel()
	var err error
	if c.local, err = postgres.StartLocal(ctx, c.dir, slog.New(slog.DiscardHandler)); err != nil {
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
