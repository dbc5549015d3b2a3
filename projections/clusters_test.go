package projections_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// divides records a whole run that puts users into clusters. between happens
// after the members were assigned and before the run completes.
func (h *history) divides(layer id.ConsentLayer, attempt int, clusters map[id.Cluster][]id.User, formed bool, between func()) id.Run {
	h.Helper()
	run := id.Next[id.Run](h.ids)
	runs := "runs-" + string(layer)
	h.record(runs, event.ClusteringRequested{Run: run, Layer: layer, TraitPaths: []string{"age"}, Seed: 5})
	for n := 1; n <= attempt; n++ {
		h.record(runs, event.ClusteringStarted{Run: run, Layer: layer, Attempt: n})
		for c, users := range clusters {
			h.record("run-"+string(run), event.ClusteringAssigned{Run: run, Layer: layer, Attempt: n, Cluster: c, Users: users})
		}
	}
	// What an attempt says that was given up counts for nothing.
	h.record("run-"+string(run), event.ClusteringAssigned{Run: run, Layer: layer, Attempt: attempt - 1, Cluster: "clu_dead", Users: []id.User{"usr_dead"}})
	if between != nil {
		between()
	}
	var events []event.Event
	completed := event.ClusteringCompleted{Run: run, Layer: layer, Attempt: attempt}
	for c, users := range clusters {
		state := event.ClusterState{
			Cluster: c, Layer: layer, Run: run, First: event.RunAttempt{Run: run, Attempt: attempt}, Size: len(users), Label: string(c),
			Distinctions: []event.Distinction{},
		}
		completed.Clusters = append(completed.Clusters, event.ClusterSummary{ID: c, Size: len(users), Label: state.Label})
		if formed {
			events = append(events, event.ClusterFormed{ClusterState: state})
			continue
		}
		events = append(events, event.ClusterKept{ClusterState: state, Comparisons: []event.ClusterComparison{}},
			event.ClusterDriftDetected{Cluster: c, Layer: layer, Run: run, Severity: "major", Causes: []event.DriftCause{{Kind: "size"}}})
	}
	h.record(runs, append(events, completed)...)
	return run
}

func TestClustersAreTheSameInWhateverBatches(t *testing.T) {
	pool := pgtest.New(t)
	h := newHistory(t)
	a, b := h.define(), h.define()
	u := h.create(9)
	h.grant(a, u...)
	h.grant(b, u...)
	one, two, gone := id.Cluster("clu_one"), id.Cluster("clu_two"), id.Cluster("clu_gone")
	h.divides(b, 1, map[id.Cluster][]id.User{gone: u[:4]}, true, nil)
	first := h.divides(a, 2, map[id.Cluster][]id.User{one: u[:5], two: u[5:]}, true, func() {
		h.withdraw(a, u[0])
		h.record("erased", event.EndUserErased{User: u[5]})
	})
	h.withdraw(a, u[1])
	h.grant(a, u[1]) // is in no cluster until the next run
	second := h.divides(a, 1, map[id.Cluster][]id.User{one: {u[0], u[1], u[2], u[5]}}, false, nil)
	h.record("runs-"+string(a), event.ClusterRetired{Cluster: two, Layer: a, Run: second, Descendants: []id.Cluster{one}})
	h.withdraw(a, u[2])
	h.record("layer-"+string(b), event.ConsentLayerRetired{Layer: b})

	tables := wantSplitIndependent(t, pool, projections.Clusters{}, h.all(),
		"runs", "clusters", "cluster_members", "cluster_drift", "cluster_flow", "cluster_withdrawn", "cluster_erased", "cluster_layers_retired", "cluster_segments_retired")
	_, members, _ := strings.Cut(tables, "cluster_members\n")
	members, _, _ = strings.Cut(members, "cluster_drift\n")
	if want := "(" + strings.Join([]string{string(h.client), string(a), `""`, string(second), string(one), string(u[1])}, ",") + ")\n"; members != want {
		t.Errorf("members:\n%swant only\n%s", members, want)
	}
	_, flows, _ := strings.Cut(tables, "cluster_flow\n")
	flows, _, _ = strings.Cut(flows, "cluster_withdrawn\n")
	var moved []string // of the layer that stays; u[1] had withdrawn, u[5] was erased, u[0] was never in one
	for f := range strings.SplitSeq(strings.TrimSpace(flows), "\n") {
		moved = append(moved, strings.TrimPrefix(f, "("+string(h.client)+","+string(a)+","))
	}
	wantMoved := []string{
		string(first) + `,"",clu_one,4)`, string(first) + `,"",clu_two,3)`,
		string(second) + `,"",clu_one,1)`, string(second) + ",clu_one,clu_one,1)", string(second) + `,clu_one,"",2)`, string(second) + `,clu_two,"",3)`,
	}
	slices.Sort(moved)
	slices.Sort(wantMoved)
	if diff := cmp.Diff(wantMoved, moved); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
	for _, want := range []string{string(first) + "," + string(a), ",1,clu_one,", ",{clu_one},t,", string(second)} {
		if !strings.Contains(tables, want) {
			t.Errorf("no %s in\n%s", want, tables)
		}
	}
	if strings.Contains(tables, "clu_dead") || strings.Contains(tables, string(gone)+","+string(b)) {
		t.Errorf("what does not count is in\n%s", tables)
	}
}

// However many clients have runs that wait, and whatever their ids, the oldest run is among those found.
func TestTheOldestRunsAreFoundWhoeverTheyAreOf(t *testing.T) {
	pool := pgtest.New(t)
	model := projections.Clusters{Reader: readmodel.Reader{Pool: pool}}
	if _, err := pool.Exec(t.Context(), model.Schema()); err != nil {
		t.Fatal(err)
	}
	for status, find := range map[string]func(context.Context, []id.Run) ([]projections.OpenRun, error){"pending": model.OpenRuns, "completed": model.UnjudgedRuns} {
		// Clients ask in the order of their ids turned around, and the last of these twice.
		if _, err := pool.Exec(t.Context(), `
INSERT INTO runs (client, id, layer, segment, created_position, trait_paths, k, seed, created_at, status)
SELECT to_char(c, 'FM0000'), $1 || to_char(n, 'FM0000'), 'lay', '', to_char(n, 'FM0000000000000000'), '{}', 0, 1, now(), $1
FROM generate_series(0, 1001) AS n, LATERAL (SELECT least(1001 - n, 1000) AS c) of`, status); err != nil {
			t.Fatal(err)
		}
		found, err := find(t.Context(), nil)
		if err != nil || len(found) != 1000 {
			t.Fatalf("%s: %d are found, %v", status, len(found), err)
		}
		if first := found[0]; first.Client != "1000" || first.ID != id.Run(status+"0000") {
			t.Errorf("%s: the first is %s of %s", status, first.ID, first.Client)
		}
		if found, err = find(t.Context(), []id.Run{id.Run(status + "0000")}); err != nil || found[0].ID != id.Run(status+"0001") {
			t.Errorf("%s: the next is %v, %v", status, found[:min(len(found), 1)], err)
		}
	}
}

// Whoever carries a run out, or judges it, stops once its client was deleted, and nothing is shown of it.
func TestTheRunsOfADeletedClientHaveEnded(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Clusters{})
	model := projections.Clusters{Reader: w.Reader}
	layer := w.Define(w.Acme, "Ads")
	run := id.Next[id.Run](w.IDs)
	w.Record(w.Acme, "runs-"+string(layer), event.ClusteringRequested{Run: run, Layer: layer, TraitPaths: []string{"age"}})
	runs := map[id.Run]id.Client{run: w.Acme}
	testkit.Eventually(t, "the run is open", func() bool {
		return len(testkit.Must(model.OpenRuns(t.Context(), nil))(t)) == 1
	})
	for what, over := range map[string]func(context.Context, map[id.Run]id.Client) ([]id.Run, error){"ended": model.EndedRuns, "judged": model.JudgedRuns} {
		if found := testkit.Must(over(t.Context(), runs))(t); len(found) > 0 {
			t.Errorf("%v have %s", found, what)
		}
	}
	if err := model.ShowProgress(t.Context(), w.Acme, run, "reading", 0.1, nil); err != nil {
		t.Fatal(err)
	}
	w.Record(w.Acme, "sandbox-"+string(w.Acme), event.ClientDeleted{Client: w.Acme, Parent: w.Bolt})
	testkit.Eventually(t, "nothing of it is shown", func() bool {
		var shown int
		err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM clustering_progress`).Scan(&shown)
		return err == nil && shown == 0
	})
	for what, over := range map[string]func(context.Context, map[id.Run]id.Client) ([]id.Run, error){"ended": model.EndedRuns, "judged": model.JudgedRuns} {
		if found := testkit.Must(over(t.Context(), runs))(t); !slices.Equal(found, []id.Run{run}) {
			t.Errorf("%v have %s; want the run", found, what)
		}
	}
}

// Nobody can do anything about the clusters of a segment that was retired: they need no attention.
func TestTheClustersOfARetiredSegmentNeedNoAttention(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Clusters{})
	model := projections.Clusters{Reader: w.Reader}
	layer, segment, one := w.Define(w.Acme, "Ads"), id.Next[id.Segment](w.IDs), id.Cluster("clu_one")
	found, failed := id.Next[id.Run](w.IDs), id.Next[id.Run](w.IDs)
	w.Record(w.Acme, "runs",
		event.ClusteringRequested{Run: found, Layer: layer, Segment: segment, TraitPaths: []string{"age"}},
		event.ClusterFormed{ClusterState: event.ClusterState{Cluster: one, Layer: layer, Run: found, Distinctions: []event.Distinction{}}},
		event.ClusterKept{ClusterState: event.ClusterState{Cluster: one, Layer: layer, Run: found, Distinctions: []event.Distinction{}}, Comparisons: []event.ClusterComparison{}},
		event.ClusterDriftDetected{Cluster: one, Layer: layer, Run: found, Severity: "major", Causes: []event.DriftCause{}},
		event.ClusteringRequested{Run: failed, Layer: layer, Segment: segment, TraitPaths: []string{"age"}},
		event.ClusteringFailed{Run: failed, Layer: layer, Code: "too_few_users"})
	attention := func() [2]int {
		drifting, err := model.Drifting(t.Context(), w.Acme, 10)
		if err != nil {
			t.Error(err)
		}
		runs, err := model.LastFailed(t.Context(), w.Acme, 10)
		if err != nil {
			t.Error(err)
		}
		return [2]int{len(drifting), len(runs)}
	}
	testkit.Eventually(t, "a cluster that drifts and a run that failed need attention", func() bool { return attention() == [2]int{1, 1} })
	w.Segment(w.Acme, event.SegmentRetired{Segment: segment})
	testkit.Eventually(t, "neither does", func() bool { return attention() == [2]int{} })
}

// A list of a layer, or of a segment, holds what is of just that; a cluster that was retired is in none.
func TestRunsAndClustersAreListedByLayerAndSegment(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Clusters{})
	model := projections.Clusters{Reader: w.Reader}
	ads, news, segment, old := w.Define(w.Acme, "Ads"), w.Define(w.Acme, "News"), id.Next[id.Segment](w.IDs), id.Cluster("old")
	names := map[id.Run]string{}
	for _, run := range []struct {
		of      event.RunScope
		name    string
		retires bool
	}{
		{event.RunScope{Layer: ads}, string(old), false},
		{event.RunScope{Layer: ads}, "ads", true},
		{event.RunScope{Layer: news}, "news", false},
		{event.RunScope{Layer: ads, Segment: segment}, "ads in segment", false},
		{event.RunScope{Layer: news, Segment: segment}, "news in segment", false},
	} {
		made := id.Next[id.Run](w.IDs)
		names[made] = run.name
		events := []event.Event{
			event.ClusteringRequested{Run: made, Layer: run.of.Layer, Segment: run.of.Segment, TraitPaths: []string{"age"}},
			event.ClusteringStarted{Run: made, Layer: run.of.Layer, Attempt: 1},
			event.ClusterFormed{ClusterState: event.ClusterState{Cluster: id.Cluster(run.name), Layer: run.of.Layer, Run: made, Distinctions: []event.Distinction{}}},
		}
		if run.retires {
			events = append(events, event.ClusterRetired{Cluster: old, Layer: ads, Run: made, Descendants: []id.Cluster{id.Cluster(run.name)}})
		}
		w.Record(w.Acme, string(eventstore.RunsStream(w.Acme, run.of)), append(events, event.ClusteringCompleted{Run: made, Layer: run.of.Layer, Segment: run.of.Segment, Attempt: 1})...)
	}
	for _, list := range []struct {
		of             event.RunScope
		runs, clusters []string
	}{
		{event.RunScope{}, []string{"old", "ads", "news"}, []string{"ads", "news"}},
		{event.RunScope{Layer: ads}, []string{"old", "ads"}, []string{"ads"}},
		{event.RunScope{Layer: news}, []string{"news"}, []string{"news"}},
		{event.RunScope{Segment: segment}, []string{"ads in segment", "news in segment"}, []string{"ads in segment", "news in segment"}},
		{event.RunScope{Layer: news, Segment: segment}, []string{"news in segment"}, []string{"news in segment"}},
	} {
		var runs, clusters []string
		for _, r := range testkit.Must(model.Runs(t.Context(), w.Acme, false, projections.RunQuery{Layer: list.of.Layer, Segment: list.of.Segment, Page: everything()}))(t) {
			runs = append(runs, names[r.ID])
		}
		for _, c := range testkit.Must(model.List(t.Context(), w.Acme, false, list.of, everything()))(t) {
			clusters = append(clusters, string(c.ID))
		}
		if !slices.Equal(runs, list.runs) || !slices.Equal(clusters, list.clusters) {
			t.Errorf("%+v: runs %q, clusters %q; want %q, %q", list.of, runs, clusters, list.runs, list.clusters)
		}
	}
}

// A failed run needs attention until another of its layer and segment follows it, and a cluster that drifts
// until it is retired.
func TestWhatNeedsAttentionIsWhatNothingHasFollowed(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Clusters{})
	model := projections.Clusters{Reader: w.Reader}
	names := map[id.Run]string{}
	fails := func(of event.RunScope, name string) id.Run {
		run := id.Next[id.Run](w.IDs)
		names[run] = name
		w.Record(w.Acme, string(eventstore.RunsStream(w.Acme, of)), event.ClusteringRequested{Run: run, Layer: of.Layer, Segment: of.Segment, TraitPaths: []string{"age"}},
			event.ClusteringFailed{Run: run, Layer: of.Layer, Segment: of.Segment, Code: "too_few_users"})
		return run
	}
	layer, segment := event.RunScope{Layer: w.Define(w.Acme, "layer")}, id.Next[id.Segment](w.IDs)
	fails(layer, "followed by one that failed")
	fails(layer, "last of its layer")
	fails(event.RunScope{Layer: layer.Layer, Segment: segment}, "last of a segment")
	followed, tried := event.RunScope{Layer: w.Define(w.Acme, "followed")}, event.RunScope{Layer: w.Define(w.Acme, "tried")}
	fails(followed, "followed by one that waits")
	fails(tried, "followed by one that was cancelled")
	retired := event.RunScope{Layer: w.Define(w.Acme, "retired")}
	fails(retired, "of a layer that was retired")
	w.Layer(w.Acme, retired.Layer, event.ConsentLayerRetired{Layer: retired.Layer})
	w.Segment(w.Acme, event.SegmentRetired{Segment: id.Next[id.Segment](w.IDs)}) // of which nothing is here
	before, again, given := id.Next[id.Run](w.IDs), id.Next[id.Run](w.IDs), id.Next[id.Run](w.IDs)
	kept := func(run id.Run, cluster id.Cluster) event.ClusterKept {
		state := event.ClusterState{Cluster: cluster, Layer: followed.Layer, Run: run, Distinctions: []event.Distinction{}}
		return event.ClusterKept{ClusterState: state, Comparisons: []event.ClusterComparison{}}
	}
	drift := func(run id.Run, cluster id.Cluster, severity string) []event.Event {
		return []event.Event{
			event.ClusterFormed{ClusterState: kept(run, cluster).ClusterState},
			kept(run, cluster),
			event.ClusterDriftDetected{Cluster: cluster, Layer: followed.Layer, Run: run, Severity: severity, Causes: []event.DriftCause{}},
		}
	}
	w.Record(w.Acme, string(eventstore.RunsStream(w.Acme, followed)), slices.Concat(
		drift(before, "was drifting", "major"), []event.Event{event.ClusteringRequested{Run: again, Layer: followed.Layer, TraitPaths: []string{"age"}}, kept(again, "was drifting")},
		drift(again, "a little", "moderate"), drift(again, "much", "major"), drift(again, "none", "none"), drift(again, "retired", "major"),
		[]event.Event{event.ClusterRetired{Cluster: "retired", Layer: followed.Layer, Run: again}})...)
	w.Record(w.Acme, string(eventstore.RunsStream(w.Acme, tried)), event.ClusteringRequested{Run: given, Layer: tried.Layer, TraitPaths: []string{"age"}},
		event.ClusteringCancelled{Run: given, Layer: tried.Layer})
	testkit.Must(model.Runs(t.Context(), w.Acme, false, projections.RunQuery{Page: everything()}))(t) // it has caught up

	var failed, drifting []string
	for _, r := range testkit.Must(model.LastFailed(t.Context(), w.Acme, 10))(t) {
		failed = append(failed, names[r.ID])
	}
	for _, d := range testkit.Must(model.Drifting(t.Context(), w.Acme, 10))(t) {
		drifting = append(drifting, string(d.Cluster))
	}
	if want := []string{"followed by one that was cancelled", "last of a segment", "last of its layer"}; !slices.Equal(failed, want) {
		t.Errorf("runs that need attention are %q, want %q", failed, want)
	}
	if want := []string{"much", "a little"}; !slices.Equal(drifting, want) {
		t.Errorf("clusters that need attention are %q, want %q", drifting, want)
	}
	if others := testkit.Must(model.Drifting(t.Context(), w.Bolt, 10))(t); len(others) > 0 {
		t.Errorf("another client's attention is asked for %v", others)
	}
}
