package matching

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"kindred/domain/splitmix"
)

// A partition groups alike users into cells, so that a search looks into a few
// of them: an inverted file as in Jégou, Douze and Schmid (2011), but with
// Gower's similarity itself where theirs has the distance of vectors, so that
// no user who stands in a probed cell is missed. A cell's centre is what its
// users hold on average, by which kernel k-means (Dhillon, Guan and Kulis,
// 2004) finds the cells and a search the order to look into them.
//
// Values are told apart as far as the anchors do: each stands for all values
// that are more like it than like any other anchor.
//
// A million users make 1,000 cells. Say that 98 % of the best 20 of users who were tried stood in
// the 60 cells whose centres were nearest to them. Then probes of 20 is 60, and a search for 20
// matches looks into its user's 60 nearest cells: at some 60,000 rows instead of a million.
//
// It is made in these steps: addAnchors, then rounds of home (each user of a sample goes to its
// nearest cell) and recentre (each cell's centre follows its users), then assignCells (all users go
// to their cells, whose rows are laid out together) and tune (how many cells to look into).
type partition struct {
	anchors int       // the first of the anchors' rows, which belong to no user
	centres [][]int32 // by trait*classCount+class of a value: its weighted similarity to each cell's users
	offsets [][]int32 // by trait and cell: half of what its users are alike among themselves
	probes  []int     // by depth: how many cells to look into; 0: all
}

const (
	anchorRows = 2 * chunkRows
	unlike     = anchorRows     // the class of a value that is like no anchor
	missing    = anchorRows + 1 // and of no value
	classCount = anchorRows + 2

	trainedOn  = 32 // users for each cell
	rounds     = 6
	unitCentre = 1 << 24 // a similarity of 1 of all traits
)

// Partition finds cells for the users that are there now, ceil(sqrt(n)) of
// them, and how many cells a search has to look into to find what is there to
// be found. It holds up everyone else for long, seconds for a million users, so
// it is for a population that nobody uses yet.
func (p *Population) Partition(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	random := splitmix.Source(seed)
	users := slices.Sorted(maps.Keys(p.rows))
	n := int(math.Ceil(math.Sqrt(float64(len(users)))))
	if n < 2 || len(p.traits) == 0 {
		return
	}
	splitmix.Shuffle(&random, users)
	p.partition = &partition{anchors: p.addAnchors(users[:min(anchorRows, len(users))])}
	p.train(users[:min(n*trainedOn, len(users))], n)
	p.assignCells(n)
	p.tune(users)
}

// addAnchors copies the values of some users to rows of their own.
func (p *Population) addAnchors(users []string) (first int) {
	first = p.grow(anchorRows / chunkRows)
	for i, user := range users {
		for _, t := range p.traits {
			t.values.copy(p.rows[user], first+i)
		}
	}
	return first
}

// classify appends the class of each trait of a row.
func (p *Population) classify(row int, dst []int) []int {
	has := &p.presences.keys[p.patterns[row]]
	var alike [anchorRows]int64
	for i, t := range p.traits {
		if !has.has(i) {
			dst = append(dst, missing)
			continue
		}
		clear(alike[:])
		t.values.bounds(row, 1)(p.partition.anchors, alike[:])
		best := 0
		for a, s := range alike {
			if s > alike[best] {
				best = a
			}
		}
		if alike[best] == 0 {
			best = unlike
		}
		dst = append(dst, best)
	}
	return dst
}

// train finds the centres of n cells by the users of a sample.
func (p *Population) train(sample []string, n int) {
	width := len(p.traits)
	profiles := make([]int, 0, len(sample)*width)
	for _, user := range sample {
		profiles = p.classify(p.rows[user], profiles)
	}
	likeness := p.likeness()
	homes := make([]int, len(sample))
	for i := range homes { // the sample is in random order: its first users are as good a beginning as any
		homes[i] = -1
		if i < n {
			homes[i] = i
		}
	}
	alike := make([]int32, n)
	for range rounds {
		p.partition.recentre(profiles, homes, likeness, n)
		for i := range homes {
			homes[i] = p.partition.home(profiles[i*width:][:width], alike)
		}
	}
	p.partition.recentre(profiles, homes, likeness, n)
}

// likeness is how alike the values of two classes are, by trait, class and
// class, times the trait's share of all weights. What is missing is as like what is
// there as a score takes it to be; users who both lack a trait are put together.
func (p *Population) likeness() [][]float32 {
	var total float64
	for _, t := range p.traits {
		total += t.Weight
	}
	var table [][]float32
	var alike [anchorRows]int64
	for _, t := range p.traits {
		share, expected := float32(t.Weight/total), float32(t.Expected)
		for class := range classCount {
			row := make([]float32, classCount)
			switch class {
			case missing:
				for i := range row {
					row[i] = share * expected
				}
				row[missing] = share
			default:
				row[missing] = share * expected
				if class == unlike {
					break
				}
				clear(alike[:])
				t.values.bounds(p.partition.anchors+class, 1)(p.partition.anchors, alike[:])
				for i, s := range alike {
					row[i] = share * float32(min(s, one)) / one
				}
			}
			table = append(table, row)
		}
	}
	return table
}

// recentre computes the centres of n cells from who is at home there. A cell
// without anyone attracts nobody.
func (c *partition) recentre(profiles, homes []int, likeness [][]float32, n int) {
	traits := len(likeness) / classCount
	members := make([][]int, n)
	for i, home := range homes {
		if home >= 0 {
			members[home] = append(members[home], i)
		}
	}
	c.centres = make([][]int32, len(likeness))
	for i := range c.centres {
		c.centres[i] = make([]int32, n)
	}
	c.offsets = make([][]int32, traits)
	for t := range c.offsets {
		c.offsets[t] = make([]int32, n)
	}
	var held, mean [classCount]float32
	for cell, own := range members {
		if len(own) == 0 {
			for t := range c.offsets {
				c.offsets[t][cell] = math.MaxInt32 / 2 / int32(traits)
			}
			continue
		}
		for t := range traits {
			var among float32
			clear(held[:])
			clear(mean[:])
			for _, i := range own {
				held[profiles[i*traits+t]] += 1 / float32(len(own))
			}
			for class, share := range held {
				if share == 0 {
					continue
				}
				for other, s := range likeness[t*classCount+class] {
					mean[other] += share * s
				}
			}
			for class, s := range mean {
				c.centres[t*classCount+class][cell] = int32(s * unitCentre)
				among += held[class] * s
			}
			c.offsets[t][cell] = int32(among / 2 * unitCentre)
		}
	}
}

// home is the cell whose centre is nearest to a user.
func (c *partition) home(profile []int, alike []int32) int {
	c.compare(profile, alike)
	best := 0
	for cell, s := range alike {
		if s > alike[best] {
			best = cell
		}
	}
	return best
}

// compare computes how near a user is to each cell: more is nearer.
// Traits whose class is below 0 take no part.
func (c *partition) compare(profile []int, alike []int32) {
	clear(alike)
	for t, class := range profile {
		if class < 0 {
			continue
		}
		centre, offsets := c.centres[t*classCount+class][:len(alike)], c.offsets[t][:len(alike)]
		for cell := range alike {
			alike[cell] += centre[cell] - offsets[cell]
		}
	}
}

// nearest is the cell where a row belongs.
func (p *Population) nearest(row int) int {
	var profile [16]int
	return p.partition.home(p.classify(row, profile[:0]), make([]int32, len(p.cells)))
}

// assignCells moves everyone into the cells, which are laid out one after another.
func (p *Population) assignCells(n int) {
	homes := make([][]int, n)
	alike := make([]int32, n)
	var profile []int
	for row, user := range p.users {
		if user != "" {
			profile = p.classify(row, profile[:0])
			home := p.partition.home(profile, alike)
			homes[home] = append(homes[home], row)
		}
	}
	p.cells, p.owners = make([]cell, n), nil
	var order []int
	for home, rows := range homes {
		c := &p.cells[home]
		for len(rows)%chunkRows != 0 {
			c.free = append(c.free, len(order)+len(rows))
			rows = append(rows, -1)
		}
		for range len(rows) / chunkRows {
			c.chunks = append(c.chunks, len(p.owners))
			p.owners = append(p.owners, home)
		}
		order = append(order, rows...)
	}
	for i := range anchorRows {
		order = append(order, p.partition.anchors+i)
	}
	p.partition.anchors = len(order) - anchorRows
	p.owners = append(p.owners, make([]int, anchorRows/chunkRows)...)
	for _, t := range p.traits {
		t.values.reorder(order)
	}
	p.marks.reorder(order)
	p.users = reordered(p.users, order, "")
	p.patterns = reordered(p.patterns, order, 0)
	for row, user := range p.users {
		if user != "" {
			p.rows[user] = row
		}
	}
}

const (
	tunedBy      = 200  // users
	wantedRecall = 0.98 // a little more than is promised, which holds for others than these users too
)

// depths are the limits up to which a number of probes is known to do.
func depths() []int { return []int{20, 100} }

// tune finds out how many cells hold the best matches of some users.
func (p *Population) tune(users []string) {
	v := p.view(nil)
	ranks := make([][]int, len(depths()))
	alike := make([]int32, len(p.cells))
	place := make([]int, len(p.cells))
	for _, user := range users[max(0, len(users)-tunedBy):] { // not those that the cells were made for
		row := p.rows[user]
		for rank, cell := range v.ranking(row, alike, len(p.cells)) {
			place[cell] = rank
		}
		deepest := depths()[len(depths())-1]
		for i, r := range v.everywhere(row, Query{Limit: deepest}) {
			for d, depth := range depths() {
				if i < depth {
					ranks[d] = append(ranks[d], place[p.owners[r.row/chunkRows]])
				}
			}
		}
	}
	for _, found := range ranks {
		slices.Sort(found)
		probes := 0
		if at := int(math.Ceil(wantedRecall*float64(len(found)))) - 1; at >= 0 && found[at] < len(p.cells)/2 {
			probes = found[at] + 1
		}
		p.partition.probes = append(p.partition.probes, probes)
	}
}

// probesFor is how many cells to look into for so many matches; 0 stands for all.
func (c *partition) probesFor(limit int) int {
	for i, depth := range depths() {
		if limit <= depth {
			return c.probes[i]
		}
	}
	return 0
}

// ranking returns the n cells that are nearest to a row, the nearest first.
func (v view) ranking(row int, alike []int32, n int) []int {
	var room [16]int
	profile := v.classify(row, room[:0])
	for t := range profile {
		if !v.mask.has(t) {
			profile[t] = -1
		}
	}
	v.partition.compare(profile, alike)
	cells := make([]int, len(alike))
	for cell := range cells {
		cells[cell] = cell
	}
	nearer := func(a, b int) int { return cmp.Or(cmp.Compare(alike[b], alike[a]), cmp.Compare(a, b)) }
	slices.SortFunc(cells, nearer)
	return cells[:n]
}
