package populations

import (
	"context"
	"sync"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/matching"
)

// Neighbours are the best matches of a user, the best first, for a caller that puts
// them in another order.
type Neighbours struct {
	Users []id.User
	Score []float64

	group func() *matching.Group
}

// Neighbours finds at most limit matches of a user among those that keep says
// may be found.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Neighbours(ctx context.Context, client id.Client, user id.User, within event.Within,
	keep func(user string) bool, limit int,
) (*Neighbours, error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	found, err := s.best(matching.Query{User: string(user), Limit: limit, Keep: keep, Bare: true})
	if err != nil {
		return nil, err
	}
	c := &Neighbours{Users: make([]id.User, len(found)), Score: make([]float64, len(found))}
	names := make([]string, len(found))
	for i, m := range found {
		c.Users[i], c.Score[i], names[i] = id.User(m.User), m.Score, m.User
	}
	c.group = sync.OnceValue(func() *matching.Group { return s.users.Group(names, s.permit) }) // who only counts them asks for none
	return c, nil
}

// Alike scores one neighbour with others, by their places, into similarity. It
// serves one goroutine.
func (n *Neighbours) Alike(neighbour int, others []int, similarity []float64) {
	n.group().Against(neighbour, others, similarity)
}
