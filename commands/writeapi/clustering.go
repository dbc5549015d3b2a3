package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// StartClusteringRun asks for a clustering run.
func (a *API) StartClusteringRun(ctx context.Context, r httpapi.StartClusteringRunRequestObject) (httpapi.StartClusteringRunResponseObject, error) {
	layer, err := layerID(r.Body.ConsentLayerID)
	if err != nil {
		return nil, err
	}
	run, err := a.Commands.RequestRun(ctx, call(ctx), commands.RequestRun{Layer: layer, K: httpapi.Or(r.Body.K, 0), Seed: r.Body.Seed})
	if err != nil {
		return nil, err
	}
	return httpapi.StartClusteringRun202JSONResponse{
		Body: httpapi.ClusteringRun{
			ID: run.Run, ConsentLayerID: run.Layer, Status: httpapi.RunPending, K: r.Body.K, Seed: run.Seed,
			TraitPaths: run.TraitPaths, InputPosition: string(run.Position), CreatedAt: httpapi.Time{Time: run.CreatedAt},
			Progress: &httpapi.RunProgress{Phase: "waiting"},
		},
		Headers: httpapi.StartClusteringRun202ResponseHeaders{
			Location: "/api/v1/clustering_runs/" + string(run.Run), XKindredPosition: string(run.Position),
		},
	}, nil
}

// CancelClusteringRun ends a run without a result.
func (a *API) CancelClusteringRun(ctx context.Context, r httpapi.CancelClusteringRunRequestObject) (httpapi.CancelClusteringRunResponseObject, error) {
	run, err := id.Parse[id.Run](r.ClusteringRunID)
	if err != nil {
		return nil, fault.New(fault.Missing, "clustering_run_unknown", "There is no such clustering run.")
	}
	c := call(ctx)
	layer, err := a.LayerOf(ctx, c.Client, run)
	if err != nil {
		return nil, err
	}
	at, err := a.Commands.CancelRun(ctx, c, layer, run)
	if err != nil {
		return nil, err
	}
	return httpapi.CancelClusteringRun204Response{
		Headers: httpapi.CancelClusteringRun204ResponseHeaders{XKindredPosition: positionIfAny(at)},
	}, nil
}
