package rule

import (
	"fmt"
	"time"
)

const (
	// maxCandidates bounds whom a filter looks at for one answer.
	// limit: requests | candidates that a filter of matches and feeds looks at, the best first | {maxCandidates} | `truncated` with matches
	maxCandidates = 50_000
	// maxFilterSteps is some 3 s: 50,000 candidates of 1 KiB take half of it.
	// limit: requests | steps of a filter of matches and feeds for one answer, two of them for each byte of the candidates' traits | {maxFilterSteps} | `truncated` with matches
	maxFilterSteps = 300_000_000
	// widening is by how much more of them are looked at where too few were named.
	widening = 8
)

// Filter restricts one answer by what its request asks for and by the match rule. It leaves
// those of some users whom all of these name, and counts the steps that this takes.
type Filter struct {
	*Rule             // what was asked for; nil: everybody
	Always  *Rule     // of pairs, and both ways: it names each as seen by the other; nil: everybody
	Segment string    // whose members it names alone; "": everybody
	Layer   string    // under which it asks who is in a cluster; "": none
	Now     time.Time // by the client's clock: facts are of its last event, which may be long ago
	steps   int
}

// matchRules are kept ready to judge, by their texts: each match asks for its client's.
var matchRules Cache[string, *Rule]

// Among is what a request asks for, a rule of pairs, a segment, both or neither, beside a
// match rule; nil where there is nothing to keep to. What the match rule reads may have been
// decided to be sensitive since it was written: then nothing is matched. Only where there is
// a match rule are its bounds asked for, and is it read as judging does that.
// Faults: invalid.
func Among(asked Filter, matchRule string, bounds func() (Bounds, error), judging func(judge func() error) error) (*Filter, error) {
	if matchRule == "" {
		if asked.Rule == nil && asked.Segment == "" {
			return nil, nil //nolint:nilnil // there is none
		}
		return &asked, nil
	}
	within, err := bounds()
	if err != nil {
		return nil, err
	}
	err = judging(func() (err error) {
		if asked.Always, err = always(matchRule); err == nil {
			err = asked.Always.CheckAt("/match_rule", within)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &asked, nil
}

// MatchBreaches lists what a match rule reads beyond its bounds, which may have changed
// since it was written. As long as there is any, nothing is matched.
// Faults: invalid.
func MatchBreaches(matchRule string, bounds Bounds) ([]Breach, error) {
	r, err := always(matchRule)
	if err != nil {
		return nil, err
	}
	return r.Breaches(bounds), nil
}

func always(matchRule string) (*Rule, error) {
	r, err := ParseMatchRule("", matchRule)
	if err != nil {
		return nil, fmt.Errorf("read a match rule: %w", err)
	}
	return r, nil
}

// ParseMatchRule is ParseAt of a match rule, which is kept ready for what is matched by it.
// Faults: invalid.
func ParseMatchRule(pointer, text string) (*Rule, error) {
	if r := matchRules.Get(text); r != nil {
		return r, nil
	}
	r, err := ParseAt(pointer, text, Pairs)
	if err == nil {
		matchRules.Add(text, r)
	}
	return r, err
}

// TraitParts are the texts of the parts of the filter that read the user's own traits alone, or
// its bucket: rules of users. Whom one of them does not name, the filter does not name either, whoever the
// viewer is, until the user's traits change.
func (f *Filter) TraitParts() []string {
	if f == nil {
		return nil
	}
	var texts []string
	for _, r := range []*Rule{f.Rule, f.Always} {
		if r != nil {
			texts = append(texts, r.traitParts...)
		}
	}
	return texts
}

// OnlyTraitParts says whether the filter names exactly whom its trait parts name.
func (f *Filter) OnlyTraitParts() bool {
	return f != nil && f.Rule != nil && f.onlyTraitParts && f.Always == nil && f.Segment == ""
}

// Names says whether the filter surely names a user. read is the steps that it took to read
// the user.
func (f *Filter) Names(facts *Facts, read int) bool {
	f.steps += read
	if facts.Now.Before(f.Now) {
		facts.Now = f.Now
	}
	if f.Segment != "" && !facts.InSegment(f.Segment) || f.Rule != nil && !f.holds(f.Rule, facts) {
		return false
	}
	if f.Always == nil {
		return true
	}
	back := *facts.Viewer
	back.Viewer, back.Now = facts, facts.Now
	return f.holds(f.Always, facts) && f.holds(f.Always, &back)
}

func (f *Filter) holds(r *Rule, facts *Facts) bool {
	truth, _, steps := r.JudgeUntil(facts)
	f.steps += steps
	return truth == True
}

// Exhausted says whether the filter has taken as many steps as it may. Then it must judge
// nobody any more.
func (f *Filter) Exhausted() bool { return f.steps >= maxFilterSteps }

// Widen looks for limit users whom the filter names among the best matches: first among
// twice as many, then among more. look judges that many of the best; it returns how many
// there are, and how many of them are named. truncated says that more may be named among
// those that were not looked at.
func (f *Filter) Widen(limit int, look func(best int) (there, named int, err error)) (truncated bool, err error) {
	for best := min(2*limit, maxCandidates); ; best = min(best*widening, maxCandidates) {
		there, named, err := look(best)
		switch {
		case err != nil:
			return false, err
		case named >= limit:
			return false, nil
		case f.Exhausted():
			return true, nil
		case there < best:
			return false, nil
		case best == maxCandidates:
			return true, nil
		}
	}
}
