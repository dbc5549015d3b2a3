package console

import (
	"net/http"
	"net/url"
	"slices"
	"time"

	kindred "kindred/sdk/go"
)

// layerOf is the consent layer that a page is about: the one asked for, or the first.
func (p *page) layerOf() (layers []kindred.ConsentLayer, chosen kindred.ConsentLayer, err error) {
	if layers, _, err = collect(p.api.Consent.ListLayers(p.r.Context(), kindred.ListConsentLayersParams{}), allOf); err != nil || len(layers) == 0 {
		return nil, chosen, err
	}
	chosen = layers[0]
	for _, l := range layers {
		if l.ID == p.r.URL.Query().Get("layer") {
			chosen = l
		}
	}
	return layers, chosen, nil
}

func (p *page) clusters() error {
	ctx := p.r.Context()
	layers, layer, err := p.layerOf()
	if err != nil {
		return err
	}
	if len(layers) == 0 {
		return p.show("clusters", "Clusters", "Clusters", map[string]any{"Layers": layers})
	}
	runs, _, err := collect(p.api.Clusters.ListClusteringRuns(ctx, kindred.ListClusteringRunsParams{ConsentLayerID: layer.ID}), allOf)
	if err != nil {
		return err
	}
	slices.SortFunc(runs, func(a, b kindred.ClusteringRun) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all, _, err := collect(p.api.Clusters.List(ctx, kindred.ListClustersParams{ConsentLayerID: layer.ID}), allOf)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c kindred.Cluster) bool { return c.Status != kindred.ClusterStatusActive })
	slices.SortFunc(all, func(a, b kindred.Cluster) int { return int(b.ClusterSize - a.ClusterSize) })
	type row struct {
		kindred.Cluster
		Drift *kindred.ClusterDrift
	}
	var rows []row
	people := int64(0)
	for _, c := range all {
		one := row{Cluster: c}
		drift, err := p.api.Clusters.ListDriftPage(ctx, c.ID, kindred.ListClusterDriftParams{Limit: new(int64(100))})
		if err != nil {
			return err
		}
		if n := len(drift.Data); n > 0 {
			one.Drift = &drift.Data[n-1]
		}
		people += c.ClusterSize
		rows = append(rows, one)
	}
	var latest *kindred.ClusteringRun
	for i := range runs {
		if runs[i].Status == kindred.RunStatusCompleted {
			latest = &runs[i]
			break
		}
	}
	return p.show("clusters", "Clusters", "Clusters", map[string]any{
		"Layers": layers, "Layer": layer, "Runs": runs[:min(len(runs), 10)], "Clusters": rows, "Latest": latest, "Users": people,
	})
}

func (p *page) startRun() error {
	k, err := p.whole("k")
	if err != nil {
		return p.again(err, p.clusters)
	}
	run, err := p.api.Clusters.StartClusteringRun(p.r.Context(), kindred.NewClusteringRun{ConsentLayerID: p.form("layer"), K: k}, p.once())
	if err != nil {
		return p.again(err, p.clusters)
	}
	http.Redirect(p.w, p.r, Path+"runs/"+url.PathEscape(run.ID), http.StatusSeeOther)
	return nil
}

func (p *page) run() error {
	run, err := p.api.Clusters.GetClusteringRun(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if run.EndedAt == nil {
		p.w.Header().Set("Refresh", "1")
	}
	layer, err := p.api.Consent.GetLayer(p.r.Context(), run.ConsentLayerID)
	if err != nil {
		return err
	}
	var took time.Duration
	if run.StartedAt != nil && run.EndedAt != nil {
		took = run.EndedAt.Sub(*run.StartedAt)
	}
	return p.show("run", "Clusters", "Run", map[string]any{"Run": run, "Layer": layer, "Took": took})
}

func (p *page) cancelRun() error {
	if err := p.api.Clusters.CancelClusteringRun(p.r.Context(), p.r.PathValue("id")); err != nil {
		return p.again(err, p.run)
	}
	return p.done(Path+"runs/"+url.PathEscape(p.r.PathValue("id")), "cancelled")
}

func (p *page) cluster() error {
	ctx := p.r.Context()
	one, err := p.api.Clusters.Get(ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	asked := p.r.URL.Query()
	members, err := p.api.Clusters.ListMembersPage(ctx, one.ID, kindred.ListClusterMembersParams{Limit: new(int64(pageOf)), Cursor: asked.Get("cursor")})
	if err != nil {
		return err
	}
	drift, _, err := collect(p.api.Clusters.ListDrift(ctx, one.ID, kindred.ListClusterDriftParams{}), allOf)
	if err != nil {
		return err
	}
	slices.Reverse(drift)
	return p.show("cluster", "Clusters", one.Label, map[string]any{
		"Cluster": one, "Members": members.Data, "Drift": drift, "Next": next("clusters/"+url.PathEscape(one.ID), asked, members.NextCursor),
	})
}
