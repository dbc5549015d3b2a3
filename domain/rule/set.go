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
// A rule needs the comparisons that it joins by &&. Those that a look at the traits decides (look) are found
// together, by one look at each path (index). For each rule it is counted how many of those that it needs
// hold. Of a user of 31 with the plan "free", gold counts one of two and silver none of one: neither is
// true, whatever time it is, and nobody judges them (Excluded). Had gold counted two, it would be true, since
// it is nothing else (decided). Plain needs none, so it is judged in any case. The way is from Yan and
// Garcia-Molina, "Index structures for selective dissemination of information under the Boolean model", ACM
// TODS 19(2), 1994.
//
// One goroutine at a time may use a set.
type Set struct {
	indexes []*index
	at      map[string]*index // by path, quoted
	sorted  bool              // since the last rule was added
	counts  []int             // by rule: how many of the comparisons in the indexes that it needs hold
}

// index are the comparisons of a path that rules need: the rules, by what decides.
type index struct {
	path         []string
	equal        map[any][]int // by the value that is to be there
	unequal      map[any][]int // by the value that is not to be there, though one is
	held         map[any][]int // by what the value is to hold
	present      []int         // any value
	above, below []bound       // a number comes to them in this order
}

// bound is a number beyond which the value is to be, for a rule.
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
	in := &InSet{rule: r, set: s, place: len(s.counts), decided: r.joined}
	s.counts, s.sorted = append(s.counts, 0), false
	for _, part := range r.joins {
		in.decided = in.decided && part.look != nil && part.look.decides()
		if part.look != nil && s.index(part.look, in.place) {
			in.needs++
		}
	}
	return in
}

// index puts a comparison that a rule needs into the index of its path. added is false where the rule asks
// for the same element once more: each time that it stands in a list would else count as often as it is asked for.
func (s *Set) index(l *look, rule int) (added bool) {
	x := s.at[l.quoted]
	if x == nil {
		x = &index{path: l.path, equal: map[any][]int{}, unequal: map[any][]int{}, held: map[any][]int{}}
		s.indexes, s.at[l.quoted] = append(s.indexes, x), x
	}
	switch l.operator {
	case "":
		x.present = append(x.present, rule)
	case operators.Equals:
		for _, value := range l.values {
			x.equal[value] = append(x.equal[value], rule)
		}
	case operators.NotEquals:
		x.present = append(x.present, rule)
		x.unequal[l.values[0]] = append(x.unequal[l.values[0]], rule)
	case operators.In:
		asks := x.held[l.values[0]]
		if len(asks) > 0 && asks[len(asks)-1] == rule {
			return false
		}
		x.held[l.values[0]] = append(asks, rule)
	case operators.Greater, operators.GreaterEquals:
		x.above = append(x.above, bound{l.values[0].(float64), l.operator == operators.GreaterEquals, rule})
	default:
		x.below = append(x.below, bound{l.values[0].(float64), l.operator == operators.LessEquals, rule})
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
	clear(s.counts)
	for _, x := range s.indexes {
		steps += len(x.path) + x.count(valueAt(facts.Traits, x.path), s.counts)/countedInAStep
	}
	return steps
}

const (
	countedInAStep   = 4 // rules
	countedMeanwhile = 8 // rules, while an element, or a name, is found: some 20 ns
)

// count counts, for each rule, the comparisons that hold of a value, and returns what that took. What holds
// twice, since an element stands in a list twice, counts twice.
func (x *index) count(v any, counts []int) (took int) {
	add := func(rules []int, n int) {
		took += len(rules)
		for _, rule := range rules {
			counts[rule] += n
		}
	}
	if v == nil {
		return 0
	}
	add(x.present, 1)
	switch of := v.(type) {
	case string, float64, bool:
		add(x.equal[v], 1)
		add(x.unequal[v], -1)
		if number, is := v.(float64); is {
			took += x.beyond(number, counts)
		}
	case []any:
		if len(x.held) == 0 {
			return took
		}
		took += countedMeanwhile * len(of)
		for _, element := range of {
			switch element.(type) {
			case string, float64, bool:
				add(x.held[element], 1)
			}
		}
	case map[string]any:
		took += countedMeanwhile * len(x.held)
		for name, rules := range x.held {
			if name, is := name.(string); is && of[name] != nil {
				add(rules, 1)
			}
		}
	}
	return took
}

// beyond is count of a number and the bounds that it is beyond.
func (x *index) beyond(number float64, counts []int) (took int) {
	for _, b := range x.above {
		if number < b.number {
			break
		}
		if took++; number > b.number || b.itself {
			counts[b.rule]++
		}
	}
	for _, b := range x.below {
		if number > b.number {
			break
		}
		if took++; number < b.number || b.itself {
			counts[b.rule]++
		}
	}
	return took
}

// Excluded says that the rule is not true of the user, whatever time it is. If it says no, the rule
// may still not be true.
func (r *InSet) Excluded() bool { return r.set.counts[r.place] < r.needs }

// JudgeUntil is [Rule.JudgeUntil] of facts that are the same for all rules since Next, but for
// InSegment and InCluster. It takes as many steps as if the rule stood alone, or none.
func (r *InSet) JudgeUntil(facts *Facts) (truth Truth, until time.Time, steps int) {
	if r.decided && !r.Excluded() {
		return True, time.Time{}, 0
	}
	return r.rule.JudgeUntil(facts)
}

// joins are the comparisons that a rule joins by &&: it is never true without them. only says whether it is
// nothing else.
func joins(l logic) (parts []comparison, only bool) {
	switch l := l.(type) {
	case comparison:
		return []comparison{l}, true
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
