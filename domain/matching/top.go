package matching

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Query asks for the best matches of one user.
type Query struct {
	User   string
	Limit  int                         // at most this many answers
	Marked []string                    // only who has all of these marks; those that the population has not do not count
	Permit func(path string) bool      // the traits to look at; nil: all
	Keep   func(candidate string) bool // who may be answered; nil: everyone else. Asked only about those who could be
	Bare   bool                        // the answers are not explained: of 256 traits, that takes 12 KiB each
}

// Top returns the best matches, by score and then by a hash of the pair, so that
// nobody is always the first of equals. The user itself is never among them. The error is [ErrUnknownUser].
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
		if matches[i] = (Match{User: v.users[r.row], Score: r.score}); !q.Bare {
			matches[i] = v.explain(row, r.row, r.score)
		}
	}
	return matches, nil
}

// ranked is a row that was scored.
type ranked struct {
	row   int
	score float64
	lot   uint64 // between rows of one score
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
	own     uint64 // hash of the user's id
	columns []func(int, []int64)
	views   []outlook // by pattern
	floor   float64
	best    []ranked
	marked  []uint64 // by row, which may be answered; nil: every one
	few     []int    // rows of these that are still to be looked at
	block   [blockRows]int64
}

func (v view) search(row int, q Query) *search {
	s := &search{view: v, query: q, row: row, floor: leastScore - slack}
	s.columns, s.views = v.prepare(row)
	s.own = hashOf(v.users[row])
	s.best = make([]ranked, 0, min(q.Limit, len(v.rows))+1)
	return s
}

// scan answers a query: from the cells that are likely to hold the answers,
// where what the cells were made for is what is asked.
func (v view) scan(row int, q Query) []ranked {
	if q.Limit <= 0 {
		return nil
	}
	if known := v.marks.known(q.Marked); len(known) > 0 {
		return v.scanMarked(row, q, known)
	}
	probes := 0
	if v.partition != nil && q.Keep == nil && len(v.allowed) == len(v.traits) {
		probes = v.partition.probesFor(q.Limit)
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
	for i, sum := range sums {
		if s.mayBe(sum, from+i) {
			s.consider(from + i)
		}
	}
}

// mayBe says whether a row may be among the best, by the sum of its bounds. Where a pattern cannot
// match, the rest and so the bound is NaN.
func (s *search) mayBe(sum int64, row int) bool {
	view := &s.views[s.patterns[row]]
	return float64(sum)*view.scale+view.rest >= s.floor && row != s.row
}

// consider scores a row and keeps it while it is among the best.
func (s *search) consider(row int) {
	if s.marked != nil && s.marked[row/64]>>(row%64)&1 == 0 {
		return
	}
	score, match := s.score(s.row, row)
	if !match || score < s.floor || s.query.Keep != nil && !s.query.Keep(s.users[row]) {
		return
	}
	r := ranked{row, score, mix(s.own + hashOf(s.users[row]))}
	at, _ := slices.BinarySearchFunc(s.best, r, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.lot, b.lot), strings.Compare(s.users[a.row], s.users[b.row]))
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

// outlook is what a pattern makes of a sum: its bound is sum*scale + rest, where the
// rest is what missing traits add; NaN where there is no match.
type outlook struct{ scale, rest float64 }

// prepare returns a summing function for each trait that row has and may use, and an
// outlook for each pattern.
func (v view) prepare(row int) (columns []func(int, []int64), views []outlook) {
	own := v.presences.keys[v.patterns[row]]
	for _, i := range v.allowed {
		if t := v.traits[i]; own.has(i) {
			columns = append(columns, t.values.bounds(row, int64(math.Ceil(t.Weight/v.total*weightUnits))))
		}
	}
	table := v.weighed()
	all := table.sum(v.mask)
	views = make([]outlook, len(v.presences.keys))
	for pattern, has := range v.presences.keys {
		views[pattern].rest = math.NaN()
		if !v.share(v.patterns[row], uint32(pattern)) {
			continue
		}
		var both, either presence
		for word := range has {
			both[word], either[word] = has[word]&own[word], has[word]^own[word]
		}
		shared, single := table.sum(both), table.sum(either)
		whole, part := v.counted(shared.weight + single.weight)
		unsaid := all.expected - shared.expected - single.expected
		views[pattern] = outlook{v.total / (whole * weightUnits * one), (single.expected + part*unsaid) / whole}
	}
	return columns, views
}

// weights adds up the weights of traits and what is expected of them, eight at a time:
// there can be as many patterns as users, and one branch for each of their traits
// would cost more than the scan. It adds up in another order than the exact score,
// which differs within slack.
type weights [][256]weighed

type weighed struct{ weight, expected float64 }

func (v view) weighed() weights {
	w := make(weights, (len(v.traits)+7)/8)
	for _, i := range v.allowed {
		t := v.traits[i]
		w[i/8][1<<(i%8)] = weighed{t.Weight, t.Weight * t.Expected}
	}
	for group := range w {
		for eight := 1; eight < 256; eight++ {
			lowest := eight & -eight
			w[group][eight] = w[group][lowest].plus(w[group][eight^lowest])
		}
	}
	return w
}

func (w weights) sum(has presence) (sum weighed) {
	for group := range w {
		sum = sum.plus(w[group][has[group/8]>>(group%8*8)&255])
	}
	return sum
}

func (w weighed) plus(o weighed) weighed {
	return weighed{w.weight + o.weight, w.expected + o.expected}
}
