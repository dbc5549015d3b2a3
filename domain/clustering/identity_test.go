package clustering

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSuccession(t *testing.T) {
	for name, c := range map[string]struct {
		overlap Overlap
		want    Succession
	}{
		"all stay, under other numbers": {
			Overlap{{0, 100, 5}, {90, 0, 1}, {2, 2, 80}},
			Succession{Keeps: []int{1, 0, 2}},
		},
		"one falls into two": {
			Overlap{{60, 40, 0}, {0, 0, 100}},
			Succession{Keeps: []int{0, -1, 1}, Splits: []Split{{0, []int{0, 1}}}},
		},
		"two become one": {
			Overlap{{70, 0}, {50, 0}, {0, 100}},
			Succession{Keeps: []int{0, 2}, Retired: []int{1}, Merges: []Merge{{0, []int{0, 1}}}},
		},
		"a sure one is not given up for two unsure ones": {
			// The Jaccard indices are 0.54, 0.296 and 0.296.
			Overlap{{50, 21}, {21, 0}},
			Succession{Keeps: []int{0, -1}, Retired: []int{1}},
		},
		"nobody is in both": {
			Overlap{{0, 0}},
			Succession{Keeps: []int{-1, -1}, Retired: []int{0}},
		},
		"there was no run before": {Overlap{}, Succession{Keeps: []int{}}},
	} {
		if diff := cmp.Diff(c.want, c.overlap.Succession()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// bestGain tries all assignments.
func bestGain(gain [][]float64, row int, used []bool) float64 {
	if row == len(gain) {
		return 0
	}
	best := bestGain(gain, row+1, used)
	for j := range used {
		if !used[j] {
			used[j] = true
			best = max(best, gain[row][j]+bestGain(gain, row+1, used))
			used[j] = false
		}
	}
	return best
}

func TestAssignmentsAreTheBestOfAll(t *testing.T) {
	random := draws(4)
	for range 500 {
		rows, columns := 1+random.IntN(6), 1+random.IntN(6)
		gain := make([][]float64, rows)
		for i := range gain {
			gain[i] = make([]float64, columns)
			for j := range gain[i] {
				gain[i][j] = float64(random.IntN(4)) / 4 // ties are likely
			}
		}
		got, taken := 0.0, map[int]bool{}
		for i, j := range assign(gain) {
			if j >= 0 {
				if taken[j] {
					t.Fatalf("column %d is given twice in %v", j, gain)
				}
				taken[j] = true
				got += gain[i][j]
			}
		}
		if want := bestGain(gain, 0, make([]bool, columns)); math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v, not %v, in %v", got, want, gain)
		}
	}
}

func FuzzSuccession(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 0, 0}, uint8(3))
	f.Fuzz(func(t *testing.T, counts []byte, newer uint8) {
		columns := int(newer%8) + 1
		o := NewOverlap(min(len(counts)/columns, 8), columns)
		for i := range o {
			for j := range o[i] {
				o[i][j] = int(counts[i*columns+j])
			}
		}
		s := o.Succession()
		kept := map[int]bool{}
		for j, i := range s.Keeps {
			if i < 0 {
				continue
			}
			if kept[i] || o.Members(i, j).Jaccard() < keepJaccard {
				t.Fatalf("%d keeps %d in %v", j, i, o)
			}
			kept[i] = true
		}
		if len(kept)+len(s.Retired) != len(o) {
			t.Fatalf("%+v of %v", s, o)
		}
	})
}
