package e2e

import (
	"math"
	"net/http"
	"strings"
	"testing"

	"kindred/httpapi"
)

func TestWhichClusterANewcomerWouldBeIn(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	layer := a.createLayer("age", "plan", "visits")
	a.importUsers(60, groups)
	a.grantAll(layer)
	const path = "/api/v1/clusters/assign"
	ask := func(user string) answer {
		return a.send("POST", path, map[string]any{"user_id": "ext:" + user, "consent_layer_id": layer.ID})
	}
	grant := func(user string) {
		t.Helper()
		if got := a.send("PUT", layersPath+"/"+string(layer.ID)+"/users/ext:"+user, map[string]any{}); got.Status >= 300 {
			t.Fatal(got.Status)
		}
	}
	wantProblem(t, http.StatusConflict, "not_assignable", ask("u0"))
	run := a.ended(a.cluster(layer, "k", 3))

	// Who was in the run stands where the run put it.
	member := want[httpapi.Memberships](t, http.StatusOK, a.get("/api/v1/users/ext:u0/memberships")).Clusters[0]
	if got := want[httpapi.ClusterAssignment](t, http.StatusOK, ask("u0")); got.ClusterID != member.ClusterID || got.ClusteringRunID != run.ID {
		t.Errorf("%+v, but it is in %s", got, member.ClusterID)
	}

	// A newcomer is refused without consent; then it is with its like, and why adds up.
	a.createUser("newcomer", map[string]any{"age": 22, "plan": "free"})
	wantProblem(t, http.StatusConflict, "consent_missing", ask("newcomer"))
	grant("newcomer")
	got := want[httpapi.ClusterAssignment](t, http.StatusOK, ask("newcomer"))
	var sum float64
	missing := map[string]bool{}
	for _, term := range got.Terms {
		sum += term.Nearer
		missing[term.Trait] = term.Missing
	}
	if got.ClusterID != member.ClusterID || got.Label != member.Label || got.Confidence <= 0.3 || len(got.Terms) != 3 || !missing["visits"] || missing["age"] {
		t.Errorf("%+v", got)
	}
	if margin := *got.NextDistance**got.NextDistance - got.Distance*got.Distance; math.Abs(sum-margin) > 1e-9 || math.Abs(got.Confidence-(1 - got.Distance / *got.NextDistance)) > 1e-12 {
		t.Errorf("terms add up to %v, not %v", sum, margin)
	}
	if in := want[httpapi.Memberships](t, http.StatusOK, a.get("/api/v1/users/ext:newcomer/memberships")); len(in.Clusters) != 0 {
		t.Error("it was put into a cluster")
	}
	sh := newShell(t, s.URL, a.createAPIKey("read").RawKey)
	if out := sh.must("clusters", "list", "--layer", string(layer.ID)); strings.Count(out, "\n") != 3 || !strings.Contains(out, string(got.ClusterID)+"  20  ") {
		t.Errorf("listed %q", out)
	}
	out := sh.must("clusters", "assign", "ext:newcomer", "--layer", string(layer.ID))
	if !strings.HasPrefix(out, string(got.ClusterID)+"  "+got.Label) || strings.Count(out, "\n") != 4 || !strings.Contains(out, "visits  (missing") {
		t.Errorf("told %q", out)
	}
	if of := asJSON[httpapi.ClusterAssignment](t, sh.must("clusters", "assign", "ext:newcomer", "--layer", string(layer.ID), "--json")); of.ClusterID != got.ClusterID {
		t.Errorf("%+v", of)
	}
	if out, _, err := sh.run("clusters", "list", "--layer", "lay_x"); err == nil || !strings.Contains(err.Error(), "consent_layer_unknown") {
		t.Errorf("the clusters of a layer that is none: %v, %q", err, out)
	}
	if _, _, err := sh.run("clusters", "assign", "ext:newcomer"); err == nil || !strings.Contains(err.Error(), "layer") {
		t.Errorf("without a layer: %v", err)
	}
	if _, _, err := sh.run("clusters", "assign", "ext:nobody", "--layer", string(layer.ID)); err == nil || !strings.Contains(err.Error(), "user_unknown") {
		t.Errorf("of nobody: %v", err)
	}
	b := a.signIn()
	b.wantPage(b.open("users/"+string(got.UserID)), "users/", "Which cluster it would be in", "/console/clusters/"+string(got.ClusterID))

	// What the layer permits no more counts as missing; a viewer may ask.
	want[httpapi.ConsentLayer](t, http.StatusOK, a.send("PATCH", layersPath+"/"+string(layer.ID), map[string]any{"trait_paths": []string{"plan"}}))
	viewed := want[httpapi.ClusterAssignment](t, http.StatusOK, a.addMember("viewer").send("POST", path, map[string]any{
		"user_id": got.UserID, "consent_layer_id": layer.ID,
	}))
	for _, term := range viewed.Terms {
		if term.Missing != (term.Trait != "plan") {
			t.Errorf("%s: missing is %t", term.Trait, term.Missing)
		}
	}

	// Nothing to compare, nobody, no layer.
	a.createUser("silent", map[string]any{"age": 30})
	grant("silent")
	wantProblem(t, http.StatusConflict, "not_assignable", ask("silent"))
	wantProblem(t, http.StatusNotFound, "user_unknown", ask("nobody"))
	wantDone(t, a.send("DELETE", "/api/v1/users/ext:newcomer", nil))
	wantProblem(t, http.StatusNotFound, "user_unknown", ask("newcomer"))
	wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID)+"/users/ext:u1", nil))
	wantProblem(t, http.StatusConflict, "consent_missing", ask("u1"))
	wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID), nil))
	wantProblem(t, http.StatusNotFound, "consent_layer_unknown", ask("u2"))
}
