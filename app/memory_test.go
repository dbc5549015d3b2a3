package app

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheMemoryOfAContainerIsItsLowestLimit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		groups string
		files  map[string]string
		limit  int64
		found  bool
	}{
		"version 2": {"0::/a/b\n", map[string]string{"a/b/memory.max": "2000000\n", "a/memory.max": "1500000\n", "memory.max": "max\n"}, 1_500_000, true},
		"version 1": {"7:cpu:/x\n4:memory:/x\n", map[string]string{"memory/x/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.limit_in_bytes": "4096\n"}, 4096, true},
		"none":      {"0::/a\n", map[string]string{"a/memory.max": "max\n"}, 0, false},
		"nothing":   {"", nil, 0, false},
	} {
		root := t.TempDir()
		for file, text := range tt.files {
			write(t, filepath.Join(root, file), text)
		}
		self := filepath.Join(root, "self")
		write(t, self, tt.groups)
		if limit, found := containerLimit(self, root); found != tt.found || found && limit != tt.limit {
			t.Errorf("%s: %d, %v", name, limit, found)
		}
	}
	info := filepath.Join(t.TempDir(), "meminfo")
	write(t, info, "MemTotal:        2048 kB\nMemFree:  1 kB\n")
	if bytes, found := machineMemory(info); !found || bytes != 2<<20 {
		t.Errorf("%d, %v", bytes, found)
	}
	if limit := memoryLimit(); limit < 64<<20 {
		t.Errorf("%d bytes here", limit)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
