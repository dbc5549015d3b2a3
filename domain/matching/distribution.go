package matching

import (
	"maps"
	"slices"
	"sort"

	"kindred/domain/splitmix"
)

// Pairs is how many random pairs of users a [Distribution] looks at, or all of
// them where there are no more.
const Pairs = 10_000

// Distribution is how alike two random users of a population are. It is a
// snapshot: compute it once and use it for many scores.
type Distribution struct {
	scores []float64 // sorted; a pair that is no match has noMatch
}

const noMatch = -1 // below every score

// Distribution scores random pairs. The same users under the same schema give
// the same distribution for the same seed, whatever the order of their arrival;
// permit is as for [Population.Pair].
func (p *Population) Distribution(seed uint64, permit func(path string) bool) Distribution {
	p.mu.RLock()
	users := slices.AppendSeq(make([]string, 0, len(p.rows)), maps.Keys(p.rows))
	p.mu.RUnlock()
	slices.Sort(users) // not under the lock: it is the dearest part
	pairs := pairsOf(len(users), seed)

	p.mu.RLock()
	defer p.mu.RUnlock()
	v := p.view(permit)
	d := Distribution{scores: make([]float64, 0, len(pairs))}
	for _, pair := range pairs {
		a, okA := p.rows[users[pair[0]]]
		b, okB := p.rows[users[pair[1]]]
		if !okA || !okB {
			continue // removed in between
		}
		score := float64(noMatch)
		if shared, either := v.weights(p.patterns[a], p.patterns[b]); covers(shared, either) {
			score = v.score(a, b, shared)
		}
		d.scores = append(d.scores, score)
	}
	slices.Sort(d.scores)
	return d
}

// Percentile is the share of the pairs, in per cent, that are less alike than
// score, pairs that equal it counting half; 0 where there are no pairs.
func (d Distribution) Percentile(score float64) float64 {
	if len(d.scores) == 0 {
		return 0
	}
	below := sort.SearchFloat64s(d.scores, score)
	above := sort.Search(len(d.scores), func(i int) bool { return d.scores[i] > score })
	return 100 * float64(below+above) / float64(2*len(d.scores))
}

// pairsOf draws pairs of different numbers below n.
func pairsOf(n int, seed uint64) [][2]int {
	var pairs [][2]int
	if n*(n-1)/2 <= Pairs {
		for a := range n {
			for b := range a {
				pairs = append(pairs, [2]int{a, b})
			}
		}
		return pairs
	}
	random := splitmix.Source(seed)
	for range Pairs {
		a := random.IntN(n)
		b := (a + 1 + random.IntN(n-1)) % n
		pairs = append(pairs, [2]int{a, b})
	}
	return pairs
}
