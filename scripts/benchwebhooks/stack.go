package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/postgres"
)

// patience bounds every wait for something that is bound to happen.
const patience = 2 * time.Minute

// stack is kindred on a database server of its own, which flushes to disk.
type stack struct {
	dir, program string
	talk         bool // let kindred's log be seen

	database *postgres.Local
	pool     *pgxpool.Pool
	kindred  *exec.Cmd
	ended    chan struct{} // closed once kindred has
	url      string        // of kindred
	api      *http.Client
	*receivers
}

func startStack(ctx context.Context, program string, talk bool) (s *stack, err error) {
	dir, err := os.MkdirTemp("/var/tmp", "kindred-bench-") // on disk, where /tmp may not be
	if err != nil {
		return nil, err
	}
	s = &stack{
		dir: dir, program: program, talk: talk, receivers: &receivers{},
		api: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 512}},
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // G302: the server runs under an account of its own
		return nil, errors.Join(err, s.close(ctx))
	}
	if err := s.startDatabase(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	if s.pool, err = postgres.Open(ctx, s.database.URL(), postgres.Options{MaxConns: 2, AppName: "bench"}); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	if err := s.startKindred(ctx, "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *stack) startDatabase(ctx context.Context) (err error) {
	s.database, err = postgres.StartLocal(ctx, filepath.Join(s.dir, "postgres"), slog.New(slog.DiscardHandler))
	return err
}

var servingAt = regexp.MustCompile(`msg=serving address=(\S+)`)

// startKindred starts the program and waits until it serves.
func (s *stack) startKindred(ctx context.Context, listen string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.program, "serve") // close ends it
	cmd.Env = append(os.Environ(),
		"KINDRED_LISTEN="+listen, "KINDRED_DATABASE_URL="+s.database.URL(), "KINDRED_DATA_DIR="+filepath.Join(s.dir, "kindred"),
		"KINDRED_WEBHOOK_ALLOW_NETWORKS=127.0.0.0/8", "KINDRED_RATE_LIMIT=off", "KINDRED_TOKEN_TTL=24h", "KINDRED_PUBLIC_URL=http://kindred.example")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is ours to handle
	logs, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.program, err)
	}
	serving, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			if found := servingAt.FindStringSubmatch(lines.Text()); found != nil {
				serving <- found[1]
			}
			if s.talk {
				fmt.Fprintln(os.Stderr, lines.Text())
			}
		}
		_ = cmd.Wait() // how it ended is told by what goes missing
	}()
	s.kindred, s.ended = cmd, ended
	select {
	case address := <-serving:
		s.url = "http://" + address
		return nil
	case <-ended:
		return errors.New("kindred ended before it served; see -log")
	case <-time.After(patience):
		return errors.New("kindred does not serve")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends kindred as kill -9 does: until its leases have run out nobody leads.
func (s *stack) kill() error { return s.end(os.Kill) }

// stop lets kindred give its leases back, so that another leads at once.
func (s *stack) stop() error { return s.end(syscall.SIGTERM) }

func (s *stack) end(signal os.Signal) error {
	if s.kindred == nil {
		return nil
	}
	if err := s.kindred.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.ended
	s.kindred = nil
	return nil
}

// restart starts kindred again where it was.
func (s *stack) restart(ctx context.Context) error {
	return s.startKindred(ctx, strings.TrimPrefix(s.url, "http://"))
}

// close ends all and leaves nothing behind.
func (s *stack) close(ctx context.Context) error {
	err := s.kill()
	if s.pool != nil {
		s.pool.Close()
	}
	if s.database != nil {
		err = errors.Join(err, s.database.Stop(context.WithoutCancel(ctx)))
	}
	s.receivers.close()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// memory is what kindred's process occupies, in MiB.
func (s *stack) memory() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.kindred.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("the process does not say what it occupies")
}

// metric reads one of kindred's metrics, summed over its labels.
func (s *stack) metric(ctx context.Context, name string) (sum float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := s.api.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(key, "{"); bare != name {
			continue
		}
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		sum += x
	}
	return sum, nil
}

// eventually waits for a condition, for as long as patience lasts.
func eventually(ctx context.Context, what string, holds func() (bool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %s: %s", patience, what)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
