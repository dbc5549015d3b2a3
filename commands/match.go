package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/panics"
)

// Matcher compares the users of a client. It has seen every write that was
// acknowledged before it is asked.
type Matcher interface {
	// Top returns the best matches of a user, the best first.
	Top(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) ([]event.MatchComputed, error)
	// TopKept is Top of those whom all rules of within.TraitParts name; ok is false where
	// one of these is not kept, and Top may find others, too.
	TopKept(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) (found []event.MatchComputed, ok bool, err error)
	// Candidates returns who the best matches of a user are, the best first.
	Candidates(ctx context.Context, client id.Client, user id.User, within event.Within, limit int) ([]id.User, error)
	// Explained returns the matches of a user with some others, the best first, without who
	// is none any more.
	Explained(ctx context.Context, client id.Client, user id.User, within event.Within, others []id.User) ([]event.MatchComputed, error)
	// Pair compares two users. ok is false where they share no trait, or too
	// little to be compared, or the other one has not granted the layer.
	Pair(ctx context.Context, client id.Client, user, other id.User, within event.Within) (m event.MatchComputed, ok bool, err error)
	// Like scores a user as if it had other traits, a JSON object; 0 where the
	// two are no match.
	Like(ctx context.Context, client id.Client, traits json.RawMessage, other id.User) (score float64, ok bool, err error)
	// Under returns the best matches of a user as they would be under other decisions
	// about traits, without percentiles, of some others alone unless these are nil. ok is
	// false where the decisions read what is not compared now.
	Under(ctx context.Context, client id.Client, user id.User, within event.Within, decisions map[string]event.TraitOverride, among []id.User, limit int) (
		found []event.MatchComputed, ok bool, err error)
	// CandidatesUnder returns who these are.
	CandidatesUnder(ctx context.Context, client id.Client, user id.User, within event.Within, decisions map[string]event.TraitOverride, limit int) (
		found []id.User, ok bool, err error)
}

// ComputeMatches asks for the matches of a user.
type ComputeMatches struct {
	User    UserRef
	Other   UserRef         // set: this one pair
	Limit   int             // else: so many of the best
	Layer   id.ConsentLayer // set: among those who granted it, by its traits
	Filter  string          // set: among those whom this rule of pairs names
	Segment id.Segment      // set: among the members of this segment
	Record  bool            // false: compute without recording
	// Found is told what was computed, before that is recorded; nil: nobody is.
	Found func(found []event.MatchComputed)
}

// Filter judges users by rules. It has seen every write that was acknowledged before it
// is asked.
type Filter interface {
	// Named says whom of some users a filter of pairs surely names, for a viewer.
	Named(ctx context.Context, client id.Client, filter *rule.Filter, viewer id.User, users []id.User) (map[id.User]bool, error)
	// Ready fails where a segment, named at a place of a request, is not there, is judging
	// its first members, or reads more than a layer permits.
	Ready(ctx context.Context, client id.Client, eventual bool, pointer string, segment id.Segment, within event.Within) error
	// CheckNamed refuses a rule, at a place of a request, that names a segment of another
	// consent layer than its own, or one that is not there, is blocked or judges its first members.
	CheckNamed(ctx context.Context, client id.Client, eventual bool, pointer string, r *rule.Rule, layer id.ConsentLayer) error
}

// Matches is what was computed, the best first.
type Matches struct {
	User      id.User
	Matches   []event.MatchComputed
	Position  eventstore.Position
	Truncated bool // a filter would have named more, had more candidates been judged
}

// ComputeMatches computes the matches of a user and, unless told otherwise,
// records each: every match that is returned was recorded and is emitted.
// Faults: building, busy, catching_up, consent_layer_unknown, consent_missing, idempotency_key_reused,
// invalid, overloaded, population_too_large, quarantined, segment_building, segment_unknown, stale,
// user_unknown.
func (c *Commands) ComputeMatches(ctx context.Context, call Call, in ComputeMatches) (Matches, error) {
	user, err := c.FindUser(ctx, call.Client, in.User)
	if err != nil {
		return Matches{}, err
	}
	truncated := false
	compute := sync.OnceValues(func() (found []event.MatchComputed, err error) {
		if found, truncated, err = c.match(ctx, call.Client, user, in); err == nil && in.Found != nil {
			in.Found(found)
		}
		return found, err
	})
	if call.Seed == nil { // no repetition, so it will be needed
		compute = ahead(compute)
	}
	if !in.Record {
		found, err := compute()
		return Matches{User: user, Matches: found, Truncated: truncated}, err
	}
	recorded, err := c.recordMatches(ctx, call, user, compute)
	if err == nil && call.Seed == nil {
		recorded.Truncated = truncated // a repetition may have computed nothing
	}
	return recorded, err
}

// ahead begins work at once; what it returns is waited for where it is needed.
func ahead[T any](work func() (T, error)) func() (T, error) {
	group := panics.New()
	var found T
	group.Go(func() (err error) {
		found, err = work()
		return err
	})
	return func() (T, error) {
		err := group.Wait()
		return found, err
	}
}

func (c *Commands) match(ctx context.Context, client id.Client, user id.User, in ComputeMatches) (
	found []event.MatchComputed, truncated bool, err error,
) {
	asked, err := c.filterOf(ctx, client, in)
	if err != nil {
		return nil, false, err
	}
	allowed := ahead(func() (event.Within, error) { return c.within(ctx, client, user, in.Layer) })
	var other id.User
	var unknown error
	if in.Other != "" {
		other, unknown = c.FindUser(ctx, client, in.Other)
	}
	within, err := allowed()
	if err := cmp.Or(err, unknown); err != nil {
		return nil, false, err
	}
	if in.Segment != "" {
		if err := c.Filter.Ready(ctx, client, false, "/segment_id", in.Segment, within); err != nil {
			return nil, false, err
		}
	}
	filter, err := c.among(ctx, client, rule.Filter{Rule: asked, Segment: string(in.Segment)}, within)
	if err != nil {
		return nil, false, err
	}
	switch {
	case in.Other == "":
		return c.top(ctx, client, user, within, in.Limit, filter)
	case other == user:
		return nil, false, fault.NewInvalid(fault.Field{Pointer: "/matched_user_id", Detail: "must be another user"})
	}
	m, ok, err := c.Matcher.Pair(ctx, client, user, other, within)
	if err != nil || !ok {
		return nil, false, err
	}
	if named, err := c.named(ctx, client, user, filter, []id.User{other}); err != nil || len(named) == 0 {
		return nil, false, err
	}
	return []event.MatchComputed{m}, false, nil
}

// filterOf reads the filter of what is asked for; nil: there is none.
func (c *Commands) filterOf(ctx context.Context, client id.Client, in ComputeMatches) (*rule.Rule, error) {
	if in.Filter == "" {
		return nil, nil
	}
	bounds, err := c.bounds(ctx, client, in.Layer)
	if err != nil {
		return nil, err
	}
	asked, err := c.parse(ctx, client, "/filter", in.Filter, rule.Pairs, bounds)
	if err != nil {
		return nil, err
	}
	return asked, c.Filter.CheckNamed(ctx, client, false, "/filter", asked, in.Layer)
}

// top returns the best matches of a user, of those whom a filter names.
func (c *Commands) top(ctx context.Context, client id.Client, user id.User, within event.Within, limit int, filter *rule.Filter) (
	found []event.MatchComputed, truncated bool, err error,
) {
	if filter == nil {
		found, err = c.Matcher.Top(ctx, client, user, within, limit)
		return found, false, err
	}
	within.TraitParts = filter.TraitParts()
	if filter.OnlyTraitParts() {
		if found, ok, err := c.Matcher.TopKept(ctx, client, user, within, limit); ok || err != nil {
			return found, false, err
		}
	}
	best, truncated, err := c.bestNamed(ctx, client, user, limit, filter, func(candidates int) ([]id.User, error) {
		return c.Matcher.Candidates(ctx, client, user, within, candidates)
	})
	if err != nil || len(best) == 0 {
		return nil, truncated, err
	}
	found, err = c.Matcher.Explained(ctx, client, user, within, best)
	return found, truncated, err
}

// judged is how many candidates a filter judges before it is seen whether it needs more.
const judged = 1_000

// bestNamed returns whom a filter names of the best matches, the best first. It looks at
// candidates in the order of their scores, at more of them until there are enough. They are
// many, so they are not explained: that takes 13 KiB each where 256 traits are compared.
func (c *Commands) bestNamed(ctx context.Context, client id.Client, user id.User, limit int, filter *rule.Filter,
	top func(candidates int) ([]id.User, error),
) (found []id.User, truncated bool, err error) {
	seen := map[id.User]bool{}
	truncated, err = filter.Widen(limit, func(candidates int) (there, named int, err error) {
		best, err := top(candidates)
		if err != nil {
			return 0, 0, err
		}
		more := slices.DeleteFunc(slices.Clone(best), func(user id.User) bool { return seen[user] })
		for _, user := range more {
			seen[user] = true
		}
		for some := range slices.Chunk(more, judged) {
			if len(found) >= limit {
				break
			}
			some, err = c.named(ctx, client, user, filter, some)
			if err != nil {
				return 0, 0, err
			}
			found = append(found, some...)
		}
		return len(best), len(found), nil
	})
	return found[:min(len(found), limit)], truncated, err
}

// named keeps those of some users whom a filter names.
func (c *Commands) named(ctx context.Context, client id.Client, viewer id.User, filter *rule.Filter, users []id.User) ([]id.User, error) {
	if filter == nil {
		return users, nil
	}
	named, err := c.Filter.Named(ctx, client, filter, viewer, users)
	return slices.DeleteFunc(users, func(user id.User) bool { return !named[user] }), err
}

// among is the filter of what is asked for beside a match rule, which may read no more than it
// may now.
func (c *Commands) among(ctx context.Context, client id.Client, asked rule.Filter, within event.Within) (*rule.Filter, error) {
	asked.Layer = string(within.Layer)
	filter, err := rule.Among(asked, within.MatchRule,
		func() (rule.Bounds, error) { return c.boundsOf(ctx, client, within.Layer != "", within.TraitPaths) },
		func(judge func() error) error { return c.judging(ctx, client, judge) })
	if filter == nil || err != nil {
		return nil, err
	}
	filter.Now, err = c.Log.TimeOf(ctx, client)
	return filter, err
}

// checkMatchRule refuses a match rule that is wrong or reads what it may not: under a
// consent layer (layered) only the layer's paths; "" is no rule. A match rule names no
// segment, since that could then never be retired.
func (c *Commands) checkMatchRule(ctx context.Context, client id.Client, pointer, text string, layered bool, paths []string) error {
	if text == "" {
		return nil
	}
	var parsed *rule.Rule
	if err := c.judging(ctx, client, func() (err error) {
		parsed, err = rule.ParseMatchRule(pointer, text)
		return err
	}); err != nil {
		return err
	}
	if len(parsed.Segments())+len(parsed.Layers())+len(parsed.Clusters())+len(parsed.Acts()) > 0 {
		return fault.NewInvalid(fault.Field{Pointer: pointer, Detail: "names a segment, a layer, a cluster or what users did, which a match rule may not"})
	}
	bounds, err := c.boundsOf(ctx, client, layered, paths)
	if err != nil {
		return err
	}
	return parsed.CheckAt(pointer, bounds)
}

// MatchRuleBreaches lists what a match rule, of a consent layer with some paths or of the
// client, reads and may not any more.
// Faults: invalid.
func (c *Commands) MatchRuleBreaches(ctx context.Context, client id.Client, matchRule string, layered bool, paths []string) ([]rule.Breach, error) {
	if matchRule == "" {
		return nil, nil
	}
	bounds, err := c.boundsOf(ctx, client, layered, paths)
	if err != nil {
		return nil, err
	}
	var breaches []rule.Breach
	err = c.judging(ctx, client, func() (err error) {
		breaches, err = rule.MatchBreaches(matchRule, bounds)
		return err
	})
	return breaches, err
}

// within makes sure that a user may be compared under a layer.
func (c *Commands) within(ctx context.Context, client id.Client, user id.User, layer id.ConsentLayer) (event.Within, error) {
	if layer == "" {
		return c.withoutLayer(ctx, client)
	}
	l, err := c.consentLayer(ctx, client, layer)
	if err != nil {
		return event.Within{}, err
	}
	consent, err := latest[domain.Consent](ctx, c, eventstore.ConsentStream(client, layer, user))
	if err != nil {
		return event.Within{}, err
	}
	if !consent.Granted {
		return event.Within{}, fault.New(fault.Conflict, "consent_missing", "This user has not granted the consent layer, or has withdrawn it.")
	}
	return event.Within{Layer: layer, TraitPaths: l.TraitPaths, MatchRule: l.MatchRule}, nil
}

// withoutLayer refuses where the client has chosen that comparisons name a layer.
func (c *Commands) withoutLayer(ctx context.Context, client id.Client) (event.Within, error) {
	company, _, err := c.company(ctx, client)
	if err != nil {
		return event.Within{}, err
	}
	if company.Settings.MatchingRequiresLayer {
		return event.Within{}, fault.NewInvalid(fault.Field{Pointer: "/consent_layer_id", Detail: "is required by the client's settings"})
	}
	return event.Within{MatchRule: company.Settings.MatchRule}, nil
}

// recordMatches records the matches of a user, each once however often it is
// told to start again.
func (c *Commands) recordMatches(ctx context.Context, call Call, user id.User, compute func() ([]event.MatchComputed, error)) (Matches, error) {
	answer := Matches{User: user}
	return retry(ctx, "matches of this user", func() (Matches, error) {
		err := c.completeMatches(ctx, call, &answer, compute)
		return answer, err
	})
}

// completeMatches appends what the answer still lacks to the match stream of its
// user, in as few appends as its size allows. A repeated request takes what it
// recorded before, and adds what a crash kept it from recording.
func (c *Commands) completeMatches(ctx context.Context, call Call, answer *Matches, compute func() ([]event.MatchComputed, error)) error {
	l, err := c.last(call.unconditional())(ctx, eventstore.MatchStream(call.Client, answer.User), eventstore.End)
	if err != nil {
		return err
	}
	end := l.version
	if call.Seed != nil {
		if err := c.ownMatches(ctx, call, l, answer); err != nil {
			return err
		}
	}
	if n := len(answer.Matches); n > 0 && answer.Matches[n-1].Remaining == 0 {
		return c.Log.NoteHead(ctx, call.Client, answer.Position)
	}
	found, err := compute()
	if err != nil {
		return err
	}
	ids := c.ids(call, string(end.Stream))
	for range answer.Matches {
		id.Next[id.Event](ids)
	}
	for left := missing(answer.Matches, found); len(left) > 0; {
		chunk, err := firstAppend(left)
		if err != nil {
			return err
		}
		recorded, err := c.appendMatches(ctx, call, end, ids, chunk)
		if err != nil {
			return err
		}
		answer.Matches = append(answer.Matches, left[:len(chunk)]...)
		answer.Position = recorded[len(recorded)-1].Position
		left = left[len(chunk):]
		if end, err = recorded[len(recorded)-1].StreamVersion(); err != nil {
			return err
		}
	}
	return nil
}

// manyMatches are more than a request records that names no limit.
const manyMatches = 21

// appendMatches appends matches of a user. Many take a place of MatchSlices: what other clients
// read stands behind them.
func (c *Commands) appendMatches(ctx context.Context, call Call, of eventstore.StreamVersion, ids *id.Source, matches []event.Event) (
	recorded []eventstore.Recorded, err error,
) {
	appends := func() (_ eventstore.Position, err error) {
		recorded, err = c.Log.Append(ctx, of, call.origin(), ids, matches...)
		return end(recorded), err
	}
	if len(matches) < manyMatches {
		_, err = appends()
	} else {
		err = c.slice(ctx, c.MatchSlices, call.Client, appends)
	}
	return recorded, err
}

// missing returns the matches that were found and are not recorded yet, rounded, each with
// how many follow it. Where some are recorded, the last of them says how many follow; no
// more are returned.
func missing(recorded, found []event.MatchComputed) []event.MatchComputed {
	left := slices.DeleteFunc(slices.Clone(found), func(m event.MatchComputed) bool {
		return slices.ContainsFunc(recorded, func(r event.MatchComputed) bool { return r.MatchedUser == m.MatchedUser })
	})
	if n := len(recorded); n > 0 {
		left = left[:min(len(left), recorded[n-1].Remaining)]
	}
	for i, m := range left {
		left[i] = m.Rounded()
		left[i].Remaining = len(left) - 1 - i
	}
	return left
}

// firstAppend takes as many events as fit into one append.
func firstAppend[E event.Event](found []E) ([]event.Event, error) {
	const envelope = 1 << 10
	size, chunk := 0, []event.Event(nil)
	for _, e := range found {
		data, err := event.Encode(e)
		if err != nil {
			return nil, err
		}
		size += len(data) + envelope
		if len(chunk) > 0 && size > eventstore.MaxAppendSize || len(chunk) == eventstore.MaxAppend {
			break
		}
		chunk = append(chunk, e)
	}
	return chunk, nil
}

// ownMatches finds what an earlier run of the same request recorded, which may be
// in several appends with others between them.
func (c *Commands) ownMatches(ctx context.Context, call Call, l loaded, answer *Matches) error {
	answer.Matches = nil
	ids := c.ids(call, string(l.version.Stream))
	for next := id.Next[id.Event](ids); ; {
		first, ok, err := c.own(ctx, call, l.seen, next)
		if err != nil || !ok {
			return err
		}
		var recorded []eventstore.Recorded
		if recorded, next, err = c.following(ctx, first, ids); err != nil {
			return err
		}
		for _, r := range recorded {
			answer.Matches = append(answer.Matches, r.Event.(event.MatchComputed))
			answer.Position = r.Position
		}
		if answer.Matches[len(answer.Matches)-1].Remaining == 0 {
			return nil
		}
	}
}
