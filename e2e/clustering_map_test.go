package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
)

func TestTheMapOfARunShowsItsClustersApart(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := s.signUp(), s.signUp()
	layer := a.createLayer("age", "plan", "visits")
	a.importUsers(450, groups)
	a.grantAll(layer)
	first := a.ended(a.cluster(layer, "seed", 7, "k", 3))
	viewer := a.addMember("viewer")
	shown := func(run httpapi.ClusteringRun) httpapi.ClusteringMap {
		t.Helper()
		return want[httpapi.ClusteringMap](t, http.StatusOK, viewer.get(runsPath+"/"+string(run.ID)+"/map"))
	}
	flow := func(run httpapi.ClusteringRun) httpapi.ClusteringFlow {
		t.Helper()
		return want[httpapi.ClusteringFlow](t, http.StatusOK, viewer.get(runsPath+"/"+string(run.ID)+"/flow"))
	}

	m := shown(first)
	if m.Users != 450 || len(m.Points) != 400 || m.Explained[0] < m.Explained[1] || m.Explained[0]+m.Explained[1] < 0.5 {
		t.Fatalf("%d points of %d users, which explain %v", len(m.Points), m.Users, m.Explained)
	}
	type middle struct{ x, y, n float64 }
	middles := map[httpapi.ClusterID]*middle{}
	for _, p := range m.Points {
		if middles[p.ClusterID] == nil {
			middles[p.ClusterID] = new(middle)
		}
		c := middles[p.ClusterID]
		c.x, c.y, c.n = c.x+p.X, c.y+p.Y, c.n+1
	}
	for _, p := range m.Points {
		nearest, least := httpapi.ClusterID(""), 0.0
		for id, c := range middles {
			dx, dy := p.X-c.x/c.n, p.Y-c.y/c.n
			if d := dx*dx + dy*dy; nearest == "" || d < least {
				nearest, least = id, d
			}
		}
		if nearest != p.ClusterID {
			t.Errorf("%s of %s is among %s", p.UserID, p.ClusterID, nearest)
		}
	}
	if diff := cmp.Diff(m, shown(first)); diff != "" {
		t.Errorf("the same run is shown otherwise: %s", diff)
	}
	if f := flow(first); f.PreviousRunID != nil || len(f.Data) != 3 || f.Data[0].FromClusterID != nil || f.Data[0].Users != 150 {
		t.Errorf("to the first run moved %+v", f)
	}

	// What is said since moves nobody; who is gone is on the map no more.
	gone, changed := m.Points[0].UserID, m.Points[1].UserID
	wantDone(t, a.send("DELETE", "/api/v1/users/"+string(gone), nil))
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/"+string(changed), map[string]any{"traits": map[string]any{"age": 99, "visits": 9}}))
	find := func(m httpapi.ClusteringMap, user httpapi.UserID) int {
		return slices.IndexFunc(m.Points, func(p httpapi.ClusteringPoint) bool { return p.UserID == user })
	}
	now := shown(first)
	if find(now, gone) >= 0 || now.Users != 449 || len(now.Points) != 400 {
		t.Errorf("%d points of %d users, the erased one at %d", len(now.Points), now.Users, find(now, gone))
	}
	if i := find(now, changed); i < 0 || abs(now.Points[i].X-m.Points[1].X) > 0.2 || abs(now.Points[i].Y-m.Points[1].Y) > 0.2 {
		t.Errorf("who has changed since was at %+v, and is at %d of %+v", m.Points[1], i, now.Points[max(i, 0)])
	}

	second := a.ended(a.cluster(layer, "seed", 8, "k", 3))
	f, all := flow(second), int64(0)
	for _, move := range f.Data {
		all += move.Users
	}
	if f.PreviousRunID == nil || *f.PreviousRunID != string(first.ID) || all != 449 {
		t.Errorf("moved %+v", f)
	}
	wantProblem(t, http.StatusConflict, "run_not_current", a.get(runsPath+"/"+string(first.ID)+"/map"))
	if f := flow(first); len(f.Data) != 3 {
		t.Errorf("the moves of the run before are %+v", f)
	}
	empty := a.createLayer("age")
	failed := a.ended(a.cluster(empty))
	wantProblem(t, http.StatusConflict, "run_not_current", a.get(runsPath+"/"+string(failed.ID)+"/map"))
	if f := flow(failed); len(f.Data) != 0 || f.PreviousRunID != nil {
		t.Errorf("a failed run has moved %+v", f)
	}
	for _, of := range []string{"/map", "/flow"} {
		wantProblem(t, http.StatusNotFound, "clustering_run_unknown", other.get(runsPath+"/"+string(second.ID)+of))
		wantProblem(t, http.StatusNotFound, "clustering_run_unknown", a.get(runsPath+"/nonsense"+of))
	}
}

func abs(x float64) float64 { return max(x, -x) }
