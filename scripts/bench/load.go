package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	_, err = c.in.Discard(length)
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

// outcome is what a run of a workload gave.
type outcome struct {
	PerSecond float64
	P50, P99  float64 // ms
}

// closedLoop keeps connections busy with a workload: one run of the length
// given after a warm-up that does not count. Any other answer than the
// expected one fails it.
func closedLoop(ctx context.Context, addr string, w workload, conns int, warm, length time.Duration) (outcome, error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		took  []time.Duration
		wrong error
		start = time.Now().Add(warm)
		end   = start.Add(length)
	)
	for range conns {
		group.Go(func() {
			mine, err := drive(ctx, addr, w, start, end)
			mu.Lock()
			defer mu.Unlock()
			took, wrong = append(took, mine...), errors.Join(wrong, err)
		})
	}
	group.Wait()
	if wrong != nil {
		return outcome{}, wrong
	}
	if len(took) == 0 {
		return outcome{}, errors.New("nothing was answered in a whole run")
	}
	slices.Sort(took)
	return outcome{float64(len(took)) / length.Seconds(), milliseconds(percentile(took, 0.5)), milliseconds(percentile(took, 0.99))}, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// drive returns how long the requests took that ended from start to end.
func drive(ctx context.Context, addr string, w workload, start, end time.Time) ([]time.Duration, error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	random := draws(rand.Uint64())
	var took []time.Duration
	for began := time.Now(); began.Before(end) && ctx.Err() == nil; {
		c.out = w.next(random, c.out[:0])
		began = time.Now()
		a, err := c.do(c.out)
		if err != nil {
			return nil, fmt.Errorf("after %d answers: %w", len(took), err)
		}
		if a.status != w.want || a.closed {
			return nil, fmt.Errorf("answered %d (closed: %t) instead of %d", a.status, a.closed, w.want)
		}
		ended := time.Now()
		if ended.After(start) && !ended.After(end) {
			took = append(took, ended.Sub(began))
		}
		began = ended
	}
	return took, ctx.Err()
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
