package main

import (
	"os"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	background = "background" // annotates commands that may wait
	niceness   = 10           // of theirs
)

// stepBack lets every other process have the processors before a command that
// may wait. Where the
// system does not know of threads, or does not let us, all stays as it is.
func stepBack(cmd *cobra.Command, _ []string) {
	if _, may := cmd.Annotations[background]; !may {
		return
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
		}
	}
}
