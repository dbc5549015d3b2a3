package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	localName     = "kindred"       // of the database and of its superuser
	localPort     = "5432"          // only part of the socket's file name
	readyTimeout  = 5 * time.Minute // recovery after a crash included
	pollInterval  = 20 * time.Millisecond
	launchRetries = 100
)

// Local is a running private server. It listens on a socket in a directory that
// only its own account may enter, and on no TCP port.
type Local struct {
	url    string
	layout layout
	server *server
	lock   *ownerLock
	log    *slog.Logger

	stop    sync.Once
	stopErr error
	stopped chan struct{} // closed when Stop is called
	done    chan struct{} // closed when the server ended before that
}

// StartLocal starts the private server of dir, or adopts it when it outlived its
// owner, and returns once it answers. A missing cluster is created; an existing one
// is never removed, upgraded or replaced. Settings are further server settings,
// "name=value". The caller owns the directory until [Local.Stop]; if it is killed
// instead, the server ends with it (on Linux) or is adopted by the next StartLocal.
//
// It fails with [ErrInUse] when another process owns dir, and with an error that
// says what to install when there is no PostgreSQL of the right version.
func StartLocal(ctx context.Context, dir string, log *slog.Logger, settings ...string) (*Local, error) {
	where, err := place(ctx, dir, log)
	if err != nil {
		return nil, fmt.Errorf("local PostgreSQL: %w", err)
	}
	lock, err := lockOwner(where.dir)
	if err != nil {
		return nil, fmt.Errorf("local PostgreSQL: %w", err)
	}
	l := &Local{
		layout:  where,
		lock:    lock,
		log:     log,
		stopped: make(chan struct{}),
		done:    make(chan struct{}),
	}
	if err := l.start(ctx, settings); err != nil {
		return nil, errors.Join(fmt.Errorf("local PostgreSQL: %w", err), lock.release())
	}
	go l.watch()
	if durable(settings) {
		go writeBack(filepath.Join(l.layout.data(), "base"), l.server.ended)
	}
	return l, nil
}

// LocalExists says whether there is a private server of dir, running or not. It
// makes nothing.
func LocalExists(dir string) (bool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	there, err := clusterIn(dir)
	if err != nil || there {
		return there, err
	}
	return clusterIn(standIn(dir))
}

// LocalURL is the connection URL of the private server of dir that another process
// runs, for tools beside it.
func LocalURL(ctx context.Context, dir string, log *slog.Logger) (string, error) {
	where, err := place(ctx, dir, log)
	if err != nil {
		return "", fmt.Errorf("local PostgreSQL: %w", err)
	}
	return socketURL(where.socketDir, localName), nil
}

// URL is the connection URL of the server's database, for a superuser without a password.
func (l *Local) URL() string { return l.url }

// PID is the process id of the server.
func (l *Local) PID() int { return l.server.process.Pid }

// Announce records where the owner serves, for a second start to name when it refuses.
func (l *Local) Announce(address string) error { return l.lock.write(address) }

// Done is closed when the server ends without [Local.Stop] having been called.
func (l *Local) Done() <-chan struct{} { return l.done }

// Err says how the server ended by itself. It is nil until Done is closed.
func (l *Local) Err() error {
	select {
	case <-l.done:
		return fmt.Errorf("the local PostgreSQL (pid %d) ended by itself: %w; its log is %s",
			l.PID(), l.server.err, l.layout.logFile())
	default:
		return nil
	}
}

// Stop ends the server in order and gives the directory free. Sessions are cut off
// and a checkpoint is written; after 30 s, or when ctx ends, the server is made to
// quit without one and recovers at its next start. Stop may be called repeatedly.
func (l *Local) Stop(ctx context.Context) error {
	l.stop.Do(func() {
		close(l.stopped)
		l.stopErr = errors.Join(l.server.stop(ctx), l.layout.removeSocket(), l.lock.release())
	})
	return l.stopErr
}

func durable(settings []string) bool { return !slices.Contains(settings, "fsync=off") }

func (l *Local) watch() {
	<-l.server.ended
	select {
	case <-l.stopped:
	default:
		close(l.done)
	}
}

// start leaves a server that answers in l.server.
func (l *Local) start(ctx context.Context, settings []string) error {
	bin, err := findBinaries(ctx, l.layout.data())
	if err != nil {
		return err
	}
	if err := ensureCluster(ctx, l.layout, bin, durable(settings)); err != nil {
		return err
	}
	if err := l.layout.makeSocketDir(); err != nil {
		return err
	}
	l.url = socketURL(l.layout.socketDir, localName)

	adopted, err := l.adopt(ctx)
	if err != nil || adopted {
		return err
	}
	return l.launch(ctx, bin, settings)
}

// adopt takes over a server that outlived its owner. One that was on its way out is
// seen off.
func (l *Local) adopt(ctx context.Context) (bool, error) {
	survivor, err := findSurvivor(l.layout)
	if err != nil || survivor == nil {
		return false, err
	}
	err = l.ready(ctx, survivor)
	switch {
	case err == nil:
		l.server = survivor
		l.log.InfoContext(ctx, "local postgres adopted", "pid", l.PID(), "dir", l.layout.dir)
		return true, nil
	case errors.Is(err, errEnded):
		return false, nil
	default:
		return false, fmt.Errorf("the server that still runs (pid %d): %w", survivor.process.Pid, err)
	}
}

// launch starts a server process of our own. One that still meets the last sessions
// of a killed predecessor gives up at once; those end by themselves, so it is tried again.
func (l *Local) launch(ctx context.Context, bin binaries, settings []string) error {
	logFile, err := openLog(l.layout.logFile())
	if err != nil {
		return err
	}
	defer logFile.Close() // the server has a descriptor of its own

	for retries := launchRetries; ; retries-- {
		server, err := startServer(ctx, l.layout, bin, logFile, settings)
		if err != nil {
			return err
		}
		err = l.ready(ctx, server)
		if err == nil {
			l.server = server
			l.log.InfoContext(ctx, "local postgres started", "pid", l.PID(), "dir", l.layout.dir, "version", bin.version)
			return nil
		}
		tail := logTail(logFile)
		if retries == 0 || !errors.Is(err, errEnded) || !strings.Contains(tail, "pre-existing shared memory block") {
			return errors.Join(fmt.Errorf("%w; the end of %s:\n%s", err, l.layout.logFile(), tail), server.stop(ctx))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * pollInterval):
		}
	}
}

var errEnded = errors.New("the server ended while it was starting")

// ready waits until the server answers, and makes sure that it has our database.
func (l *Local) ready(ctx context.Context, s *server) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := l.askFor(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// askFor makes sure that the server itself answers, by its own note: at the same socket
// there could be another, to which it will yield.
func (l *Local) askFor(ctx context.Context, s *server) error {
	pid, err := notedPID(l.layout.note())
	if err != nil {
		return err
	}
	if pid != s.process.Pid {
		return fmt.Errorf("%s is not yet of process %d", l.layout.note(), s.process.Pid)
	}
	return createDatabase(ctx, l.layout.socketDir)
}

func createDatabase(ctx context.Context, socketDir string) error {
	conn, err := Connect(ctx, socketURL(socketDir, "postgres"), "kindred start")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, localName).Scan(&exists)
	if err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{localName}.Sanitize())
	return err
}

func socketURL(dir, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(localName), Path: "/" + database}
	query := url.Values{"host": {dir}, "port": {localPort}}.Encode()
	u.RawQuery = strings.ReplaceAll(query, "+", "%20") // pgx reads a plus as itself
	return u.String()
}
