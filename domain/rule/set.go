package rule

import "time"

// Set is some rules that judge the same users. It spares work in three ways. An example:
//
//	gold    traits.plan == "pro" && traits.age > 30
//	silver  traits.plan == "pro" && within(traits.seen, "30d")
//	plain   traits.plan == "free" || traits.age > 30
//
// Each comparison has a number, by its text: traits.plan == "pro" is one, for both rules. What is
// found of it of a user is kept until the next one (found), so it is judged once.
//
// A rule needs the comparisons that it joins by &&: gold and silver need traits.plan == "pro". Where
// that was found not to be true of the user, whatever time it is (never), neither is true (Excluded).
//
// The guard of a rule is the one that most rules need of those that it needs. A caller groups rules by
// guard, and passes over a whole group by one look (Excludes). Plain needs none, so it has no guard.
//
// One goroutine at a time may use a set.
type Set struct {
	numbers map[string]int // of comparisons, by their text
	found   []found        // by number
	first   []first        // by number: where it stands first
	needs   []int          // by number: how many rules are never true without it
	never   []int          // by number: the user of whom it was found not to be true, at any time
	user    int
	idle    *judgement
}

// first is a comparison as a rule of the set has it, with the numbers of that rule's.
type first struct {
	comparison
	numbers []int
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
			s.first, s.needs = append(s.first, first{c, in.numbers}), append(s.needs, 0)
		}
		in.numbers[i] = number
	}
	for _, place := range r.needed {
		in.needed = append(in.needed, in.numbers[place])
		s.needs[in.numbers[place]]++
	}
	return in
}

// Guard is the number of the comparison, among those that the rule needs, that the most
// rules of the set need; 0: the rule needs none. It is known once all rules were added.
func (r InSet) Guard() (guard int) {
	for _, number := range r.needed {
		if guard == 0 || r.set.needs[number] > r.set.needs[guard-1] {
			guard = number + 1
		}
	}
	return guard
}

// Excludes says whether a guard is false of a user, whatever time it is, so that no rule
// with this guard is true. It also returns the steps that this took.
func (s *Set) Excludes(guard int, facts *Facts) (is bool, steps int) {
	if guard == 0 {
		return false, 0
	}
	j, c := s.begin(facts), s.first[guard-1]
	j.numbers = c.numbers
	c.judge(j)
	s.idle = j
	return s.never[guard-1] == s.user, j.steps
}

// begin begins a judgement by the set. It uses the idle one again. Where facts ask for
// another segment, that segment's rule is judged while this judgement is in use, so it gets
// one of its own.
func (s *Set) begin(facts *Facts) *judgement {
	j := s.idle
	s.idle = nil
	if j == nil {
		j = begin(facts, 0)
	}
	j.Facts, j.most, j.args, j.set = facts, maxSteps, j.args[:0], s
	j.flipsAt, j.steps = time.Time{}, 0
	return j
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

// Excluded says whether another rule of the set has found that a comparison which this rule
// needs is false of the user, whatever time it is. Then this rule is not true. If it says
// no, the rule may still not be true.
func (r InSet) Excluded() bool {
	for _, number := range r.needed {
		if r.set.never[number] == r.set.user {
			return true
		}
	}
	return false
}

// Next begins with another user, or with other facts of the same user.
func (s *Set) Next() { s.user++ }

// Forget keeps no facts of the last user.
func (s *Set) Forget() { s.idle = nil }

// conjunct is a comparison, by its place, of a rule that consists of such, joined by &&.
type conjunct struct {
	place int
	steps int // to come to it
}

// conjuncts are what a rule consists of where it is nothing but joined comparisons; else nil.
func conjuncts(root logic) []conjunct {
	switch l := root.(type) {
	case comparison:
		return []conjunct{{l.place, 0}}
	case all:
		var found []conjunct
		for _, part := range l.parts {
			of := conjuncts(part)
			if l.any || of == nil {
				return nil
			}
			of[0].steps++
			found = append(found, of...)
		}
		return found
	}
	return nil
}

// judgeJoined is JudgeUntil of a rule of joined comparisons.
func (r InSet) judgeJoined(facts *Facts) (truth Truth, until time.Time, steps int) {
	s := r.set
	truth = True
	for _, c := range r.rule.joined {
		known := &s.found[r.numbers[c.place]]
		if known.user != s.user {
			j := s.begin(facts)
			j.most, j.numbers = r.rule.most, r.numbers
			r.rule.comparisons[c.place].judge(j)
			s.idle = j
		}
		if steps += c.steps + known.steps; known.user != s.user || steps > r.rule.most {
			return Unknown, time.Time{}, r.rule.most
		}
		if !known.until.IsZero() && (until.IsZero() || known.until.Before(until)) {
			until = known.until
		}
		switch known.truth {
		case False:
			return False, until, steps
		case Unknown:
			truth = Unknown
		}
	}
	return truth, until, steps
}

// JudgeUntil is [Rule.JudgeUntil] of facts that are the same for all rules since Next, but for
// InSegment and InCluster. It takes as many steps as if it stood alone.
func (r InSet) JudgeUntil(facts *Facts) (truth Truth, until time.Time, steps int) {
	if r.rule.joined != nil && r.numbers != nil {
		return r.judgeJoined(facts)
	}
	j := r.set.begin(facts)
	if j.most, j.numbers = r.rule.most, r.numbers; r.numbers == nil {
		j.set = nil
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
