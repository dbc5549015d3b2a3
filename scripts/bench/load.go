package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	connections = 32
	ioTimeout   = 30 * time.Second // until an answer counts as never
)

// workload is what connections send, and the status that must come back.
type workload struct {
	want int
	next func(random *rand.Rand, buf []byte) []byte // appends a whole request
}

// conn speaks as much HTTP/1.1 as is needed, on one connection: the processors
// are shared with those who are measured.
type conn struct {
	net.Conn
	in  *bufio.Reader
	out []byte
}

func dial(ctx context.Context, addr string) (*conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 32<<10)}, nil
}

// answer is what is looked at of an answer.
type answer struct {
	status     int
	retryAfter bool
	closed     bool // by the server, after this answer
	problem    string
}

// do sends a request and reads the answer to its end.
func (c *conn) do(request []byte) (answer, error) {
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return answer{}, err
	}
	if _, err := c.Write(request); err != nil {
		return answer{}, err
	}
	return c.read()
}

func (c *conn) read() (a answer, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return a, fmt.Errorf("not an answer: %q", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, fmt.Errorf("not an answer: %q", line)
	}
	length, chunked := 0, false
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return a, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) { // as net/http writes them
		case "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return a, err
			}
		case "Transfer-Encoding":
			chunked = true
		case "Retry-After":
			a.retryAfter = true
		case "Connection":
			a.closed = string(value) == "close"
		}
	}
	if chunked {
		return a, c.skipChunks()
	}
	if a.status < http.StatusBadRequest {
		_, err = c.in.Discard(length)
		return a, err
	}
	problem := make([]byte, length)
	_, err = io.ReadFull(c.in, problem)
	a.problem = string(problem)
	return a, err
}

func (c *conn) skipChunks() error {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil {
			return err
		}
		if _, err := c.in.Discard(int(size) + len("\r\n")); err != nil {
			return err
		}
		if size == 0 {
			return nil
		}
	}
}

// outcome is what a run gave.
type outcome struct {
	Answers   int
	PerSecond float64
	P50, P99  float64 // ms
}

// worker is one of those who work side by side: do is called over and over, and
// stop once at the end.
type worker struct {
	do   func() error
	stop func()
}

// pace is how long and how fast workers work.
type pace struct {
	workers      int
	warm, length time.Duration // what ends in warm does not count
	every        time.Duration // from one beginning to the next of a worker; 0: at once
}

// together lets workers work until the time is up, or ctx ends. Whatever fails
// fails it all.
func together(ctx context.Context, p pace, hire func(context.Context) (worker, error)) (outcome, error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		took  []time.Duration
		wrong error
		start = time.Now().Add(p.warm)
		limit = start.Add(p.length)
	)
	for range p.workers {
		group.Go(func() {
			w, err := hire(ctx)
			var mine []time.Duration
			if err == nil {
				mine, err = w.work(ctx, start, limit, p.every)
				w.stop()
			}
			mu.Lock()
			defer mu.Unlock()
			took, wrong = append(took, mine...), errors.Join(wrong, err)
		})
	}
	group.Wait()
	length := min(p.length, time.Since(start))
	switch {
	case wrong != nil:
		return outcome{}, wrong
	case len(took) == 0:
		return outcome{}, errors.New("nothing was done in a whole run")
	}
	slices.Sort(took)
	return outcome{
		Answers: len(took), PerSecond: float64(len(took)) / length.Seconds(),
		P50: milliseconds(percentile(took, 0.5)), P99: milliseconds(percentile(took, 0.99)),
	}, nil
}

// work returns how long the calls took that ended from start to limit.
func (w worker) work(ctx context.Context, start, limit time.Time, every time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	for began := time.Now(); began.Before(limit) && ctx.Err() == nil; {
		if err := w.do(); err != nil {
			return nil, fmt.Errorf("after %d that counted: %w", len(took), err)
		}
		ended := time.Now()
		if ended.After(start) && !ended.After(limit) {
			took = append(took, ended.Sub(began))
		}
		if wait := every - ended.Sub(began); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			ended = time.Now()
		}
		began = ended
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// requests lets connections send a workload, each its next request once the
// last is answered: a closed loop. Any other answer than the expected one fails it.
func requests(ctx context.Context, addr string, w workload, p pace) (outcome, error) {
	return together(ctx, p, func(ctx context.Context) (worker, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return worker{}, err
		}
		random := chance()
		do := func() error {
			c.out = w.next(random, c.out[:0])
			a, err := c.do(c.out)
			if err == nil && (a.status != w.want || a.closed) {
				err = fmt.Errorf("answered %d (closed: %t) instead of %d: %s", a.status, a.closed, w.want, a.problem)
			}
			return err
		}
		return worker{do, func() { _ = c.Close() }}, nil
	})
}

// request appends a request. The client is named for the bare handlers, which read
// no tokens.
func request(buf []byte, method, path, token, client string, body []byte) []byte {
	buf = append(buf, method...)
	buf = append(buf, ' ')
	buf = append(buf, path...)
	buf = append(buf, " HTTP/1.1\r\nHost: bench\r\n"...)
	if token != "" {
		buf = append(append(append(buf, "Authorization: Bearer "...), token...), "\r\n"...)
		buf = append(append(append(buf, headerClient+": "...), client...), "\r\n"...)
	}
	if body != nil {
		buf = append(buf, "Content-Type: application/json\r\nContent-Length: "...)
		buf = append(strconv.AppendInt(buf, int64(len(body)), 10), "\r\n"...)
	}
	buf = append(buf, "\r\n"...)
	return append(buf, body...)
}
