package writeapi

import (
	"context"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// CreateSandbox makes a client beside the client.
func (a *API) CreateSandbox(ctx context.Context, r httpapi.CreateSandboxRequestObject) (httpapi.CreateSandboxResponseObject, error) {
	c := call(ctx)
	made, err := a.Commands.CreateSandbox(ctx, c, r.Body.Name, time.Duration(httpapi.Or(r.Body.ExpiresIn, 0))*time.Second)
	if err != nil {
		return nil, err
	}
	return httpapi.CreateSandbox201JSONResponse{
		Body: httpapi.Sandbox{
			ID: made.Sandbox, ParentID: c.Client, Name: made.Name,
			CreatedAt: httpapi.Time{Time: made.CreatedAt}, ExpiresAt: httpapi.TimeOrNull(made.ExpiresAt),
		},
		Headers: httpapi.CreateSandbox201ResponseHeaders{
			Location: under(c.Client, "sandboxes", made.Sandbox), XKindredPosition: position(made.Outcome),
		},
	}, nil
}

// DeleteSandbox ends a sandbox, with the keys of all in it.
func (a *API) DeleteSandbox(ctx context.Context, r httpapi.DeleteSandboxRequestObject) (httpapi.DeleteSandboxResponseObject, error) {
	sandbox, err := httpapi.Named[id.Client](r.SandboxID, fault.UnknownSandbox)
	if err != nil {
		return nil, err
	}
	outcome, err := a.Commands.DeleteSandbox(ctx, call(ctx), sandbox)
	if err != nil {
		return nil, err
	}
	return httpapi.DeleteSandbox204Response{
		Headers: httpapi.DeleteSandbox204ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}

// MoveClock moves the clock of a sandbox forward.
func (a *API) MoveClock(ctx context.Context, r httpapi.MoveClockRequestObject) (httpapi.MoveClockResponseObject, error) {
	now, ahead, outcome, err := a.Commands.MoveClock(ctx, call(ctx), r.Body.To)
	if err != nil {
		return nil, err
	}
	return httpapi.MoveClock200JSONResponse{
		Body:    httpapi.Clock{Now: httpapi.Time{Time: now}, AheadSeconds: ahead.Seconds()},
		Headers: httpapi.MoveClock200ResponseHeaders{XKindredPosition: position(outcome)},
	}, nil
}
