package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"kindred/httpapi"
	"kindred/testkit"
)

// A campaign for segments is shown to who is in them when the feed is read, and to nobody
// where that is not surely known; a segment that it names is kept until it has ended.
func TestACampaignIsForSegments(t *testing.T) {
	t.Parallel()
	a, other := shared(t).signUp(), shared(t).signUp()
	a.importUsers(9, func(i int) string { return fmt.Sprintf(`{"age":%d,"plan":"p%d"}`, 26+i, i%2) })
	adults, pros := a.segment("Grown-ups", `traits.age > 30`), a.segment("Pros", `traits.plan == "p1"`)
	theirs := other.segment("Theirs", `traits.age > 30`)
	layer := a.createLayer("age")
	audience := func(anyOf, noneOf []string) map[string]any {
		body := map[string]any{}
		for name, of := range map[string][]string{"any_of": anyOf, "none_of": noneOf} {
			ids := []string{}
			for _, at := range of {
				ids = append(ids, idOfSegment(at))
			}
			if len(ids) > 0 {
				body[name] = ids
			}
		}
		return body
	}
	draft := map[string]any{"name": "x", "budget_minor": 100, "currency": "EUR"}
	for pointer, change := range map[string]map[string]any{
		"/segments/any_of/1":  {"segments": audience([]string{adults, theirs}, nil)},
		"/segments/none_of/0": {"segments": audience(nil, []string{theirs})},
		"/segments":           {"segments": map[string]any{}},
		"/audience":           {"audience": "segment"},
		"/segments/any_of/0":  {"segments": map[string]any{"any_of": []string{idOfSegment(pros)}, "consent_layer_id": layer.ID}},
	} {
		maps.Copy(change, draft)
		if got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/campaigns", change)); got.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", pointer, got.Errors)
		}
	}
	for _, both := range []map[string]any{{"audience": "all"}, {"audience": "clusters"}} {
		both["segments"] = audience([]string{adults}, nil)
		maps.Copy(both, draft)
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/campaigns", both))
	}
	c := a.run(map[string]any{"segments": audience([]string{adults}, []string{pros})})
	if read := a.campaign(c); read.Audience != httpapi.AudienceSegments || len(read.Segments.AnyOf) != 1 || len(read.Segments.NoneOf) != 1 || len(read.ClusterIDs) > 0 {
		t.Errorf("%+v", read)
	}
	wants := func(names ...string) {
		t.Helper()
		for i := range 9 {
			name := fmt.Sprint("u", i)
			if shown := len(campaignsOf(a.feed("ext:"+name+"/feed?record=false").Data)) == 1; shown != slices.Contains(names, name) {
				t.Errorf("%s is shown it: %t", name, shown)
			}
		}
	}
	wants("u6", "u8")
	a.send("PATCH", "/api/v1/users/ext:u6", map[string]any{"traits": map[string]any{"age": 20}})
	wants("u8")
	for _, at := range []string{adults, pros} {
		got := wantProblem(t, http.StatusConflict, "segment_in_use", a.send("DELETE", at, nil))
		if !strings.Contains(got.Detail, string(c.ID)) {
			t.Errorf("in use by %s", got.Detail)
		}
	}
	// Everybody but some, and those of a path that is sensitive now: of these nothing is known.
	c = want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"segments": audience(nil, []string{pros})}))
	wants("u0", "u2", "u4", "u6", "u8")
	a.send("PATCH", "/api/v1/traits", map[string]any{"traits": map[string]any{"plan": map[string]any{"sensitive": true}}})
	wants()
	c = want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"audience": "all"}))
	if c.Segments != nil || c.Audience != httpapi.AudienceAll {
		t.Errorf("%+v", c)
	}
	wantDone(t, a.send("DELETE", pros, nil))
	c = want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"segments": audience([]string{adults}, nil)}))
	wants("u5", "u7", "u8")
	want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"status": "cancelled"}))
	wantDone(t, a.send("DELETE", adults, nil))
}

// A run that is kept to a segment stands apart from those of its layer.
func TestARunIsKeptToASegment(t *testing.T) {
	t.Parallel()
	a, layer := shared(t).crowded(180, groups)
	made := want[httpapi.Segment](t, http.StatusCreated, a.send("POST", segmentsPath, map[string]any{"name": "S", "rule": `traits.age < 60`, "consent_layer_id": layer.ID}))
	a.segmentReady(segmentsPath + "/" + string(made.ID))
	free := a.segment("Of no layer", `traits.age < 60`)
	got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", runsPath, map[string]any{"consent_layer_id": layer.ID, "segment_id": idOfSegment(free)}))
	if got.Errors[0].Pointer != "/segment_id" {
		t.Errorf("%+v", got)
	}
	other, otherLayer := shared(t).crowded(3, groups)
	wantProblem(t, http.StatusNotFound, "segment_unknown", other.send("POST", runsPath, map[string]any{"consent_layer_id": otherLayer.ID, "segment_id": made.ID}))
	listed := func(query string) (clusters []httpapi.Cluster, runs []httpapi.ClusteringRun) {
		t.Helper()
		return each[httpapi.Cluster](a, a, "/api/v1/clusters"+query, 2), each[httpapi.ClusteringRun](a, a, runsPath+query, 2)
	}
	ofSegment := "?segment_id=" + string(made.ID)
	wants := func(layers, layerRuns, kept, keptRuns int) {
		t.Helper()
		for query, n := range map[string][2]int{"": {layers, layerRuns}, "?consent_layer_id=" + string(layer.ID): {layers, layerRuns}, ofSegment: {kept, keptRuns}} {
			clusters, runs := listed(query)
			if len(clusters) != n[0] || len(runs) != n[1] {
				t.Errorf("%q: %d clusters, %d runs, not %v", query, len(clusters), len(runs), n)
			}
			for _, c := range clusters {
				if (c.SegmentID != nil) != (query == ofSegment) {
					t.Errorf("%q: %+v", query, c)
				}
			}
		}
	}
	first := a.ended(a.cluster(layer, "k", 2, "segment_id", made.ID))
	if first.Status != httpapi.RunCompleted || *first.Users != 120 || *first.SegmentID != made.ID {
		t.Fatalf("%+v", first)
	}
	wants(0, 0, 2, 1)
	question := map[string]any{"user_id": "ext:u0", "consent_layer_id": layer.ID}
	wantProblem(t, http.StatusConflict, "not_assignable", a.send("POST", "/api/v1/clusters/assign", question))
	memberships := func() int {
		t.Helper()
		return len(want[httpapi.Memberships](t, http.StatusOK, a.get("/api/v1/users/ext:u0/memberships")).Clusters)
	}
	if n := memberships(); n != 0 {
		t.Errorf("of the layer the user is in %d clusters", n)
	}
	whole := a.ended(a.cluster(layer, "k", 3))
	wants(3, 1, 2, 1)
	if assigned := want[httpapi.ClusterAssignment](t, http.StatusOK, a.send("POST", "/api/v1/clusters/assign", question)); assigned.ClusteringRunID != whole.ID || memberships() != 1 {
		t.Errorf("%+v, %d", assigned, memberships())
	}
	again := a.ended(a.cluster(layer, "k", 2, "segment_id", made.ID))
	wants(3, 1, 2, 2)
	past := map[any]int{} // clusters by the segment
	for _, c := range a.state("?kind=clusters&at="+fmt.Sprint(a.size()-1), 2)["cluster"] {
		past[c.(map[string]any)["segment_id"]]++
	}
	if len(past) != 2 || past[nil] != 3 || past[string(made.ID)] != 2 {
		t.Errorf("the state of that moment has clusters %v", past)
	}
	flow := want[httpapi.ClusteringFlow](t, http.StatusOK, a.get(runsPath+"/"+string(again.ID)+"/flow"))
	if *flow.PreviousRunID != string(first.ID) || len(flow.Data) != 2 {
		t.Errorf("%+v", flow)
	}
	ids := func(r httpapi.ClusteringRun) (ids []string) {
		for _, c := range r.Clusters {
			ids = append(ids, string(c.ID))
		}
		slices.Sort(ids)
		return ids
	}
	if !slices.Equal(ids(first), ids(again)) {
		t.Errorf("%v, then %v", ids(first), ids(again))
	}
	for _, run := range []httpapi.ClusteringRun{whole, again} { // each is the last of its own
		if shown := want[httpapi.ClusteringMap](t, http.StatusOK, a.get(runsPath+"/"+string(run.ID)+"/map")); shown.Users != *run.Users {
			t.Errorf("%+v", shown.Users)
		}
	}
	wantProblem(t, http.StatusConflict, "run_not_current", a.get(runsPath+"/"+string(first.ID)+"/map"))
	// A campaign for one of its clusters is for who is in that.
	c := a.run(map[string]any{"cluster_ids": []any{again.Clusters[0].ID}})
	in := a.members(again.Clusters[0].ID)
	for _, name := range []string{in[0], "u2"} { // who is 70
		if shown := len(campaignsOf(a.feed("ext:" + name + "/feed?record=false").Data)); shown != map[bool]int{true: 1}[name == in[0]] {
			t.Errorf("%s is shown %d of %s", name, shown, c.ID)
		}
	}
}

// What the client has said is sensitive stands in no filter.
func TestFiltersReadNothingSensitive(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(3, groups)
	layer := a.createLayer("religion", "age")
	a.grantAll(layer)
	for _, within := range []string{"", string(layer.ID)} {
		body := map[string]any{"filter": `traits.religion == viewer.traits.religion`, "record": false}
		query := "/api/v1/users/ext:u0/feed?filter=" + url.QueryEscape(body["filter"].(string))
		if within != "" {
			body["consent_layer_id"], query = within, query+"&consent_layer_id="+within
		}
		for pointer, got := range map[string]answer{"/filter": a.send("POST", "/api/v1/users/ext:u0/matches", body), "filter": a.get(query)} {
			problem := wantProblem(t, http.StatusUnprocessableEntity, "invalid", got)
			if problem.Errors[0].Pointer != pointer || !strings.Contains(problem.Errors[0].Detail, "line 1, column 7: traits.religion is sensitive") {
				t.Errorf("%q, %s: %+v", within, pointer, problem.Errors)
			}
		}
	}
	a.send("PATCH", "/api/v1/traits", map[string]any{"traits": map[string]any{"religion": map[string]any{"sensitive": false}}})
	a.feed("ext:u0/feed?record=false&filter=" + url.QueryEscape(`traits.religion == viewer.traits.religion`))
	// A segment of a layer is named under that layer alone.
	made := want[httpapi.Segment](t, http.StatusCreated, a.send("POST", segmentsPath, map[string]any{"name": "S", "rule": `traits.age > 1`, "consent_layer_id": layer.ID}))
	named := fmt.Sprintf(`in_segment(%q)`, made.ID)
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users/ext:u0/matches", map[string]any{"filter": named, "record": false}))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users/ext:u0/feed?filter="+url.QueryEscape(named)))
}

// A match rule reads nothing sensitive either: it is refused as it is written, and once what it
// reads is decided to be sensitive nothing is matched by it.
func TestAMatchRuleReadsNothingSensitive(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(8, func(int) string { return `{"religion":"x","plan":"pro","age":30}` })
	layer := a.createLayer("religion", "plan")
	a.grantAll(layer)
	sensitive := func(path string, is bool) {
		t.Helper()
		if got := a.send("PATCH", "/api/v1/traits", map[string]any{"traits": map[string]any{path: map[string]any{"sensitive": is}}}); got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, got.Status, got.Body)
		}
	}
	const rule = `traits.religion == viewer.traits.religion`
	at := layersPath + "/" + string(layer.ID)
	settings := func(rule string) answer {
		return a.sendTo("PATCH", "", fmt.Sprintf(`{"settings":{"match_rule":%q}}`, rule))
	}
	refused := func(pointer, path string, got answer) {
		t.Helper()
		problem := wantProblem(t, http.StatusUnprocessableEntity, "invalid", got)
		if problem.Errors[0].Pointer != pointer || !strings.Contains(problem.Errors[0].Detail, "line 1, column 7: traits."+path+" is sensitive") {
			t.Errorf("%s: %+v", pointer, problem.Errors)
		}
	}
	refused("/settings/match_rule", "religion", settings(rule))
	refused("/match_rule", "religion", a.send("PATCH", at, map[string]any{"match_rule": rule}))
	refused("/match_rule", "religion", a.send("POST", layersPath, map[string]any{"name": "B", "trait_paths": []string{"religion"}, "match_rule": rule}))

	sensitive("religion", false)
	if by := want[httpapi.ClientDetails](t, http.StatusOK, settings(`traits.plan == viewer.traits.plan`)).Settings.MatchRuleBlockedBy; len(by) != 0 {
		t.Errorf("blocked by %+v", by)
	}
	want[httpapi.ConsentLayer](t, http.StatusOK, a.send("PATCH", at, map[string]any{"match_rule": rule}))
	const matches, feed = "/api/v1/users/ext:u0/matches", "/api/v1/users/ext:u0/feed?record=false"
	for path, body := range map[string]map[string]any{"plan": {"record": false}, "religion": {"record": false, "consent_layer_id": layer.ID}} {
		query := feed
		if path == "religion" {
			query += "&consent_layer_id=" + string(layer.ID)
		}
		if found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", matches, body)); len(found.Data) != 7 {
			t.Errorf("%s: %d matches", path, len(found.Data))
		}
		sensitive(path, true)
		refused("/match_rule", path, a.send("POST", matches, body))
		refused("/match_rule", path, a.get(query))
	}
	blockedBy := func(path string, got ...[]httpapi.SegmentBlock) {
		t.Helper()
		for i, by := range got {
			if len(by) != 1 || by[0].Cause != httpapi.BlockedByPathSensitive || by[0].Name != path {
				t.Errorf("%d: blocked by %+v, not by %s", i, by, path)
			}
		}
	}
	blockedBy("religion", want[httpapi.ConsentLayer](t, http.StatusOK, a.send("PATCH", at, map[string]any{"name": "another name"})).MatchRuleBlockedBy,
		want[httpapi.ConsentLayer](t, http.StatusOK, a.get(at)).MatchRuleBlockedBy,
		want[httpapi.ConsentLayerList](t, http.StatusOK, a.get(layersPath)).Data[0].MatchRuleBlockedBy)
	blockedBy("plan", want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", `{"settings":{"automatic_matching":{"on":true,"k":5,"min_score":0}}}`)).Settings.MatchRuleBlockedBy,
		want[httpapi.ClientDetails](t, http.StatusOK, a.get(a.under(""))).Settings.MatchRuleBlockedBy)
	testkit.Eventually(t, "everybody was looked at", func() bool {
		return want[httpapi.Sweep](t, http.StatusOK, a.get("/api/v1/matching/sweep")).Pending == 0
	})
	if found := each[httpapi.Match](t, a, matches, 50); len(found) != 0 {
		t.Errorf("%d matches by what is sensitive", len(found))
	}
}

// Under a layer a filter may ask what the rule of a segment of it may, and reads nothing else.
func TestFiltersUnderALayer(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(60, groups)
	layer := a.createLayer("plan", "age", "visits")
	a.grantAll(layer)
	if run := a.ended(a.cluster(layer, "k", 3)); run.Status != "completed" {
		t.Fatalf("the run: %+v", run)
	}
	cluster := want[httpapi.ClusterList](t, http.StatusOK, a.get("/api/v1/clusters")).Data[0].ID
	of := want[httpapi.Segment](t, http.StatusCreated, a.send("POST", segmentsPath, map[string]any{"name": "S", "rule": fmt.Sprintf(`bucket("s", 2) == 0 || in_cluster(%q)`, cluster), "consent_layer_id": layer.ID}))
	a.segmentReady(segmentsPath + "/" + string(of.ID))
	matches := func(filter string) (names []string) {
		t.Helper()
		body := map[string]any{"record": false, "consent_layer_id": layer.ID, "limit": 100}
		if filter != "" {
			body["filter"] = filter
		}
		for _, m := range want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", body)).Data {
			names = append(names, m.ExternalID)
		}
		return names
	}
	feed := func(filter string) (names []string) {
		t.Helper()
		for _, i := range a.feed("ext:u0/feed?record=false&limit=200&consent_layer_id=" + string(layer.ID) + "&filter=" + url.QueryEscape(filter)).Data {
			names = append(names, *i.ExternalID)
		}
		return names
	}
	members := func(filter string) (names []string) {
		t.Helper()
		for _, m := range each[httpapi.ClusterMember](t, a, "/api/v1/clusters/"+string(cluster)+"/members?filter="+url.QueryEscape(filter), 50) {
			names = append(names, m.ExternalID)
		}
		slices.Sort(names)
		return names
	}
	for _, withdrawn := range []string{"", a.members(cluster)[1]} {
		if withdrawn != "" {
			a.send("DELETE", layersPath+"/"+string(layer.ID)+"/users/ext:"+withdrawn, nil)
		}
		in, member := a.members(cluster), a.segmentMembers(segmentsPath+"/"+string(of.ID))
		for filter, names := range map[string][]string{
			fmt.Sprintf(`in_cluster(%q)`, cluster):                                               in,
			fmt.Sprintf(`in_segment(%q) && granted(%q) && bucket("x", 1) == 0`, of.ID, layer.ID): member,
		} {
			named := func(among []string) []string {
				return slices.DeleteFunc(slices.Clone(among), func(name string) bool { return !slices.Contains(names, name) || name == withdrawn })
			}
			if got, wanted := matches(filter), named(matches("")); !slices.Equal(got, wanted) || len(got) < 5 {
				t.Errorf("%s: the matches are %v, not %v", filter, got, wanted)
			}
			got, wanted := feed(filter), named(names)
			slices.Sort(got)
			slices.Sort(wanted)
			if slices.Contains(wanted, "u0") {
				wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == "u0" })
			}
			if !slices.Equal(got, wanted) {
				t.Errorf("%s: the feed shows %v, not %v", filter, got, wanted)
			}
			if got, wanted := members(filter), named(in); !slices.Equal(got, wanted) {
				t.Errorf("%s: of the cluster these are named: %v, not %v", filter, got, wanted)
			}
		}
	}
	for _, beside := range []string{`user.external_id == "u1"`, `interactions("click", "1d") > 1`, `traits.likes == 1`, `viewer.created_at == user.created_at`} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid",
			a.send("POST", "/api/v1/users/ext:u0/matches", map[string]any{"record": false, "consent_layer_id": layer.ID, "filter": beside}))
	}
}
