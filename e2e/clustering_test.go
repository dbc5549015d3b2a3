package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/httpapi"
	"kindred/testkit"
)

const runsPath = "/api/v1/clustering_runs"

// groups are the traits of users of three kinds, each unlike the others.
func groups(i int) string {
	kind, within := i%3, i/3
	return fmt.Sprintf(`{"age":%d,"plan":%q,"visits":%d,"name":"user %d"}`,
		[]int{22, 45, 70}[kind]+within%5, []string{"free", "pro", "team"}[kind], []int{3, 40, 90}[kind]+within%7, i)
}

// grantAll has every user grant a layer.
func (a account) grantAll(layer httpapi.ConsentLayer) {
	a.Helper()
	want[httpapi.ConsentsChanged](a, http.StatusOK, a.send("POST", layersPath+"/"+string(layer.ID)+"/grants", map[string]any{"all": true}))
}

// cluster requests a run.
func (a account) cluster(layer httpapi.ConsentLayer, options ...any) httpapi.ClusteringRun {
	a.Helper()
	body := map[string]any{"consent_layer_id": layer.ID}
	for i := 0; i < len(options); i += 2 {
		body[options[i].(string)] = options[i+1]
	}
	return want[httpapi.ClusteringRun](a, http.StatusAccepted, a.send("POST", runsPath, body))
}

// ended waits until a run has ended.
func (a account) ended(run httpapi.ClusteringRun) httpapi.ClusteringRun {
	a.Helper()
	testkit.Eventually(a, "the run ends", func() bool {
		got := a.get(runsPath + "/" + string(run.ID))
		if got.Status == http.StatusServiceUnavailable {
			return false // nobody leads the read model since a replica was killed
		}
		run = want[httpapi.ClusteringRun](a, http.StatusOK, got)
		return run.EndedAt != nil
	})
	return run
}

// members are the external ids of a cluster's members, in order of name.
func (a account) members(cluster httpapi.ClusterID) []string {
	a.Helper()
	var names []string
	for _, m := range each[httpapi.ClusterMember](a, a, "/api/v1/clusters/"+string(cluster)+"/members", 70) {
		names = append(names, m.ExternalID)
	}
	slices.Sort(names)
	return names
}

func TestClusteringStory(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	hook := receive(t, http.StatusOK)
	a.subscribe(hook.URL, "", event.PublicTypes()...)
	type message struct {
		EventType string         `json:"event_type"`
		Data      map[string]any `json:"data"`
	}
	waiting := map[string][]message{} // deliveries come in any order
	told := func(eventType string) map[string]any {
		t.Helper()
		for len(waiting[eventType]) == 0 {
			var got message
			if err := json.Unmarshal(hook.next(t).Body, &got); err != nil {
				t.Fatal(err)
			}
			waiting[got.EventType] = append(waiting[got.EventType], got)
		}
		first := waiting[eventType][0]
		waiting[eventType] = waiting[eventType][1:]
		return first.Data
	}

	// Nobody has granted the layer: a failure that says so, and names the run.
	layer := a.createLayer("age", "plan", "visits")
	a.importUsers(300, groups)
	failed := a.ended(a.cluster(layer))
	if failed.Status != httpapi.RunFailed || *failed.ErrorCode != "not_enough_users" || !strings.Contains(*failed.ErrorDetails, string(failed.ID)) {
		t.Errorf("got %+v", failed)
	}
	if diff := cmp.Diff(map[string]any{
		"client_id": string(a.Client.ID), "consent_layer_id": string(layer.ID), "error_details": *failed.ErrorDetails,
	}, told("clustering.failed")); diff != "" {
		t.Errorf("clustering.failed (-want +got):\n%s", diff)
	}

	// Three groups are found, told, named, listed.
	a.grantAll(layer)
	first := a.ended(a.cluster(layer, "seed", 7))
	if first.Status != httpapi.RunCompleted || len(first.Clusters) != 3 || *first.Users != 300 || first.Seed != 7 || first.Quality.Silhouette < 0.5 {
		t.Fatalf("got %+v", first)
	}
	var summary []any
	for _, c := range first.Clusters {
		summary = append(summary, map[string]any{"id": string(c.ID), "size": float64(c.Size), "label": c.Label})
	}
	if diff := cmp.Diff(map[string]any{
		"client_id": string(a.Client.ID), "consent_layer_id": string(layer.ID), "clustering_run_id": string(first.ID), "clusters": summary,
	}, told("clustering.completed")); diff != "" {
		t.Errorf("clustering.completed (-want +got):\n%s", diff)
	}
	listed := each[httpapi.Cluster](t, a, "/api/v1/clusters?consent_layer_id="+string(layer.ID), 2)
	if len(listed) != 3 {
		t.Fatalf("%d clusters are listed", len(listed))
	}
	seen := map[string]bool{}
	for _, c := range listed {
		names := a.members(c.ID)
		if c.ClusterSize != 100 || len(names) != 100 || len(c.Traits) == 0 || c.Label == "" {
			t.Errorf("%d members of %+v", len(names), c)
		}
		for _, name := range names {
			seen[name] = true
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d users are in clusters", len(seen))
	}

	// A filter and a segment leave members of a cluster, where they read what its layer permits.
	at := "/api/v1/clusters/" + string(listed[0].ID) + "/members"
	var some []string
	for _, name := range a.members(listed[0].ID) {
		if i, err := strconv.Atoi(name[1:]); err == nil && i/3%7 == 2 { // see groups
			some = append(some, name)
		}
	}
	const rule = `traits.visits in [5, 42, 92]`
	for _, by := range []string{"filter=" + url.QueryEscape(rule), "segment_id=" + idOfSegment(a.segment("Some", rule))} {
		var names []string
		for _, m := range each[httpapi.ClusterMember](t, a, at+"?"+by, 2) {
			names = append(names, m.ExternalID)
		}
		slices.Sort(names)
		if !slices.Equal(names, some) || len(some) == 0 {
			t.Errorf("%s: %v, not %v", by, names, some)
		}
	}
	for _, wrong := range []string{"filter=traits.name%3E1", "filter=traits", "segment_id=" + idOfSegment(a.segment("Named", `has(traits.name)`))} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(at+"?"+wrong))
	}

	// A campaign for a cluster is shown to its members, and to nobody else.
	cluster := listed[0]
	names := a.members(cluster.ID)
	campaign := want[httpapi.Campaign](t, http.StatusCreated, a.send("POST", "/api/v1/campaigns", map[string]any{
		"name": "Spring", "budget_minor": 100_000, "currency": "EUR", "audience": "clusters", "cluster_ids": []any{cluster.ID},
	}))
	want[httpapi.Campaign](t, http.StatusOK, a.send("PATCH", "/api/v1/campaigns/"+string(campaign.ID), map[string]any{"status": "running"}))
	others := a.members(listed[1].ID)
	for user, shown := range map[string]bool{names[5]: true, others[5]: false} {
		feed := want[httpapi.Feed](t, http.StatusOK, a.get("/api/v1/users/ext:"+user+"/feed?limit=20"))
		if slices.ContainsFunc(feed.Data, func(i httpapi.FeedItem) bool { return i.CampaignID != nil }) != shown {
			t.Errorf("shown to %s: %t", user, !shown)
		}
	}

	// What came of it is divided by the clusters that its viewers are in.
	want[httpapi.Engagement](t, http.StatusCreated, a.engage(campaign, map[string]any{"type": "conversion", "user_id": "ext:" + names[5]}))
	for _, user := range []string{names[0], names[6], names[6], others[5]} {
		want[httpapi.Engagement](t, http.StatusCreated, a.engage(campaign, map[string]any{"type": "impression", "user_id": "ext:" + user}))
	}
	split := func(c httpapi.Cluster, size, reach, impressions, engaged int64) httpapi.AnalyticsCluster {
		return httpapi.AnalyticsCluster{
			ClusterID: c.ID, ConsentLayerID: layer.ID, Label: c.Label, ClusterSize: size, Reach: reach, Impressions: impressions,
			Engaged: engaged, EngagementRate: float64(engaged) / float64(max(impressions, 1)),
		}
	}
	if diff := cmp.Diff([]httpapi.AnalyticsCluster{split(cluster, 100, 3, 4, 1), split(listed[1], 100, 1, 1, 0)}, a.analytics(campaign, "").Clusters); diff != "" {
		t.Errorf("by cluster (-want +got):\n%s", diff)
	}

	// Who withdraws or is erased is a member no more.
	wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID)+"/users/ext:"+names[0], nil))
	wantDone(t, a.send("DELETE", "/api/v1/users/ext:"+names[1], nil))
	if left := a.members(cluster.ID); !slices.Equal(left, names[2:]) {
		t.Errorf("%d members are left", len(left))
	}
	if c := want[httpapi.Cluster](t, http.StatusOK, a.get("/api/v1/clusters/"+string(cluster.ID))); c.ClusterSize != 98 {
		t.Errorf("the size is %d", c.ClusterSize)
	}
	if diff := cmp.Diff([]httpapi.AnalyticsCluster{split(cluster, 98, 2, 3, 1), split(listed[1], 100, 1, 1, 0)}, a.analytics(campaign, "").Clusters); diff != "" {
		t.Errorf("by cluster, after a withdrawal (-want +got):\n%s", diff)
	}

	// Another run, with another seed, finds the same clusters again.
	second := a.ended(a.cluster(layer, "seed", 8, "k", 3))
	told("clustering.completed")
	ids := func(r httpapi.ClusteringRun) (ids []httpapi.ClusterID) {
		for _, c := range r.Clusters {
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if !slices.Equal(ids(first), ids(second)) || *second.Users != 298 {
		t.Errorf("the clusters %v became %v", ids(first), ids(second))
	}

	// One group becomes another: that is drift, and told once.
	for _, name := range names[2:] {
		want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:"+name, map[string]any{"traits": map[string]any{"visits": 1000}}))
	}
	third := a.ended(a.cluster(layer, "k", 3))
	if third.Status != httpapi.RunCompleted || !slices.Contains(ids(third), cluster.ID) {
		t.Fatalf("got %+v", third)
	}
	drifted := told("cluster.drift_detected")
	if diff := cmp.Diff(map[string]any{"client_id": string(a.Client.ID), "cluster_id": string(cluster.ID)}, drifted); diff != "" {
		t.Errorf("cluster.drift_detected (-want +got):\n%s", diff)
	}
	told("clustering.completed")
	drift := each[httpapi.ClusterDrift](t, a, "/api/v1/clusters/"+string(cluster.ID)+"/drift", 1)
	if len(drift) != 2 || drift[0].Severity != httpapi.DriftNone || drift[1].Severity != httpapi.DriftMajor || len(drift[1].Causes) == 0 || *drift[1].Causes[0].Trait != "visits" {
		t.Errorf("drift: %+v", drift)
	}
	a.ended(a.cluster(layer, "k", 3))
	told("clustering.completed")
	if more := waiting["cluster.drift_detected"]; len(more) != 0 {
		t.Errorf("drift is told again: %v", more)
	}

	// A match and a spent budget are told to the same subscriber, who has then
	// heard all that the service tells: the receiver has checked each.
	want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:"+names[5]+"/matches", map[string]any{"matched_user_id": "ext:" + names[6]}))
	told("match.computed")
	want[httpapi.Spend](t, http.StatusCreated, a.spend(campaign, "all of it", campaign.BudgetMinor))
	if diff := cmp.Diff(map[string]any{"client_id": string(a.Client.ID), "campaign_id": string(campaign.ID)}, told("campaign.budget_exhausted")); diff != "" {
		t.Errorf("campaign.budget_exhausted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(event.PublicTypes())), slices.Sorted(maps.Keys(waiting))); diff != "" {
		t.Errorf("events (-public +heard):\n%s", diff)
	}

	// Runs can be listed by status.
	if n := len(each[httpapi.ClusteringRun](t, a, runsPath+"?status=completed", 2)); n != 4 {
		t.Errorf("%d runs are completed", n)
	}
	if n := len(each[httpapi.ClusteringRun](t, a, runsPath, 2)); n != 5 {
		t.Errorf("%d runs", n)
	}

	// A retired layer takes its clusters along.
	wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID), nil))
	if n := len(each[httpapi.Cluster](t, a, "/api/v1/clusters", 2)); n != 0 {
		t.Errorf("%d clusters of a retired layer", n)
	}
	wantProblem(t, http.StatusNotFound, "consent_layer_unknown", a.send("POST", runsPath, map[string]any{"consent_layer_id": layer.ID}))
}
