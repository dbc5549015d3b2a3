package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"kindred/semaphore"
)

// ofOneNetwork is the part of all connections that may come from one address, or
// from one /64 of IPv6.
const ofOneNetwork = 4

// bounded is a listener that keeps a bounded number of connections open.
type bounded struct {
	net.Listener
	places  *semaphore.Semaphore
	proxies []netip.Prefix
}

// Bounded closes connections that l accepts beyond most, or from one network
// beyond its part of them; those of trusted proxies have no such part. Where all
// are open, the one that has been idle for longest, or whose caller is slowest, of a
// network that has more, is closed instead. The server must be one of NewServer.
func Bounded(l net.Listener, most int, trusted []netip.Prefix) net.Listener {
	return &bounded{l, &semaphore.Semaphore{Places: most, Each: max(most/ofOneNetwork, 1)}, trusted}
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &boundedConn{Conn: conn, sends: meter{now: time.Now}, takes: meter{now: time.Now}} //nolint:forbidigo // how long a caller is waited for
		c.is(http.StateNew)
		h := &semaphore.Holder{Slow: c.slow, End: func() { _ = c.Close() }} // its own server learns of it by reading
		c.release = sync.OnceFunc(func() { b.places.Drop(h) })
		if b.places.Hold(context.Background(), b.network(conn), h) {
			c.held.Store(true)
			return c, nil
		}
		_ = conn.Close() // nobody is told: that would take what there is too little of
	}
}

// network is what a connection counts against; "" where a trusted proxy opened it.
func (b *bounded) network(c net.Conn) string {
	peer := host(c.RemoteAddr().String())
	if a, ok := plainAddr(peer); ok && within(a, b.proxies) {
		return ""
	}
	return network(peer)
}

// boundedConn is a connection that a bounded listener has accepted.
type boundedConn struct {
	net.Conn
	release func()
	held    atomic.Bool  // and not closed yet
	idle    atomic.Int64 // since when nothing is asked on it, in Unix nanoseconds; 0: something is
	sends   meter        // of the body of a request
	takes   meter        // of all answers
}

// is notes what the server says of the connection.
func (c *boundedConn) is(state http.ConnState) {
	var since int64
	if state == http.StateIdle || state == http.StateNew {
		since = time.Now().UnixNano() //nolint:forbidigo // how long a connection is idle
	}
	c.idle.Store(since)
	if state == http.StateActive { // what was waited for until now is the request
		c.sends.forget()
	}
}

// slow implements [semaphore.Holder].Slow. Of an active connection it is how slowly its caller has sent the body of its
// request, or takes answers: who waits for the service gives way to nobody.
func (c *boundedConn) slow(time.Duration) float64 {
	if since := c.idle.Load(); since != 0 {
		return max(time.Since(time.Unix(0, since)).Seconds(), 1e-9)
	}
	return max(c.sends.slow(), c.takes.slow())
}

// Write implements [net.Conn].
func (c *boundedConn) Write(p []byte) (n int, err error) {
	c.takes.begin()
	defer func() { c.takes.end(n) }()
	return c.Conn.Write(p)
}

// Read implements [net.Conn]. net/http reads a single byte to learn of the caller's end while a request is carried out: for
// that the caller is not waited for.
func (c *boundedConn) Read(p []byte) (n int, err error) {
	if len(p) == 1 {
		return c.Conn.Read(p)
	}
	c.sends.begin()
	defer func() { c.sends.end(n) }()
	return c.Conn.Read(p)
}

// notes tells a connection what the server does with it (http.Server.ConnState).
func notes(c net.Conn, state http.ConnState) {
	if p, ok := c.(*problemConn); ok {
		c = p.Conn
	}
	if c, ok := c.(*boundedConn); ok {
		c.is(state)
	}
}

// Close implements [net.Conn].
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	if c.held.Swap(false) {
		c.release()
	}
	return err
}

// CloseWrite lets net/http end what it says before it hangs up.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
