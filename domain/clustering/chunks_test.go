package clustering

import (
	"strings"
	"testing"
)

// A panic on another goroutine ends what was asked for, and not the process.
func TestAPanicInAChunkIsAnError(t *testing.T) {
	const rows = 9 * chunkRows
	nothing := func(*int, int, int) {}
	at := func(row int) func(*int, int, int) {
		return func(_ *int, from, _ int) {
			if from >= row {
				panic("seven")
			}
		}
	}
	for name, c := range map[string]struct {
		work func(*int, int, int)
		fold func(*int)
	}{
		"the first chunk": {at(0), func(*int) {}},
		"a later one":     {at(4 * chunkRows), func(*int) {}},
		"a sum":           {nothing, func(*int) { panic("seven") }},
	} {
		err := inChunks(t.Context(), rows, 3, func() *int { return new(int) }, c.work, c.fold)
		if err == nil || !strings.Contains(err.Error(), "seven") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := each(t.Context(), 5, 2, func(i int) error { panic("seven") }); err == nil || !strings.Contains(err.Error(), "seven") {
		t.Errorf("each: %v", err)
	}
}
