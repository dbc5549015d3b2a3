package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/postgres"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// fixture is where things are measured: a private PostgreSQL, flushing as in
// production, with the servers that were started on it.
type fixture struct {
	o       options
	say     io.Writer
	dir     string
	local   *postgres.Local
	servers []*server
}

// build starts the database on disk. Tear it down in any case.
func build(ctx context.Context, o options, say io.Writer) (*fixture, error) {
	dir, err := os.MkdirTemp("/var/tmp", "kindred-bench-") // on disk where /tmp may not be
	if err != nil {
		return nil, err
	}
	s := &fixture{o: o, say: say, dir: dir}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the database's own account walks through
		return s, err
	}
	// As kindred starts it, with room for the connections of both sides.
	if s.local, err = postgres.StartLocal(ctx, dir, slog.New(slog.DiscardHandler), "max_connections=200"); err != nil {
		return s, err
	}
	return s, s.wearIn(ctx)
}

const fillSegment = `SELECT pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`

// wearIn brings the write-ahead log to where that of a database is that has
// worked for a while: segments that were used are used again. To make them
// costs more than to write what is measured, and every few megabytes at that.
func (s *fixture) wearIn(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.local.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range s.o.segments {
		if _, err := conn.Exec(ctx, fillSegment); err != nil {
			return fmt.Errorf("fill a segment: %w", err)
		}
	}
	return checkpoint(ctx, conn)
}

// rest lets a server's database clean up and write down what it was filled
// with, which is not what is to be measured next.
func (s *fixture) rest(ctx context.Context, of *server) error {
	conn, err := pgx.Connect(ctx, of.database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return err
	}
	return checkpoint(ctx, conn)
}

func checkpoint(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "CHECKPOINT")
	return err
}

func (s *fixture) tearDown(ctx context.Context) error {
	var wrong []error
	for _, server := range slices.Backward(s.servers) {
		wrong = append(wrong, server.stop())
	}
	if s.local != nil {
		wrong = append(wrong, s.local.Stop(ctx))
	}
	return errors.Join(append(wrong, os.RemoveAll(s.dir))...)
}

// database makes a database and returns its URL.
func (s *fixture) database(ctx context.Context, name string) (string, error) {
	at, err := url.Parse(s.local.URL())
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, s.local.URL())
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	at.Path = "/" + name
	return at.String(), nil
}

// server is a process that answers at an address.
type server struct {
	name, addr string
	database   string // URL
	cmd        *exec.Cmd
	ended      chan struct{}
}

func (s *server) PID() int { return s.cmd.Process.Pid }

// kindred starts the binary as an operator would, on a database of its own,
// with nothing but the rate limit turned off.
func (s *fixture) kindred(ctx context.Context, name string) (*server, error) {
	database, err := s.database(ctx, name)
	if err != nil {
		return nil, err
	}
	server, err := s.serve(ctx, name, "KINDRED_DATABASE_URL="+database)
	if server != nil {
		server.database = database
	}
	return server, err
}

// serve starts the binary with a data directory of that name.
func (s *fixture) serve(ctx context.Context, name string, env ...string) (*server, error) {
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	env = append(env, "KINDRED_LISTEN="+addr, "KINDRED_DATA_DIR="+s.dir+"/"+name, "KINDRED_RATE_LIMIT=off", "KINDRED_TOKEN_TTL=24h",
		fmt.Sprintf("KINDRED_MAX_CONNECTIONS=%d", 5*openConnections)) // a quarter of them for one address
	return s.start(ctx, name, addr, exec.CommandContext(context.WithoutCancel(ctx), s.o.kindred, "serve"), env...)
}

// bare starts this very program as the ceiling.
func (s *fixture) bare(ctx context.Context, database string) (*server, error) {
	addr, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return s.start(ctx, "the ceiling", addr, exec.CommandContext(context.WithoutCancel(ctx), own, "ceiling"), envCeilingListen+"="+addr, envCeilingURL+"="+database)
}

// start starts a server and returns once it is ready.
func (s *fixture) start(ctx context.Context, name, addr string, cmd *exec.Cmd, env ...string) (*server, error) {
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KINDRED_") }), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us, who end it in order
	var log *os.File
	if s.o.log != "" {
		var err error
		if log, err = os.OpenFile(s.o.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
			return nil, err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	server := &server{name: name, addr: addr, cmd: cmd, ended: make(chan struct{})}
	s.servers = append(s.servers, server)
	go func() {
		_ = cmd.Wait() // that it ended is what counts
		close(server.ended)
	}()
	return server, server.ready(ctx)
}

func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/readyz", nil)
		if err != nil {
			return err
		}
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_ = answer.Body.Close() // there is nothing in it
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended while it started; --log FILE keeps what it says", s.name)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", s.name, ctx.Err())
		case <-tick.C:
		}
	}
}

func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
		return nil
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.ended
		return fmt.Errorf("%s did not stop within %s and was killed", s.name, stopTimeout)
	}
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
