package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// pipes listens to the connections that are sent to it, until it is closed.
type pipes struct {
	net.Listener
	conns chan net.Conn
	close func()
}

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	p.close()
	return nil
}

func (pipes) Addr() net.Addr { return new(net.TCPAddr) }

func TestWhoIsNotDoneInTimeIsCutOffInAnOrderlyStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, served := net.Pipe()
		conns := make(chan net.Conn, 1)
		conns <- served
		var log bytes.Buffer
		f := &foundation{logger: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		long := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			stop()
			<-r.Context().Done()
		})
		ended := make(chan error, 1)
		go func() {
			ended <- f.serveHTTP(ctx, t.Context(), pipes{conns: conns, close: sync.OnceFunc(func() { close(conns) })}, long)
		}()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings: %s", n, &log)
		}
		synctest.Wait() // the handler has seen it
	})
}
