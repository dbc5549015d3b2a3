package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
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
		in.Other = commands.UserRef(httpapi.Or(body.MatchedUserID, ""))
		if body.ConsentLayerID != nil {
			layer, err := layerID(*body.ConsentLayerID)
			if err != nil {
				return nil, err
			}
			in.Layer = layer
		}
	}
	if in.Record && !httpapi.PrincipalFrom(ctx).May("write") {
		return nil, fault.New(fault.Forbidden, "missing_scope", "Recording matches takes a token with the scope write; record may be false.")
	}
	c := call(ctx)
	found, err := a.Commands.ComputeMatches(ctx, c, in)
	if err != nil {
		return nil, err
	}
	users := make([]id.User, len(found.Matches))
	for i, m := range found.Matches {
		users[i] = m.MatchedUser
	}
	names, err := a.ExternalIDs(ctx, c.Client, users)
	if err != nil {
		return nil, err
	}
	answer := httpapi.ComputeMatches200JSONResponse{Body: httpapi.ComputedMatches{Data: []httpapi.ComputedMatch{}}}
	explained := mayRead(ctx)
	for _, m := range found.Matches {
		external, there := names[m.MatchedUser]
		if !there {
			continue // erased since
		}
		shown := httpapi.ComputedMatch{MatchedUserID: m.MatchedUser, ExternalID: external, Explanation: []httpapi.Term{}}
		if explained { // all of it tells of the traits of both
			shown.Score, shown.Percentile, shown.Explanation = &m.Score, &m.Percentile, terms(m.Explanation)
		}
		answer.Body.Data = append(answer.Body.Data, shown)
	}
	answer.Headers.XKindredPosition = positionIfAny(found.Position)
	return answer, nil
}

func terms(explanation []event.Term) []httpapi.Term {
	out := make([]httpapi.Term, len(explanation))
	for i, t := range explanation {
		out[i] = httpapi.Term{Trait: t.Trait, Weight: t.Weight, Similarity: t.Similarity, Contribution: t.Contribution}
	}
	return out
}
