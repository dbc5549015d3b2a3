package e2e

import (
	"net/http"
	"strings"
	"testing"

	"kindred/httpapi"
	"kindred/testkit"
)

func TestACompletedRunGetsItsVerdict(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	layer := a.createLayer("age", "plan", "visits")
	a.importUsers(150, groups)
	a.grantAll(layer)
	run := a.ended(a.cluster(layer, "min_size", 40))
	path := runsPath + "/" + string(run.ID)
	testkit.Eventually(t, "the run is judged", func() bool {
		run = want[httpapi.ClusteringRun](t, http.StatusOK, a.get(path))
		return run.Verdict != nil
	})
	v := run.Verdict
	if v.Kind != httpapi.VerdictGroups || v.Agreement == nil || *v.Agreement < 0.95 || v.Reason != nil || *v.Users != 150 || !strings.Contains(v.Explanation, "groups") {
		t.Errorf("the verdict is %+v", v)
	}
	if v.Shuffled.P != 0.025 || v.Cloud.P != 0.025 || v.Cloud.Silhouette <= v.Cloud.Expected || *run.MinSize != 40 {
		t.Errorf("the verdict is by %+v, %+v", v.Shuffled, v.Cloud)
	}
	for _, c := range run.Clusters {
		got := want[httpapi.Cluster](t, http.StatusOK, a.get("/api/v1/clusters/"+string(c.ID)))
		if got.Quality.Stability == nil || *got.Quality.Stability < 0.75 {
			t.Errorf("%s is not stable: %+v", c.Label, got.Quality)
		}
	}
	wantProblem(t, http.StatusConflict, "run_ended", a.send("DELETE", path+"/verdict", nil))
	other := shared(t).signUp()
	wantProblem(t, http.StatusNotFound, "clustering_run_unknown", other.send("DELETE", path+"/verdict", nil))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", runsPath, map[string]any{"consent_layer_id": layer.ID, "min_size": 19}))
}
