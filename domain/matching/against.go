package matching

// Against scores a user with each of several others, 0 where two are no match
// or one of them is not there, into scores, which is as long as others. permit
// is as for [Population.Pair].
func (p *Population) Against(user string, others []string, permit func(path string) bool, scores []float64) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	clear(scores)
	a, ok := p.rows[user]
	if !ok {
		return
	}
	v := p.view(permit)
	for i, other := range others {
		b, ok := p.rows[other]
		if !ok {
			continue
		}
		if shared, either := v.weights(p.patterns[a], p.patterns[b]); covers(shared, either) {
			scores[i] = v.score(a, b, shared)
		}
	}
}
