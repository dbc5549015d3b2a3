package esdbtest

import (
	"bytes"
	"context"
	crypto "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"kindred/eventstore/esdbstore"
)

// Node is a server of one node, which is played or a process of its own.
type Node interface {
	URL() string
	// Cut breaks all connections of this moment.
	Cut()
	// Restart kills the server without warning, starts it again on what it left,
	// and returns once it is ready.
	Restart(t testing.TB)
}

var _, _ Node = (*Server)(nil), (*Process)(nil)

// StartNode starts the program that KINDRED_TEST_ESDB_SERVER names, or plays a
// server. It ends with the test.
func StartNode(t testing.TB) Node {
	t.Helper()
	command := os.Getenv(EnvServer)
	if command == "" {
		return Start(t)
	}
	return StartProcess(t, command, func(ctx context.Context, url string) error {
		s, err := esdbstore.Open(ctx, url, esdbstore.Options{Entropy: crypto.Reader}) //nolint:forbidigo // a test says where it comes from
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// EnvServer names a program that serves as EventStoreDB does: a line for the
// shell, to which a directory and a port of this machine are added. It serves
// in the foreground, without TLS, and keeps in the directory what outlives it.
// The port 1000 below is free, too.
const EnvServer = "KINDRED_TEST_ESDB_SERVER"

const (
	startPatience = 3 * time.Minute // until a server that was started answers
	lowestPort    = 13_000
	highestPort   = 31_999 // below those that outgoing connections take
	keptOutput    = 32 << 10
)

// Process is a server of one node in a process of its own, behind a line that
// can be cut. It ends with the test, and with the test's process.
type Process struct {
	command string
	dir     string
	port    int
	line    *listener
	ready   func(ctx context.Context, url string) error

	server, guard *exec.Cmd
	held          io.Closer     // by us; the guard waits for its end
	ended         chan struct{} // closed once the server has
	said          output
}

// StartProcess starts the program on a directory that is new, and returns once
// ready finds it so.
func StartProcess(t testing.TB, command string, ready func(ctx context.Context, url string) error) *Process {
	t.Helper()
	p := &Process{command: command, dir: filepath.Join(t.TempDir(), "log"), ready: ready, port: freePort(t)}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.line = &listener{Listener: inner, open: map[net.Conn]bool{}}
	var forwarding sync.WaitGroup
	forwarding.Go(func() { p.line.forward("127.0.0.1:" + strconv.Itoa(p.port)) })
	t.Cleanup(func() {
		p.Kill()
		_ = inner.Close() // ends the forwarding
		p.line.cut()
		forwarding.Wait()
		if t.Failed() {
			t.Logf("the end of what the server at port %d said:\n%s", p.port, p.said.text())
		}
	})
	p.Return(t)
	return p
}

// URL is the connection string of the line.
func (p *Process) URL() string { return "esdb://" + p.line.Addr().String() + "?tls=false" }

// Cut breaks all connections of this moment.
func (p *Process) Cut() { p.line.cut() }

// Pause leaves the server as it is, silent, until Resume.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	if p.server != nil {
		_ = syscall.Kill(-p.server.Process.Pid, s) // fails only where it has ended
	}
}

// Kill ends the server as kill -9 does, with all that it has started, and
// returns when it has ended.
func (p *Process) Kill() {
	if p.server == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.ended
	_ = p.guard.Process.Kill() // before it acts by itself
	_ = p.held.Close()
	_ = p.guard.Wait()
	p.server = nil
}

// Restart implements [Node].
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.Kill()
	p.Return(t)
}

// Return starts the server on what it left, and returns once it is ready.
func (p *Process) Return(t testing.TB) {
	t.Helper()
	began := time.Now() //nolint:forbidigo // how long a start takes is for whoever reads the test's log
	if err := p.start(); err != nil {
		t.Fatalf("start %s: %v", p.command, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startPatience)
	defer cancel()
	for {
		err := p.ready(ctx, p.URL())
		if err == nil {
			t.Logf("the server at port %d was ready after %s", p.port, time.Since(began).Round(time.Millisecond))
			return
		}
		select {
		case <-p.ended:
			t.Fatalf("%s %s %d ended: %s\n%s", p.command, p.dir, p.port, p.server.ProcessState, p.said.text())
		case <-ctx.Done():
			t.Fatalf("%s %s %d is not ready: %v\n%s", p.command, p.dir, p.port, err, p.said.text())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Process) start() error {
	//nolint:gosec,noctx // the program that whoever runs the tests has named; Kill ends it
	server := exec.Command("/bin/sh", "-c", "exec "+p.command+` "$@"`, "sh", p.dir, strconv.Itoa(p.port))
	server.Stdout, server.Stderr = &p.said, &p.said
	server.WaitDelay = time.Second // for the output of what it leaves behind
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := server.Start(); err != nil {
		return err
	}
	// Whatever ends the test's process, nobody holds the other end any more.
	//nolint:gosec,noctx // a process id; Kill ends it
	guard := exec.Command("/bin/sh", "-c", `read -r _; kill -9 -- "-$1"`, "sh", strconv.Itoa(server.Process.Pid))
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	held, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		_ = syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		_ = server.Wait()
		return fmt.Errorf("guard it: %w", err)
	}
	ended := make(chan struct{})
	p.server, p.guard, p.held, p.ended = server, guard, held, ended
	go func() {
		defer close(ended)
		_ = server.Wait() // its state tells
	}()
	return nil
}

// forward takes connections, and makes one to the address for each, until the
// listener is closed.
func (l *listener) forward(address string) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer near.Close()
			far, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
			if err != nil {
				return
			}
			defer far.Close()
			all.Go(func() {
				_, _ = io.Copy(near, far) // however it ends, the other end learns of it
				_ = near.Close()
			})
			_, _ = io.Copy(far, near)
		})
	}
}

// handed are the ports that servers of this process have.
var handed sync.Map

func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort) //nolint:forbidigo,gosec // any will do
		if _, taken := handed.LoadOrStore(port, true); !taken && free(port) && free(port-1000) {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func free(port int) bool {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
	return err == nil && l.Close() == nil
}

// output keeps the end of what a program says.
type output struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept.Write(p)
	if over := o.kept.Len() - keptOutput; over > keptOutput {
		o.kept.Next(over)
	}
	return len(p), nil
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.kept.String()
	return text[max(0, len(text)-keptOutput):]
}
