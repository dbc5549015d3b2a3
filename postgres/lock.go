package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrInUse says that another process owns a private server's directory.
var ErrInUse = errors.New("the data directory is in use")

// ownerLock is held by the process that owns a directory, for as long as it lives:
// the kernel gives it back whatever way the process ends.
type ownerLock struct{ file *os.File }

func lockOwner(dir string) (*ownerLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, "owner.lock"), os.O_CREATE|os.O_RDWR, 0o644) //nolint:gosec // a process that it refuses reads it
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		owner, _ := os.ReadFile(file.Name()) // without it the message is only shorter
		err = fmt.Errorf("%w: %s is owned by another kindred (%s)", ErrInUse, dir, strings.TrimSpace(string(owner)))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	lock := &ownerLock{file}
	if err := lock.write("starting"); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return lock, nil
}

// write leaves word of which process this is and where it can be reached.
func (o *ownerLock) write(address string) error {
	if err := o.file.Truncate(0); err != nil {
		return err
	}
	_, err := o.file.WriteAt(fmt.Appendf(nil, "pid %d, %s\n", os.Getpid(), address), 0)
	return err
}

func (o *ownerLock) release() error { return o.file.Close() }
