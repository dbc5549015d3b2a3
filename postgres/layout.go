package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	// limit: tools | path of the private Postgres's socket | {maxSocketPath} bytes
	maxSocketPath = 100 // bytes; systems cut socket addresses off at 104 to 108
	// limit: tools | log of the private Postgres | {maxLogSize B}
	maxLogSize  = 1 << 20
	logTailSize = 2 << 10
)

// layout is where a private server keeps its files, and the account that owns them.
//
//	dir/data/          the cluster, once it is complete
//	dir/data.new-PID/  one that is being made
//	dir/socket/        unless that path is too long for a socket
//	dir/owner.lock
//	dir/postgres.log
type layout struct {
	dir       string
	socketDir string
	account   account
}

func (l layout) data() string { return filepath.Join(l.dir, "data") }
func (l layout) note() string { return filepath.Join(l.data(), "postmaster.pid") } // the server's own
func (l layout) socketNote() string {
	return filepath.Join(l.socketDir, ".s.PGSQL."+localPort+".lock")
}
func (l layout) logFile() string { return filepath.Join(l.dir, "postgres.log") }

// standIn is where the server of dir lives that cannot be reached there.
func standIn(dir string) string { return "/var/tmp/kindred-" + shortHash(dir) }

// place decides where the server that belongs to dir lives. That is dir itself,
// unless PostgreSQL has to run as another account, which cannot reach dir. Where a
// cluster was made it stays, whatever dir is open to since: beside it another,
// empty one would be served.
func place(ctx context.Context, dir string, log *slog.Logger) (layout, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // another account may run the server
		return layout{}, err
	}
	l, err := layoutIn(dir)
	if err != nil {
		return l, err
	}
	instead := standIn(dir)
	made, err := clusterIn(dir)
	if err != nil {
		return layout{}, err
	}
	madeInstead, err := clusterIn(instead)
	if err != nil {
		return layout{}, err
	}
	reached := l.account.reaches(ctx, dir)
	switch {
	case ctx.Err() != nil:
		return layout{}, ctx.Err() // the account was not asked
	case reached && (made || !madeInstead):
		return l, nil
	case made:
		return layout{}, fmt.Errorf("%s belongs to the account %s, which cannot reach it: let it walk through the directories above (chmod o+x)",
			l.data(), l.account.name)
	}
	log.WarnContext(ctx, "the account that runs postgres cannot reach the data directory, or could not when the database was made, using another",
		"account", l.account.name, "dir", dir, "instead", instead)
	if err := makeOwned(instead, 0o711, l.account); err != nil {
		return layout{}, err
	}
	return layoutIn(instead)
}

// clusterIn says whether there is a cluster in dir.
func clusterIn(dir string) (bool, error) {
	_, err := os.Stat(layout{dir: dir}.data())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func layoutIn(dir string) (layout, error) {
	l := layout{dir: dir, socketDir: filepath.Join(dir, "socket")}
	if path := l.socketDir + "/.s.PGSQL." + localPort; len(path) > maxSocketPath || strings.ContainsAny(path, `,"\`) {
		l.socketDir = "/tmp/kindred-" + shortHash(dir)
	}
	var err error
	l.account, err = serverAccount(l.data())
	return l, err
}

func (l layout) makeSocketDir() error { return makeOwned(l.socketDir, 0o700, l.account) }

// removeSocket removes a socket directory that stands outside of dir.
func (l layout) removeSocket() error {
	if filepath.Dir(l.socketDir) == l.dir {
		return nil
	}
	return os.RemoveAll(l.socketDir)
}

// makeOwned makes dir and gives it to the account. Its name may be guessable and its
// parent open to all, so one that somebody else has put there is refused.
func makeOwned(dir string, mode fs.FileMode, owner account) error {
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	uid := int(info.Sys().(*syscall.Stat_t).Uid)
	if !info.IsDir() || info.Mode().Perm()&0o022 != 0 || uid != os.Geteuid() && uid != owner.uid {
		return fmt.Errorf("%s belongs to somebody else; remove it", dir)
	}
	return os.Lchown(dir, owner.uid, owner.gid)
}

// shortHash names a directory that stands in for one whose own path cannot be used.
func shortHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6])
}

// openLog opens the server's log for appending. One that has grown large is set aside
// first, in place of the one before it.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
}

// logTail returns the end of the server's log, or nothing.
func logTail(file *os.File) string {
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	tail := make([]byte, min(info.Size(), logTailSize))
	n, _ := file.ReadAt(tail, info.Size()-int64(len(tail))) // what could be read is of use
	return strings.TrimSpace(string(tail[:n]))
}
