package postgres

import (
	"runtime"
	"testing"
)

func TestTheServerTakesAShareOfTheMemory(t *testing.T) {
	t.Parallel()
	for memory, want := range map[uint64]uint64{0: 128 << 20, 512 << 20: 128 << 20, 2 << 30: 256 << 20, 8 << 30: 1 << 30, 24 << 30: 1 << 30, 64 << 30: 1 << 30} {
		if got := sharedBuffers(memory); got != want {
			t.Errorf("of %d MiB it takes %d MiB, not %d", memory>>20, got>>20, want>>20)
		}
	}
}

func TestTheMemoryOfAMachineIsKnown(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("nobody asks on", runtime.GOOS)
	}
	if size := memory(); size < 64<<20 || size > 1<<50 {
		t.Errorf("%d bytes", size)
	}
}
