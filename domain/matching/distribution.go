package matching

import (
	"maps"
	"slices"
	"sort"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

// Distribution is how alike two random users of a population are, of [traits.Pairs]
// pairs, or of all where there are no more. It is a
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

	p.mu.RLock()
	defer p.mu.RUnlock()
	v := p.view(permit)
	d := Distribution{scores: make([]float64, 0, traits.Pairs)}
	for one, other := range splitmix.Pairs(len(users), traits.Pairs, seed) {
		a, okA := p.rows[users[one]]
		b, okB := p.rows[users[other]]
		if !okA || !okB {
			continue // removed in between
		}
		score, match := v.score(a, b)
		if !match {
			score = noMatch
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
