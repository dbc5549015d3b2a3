package postgres

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A peer that vanishes, as a machine whose power fails, neither answers nor closes: here its
// kernel drops all that comes. Whoever waits for it, or has sent something to it, is told.
func TestAPeerThatVanishesIsGivenUp(t *testing.T) {
	t.Parallel()
	for what, sends := range map[string]bool{"it waits": false, "it has sent something": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			conn, err := dialer(4*time.Second).DialContext(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			peer, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			vanish(t, peer)
			if sends {
				if _, err := conn.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// vanish has the kernel drop whatever comes for a connection.
func vanish(t *testing.T, peer net.Conn) {
	t.Helper()
	raw, err := peer.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	filter := unix.SockFprog{Len: 1, Filter: &nothing[0]}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
	}); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
}
