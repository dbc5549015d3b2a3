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
	Terms    []Term  // those of traits that both have, then the others that count; the largest contribution first, then by trait; they add up to Score
}

// Term is what one trait adds to a score.
type Term struct {
	Trait        string
	Weight       float64 // the trait's, or the part of it that counts where neither has said it
	Similarity   float64 // where it is missing, that of two random users
	Contribution float64 // Weight * Similarity / the sum of all terms' weights
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

// Explain compares a user with some others, the best first. Who is no match, or not there, is
// left out. The error is [ErrUnknownUser], of the user alone.
func (p *Population) Explain(user string, others []string, permit func(path string) bool) ([]Match, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	row, ok := p.rows[user]
	if !ok {
		return nil, ErrUnknownUser
	}
	v := p.view(permit)
	matches := make([]Match, 0, len(others))
	for _, other := range others {
		if with, ok := p.rows[other]; ok {
			if score, ok := v.score(row, with); ok {
				matches = append(matches, v.explain(row, with, score))
			}
		}
	}
	slices.SortStableFunc(matches, func(a, b Match) int { return cmp.Compare(b.Score, a.Score) })
	return matches, nil
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
	var sum, said, unsaid float64
	for _, i := range v.allowed {
		t, inA, inB := &v.traits[i], hasA.has(i), hasB.has(i)
		switch {
		case inA && inB:
			sum += t.Weight * t.values.similarity(a, b)
		case inA || inB:
			sum += t.Weight * t.Expected
		default:
			unsaid += t.Weight * t.Expected
			continue
		}
		said += t.Weight
	}
	whole, part := v.counted(said)
	sum += part * unsaid
	if sum < leastScore*whole {
		return 0, false
	}
	return sum / whole, true
}

// leastCounted is the share of all weights that a score is made of at least. Without
// it who says one thing would meet nobody but those who say that alone.
const leastCounted = 0.2

// counted is the weight that counts between two who have said so much of it, either of
// them, and the part that counts of what neither has said.
func (v view) counted(said float64) (whole, part float64) {
	if least := leastCounted * v.total; said < least {
		return least, (least - said) / (v.total - said)
	}
	return said, 0
}

// explain makes the answer for row b, which row a was matched with.
func (v view) explain(a, b int, score float64) Match {
	m := Match{User: v.users[b], Score: score, Terms: make([]Term, 0, len(v.allowed))}
	hasA, hasB := &v.presences.keys[v.patterns[a]], &v.presences.keys[v.patterns[b]]
	var shared, said float64
	for _, i := range v.allowed {
		inA, inB := hasA.has(i), hasB.has(i)
		if inA && inB {
			shared += v.traits[i].Weight
		}
		if inA || inB {
			said += v.traits[i].Weight
		}
	}
	m.Coverage = shared / said
	whole, part := v.counted(said)
	for _, i := range v.allowed {
		t := &v.traits[i]
		term := Term{Trait: t.Path, Weight: t.Weight, Similarity: t.Expected, Missing: true}
		switch inA, inB := hasA.has(i), hasB.has(i); {
		case inA && inB:
			term.Similarity, term.Missing = t.values.similarity(a, b), false
		case !inA && !inB && part == 0:
			continue
		case !inA && !inB:
			term.Weight *= part
		}
		term.Contribution = term.Weight * term.Similarity / whole
		m.Terms = append(m.Terms, term)
	}
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
