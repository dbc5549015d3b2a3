package app

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"kindred/httpapi/pipetest"
)

// What a caller sends on a connection just as it is closed is lost.
func TestWhoAsksAProcessThatStopsIsToldToUseAnotherConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener, c := pipetest.Listen()
		a := &App{Config: Config{MaxConnections: 64}, logger: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() {
			ended <- a.serveHTTP(ctx, t.Context(), listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		}()
		answers := bufio.NewReader(c)
		for _, stops := range []bool{false, true} {
			if stops {
				stop()
				synctest.Wait()
			}
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close() // it is empty
			if answer.Close != stops || answer.StatusCode != http.StatusOK {
				t.Errorf("while it stops (%t): %s, closes: %t", stops, answer.Status, answer.Close)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestWhoIsNotDoneInTimeIsCutOffInAnOrderlyStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener, c := pipetest.Listen()
		var log bytes.Buffer
		a := &App{Config: Config{MaxConnections: 64}, logger: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		long := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			stop()
			<-r.Context().Done()
		})
		ended := make(chan error, 1)
		go func() {
			ended <- a.serveHTTP(ctx, t.Context(), listener, long)
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
