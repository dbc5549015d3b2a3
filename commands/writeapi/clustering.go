package writeapi

import (
	"context"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
)

// StartClusteringRun asks for a clustering run.
func (a *API) StartClusteringRun(ctx context.Context, r httpapi.StartClusteringRunRequestObject) (httpapi.StartClusteringRunResponseObject, error) {
	layer, err := httpapi.Named[id.ConsentLayer](r.Body.ConsentLayerID, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	segment, err := httpapi.NamedIfAny[id.Segment](r.Body.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	of := event.RunScope{Layer: layer, Segment: segment}
	run, err := a.Commands.RequestRun(ctx, call(ctx), commands.RequestRun{RunScope: of, K: httpapi.Or(r.Body.K, 0), MinSize: httpapi.Or(r.Body.MinSize, 0), Seed: r.Body.Seed})
	if err != nil {
		return nil, err
	}
	return httpapi.StartClusteringRun202JSONResponse{
		Body: httpapi.ClusteringRun{
			ID: run.Run, ConsentLayerID: run.Layer, SegmentID: httpapi.OrNull(run.Segment), Status: httpapi.RunPending, K: r.Body.K, MinSize: r.Body.MinSize, Seed: run.Seed,
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
	at, err := a.cancel(ctx, r.ClusteringRunID, a.Commands.CancelRun)
	if err != nil {
		return nil, err
	}
	return httpapi.CancelClusteringRun204Response{
		Headers: httpapi.CancelClusteringRun204ResponseHeaders{XKindredPosition: positionIfAny(at)},
	}, nil
}

// CancelClusteringVerdict leaves a completed run without a verdict.
func (a *API) CancelClusteringVerdict(ctx context.Context, r httpapi.CancelClusteringVerdictRequestObject) (httpapi.CancelClusteringVerdictResponseObject, error) {
	at, err := a.cancel(ctx, r.ClusteringRunID, a.Commands.CancelJudging)
	if err != nil {
		return nil, err
	}
	return httpapi.CancelClusteringVerdict204Response{
		Headers: httpapi.CancelClusteringVerdict204ResponseHeaders{XKindredPosition: positionIfAny(at)},
	}, nil
}

func (a *API) cancel(ctx context.Context, ref string,
	how func(context.Context, commands.Call, event.RunScope, id.Run) (eventstore.Position, error),
) (eventstore.Position, error) {
	run, err := httpapi.Named[id.Run](ref, fault.UnknownClusteringRun)
	if err != nil {
		return "", err
	}
	c := call(ctx)
	of, err := a.ScopeOf(ctx, c.Client, run)
	if err != nil {
		return "", err
	}
	return how(ctx, c, of, run)
}
