package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
)

func TestATimelineTellsWhatHappenedToAUser(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := s.signUp(), s.signUp()
	ann := string(a.createUser("ann", map[string]any{"age": 30, "plan": "pro", "address": map[string]any{"city": "Graz", "zip": "8010"}}).ID)
	bob := string(a.createUser("bob", map[string]any{"age": 31, "plan": "pro"}).ID)
	path := "/api/v1/users/ext:ann"
	change := func(traits map[string]any) {
		want[httpapi.User](t, http.StatusOK, a.send("PATCH", path, map[string]any{"traits": traits}))
	}
	change(map[string]any{"age": 31})
	layer := a.createLayer("age")
	wantDone(t, a.send("PUT", layersPath+"/"+string(layer.ID)+"/users/ext:ann", nil))
	a.send("POST", path+"/matches", nil)
	c := a.run(nil)
	a.engage(c, map[string]any{"type": "impression", "user_id": "ext:ann"})
	a.send("POST", path+"/feed/interactions", map[string]any{"item_id": bob, "type": "click"})
	wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID)+"/users/ext:ann", nil))
	change(map[string]any{"plan": nil, "address": map[string]any{"city": "Linz"}, "tags": []string{"x"}})

	timeline := func(path string) (all []httpapi.TimelineEntry) {
		t.Helper()
		for query := "/timeline?limit=3"; ; {
			page := want[httpapi.Timeline](t, http.StatusOK, a.get(path+query))
			all = append(all, page.Data...)
			if page.NextCursor == nil {
				return all
			}
			query = "/timeline?limit=3&cursor=" + *page.NextCursor
		}
	}
	words := func(entries []httpapi.TimelineEntry) (said []string) {
		for _, e := range entries {
			word := e.Type
			for _, detail := range []string{strings.Join(e.ChangedTraits, " "), httpapi.Or(e.Kind, "")} {
				if detail != "" {
					word += ": " + detail
				}
			}
			said = append(said, word)
		}
		return said
	}
	told := timeline(path)
	if diff := cmp.Diff([]string{
		"end_user.traits_changed: address.city plan tags", "consent.withdrawn", "feed.interaction_recorded: click",
		"campaign.engagement_recorded: impression", "match.computed", "consent.granted", "end_user.traits_changed: age",
		"end_user.created: address.city address.zip age plan",
	}, words(told)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if told[2].ItemID == nil || *told[2].ItemID != bob || *told[3].CampaignID != c.ID || string(*told[4].MatchedUserID) != bob || *told[5].ConsentLayerID != layer.ID ||
		told[0].Actor != string(a.User.ID) || !slices.IsSortedFunc(told, func(x, y httpapi.TimelineEntry) int { return int(y.Ordinal - x.Ordinal) }) {
		t.Errorf("%+v", told)
	}

	member := want[httpapi.Memberships](t, http.StatusOK, a.addMember("viewer").get(path+"/memberships"))
	if len(member.ConsentLayers) != 1 || member.ConsentLayers[0].Status != httpapi.ConsentWithdrawn || member.ConsentLayers[0].ConsentLayerID != layer.ID || len(member.Clusters) != 0 {
		t.Errorf("%+v", member)
	}
	for _, of := range []string{"/timeline", "/memberships"} {
		wantProblem(t, http.StatusNotFound, "user_unknown", other.get("/api/v1/users/"+ann+of))
		wantProblem(t, http.StatusNotFound, "user_unknown", a.get("/api/v1/users/ext:nobody"+of))
	}

	wantDone(t, a.send("DELETE", path, nil))
	erased := words(timeline("/api/v1/users/" + ann))
	if !slices.Equal(erased, []string{"end_user.erased", "end_user.traits_changed", "match.computed", "end_user.traits_changed", "end_user.created"}) {
		t.Errorf("after the erasure it says %q", erased)
	}
}

func TestMembershipsNameTheClustersOfAUser(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	layer := a.createLayer("age", "plan", "visits")
	a.importUsers(60, groups)
	a.grantAll(layer)
	run := a.ended(a.cluster(layer, "k", 3))
	member := want[httpapi.Memberships](t, http.StatusOK, a.get("/api/v1/users/ext:u0/memberships"))
	if len(member.Clusters) != 1 || member.Clusters[0].ClusteringRunID != run.ID || member.Clusters[0].ConsentLayerID != layer.ID ||
		!slices.Contains(a.members(member.Clusters[0].ClusterID), "u0") || member.ConsentLayers[0].Status != httpapi.ConsentGranted {
		t.Errorf("%+v", member)
	}
}
