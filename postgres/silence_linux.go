package postgres

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUp has the kernel give up what was sent to a peer that confirms none of it for so long,
// in place of some 15 minutes: keep-alive probes are not sent meanwhile.
func giveUp(after time.Duration) func(string, string, syscall.RawConn) error {
	return func(network, _ string, raw syscall.RawConn) (err error) {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		if e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
		}); e != nil {
			return e
		}
		return err
	}
}
