package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	background = "background" // annotates commands that may wait
	niceness   = 10           // of theirs
	garbage    = 300          // % of what they hold: memory for a fifth of their time
)

// stepBack lets every other process have the processors before a command that
// may wait, and has it collect garbage seldom. Where the system does not know of
// threads, or does not let us, their priority stays as it is.
func stepBack(cmd *cobra.Command, _ []string) {
	if _, may := cmd.Annotations[background]; !may {
		return
	}
	debug.SetGCPercent(garbage)
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
