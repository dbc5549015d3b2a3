package postgres

import (
	"fmt"
	"os"
	"syscall"
)

// dieWithUs has the kernel signal the child when the thread that started it ends.
func dieWithUs(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

// isServerOf reports whether the process is the server that runs on data: a server
// works in its data directory, and nothing else does.
func isServerOf(pid int, data string) bool {
	there, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	here, err := os.Stat(data)
	return err == nil && os.SameFile(there, here)
}
