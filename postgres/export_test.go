package postgres

import (
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"kindred/testkit"
)

// MigrateFrom is Migrate with other migrations.
var MigrateFrom = migrate

// StartOrphan starts the server of dir, whose cluster is there, in a way that it
// outlives whoever started it, and returns once it has noted its process id. One in
// disguise is not to be known for what it is.
func StartOrphan(ctx context.Context, t *testing.T, dir string, disguised bool) (pid int) {
	t.Helper()
	l := testkit.Must(place(ctx, dir, slog.New(slog.DiscardHandler)))(t)
	bin := testkit.Must(findBinaries(ctx, l.data()))(t)
	args := serverArgs(l, nil)
	if disguised {
		args = append(args[2:], args[:2]...)
	}
	cmd := exec.Command(filepath.Join(bin.dir, "postgres"), args...)
	l.account.prepare(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() {
		defer close(reaped)
		_ = cmd.Wait() // however it ends
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		<-reaped
	})
	for {
		noted := testkit.Must(notedPID(l.note()))(t)
		if noted == cmd.Process.Pid {
			return noted
		}
		select {
		case <-reaped:
			t.Fatal("the orphan did not start")
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		default:
		}
	}
}
