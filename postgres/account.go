package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is what the server runs as: PostgreSQL refuses to run as root.
type account struct {
	name     string
	uid, gid int
}

// serverAccount returns the account that owns the cluster in data; where there is
// none yet, our own or, for root, one of lesser power.
func serverAccount(data string) (account, error) {
	self := account{name: strconv.Itoa(os.Geteuid()), uid: os.Geteuid(), gid: os.Getegid()}
	info, err := os.Stat(data)
	if err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		a := account{name: strconv.Itoa(int(owner.Uid)), uid: int(owner.Uid), gid: int(owner.Gid)}
		if a.uid == 0 || self.uid != 0 && self.uid != a.uid {
			return account{}, fmt.Errorf("%s belongs to uid %d, and we are uid %d", data, a.uid, self.uid)
		}
		return a, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return account{}, err
	}
	if self.uid != 0 {
		return self, nil
	}
	for _, name := range []string{os.Getenv("SUDO_USER"), "postgres", "nobody"} {
		if a, ok := lookUp(name); ok && a.uid != 0 {
			return a, nil
		}
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no account postgres or nobody to run it as")
}

func lookUp(name string) (account, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, false
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	return account{name, uid, gid}, errUID == nil && errGID == nil
}

// reaches reports whether the account can walk to dir, by trying.
func (a account) reaches(ctx context.Context, dir string) bool {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `cd "$1"`, "sh", dir)
	a.prepare(cmd)
	return cmd.Run() == nil
}

// prepare lets the command run as the account, with nothing of our own environment
// (which may hold keys) nor our working directory (which may be closed to it).
func (a account) prepare(cmd *exec.Cmd) {
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	if path, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+path)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, not for it
	if a.uid != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)} //nolint:gosec // ids have 32 bits
	}
}
