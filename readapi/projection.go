package readapi

import (
	"context"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// Projections tells how the read models do.
type Projections interface {
	// List tells it for all, with what concerns one client.
	List(ctx context.Context, client id.Client) ([]httpapi.Projection, error)
}

// ListProjections tells how the read models do.
func (a *API) ListProjections(ctx context.Context, _ httpapi.ListProjectionsRequestObject) (httpapi.ListProjectionsResponseObject, error) {
	client, _ := asked(ctx)
	found, err := a.Projections.List(ctx, client)
	return httpapi.ListProjections200JSONResponse{Data: found}, err
}

// GetRebuild tells how the client's newest rebuild of a read model goes.
func (a *API) GetRebuild(ctx context.Context, r httpapi.GetRebuildRequestObject) (httpapi.GetRebuildResponseObject, error) {
	client, _ := asked(ctx)
	found, err := a.Projections.List(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		if p.Name == r.Projection && p.Rebuild != nil {
			return httpapi.GetRebuild200JSONResponse(*p.Rebuild), nil
		}
	}
	return nil, fault.New(fault.Missing, "rebuild_unknown", "You have asked for no rebuild of such a projection.")
}
