package rule

const (
	// maxCandidates bounds whom a filter looks at for one answer.
	// limit: requests | candidates that a filter of matches and feeds looks at, the best first | {maxCandidates} | `truncated` with matches
	maxCandidates = 50_000
	// maxFilterSteps is some 3 s: 50,000 candidates of 1 KiB take half of it.
	// limit: requests | steps of such a filter for one answer, with two for each byte of the candidates' traits | {maxFilterSteps} | `truncated` with matches
	maxFilterSteps = 300_000_000
	// widening is by how much more of them are looked at where too few were named.
	widening = 8
)

// Filter is a rule that leaves of users those whom it names, for one answer.
type Filter struct {
	*Rule
	steps int
}

// Names says whether the filter surely names whom it took so many steps to read.
func (f *Filter) Names(facts *Facts, read int) bool {
	truth, _, steps := f.JudgeUntil(facts)
	f.steps += read + steps
	return truth == True
}

// Exhausted says that it took as many steps as it may: it is to judge nobody any more.
func (f *Filter) Exhausted() bool { return f.steps >= maxFilterSteps }

// Widen looks for so many users whom the filter names among the best: among twice as
// many first, then among more of them. Look judges so many of the best, and says how many
// there are, and how many of these are named. Truncated says that more may be named
// behind those that were looked at.
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
