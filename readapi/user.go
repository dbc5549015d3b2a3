package readapi

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// ListUsers lists the end users of the client.
func (a *API) ListUsers(ctx context.Context, r httpapi.ListUsersRequestObject) (httpapi.ListUsersResponseObject, error) {
	if httpapi.CallFrom(ctx).Export {
		if p := r.Params; p.Limit != nil || p.Cursor != nil || p.ExternalID != nil || p.Ids != nil || p.UpdatedSince != nil {
			return nil, fault.NewInvalid(fault.Field{Detail: "As CSV the answer is all users, or those of filter or segment_id: it takes nothing else."})
		}
		return httpapi.Export{Now: a.Now, Write: func(w io.Writer) error { return a.writeUsers(ctx, r.Params, w) }}, nil
	}
	found, next, err := a.usersPage(ctx, r.Params)
	return httpapi.UsersAnswer{Data: each(found, userBody), NextCursor: next}, err
}

// usersPage reads a page of users.
func (a *API) usersPage(ctx context.Context, p httpapi.ListUsersParams) ([]projections.User, *httpapi.NextCursor, error) {
	if p.SegmentID != nil {
		return a.usersIn(ctx, p)
	}
	query, name, err := a.userQuery(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	client, eventual := asked(ctx)
	if query.Page, err = a.page(client, name, p.Limit, p.Cursor); err != nil {
		return nil, nil, err
	}
	if p.Filter != nil {
		filter, err := a.userRule(ctx, "filter", *p.Filter, projections.ConsentLayer{})
		if err != nil {
			return nil, nil, err
		}
		return a.filteredUsers(ctx, name, query, filter)
	}
	found, err := a.Users.List(ctx, client, eventual, query)
	if err != nil {
		return nil, nil, err
	}
	found, next := cut(a, client, name, query.Page, found, projections.UserSize, query.Place)
	return found, next, nil
}

// userQuery reads the filters of a list of users, and names the list by them.
func (a *API) userQuery(ctx context.Context, p httpapi.ListUsersParams) (query projections.UserQuery, name string, err error) {
	var external, since string
	if p.Ids != nil {
		query.IDs = []id.User{}
		for _, s := range p.Ids {
			if user, err := id.Parse[id.User](s); err == nil {
				query.IDs = append(query.IDs, user) // others are nobody's
			}
		}
	}
	if p.ExternalID != nil {
		external = *p.ExternalID
		user, err := a.find(ctx, external)
		if fault.Of(err, fault.Missing) {
			query.IDs, err = []id.User{}, nil
		} else if err == nil && (query.IDs == nil || slices.Contains(query.IDs, user)) {
			query.IDs = []id.User{user}
		} else if err == nil {
			query.IDs = []id.User{}
		}
		if err != nil {
			return query, "", err
		}
	}
	if p.UpdatedSince != nil {
		query.UpdatedSince = *p.UpdatedSince
		since = "in order from " + query.UpdatedSince.UTC().Format(time.RFC3339Nano)
	}
	return query, filtered("users", strings.Join(p.Ids, ","), external, since, httpapi.Or(p.Filter, "")), nil
}

// GetUser shows an end user.
func (a *API) GetUser(ctx context.Context, r httpapi.GetUserRequestObject) (httpapi.GetUserResponseObject, error) {
	client, eventual := asked(ctx)
	user, err := a.user(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	found, err := a.Users.Get(ctx, client, eventual, user)
	if err != nil {
		return nil, err
	}
	return httpapi.UserAnswer{User: userBody(found), ETag: httpapi.UserETag(found.ID, int64(found.Revision))}, nil
}

// ListMatches lists the matches that were recorded for a user.
func (a *API) ListMatches(ctx context.Context, r httpapi.ListMatchesRequestObject) (httpapi.ListMatchesResponseObject, error) {
	user, err := a.userThere(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	data, next, err := list(ctx, a, filtered("matches", string(user)), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.Match, error) {
			return projections.Matches{Reader: a.Reader}.List(ctx, client, eventual, user, page)
		}, func(m projections.Match) eventstore.Position { return m.CreatedPosition }, matchBody)
	return httpapi.ListMatches200JSONResponse{Data: data, NextCursor: next}, err
}

// user reads a reference to a user: an id, or "ext:" and the client's own.
func (a *API) user(ctx context.Context, ref string) (id.User, error) {
	if external, found := strings.CutPrefix(ref, "ext:"); found {
		return a.find(ctx, external)
	}
	user, err := id.Parse[id.User](ref)
	if err != nil {
		return "", fault.NoUserName()
	}
	return user, nil
}

// userThere is user, of one that is there.
func (a *API) userThere(ctx context.Context, ref string) (id.User, error) {
	client, eventual := asked(ctx)
	user, err := a.user(ctx, ref)
	if err == nil {
		_, err = a.Users.Get(ctx, client, eventual, user)
	}
	return user, err
}

func (a *API) find(ctx context.Context, external string) (id.User, error) {
	client, eventual := asked(ctx)
	user, err := a.Users.Find(ctx, client, eventual, external)
	if err != nil {
		return "", fmt.Errorf("find a user: %w", err)
	}
	return user, nil
}

func userBody(u projections.User) httpapi.User {
	return httpapi.User{
		ID: u.ID, ExternalID: u.ExternalID, Traits: u.Traits,
		CreatedAt: httpapi.Time{Time: u.CreatedAt}, UpdatedAt: httpapi.Time{Time: u.UpdatedAt},
	}
}

func matchBody(m projections.Match) httpapi.Match {
	return httpapi.Match{
		MatchedUserID: m.Matched, ExternalID: m.ExternalID, Score: m.Score, Percentile: m.Percentile,
		Explanation: each(m.Explanation, termBody), ComputedAt: httpapi.Time{Time: m.ComputedAt},
	}
}

func termBody(t event.Term) httpapi.Term {
	return httpapi.Term{Trait: t.Trait, Weight: t.Weight, Similarity: t.Similarity, Contribution: t.Contribution, Missing: t.Missing}
}
