package matching

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

// marks are a bitmap index: by the name of a mark, a bit for each row, which says whether the user
// of the row has it. A bitmap ends where nobody behind has the mark. A caller marks whom a rule
// names, or who has granted a consent layer, once and as users change, and then searches among
// those alone:
//
//	p.Mark("traits.age > 30", map[string]bool{"ada": true, "bob": false})
//	p.Top(Query{User: "eve", Limit: 10, Marked: []string{"traits.age > 30"}})
//
// The bitmaps of all marks of a query are joined by a bitwise and; see scanMarked.
type marks map[string][]uint64

func (m marks) set(mark string, row int, is bool) {
	word, bit := row/64, uint64(1)<<(row%64)
	switch {
	case word < len(m[mark]) && is:
		m[mark][word] |= bit
	case word < len(m[mark]):
		m[mark][word] &^= bit
	case is:
		m[mark] = grown(m[mark], word+1-len(m[mark]), 0)
		m[mark][word] |= bit
	}
}

func (m marks) has(mark string, row int) bool {
	return row/64 < len(m[mark]) && m[mark][row/64]>>(row%64)&1 == 1
}

// move gives a row the marks of another, which has none then; below 0 is no row.
func (m marks) move(from, to int) {
	for mark := range m {
		if to >= 0 {
			m.set(mark, to, m.has(mark, from))
		}
		m.set(mark, from, false)
	}
}

// reorder moves each row order[i] to i.
func (m marks) reorder(order []int) {
	for mark, bitmap := range m {
		old := marks{mark: bitmap}
		m[mark] = make([]uint64, 0, (len(order)+63)/64)
		for i, from := range order {
			if from >= 0 && old.has(mark, from) {
				m.set(mark, i, true)
			}
		}
	}
}

// bytes is how much memory they take.
func (m marks) bytes() (n int) {
	for mark, bitmap := range m {
		n += len(mark) + 8*cap(bitmap)
	}
	return n
}

// Mark says whether users have a mark. Who is not in the population gets none; who leaves
// it loses it.
func (p *Population) Mark(mark string, users map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.marks[mark] == nil {
		p.marks[mark] = make([]uint64, 0, len(p.users)/64+1)
	}
	for user, is := range users {
		if row, there := p.rows[user]; there {
			p.marks.set(mark, row, is)
		}
	}
}

// Rename calls a mark something else.
func (p *Population) Rename(mark, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marks[to] = p.marks[mark]
	delete(p.marks, mark)
}

// Unmark takes a mark from everybody: nobody is searched for by it any more.
func (p *Population) Unmark(mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.marks, mark)
}

const (
	// exactUpTo is how many marked rows are compared at least where half of all are, and fewer
	// where fewer are: the nearest of them hold the best, and where there are no more, all do.
	// 8,192, 3,700 and 2,048 of a half, a tenth and a hundredth of a million find .96, .975
	// and all (BenchmarkMarked, without structure); a row takes 0.4 µs of memory's time.
	exactUpTo, leastRows = 8_192, 2_048
	// denseFrom is how many marked rows of a chunk make it cheaper to bound all of them by
	// columns than to score these.
	denseFrom = 16
)

var combinedPool = sync.Pool{New: func() any { return new([]uint64) }}

// scanMarked answers a query for rows that have all of its marks. Where few have, it is exact;
// else it looks into the nearest cells, until it has compared enough rows that have them.
// A filter that leaves a row of a hundred makes the best stand a hundred times as far away,
// so what counts is rows that were compared, not cells: where the filter is against what is
// near, that leads further.
func (v view) scanMarked(row int, q Query, known []string) []ranked {
	scratch := combinedPool.Get().(*[]uint64)
	defer combinedPool.Put(scratch)
	*scratch = v.havingAll((*scratch)[:0], known)
	s := v.search(row, q)
	s.marked = *scratch
	count := 0
	for _, word := range s.marked {
		count += bits.OnesCount64(word)
	}
	least, probes := v.budget(q, count)
	if count <= least || probes == 0 {
		s.overMarked(0, len(s.marked))
		s.overFew()
		return s.best
	}
	compared := 0
	for i, cell := range v.ranking(row, make([]int32, len(v.cells)), len(v.cells)) {
		if i >= probes && compared >= least {
			if s.overFew(); len(s.best) >= q.Limit {
				break
			}
		}
		chunks := v.cells[cell].chunks
		for i := 0; i < len(chunks); {
			run := 1 // chunks in a row
			for i+run < len(chunks) && chunks[i+run] == chunks[i]+run {
				run++
			}
			compared += s.overMarked(chunks[i], run)
			i += run
		}
	}
	s.overFew()
	return s.best
}

// budget is how many of so many marked rows a search compares at least, and in how many cells; 0
// where cells do not help. Seen through a part of the traits what is alike stands in more
// of them: through 8 of 10 traits without structure, .91 is found in as many, .94 in as many by
// the square of the weights left out, and .965 by their cube.
func (v view) budget(q Query, marked int) (rows, probes int) {
	if v.partition == nil || v.partition.probesFor(q.Limit) == 0 {
		return exactUpTo, 0
	}
	share := float64(marked) / float64(len(v.rows))
	var all float64
	for _, t := range v.traits {
		all += t.Weight
	}
	wider := all / v.total
	probes = int(min(float64(v.partition.probesFor(q.Limit))*wider*wider*wider, float64(len(v.cells))))
	return int(min(max(leastRows, exactUpTo*min(1, math.Sqrt(2*share)))*wider, float64(marked))), probes
}

// havingAll appends which rows have all of some marks.
func (v view) havingAll(dst []uint64, all []string) []uint64 {
	dst = append(dst, v.marks[all[0]]...)
	for _, mark := range all[1:] {
		bitmap := v.marks[mark]
		dst = dst[:min(len(dst), len(bitmap))]
		for i := range dst {
			dst[i] &= bitmap[i]
		}
	}
	return dst
}

// known are those of some marks that the population has.
func (m marks) known(asked []string) []string {
	unknown := func(mark string) bool { return m[mark] == nil }
	if !slices.ContainsFunc(asked, unknown) {
		return asked
	}
	return slices.DeleteFunc(slices.Clone(asked), unknown)
}

// overMarked looks at the marked rows of chunks that stand together, or leaves them to overFew, and
// counts them.
func (s *search) overMarked(from, chunks int) (compared int) {
	chunks = min(chunks, len(s.marked)-from)
	for at := from; at < from+chunks; {
		word := s.marked[at]
		n := bits.OnesCount64(word)
		compared += n
		if n < denseFrom {
			for ; word != 0; word &= word - 1 {
				if s.few = append(s.few, at*chunkRows+bits.TrailingZeros64(word)); len(s.few) == chunkRows {
					s.overFew()
				}
			}
			at++
			continue
		}
		run := 1
		for ; run < blockRows/chunkRows && at+run < from+chunks; run++ {
			more := bits.OnesCount64(s.marked[at+run])
			if more < denseFrom {
				break
			}
			compared += more
		}
		s.over(at*chunkRows, run*chunkRows)
		at += run
	}
	return compared
}

// overFew looks at rows that stand apart, at most chunkRows: column by column, so that
// memory is waited for once for several of them. More at once would all be scored, before a best
// one says which are not worth it.
func (s *search) overFew() {
	sums := s.block[:len(s.few)]
	clear(sums)
	for _, add := range s.columns {
		for i, row := range s.few {
			add(row, sums[i:i+1])
		}
	}
	for i, sum := range sums {
		if row := s.few[i]; s.mayBe(sum, row) {
			s.consider(row)
		}
	}
	s.few = s.few[:0]
}
