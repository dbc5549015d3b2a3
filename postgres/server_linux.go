package postgres

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dieWithUs has the kernel signal the child when the thread that started it ends.
func dieWithUs(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

// isServerOf reports whether the process was started as the server of data. Its command
// line tells, which even a root without ptrace may read of another account's process.
func isServerOf(pid int, data string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	if err != nil || len(args) < 3 || args[1] != "-D" {
		return false
	}
	its, err := os.Stat(args[2])
	if err != nil {
		return false
	}
	ours, err := os.Stat(data)
	return err == nil && os.SameFile(its, ours)
}
