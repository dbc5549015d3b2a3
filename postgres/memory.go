package postgres

import (
	"os"
	"strconv"
	"strings"
)

// Bounds of the pages that the server keeps in memory, in bytes. It takes them
// as it needs them. A database of a million users of ten thousand clients changes
// some 100,000 pages of indexes over and over: where those do not fit, each new
// user has six of them read and written. Beyond that, more are no faster, as the
// system keeps what the server does not, and what waits longer to be written comes
// to the disk at once.
const (
	leastShared = 128 << 20
	// limit: tools | memory that the private Postgres shares | {leastShared B} to {mostShared B}
	mostShared = 1 << 30
)

// sharedBuffers is an eighth of the memory, within bounds.
func sharedBuffers(memory uint64) uint64 { return min(max(memory/8, leastShared), mostShared) }

// memory is how much the processes here may use together, in bytes: what the
// machine has, or a control group lets them have (cgroups(7)); 0 where neither
// is known.
func memory() uint64 {
	size := uint64(0)
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		if fields := strings.Fields(string(info)); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseUint(fields[1], 10, 64) // 0 where it is no number
			size = kib << 10
		}
	}
	if limit, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if most, err := strconv.ParseUint(strings.TrimSpace(string(limit)), 10, 64); err == nil && most < size {
			size = most
		}
	}
	return size
}
