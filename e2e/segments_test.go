package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/httpapi"
	"kindred/testkit"
)

const segmentsPath = "/api/v1/segments"

// idOfSegment is the id of a segment, whose place is given.
func idOfSegment(at string) string { return strings.TrimPrefix(at, segmentsPath+"/") }

// segment makes a segment, and waits until it is ready.
func (a account) segment(name, rule string) string {
	a.Helper()
	made := want[httpapi.Segment](a, http.StatusCreated, a.send("POST", segmentsPath, map[string]any{"name": name, "rule": rule}))
	if made.State != httpapi.SegmentBuilding || made.Rule != rule || made.Name != name {
		a.Errorf("made %+v", made)
	}
	at := segmentsPath + "/" + string(made.ID)
	a.segmentReady(at)
	return at
}

func (a account) segmentReady(at string) {
	a.Helper()
	testkit.Eventually(a, "the segment is ready", func() bool {
		return want[httpapi.Segment](a, http.StatusOK, a.get(at)).State == httpapi.SegmentReady
	})
}

// segmentMembers lists the external ids of a segment's users, in their order.
func (a account) segmentMembers(at string) (names []string) {
	a.Helper()
	for _, m := range each[httpapi.SegmentMember](a, a, at+"/members", 3) {
		names = append(names, m.ExternalID)
	}
	return names
}

// segmentChanges are those after a cursor, and the next one.
func (a account) segmentChanges(at, after string) (told []string, next string) {
	a.Helper()
	for more := true; more; {
		page := want[httpapi.SegmentChangeList](a, http.StatusOK, a.get(at+"/changes?limit=2&after="+url.QueryEscape(after)))
		for _, c := range page.Changes {
			name := "?"
			if c.ExternalID != nil {
				name = *c.ExternalID
			}
			told = append(told, string(c.Change)+" "+name)
		}
		after, more = page.Cursor, page.HasMore
	}
	return told, after
}

// A segment holds whom its rule names, at once, through changes of users, of rules, of
// the segments that it refers to, through erasure, and through time.
func TestSegments(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(9, func(i int) string { return fmt.Sprintf(`{"age":%d,"plan":"p%d"}`, 26+i, i%2) })
	adults := a.segment("Grown-ups", `traits.age > 30`)
	pros := a.segment("Pros", fmt.Sprintf(`in_segment("%s") && traits.plan == "p1"`, idOfSegment(adults)))
	for _, beside := range []string{"filter=traits.age%3E1", "ids=usr_1", "external_id=u1", "updated_since=2026-01-01T00:00:00Z"} {
		got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users?segment_id="+idOfSegment(pros)+"&"+beside))
		if got.Errors[0].Pointer != "segment_id" {
			t.Errorf("%s: %+v", beside, got)
		}
	}
	wantProblem(t, http.StatusNotFound, "segment_unknown", shared(t).signUp().get("/api/v1/users?segment_id="+idOfSegment(pros)))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(pros+"/members?limit=3", header("Accept", "text/csv")))
	wantProblem(t, http.StatusNotFound, "segment_unknown", shared(t).signUp().get(pros+"/members", header("Accept", "text/csv")))
	wantNames := func(at string, names ...string) {
		t.Helper()
		if got := a.segmentMembers(at); !slices.Equal(got, names) {
			t.Errorf("the members are %v, not %v", got, names)
		}
		var listed []string
		for _, u := range each[httpapi.User](a, a, "/api/v1/users?segment_id="+idOfSegment(at), 2) {
			listed = append(listed, u.ExternalID)
		}
		if !slices.Equal(listed, names) {
			t.Errorf("the users of it are %v, not %v", listed, names)
		}
		file := a.get(at+"/members", header("Accept", "text/csv"))
		lines := strings.Split(strings.TrimSpace(string(file.Body)), "\n")
		for i, name := range names {
			if len(lines) != len(names)+1 || !strings.HasPrefix(lines[i+1], "usr_") || !strings.HasSuffix(lines[i+1], ","+name) {
				t.Errorf("as CSV they are %q, not %v", lines, names)
			}
		}
		if file.Header.Get("Content-Type") != "text/csv" || lines[0] != "user_id,external_id" {
			t.Errorf("%v %s", file.Header, file.Body)
		}
		if n := want[httpapi.Segment](t, http.StatusOK, a.get(at)).Members; n != len(names) {
			t.Errorf("%d are counted, not %d", n, len(names))
		}
	}
	wantNames(adults, "u5", "u6", "u7", "u8")
	wantNames(pros, "u5", "u7")

	first := want[httpapi.SegmentMemberList](t, http.StatusOK, a.get(pros+"/members?limit=1"))
	a.createUser("u9", map[string]any{"age": 50, "plan": "p1"})
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:u5", map[string]any{"traits": map[string]any{"age": nil}}))
	wantNames(pros, "u7", "u9")
	told, after := a.segmentChanges(pros, first.ChangesCursor)
	if !slices.Equal(told, []string{"entered u9", "left u5"}) {
		t.Errorf("told %v", told)
	}
	a.send("DELETE", "/api/v1/users/ext:u7", nil)
	wantNames(pros, "u9")
	if told, after = a.segmentChanges(pros, after); !slices.Equal(told, []string{"erased ?"}) {
		t.Errorf("told %v", told)
	}

	// Why somebody is in, and a filter by segment.
	in := want[httpapi.UserSegments](t, http.StatusOK, a.get("/api/v1/users/ext:u9/segments"))
	if len(in.Segments) != 2 || in.Segments[0].Name != "Grown-ups" || len(in.Segments[0].Why) != 1 ||
		in.Segments[0].Why[0].Comparison != "traits.age > 30" || in.Segments[0].Why[0].Truth != httpapi.TruthTrue || len(in.Segments[1].Why) != 2 {
		t.Errorf("in %+v", in)
	}
	out := want[httpapi.SegmentMembership](t, http.StatusOK, a.get(pros+"/members/ext:u8"))
	if out.Member || out.Granted != nil || len(out.Why) != 2 || out.Why[0].Truth != httpapi.TruthTrue || out.Why[1].Truth != httpapi.TruthFalse {
		t.Errorf("of who is not in: %+v", out)
	}
	wantProblem(t, http.StatusNotFound, "user_unknown", a.get(pros+"/members/ext:u7"))
	filter := url.QueryEscape(fmt.Sprintf(`in_segment("%s") && user.external_id != "u9"`, idOfSegment(adults)))
	if page := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users?filter="+filter)); len(page.Data) != 2 {
		t.Errorf("the filter names %d users", len(page.Data))
	}

	// Another rule counts for the segments that refer to it, too; changes begin anew.
	got := a.get(adults)
	same := a.send("PATCH", adults, map[string]any{"name": "Grown-ups", "rule": `traits.age > 30`})
	if tag := got.Header.Get("ETag"); same.Status != http.StatusNoContent || same.Header.Get("ETag") != tag || a.get(adults).Header.Get("ETag") != tag {
		t.Errorf("the same rule: %d %v, was %s", same.Status, same.Header, tag)
	}
	if told, _ := a.segmentChanges(pros, after); len(told) > 0 {
		t.Errorf("the same rule changed %v", told)
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PATCH", adults, map[string]any{"rule": `traits.age > 0`}, header("If-Match", `"999"`)))
	changed := a.send("PATCH", adults, map[string]any{"rule": `traits.age < 28`}, header("If-Match", got.Header.Get("ETag")))
	if changed.Status != http.StatusNoContent {
		t.Fatalf("changed: %d %s", changed.Status, changed.Body)
	}
	a.segmentReady(adults)
	a.segmentReady(pros)
	wantNames(adults, "u0", "u1")
	wantNames(pros, "u1")
	wantProblem(t, http.StatusGone, "cursor_expired", a.get(pros+"/changes?after="+url.QueryEscape(after)))

	// Time alone moves users.
	soon := time.Now().Add(-time.Minute + 3*time.Second).UTC().Format(time.RFC3339Nano)
	recent := a.segment("Recent", `within(traits.seen, "1m")`)
	a.createUser("u10", map[string]any{"seen": soon})
	cursor := want[httpapi.SegmentMemberList](t, http.StatusOK, a.get(recent+"/members")).ChangesCursor
	testkit.Eventually(t, "who was seen a minute ago is no member any more", func() bool { return len(a.segmentMembers(recent)) == 0 })
	if told, _ := a.segmentChanges(recent, cursor); !slices.Equal(told, []string{"left u10"}) {
		t.Errorf("told %v", told)
	}

	// Nobody else finds it, and it ends.
	other := shared(t).signUp()
	for _, path := range []string{adults, adults + "/members", adults + "/changes"} {
		wantProblem(t, http.StatusNotFound, "segment_unknown", other.get(path))
	}
	wantProblem(t, http.StatusNotFound, "segment_unknown", other.send("PATCH", adults, map[string]any{"name": "mine"}))
	wantProblem(t, http.StatusNotFound, "segment_unknown", other.send("DELETE", adults, nil))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", other.send("POST", segmentsPath,
		map[string]any{"name": "mine", "rule": fmt.Sprintf(`in_segment("%s")`, idOfSegment(adults))}))
	wantProblem(t, http.StatusConflict, "segment_in_use", a.send("DELETE", adults, nil))
	for _, at := range []string{pros, adults} {
		if got := a.send("DELETE", at, nil); got.Status != http.StatusNoContent {
			t.Errorf("retired: %d %s", got.Status, got.Body)
		}
		wantProblem(t, http.StatusNotFound, "segment_unknown", a.get(at))
	}
	if list := each[httpapi.Segment](t, a, segmentsPath, 2); len(list) != 1 || list[0].Name != "Recent" {
		t.Errorf("left are %+v", list)
	}
}

// A rule that is wrong is refused with its place, and one that would refer to itself.
func TestARuleOfASegmentIsChecked(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	at := a.segment("First", `traits.age > 30`)
	first := idOfSegment(at)
	second := a.segment("Second", fmt.Sprintf(`!in_segment("%s")`, first))
	for rule, detail := range map[string]string{
		`traits.age >`:         "line 1, column 13",
		`in_segment("seg_no")`: "the id of a segment",
		`in_segment("seg_0123456789abcdefghijklmnoo")`:       "there is no such segment",
		fmt.Sprintf(`in_segment("%s")`, idOfSegment(second)): "refers to the segment itself",
		fmt.Sprintf(`in_segment("%s")`, first):               "refers to the segment itself",
	} {
		got := a.send("PATCH", at, map[string]any{"rule": rule})
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", got)
		if !strings.Contains(string(got.Body), detail) || !strings.Contains(string(got.Body), `"/rule"`) {
			t.Errorf("%s: %s", rule, got.Body)
		}
	}
	a.importUsers(30, func(i int) string { return fmt.Sprintf(`{"age":%d}`, 21+i) })
	preview := want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", map[string]any{"rule": fmt.Sprintf(`in_segment("%s") && traits.age <= 45`, first)}))
	if preview.Users != 30 || preview.Judged != 30 || preview.Members != 15 || preview.Share != 0.5 || len(preview.Sample) != 15 || preview.Sample[0].ExternalID != "u10" {
		t.Errorf("previewed %+v", preview)
	}
}

// Wherever a rule is read that names a layer or a segment which is not there, it says which.
// One that was recorded before the layer was retired goes on without it.
func TestARuleNamesLayersAndSegmentsThatAreThere(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(5, groups)
	layer, retired, others := a.createLayer("age"), a.createLayer("age"), shared(t).signUp().createLayer("age")
	before := a.segment("Before", fmt.Sprintf(`!granted(%q)`, retired.ID))
	a.send("DELETE", layersPath+"/"+string(retired.ID), nil)
	for name, rule := range map[string]string{
		"lay_0123456789abcdefghijklmnoo": `granted("lay_0123456789abcdefghijklmnoo")`,
		string(retired.ID):               fmt.Sprintf(`granted(%q) || !granted(%q)`, layer.ID, retired.ID),
		string(others.ID):                fmt.Sprintf(`granted(%q)`, others.ID),
		"seg_0123456789abcdefghijklmnoo": `in_segment("seg_0123456789abcdefghijklmnoo")`,
	} {
		filter := "filter=" + url.QueryEscape(rule)
		for what, got := range map[string]answer{
			"make /rule":     a.send("POST", segmentsPath, map[string]any{"name": "S", "rule": rule}),
			"change /rule":   a.send("PATCH", before, map[string]any{"rule": rule}),
			"preview /rule":  a.send("POST", "/api/v1/rules/preview", map[string]any{"rule": rule}),
			"match /filter":  a.send("POST", "/api/v1/users/ext:u0/matches", map[string]any{"filter": rule}),
			"users filter":   a.get("/api/v1/users?" + filter),
			"feed filter":    a.get("/api/v1/users/ext:u0/feed?" + filter),
			"layered /rule":  a.send("POST", segmentsPath, map[string]any{"name": "S", "rule": rule, "consent_layer_id": layer.ID}),
			"layered filter": a.get("/api/v1/users/ext:u0/feed?consent_layer_id=" + string(layer.ID) + "&" + filter),
		} {
			_, pointer, _ := strings.Cut(what, " ")
			problem := wantProblem(t, http.StatusUnprocessableEntity, "invalid", got)
			if len(problem.Errors) != 1 || problem.Errors[0].Pointer != pointer || !strings.Contains(problem.Errors[0].Detail, name+", and there is no such") {
				t.Errorf("%s, %s: %+v", what, rule, problem.Errors)
			}
		}
	}
	wantDone(t, a.send("PATCH", before, map[string]any{"name": "Renamed"}))
	if got := want[httpapi.Segment](t, http.StatusOK, a.get(before)); got.Name != "Renamed" || got.State != httpapi.SegmentReady || got.Members != 5 {
		t.Errorf("what was recorded before: %+v", got)
	}
}

func TestSegmentsAreMadeAndFollowedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	sh := newShell(t, s.URL, a.createAPIKey("admin").RawKey)
	a.importUsers(4, func(i int) string { return fmt.Sprintf(`{"age":%d}`, 29+i) })
	if out := sh.must("segments", "preview", "traits.age > 30"); !strings.HasPrefix(out, "2 of 4 users, 50.0 %\n") || !strings.Contains(out, "  u3\n") {
		t.Errorf("previewed %q", out)
	}
	made := asJSON[httpapi.Segment](t, sh.must("segments", "create", "Grown-ups", "traits.age > 30", "--json"))
	if made.Members != 2 || made.State != httpapi.SegmentReady {
		t.Errorf("made %+v", made)
	}
	segment := string(made.ID)
	layer := a.createLayer("age")
	wantDone(t, a.send("PUT", layersPath+"/"+string(layer.ID)+"/users/ext:u3", nil))
	if out := sh.must("segments", "preview", "traits.age > 30", "--layer", string(layer.ID)); !strings.HasPrefix(out, "1 of 4 users") {
		t.Errorf("previewed under a layer: %q", out)
	}
	if of := asJSON[httpapi.Segment](t, sh.must("segments", "create", "Of layers", "traits.age > 30", "--layer", string(layer.ID), "--json")); of.Members != 1 || *of.ConsentLayerID != layer.ID {
		t.Errorf("made under a layer: %+v", of)
	}
	if out := sh.must("segments", "list"); !strings.Contains(out, segment+"  ready  2  Grown-ups  traits.age > 30") {
		t.Errorf("listed %q", out)
	}
	if out := sh.must("segments", "members", segment); strings.Count(out, "\n") != 2 || !strings.Contains(out, "  u2\n") {
		t.Errorf("the members are %q", out)
	}
	if out := sh.must("segments", "why", "ext:u3"); !strings.Contains(out, "true     traits.age > 30") {
		t.Errorf("why: %q", out)
	}
	if out := sh.must("segments", "why", "ext:u0", segment); !strings.Contains(out, " is not in it\n  false    traits.age > 30") {
		t.Errorf("why not: %q", out)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	var out, errs logBuffer
	ended := make(chan error, 1)
	go func() { ended <- sh.begin(ctx, nil, &out, &errs, "segments", "follow", segment) }()
	follows := func(line string) {
		t.Helper()
		testkit.Eventually(t, "the command tells: "+line, func() bool { return strings.Contains(out.String(), line) })
	}
	follows("u3")
	a.createUser("u9", map[string]any{"age": 90})
	follows("u9")
	a.send("PATCH", segmentsPath+"/"+segment, map[string]any{"rule": "traits.age > 80"})
	follows("again")
	a.send("DELETE", "/api/v1/users/ext:u9", nil)
	follows("erased")
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("interrupted: %v", err)
	}
	sh.must("segments", "retire", segment)
	if _, _, err := sh.run("segments", "members", segment); err == nil || !strings.Contains(err.Error(), "segment_unknown") {
		t.Errorf("of a segment that is no more: %v", err)
	}
}

// JSON has numbers that no processor has: in rules they are unknown.
func TestANumberBeyondAllHoldsUpNobody(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	for _, user := range []string{
		`{"external_id":"u0","traits":{"age":20,"plan":"pro"}}`,
		`{"external_id":"huge","traits":{"age":1e999,"list":[-1e999],"plan":"pro"}}`,
		`{"external_id":"u1","traits":{"age":21,"plan":"pro"}}`,
	} {
		want[httpapi.User](t, http.StatusCreated, a.send("POST", "/api/v1/users", user))
	}
	const rule = "traits.age > 1"
	young := a.segment("Young", rule)
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:u1", `{"traits":{"list":[1e999]}}`)) // it is judged again
	if got := a.segmentMembers(young); !slices.Equal(got, []string{"u0", "u1"}) {
		t.Errorf("members %v", got)
	}
	wantUsers(t, a, "?filter="+url.QueryEscape(rule), "u0", "u1")
	found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", map[string]any{"filter": rule, "record": false}))
	if len(found.Data) != 1 || found.Data[0].ExternalID != "u1" {
		t.Errorf("matches %+v", found.Data)
	}
	want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", map[string]any{"rule": rule}))
}

// A filter keeps, of the best matches, those whom it names: however few they are, in
// whichever direction, by segments, and no more than a layer permits.
func TestMatchesAreFiltered(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(300, func(i int) string {
		return fmt.Sprintf(`{"age":%d,"sex":%q,"seeks":[%q],"likes":["a%d","b%d"]}`, 20+i%40, []string{"f", "m"}[i%2], []string{"m", "f"}[i%2], i%3, i%5)
	})
	rare := a.segment("Rare", `traits.age == 21 && traits.sex == "m"`)
	matches := func(body map[string]any) (names []string, truncated bool) {
		t.Helper()
		body["record"] = false
		found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", body))
		score := 1.0
		for _, m := range found.Data {
			names = append(names, m.ExternalID)
			if *m.Score > score {
				t.Errorf("%s stands behind who is less like", m.ExternalID)
			}
			score = *m.Score
		}
		return names, found.Truncated != nil
	}
	all, _ := matches(map[string]any{"limit": 100})
	for filter, n := range map[string]int{
		`traits.sex in viewer.traits.seeks && viewer.traits.sex in traits.seeks`: 20,
		`traits.age == 21`: 8, // u1, u41, …, all men
		fmt.Sprintf(`in_segment(%q)`, idOfSegment(rare)): 8,
		`traits.nobody`: 0,
	} {
		got, truncated := matches(map[string]any{"filter": filter})
		if len(got) != n || truncated {
			t.Errorf("%s: %d matches, %v", filter, len(got), truncated)
		}
		odd := func(name string) bool { return (name[len(name)-1]-'0')%2 == 1 }
		if strings.Contains(filter, "seeks") {
			var wanted []string
			for _, name := range all {
				if odd(name) && len(wanted) < n {
					wanted = append(wanted, name)
				}
			}
			if len(wanted) == n && !slices.Equal(got, wanted) {
				t.Errorf("%s: %v, not %v", filter, got, wanted)
			}
		}
	}
	if got, _ := matches(map[string]any{"matched_user_id": "ext:u1", "filter": `traits.sex == "m"`}); !slices.Equal(got, []string{"u1"}) {
		t.Errorf("the pair is %v", got)
	}
	if got, _ := matches(map[string]any{"matched_user_id": "ext:u1", "filter": `traits.sex == "f"`}); len(got) != 0 {
		t.Errorf("the pair is %v", got)
	}

	// A feed is made of them alone, on all its pages, and so is what fills it up.
	feed := "/api/v1/users/ext:u0/feed?record=false&limit=7&filter=" + url.QueryEscape(`traits.sex in viewer.traits.seeks`)
	shown, at := map[string]bool{}, feed
	for {
		page := want[httpapi.Feed](t, http.StatusOK, a.get(at))
		for _, i := range page.Data {
			if (*i.ExternalID)[len(*i.ExternalID)-1]%2 == 0 || shown[*i.ExternalID] {
				t.Errorf("%s is shown, as %s", *i.ExternalID, i.Reason)
			}
			shown[*i.ExternalID] = true
		}
		if page.NextCursor == nil {
			break
		}
		at = feed + "&cursor=" + url.QueryEscape(*page.NextCursor)
	}
	if len(shown) != 150 {
		t.Errorf("%d of 150 are shown", len(shown))
	}
	wantProblem(t, http.StatusBadRequest, "bad_cursor", a.get(strings.Replace(at, "seeks", "age", 1)))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users/ext:u0/feed?filter=traits"))

	// Of a segment, its members alone; of both, who is in it and named.
	path := "/api/v1/users/ext:u0/matches"
	of := idOfSegment(rare)
	for n, body := range map[int]map[string]any{8: {}, 3: {"filter": `user.external_id < "u2"`}} {
		body["segment_id"] = of
		got, truncated := matches(body)
		if len(got) != n || truncated {
			t.Errorf("%v: %v, %v", body, got, truncated)
		}
	}
	for _, i := range want[httpapi.Feed](t, http.StatusOK, a.get("/api/v1/users/ext:u0/feed?record=false&limit=200&segment_id="+of)).Data {
		if !strings.HasSuffix(*i.ExternalID, "1") {
			t.Errorf("the feed of a segment shows %s", *i.ExternalID)
		}
	}
	wantProblem(t, http.StatusNotFound, "segment_unknown", a.send("POST", path, map[string]any{"segment_id": "seg_none"}))
	wantProblem(t, http.StatusNotFound, "segment_unknown", a.get("/api/v1/users/ext:u0/feed?segment_id="+of[:10]))

	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", path, map[string]any{"filter": `traits.age >`}))
	layer := a.createLayer("age")
	a.send("POST", layersPath+"/"+string(layer.ID)+"/grants", map[string]any{"all": true})
	within := map[string]any{"consent_layer_id": layer.ID, "filter": `traits.age > viewer.traits.age && has(traits.sex)`, "record": false}
	beyond := a.send("POST", path, within)
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", beyond)
	if !strings.Contains(string(beyond.Body), "traits.sex") {
		t.Errorf("refused with %s", beyond.Body)
	}
	within["filter"] = `traits.age > viewer.traits.age`
	if found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", path, within)); len(found.Data) == 0 {
		t.Error("nobody is older than u0")
	}
	delete(within, "filter")
	within["segment_id"] = of
	if beyond := a.send("POST", path, within); beyond.Status != http.StatusUnprocessableEntity || !strings.Contains(string(beyond.Body), "traits.sex") {
		t.Errorf("a segment of other traits than the layer's: %s", beyond.Body)
	}
	within["segment_id"] = idOfSegment(a.segment("Of age", `traits.age < 22`))
	if found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", path, within)); len(found.Data) != 15 {
		t.Errorf("%d matches of a segment under the layer", len(found.Data)) // u1, u40, u41, …
	}
	writer := a.with(a.exchange(a.createAPIKey("write").RawKey))
	wantProblem(t, http.StatusForbidden, "missing_scope", writer.send("POST", path, map[string]any{"filter": `traits.age > 1`}))
	wantProblem(t, http.StatusForbidden, "missing_scope", writer.send("POST", path, map[string]any{"segment_id": of}))
}

// A segment under a consent layer is of those who grant it now, by what the layer permits;
// and of clusters, consents and behaviour rules know at once.
func TestSegmentsUnderConsent(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(60, groups)
	layer := a.createLayer("age", "plan", "visits")
	at := layersPath + "/" + string(layer.ID)
	a.grantAll(layer)
	layered := func(name, rule string) string {
		t.Helper()
		made := want[httpapi.Segment](t, http.StatusCreated, a.send("POST", segmentsPath, map[string]any{"name": name, "rule": rule, "consent_layer_id": layer.ID}))
		if made.ConsentLayerID == nil || *made.ConsentLayerID != layer.ID {
			t.Errorf("made %+v", made)
		}
		a.segmentReady(segmentsPath + "/" + string(made.ID))
		return segmentsPath + "/" + string(made.ID)
	}
	refused := func(body map[string]any, why string) {
		t.Helper()
		body["name"] = "refused"
		got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", segmentsPath, body))
		if len(got.Errors) != 1 || got.Errors[0].Pointer != "/rule" || !strings.Contains(got.Errors[0].Detail, why) {
			t.Errorf("refused with %+v, not for %s", got.Errors, why)
		}
	}
	pros := layered("Pros", `traits.plan == "pro"`)
	named := layered("Not pros", fmt.Sprintf(`!in_segment(%q)`, idOfSegment(pros)))
	refused(map[string]any{"rule": `traits.plan == "pro" && traits.name == "x"`, "consent_layer_id": layer.ID}, "line 1, column 31: traits.name")
	refused(map[string]any{"rule": `interactions("click", "7d") >= 2`, "consent_layer_id": layer.ID}, "interactions")
	refused(map[string]any{"rule": fmt.Sprintf(`in_segment(%q)`, idOfSegment(pros))}, "consent_layer_id")
	refused(map[string]any{"rule": `traits.religion == "x"`}, "sensitive")
	refused(map[string]any{"rule": `[traits][0].religion == "x"`}, "traits.religion is sensitive")
	refused(map[string]any{"rule": `in_cluster("clu_04hk8ls48pkqs04hk8ls48pkqs")`}, "consent_layer_id")
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users?filter="+url.QueryEscape(`traits.religion == "x"`)))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users?filter="+url.QueryEscape(fmt.Sprintf(`in_segment(%q)`, idOfSegment(pros)))))
	wantProblem(t, http.StatusNotFound, "consent_layer_unknown", a.send("POST", segmentsPath, map[string]any{"name": "x", "rule": "has(traits.age)", "consent_layer_id": "lay_0123456789abcdefghijklmnop"}))
	counts := func(at string, n int) {
		t.Helper()
		if got := len(a.segmentMembers(at)); got != n {
			t.Errorf("%s has %d members, not %d", at, got, n)
		}
	}
	counts(pros, 20)
	counts(named, 40)

	// Who withdraws is out; so it is of what asks for consent, outside of any layer.
	granting := a.segment("Granting", fmt.Sprintf(`granted(%q)`, layer.ID))
	if got := a.send("DELETE", at+"/users/ext:u1", nil); got.Status != http.StatusNoContent {
		t.Fatalf("withdrawn: %d %s", got.Status, got.Body)
	}
	counts(pros, 19)
	counts(granting, 59)
	filter := url.QueryEscape(fmt.Sprintf(`!granted(%q)`, layer.ID))
	if found := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users?filter="+filter)); len(found.Data) != 1 || found.Data[0].ExternalID != "u1" {
		t.Errorf("%+v do not grant", found.Data)
	}
	if one := want[httpapi.SegmentMembership](t, http.StatusOK, a.get(pros+"/members/ext:u1")); one.Member || *one.Granted || len(one.Why) > 0 {
		t.Errorf("of who has withdrawn is told %+v", one)
	}
	preview := want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", map[string]any{"rule": `traits.plan == "pro"`, "consent_layer_id": layer.ID}))
	if preview.Members != 19 {
		t.Errorf("%d would be members", preview.Members)
	}

	// Of what a run finds the rule is told when it has completed.
	run := a.ended(a.cluster(layer, "k", 3))
	if run.Status != "completed" {
		t.Fatalf("the run: %+v", run)
	}
	cluster := want[httpapi.ClusterList](t, http.StatusOK, a.get("/api/v1/clusters")).Data[0]
	within := layered("Clustered", fmt.Sprintf(`in_cluster(%q)`, cluster.ID))
	in := a.members(cluster.ID)
	counts(within, len(in))
	why := want[httpapi.UserSegments](t, http.StatusOK, a.get("/api/v1/users/ext:"+in[0]+"/segments"))
	if last := why.Segments[len(why.Segments)-1]; last.Name != "Clustered" || last.Why[0].Truth != httpapi.TruthTrue {
		t.Errorf("why: %+v", why)
	}

	// A path that leaves the layer blocks what reads it, until it comes back.
	a.send("PATCH", at, map[string]any{"trait_paths": []string{"age", "visits"}})
	blocked := want[httpapi.Segment](t, http.StatusOK, a.get(pros))
	if blocked.State != httpapi.SegmentBlocked || blocked.Members != 0 || len(blocked.BlockedBy) != 1 || blocked.BlockedBy[0].Name != "plan" || blocked.BlockedBy[0].Cause != httpapi.BlockedByPathOutsideLayer {
		t.Errorf("blocked: %+v", blocked)
	}
	if of := want[httpapi.Segment](t, http.StatusOK, a.get(named)); of.State != httpapi.SegmentBlocked || of.BlockedBy[0].Cause != httpapi.BlockedBySegmentBlocked {
		t.Errorf("what refers to it: %+v", of)
	}
	counts(pros, 0)
	counts(named, 0)
	counts(within, len(in))
	a.send("PATCH", at, map[string]any{"trait_paths": []string{"age", "visits", "plan"}})
	a.segmentReady(pros)
	a.segmentReady(named)
	counts(pros, 19)
	counts(named, 40)
	indirect := a.segment("Pros, by another way", `dyn(traits).plan == "pro"`)
	a.send("PATCH", "/api/v1/traits", map[string]any{"traits": map[string]any{"plan": map[string]any{"sensitive": true}}})
	if got := want[httpapi.Segment](t, http.StatusOK, a.get(indirect)); got.State != httpapi.SegmentBlocked || got.BlockedBy[0].Name != "plan" {
		t.Errorf("by what is sensitive, by another way: %+v", got)
	}
	if got := want[httpapi.Segment](t, http.StatusOK, a.get(pros)); got.State != httpapi.SegmentBlocked || got.BlockedBy[0].Cause != httpapi.BlockedByPathSensitive {
		t.Errorf("by what is sensitive: %+v", got)
	}
	a.send("PATCH", pros, map[string]any{"rule": `traits.age > 60`})
	a.segmentReady(pros)
	counts(pros, 20)

	// What users do moves them, and so does time.
	clicked := a.segment("Clicked", `interactions("click", "1m") >= 2`)
	cursor := want[httpapi.SegmentMemberList](t, http.StatusOK, a.get(clicked+"/members")).ChangesCursor
	for range 2 {
		a.send("POST", "/api/v1/users/ext:u0/feed/interactions", map[string]any{"item_id": "ext:u3", "type": "click"})
	}
	if told, _ := a.segmentChanges(clicked, cursor); !slices.Equal(told, []string{"entered u0"}) {
		t.Errorf("told %v", told)
	}
	filter = url.QueryEscape(`interactions("click", "1d") == 2`)
	if found := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users?filter="+filter)); len(found.Data) != 1 {
		t.Errorf("%+v clicked twice", found.Data)
	}

	// With the layer all that was found under it ends.
	a.send("DELETE", at, nil)
	counts(within, 0)
	counts(granting, 0)
	if got := want[httpapi.Segment](t, http.StatusOK, a.get(within)); got.State != httpapi.SegmentBlocked || got.BlockedBy[0].Cause != httpapi.BlockedByLayerRetired {
		t.Errorf("of a layer that is no more: %+v", got)
	}
}

// A match rule holds of both of a pair, in matches that are asked for and in those that
// nobody asks for, in previews and in feeds; the layer's own holds under a layer.
func TestAMatchRuleAlwaysHolds(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(60, func(i int) string { // of men, every second one seeks men
		return fmt.Sprintf(`{"age":%d,"sex":%q,"seeks":[%q]}`, 20+i%20, []string{"f", "m"}[i%2], []string{"m", "f", "m", "m"}[i%4])
	})
	path := "/api/v1/users/ext:u0/matches"
	settings := func(rule any) httpapi.ClientDetails {
		t.Helper()
		return want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", fmt.Sprintf(`{"settings":{"match_rule":%s}}`, rule)))
	}
	sought := func(name string) bool { // by u0, and seeks it
		var i int
		if _, err := fmt.Sscanf(name, "u%d", &i); err != nil {
			t.Error(err)
		}
		return i%4 == 1
	}
	for _, wrong := range []string{`"traits.sex in"`, `"in_segment(\"seg_x\")"`} {
		got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.sendTo("PATCH", "", `{"settings":{"match_rule":`+wrong+`}}`))
		if got.Errors[0].Pointer != "/settings/match_rule" || !strings.Contains(got.Errors[0].Detail, "line 1, column") && !strings.Contains(got.Errors[0].Detail, "segment") {
			t.Errorf("%s: %+v", wrong, got.Errors)
		}
	}
	if is := settings(`"traits.sex in viewer.traits.seeks"`).Settings.MatchRule; is == nil || *is != "traits.sex in viewer.traits.seeks" {
		t.Errorf("the match rule is %v", is)
	}
	for _, body := range []map[string]any{{"limit": 100}, {"limit": 100, "filter": "traits.age > 0"}} {
		found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", path, body))
		if len(found.Data) != 15 || !slices.ContainsFunc(found.Data, func(m httpapi.ComputedMatch) bool { return sought(m.ExternalID) }) {
			t.Errorf("%v: %d matches", body, len(found.Data))
		}
		for _, m := range found.Data {
			if !sought(m.ExternalID) {
				t.Errorf("%s is a match", m.ExternalID)
			}
		}
	}
	for other, n := range map[string]int{"u1": 1, "u3": 0, "u2": 0} {
		if found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", path, map[string]any{"matched_user_id": "ext:" + other})); len(found.Data) != n {
			t.Errorf("%s: %d matches", other, len(found.Data))
		}
	}
	shown := want[httpapi.Feed](t, http.StatusOK, a.get("/api/v1/users/ext:u0/feed?record=false&limit=200"))
	for _, i := range shown.Data {
		if !sought(*i.ExternalID) {
			t.Errorf("the feed shows %s", *i.ExternalID)
		}
	}
	if len(shown.Data) != 15 {
		t.Errorf("the feed shows %d", len(shown.Data))
	}

	want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", `{"settings":{"automatic_matching":{"on":true,"k":5,"min_score":0}}}`))
	testkit.Eventually(t, "everybody is matched", func() bool {
		return want[httpapi.Sweep](t, http.StatusOK, a.get("/api/v1/matching/sweep")).Pending == 0
	})
	for i, n := range []int{20, 5, 20, 0} { // u0 was matched above; u3 seeks men, and no man seeks u3 back but one of its kind
		found := each[httpapi.Match](t, a, fmt.Sprintf("/api/v1/users/ext:u%d/matches", i), 50)
		for _, m := range found {
			var other int
			if _, err := fmt.Sscanf(m.ExternalID, "u%d", &other); err != nil || i%2 == 0 && other%4 != 1 || i == 1 && other%2 != 0 || i == 3 && other%4 != 3 {
				t.Errorf("u%d is matched with %s", i, m.ExternalID)
			}
		}
		if len(found) == 0 && n > 0 {
			t.Errorf("u%d has no matches", i)
		}
	}
	if is := settings("null").Settings.MatchRule; is != nil {
		t.Errorf("the match rule is %s", *is)
	}

	a.refuseLayerRules()
}

// refuseLayerRules makes layers whose match rule reads what they do not permit, and one that holds.
func (a account) refuseLayerRules() {
	a.Helper()
	for _, wrong := range []string{`traits.sex in viewer.traits.seeks`, `user.external_id != viewer.external_id`, `traits.age >`} {
		got := wantProblem(a, http.StatusUnprocessableEntity, "invalid",
			a.send("POST", layersPath, map[string]any{"name": "A", "trait_paths": []string{"age"}, "match_rule": wrong}))
		if got.Errors[0].Pointer != "/match_rule" {
			a.Errorf("%s: %+v", wrong, got.Errors)
		}
	}
	layer := want[httpapi.ConsentLayer](a, http.StatusCreated,
		a.send("POST", layersPath, map[string]any{"name": "A", "trait_paths": []string{"age"}, "match_rule": `traits.age >= 30 || viewer.traits.age >= 30`}))
	at := layersPath + "/" + string(layer.ID)
	got := wantProblem(a, http.StatusUnprocessableEntity, "invalid", a.send("PATCH", at, map[string]any{"trait_paths": []string{"sex"}}))
	if got.Errors[0].Pointer != "/trait_paths" {
		a.Errorf("of other traits: %+v", got.Errors)
	}
	a.send("POST", at+"/grants", map[string]any{"all": true})
	body := map[string]any{"consent_layer_id": layer.ID, "limit": 100, "record": false}
	if found := want[httpapi.ComputedMatches](a, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", body)); len(found.Data) != 30 { // half of the 60, who are 30 and more
		a.Errorf("%d matches under the layer", len(found.Data))
	}
	want[httpapi.ConsentLayer](a, http.StatusOK, a.send("PATCH", at, map[string]any{"match_rule": nil}))
	if found := want[httpapi.ComputedMatches](a, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", body)); len(found.Data) != 59 {
		a.Errorf("%d matches under the layer without its rule", len(found.Data))
	}
}
