package projections

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/traits"
	"kindred/eventstore"
)

// Populations keeps the users of the clients that were last asked about in
// memory, ready to be compared. Each request first takes in what has changed.
type Populations struct {
	users   Users
	consent Consent
	clients *lru.Cache[id.Client, *population]
	layers  *lru.Cache[layerOf, *consenting]
}

const (
	// maxPopulations bounds how many clients are kept in memory.
	maxPopulations = 64
	// changesAtOnce is how many changed users are read in one statement.
	changesAtOnce = 5_000
	// retrainShare: once a fifth of the users has changed, the schema of
	// their traits is inferred again.
	retrainShare = 5
	// pairsSeed makes the random pairs of a percentile the same ones each time.
	pairsSeed = 1
)

// NewPopulations keeps populations on top of the users model.
func NewPopulations(users Users, consent Consent) (*Populations, error) {
	clients, err := lru.New[id.Client, *population](maxPopulations)
	if err != nil {
		return nil, fmt.Errorf("keep populations: %w", err)
	}
	layers, err := lru.New[layerOf, *consenting](maxLayers)
	if err != nil {
		return nil, fmt.Errorf("keep consents: %w", err)
	}
	return &Populations{users: users, consent: consent, clients: clients, layers: layers}, nil
}

// population is the users of one client. mu guards all but users' own state.
type population struct {
	mu           sync.Mutex
	reached      eventstore.Position
	trained      int // users when the schema was inferred
	changed      int // changes since then
	users        *matching.Population
	distribution *matching.Distribution
}

// scope is what a comparison may look at.
type scope struct {
	users        *matching.Population
	distribution matching.Distribution
	permit       func(path string) bool // nil: every trait
	layer        *consenting            // nil: everyone
}

// Top returns the best matches of a user, the best first.
func (p *Populations) Top(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) ([]event.MatchComputed, error) {
	s, err := p.scope(ctx, client, within)
	if err != nil {
		return nil, err
	}
	query := matching.Query{User: string(user), Limit: limit, Permit: s.permit}
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
		matches[i] = computed(user, m, s.distribution)
		matches[i].Layer = within.Layer
	}
	return matches, nil
}

// Pair compares two users. ok is false where they are no match, or the other
// one has not granted the layer.
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
	m = computed(user, found, s.distribution)
	m.Layer = within.Layer
	return m, true, nil
}

func (p *Populations) scope(ctx context.Context, client id.Client, within event.Within) (s scope, err error) {
	if s.users, s.distribution, err = p.current(ctx, client); err != nil || within.Layer == "" {
		return s, err
	}
	of, fresh := layerOf{client, within.Layer}, &consenting{}
	layer, found, _ := p.layers.PeekOrAdd(of, fresh)
	if found {
		p.layers.Get(of) // it was used just now
	} else {
		layer = fresh
	}
	if err := layer.takeIn(ctx, p.consent, of); err != nil {
		return s, err
	}
	s.layer, s.permit = layer, traits.Permit(within.TraitPaths)
	s.distribution = layer.among(s.users, strings.Join(within.TraitPaths, "\x00"), s.permit)
	return s, nil
}

func notThere(err error) error {
	if errors.Is(err, matching.ErrUnknownUser) {
		return fault.New(fault.Missing, "user_unknown", "There is no such user.")
	}
	return err
}

func computed(user id.User, m matching.Match, d matching.Distribution) event.MatchComputed {
	explanation := make([]event.Term, len(m.Terms))
	for i, t := range m.Terms {
		explanation[i] = event.Term(t)
	}
	return event.MatchComputed{
		User: user, MatchedUser: id.User(m.User), Score: m.Score, Coverage: m.Coverage,
		Percentile: d.Percentile(m.Score), Explanation: explanation,
	}
}

// current returns a client's users with every acknowledged change.
func (p *Populations) current(ctx context.Context, client id.Client) (*matching.Population, matching.Distribution, error) {
	fresh := &population{}
	pop, found, _ := p.clients.PeekOrAdd(client, fresh)
	if found {
		p.clients.Get(client) // it was used just now
	} else {
		pop = fresh
	}
	pop.mu.Lock()
	defer pop.mu.Unlock()
	if err := p.takeIn(ctx, client, pop); err != nil {
		return nil, matching.Distribution{}, err
	}
	if pop.distribution == nil {
		d := pop.users.Distribution(pairsSeed, nil)
		pop.distribution = &d
	}
	return pop.users, *pop.distribution, nil
}

// takeIn reads what has changed, and reads everything again under a new schema
// when that is much.
func (p *Populations) takeIn(ctx context.Context, client id.Client, pop *population) error {
	if pop.users == nil {
		return p.train(ctx, client, pop)
	}
	for change, err := range p.changes(ctx, client, &pop.reached) {
		if err != nil {
			pop.users = nil // some changes may be taken in, others not
			return err
		}
		pop.changed++
		if pop.changed*retrainShare > pop.trained {
			pop.users = nil // until it is trained, nothing holds good
			return p.train(ctx, client, pop)
		}
		if err := put(pop.users, change); err != nil {
			pop.users = nil // what was passed over is read again
			return err
		}
	}
	return nil
}

// train reads all users and infers the schema of their traits.
func (p *Populations) train(ctx context.Context, client id.Client, pop *population) error {
	all := map[string]traits.Flat{}
	var reached eventstore.Position
	for change, err := range p.changes(ctx, client, &reached) {
		if err != nil {
			return err
		}
		if change.Traits == nil {
			delete(all, string(change.ID))
			continue
		}
		flat, err := traits.Flatten(change.Traits)
		if err != nil {
			return fmt.Errorf("read the traits of %s: %w", change.ID, err)
		}
		all[string(change.ID)] = flat
	}
	users := matching.New(traits.Infer(eachFlat(all), nil))
	for user, flat := range all {
		users.Put(user, flat)
	}
	pop.users, pop.reached, pop.distribution = users, reached, nil
	pop.trained, pop.changed = len(all), 0
	return nil
}

func eachFlat(all map[string]traits.Flat) iter.Seq2[string, traits.Flat] {
	return func(yield func(string, traits.Flat) bool) {
		for user, flat := range all {
			if !yield(user, flat) {
				return
			}
		}
	}
}

// changes reads all changes after *reached and moves it on.
func (p *Populations) changes(ctx context.Context, client id.Client, reached *eventstore.Position) iter.Seq2[UserChange, error] {
	return func(yield func(UserChange, error) bool) {
		for {
			page, err := p.users.Changed(ctx, client, *reached, changesAtOnce)
			if err != nil {
				yield(UserChange{}, err)
				return
			}
			for _, change := range page {
				*reached = change.At
				if !yield(change, nil) {
					return
				}
			}
			if len(page) < changesAtOnce {
				return
			}
		}
	}
}

func put(users *matching.Population, change UserChange) error {
	if change.Traits == nil {
		users.Remove(string(change.ID))
		return nil
	}
	flat, err := traits.Flatten(change.Traits)
	if err != nil {
		return fmt.Errorf("read the traits of %s: %w", change.ID, err)
	}
	users.Put(string(change.ID), flat)
	return nil
}
