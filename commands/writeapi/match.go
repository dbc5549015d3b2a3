package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/panics"
)

// defaultMatches is how many matches are computed where nothing is said.
const defaultMatches = 20

// ComputeMatches computes, and unless told otherwise records, the matches of a
// user.
func (a *API) ComputeMatches(ctx context.Context, r httpapi.ComputeMatchesRequestObject) (httpapi.ComputeMatchesResponseObject, error) {
	in := commands.ComputeMatches{User: commands.UserRef(r.UserID), Limit: defaultMatches, Record: true}
	if body := r.Body; body != nil {
		in.Limit = httpapi.Or(body.Limit, in.Limit)
		in.Record = httpapi.Or(body.Record, in.Record)
		in.Filter = httpapi.Or(body.Filter, "")
		in.Other = commands.UserRef(httpapi.Or(body.MatchedUserID, ""))
		var err error
		if in.Layer, err = httpapi.NamedIfAny[id.ConsentLayer](body.ConsentLayerID, fault.UnknownConsentLayer); err != nil {
			return nil, err
		}
		if in.Segment, err = httpapi.NamedIfAny[id.Segment](body.SegmentID, fault.UnknownSegment); err != nil {
			return nil, err
		}
	}
	if in.Record && !httpapi.PrincipalFrom(ctx).May("write") {
		return nil, fault.New(fault.Forbidden, "missing_scope", "Recording matches takes a token with the scope write; record may be false.")
	}
	if (in.Filter != "" || in.Segment != "") && !mayRead(ctx) {
		return nil, fault.New(fault.Forbidden, "missing_scope", "A filter or a segment tells of traits, so it takes a token with the scope read.")
	}
	c, naming := call(ctx), panics.New()
	var names map[id.User]string
	name := func(found []event.MatchComputed) {
		naming.Go(func() (err error) {
			names, err = a.named(ctx, c.Client, found)
			return err
		})
	}
	if c.Seed == nil { // what is computed is the answer, so it is named while it is recorded
		in.Found = name
	}
	found, err := a.Commands.ComputeMatches(ctx, c, in)
	if err != nil {
		return nil, err
	}
	if in.Found == nil {
		name(found.Matches)
	}
	if err := naming.Wait(); err != nil {
		return nil, err
	}
	data := computed(found.Matches, names, mayRead(ctx))
	return httpapi.ComputeMatches200JSONResponse{
		Body:    httpapi.ComputedMatches{Data: data, Truncated: httpapi.OrNull(found.Truncated)},
		Headers: httpapi.ComputeMatches200ResponseHeaders{XKindredPosition: positionIfAny(found.Position)},
	}, nil
}

// named returns the external ids of those who were matched.
func (a *API) named(ctx context.Context, client id.Client, matches []event.MatchComputed) (map[id.User]string, error) {
	users := make([]id.User, len(matches))
	for i, m := range matches {
		users[i] = m.MatchedUser
	}
	return a.ExternalIDs(ctx, client, users)
}

// computed is what was computed as the contract says it, without users who have no name: they
// were erased since. Scores and explanations tell of the traits of both.
func computed(matches []event.MatchComputed, names map[id.User]string, explained bool) []httpapi.ComputedMatch {
	data := []httpapi.ComputedMatch{}
	for _, m := range matches {
		external, there := names[m.MatchedUser]
		if !there {
			continue
		}
		shown := httpapi.ComputedMatch{MatchedUserID: m.MatchedUser, ExternalID: external, Explanation: []httpapi.Term{}}
		if explained {
			shown.Score, shown.Percentile, shown.Explanation = &m.Score, &m.Percentile, terms(m.Explanation)
		}
		data = append(data, shown)
	}
	return data
}

func terms(explanation []event.Term) []httpapi.Term {
	out := make([]httpapi.Term, len(explanation))
	for i, t := range explanation {
		out[i] = httpapi.Term{Trait: t.Trait, Weight: t.Weight, Similarity: t.Similarity, Contribution: t.Contribution, Missing: t.Missing}
	}
	return out
}
