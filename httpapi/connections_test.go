package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// switchboard accepts connections in memory, from any address.
type switchboard struct {
	calls chan net.Conn
	close func()
}

func (s switchboard) Accept() (net.Conn, error) {
	if c, ok := <-s.calls; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (s switchboard) Close() error {
	s.close()
	return nil
}

func (s switchboard) Addr() net.Addr { return new(net.TCPAddr) }

type calledFrom struct {
	net.Conn
	address string
}

func (c calledFrom) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.address), 1))
}

// line is one end of a connection to a switchboard.
type line struct {
	net.Conn
	in *bufio.Reader
}

func (s switchboard) dial(address string) line {
	near, far := net.Pipe()
	s.calls <- calledFrom{far, address}
	synctest.Wait()
	return line{near, bufio.NewReader(near)}
}

// open says whether a request on the line is answered.
func (l line) open() bool {
	go func() { _, _ = fmt.Fprintf(l, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
	answer, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return false
	}
	answer.Body.Close()
	synctest.Wait()
	return true
}

func connected(t *testing.T, most int, trusted ...netip.Prefix) switchboard {
	t.Helper()
	return connectedTo(t, func(http.ResponseWriter, *http.Request) {}, most, trusted...)
}

func connectedTo(t *testing.T, handler http.HandlerFunc, most int, trusted ...netip.Prefix) switchboard {
	t.Helper()
	dialled := make(chan net.Conn)
	calls := switchboard{dialled, sync.OnceFunc(func() { close(dialled) })}
	server := NewServer("", handler)
	served := make(chan error)
	go func() { served <- server.Serve(Bounded(calls, most, trusted)) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return calls
}

func TestOneNetworkHoldsAQuarterOfTheConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := connected(t, 8, netip.MustParsePrefix("10.0.0.0/8"))
		for i, address := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::3"} {
			if got := calls.dial(address).open(); got != (i < 2) {
				t.Errorf("connection %d of a network is open: %v", i, got)
			}
		}
		if !calls.dial("192.0.2.1").open() {
			t.Error("another network has no connection")
		}
		for i := range 6 {
			if got := calls.dial("10.0.0.1").open(); got != (i < 5) {
				t.Errorf("connection %d of a proxy is open: %v", i, got)
			}
		}
	})
}

func TestTheConnectionThatIsIdleForLongestMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := connected(t, 8)
		var lines []line
		for n := range 8 {
			lines = append(lines, calls.dial(fmt.Sprint("192.0.2.", n/2)))
			if !lines[n].open() {
				t.Fatalf("connection %d is closed", n)
			}
			time.Sleep(time.Second)
		}
		if !lines[0].open() { // and so, the second is idle for longest
			t.Fatal("the first is closed")
		}
		if !calls.dial("198.51.100.1").open() {
			t.Error("a new network has no connection")
		}
		for n, l := range lines {
			if got := l.open(); got != (n != 1) {
				t.Errorf("connection %d is open: %v", n, got)
			}
		}
	})
}

// Who keeps the service waiting makes room; who waits for it does not.
func TestACallerThatIsSlowMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := make(chan struct{})
		calls := connectedTo(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/reads":
				_, _ = io.Copy(io.Discard, r.Body)
			case "/works":
				<-work
			case "/tells":
				_, _ = w.Write(make([]byte, 1<<20))
			}
		}, 8)
		const unsent = " HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n"
		var working, fresh []line
		var callers sync.WaitGroup
		for n, request := range []string{"GET /works HTTP/1.1\r\nHost: x\r\n\r\n", "POST /reads" + unsent, "POST /" + unsent, "GET /tells HTTP/1.1\r\nHost: x\r\n\r\n"} {
			for range 2 {
				l := calls.dial(fmt.Sprint("192.0.2.", n))
				if n == 0 {
					time.Sleep(2 * tolerated) // it asks late, which is no slowness of what it asks
					working = append(working, l)
				}
				callers.Go(func() {
					_, err := io.WriteString(l, request)
					for range 10 { // of a body
						if err != nil || !strings.HasPrefix(request, "POST") {
							return
						}
						time.Sleep(tolerated * 9 / 10)
						_, err = io.WriteString(l, "x")
					}
				})
				synctest.Wait()
			}
		}
		if calls.dial("198.51.100.100").open() {
			t.Error("nobody is slow yet, and somebody makes room")
		}
		time.Sleep(2 * tolerated)
		for n := range 6 {
			fresh = append(fresh, calls.dial(fmt.Sprint("198.51.100.", n)))
			if !fresh[n].open() {
				t.Errorf("network %d has no connection", n)
			}
		}
		for n, l := range fresh {
			if !l.open() {
				t.Errorf("network %d made room, and another is slow", n)
			}
		}
		close(work)
		for _, l := range working {
			answer, err := http.ReadResponse(l.in, nil)
			if err != nil {
				t.Errorf("who waited for the service is closed: %v", err)
				continue
			}
			answer.Body.Close()
		}
		callers.Wait()
	})
}
