package console

import (
	"cmp"
	"html/template"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"kindred/console/chart"
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

// segmentsOf are the segments of a layer, and the one that the runs of a page are kept to;
// "" where that is none.
func (p *page) segmentsOf(layer kindred.ConsentLayer) (segments []kindred.Segment, kept string, err error) {
	all, err := p.allSegments()
	for _, s := range all {
		if s.ConsentLayerID == nil || *s.ConsentLayerID != layer.ID {
			continue
		}
		if segments = append(segments, s); s.ID == p.r.URL.Query().Get("segment") {
			kept = s.ID
		}
	}
	return segments, kept, err
}

func (p *page) clusters() error {
	ctx := p.r.Context()
	layers, layer, err := p.layerOf()
	if err != nil {
		return err
	}
	if len(layers) == 0 {
		return p.show("clusters", "Clusters", say("titles.clusters"), map[string]any{"Layers": layers})
	}
	segments, kept, err := p.segmentsOf(layer)
	if err != nil {
		return err
	}
	runs, err := latest(p.api.Clusters.ListClusteringRuns(ctx, kindred.ListClusteringRunsParams{ConsentLayerID: layer.ID, SegmentID: kept, Limit: new(int64(allOf))}), allOf)
	if err != nil {
		return err
	}
	slices.SortFunc(runs, func(a, b kindred.ClusteringRun) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all, _, err := collect(p.api.Clusters.List(ctx, kindred.ListClustersParams{ConsentLayerID: layer.ID, SegmentID: kept}), allOf)
	if err != nil {
		return err
	}
	known := all
	all = slices.DeleteFunc(slices.Clone(all), func(c kindred.Cluster) bool { return c.Status != kindred.ClusterStatusActive })
	slices.SortFunc(all, func(a, b kindred.Cluster) int { return int(b.ClusterSize - a.ClusterSize) })
	done := 0
	for _, r := range runs {
		if r.Status == kindred.RunStatusCompleted {
			done++
		}
	}
	type row struct {
		kindred.Cluster
		Drift *kindred.ClusterDrift
		New   bool // a run before the latest had found none like it
	}
	var rows []row
	people := int64(0)
	for _, c := range all {
		one := row{Cluster: c, New: c.FirstRunID == c.ClusteringRunID && done > 1}
		drift, err := latest(p.api.Clusters.ListDrift(ctx, c.ID, kindred.ListClusterDriftParams{Limit: new(int64(allOf))}), 1)
		if err != nil {
			return err
		}
		if len(drift) > 0 {
			one.Drift = &drift[0]
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
	data := map[string]any{
		"Layers": layers, "Layer": layer, "Runs": runs[:min(len(runs), 10)], "Clusters": rows, "Latest": latest, "Users": people, "Segments": segments, "Kept": kept,
	}
	if latest != nil {
		if err := p.drawn(data, latest, all, known); err != nil {
			return err
		}
	} else {
		agreed, err := p.api.Consent.ListPage(ctx, layer.ID, kindred.ListConsentsParams{Limit: new(int64(1))})
		if err != nil {
			return err
		}
		data["Agreed"] = len(agreed.Data) > 0
	}
	return p.show("clusters", "Clusters", say("titles.clusters"), data)
}

// drawn adds the map of a run, whose groups have the colours of clusters, once it is asked
// for, and where people went with it.
func (p *page) drawn(data map[string]any, run *kindred.ClusteringRun, clusters, known []kindred.Cluster) error {
	ctx := p.r.Context()
	at := map[string]int{}
	groups := make([]chart.Group, len(clusters))
	for i, c := range clusters {
		at[c.ID], groups[i].Name = i, brief(c.Label)
	}
	var plane *kindred.ClusteringMap
	var err error
	drawLater := later("clusters", p.r.URL.Query(), "map")
	if data["Later"] = drawLater; drawLater == "" {
		plane, err = p.api.Clusters.GetClusteringMap(ctx, run.ID)
	}
	switch {
	case drawLater != "":
	case err == nil && len(plane.Points) > 0:
		for _, point := range plane.Points {
			if i, ok := at[point.ClusterID]; ok {
				groups[i].Points = append(groups[i].Points, chart.Point{X: point.X, Y: point.Y})
			}
		}
		data["Sample"], data["Explained"] = len(plane.Points), plane.Explained
		data["Map"] = drawing.Map(say("clusters.clusters_of_the_latest"), say("clusters.groups_of_users_a",
			number(len(clusters)), number(plane.Users), number(len(plane.Points))), groups)
	case err != nil:
		if data["NoMap"], err = notNow(err); err != nil {
			return err
		}
	}
	flow, err := p.api.Clusters.GetClusteringFlow(ctx, run.ID)
	if err != nil {
		data["NoFlow"], err = notNow(err)
		return err
	}
	if flow.PreviousRunID == nil {
		return nil
	}
	before, err := p.api.Clusters.GetClusteringRun(ctx, *flow.PreviousRunID)
	if err != nil {
		return err
	}
	ends := make([]string, 0, len(flow.Data))
	for _, m := range flow.Data {
		if m.FromClusterID != nil {
			ends = append(ends, *m.FromClusterID)
		}
	}
	if known, err = p.withClusters(known, ends); err != nil {
		return err
	}
	then, now := stamp(before.CreatedAt, zoneOf(p.r)), stamp(run.CreatedAt, zoneOf(p.r))
	data["Flow"] = flows(flow, then, now, at, known)
	return nil
}

// lookedUp is how many clusters that no list has a page asks for.
const lookedUp = 10

// withClusters adds clusters that are not among those of a list: one may be beyond the others, retired, of a
// segment, or gone with its layer.
func (p *page) withClusters(clusters []kindred.Cluster, ids []string) ([]kindred.Cluster, error) {
	asked := 0
	for _, id := range ids {
		if slices.ContainsFunc(clusters, func(c kindred.Cluster) bool { return c.ID == id }) {
			continue
		}
		of := kindred.Cluster{ID: id, Label: short(id)}
		if asked++; asked <= lookedUp {
			switch found, err := p.api.Clusters.Get(p.r.Context(), id); {
			case err == nil:
				of = *found
			case problemOf(err).Status == http.StatusNotFound:
				of.Status = kindred.ClusterStatusRetired
			default:
				return nil, err
			}
		}
		clusters = append(clusters, of)
	}
	return clusters, nil
}

// leastMove is the standard deviations from which drift of a number is told as its move: below, its
// values lie farther apart or closer together, about the same middle.
const leastMove = 0.25

// missingLevel is how the API names those who do not say a trait.
const missingLevel = "(missing)"

// moved says in words what has changed in a cluster, and what it came from, by one of the comparisons.
func moved(c kindred.DriftCause, by []kindred.DriftComparison) string {
	var said string
	with := slices.IndexFunc(by, func(d kindred.DriftComparison) bool { return d.Baseline == c.Baseline })
	switch {
	case c.Kind == "members":
		said = say("cluster.members_are_others", percent(c.Amount))
	case c.Kind == "size" && with >= 0:
		before, after := percent(by[with].ShareBefore), percent(by[with].ShareAfter)
		if said = say("cluster.its_share_rose", before, after); by[with].ShareAfter < by[with].ShareBefore {
			said = say("cluster.its_share_fell", before, after)
		}
	case c.Kind == "size":
		said = say("cluster.its_share", percent(c.Amount))
	case c.Trait == nil || c.Effect == nil || c.Level == nil && math.Abs(*c.Effect) < leastMove: // or of before directions were told
		said = say("cluster.is_spread_otherwise", deref(c.Trait), score(c.Amount))
	case c.Level != nil && c.ShareBefore != nil && c.ShareAfter != nil:
		before, after := percent(*c.ShareBefore), percent(*c.ShareAfter)
		switch missing, fell := *c.Level == missingLevel, *c.Effect < 0; {
		case missing && fell:
			said = say("cluster.missing_fell", *c.Trait, before, after)
		case missing:
			said = say("cluster.missing_rose", *c.Trait, before, after)
		case fell:
			said = say("cluster.level_fell", *c.Trait, *c.Level, before, after)
		default:
			said = say("cluster.level_rose", *c.Trait, *c.Level, before, after)
		}
	default:
		by := score(math.Abs(*c.Effect))
		if said = say("cluster.rose", *c.Trait, by); *c.Effect < 0 {
			said = say("cluster.fell", *c.Trait, by)
		}
	}
	if c.Baseline == "first" {
		said = say("cluster.since_first", said)
	} else {
		said = say("cluster.since_previous", said)
	}
	switch {
	case c.Origin == nil:
		return said
	case *c.Origin == "people_changed":
		return say("cluster.people_changed", said)
	default:
		return say("cluster.others_came", said)
	}
}

// brief is a label without its figures, for beside a picture.
func brief(label string) string { return figures.ReplaceAllString(label, "") }

var figures = regexp.MustCompile(` \([^()]*%[^()]*\)`)

// clusterOf is the id of a cluster; "": of none.
func clusterOf(id *string) string { return deref(id).(string) }

// flows draws where people went, the largest groups first, those in none last.
func flows(flow *kindred.ClusteringFlow, then, now string, colours map[string]int, known []kindred.Cluster) template.HTML {
	labels := map[string]string{}
	for _, c := range known {
		labels[c.ID] = brief(c.Label)
	}
	ends := func(of func(kindred.ClusteringMove) *string) (all []chart.End, at map[string]int) {
		sizes := map[string]int64{}
		for _, m := range flow.Data {
			sizes[clusterOf(of(m))] += m.Users
		}
		names := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
			switch {
			case a == "":
				return 1
			case b == "":
				return -1
			}
			return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
		})
		at = map[string]int{}
		for i, id := range names {
			end := chart.End{Name: cmp.Or(labels[id], short(id)), Colour: -1}
			if colour, ok := colours[id]; ok {
				end.Colour = colour
			}
			if id == "" {
				end.Name = say("clusters.in_none")
			}
			all, at[id] = append(all, end), i
		}
		return all, at
	}
	from, fromAt := ends(func(m kindred.ClusteringMove) *string { return m.FromClusterID })
	to, toAt := ends(func(m kindred.ClusteringMove) *string { return m.ToClusterID })
	var moves []chart.Move
	stayed, all := int64(0), int64(0)
	for _, m := range flow.Data {
		a, b := clusterOf(m.FromClusterID), clusterOf(m.ToClusterID)
		moves = append(moves, chart.Move{From: fromAt[a], To: toAt[b], Count: m.Users})
		if all += m.Users; a == b {
			stayed += m.Users
		}
	}
	return drawing.Flow(say("clusters.where_people_went_between"), say("clusters.of_stayed_where_they", number(stayed), number(all)),
		then, now, from, to, moves)
}

func (p *page) startRun() error {
	k, err := p.whole("k")
	if err != nil {
		return p.again(err, p.clusters)
	}
	run, err := p.api.Clusters.StartClusteringRun(p.r.Context(), kindred.NewClusteringRun{ConsentLayerID: p.form("layer"), SegmentID: p.optional("segment"), K: k}, p.once())
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
	judging := run.Quality != nil && run.Verdict == nil
	switch {
	case run.EndedAt == nil:
		p.w.Header().Set("Refresh", "1")
	case judging:
		p.w.Header().Set("Refresh", "5") // a verdict takes seconds to minutes
	}
	var took time.Duration
	if run.StartedAt != nil && run.EndedAt != nil {
		took = run.EndedAt.Sub(*run.StartedAt)
	}
	data := map[string]any{"Run": run, "Took": took, "Judging": judging}
	if data["Layer"], err = there(p.api.Consent.GetLayer(p.r.Context(), run.ConsentLayerID)); err != nil {
		return err
	}
	if run.SegmentID != nil {
		if data["Segment"], err = there(p.api.Segments.Get(p.r.Context(), *run.SegmentID)); err != nil {
			return err
		}
	}
	return p.show("run", "Clusters", say("titles.run"), data)
}

func (p *page) cancelRun() error {
	if err := p.api.Clusters.CancelClusteringRun(p.r.Context(), p.r.PathValue("id")); err != nil {
		return p.again(err, p.run)
	}
	return p.done(Path+"runs/"+url.PathEscape(p.r.PathValue("id")), "cancelled")
}

func (p *page) cancelVerdict() error {
	if err := p.api.Clusters.CancelClusteringVerdict(p.r.Context(), p.r.PathValue("id")); err != nil {
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
	drift, err := latest(p.api.Clusters.ListDrift(ctx, one.ID, kindred.ListClusterDriftParams{Limit: new(int64(allOf))}), allOf)
	if err != nil {
		return err
	}
	slices.Reverse(drift)
	run, err := p.api.Clusters.GetClusteringRun(ctx, one.ClusteringRunID)
	if err != nil {
		return err
	}
	ancestors, err := p.withClusters(nil, one.Ancestors)
	if err != nil {
		return err
	}
	descendants, err := p.withClusters(nil, one.Descendants)
	if err != nil {
		return err
	}
	return p.show("cluster", "Clusters", one.Label, map[string]any{
		"Cluster": one, "Ancestors": ancestors, "Descendants": descendants, "Members": members.Data, "Drift": drift, "Verdict": run.Verdict, "Next": next("clusters/"+url.PathEscape(one.ID), asked, members.NextCursor),
	})
}
