package writeapi

import (
	"context"

	"kindred/domain/id"
	"kindred/httpapi"
)

// Rebuilds makes one client's part of a read model anew, in the background. A
// seed names a request that may be repeated.
type Rebuilds interface {
	Request(ctx context.Context, client id.Client, projection, by string, seed []string) (httpapi.Rebuild, error)
}

// RebuildProjection asks for a rebuild of the client's part of a read model.
func (a *API) RebuildProjection(ctx context.Context, r httpapi.RebuildProjectionRequestObject) (httpapi.RebuildProjectionResponseObject, error) {
	c := call(ctx)
	asked, err := a.Rebuilds.Request(ctx, c.Client, r.Projection, c.Actor, c.Seed)
	if err != nil {
		return nil, err
	}
	return httpapi.RebuildProjection202JSONResponse{
		Body:    asked,
		Headers: httpapi.RebuildProjection202ResponseHeaders{Location: "/api/v1/projections/" + r.Projection + "/rebuild"},
	}, nil
}
