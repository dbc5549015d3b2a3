package populations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/traits"
	"kindred/projections"
	"kindred/projections/readmodel"
)

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

func (p *Populations) scope(ctx context.Context, client id.Client, within event.Within) (s scope, err error) {
	of := layerOf{client, within.Layer}
	if within.Layer != "" {
		s.layer = getOrAdd(p.layers, of, newConsentSet())
	}
	now, marked, err := p.current(ctx, client, s.layer, within.TraitParts...)
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

// Top returns the best matches of a user, the best first.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Top(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) ([]event.MatchComputed, error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	return s.top(user, within, limit)
}

// TopKept is Top of those whom all rules of within.TraitParts name; ok is false where one of these
// is not kept.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) TopKept(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) (found []event.MatchComputed, ok bool, err error) {
	s, err := p.scope(ctx, client, within)
	if err != nil || s.kept < len(within.TraitParts) {
		return nil, false, err
	}
	found, err = s.top(user, within, limit)
	return found, err == nil, err
}

func (s scope) top(user id.User, within event.Within, limit int) ([]event.MatchComputed, error) {
	found, err := s.best(matching.Query{User: string(user), Limit: limit})
	return s.matches(user, within, found), err
}

// best answers a query of the scope.
func (s scope) best(query matching.Query) ([]matching.Match, error) {
	query.Permit, query.Marked = s.permit, s.marked
	defer s.keepToLayer(&query)()
	found, err := s.users.Top(query)
	return found, notThere(err)
}

// keepToLayer keeps a query to those who have granted the layer, if the scope has one. Nobody
// grants or withdraws it until the function that it returns is called.
func (s scope) keepToLayer(query *matching.Query) (release func()) {
	if s.layer == nil {
		return func() {}
	}
	s.layer.mu.RLock()
	among := query.Keep
	query.Keep = func(other string) bool { return s.layer.has(other) && (among == nil || among(other)) }
	return s.layer.mu.RUnlock
}

// Candidates returns who the best matches of a user are, the best first, for a caller that leaves
// some of them out.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Candidates(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) ([]id.User, error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	found, err := s.best(matching.Query{User: string(user), Limit: limit, Bare: true})
	return readmodel.Column(found, userOf), err
}

// Explained returns the matches of a user with some others, the best first, without who is none,
// or has not granted the layer.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Explained(ctx context.Context, client id.Client, user id.User, within event.Within, others []id.User) ([]event.MatchComputed, error) {
	within.TraitParts = nil // by which nobody is searched for here
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(others))
	if s.layer != nil {
		s.layer.mu.RLock()
		defer s.layer.mu.RUnlock()
	}
	for _, other := range others {
		if s.layer == nil || s.layer.has(string(other)) {
			names = append(names, string(other))
		}
	}
	found, err := s.users.Explain(string(user), names, s.permit)
	return s.matches(user, within, found), notThere(err)
}

// Under returns the best matches of a user as they would be under other decisions about
// traits, without percentiles, of some others alone unless these are nil. ok is false where the
// decisions read what is not compared now.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) Under(ctx context.Context, client id.Client, user id.User, within event.Within, decisions map[string]event.TraitOverride, among []id.User, limit int) (
	matches []event.MatchComputed, ok bool, err error,
) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, false, err
	}
	query := matching.Query{User: string(user), Limit: limit}
	if among != nil {
		these := make(map[string]bool, len(among))
		for _, one := range among {
			these[string(one)] = true
		}
		query.Keep = func(other string) bool { return these[other] }
	}
	found, ok, err := s.under(decisions, query)
	matches = s.matches(user, within, found)
	for i := range matches {
		matches[i].Percentile = 0
	}
	return matches, ok, err
}

// CandidatesUnder returns who these are.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
func (p *Populations) CandidatesUnder(ctx context.Context, client id.Client, user id.User, within event.Within, decisions map[string]event.TraitOverride, limit int) (
	users []id.User, ok bool, err error,
) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, false, err
	}
	found, ok, err := s.under(decisions, matching.Query{User: string(user), Limit: limit, Bare: true})
	return readmodel.Column(found, userOf), ok, err
}

func (s scope) under(decisions map[string]event.TraitOverride, query matching.Query) (found []matching.Match, ok bool, err error) {
	schema, ok := s.schema.Decide(projections.OverridesOf(decisions))
	if !ok {
		return nil, false, nil
	}
	query.Permit = s.permit
	defer s.keepToLayer(&query)()
	found, ok, err = s.users.Under(schema, query)
	return found, ok, notThere(err)
}

// Pair compares two users. ok is false where they are no match, or the other
// one has not granted the layer.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
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
	return s.computed(user, within, found), true, nil
}

// Like scores a user as if it had other traits; ok is false where the two are
// no match.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, user_unknown.
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

func notThere(err error) error {
	if errors.Is(err, matching.ErrUnknownUser) {
		return fault.UnknownUser()
	}
	return err
}

func userOf(m matching.Match) id.User { return id.User(m.User) }

func (s scope) matches(user id.User, within event.Within, found []matching.Match) []event.MatchComputed {
	return readmodel.Column(found, func(m matching.Match) event.MatchComputed { return s.computed(user, within, m) })
}

func (s scope) computed(user id.User, within event.Within, m matching.Match) event.MatchComputed {
	return event.MatchComputed{
		User: user, MatchedUser: id.User(m.User), Layer: within.Layer, Score: m.Score, Coverage: m.Coverage,
		Percentile: s.distribution.Percentile(m.Score), Schema: s.version,
		Explanation: readmodel.Column(m.Terms, func(t matching.Term) event.Term { return event.Term(t) }),
	}
}
