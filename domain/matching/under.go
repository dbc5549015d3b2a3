package matching

import (
	"slices"

	"kindred/domain/traits"
)

// Under answers a query under the weights of another schema, which is taken over by
// nobody. It looks at everyone, partitioned or not. It is false where the other schema
// reads something that this population does not know. The error is [ErrUnknownUser].
func (p *Population) Under(schema traits.Schema, q Query) ([]Match, bool, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	weights, ok := p.weightsUnder(schema)
	if !ok {
		return nil, false, nil
	}
	other := &Population{
		traits: slices.Clone(p.traits), rows: p.rows, users: p.users, patterns: p.patterns, presences: p.presences,
		cells: p.cells, owners: p.owners, marks: p.marks,
	}
	for i, weight := range weights {
		other.traits[i].Weight = weight
	}
	found, err := other.Top(q)
	return found, true, err
}

// weightsUnder are the weights of the traits in another schema, 0 where one takes no
// part there; false where that reads something that is not known.
func (p *Population) weightsUnder(schema traits.Schema) ([]float64, bool) {
	weights := make([]float64, len(p.traits))
	for _, t := range schema.Traits {
		if !t.Participates() || (t.Type == traits.TypeNumber || t.Type == traits.TypeDate) && !(t.Numbers.Span() > 0) {
			continue
		}
		i := slices.IndexFunc(p.traits, func(c column) bool { return c.Path == t.Path })
		if i < 0 || p.traits[i].Type != t.Type || p.traits[i].Declared != t.Declared || p.traits[i].Numbers != t.Numbers {
			return nil, false
		}
		weights[i] = t.Weight
	}
	return weights, true
}

// Numbers are the values of a number or a date, in no order; nil where the trait takes
// no part in matches or is of another type.
func (p *Population) Numbers(path string) []float64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	c, ok := p.column(path).(*numbers)
	if !ok {
		return nil
	}
	var known []float64
	for row, fixed := range c.fixed {
		if fixed != absent {
			known = append(known, c.exact[row])
		}
	}
	return known
}

// Levels counts the users by their value of a bool or a category; nil likewise.
func (p *Population) Levels(path string) map[string]int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	c, ok := p.column(path).(*levels)
	if !ok {
		return nil
	}
	counts := make(map[string]int, len(c.known.numbers))
	for level, n := range c.known.numbers {
		counts[level] = c.known.holders[n]
	}
	return counts
}

func (p *Population) column(path string) values {
	i := slices.IndexFunc(p.traits, func(c column) bool { return c.Path == path })
	if i < 0 {
		return nil
	}
	return p.traits[i].values
}
