package esdbtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kindred/eventstore/esdbstore/esdbtest"
)

// asProgram makes a process of these tests be a program that serves: it says
// every line again, and notes in its directory that it was started.
const asProgram = "KINDRED_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	if err := echo(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func echo(dir, port string) error {
	note, err := os.OpenFile(filepath.Join(dir, "starts"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if _, err := note.WriteString("started,"); err != nil {
		return err
	}
	starts, err := os.ReadFile(note.Name())
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			fmt.Fprintf(c, "%s\n", starts)
			_, _ = io.Copy(c, c)
		}()
	}
}

// caller speaks with the program.
type caller struct {
	net.Conn
	lines *bufio.Reader
}

func call(ctx context.Context, url string) (caller, string, error) {
	address := strings.TrimSuffix(strings.TrimPrefix(url, "esdb://"), "?tls=false")
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return caller{}, "", err
	}
	c := caller{conn, bufio.NewReader(conn)}
	greeting, err := c.lines.ReadString('\n')
	if err != nil {
		return c, "", errors.Join(err, c.Close())
	}
	return c, strings.TrimSpace(greeting), nil
}

func (c caller) says(text string, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, text); err != nil {
		return err
	}
	if answer, err := c.lines.ReadString('\n'); err != nil || answer != text+"\n" {
		return fmt.Errorf("%q was answered: %w", answer, err)
	}
	return nil
}

func TestAProgramIsCutOffSilencedKilledAndStartedAgain(t *testing.T) {
	p := esdbtest.StartProcess(t, "env "+asProgram+"=1 "+os.Args[0], func(ctx context.Context, url string) error {
		c, _, err := call(ctx, url)
		if err != nil {
			return err
		}
		return c.Close()
	})
	reached := func(starts string) caller {
		t.Helper()
		c, greeting, err := call(t.Context(), p.URL())
		if err != nil || greeting != starts {
			t.Fatalf("it says %q, %v, want %q", greeting, err, starts)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.says("hello", time.Minute); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := reached("started,")
	p.Cut()
	if err := c.says("cut", time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("over a line that was cut: %v", err)
	}
	c = reached("started,")
	p.Pause()
	for tries := 1; ; tries++ { // it may still answer what comes at once
		err := c.says("silent", 50*time.Millisecond)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil || tries == 100 {
			t.Fatalf("from a server that is silent: %v", err)
		}
	}
	p.Resume()
	c = reached("started,")
	p.Kill()
	if err := c.says("dead", time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("from a server that is dead: %v", err)
	}
	if _, _, err := call(t.Context(), p.URL()); err == nil {
		t.Error("a dead server was reached")
	}
	p.Return(t)
	reached("started,started,")
}
