package writeapi

import (
	"context"
	"encoding/json"

	"kindred/commands"
	"kindred/httpapi"
)

// CreateUser makes an end user.
func (a *API) CreateUser(ctx context.Context, r httpapi.CreateUserRequestObject) (httpapi.CreateUserResponseObject, error) {
	user, err := a.Commands.CreateUser(ctx, call(ctx), r.Body.ExternalID, orEmpty(r.Body.Traits))
	if err != nil {
		return nil, err
	}
	return httpapi.UserCreated{
		Body: userBody(ctx, user),
		Headers: httpapi.CreateUser201ResponseHeaders{
			Location: "/api/v1/users/" + string(user.ID),
			ETag:     userETag(user), XKindredPosition: position(user.Outcome),
		},
	}, nil
}

// PutUser makes an end user, or replaces its traits.
func (a *API) PutUser(ctx context.Context, r httpapi.PutUserRequestObject) (httpapi.PutUserResponseObject, error) {
	ref := commands.UserRef(r.UserID)
	user, made, err := a.Commands.PutUser(ctx, call(ctx), ref, r.Body.ExternalID, orEmpty(r.Body.Traits))
	if err != nil {
		return nil, err
	}
	put := httpapi.UserPut{
		UserAnswer: httpapi.UserAnswer{User: userBody(ctx, user), ETag: userETag(user)},
		Position:   position(user.Outcome),
	}
	if made {
		put.Location = "/api/v1/users/" + string(user.ID)
	}
	return put, nil
}

// ChangeUser merges a patch into a user's traits.
func (a *API) ChangeUser(ctx context.Context, r httpapi.ChangeUserRequestObject) (httpapi.ChangeUserResponseObject, error) {
	user, err := a.Commands.ChangeTraits(ctx, call(ctx), commands.UserRef(r.UserID), r.Body.Traits)
	if err != nil {
		return nil, err
	}
	return httpapi.ChangeUser200JSONResponse{
		Body: userBody(ctx, user),
		Headers: httpapi.ChangeUser200ResponseHeaders{
			ETag: userETag(user), XKindredPosition: position(user.Outcome),
		},
	}, nil
}

// EraseUser forgets a user.
func (a *API) EraseUser(ctx context.Context, r httpapi.EraseUserRequestObject) (httpapi.EraseUserResponseObject, error) {
	outcome, err := a.Commands.EraseUser(ctx, call(ctx), commands.UserRef(r.UserID))
	if err != nil {
		return nil, err
	}
	return httpapi.EraseUser204Response{
		Headers: httpapi.EraseUser204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}

func userETag(u commands.User) string { return httpapi.UserETag(u.ID, int64(u.Outcome.Revision)) }

// orEmpty are the traits of a user for whom none were given.
func orEmpty(traits httpapi.Traits) json.RawMessage {
	if traits == nil {
		return json.RawMessage("{}")
	}
	return traits
}

// userBody shows a user, with traits to those who may read.
func userBody(ctx context.Context, u commands.User) httpapi.User {
	body := httpapi.User{
		ID: u.ID, ExternalID: u.ExternalID,
		CreatedAt: httpapi.Time{Time: u.CreatedAt}, UpdatedAt: httpapi.Time{Time: u.UpdatedAt},
	}
	if mayRead(ctx) {
		body.Traits = u.Traits
	}
	return body
}
