package main

import (
	"slices"
	"testing"
)

func TestTheLinesThatSayTheFaultsAreReplaced(t *testing.T) {
	for _, old := range [][]string{{"// Faults: stale."}, {"// Faults:"}, {"// Faults: a,", "// b."}, nil} {
		comment := append([]string{"// Find finds."}, old...)
		before := slices.Clone(comment)
		if got, want := said(comment, map[string]bool{"busy": true}), []string{before[0], "// Faults: busy."}; !slices.Equal(got, want) {
			t.Errorf("%q becomes %q", before, got)
		}
		if got := said(comment, nil); !slices.Equal(got, before[:1]) {
			t.Errorf("without faults %q becomes %q", before, got)
		}
		if !slices.Equal(comment, before) { // what a comment is compared with
			t.Errorf("%q was overwritten by %q", before, comment)
		}
	}
}
