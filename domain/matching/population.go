// Package matching finds the users of one client that are most like a given one, and says
// why: every score is the sum of the terms that come with it.
//
// The score is the weighted similarity of Gower (1971): for each trait a similarity in
// 0..1, and of those the weighted mean. A trait that only one of the two has counts as
// alike as two random users are in it; otherwise a user with few traits would be like
// everybody. A trait that neither has does not count; otherwise a user with few traits
// would be like nobody. Where what counts is less than a fifth of all weights, traits that
// neither has are added up to a fifth, as alike as two random users are. The score is
// symmetric, lies in 0..1, and is 1 between a user and itself where its traits have a fifth
// of all weights. Two users without a trait in common are no match.
//
// A [Population] first bounds every user's score from above in whole numbers, column by
// column, and then scores the few that can still be among the best in float64. The bound is
// never below the score, so nothing is missed. The answers are exact, unless the population
// was partitioned: then only those groups of users are looked at that hold nearly all of
// the best.
package matching

import (
	"errors"
	"sync"

	"kindred/domain/traits"
)

// leastScore is the least score of a match: a score is told with four decimals,
// and one that would be told as 0 says that two users have nothing in common.
const leastScore = 0.00005

// ErrUnknownUser says that a user is not in the population.
var ErrUnknownUser = errors.New("user is not in the population")

// Population is the users of one client, read under one schema. It is safe for
// concurrent use; a writer waits for the scans under way, a few milliseconds at
// 100,000 users, and holds readers up for one user's traits only. Callbacks run
// under its lock and must not call it.
type Population struct {
	mu        sync.RWMutex
	traits    []column
	rows      map[string]int
	users     []string            // by row, as are the columns
	patterns  []uint32            // by row: which traits the user has; 0 is a row without a user
	presences *interner[presence] // by pattern
	cells     []cell              // one, as long as the population is not partitioned
	owners    []int               // by chunk: its cell
	partition *partition          // nil: every search looks at everyone
	marks     marks               // by row, as are the columns
}

// cell is users whose rows stand together, in whole chunks.
type cell struct {
	chunks []int
	free   []int // rows without a user, the next one last
}

// chunkRows is how many rows a cell gets at once.
const chunkRows = 64

// column is a trait of the schema with everyone's values of it.
type column struct {
	traits.Trait
	values values
}

// values holds one trait of every user, in the form that its scan likes best.
type values interface {
	// grow adds n rows without a value.
	grow(n int)
	// put sets a row's value, of the trait's type.
	put(row int, v traits.Value)
	// clear takes a row's value away.
	clear(row int)
	// copy sets a row without a value to the value of another.
	copy(from, to int)
	// reorder moves each row order[i] to i; rows that are not named have no value.
	reorder(order []int)
	// similarity is that of two rows that have a value, in 0..1.
	similarity(a, b int) float64
	// bytes is about how much memory they take.
	bytes() int
	// bounds returns a function that adds, for each i, weight times an upper
	// bound of the similarity between row and from+i, in units of 1/one, to
	// sums[i]; 0 where from+i has no value.
	bounds(row int, weight int64) func(from int, sums []int64)
}

// New returns an empty population. Traits that do not participate take no part,
// and neither do numbers that are the same for nearly everyone.
func New(schema traits.Schema) *Population {
	p := &Population{rows: make(map[string]int), presences: newInterner[presence](), cells: make([]cell, 1), marks: marks{}}
	for _, t := range schema.Traits {
		if !t.Participates() || len(p.traits) == traits.MaxPaths {
			continue
		}
		var v values
		switch t.Type {
		case traits.TypeNumber, traits.TypeDate:
			if !(t.Numbers.Span() > 0) {
				continue
			}
			v = &numbers{origin: t.Numbers.P1, span: t.Numbers.Span()}
		case traits.TypeBool, traits.TypeCategory:
			v = &levels{known: newInterner[string]()}
		case traits.TypeSet:
			v = newSets(t.Levels)
		case traits.TypeGeo:
			v = newPlaces()
		default:
			continue
		}
		p.traits = append(p.traits, column{t, v})
	}
	return p
}

// Reweigh takes over the weights of another schema, and leaves out what takes no
// part there. It is false, and nothing changes, where the other schema reads
// something that this population does not know. A population that was partitioned
// answers exactly from then on: its cells were made for other weights.
func (p *Population) Reweigh(schema traits.Schema) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	weights, ok := p.weightsUnder(schema)
	if !ok {
		return false
	}
	for i, weight := range weights {
		p.traits[i].Weight = weight
	}
	if p.partition != nil {
		clear(p.partition.probes)
	}
	return true
}

// Len is the number of users.
func (p *Population) Len() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.rows)
}

// Bytes is about how much memory the population takes.
func (p *Population) Bytes() int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	const row, pattern = 128, 64 // a user's id, its place and pattern; a pattern's number and holders
	size := row*len(p.users) + pattern*len(p.presences.keys) + p.marks.bytes()
	for _, t := range p.traits {
		size += t.values.bytes()
	}
	return int64(size)
}

// Put adds a user, or replaces what was known of it.
func (p *Population) Put(user string, flat traits.Flat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row, ok := p.rows[user]
	if !ok {
		row = p.newRow(0)
		p.rows[user], p.users[row] = row, user
	}
	p.write(row, flat)
	if p.partition == nil {
		return
	}
	if home := p.nearest(row); p.owners[row/chunkRows] != home {
		p.move(row, home)
	}
}

// write puts what is known of a user into its row.
func (p *Population) write(row int, flat traits.Flat) {
	var has presence
	for i, t := range p.traits {
		t.values.clear(row)
		if v, ok := t.Read(flat); ok {
			t.values.put(row, v)
			has.set(i)
		}
	}
	p.presences.release(p.patterns[row])
	p.patterns[row] = p.presences.hold(has)
}

// move gives a user a row in another cell.
func (p *Population) move(row, home int) {
	to := p.newRow(home)
	for _, t := range p.traits {
		t.values.copy(row, to)
	}
	p.users[to], p.patterns[to] = p.users[row], p.patterns[row]
	p.rows[p.users[to]] = to
	p.marks.move(row, to)
	p.patterns[row] = 0 // the number went with the user
	p.leave(row)
}

// Remove takes a user out, who appears in no answer from then on.
func (p *Population) Remove(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	row, ok := p.rows[user]
	if !ok {
		return
	}
	delete(p.rows, user)
	p.leave(row)
}

// leave makes a row free for another user.
func (p *Population) leave(row int) {
	for _, t := range p.traits {
		t.values.clear(row)
	}
	p.presences.release(p.patterns[row])
	p.patterns[row] = 0
	p.users[row] = ""
	p.marks.move(row, -1)
	c := &p.cells[p.owners[row/chunkRows]]
	c.free = append(c.free, row)
}

// newRow takes a row of a cell, which gets another chunk where it has none left.
func (p *Population) newRow(home int) int {
	c := &p.cells[home]
	if len(c.free) == 0 {
		first := p.grow(1)
		p.owners[first/chunkRows] = home
		c.chunks = append(c.chunks, first/chunkRows)
		for row := first + chunkRows - 1; row >= first; row-- {
			c.free = append(c.free, row)
		}
	}
	last := len(c.free) - 1
	row := c.free[last]
	c.free = c.free[:last]
	return row
}

// grow adds chunks that belong to no cell yet and returns their first row.
func (p *Population) grow(chunks int) int {
	first, n := len(p.users), chunks*chunkRows
	p.users = append(p.users, make([]string, n)...)
	p.patterns = append(p.patterns, make([]uint32, n)...)
	p.owners = append(p.owners, make([]int, chunks)...)
	for _, t := range p.traits {
		t.values.grow(n)
	}
	return first
}

// presence is the set of traits that a user has, by their place in the population.
type presence [traits.MaxPaths / 64]uint64

// reordered returns the elements of s in another order; what is not named is
// none.
func reordered[T any](s []T, order []int, none T) []T {
	out := make([]T, len(order))
	for i, from := range order {
		out[i] = none
		if from >= 0 {
			out[i] = s[from]
		}
	}
	return out
}

// grown returns s with n more elements.
func grown[T any](s []T, n int, element T) []T {
	for range n {
		s = append(s, element)
	}
	return s
}

func (p *presence) set(i int)      { p[i/64] |= 1 << (i % 64) }
func (p *presence) has(i int) bool { return p[i/64]>>(i%64)&1 == 1 }
