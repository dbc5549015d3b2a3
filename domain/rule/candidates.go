package rule

const (
	// maxCandidates bounds whom a filter looks at for one answer.
	// limit: requests | candidates that a filter of matches and feeds looks at, the best first | {maxCandidates} | `truncated` with matches
	maxCandidates = 50_000
	// widening is by how much more of them are looked at where too few were named.
	widening = 8
)

// Widen looks for so many users whom a filter names among the best: among twice as many
// first, then among more of them. Look judges so many of the best, and says how many
// there are, and how many of these are named. Truncated says that more may be named
// behind those that were looked at.
func Widen(limit int, look func(best int) (there, named int, err error)) (truncated bool, err error) {
	for best := min(2*limit, maxCandidates); ; best = min(best*widening, maxCandidates) {
		there, named, err := look(best)
		switch {
		case err != nil:
			return false, err
		case named >= limit || there < best:
			return false, nil
		case best == maxCandidates:
			return true, nil
		}
	}
}
