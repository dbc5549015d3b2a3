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

// search looks for the best matches of a row. It sums the bounds of other rows
// column by column, and scores those whose bound reaches the worst of the best
// so far.
type search struct {
	view
	query   Query
	row     int
	columns []func(int, []int64)
	factor  []float64
	floor   float64
	best    []ranked
	block   [blockRows]int64
}

func (v view) search(row int, q Query) *search {
	s := &search{view: v, query: q, row: row, floor: max(q.MinScore, LeastScore) - slack}
	s.columns, s.factor = v.prepare(row)
	s.best = make([]ranked, 0, min(q.Limit, len(v.rows))+1)
	return s
}

// scan answers a query: from the cells that are likely to hold the answers,
// where what the cells were made for is what is asked.
func (v view) scan(row int, q Query) []ranked {
	if q.Limit <= 0 {
		return nil
	}
	probes := 0
	if v.partition != nil && q.Keep == nil && len(v.allowed) == len(v.traits) {
		probes = v.partition.enough(q.Limit)
	}
	if probes == 0 {
		return v.everywhere(row, q)
	}
	s := v.search(row, q)
	for _, cell := range v.ranking(row, make([]int32, len(v.cells)), probes) {
		chunks := v.cells[cell].chunks
		for i := 0; i < len(chunks); {
			run := 1 // chunks in a row
			for i+run < len(chunks) && run < blockRows/chunkRows && chunks[i+run] == chunks[i]+run {
				run++
			}
			s.over(chunks[i]*chunkRows, run*chunkRows)
			i += run
		}
	}
	return s.best
}

// everywhere answers a query exactly.
func (v view) everywhere(row int, q Query) []ranked {
	s := v.search(row, q)
	for from := 0; from < len(v.users); from += blockRows {
		s.over(from, min(blockRows, len(v.users)-from))
	}
	return s.best
}

// over looks at rows that stand together, at most blockRows.
func (s *search) over(from, n int) {
	sums := s.block[:n]
	clear(sums)
	for _, add := range s.columns {
		add(from, sums)
	}
	patterns := s.patterns[from : from+n]
	for i, sum := range sums {
		// Where a pattern cannot match, the factor and so the bound is NaN.
		if float64(sum)*s.factor[patterns[i]] >= s.floor && from+i != s.row {
			s.consider(from + i)
		}
	}
}

// consider scores a row and keeps it while it is among the best.
func (s *search) consider(row int) {
	if s.query.Keep != nil && !s.query.Keep(s.users[row]) {
		return
	}
	shared, either := s.weights(s.patterns[s.row], s.patterns[row])
	if !covers(shared, either) {
		return
	}
	r := ranked{row, s.score(s.row, row, shared)}
	if r.score == 0 || r.score < s.query.MinScore {
		return
	}
	at, _ := slices.BinarySearchFunc(s.best, r, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(s.users[a.row], s.users[b.row]))
	})
	if at == s.query.Limit {
		return
	}
	s.best = slices.Insert(s.best, at, r)
	if len(s.best) >= s.query.Limit {
		s.best = s.best[:s.query.Limit]
		s.floor = s.best[s.query.Limit-1].score - slack
	}
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
