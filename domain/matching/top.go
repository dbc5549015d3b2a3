package matching

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Query asks for the best matches of one user.
type Query struct {
	User     string
	Limit    int                         // at most this many answers
	MinScore float64                     // answers below it are left out
	Permit   func(path string) bool      // the traits to look at; nil: all
	Keep     func(candidate string) bool // who may be answered; nil: everyone else. Asked only about those who could be
}

// Top returns the best matches, by score and then by user id. The user itself
// is never among them. The error is [ErrUnknownUser].
func (p *Population) Top(q Query) ([]Match, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	row, ok := p.rows[q.User]
	if !ok {
		return nil, ErrUnknownUser
	}
	v := p.view(q.Permit)
	best := v.scan(row, q)
	matches := make([]Match, len(best))
	for i, r := range best {
		matches[i] = v.explain(row, r.row, r.score)
	}
	return matches, nil
}

// ranked is a row that was scored.
type ranked struct {
	row   int
	score float64
}

const (
	blockRows   = 1024    // rows of a block: its sums stay in the first-level cache
	weightUnits = 1 << 40 // what the weights of a scan add up to
	slack       = 1e-9    // more than float64 loses in a score or its bound
)

// scan goes over the population block by block, sums the bounds of each row
// column by column, and scores the rows whose bound reaches the worst of the
// best so far.
func (v view) scan(row int, q Query) []ranked {
	best := make([]ranked, 0, max(0, min(q.Limit, len(v.rows)))+1)
	if q.Limit <= 0 {
		return best
	}
	columns, factor := v.prepare(row)
	better := func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(v.users[a.row], v.users[b.row]))
	}
	floor := q.MinScore - slack
	var block [blockRows]int64
	for from := 0; from < len(v.users); from += blockRows {
		sums := block[:min(blockRows, len(v.users)-from)]
		clear(sums)
		for _, add := range columns {
			add(from, sums)
		}
		patterns := v.patterns[from : from+len(sums)]
		for i, sum := range sums {
			// Where a pattern cannot match, the factor and so the bound is NaN.
			if !(float64(sum)*factor[patterns[i]] >= floor) {
				continue
			}
			r := ranked{row: from + i}
			if r.row == row || q.Keep != nil && !q.Keep(v.users[r.row]) {
				continue
			}
			shared, either := v.weights(v.patterns[row], patterns[i])
			if !covers(shared, either) {
				continue
			}
			if r.score = v.score(row, r.row, shared); r.score < q.MinScore {
				continue
			}
			at, _ := slices.BinarySearchFunc(best, r, better)
			if at == q.Limit {
				continue
			}
			best = slices.Insert(best, at, r)
			if len(best) > q.Limit {
				best = best[:q.Limit]
			}
			if len(best) == q.Limit {
				floor = best[q.Limit-1].score - slack
			}
		}
	}
	return best
}

// prepare returns a summing function for each trait that row has and may use
// and, by pattern, what turns a sum into a bound: NaN where there is no match.
func (v view) prepare(row int) (columns []func(int, []int64), factor []float64) {
	own := v.presences.keys[v.patterns[row]]
	weigh := v.scale()
	total := weigh.sum(own)
	for _, i := range v.allowed {
		if own.has(i) {
			t := v.traits[i]
			columns = append(columns, t.values.bounds(row, int64(math.Ceil(t.Weight/total*weightUnits))))
		}
	}
	factor = make([]float64, len(v.presences.keys))
	for pattern, has := range v.presences.keys {
		var both, either presence
		for word := range own {
			both[word], either[word] = own[word]&has[word], own[word]|has[word]
		}
		shared := weigh.sum(both)
		factor[pattern] = math.NaN()
		if shared > 0 && shared/weigh.sum(either) >= MinCoverage-slack {
			factor[pattern] = total / (shared * weightUnits * one)
		}
	}
	return columns, factor
}

// scale weighs traits eight at a time: there can be as many patterns as users,
// and one branch for each of their traits would cost more than the scan. It
// adds up in another order than the exact score, which differs within slack.
type scale [][256]float64

func (v view) scale() scale {
	s := make(scale, (len(v.traits)+7)/8)
	for _, i := range v.allowed {
		s[i/8][1<<(i%8)] = v.traits[i].Weight
	}
	for group := range s {
		for eight := 1; eight < 256; eight++ {
			lowest := eight & -eight
			s[group][eight] = s[group][lowest] + s[group][eight^lowest]
		}
	}
	return s
}

func (s scale) sum(has presence) float64 {
	var sum float64
	for group := range s {
		sum += s[group][has[group/8]>>(group%8*8)&255]
	}
	return sum
}
