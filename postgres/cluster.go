package postgres

import (
	"bytes"
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
)

// ensureCluster makes the cluster of the layout when there is none. It is made under
// another name and renamed when it is complete, so a crash leaves no half of one.
func ensureCluster(ctx context.Context, l layout, bin binaries, durable bool) error {
	if _, err := os.Stat(l.data()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := removeHalves(l.dir); err != nil {
		return err
	}
	made := filepath.Join(l.dir, halfPrefix+strconv.Itoa(os.Getpid()))
	if err := makeOwned(made, 0o700, l.account); err != nil {
		return err
	}
	if err := initdb(ctx, l.account, bin, made, durable); err != nil {
		return errors.Join(err, os.RemoveAll(made))
	}
	if err := os.Rename(made, l.data()); err != nil {
		return err
	}
	return SyncDir(l.dir)
}

const halfPrefix = "data.new-"

// removeHalves removes what starts that were killed have left.
func removeHalves(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), halfPrefix) {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func initdb(ctx context.Context, runAs account, bin binaries, dir string, durable bool) error {
	locale := "C.UTF-8"
	if runtime.GOOS != "linux" {
		locale = "C" // the one that every system has
	}
	args := []string{
		"-D", dir, "-U", localName, "-E", "UTF8", "--locale=" + locale, "--data-checksums",
		"--auth-local=trust", "--auth-host=reject",
		// A new segment of the write-ahead log is filled with zeros while commits wait. Those
		// that can be used again are renamed by a checkpoint, while commits wait as well.
		"--wal-segsize=4", // MiB
	}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin.dir, "initdb"), args...)
	runAs.prepare(cmd)
	dieWithUs(cmd.SysProcAttr, syscall.SIGKILL)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out

	result := make(chan error)
	go func() {
		runtime.LockOSThread() // see startServer
		result <- cmd.Run()
	}()
	if err := <-result; err != nil {
		return fmt.Errorf("%s as %s: %w\n%s", cmd.Path, runAs.name, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// SyncDir makes durable which files a directory holds.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
