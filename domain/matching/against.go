package matching

// Group is some users of a population who are compared with each other again
// and again. It serves one goroutine.
type Group struct {
	population *Population
	permit     func(path string) bool
	users      []string
	rows       []int // -1 for a user who is not there
}

// Group makes a group of users; permit is as for [Population.Pair].
func (p *Population) Group(users []string, permit func(path string) bool) *Group {
	p.mu.RLock()
	defer p.mu.RUnlock()
	g := &Group{population: p, permit: permit, users: users, rows: make([]int, len(users))}
	for i, user := range users {
		row, ok := p.rows[user]
		if !ok {
			row = -1
		}
		g.rows[i] = row
	}
	return g
}

// Against scores one of the group with each of several others, all by their
// places, into scores, which is as long as others: 0 where two are no match or
// one of them has gone.
func (g *Group) Against(one int, others []int, scores []float64) {
	p := g.population
	p.mu.RLock()
	defer p.mu.RUnlock()
	clear(scores)
	if !g.there(one) {
		return
	}
	v, a := p.view(g.permit), g.rows[one]
	for i, other := range others {
		if g.there(other) {
			scores[i], _ = v.score(a, g.rows[other])
		}
	}
}

// there says whether a row is still that of the user: it may have been left,
// and used again.
func (g *Group) there(one int) bool {
	row := g.rows[one]
	return row >= 0 && g.population.users[row] == g.users[one]
}
