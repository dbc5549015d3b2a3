package ranking

import (
	"cmp"
	"math"
	"slices"
)

const (
	// lambda weighs relevance against novelty.
	lambda = 0.7
	// keptRelevance is the share of the relevance that the best scores alone
	// would give which every beginning of the order keeps. Without it, MMR was
	// measured to keep 0.98.
	keptRelevance = 0.99
	// twins are as alike as this. Where the best of those who are left is a twin of
	// one already chosen, keptWithTwins is enough: to show one twin more tells
	// next to nothing, whatever its score is.
	twins         = 0.95
	keptWithTwins = 0.9
)

// Alike tells how much alike one candidate and each of several others are, in
// 0..1, by their place in the input.
type Alike func(candidate int, others []int, similarity []float64)

// diversify orders candidates by maximal marginal relevance (Carbonell and
// Goldstein, 1998): next is who has the highest
// lambda*score - (1-lambda)*(similarity to the most alike already chosen),
// among those with whom the order so far still keeps its relevance. Ties go to
// the higher score, then to the earlier place.
func diversify(scores []float64, alike Alike) []int {
	left := make([]int, len(scores))
	for i := range left {
		left[i] = i
	}
	slices.SortStableFunc(left, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	order := make([]int, 0, len(scores))
	nearest := make([]float64, len(scores)) // by candidate: to those already chosen
	similarity := make([]float64, len(scores))
	ideal := slices.Clone(left)
	var kept, most float64
	for len(left) > 0 {
		most += scores[ideal[len(order)]]
		next, best := 0, math.Inf(-1)
		least := keptRelevance * most
		if nearest[left[0]] >= twins {
			least = keptWithTwins * most
		}
		for i, candidate := range left {
			// The first always does: it is no worse than its place's ideal.
			if i > 0 && kept+scores[candidate] < least {
				break
			}
			if worth := lambda*scores[candidate] - (1-lambda)*nearest[candidate]; worth > best {
				next, best = i, worth
			}
		}
		chosen := left[next]
		left = slices.Delete(left, next, next+1)
		order = append(order, chosen)
		kept += scores[chosen]
		alike(chosen, left, similarity[:len(left)])
		for i, candidate := range left {
			nearest[candidate] = max(nearest[candidate], similarity[i])
		}
	}
	return order
}
