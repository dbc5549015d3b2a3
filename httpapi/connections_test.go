package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
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
	dialled := make(chan net.Conn)
	calls := switchboard{dialled, sync.OnceFunc(func() { close(dialled) })}
	server := NewServer("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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
