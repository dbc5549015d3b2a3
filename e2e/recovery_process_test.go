package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"kindred/app"
	"kindred/httpapi/httpapitest"
	"kindred/testkit"
)

// asKindred makes this very binary, race detector and all, be the program.
const asKindred = "KINDRED_TEST_AS_KINDRED"

// process is a kindred that can be killed, and started again: one process
// after the other, all at one address.
type process struct {
	*service
	program string
	cmd     *exec.Cmd
	ended   chan struct{} // closed once cmd has
	started int           // how much was logged before
}

// newProcess configures a process as startService does a service, and starts
// nothing. Its database is the one that changes name, or a private one.
func newProcess(t testing.TB, changes ...func(*app.Config)) *process {
	t.Helper()
	config := testConfig(t)
	for _, change := range changes {
		change(&config)
	}
	s := &service{TB: t, Config: config, Logs: new(logBuffer), base: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute}}
	s.client = httpapitest.Client(t, s.base)
	s.client.Timeout = patience
	p := &process{service: s, program: os.Args[0]}
	t.Cleanup(func() {
		p.kill()
		s.base.CloseIdleConnections()
		if _, race, found := strings.Cut(s.Logs.String(), "WARNING: DATA RACE"); found {
			t.Errorf("a race in the service:\n%.5000s", race)
		}
	})
	return p
}

// startProcess is newProcess, and waits until it serves.
func startProcess(t testing.TB, changes ...func(*app.Config)) *process {
	t.Helper()
	p := newProcess(t, changes...)
	p.start()
	p.serving()
	return p
}

// start starts a process without waiting for anything.
func (p *process) start() {
	p.Helper()
	p.started = len(p.Logs.String())
	p.cmd = exec.Command(p.program, "serve")
	p.cmd.Env = append(os.Environ(), asKindred+"=1",
		"KINDRED_LISTEN="+p.Config.Listen, "KINDRED_PUBLIC_URL="+p.Config.PublicURL,
		"KINDRED_DATABASE_URL="+p.Config.DatabaseURL, "KINDRED_EVENTSTORE_URL="+p.Config.EventStoreURL,
		"KINDRED_DATA_DIR="+p.Config.DataDir, "KINDRED_EPOCH_DIR="+p.Config.EpochDir, "KINDRED_MASTER_KEY="+p.Config.MasterKey,
		"KINDRED_WEBHOOK_RETRY_DELAYS="+separated(p.Config.RetryDelays),
		"KINDRED_WEBHOOK_TIMEOUT="+p.Config.WebhookTimeout.String(),
		"KINDRED_WEBHOOK_ALLOW_NETWORKS="+separated(p.Config.AllowNetworks),
		"KINDRED_RATE_LIMIT=off",
	)
	p.cmd.Stdout, p.cmd.Stderr = p.Logs, p.Logs
	if _, err := p.cmd.StdinPipe(); err != nil {
		p.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its state tells
	}()
}

func separated[T fmt.Stringer](list []T) string {
	var texts []string
	for _, item := range list {
		texts = append(texts, item.String())
	}
	return strings.Join(texts, ",")
}

var servingAt = regexp.MustCompile(`msg=serving address=(\S+)`)

// serving waits until the process serves. From then on its address is fixed.
func (p *process) serving() {
	p.Helper()
	testkit.Eventually(p, "the process serves", func() bool {
		select {
		case <-p.ended:
			p.Fatalf("it ended instead: %s\n%s", p.cmd.ProcessState, p.said())
		default:
		}
		found := servingAt.FindStringSubmatch(p.said())
		if found == nil {
			return false
		}
		if p.URL == "" {
			p.Config.Listen, p.URL = found[1], "http://"+found[1]
			p.Config.PublicURL = cmp.Or(p.Config.PublicURL, p.URL)
		}
		return true
	})
}

// said is what was logged since the last start.
func (p *process) said() string { return p.Logs.String()[p.started:] }

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	p.wait()
}

// stop ends the process in order.
func (p *process) stop() {
	p.Helper()
	p.base.CloseIdleConnections()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Error(err)
	}
	if state := p.wait(); !state.Success() {
		p.Errorf("it ended with %s:\n%s", state, p.said())
	}
}

// wait waits until the process has ended.
func (p *process) wait() *os.ProcessState {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("process %d does not end:\n%s", p.cmd.Process.Pid, p.said())
	}
	return p.cmd.ProcessState
}
