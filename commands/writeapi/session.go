package writeapi

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// RevokeSession ends a session and its tokens.
func (a *API) RevokeSession(ctx context.Context, r httpapi.RevokeSessionRequestObject) (httpapi.RevokeSessionResponseObject, error) {
	session, err := httpapi.Named[id.Session](r.SessionID, fault.UnknownSession)
	if err != nil {
		return nil, err
	}
	c := call(ctx)
	member, err := a.SessionOf(ctx, c.Client, session)
	if err != nil {
		return nil, err
	}
	outcome, err := a.Commands.EndSession(ctx, c, httpapi.PrincipalFrom(ctx).May("admin"), member, session)
	if err != nil {
		return nil, err
	}
	return httpapi.RevokeSession204Response{
		Headers: httpapi.RevokeSession204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}
