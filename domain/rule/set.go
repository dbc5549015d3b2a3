package rule

import (
	"cmp"
	"slices"
	"time"

	"cel.dev/cel-go/common/operators"
)

// Set is some rules that judge the same users. An example:
//
//	gold    traits.plan == "pro" && traits.age > 30
//	silver  traits.plan == "pro" && within(traits.seen, "30d")
//	plain   traits.plan == "free" || traits.age > 30
//
// A rule needs the comparisons that it joins by &&. Those of a member of the traits with a number, or
// by == with a text, true or false, are found together by one look at the member (index). For each rule it
// is counted how many of those that it needs hold. Of a user of 31 with the plan "free", gold counts one
// of two and silver none of one: neither is true, whatever time it is, and nobody judges them (Excluded).
// Had gold counted two, it would be true, since it is nothing else (decided). Plain needs none, so it is
// judged in any case. The way is from Yan and Garcia-Molina, "Index structures for selective dissemination
// of information under the Boolean model", ACM TODS 19(2), 1994.
//
// One goroutine at a time may use a set.
type Set struct {
	indexes []*index
	at      map[string]*index // by member
	sorted  bool              // since the last rule was added
	held    []int             // by rule: how many of the comparisons in the indexes that it needs hold
}

// index are the comparisons of a member of the traits that rules need.
type index struct {
	member       string
	equal        map[any][]int // rules, by the value that it is to be
	above, below []bound       // that a number comes to in this order
}

// bound is a number that the member is to be beyond, or to be, for a rule.
type bound struct {
	number float64
	itself bool // is enough
	rule   int
}

// NewSet makes an empty set.
func NewSet() *Set { return &Set{at: map[string]*index{}} }

// InSet is a rule of a set.
type InSet struct {
	rule    *Rule
	set     *Set
	place   int  // among the rules of the set
	needs   int  // so many comparisons of the indexes
	decided bool // it is true where these hold; its length bounds its steps to some 2,000, so these do not end it
}

// Add adds a rule.
func (s *Set) Add(r *Rule) *InSet {
	in := &InSet{rule: r, set: s, place: len(s.held), decided: r.joined}
	s.held, s.sorted = append(s.held, 0), false
	for _, place := range r.needed {
		if p, is := r.comparisons[place].logic.(plain); is && s.indexed(p, in.place) {
			in.needs++
		} else {
			in.decided = false
		}
	}
	return in
}

// indexed puts a comparison that a rule needs into the index of its member, if it can: texts in an order are
// left out, since to compare long ones takes steps.
func (s *Set) indexed(p plain, rule int) bool {
	number, isNumber := p.to.(float64)
	if p.operator == operators.NotEquals || p.operator != operators.Equals && !isNumber {
		return false
	}
	x := s.at[p.member]
	if x == nil {
		x = &index{member: p.member, equal: map[any][]int{}}
		s.indexes, s.at[p.member] = append(s.indexes, x), x
	}
	switch p.operator {
	case operators.Equals:
		x.equal[p.to] = append(x.equal[p.to], rule)
	case operators.Greater, operators.GreaterEquals:
		x.above = append(x.above, bound{number, p.operator == operators.GreaterEquals, rule})
	default:
		x.below = append(x.below, bound{number, p.operator == operators.LessEquals, rule})
	}
	return true
}

func (s *Set) sort() {
	for _, x := range s.indexes {
		slices.SortFunc(x.above, func(a, b bound) int { return cmp.Compare(a.number, b.number) })
		slices.SortFunc(x.below, func(a, b bound) int { return cmp.Compare(b.number, a.number) })
	}
	s.sorted = true
}

// Next begins with another user, or with other facts of the same user. It returns the steps that it took.
func (s *Set) Next(facts *Facts) (steps int) {
	if !s.sorted {
		s.sort()
	}
	clear(s.held)
	for _, x := range s.indexes {
		steps += 1 + x.count(facts.Traits[x.member], s.held)/countedInAStep
	}
	return steps
}

// countedInAStep is how many rules are counted in the time of a step.
const countedInAStep = 4

// count counts rules of which comparisons hold for a value.
func (x *index) count(v any, held []int) (n int) {
	switch of := v.(type) {
	case float64:
		for _, b := range x.above {
			if of < b.number {
				break
			}
			if n++; of > b.number || b.itself {
				held[b.rule]++
			}
		}
		for _, b := range x.below {
			if of > b.number {
				break
			}
			if n++; of < b.number || b.itself {
				held[b.rule]++
			}
		}
	case string, bool:
	default:
		return 0
	}
	for _, rule := range x.equal[v] {
		held[rule]++
		n++
	}
	return n
}

// Excluded says that the rule is not true of the user, whatever time it is. If it says no, the rule
// may still not be true.
func (r *InSet) Excluded() bool { return r.set.held[r.place] < r.needs }

// JudgeUntil is [Rule.JudgeUntil] of facts that are the same for all rules since Next, but for
// InSegment and InCluster. It takes as many steps as if the rule stood alone, or none.
func (r *InSet) JudgeUntil(facts *Facts) (truth Truth, until time.Time, steps int) {
	if r.decided && !r.Excluded() {
		return True, time.Time{}, 0
	}
	return r.rule.JudgeUntil(facts)
}

// joins are the comparisons, by their places, that a rule joins by &&: it is never true without them. only
// says whether it is nothing else.
func joins(l logic) (parts []int, only bool) {
	switch l := l.(type) {
	case comparison:
		return []int{l.place}, true
	case all:
		if l.any {
			return nil, false
		}
		only = true
		for _, part := range l.parts {
			of, all := joins(part)
			parts, only = append(parts, of...), only && all
		}
		return parts, only
	}
	return nil, false
}
