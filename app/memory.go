package app

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// ContainerMemory is how many bytes the container of this process may use, if it
// has one and is bounded.
func ContainerMemory() (limit int64, found bool) {
	return containerLimit("/proc/self/cgroup", "/sys/fs/cgroup")
}

// memoryLimit is how many bytes this process may use: as GOMEMLIMIT says, else
// as its container does, else what the machine has; 1 GiB where nobody tells.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	if limit, found := ContainerMemory(); found {
		return limit
	}
	if total, found := machineMemory("/proc/meminfo"); found {
		return total
	}
	return 1 << 30
}

// containerLimit reads the limit of a control group, of version 2 or 1, or of one
// above it: the lowest counts.
func containerLimit(self, root string) (limit int64, found bool) {
	groups, err := os.ReadFile(self)
	if err != nil {
		return 0, false
	}
	limit = math.MaxInt64
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // id, controllers, path
		if len(fields) < 3 {
			continue
		}
		dir, file := root, "memory.max"
		switch {
		case fields[1] == "memory":
			dir, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		case fields[1] != "":
			continue
		}
		for path := fields[2]; ; path = filepath.Dir(path) {
			text, err := os.ReadFile(filepath.Join(dir, path, file))
			if n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && wrong == nil {
				limit = min(limit, n)
			}
			if path == "/" || path == "." {
				break
			}
		}
	}
	const none = 1 << 60 // version 1 writes no limit as a very large one
	return limit, limit < none
}

func machineMemory(info string) (bytes int64, found bool) {
	text, err := os.ReadFile(info)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
			kilobytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kilobytes << 10, err == nil
		}
	}
	return 0, false
}
