package matching

import (
	"cmp"
	"slices"
	"strings"

	"kindred/domain/traits"
)

// Match says how much alike two users are, and why.
type Match struct {
	User     string // the other one
	Score    float64
	Coverage float64 // the share of the joint weight that both have
	Terms    []Term  // the largest contribution first, then by trait; they add up to Score
}

// Term is what one trait that both users have adds to their score.
type Term struct {
	Trait        string
	Weight       float64
	Similarity   float64
	Contribution float64 // Weight * Similarity / the sum of all weights
}

// Pair scores two users; it is false where they are no match. Traits are those
// that permit allows, or all where it is nil. The error is [ErrUnknownUser].
func (p *Population) Pair(a, b string, permit func(path string) bool) (Match, bool, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	first, okFirst := p.rows[a]
	second, okSecond := p.rows[b]
	if !okFirst || !okSecond {
		return Match{}, false, ErrUnknownUser
	}
	v := p.view(permit)
	shared, either := v.weights(p.patterns[first], p.patterns[second])
	if !covers(shared, either) {
		return Match{}, false, nil
	}
	score := v.score(first, second, shared)
	if score == 0 {
		return Match{}, false, nil
	}
	return v.explain(first, second, score), true, nil
}

// Like scores someone with these traits, who need not be in the population, and
// a user; it is false where they are no match. The error is [ErrUnknownUser].
func (p *Population) Like(flat traits.Flat, user string) (float64, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row, ok := p.rows[user]
	if !ok {
		return 0, false, ErrUnknownUser
	}
	guest := p.newRow(0)
	defer p.leave(guest)
	p.write(guest, flat)
	v := p.view(nil)
	shared, either := v.weights(p.patterns[guest], p.patterns[row])
	if !covers(shared, either) {
		return 0, false, nil
	}
	score := v.score(guest, row, shared)
	return score, score > 0, nil
}

// view is a population seen through the traits that a question may use. It is
// valid under the lock that it was made under.
type view struct {
	*Population
	allowed []int // traits, by their place in the population
}

func (p *Population) view(permit func(path string) bool) view {
	v := view{Population: p}
	for i, t := range p.traits {
		if t.Weight > 0 && (permit == nil || permit(t.Path)) {
			v.allowed = append(v.allowed, i)
		}
	}
	return v
}

// weights sums the weights of what two patterns share, and of what either has.
func (v view) weights(a, b uint32) (shared, either float64) {
	hasA, hasB := &v.presences.keys[a], &v.presences.keys[b]
	for _, i := range v.allowed {
		inA, inB := hasA.has(i), hasB.has(i)
		if inA && inB {
			shared += v.traits[i].Weight
		}
		if inA || inB {
			either += v.traits[i].Weight
		}
	}
	return shared, either
}

// covers tells whether what two users share is enough to call them a match.
func covers(shared, either float64) bool { return shared > 0 && shared/either >= MinCoverage }

// score is the exact score of two rows that share the given weight: 0 where they
// are no match for all that.
func (v view) score(a, b int, shared float64) float64 {
	hasA, hasB := &v.presences.keys[v.patterns[a]], &v.presences.keys[v.patterns[b]]
	var sum float64
	for _, i := range v.allowed {
		if hasA.has(i) && hasB.has(i) {
			sum += v.traits[i].Weight * v.traits[i].values.similarity(a, b)
		}
	}
	if sum < LeastScore*shared {
		return 0
	}
	return sum / shared
}

// explain makes the answer for row b, which row a was matched with.
func (v view) explain(a, b int, score float64) Match {
	shared, either := v.weights(v.patterns[a], v.patterns[b])
	m := Match{User: v.users[b], Score: score, Coverage: shared / either}
	hasA, hasB := &v.presences.keys[v.patterns[a]], &v.presences.keys[v.patterns[b]]
	for _, i := range v.allowed {
		if !hasA.has(i) || !hasB.has(i) {
			continue
		}
		t := v.traits[i]
		s := t.values.similarity(a, b)
		m.Terms = append(m.Terms, Term{t.Path, t.Weight, s, t.Weight * s / shared})
	}
	slices.SortFunc(m.Terms, func(a, b Term) int {
		return cmp.Or(cmp.Compare(b.Contribution, a.Contribution), strings.Compare(a.Trait, b.Trait))
	})
	return m
}
