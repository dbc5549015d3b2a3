package projections

import (
	"context"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/matching"
)

// Companions are the best matches of a user, the best first, for those who put
// them in another order.
type Companions struct {
	Users []id.User
	Score []float64

	population *matching.Population
	permit     func(path string) bool
	names      []string
}

// Companions finds at most limit matches of a user among those that keep says
// may be found.
func (p *Populations) Companions(ctx context.Context, client id.Client, user id.User, within event.Within,
	keep func(user string) bool, limit int,
) (*Companions, error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	query := matching.Query{User: string(user), Limit: limit, Permit: s.permit, Keep: keep}
	if s.layer != nil {
		s.layer.mu.RLock()
		defer s.layer.mu.RUnlock()
		query.Keep = func(other string) bool { return s.layer.has(other) && keep(other) }
	}
	found, err := s.users.Top(query)
	if err != nil {
		return nil, notThere(err)
	}
	c := &Companions{population: s.users, permit: s.permit, names: make([]string, 0, len(found))}
	for _, m := range found {
		c.Users, c.Score = append(c.Users, id.User(m.User)), append(c.Score, m.Score)
	}
	return c, nil
}

// Alike scores one companion with others, by their places, into similarity. It
// serves one goroutine.
func (c *Companions) Alike(companion int, others []int, similarity []float64) {
	c.names = c.names[:0]
	for _, o := range others {
		c.names = append(c.names, string(c.Users[o]))
	}
	c.population.Against(string(c.Users[companion]), c.names, c.permit, similarity)
}
