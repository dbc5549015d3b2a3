//go:build unix && !linux

package postgres

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dieWithUs does nothing: only Linux can. The next start adopts the server instead.
func dieWithUs(*syscall.SysProcAttr, syscall.Signal) {}

// writeBack does nothing: only Linux can.
func writeBack(string, <-chan struct{}) {}

// giveUp does nothing: only Linux can. What was sent is given up when the system thinks fit.
func giveUp(time.Duration) func(string, string, syscall.RawConn) error { return nil }

// isServerOf reports whether the process was started as the server of data.
func isServerOf(pid int, data string) bool {
	command, err := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(command), "postgres -D "+data+" ")
}
