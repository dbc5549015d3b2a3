package main

import (
	"slices"
	"testing"
)

func TestTheLinesThatSayTheFaultsAreReplaced(t *testing.T) {
	for _, old := range [][]string{{"// Faults: stale."}, {"// Faults:"}, {"// Faults: a,", "// b."}, nil} {
		comment := append([]string{"// Find finds."}, old...)
		if got := without(comment); !slices.Equal(got, comment[:1]) {
			t.Errorf("%q is left of %q", got, comment)
		}
	}
}
