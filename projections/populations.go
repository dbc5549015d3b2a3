package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/traits"
)

// Populations keeps the users of the clients that were last asked about in
// memory, ready to be compared. Each request first takes in what has changed.
type Populations struct {
	Users   Users
	Consent Consent
	Schemas TraitSchemas
	// Record records a schema that was learnt from so many users while the
	// given version was the newest; where it is not any more, nothing.
	Record func(ctx context.Context, client id.Client, under, users int, schema []byte) error
	Logger *slog.Logger

	memory  budget
	clients *lru.Cache[id.Client, *population]
	layers  *lru.Cache[layerOf, *consentSet]
	behind  chan id.Client // clients whose population is to be built anew
	wanted  *wantedQueue
}

// maxPopulations bounds how many clients are kept in memory.
// limit: models | clients whose users are in memory | {maxPopulations}
const maxPopulations = 1024

// NewPopulations keeps nothing in memory yet, and never more than so many bytes.
// Record and Logger are set before it is used.
func NewPopulations(reader Reader, memory int64) (*Populations, error) {
	p := &Populations{
		Users: Users{Reader: reader}, Consent: Consent{reader}, Schemas: TraitSchemas{reader},
		behind: make(chan id.Client, maxPopulations), wanted: newWantedQueue(),
	}
	p.memory.whole, p.memory.forget = memory, p.forget
	var err error
	p.clients, err = lru.NewWithEvict(maxPopulations, func(_ id.Client, pop *population) { p.memory.release(&pop.held) })
	if err != nil {
		return nil, fmt.Errorf("keep populations: %w", err)
	}
	p.layers, err = lru.NewWithEvict(maxLayers, func(_ layerOf, c *consentSet) {
		c.evict()
		p.memory.release(&c.held)
	})
	if err != nil {
		return nil, fmt.Errorf("keep consents: %w", err)
	}
	return p, nil
}

// heldBy is a population, or the consents of a layer, in memory.
type heldBy struct {
	*holding
	owner  string
	forget func() bool
}

// all are the populations and then the consents, those first that were used longest ago.
func (p *Populations) all() (all []heldBy) {
	for _, client := range p.clients.Keys() {
		if pop, found := p.clients.Peek(client); found {
			all = append(all, heldBy{&pop.held, client.Owner(), func() bool { return p.clients.Remove(client) }})
		}
	}
	for _, of := range p.layers.Keys() {
		if c, found := p.layers.Peek(of); found {
			all = append(all, heldBy{&c.held, of.client.Owner(), func() bool { return p.layers.Remove(of) }})
		}
	}
	return all
}

// forget forgets one of all but one, which is to have a size: the first one of a client that
// has more than its part with its sandboxes, else the first one.
func (p *Populations) forget(but *holding, size int64) bool {
	all, has := p.all(), map[string]int64{}
	for _, k := range all {
		if k.holding == but {
			has[k.owner] += size
		} else {
			has[k.owner] += k.bytes.Load()
		}
	}
	for _, most := range []int64{p.memory.whole / clientPart, -1} {
		for _, k := range all {
			if k.holding != but && k.bytes.Load() > 0 && has[k.owner] > most {
				return k.forget()
			}
		}
	}
	return false
}

// getOrAdd returns what is in memory under a key, or fresh, which is from now on.
func getOrAdd[K comparable, V any](memory *lru.Cache[K, V], key K, fresh V) V {
	known, found, _ := memory.PeekOrAdd(key, fresh)
	if !found {
		return fresh
	}
	memory.Get(key) // it was used just now
	return known
}

// scope is what a comparison may look at.
type scope struct {
	users        *matching.Population
	schema       traits.Schema
	version      int // of the schema
	distribution matching.Distribution
	permit       func(path string) bool // nil: every trait
	layer        *consentSet            // nil: everyone
	marked       []string
	kept         int // of these, for rules
}

// Top returns the best matches of a user, the best first.
// Faults: building, busy, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Top(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) ([]event.MatchComputed, error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	return s.top(user, within, limit)
}

// TopKept is Top of those whom all rules of within.Lasting name; ok is false where one of these
// is not kept.
// Faults: building, busy, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) TopKept(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) (found []event.MatchComputed, ok bool, err error) {
	s, err := p.scope(ctx, client, within)
	if err != nil || s.kept < len(within.Lasting) {
		return nil, false, err
	}
	found, err = s.top(user, within, limit)
	return found, err == nil, err
}

func (s scope) top(user id.User, within event.Within, limit int) ([]event.MatchComputed, error) {
	query := matching.Query{User: string(user), Limit: limit, Permit: s.permit, Marked: s.marked}
	if s.layer != nil {
		s.layer.mu.RLock()
		defer s.layer.mu.RUnlock()
		query.Keep = s.layer.has
	}
	found, err := s.users.Top(query)
	if err != nil {
		return nil, notThere(err)
	}
	matches := make([]event.MatchComputed, len(found))
	for i, m := range found {
		matches[i] = s.computed(user, m)
		matches[i].Layer = within.Layer
	}
	return matches, nil
}

// Under returns the best matches of a user as they would be under other decisions about
// traits, without percentiles. ok is false where these read what is not compared now.
// Faults: building, busy, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Under(ctx context.Context, client id.Client, user id.User, within event.Within, decisions map[string]event.TraitOverride, limit int) (
	matches []event.MatchComputed, ok bool, err error,
) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, false, err
	}
	schema, ok := s.schema.Decide(overridesOf(decisions))
	if !ok {
		return nil, false, nil
	}
	query := matching.Query{User: string(user), Limit: limit, Permit: s.permit}
	if s.layer != nil {
		s.layer.mu.RLock()
		defer s.layer.mu.RUnlock()
		query.Keep = s.layer.has
	}
	found, ok, err := s.users.Under(schema, query)
	if err != nil || !ok {
		return nil, ok, notThere(err)
	}
	for _, m := range found {
		computed := s.computed(user, m)
		computed.Percentile, computed.Layer = 0, within.Layer
		matches = append(matches, computed)
	}
	return matches, true, nil
}

// Pair compares two users. ok is false where they are no match, or the other
// one has not granted the layer.
// Faults: building, busy, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Pair(ctx context.Context, client id.Client, user, other id.User, within event.Within) (m event.MatchComputed, ok bool, err error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return m, false, err
	}
	if s.layer != nil {
		s.layer.mu.RLock()
		defer s.layer.mu.RUnlock()
		if !s.layer.has(string(other)) {
			return m, false, nil
		}
	}
	found, ok, err := s.users.Pair(string(user), string(other), s.permit)
	if err != nil || !ok {
		return m, false, notThere(err)
	}
	m = s.computed(user, found)
	m.Layer = within.Layer
	return m, true, nil
}

// Like scores a user as if it had other traits; ok is false where the two are
// no match.
// Faults: building, busy, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Like(ctx context.Context, client id.Client, document json.RawMessage, other id.User) (score float64, ok bool, err error) {
	flat, err := traits.Flatten(document)
	if err != nil {
		return 0, false, fmt.Errorf("read traits of before: %w", err)
	}
	now, _, err := p.current(ctx, client, nil)
	if err != nil {
		return 0, false, err
	}
	score, ok, err = now.users.Like(flat, string(other))
	return score, ok, notThere(err)
}

func (p *Populations) scope(ctx context.Context, client id.Client, within event.Within) (s scope, err error) {
	of := layerOf{client, within.Layer}
	if within.Layer != "" {
		s.layer = getOrAdd(p.layers, of, newConsentSet())
	}
	now, marked, err := p.current(ctx, client, s.layer, within.Lasting...)
	if err != nil {
		return s, err
	}
	s.marked, s.kept = marked, len(marked)
	s.users, s.schema, s.version, s.distribution = now.users, now.schema, now.schema.Version, *now.distribution
	if within.Layer == "" {
		return s, nil
	}
	if err := p.takeIn(ctx, of, s.layer); err != nil {
		return s, err
	}
	s.layer.markIn(s.users)
	s.marked, s.permit = append(s.marked, s.layer.mark), traits.Permit(within.TraitPaths)
	s.distribution = s.layer.among(s.users, s.version, strings.Join(within.TraitPaths, "\x00"), s.permit)
	return s, nil
}

func notThere(err error) error {
	if errors.Is(err, matching.ErrUnknownUser) {
		return errUserUnknown()
	}
	return err
}

func (s scope) computed(user id.User, m matching.Match) event.MatchComputed {
	explanation := make([]event.Term, len(m.Terms))
	for i, t := range m.Terms {
		explanation[i] = event.Term(t)
	}
	return event.MatchComputed{
		User: user, MatchedUser: id.User(m.User), Score: m.Score, Coverage: m.Coverage,
		Percentile: s.distribution.Percentile(m.Score), Explanation: explanation, Schema: s.version,
	}
}
