package cli

import (
	"io"
	"runtime"
	"testing"

	"github.com/spf13/cobra"
)

// Not beside other tests: it is about the whole process.
func TestAQuotaBoundsWhatHashesPasswords(t *testing.T) {
	t.Setenv("GOGC", "100")
	t.Setenv("GOMAXPROCS", "")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as a quota of one core does
	env := newEnviron(noSettings, io.Discard, io.Discard)
	setUp(&cobra.Command{}, nil)
	if turns := runtime.GOMAXPROCS(0); env.cores != 1 || turns != least {
		t.Errorf("%d cores hash passwords, in %d turns; want 1 and %d", env.cores, turns, least)
	}
}
