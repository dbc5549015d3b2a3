package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	envPooled   = "KINDRED_TEST_POOLED" // not empty: each database of URL is behind PgBouncer
	poolerPort  = "6432"                // only part of the socket's file name
	poolerConns = 300                   // of one database; by default 20, and one kindred keeps more
	poolerIdle  = 10                    // seconds; by default 600, and the server has 400 connections for all databases
)

// sharedPooler is the socket directory of the PgBouncer of this test binary.
var sharedPooler = sync.OnceValues(func() (string, error) {
	server, err := sharedServer()
	if err != nil {
		return "", err
	}
	return startPooler(context.Background(), server, "session")
})

// Pooled is URL through PgBouncer in session mode, as Debian configures it.
func Pooled(t testing.TB) string {
	t.Helper()
	return through(t, direct(t), sharedPooler)
}

// PooledByTransaction is a database through a PgBouncer of its own that lends sessions by the transaction.
func PooledByTransaction(t testing.TB, database string) string {
	t.Helper()
	return through(t, database, func() (string, error) { return startPooler(t.Context(), database, "transaction") })
}

// through is the URL of a database behind the pooler that start starts.
func through(t testing.TB, database string, start func() (string, error)) string {
	t.Helper()
	socket, err := start()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal("pgtest: the server's URL cannot be parsed")
	}
	u.Host, u.RawQuery = "", url.Values{"host": {socket}, "port": {poolerPort}}.Encode()
	return u.String()
}

// startPooler starts PgBouncer before a server on a socket, as the account that
// runs the server. It ends with this process.
func startPooler(ctx context.Context, server, mode string) (string, error) {
	program, err := findPooler()
	if err != nil {
		return "", err
	}
	config, err := pgx.ParseConfig(server)
	if err != nil {
		return "", errors.New("the server's URL cannot be parsed")
	}
	info, err := os.Stat(config.Host)
	if err != nil {
		return "", fmt.Errorf("PgBouncer needs a server that listens on a socket: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	dir, err := makeDir(os.TempDir())
	if err != nil {
		return "", err
	}
	settings := fmt.Sprintf(`[databases]
* = host=%[1]s port=%[2]d user=%[3]s
[pgbouncer]
listen_addr =
listen_port = %[5]s
unix_socket_dir = %[4]s
auth_type = any
pool_mode = %[8]s
default_pool_size = %[6]d
server_idle_timeout = %[7]d
max_client_conn = 1000
logfile = %[4]s/log
`, config.Host, config.Port, config.User, dir, poolerPort, poolerConns, poolerIdle, mode)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := errors.Join(os.WriteFile(file, []byte(settings), 0o644), os.Chown(dir, int(owner.Uid), int(owner.Gid))); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "--quiet", file)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if int(owner.Uid) != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if _, err := startCleaner(ctx, cmd.Process.Pid, dir); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.Now().Add(timeout); ; {
		if _, err := os.Stat(filepath.Join(dir, ".s.PGSQL."+poolerPort)); err == nil {
			return dir, nil
		}
		select {
		case err := <-ended:
			return "", fmt.Errorf("PgBouncer ended: %w: %s", err, said.Bytes())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			return "", errors.New("PgBouncer does not listen")
		}
	}
}

func findPooler() (string, error) {
	if found, err := exec.LookPath("pgbouncer"); err == nil {
		return found, nil
	}
	const debian = "/usr/sbin/pgbouncer" // which is in the path of root alone
	if _, err := os.Stat(debian); err != nil {
		return "", errors.New("PgBouncer is not installed: run scripts/install-pgbouncer")
	}
	return debian, nil
}
