package splitmix_test

import (
	"testing"

	"kindred/domain/splitmix"
)

// The published sequence of the seed 1234567, by the reference implementation
// of S. Vigna (prng.di.unimi.it/splitmix64.c).
func TestTheSequenceIsThePublishedOne(t *testing.T) {
	s := splitmix.Source(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := s.Uint64(); got != want {
			t.Errorf("number %d is %d, not %d", i, got, want)
		}
	}
}

func TestNumbersStayWithinTheirBounds(t *testing.T) {
	s, seen := splitmix.Source(1), make([]int, 7)
	for range 7_000 {
		seen[s.IntN(7)]++
		if x := s.Float64(); x < 0 || x >= 1 {
			t.Fatalf("%g is not in [0, 1)", x)
		}
	}
	for n, times := range seen {
		if times < 850 || times > 1150 { // five standard deviations
			t.Errorf("%d came %d times of 7,000", n, times)
		}
	}
	if n := s.IntN(1); n != 0 {
		t.Errorf("%d is not below 1", n)
	}
}
