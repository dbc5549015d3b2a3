package populations

import (
	"context"
	"sync"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/projections/readmodel"
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
	n := &Neighbours{Users: readmodel.Column(found, userOf), Score: readmodel.Column(found, func(m matching.Match) float64 { return m.Score })}
	n.group = sync.OnceValue(func() *matching.Group { return s.users.Group(readmodel.Texts(n.Users), s.permit) }) // who only counts them asks for none
	return n, nil
}

// Alike scores one neighbour with others, by their places, into similarity. It
// serves one goroutine.
func (n *Neighbours) Alike(neighbour int, others []int, similarity []float64) {
	n.group().Against(neighbour, others, similarity)
}
