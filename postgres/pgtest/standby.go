package pgtest

import (
	"bytes"
	"cmp"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// StandbyName is what a Standby is called in synchronous_standby_names.
const StandbyName = "standby"

// Standby is a hot standby of a Crashable, streaming from it. It runs between Start
// and Stop, and goes with its data when the test ends.
type Standby struct {
	t        testing.TB
	dir, bin string
	database string
	cmd      *exec.Cmd
	said     *bytes.Buffer
	ended    chan struct{} // closed when cmd has
	cleaner  *cleaner
}

// Standby makes a standby of the server as it is, with further settings, "name=value",
// and starts it.
func (c *Crashable) Standby(settings ...string) *Standby {
	c.t.Helper()
	s := &Standby{t: c.t, dir: Dir(c.t)}
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL())
	if err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, `SELECT setting FROM pg_config WHERE name = 'BINDIR'`).Scan(&s.bin); err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	from := conn.Config()
	s.database = from.Database
	info, err := os.Stat(from.Host)
	if err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		err = os.Chown(s.dir, int(owner.Uid), int(owner.Gid))
	}
	if err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	said := new(bytes.Buffer)
	backup := s.command(ctx, said, "pg_basebackup", "--pgdata="+s.data(), "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
		"--dbname=host="+from.Host+" port=5432 user="+from.User+" application_name="+StandbyName)
	if err := backup.Run(); err != nil {
		c.t.Fatalf("pgtest: pg_basebackup: %v\n%s", err, said)
	}
	file, err := os.OpenFile(filepath.Join(s.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(strings.Join(append(settings, "wal_receiver_status_interval=1", "wal_retrieve_retry_interval=100"), "\n") + "\n")
		err = cmp.Or(err, file.Close())
	}
	if err != nil {
		c.t.Fatalf("pgtest: %v", err)
	}
	c.t.Cleanup(s.Stop)
	s.Start()
	return s
}

func (s *Standby) data() string { return filepath.Join(s.dir, "data") }

// Behind is the URL of the primary's database with the standby as its second host.
func (s *Standby) Behind(primary string) string {
	u, err := url.Parse(primary)
	if err != nil {
		s.t.Fatal("pgtest: the primary's URL cannot be parsed")
	}
	query := u.Query()
	query.Set("host", query.Get("host")+","+s.dir)
	query.Set("port", query.Get("port")+",5432")
	u.RawQuery = query.Encode()
	return u.String()
}

// Start starts the standby, and returns when it answers.
func (s *Standby) Start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), timeout)
	defer cancel()
	s.said = new(bytes.Buffer)
	s.cmd = s.command(context.WithoutCancel(ctx), s.said, "postgres", "-D", s.data(), "-c", "listen_addresses=", "-c", "port=5432",
		"-c", "unix_socket_directories="+s.dir, "-c", noShmFiles)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	s.ended = make(chan struct{})
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	var err error
	if s.cleaner, err = startCleaner(ctx, s.cmd.Process.Pid, s.dir); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	for {
		conn, err := pgx.Connect(ctx, "host="+s.dir+" port=5432 user=kindred dbname="+s.database)
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		select {
		case <-s.ended:
			s.t.Fatalf("pgtest: the standby ended:\n%s", s.said)
		case <-ctx.Done():
			s.t.Fatalf("pgtest: the standby does not answer: %v\n%s", err, s.said)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the standby. It may be called again.
func (s *Standby) Stop() {
	if s.cleaner == nil {
		return
	}
	_ = s.cleaner.stop()
	_ = s.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended
	<-s.ended
	s.cleaner = nil
}

// command runs a program of the server's as the account that runs the server.
func (s *Standby) command(ctx context.Context, said *bytes.Buffer, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if info, err := os.Stat(s.dir); err == nil {
		if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Geteuid() {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
		}
	}
	return cmd
}

// Await makes commits of the primary wait for the standby from now on, which must
// be running.
func (s *Standby) Await(primary *Crashable) {
	s.t.Helper()
	conn := s.connect(primary)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '` + StandbyName + `'`, `SELECT pg_reload_conf()`} {
		if _, err := conn.Exec(s.t.Context(), sql); err != nil {
			s.t.Fatalf("pgtest: %v", err)
		}
	}
	const synchronous = `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')`
	until(s.t, "the primary waits for the standby", func() (yes bool) {
		return conn.QueryRow(s.t.Context(), synchronous).Scan(&yes) == nil && yes
	})
}

// Needed checks that work does not succeed without the standby, however often it is
// tried and however its wait is broken off, and that it does once the standby is back.
func (s *Standby) Needed(primary *Crashable, work func(context.Context) error) {
	s.t.Helper()
	s.Stop()
	conn := s.connect(primary)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() {
		var err error
		for range 10 {
			if err = work(s.t.Context()); err == nil {
				break
			}
		}
		done <- err
	}()
	since := time.Time{}
	for _, breakOff := range []string{"pg_cancel_backend", "pg_terminate_backend", "pg_cancel_backend", "abs"} {
		until(s.t, "a commit waits for the standby", func() bool {
			select {
			case err := <-done:
				s.t.Fatalf("without the standby it ended: %v", err)
			default:
			}
			return conn.QueryRow(s.t.Context(), `
SELECT query_start FROM pg_stat_activity, LATERAL (SELECT `+breakOff+`(pid)) AS broken_off
WHERE wait_event = 'SyncRep' AND query_start > $1 AND backend_type = 'client backend'`, since).Scan(&since) == nil
		})
	}
	s.Start()
	select {
	case err := <-done:
		if err != nil {
			s.t.Errorf("with the standby: %v", err)
		}
	case <-time.After(timeout):
		s.t.Error("it does not end with the standby back")
	}
}

func (s *Standby) connect(primary *Crashable) *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), primary.URL())
	if err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	return conn
}

// until waits for a condition.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("pgtest: never: %s", what)
		}
	}
}

// CatchUp waits until the standby has what the primary had committed.
func (s *Standby) CatchUp(primary *Crashable) {
	s.t.Helper()
	conn := s.connect(primary)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	var end string
	if err := conn.QueryRow(s.t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	until(s.t, "the standby has caught up", func() (yes bool) {
		const reached = `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= $1::text::pg_lsn)`
		return conn.QueryRow(s.t.Context(), reached, end).Scan(&yes) == nil && yes
	})
}

// Promote makes the standby a primary, which lacks what it has not received.
func (s *Standby) Promote() {
	s.t.Helper()
	until(s.t, "the standby is promoted", func() (done bool) { // replay may call off a query
		conn, err := pgx.Connect(s.t.Context(), "host="+s.dir+" port=5432 user=kindred dbname="+s.database)
		if err != nil {
			return false
		}
		defer conn.Close(context.WithoutCancel(s.t.Context()))
		const promote = `SELECT CASE WHEN pg_is_in_recovery() THEN pg_promote() ELSE true END`
		return conn.QueryRow(s.t.Context(), promote).Scan(&done) == nil && done
	})
}
