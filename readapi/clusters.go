package readapi

import (
	"cmp"
	"context"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// ListClusteringRuns lists the clustering runs of the client.
func (a *API) ListClusteringRuns(ctx context.Context, r httpapi.ListClusteringRunsRequestObject) (httpapi.ListClusteringRunsResponseObject, error) {
	query := projections.RunQuery{
		Status: string(httpapi.Or(r.Params.Status, "")), Layer: id.ConsentLayer(httpapi.Or(r.Params.ConsentLayerID, "")), Segment: id.Segment(httpapi.Or(r.Params.SegmentID, "")),
	}
	data, next, err := list(ctx, a, keptTo(filtered("clustering_runs", query.Status, string(query.Layer)), query.Segment), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.Run, error) {
			query.Page = page
			return projections.Clusters{Reader: a.Reader}.Runs(ctx, client, eventual, query)
		}, func(r projections.Run) eventstore.Position { return r.CreatedPosition }, runBody)
	return httpapi.ListClusteringRuns200JSONResponse{Data: data, NextCursor: next}, err
}

// GetClusteringRun shows a clustering run.
func (a *API) GetClusteringRun(ctx context.Context, r httpapi.GetClusteringRunRequestObject) (httpapi.GetClusteringRunResponseObject, error) {
	found, err := a.run(ctx, r.ClusteringRunID)
	if err != nil {
		return nil, err
	}
	return httpapi.GetClusteringRun200JSONResponse(runBody(found)), nil
}

func (a *API) run(ctx context.Context, ref string) (projections.Run, error) {
	return get(ctx, ref, fault.UnknownClusteringRun, projections.Clusters{Reader: a.Reader}.Run)
}

// GetClusteringMap shows the clusters of a run in two dimensions.
func (a *API) GetClusteringMap(ctx context.Context, r httpapi.GetClusteringMapRequestObject) (httpapi.GetClusteringMapResponseObject, error) {
	client, _ := asked(ctx)
	run, err := a.run(ctx, r.ClusteringRunID)
	if err != nil {
		return nil, err
	}
	shown, err := a.RunMaps.Map(ctx, client, run)
	if err != nil {
		return nil, err
	}
	return httpapi.GetClusteringMap200JSONResponse{
		ClusteringRunID: run.ID, Users: shown.Users, Explained: shown.Held[:],
		Points: each(shown.Points, func(p projections.RunMapPoint) httpapi.ClusteringPoint {
			return httpapi.ClusteringPoint{UserID: p.User, ClusterID: p.Cluster, X: p.X, Y: p.Y}
		}),
	}, nil
}

// GetClusteringFlow shows how a run has moved users between clusters.
func (a *API) GetClusteringFlow(ctx context.Context, r httpapi.GetClusteringFlowRequestObject) (httpapi.GetClusteringFlowResponseObject, error) {
	client, _ := asked(ctx)
	run, err := a.run(ctx, r.ClusteringRunID)
	if err != nil {
		return nil, err
	}
	before, found, err := projections.Clusters{Reader: a.Reader}.Flows(ctx, client, run)
	if err != nil {
		return nil, err
	}
	return httpapi.GetClusteringFlow200JSONResponse{
		ClusteringRunID: run.ID, PreviousRunID: httpapi.OrNull(string(before)),
		Data: each(found, func(f projections.Flow) httpapi.ClusteringMove {
			return httpapi.ClusteringMove{FromClusterID: httpapi.OrNull(string(f.From)), ToClusterID: httpapi.OrNull(string(f.To)), Users: f.Users}
		}),
	}, nil
}

// ListClusters lists the clusters that the last runs have found.
func (a *API) ListClusters(ctx context.Context, r httpapi.ListClustersRequestObject) (httpapi.ListClustersResponseObject, error) {
	of := event.RunScope{Layer: id.ConsentLayer(httpapi.Or(r.Params.ConsentLayerID, "")), Segment: id.Segment(httpapi.Or(r.Params.SegmentID, ""))}
	data, next, err := list(ctx, a, keptTo(filtered("clusters", string(of.Layer)), of.Segment), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.Cluster, error) {
			return projections.Clusters{Reader: a.Reader}.List(ctx, client, eventual, of, page)
		}, func(c projections.Cluster) eventstore.Position { return c.CreatedPosition }, clusterBody)
	return httpapi.ListClusters200JSONResponse{Data: data, NextCursor: next}, err
}

// keptTo names a list by the segment that its runs are kept to; "": as it was named before.
func keptTo(list string, segment id.Segment) string {
	if segment == "" {
		return list
	}
	return filtered(list, "kept to", string(segment))
}

// GetCluster shows a cluster.
func (a *API) GetCluster(ctx context.Context, r httpapi.GetClusterRequestObject) (httpapi.GetClusterResponseObject, error) {
	found, err := a.cluster(ctx, r.ClusterID)
	if err != nil {
		return nil, err
	}
	return httpapi.GetCluster200JSONResponse(clusterBody(found)), nil
}

// ListClusterMembers lists who is in a cluster, in the order of their ids.
func (a *API) ListClusterMembers(ctx context.Context, r httpapi.ListClusterMembersRequestObject) (httpapi.ListClusterMembersResponseObject, error) {
	cluster, err := a.cluster(ctx, r.ClusterID)
	if err != nil {
		return nil, err
	}
	if r.Params.Filter != nil || r.Params.SegmentID != nil {
		return a.filteredMembers(ctx, cluster, r.Params)
	}
	data, next, err := list(ctx, a, filtered("members", string(cluster.ID)), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.ClusterMember, error) {
			return projections.Clusters{Reader: a.Reader}.Members(ctx, client, eventual, cluster.ID, page)
		}, func(m projections.ClusterMember) eventstore.Position { return eventstore.Position(m.User) }, clusterMemberBody)
	return httpapi.ListClusterMembers200JSONResponse{Data: data, NextCursor: next}, err
}

func clusterMemberBody(m projections.ClusterMember) httpapi.ClusterMember {
	return httpapi.ClusterMember{UserID: m.User, ExternalID: m.ExternalID}
}

// ListClusterDrift lists what became of a cluster from run to run.
func (a *API) ListClusterDrift(ctx context.Context, r httpapi.ListClusterDriftRequestObject) (httpapi.ListClusterDriftResponseObject, error) {
	cluster, err := a.cluster(ctx, r.ClusterID)
	if err != nil {
		return nil, err
	}
	data, next, err := list(ctx, a, filtered("drift", string(cluster.ID)), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) ([]projections.ClusterDrift, error) {
			return projections.Clusters{Reader: a.Reader}.Drift(ctx, client, eventual, cluster.ID, page)
		}, func(d projections.ClusterDrift) eventstore.Position { return d.CreatedPosition }, driftBody)
	return httpapi.ListClusterDrift200JSONResponse{Data: data, NextCursor: next}, err
}

// AssignCluster says which cluster a user would be in.
func (a *API) AssignCluster(ctx context.Context, r httpapi.AssignClusterRequestObject) (httpapi.AssignClusterResponseObject, error) {
	client, eventual := asked(ctx)
	layer, err := httpapi.Named[id.ConsentLayer](r.Body.ConsentLayerID, fault.UnknownConsentLayer)
	if err != nil {
		return nil, err
	}
	user, err := a.user(ctx, r.Body.UserID)
	if err != nil {
		return nil, err
	}
	found, err := a.Assigner.Assign(ctx, client, eventual, user, layer)
	if err != nil {
		return nil, err
	}
	body := httpapi.AssignCluster200JSONResponse{
		UserID: user, ConsentLayerID: layer, ClusteringRunID: found.Cluster.Run, ClusterID: found.Cluster.ID, Label: found.Cluster.Label,
		Distance: found.Distance, Spread: found.Cluster.Spread, NextClusterID: httpapi.OrNull(string(found.Next.ID)), Confidence: found.Confidence,
		Terms: each(found.Terms, func(t projections.AssignedTerm) httpapi.AssignmentTerm {
			return httpapi.AssignmentTerm{Trait: t.Trait, Nearer: t.Nearer, Missing: t.Missing}
		}),
	}
	if found.Next.ID != "" {
		body.NextDistance = &found.NextDistance
	}
	return body, nil
}

func (a *API) cluster(ctx context.Context, ref string) (projections.Cluster, error) {
	return get(ctx, ref, fault.UnknownCluster, projections.Clusters{Reader: a.Reader}.Get)
}

func runBody(r projections.Run) httpapi.ClusteringRun {
	body := httpapi.ClusteringRun{
		ID: r.ID, ConsentLayerID: r.Layer, SegmentID: httpapi.OrNull(r.Segment), Status: httpapi.RunStatus(r.Status), K: httpapi.OrNull(r.K), MinSize: httpapi.OrNull(r.MinSize), Seed: r.Seed, TraitPaths: r.TraitPaths,
		InputPosition: string(r.CreatedPosition), Users: r.Users, SchemaVersion: r.SchemaVersion, ErrorCode: httpapi.OrNull(r.ErrorCode),
		ErrorDetails: httpapi.OrNull(r.ErrorDetails), CreatedAt: httpapi.Time{Time: r.CreatedAt}, StartedAt: httpapi.TimeOrNull(r.StartedAt), EndedAt: httpapi.TimeOrNull(r.EndedAt),
		Clusters: each(r.Found, func(c event.ClusterSummary) httpapi.ClusterSummary {
			return httpapi.ClusterSummary{ID: c.ID, Size: c.Size, Label: c.Label}
		}),
	}
	switch body.Status {
	case httpapi.RunPending:
		body.Progress = &httpapi.RunProgress{Phase: "waiting"}
	case httpapi.RunRunning:
		phase := cmp.Or(r.Phase, "waiting") // for somebody to take it up again
		body.Progress = &httpapi.RunProgress{Phase: phase, Share: r.Share, EtaSeconds: r.ETASeconds}
	case httpapi.RunCompleted:
		body.Progress = &httpapi.RunProgress{Phase: "completed", Share: 1}
	}
	if r.Silhouette != nil {
		body.Quality = &httpapi.RunQuality{Silhouette: *r.Silhouette}
	}
	if r.Judged != nil {
		body.Verdict = verdictBody(r.Judged)
	}
	return body
}

// unsettled is a continuum of users who are more than one cloud.
const unsettled = "unsettled"

// verdicts in words, for somebody who knows no statistics.
var verdicts = map[string]string{
	"groups": "The users stand in groups: they are closer together, and the groups farther apart, than in any crowd without " +
		"groups that was made up from the same traits.",
	"continuum": "Traits go together among the users, but these clusters are not groups: a made-up crowd without groups, in which the " +
		"same traits go together gradually, divides as well. They are parts of a range, or cut across groups that another number " +
		"of clusters may find; their borders could be elsewhere.",
	unsettled: "The users are more than one crowd, but which groups they form is not settled: divided anew from another " +
		"beginning, the same users come out otherwise. The borders could be elsewhere.",
	"none": "Nothing speaks for groups: users whose traits were dealt out at random divide as well. But for the gaps that a single " +
		"trait has by itself, the clusters cut through one crowd, and another run may cut otherwise.",
	"unknown": "Whether there are groups was not found out.",
}

func verdictBody(j *event.ClusteringJudged) *httpapi.RunVerdict {
	in := j.Verdict
	if in == "continuum" && j.Agreement != nil {
		in = unsettled
	}
	return &httpapi.RunVerdict{
		Kind: httpapi.VerdictKind(j.Verdict), Explanation: verdicts[in], Agreement: j.Agreement, Reason: httpapi.OrNull(j.Code), Users: httpapi.OrNull(j.Users),
		Shuffled: comparisonBody(j.Shuffled), Cloud: comparisonBody(j.Cloud),
	}
}

func comparisonBody(c *event.NullComparison) *httpapi.VerdictComparison {
	if c == nil {
		return nil
	}
	return &httpapi.VerdictComparison{P: c.P, K: c.K, Silhouette: c.Silhouette, Expected: c.Expected}
}

func clusterBody(c projections.Cluster) httpapi.Cluster {
	status := httpapi.ClusterActive
	if c.Retired {
		status = httpapi.ClusterRetired
	}
	return httpapi.Cluster{
		ID: c.ID, ConsentLayerID: c.Layer, SegmentID: httpapi.OrNull(c.Segment), Label: c.Label, ClusterSize: c.Size, Status: status,
		Quality: httpapi.ClusterQuality{Silhouette: c.Silhouette, Spread: c.Spread, Stability: c.Stability},
		Traits: each(c.Distinctions, func(d event.Distinction) httpapi.ClusterTrait {
			return httpapi.ClusterTrait{
				Path: d.Path, Type: d.Type, Level: httpapi.OrNull(d.Level), Effect: d.Effect, ClusterValue: d.Here, OverallValue: d.All,
			}
		}),
		ClusteringRunID: c.Run, FirstRunID: c.FirstRun, Ancestors: c.Ancestors, Descendants: c.Descendants,
		CreatedAt: httpapi.Time{Time: c.FormedAt}, UpdatedAt: httpapi.Time{Time: c.UpdatedAt},
	}
}

func driftBody(d projections.ClusterDrift) httpapi.ClusterDrift {
	return httpapi.ClusterDrift{
		ClusteringRunID: d.Run, At: httpapi.Time{Time: d.At}, Severity: httpapi.DriftSeverity(d.Severity), Causes: each(d.Causes, causeBody),
		Comparisons: each(d.Comparisons, func(c event.ClusterComparison) httpapi.DriftComparison {
			return httpapi.DriftComparison{
				Baseline: c.Baseline, WithRunID: c.With, Judged: c.Judged, Jaccard: c.Jaccard, ShareBefore: c.ShareBefore,
				ShareAfter: c.ShareAfter, CentroidShift: c.Shift, Causes: each(c.Causes, causeBody),
				Traits: each(c.Traits, func(t event.TraitDrift) httpapi.TraitDrift {
					return httpapi.TraitDrift{Path: t.Path, Psi: t.PSI, Limit: t.Limit}
				}),
				Turnover: turnoverBody(c.Turnover),
			}
		}),
	}
}

func turnoverBody(t *event.ClusterTurnover) *httpapi.DriftTurnover {
	if t == nil {
		return nil
	}
	return &httpapi.DriftTurnover{Stayed: t.Stayed, Left: t.Left, Came: t.Came, New: t.New, Gone: t.Gone, SameCut: t.SameCut}
}

func causeBody(c event.DriftCause) httpapi.DriftCause {
	body := httpapi.DriftCause{
		Kind: c.Kind, Baseline: c.Baseline, Trait: httpapi.OrNull(c.Trait), Amount: c.Amount, Severity: httpapi.DriftSeverity(c.Severity),
		Origin: httpapi.OrNull(c.Origin), Effect: httpapi.OrNull(c.Effect), Level: httpapi.OrNull(c.Level),
	}
	if c.Level != "" {
		body.ShareBefore, body.ShareAfter = &c.Before, &c.After
	}
	return body
}
