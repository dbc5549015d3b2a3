package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// OverrideTraits merges a patch (RFC 7396) into what the client has decided
// about its traits, by path; null takes a decision back.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale.
func (c *Commands) OverrideTraits(ctx context.Context, call Call, patch json.RawMessage) (Outcome, error) {
	return execute(ctx, c, call, eventstore.TraitSchemaStream(call.Client), false, c.decisions(call.Client),
		func(s *domain.TraitSchema, _ []eventstore.Recorded) ([]event.Event, error) {
			overrides, err := mergeOverrides(s.Overrides, patch)
			if err != nil {
				return nil, err
			}
			return s.Override(overrides)
		})
}

// PreviewTraits asks what another decision about traits would do to the matches of a user.
type PreviewTraits struct {
	User  UserRef
	Patch json.RawMessage // as that of OverrideTraits
	Limit int
	Layer id.ConsentLayer // as of ComputeMatches
}

// PreviewTraits returns the best matches of a user by what is decided, and by what would
// be. It records nothing.
// Faults: building, busy, consent_layer_unknown, consent_missing, invalid, overloaded, population_too_large,
// quarantined, stale, user_unknown.
func (c *Commands) PreviewTraits(ctx context.Context, call Call, in PreviewTraits) (before, after []event.MatchComputed, err error) {
	l, err := c.decisions(call.Client)(ctx, eventstore.TraitSchemaStream(call.Client), eventstore.End)
	if err != nil {
		return nil, nil, err
	}
	decided := fold[domain.TraitSchema](l.history)
	overrides, err := mergeOverrides(decided.Overrides, in.Patch)
	if err != nil {
		return nil, nil, err
	}
	if _, err := decided.Override(overrides); err != nil {
		return nil, nil, err
	}
	user, err := c.FindUser(ctx, call.Client, in.User)
	if err != nil {
		return nil, nil, err
	}
	within, err := c.within(ctx, call.Client, user, in.Layer)
	if err != nil {
		return nil, nil, err
	}
	filter, err := c.among(ctx, call.Client, rule.Filter{}, within)
	if err != nil {
		return nil, nil, err
	}
	if before, _, err = c.top(ctx, call.Client, user, within, in.Limit, filter); err != nil {
		return nil, nil, err
	}
	ok := true
	var named []id.User // nil: all may be answered
	if filter != nil {
		named, _, err = c.bestNamed(ctx, call.Client, user, in.Limit, filter, func(candidates int) (found []id.User, err error) {
			found, ok, err = c.Matcher.CandidatesUnder(ctx, call.Client, user, within, overrides, candidates)
			return found, err
		})
	}
	if err == nil && ok && (filter == nil || len(named) > 0) {
		after, ok, err = c.Matcher.Under(ctx, call.Client, user, within, overrides, named, in.Limit)
	}
	if err == nil && !ok {
		err = fault.NewInvalid(fault.Field{Pointer: "/traits", Detail: "reads what is not compared yet: another type, or a trait that takes no part now; " +
			"that can be seen once it is decided"})
	}
	return before, after, err
}

// schemaPage is how many events of a trait schema, which may be large, are read
// at once.
const schemaPage = 32

// decisions reads a trait schema back to the last override. What was learnt before
// the last event is left out.
func (c *Commands) decisions(client id.Client) load {
	return func(ctx context.Context, stream eventstore.Stream, upTo eventstore.Revision) (l loaded, err error) {
		for r, err := range c.schemaBackward(ctx, client, upTo) {
			if err != nil {
				return l, err
			}
			_, override := r.Event.(event.TraitSchemaOverridden)
			if override || len(l.history) == 0 {
				l.history = append(l.history, r)
			}
			if override {
				break
			}
		}
		if l.version, err = versionOf(stream, l.history); len(l.history) > 0 {
			l.seen = l.history[:1]
		}
		slices.Reverse(l.history)
		return l, err
	}
}

// schemaBackward reads a trait schema from a revision, the newest event first. It
// passes over what is known to be nothing but learnt.
func (c *Commands) schemaBackward(ctx context.Context, client id.Client, from eventstore.Revision) iter.Seq2[eventstore.Recorded, error] {
	return func(yield func(eventstore.Recorded, error) bool) {
		last, version, err := c.LastDecision(ctx, client)
		if err != nil && !fault.Of(err, fault.Unavailable) {
			yield(eventstore.Recorded{}, err)
			return
		}
		stream, rest := eventstore.TraitSchemaStream(client), eventstore.Revision(-1)
		for r, err := range c.Log.Backward(ctx, stream, from, schemaPage) {
			if !yield(r, err) {
				return
			}
			if n := int(r.Revision) + 1; err == nil && n <= version && last <= n {
				rest = min(r.Revision, eventstore.Revision(last)) - 1
				break
			}
		}
		for r, err := range c.Log.Backward(ctx, stream, rest, schemaPage) {
			if !yield(r, err) {
				return
			}
		}
	}
}

// learntWithin is how many decisions are read back to find what was learnt before them.
// limit: commands | decisions about traits that are looked through for what was learnt before | {learntWithin}
const learntWithin = 64

// TraitSchemaAt returns what a client had decided about its traits at a position
// of the log, by path, and the JSON of what was learnt last; nil where nothing was.
func (c *Commands) TraitSchemaAt(ctx context.Context, client id.Client, at eventstore.Position) (
	decided map[string]event.TraitOverride, learnt json.RawMessage, err error,
) {
	newest, err := c.Log.ReadBack(ctx, eventstore.TraitSchemaStream(client), eventstore.End, 1)
	if err != nil {
		return nil, nil, err
	}
	then, err := c.userAt(ctx, newest, at)
	if err != nil || then.Event == nil {
		return nil, nil, err
	}
	var last *eventstore.Recorded
	found, passed := false, 0
	for r, err := range c.schemaBackward(ctx, client, then.Revision) {
		if err != nil {
			return nil, nil, err
		}
		switch e := r.Event.(type) {
		case event.TraitSchemaOverridden:
			if !found {
				decided, found = e.Overrides, true
			}
		case event.TraitSchemaInferred:
			if last == nil {
				last = &r
			}
		}
		if passed++; found && (last != nil || passed == learntWithin) {
			break
		}
	}
	if last == nil {
		return decided, nil, nil
	}
	learnt, err = c.Log.Open(ctx, *last, "schema")
	if errors.Is(err, seal.ErrErased) {
		return decided, nil, nil
	}
	return decided, learnt, err
}

func mergeOverrides(old map[string]event.TraitOverride, patch json.RawMessage) (map[string]event.TraitOverride, error) {
	if old == nil {
		old = map[string]event.TraitOverride{}
	}
	document, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	unreadable := fault.NewInvalid(fault.Field{Pointer: "/traits", Detail: "must name a decision, or null, for each path"})
	merged, err := traits.Merge(document, patch)
	if err != nil {
		return nil, unreadable
	}
	var overrides map[string]event.TraitOverride
	decoder := json.NewDecoder(bytes.NewReader(merged))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&overrides); err != nil {
		return nil, unreadable
	}
	for path, o := range overrides {
		if o == (event.TraitOverride{}) {
			delete(overrides, path) // nothing is decided any more
		}
	}
	return overrides, nil
}

// RecordTraitSchema records the schema that was learnt from so many users under
// a version, unless there is a newer version.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) RecordTraitSchema(ctx context.Context, client id.Client, under, users int, schema []byte) error {
	call := Call{Client: client, Actor: "policy:trait_schema"}
	_, err := execute(ctx, c, call, eventstore.TraitSchemaStream(client), false, c.ends,
		func(s *domain.TraitSchema, ends []eventstore.Recorded) ([]event.Event, error) {
			if n := len(ends); n > 0 {
				s.Version = int(ends[n-1].Revision) + 1
			}
			return s.Infer(under, event.TraitSchemaInferred{Client: client, Users: users, Schema: event.Private(schema)}), nil
		})
	return err
}
