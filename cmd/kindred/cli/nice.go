package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"

	"kindred/app"

	"github.com/spf13/cobra"
)

const (
	background = "background" // annotates commands that may wait
	niceness   = 10           // of theirs
	garbage    = 200          // % of what is held: memory for a tenth of the time of an import

	// Whoever computes does not look for what has come from the network. With more
	// turns than processors somebody else does: on one processor alone, 9,000 reads
	// a second were answered that way, and 6,300 in one turn.
	turns = 2 // for each processor
	least = 4 // in all
)

// setUp is done before every command.
func setUp(cmd *cobra.Command, _ []string) {
	if limit, found := app.ContainerMemory(); found && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 10 * 9) // garbage is collected before the container ends the process
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(turns*runtime.GOMAXPROCS(0), least))
	}
	if _, may := cmd.Annotations[background]; may {
		stepBack()
	}
}

// stepBack lets every other process have the processors first. Where the system
// does not know of threads, or does not let us, their priority stays as it is.
func stepBack() {
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
