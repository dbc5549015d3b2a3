//go:build race

package kindred_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// The race detector sees a race in this module, however little of others it watches, and
// holds what is done in order for none.
func TestARaceIsSeen(t *testing.T) {
	t.Parallel()
	for name, race := range map[string]bool{"race": true, "lock": false, "once": false, "map": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlantedRace$")
			planted.Env = append(os.Environ(), "KINDRED_TEST_RACE="+name)
			said, err := planted.CombinedOutput()
			exit, failed := errors.AsType[*exec.ExitError](err)
			if err != nil && !failed {
				t.Fatal(err)
			}
			if seen := failed && strings.Contains(string(said), "WARNING: DATA RACE"); seen != race || !race && failed {
				t.Errorf("race seen: %t, %v\n%s", seen, exit, said)
			}
		})
	}
}

// TestPlantedRace is what TestARaceIsSeen runs in a process of its own.
func TestPlantedRace(t *testing.T) {
	t.Parallel()
	var (
		shared []int
		lock   sync.Mutex
		once   sync.Once
		known  sync.Map
	)
	add := map[string]func(){
		"race": func() { shared = append(shared, 1) },
		"lock": func() { lock.Lock(); shared = append(shared, 1); lock.Unlock() },
		"once": func() { once.Do(func() { shared = append(shared, 1) }); _ = shared[0] },
		"map": func() {
			made, _ := known.LoadOrStore("made", sync.OnceValue(func() []int { return []int{1} }))
			_ = made.(func() []int)()[0]
		},
	}[os.Getenv("KINDRED_TEST_RACE")]
	if add == nil {
		return // nobody asked for it
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(add)
	}
	both.Wait()
}
