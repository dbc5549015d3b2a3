package clustering

import "math"

// keepJaccard is how much of two clusters must be shared for the newer one to
// keep the older one's id; lineageShare is how much of one cluster must have
// gone to, or come from, each of several others.
const (
	keepJaccard  = 0.3
	lineageShare = 0.3
)

// Overlap counts, by older and by newer cluster, the users who are in both runs.
type Overlap [][]int

// NewOverlap is the overlap of two runs of so many clusters, yet without users.
func NewOverlap(older, newer int) Overlap {
	o := make(Overlap, older)
	for i := range o {
		o[i] = make([]int, newer)
	}
	return o
}

// Members is what two clusters have in common, among the users in both runs.
type Members struct {
	Either int // users of either cluster
	Both   int // users of both
}

// Jaccard is Both/Either, and 0 where there is nobody to tell by.
func (m Members) Jaccard() float64 {
	if m.Either == 0 {
		return 0
	}
	return float64(m.Both) / float64(m.Either)
}

// Members compares an older cluster with a newer one.
func (o Overlap) Members(older, newer int) Members {
	both := o[older][newer]
	either := sum(o[older]) - both
	for _, row := range o {
		either += row[newer]
	}
	return Members{Either: either, Both: both}
}

// Succession says which clusters live on from one run to the next.
type Succession struct {
	Keeps   []int   // for each newer cluster the older one whose id it keeps, or -1 where it is new
	Retired []int   // older clusters whose ids end
	Splits  []Split // in the order of the older clusters
	Merges  []Merge // in the order of the newer clusters
}

// Split is an older cluster of which at least two newer ones hold 0.3 or more.
type Split struct {
	Older int
	Newer []int
}

// Merge is a newer cluster of which 0.3 or more came from each of at least two
// older ones.
type Merge struct {
	Newer int
	Older []int
}

// Succession assigns the older ids so that the Jaccard indices of the clusters
// that keep one, each at least 0.3, add up to the most.
func (o Overlap) Succession() Succession {
	newer := 0
	if len(o) > 0 {
		newer = len(o[0])
	}
	likeness := make([][]float64, len(o))
	for i := range o {
		likeness[i] = make([]float64, newer)
		for j := range likeness[i] {
			if jaccard := o.Members(i, j).Jaccard(); jaccard >= keepJaccard {
				likeness[i][j] = jaccard
			}
		}
	}
	s := Succession{Keeps: make([]int, newer)}
	for j := range s.Keeps {
		s.Keeps[j] = -1
	}
	for i, j := range assign(likeness) {
		if j >= 0 && likeness[i][j] > 0 {
			s.Keeps[j] = i
		} else {
			s.Retired = append(s.Retired, i)
		}
	}
	for i, row := range o {
		if into := largeParts(row); len(into) > 1 {
			s.Splits = append(s.Splits, Split{i, into})
		}
	}
	for j := range newer {
		column := make([]int, len(o))
		for i := range o {
			column[i] = o[i][j]
		}
		if from := largeParts(column); len(from) > 1 {
			s.Merges = append(s.Merges, Merge{j, from})
		}
	}
	return s
}

// largeParts are the places that hold a large share of the whole.
func largeParts(parts []int) []int {
	whole := sum(parts)
	var large []int
	for i, n := range parts {
		if whole > 0 && float64(n) >= lineageShare*float64(whole) {
			large = append(large, i)
		}
	}
	return large
}

// assign gives each row a column of its own, or -1 where there are too few, so
// that the gains add up to the most: the Hungarian method with potentials
// (Kuhn 1955, Munkres 1957), in rows² * columns steps.
func assign(gain [][]float64) []int {
	rows := len(gain)
	if rows == 0 {
		return nil
	}
	columns := max(rows, len(gain[0])) // those beyond the gains gain nothing
	cost := func(i, j int) float64 {
		if j < len(gain[i]) {
			return -gain[i][j]
		}
		return 0
	}
	// Rows and columns count from 1; column 0 holds the row to be placed.
	ofRow, ofColumn := make([]float64, rows+1), make([]float64, columns+1)
	row := make([]int, columns+1)
	for i := 1; i <= rows; i++ {
		row[0] = i
		at := 0
		least := make([]float64, columns+1)
		for j := range least {
			least[j] = math.Inf(1)
		}
		seen := make([]bool, columns+1)
		before := make([]int, columns+1)
		for row[at] != 0 {
			seen[at] = true
			next, delta := 0, math.Inf(1)
			for j := 1; j <= columns; j++ {
				if seen[j] {
					continue
				}
				if c := cost(row[at]-1, j-1) - ofRow[row[at]] - ofColumn[j]; c < least[j] {
					least[j], before[j] = c, at
				}
				if least[j] < delta {
					next, delta = j, least[j]
				}
			}
			for j := range seen {
				if seen[j] {
					ofRow[row[j]] += delta
					ofColumn[j] -= delta
				} else {
					least[j] -= delta
				}
			}
			at = next
		}
		for at != 0 {
			row[at] = row[before[at]]
			at = before[at]
		}
	}
	placed := make([]int, rows)
	for j := 1; j <= columns; j++ {
		if row[j] == 0 {
			continue
		}
		placed[row[j]-1] = j - 1
		if j > len(gain[0]) {
			placed[row[j]-1] = -1
		}
	}
	return placed
}
