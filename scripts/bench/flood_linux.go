package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	openConnections = 4096 // as many callers as ever wait at one time
	// arrivalTick is how exactly the driver keeps the time: it sends what is due,
	// takes what has come, and sleeps. One that woke up for each answer would take
	// from those who are measured what they need.
	arrivalTick = time.Millisecond
	// lateness is how late a request may be sent, before it counts as one that
	// the driver was too slow for.
	lateness = 100 * time.Millisecond
)

// arrival is a request of an open loop: it is sent when its time has come,
// whatever became of those before.
type arrival struct {
	due  time.Time
	took time.Duration // from due to the end of its answer
	answer
	err error
}

var (
	errLate = errors.New("the driver was late")
	errFull = errors.New("requests on all connections are unanswered")
)

// flood is an open loop under way: one thread that polls all its connections.
type flood struct {
	w      workload
	random *rand.Rand
	most   int // connections

	to    *syscall.SockaddrInet4
	poll  int             // of the connections
	conns map[int]*caller // by descriptor
	idle  []*caller       // the last one to be free is taken first
	buf   []byte
}

// caller is one connection.
type caller struct {
	fd  int
	at  *arrival // nil: idle
	got []byte   // of the answer
}

// newFlood prepares an open loop. Close it in any case.
func newFlood(addr string, w workload, most int) (*flood, error) {
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return nil, err
	}
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	return &flood{
		w: w, random: chance(), most: most, to: &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())},
		poll: poll, conns: map[int]*caller{}, buf: make([]byte, 64<<10),
	}, nil
}

func (f *flood) close() {
	for _, c := range f.conns {
		f.hangUp(c)
	}
	_ = syscall.Close(f.poll) // nothing is lost
}

// run sends rate requests a second for a time and returns all of them, in
// order, once the last is answered.
func (f *flood) run(ctx context.Context, rate float64, length time.Duration) ([]arrival, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	total := int(rate * length.Seconds())
	all := make([]arrival, total)
	start := time.Now()
	var request []byte
	for sent := 0; sent < total || len(f.idle) < len(f.conns); {
		tick := time.Now()
		due := min(int(tick.Sub(start).Seconds()*rate)+1, total)
		for ; sent < due; sent++ {
			at := &all[sent]
			at.due = start.Add(time.Duration(float64(sent) / rate * float64(time.Second)))
			request = f.w.next(f.random, request[:0])
			f.send(at, request)
		}
		if err := f.receive(); err != nil {
			return nil, err
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case time.Since(start) > length+ioTimeout:
			return nil, errors.New("requests are never answered")
		}
		time.Sleep(arrivalTick - time.Since(tick))
	}
	return all, nil
}

func (f *flood) send(at *arrival, request []byte) {
	if time.Since(at.due) > lateness {
		at.err = errLate
		return
	}
	c, err := f.take()
	if err != nil {
		at.err = err
		return
	}
	c.at, c.got = at, c.got[:0]
	if n, err := syscall.Write(c.fd, request); err != nil || n < len(request) {
		f.end(c, answer{}, fmt.Errorf("sent %d bytes: %w", n, err))
	}
}

func (f *flood) take() (*caller, error) {
	if n := len(f.idle); n > 0 {
		c := f.idle[n-1]
		f.idle = f.idle[:n-1]
		return c, nil
	}
	if len(f.conns) >= f.most {
		return nil, errFull
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	err = errors.Join(
		syscall.Connect(fd, f.to), syscall.SetNonblock(fd, true),
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1),
		syscall.EpollCtl(f.poll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})) //nolint:gosec // a descriptor
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("connect: %w", err)
	}
	c := &caller{fd: fd}
	f.conns[fd] = c
	return c, nil
}

// receive takes what has come.
func (f *flood) receive() error {
	var events [512]syscall.EpollEvent
	for {
		n, err := syscall.EpollWait(f.poll, events[:], 0)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("poll: %w", err)
		}
		for _, event := range events[:max(n, 0)] {
			f.read(f.conns[int(event.Fd)])
		}
		if n < len(events) {
			return nil
		}
	}
}

func (f *flood) read(c *caller) {
	n, err := syscall.Read(c.fd, f.buf)
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return
	case err == nil && n == 0:
		err = errors.New("closed by the server")
	case err == nil && c.at == nil:
		err = errors.New("answered what was not asked")
	}
	if err != nil {
		f.end(c, answer{}, err)
		return
	}
	c.got = append(c.got, f.buf[:n]...)
	if a, whole, err := wholeAnswer(c.got); whole || err != nil {
		f.end(c, a, err)
	}
}

// end notes what became of a caller's request.
func (f *flood) end(c *caller, a answer, err error) {
	if at := c.at; at != nil {
		at.answer, at.err, at.took = a, err, time.Since(at.due)
	}
	if c.at = nil; err != nil || a.closed {
		f.idle = slices.DeleteFunc(f.idle, func(other *caller) bool { return other == c })
		f.hangUp(c)
		return
	}
	f.idle = append(f.idle, c)
}

func (f *flood) hangUp(c *caller) {
	delete(f.conns, c.fd)
	_ = syscall.Close(c.fd) // which ends its polling, too
}

// wholeAnswer reads an answer, once all of it is there.
func wholeAnswer(got []byte) (a answer, whole bool, err error) {
	head, body, found := bytes.Cut(got, []byte("\r\n\r\n"))
	if !found || len(head) < len("HTTP/1.1 200") {
		return a, false, nil
	}
	if a.status, err = strconv.Atoi(string(head[9:12])); err != nil {
		return a, false, fmt.Errorf("not an answer: %q", head)
	}
	a.retryAfter = bytes.Contains(head, []byte("\r\nRetry-After: "))
	a.closed = bytes.Contains(head, []byte("\r\nConnection: close"))
	_, rest, found := bytes.Cut(head, []byte("\r\nContent-Length: "))
	if !found { // chunked, or without a body
		chunked := bytes.Contains(head, []byte("\r\nTransfer-Encoding: chunked"))
		return a, !chunked || bytes.HasSuffix(body, []byte("\r\n0\r\n\r\n")), nil
	}
	digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
	length, err := strconv.Atoi(string(digits))
	return a, len(body) >= length, err
}
