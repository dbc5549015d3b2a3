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
	Terms    []Term  // those of traits that both have, then the others; the largest contribution first, then by trait; they add up to Score
}

// Term is what one trait adds to a score.
type Term struct {
	Trait        string
	Weight       float64
	Similarity   float64 // where it is missing, that of two random users
	Contribution float64 // Weight * Similarity / the sum of all weights
	Missing      bool    // one of the two has not said it, or neither has
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
	score, ok := v.score(first, second)
	if !ok {
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
	score, match := p.view(nil).score(guest, row)
	return score, match, nil
}

// view is a population seen through the traits that a question may use. It is
// valid under the lock that it was made under.
type view struct {
	*Population
	allowed []int    // traits, by their place in the population
	mask    presence // the same
	total   float64  // of their weights
}

func (p *Population) view(permit func(path string) bool) view {
	v := view{Population: p}
	for i, t := range p.traits {
		if t.Weight > 0 && (permit == nil || permit(t.Path)) {
			v.allowed = append(v.allowed, i)
			v.mask.set(i)
			v.total += t.Weight
		}
	}
	return v
}

// share tells whether two patterns have a trait in common: else they are no match.
func (v view) share(a, b uint32) bool {
	hasA, hasB := &v.presences.keys[a], &v.presences.keys[b]
	for word, allowed := range v.mask {
		if hasA[word]&hasB[word]&allowed != 0 {
			return true
		}
	}
	return false
}

// score is the exact score of two rows; false where they are no match.
func (v view) score(a, b int) (float64, bool) {
	if !v.share(v.patterns[a], v.patterns[b]) {
		return 0, false
	}
	hasA, hasB := &v.presences.keys[v.patterns[a]], &v.presences.keys[v.patterns[b]]
	var sum float64
	for _, i := range v.allowed {
		if t := &v.traits[i]; hasA.has(i) && hasB.has(i) {
			sum += t.Weight * t.values.similarity(a, b)
		} else {
			sum += t.Weight * t.Expected
		}
	}
	if sum < LeastScore*v.total {
		return 0, false
	}
	return sum / v.total, true
}

// explain makes the answer for row b, which row a was matched with.
func (v view) explain(a, b int, score float64) Match {
	m := Match{User: v.users[b], Score: score, Terms: make([]Term, 0, len(v.allowed))}
	hasA, hasB := &v.presences.keys[v.patterns[a]], &v.presences.keys[v.patterns[b]]
	var shared, either float64
	for _, i := range v.allowed {
		t := &v.traits[i]
		term := Term{Trait: t.Path, Weight: t.Weight, Similarity: t.Expected, Missing: true}
		inA, inB := hasA.has(i), hasB.has(i)
		if inA && inB {
			term.Similarity, term.Missing = t.values.similarity(a, b), false
			shared += t.Weight
		}
		if inA || inB {
			either += t.Weight
		}
		term.Contribution = term.Weight * term.Similarity / v.total
		m.Terms = append(m.Terms, term)
	}
	m.Coverage = shared / either
	slices.SortFunc(m.Terms, func(a, b Term) int {
		if a.Missing != b.Missing {
			if a.Missing {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.Contribution, a.Contribution), strings.Compare(a.Trait, b.Trait))
	})
	return m
}
