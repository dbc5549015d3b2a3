package rule

import "time"

// Set is some rules that judge the same users: what several of them compare is judged once a
// user. One goroutine at a time may use it.
type Set struct {
	numbers map[string]int // of comparisons, by their text
	found   []found        // by number
	never   []int          // by number: the user of whom it was found not to be true, at any time
	user    int
	idle    *judgement
}

// found is what was found of a comparison, of the user so numbered.
type found struct {
	user  int
	truth Truth
	until time.Time
	steps int
}

// NewSet makes an empty set.
func NewSet() *Set { return &Set{numbers: map[string]int{}, user: 1} }

// InSet is a rule of a set.
type InSet struct {
	rule    *Rule
	set     *Set
	numbers []int // nil: it asks what depends on where the rule stands
	needed  []int // of these, those without which the rule is never true
}

// Add adds a rule.
func (s *Set) Add(r *Rule) InSet {
	in := InSet{rule: r, set: s}
	if len(r.segments)+len(r.clusters) > 0 {
		return in
	}
	in.numbers = make([]int, len(r.comparisons))
	for i, c := range r.comparisons {
		number, known := s.numbers[c.text]
		if !known {
			number = len(s.found)
			s.numbers[c.text], s.found, s.never = number, append(s.found, found{}), append(s.never, 0)
		}
		in.numbers[i] = number
	}
	for _, place := range r.needed {
		in.needed = append(in.needed, in.numbers[place])
	}
	return in
}

// needed are the comparisons, by their places, without which a rule is never true: it joins them by &&.
func needed(l logic) (parts []int) {
	switch l := l.(type) {
	case comparison:
		return []int{l.place}
	case all:
		if !l.any {
			for _, part := range l.parts {
				parts = append(parts, needed(part)...)
			}
		}
	}
	return parts
}

// Excluded says that the rule is not true of the user, whatever time it is, as another rule of
// the set has found of a comparison that it needs. It does not say when it is.
func (r InSet) Excluded() bool {
	for _, number := range r.needed {
		if r.set.never[number] == r.set.user {
			return true
		}
	}
	return false
}

// Next begins with another user, or with other facts of one.
func (s *Set) Next() { s.user++ }

// Forget keeps no facts of the last user.
func (s *Set) Forget() { s.idle = nil }

// JudgeUntil is [Rule.JudgeUntil] of facts that are the same for all rules since Next, but for
// InSegment and InCluster. It takes as many steps as if it stood alone.
func (r InSet) JudgeUntil(facts *Facts) (truth Truth, until time.Time, steps int) {
	j := r.set.idle
	r.set.idle = nil // where the facts ask for another segment, its rule is judged meanwhile
	if j == nil {
		j = begin(facts, 0)
	}
	j.Facts, j.most, j.args, j.numbers, j.set = facts, r.rule.most, j.args[:0], r.numbers, nil
	j.flipsAt, j.steps = time.Time{}, 0
	if r.numbers != nil {
		j.set = r.set
	}
	truth, until, steps = r.rule.judge(j)
	r.set.idle = j
	return truth, until, steps
}

func (c comparison) judge(j *judgement) Truth {
	if j.set == nil {
		return c.logic.judge(j)
	}
	known := &j.set.found[j.numbers[c.place]]
	if known.user == j.set.user {
		j.steps += known.steps
		if !known.until.IsZero() {
			j.flips(known.until)
		}
		return known.truth
	}
	before, steps := j.flipsAt, j.steps
	j.flipsAt = time.Time{}
	truth := c.logic.judge(j)
	if j.steps <= j.most {
		*known = found{j.set.user, truth, j.flipsAt, j.steps - steps}
		if truth != True && j.flipsAt.IsZero() {
			j.set.never[j.numbers[c.place]] = j.set.user
		}
	}
	if !before.IsZero() {
		j.flips(before)
	}
	return truth
}
