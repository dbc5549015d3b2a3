package readapi

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
)

// ListSandboxes lists the sandboxes beside the client.
func (a *API) ListSandboxes(ctx context.Context, r httpapi.ListSandboxesRequestObject) (httpapi.ListSandboxesResponseObject, error) {
	parent := httpapi.PrincipalFrom(ctx).Client
	data, next, err := list(ctx, a, "sandboxes", r.Params.Limit, r.Params.Cursor, projections.Sandboxes{Reader: a.Reader}.List,
		func(s projections.Sandbox) eventstore.Position { return s.CreatedPosition },
		func(s projections.Sandbox) httpapi.Sandbox { return sandboxBody(parent, s) })
	return httpapi.ListSandboxes200JSONResponse{Data: data, NextCursor: next}, err
}

// GetSandbox returns a sandbox beside the client.
func (a *API) GetSandbox(ctx context.Context, r httpapi.GetSandboxRequestObject) (httpapi.GetSandboxResponseObject, error) {
	found, err := get(ctx, r.SandboxID, fault.UnknownSandbox, projections.Sandboxes{Reader: a.Reader}.Get)
	return httpapi.GetSandbox200JSONResponse(sandboxBody(httpapi.PrincipalFrom(ctx).Client, found)), err
}

func sandboxBody(parent id.Client, s projections.Sandbox) httpapi.Sandbox {
	return httpapi.Sandbox{
		ID: s.ID, ParentID: parent, Name: s.Name,
		CreatedAt: httpapi.Time{Time: s.CreatedAt}, ExpiresAt: httpapi.TimeOrNull(s.ExpiresAt),
	}
}

// GetClock says what the client's clock says.
func (a *API) GetClock(ctx context.Context, _ httpapi.GetClockRequestObject) (httpapi.GetClockResponseObject, error) {
	now, ahead, err := a.Clock(ctx, httpapi.PrincipalFrom(ctx).Client)
	return httpapi.GetClock200JSONResponse{Now: httpapi.Time{Time: now}, AheadSeconds: ahead.Seconds()}, err
}
