package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/httpapi"
	"kindred/testkit"
)

// What is downloaded as CSV is what an import makes users of, all of them or those of a
// rule or a segment.
func TestUsersAreDownloadedAsCSV(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	odd := []string{
		`{"age":30.5,"likes":["a,b","c"],"home":{"lat":1,"lon":-2.5},"text":"says \"no\", twice"}`,
		`{"age":null,"ok":true,"text":"=SUM(A1)","word, with comma":"x"}`, `{"empty":{},"text":"Ünïcode"}`, `{}`,
	}
	a.importUsers(450, func(i int) string { return odd[i%len(odd)] })
	csv := header("Accept", "text/csv")
	file := a.get("/api/v1/users", csv)
	if file.Status != http.StatusOK || file.Header.Get("Content-Type") != "text/csv" {
		t.Fatalf("%d %v", file.Status, file.Header)
	}
	b := shared(t).signUp()
	want[httpapi.ImportResult](t, http.StatusOK, b.send("POST", "/api/v1/users/import", string(file.Body), header("Content-Type", "text/csv")))
	traits := func(a account) map[string]any {
		found := map[string]any{}
		for _, u := range each[httpapi.User](t, a, "/api/v1/users", 200) {
			var plain any
			if err := json.Unmarshal(u.Traits, &plain); err != nil {
				t.Fatal(err)
			}
			found[u.ExternalID] = plain
		}
		return found
	}
	if before, after := traits(a), traits(b); len(before) != 450 || !reflect.DeepEqual(before, after) {
		t.Errorf("%d users became %d others", len(before), len(after))
	}

	adults := a.segment("Those with an age", `traits.age > 30`)
	for _, named := range []string{"filter=" + url.QueryEscape("traits.age > 30"), "segment_id=" + idOfSegment(adults)} {
		lines := strings.Split(strings.TrimSpace(string(a.get("/api/v1/users?"+named, csv).Body)), "\n")
		if len(lines) != 1+113 || lines[0] != "external_id,age,home,likes,text" || !strings.HasPrefix(lines[1], "u0,30.5,") {
			t.Errorf("%s: %d lines, %q", named, len(lines), lines[:2])
		}
	}
	for _, beside := range []string{"limit=3", "ids=usr_1", "updated_since=2026-01-01T00:00:00Z", "filter=traits."} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/users?"+beside, csv))
	}
	c := shared(t).signUp()
	c.createUser("u1", map[string]any{"external_id": "mine"})
	wantProblem(t, http.StatusConflict, "not_as_csv", c.get("/api/v1/users", csv))
	d := shared(t).signUp()
	d.createUser("u1", map[string]any{"": "no column has this name"})
	wantProblem(t, http.StatusConflict, "not_as_csv", d.get("/api/v1/users", csv))
	e := shared(t).signUp()
	e.createUser("u1", map[string]any{strings.Repeat("n", 257): "no column has so long a name"})
	wantProblem(t, http.StatusConflict, "not_as_csv", e.get("/api/v1/users", csv))
	for _, name := range []string{"a\rb", "a\r\nb"} { // an import would refuse the one, and rename the other
		f := shared(t).signUp()
		f.createUser("u1", map[string]any{name: 1})
		wantProblem(t, http.StatusConflict, "not_as_csv", f.get("/api/v1/users", csv))
	}
	many := map[string]any{}
	for n := range 1024 {
		many[fmt.Sprint("t", n)] = n
	}
	c.createUser("u2", many)
	wantProblem(t, http.StatusConflict, "not_as_csv", c.get("/api/v1/users?filter="+url.QueryEscape("traits.t1 == 1"), csv))
}

// Whoever waits for changes is told of one when it comes, and of none otherwise.
func TestChangesOfASegmentAreWaitedFor(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	at := a.segment("Grown-ups", `traits.age > 30`)
	cursor := want[httpapi.SegmentMemberList](t, http.StatusOK, a.get(at+"/members")).ChangesCursor
	changes := func(wait int, after string) answer {
		return a.get(fmt.Sprintf("%s/changes?wait=%d&after=%s", at, wait, url.QueryEscape(after)))
	}
	nothing := want[httpapi.SegmentChangeList](t, http.StatusOK, changes(1, cursor))
	if len(nothing.Changes) != 0 {
		t.Errorf("told %+v", nothing)
	}
	answered := make(chan answer)
	began := time.Now()
	go func() { answered <- changes(30, nothing.Cursor) }()
	a.createUser("u1", map[string]any{"age": 20})
	a.createUser("u2", map[string]any{"age": 40})
	got := want[httpapi.SegmentChangeList](t, http.StatusOK, <-answered)
	if len(got.Changes) != 1 || *got.Changes[0].ExternalID != "u2" || time.Since(began) > 25*time.Second {
		t.Errorf("told %+v", got)
	}
	want[httpapi.SegmentChangeList](t, http.StatusOK, changes(30, cursor))
	go func() { answered <- changes(30, got.Cursor) }()
	a.send("DELETE", at, nil)
	wantProblem(t, http.StatusNotFound, "segment_unknown", <-answered)
}

// Changes are told in their order, and the newest first, page by page.
func TestTheNewestChangesOfASegmentAreTold(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	at := a.segment("Grown-ups", `traits.age > 30`)
	for i := range 7 {
		a.createUser(fmt.Sprintf("u%d", i), map[string]any{"age": 40})
	}
	a.send("PATCH", "/api/v1/users/ext:u3", map[string]any{"traits": map[string]any{"age": 9}})
	read := func(order string) (told []string) {
		for after := ""; ; {
			page := want[httpapi.SegmentChangeList](t, http.StatusOK, a.get(at+"/changes?limit=3&order="+order+after))
			for _, c := range page.Changes {
				told = append(told, string(c.Change)+" "+*c.ExternalID)
			}
			if after = "&after=" + url.QueryEscape(page.Cursor); !page.HasMore {
				if rest := want[httpapi.SegmentChangeList](t, http.StatusOK, a.get(at+"/changes?order="+order+after)); len(rest.Changes) > 0 {
					t.Errorf("%s: behind the last: %+v", order, rest.Changes)
				}
				return told
			}
		}
	}
	asc, desc := read("asc"), read("desc")
	slices.Reverse(desc)
	if want := []string{"entered u0", "entered u1", "entered u2", "entered u3", "entered u4", "entered u5", "entered u6", "left u3"}; !slices.Equal(asc, want) || !slices.Equal(desc, want) {
		t.Errorf("in order %v, the newest last %v", asc, desc)
	}
	if none := want[httpapi.SegmentChangeList](t, http.StatusOK, a.get(a.segment("Nobody", `traits.age > 300`)+"/changes?order=desc")); len(none.Changes) > 0 || none.HasMore {
		t.Errorf("of nobody: %+v", none)
	}
	forward := want[httpapi.SegmentChangeList](t, http.StatusOK, a.get(at+"/changes?limit=3")).Cursor
	bad := wantProblem(t, http.StatusBadRequest, "bad_cursor", a.get(at+"/changes?order=desc&after="+url.QueryEscape(forward)))
	if !strings.Contains(bad.Detail, "changes_cursor") || strings.Contains(bad.Detail, "next_cursor") {
		t.Errorf("told where to go on: %s", bad.Detail)
	}
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(at+"/changes?order=desc&wait=1"))
	a.send("PATCH", at, map[string]any{"rule": "traits.age > 20"})
	testkit.Eventually(t, "another rule counts", func() bool {
		return len(want[httpapi.SegmentChangeList](t, http.StatusOK, a.get(at+"/changes?order=desc")).Changes) == 0
	})
}

// A rule that is tried says what sets those whom it names apart, but nothing that is
// sensitive, and under a layer what that permits alone.
func TestARuleThatIsTriedSaysWhatSetsThemApart(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(120, func(i int) string {
		return fmt.Sprintf(`{"plan":%q,"age":%d,"city":%q,"religion":%q}`, []string{"free", "pro"}[i%2], 20+30*(i%2)+i%7, []string{"Oslo", "Turin"}[i%2], []string{"a", "b"}[i%2])
	})
	layer := a.createLayer("age", "plan")
	a.grantAll(layer)
	apart := func(body map[string]any) map[string]httpapi.RuleTrait {
		found := map[string]httpapi.RuleTrait{}
		for _, d := range want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", body)).Apart {
			found[d.Path] = d
		}
		return found
	}
	told := func() {
		rule := map[string]any{"rule": `traits.plan == "pro"`}
		preview := want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", map[string]any{"rule": "traits.plam == \"pro\""}))
		if len(preview.Warnings) != 1 || preview.Warnings[0].Column != 7 || !strings.HasSuffix(preview.Warnings[0].Detail, "Did you mean traits.plan?") {
			t.Errorf("warned of %+v", preview.Warnings)
		}
		if out := newShell(t, shared(t).URL, a.createAPIKey("admin").RawKey).must("segments", "preview", `traits.age > "20"`); !strings.Contains(out, "  line 1, column 7: traits.age holds numbers") {
			t.Errorf("on the command line: %s", out)
		}
		if got := apart(rule); len(got) != 3 || *got["city"].Level != "Turin" || got["city"].NamedValue != 1 || got["city"].OverallValue != .5 || got["age"].NamedValue < 50 || got["age"].Effect <= 0 {
			t.Errorf("set apart by %+v", got)
		}
		rule["consent_layer_id"] = layer.ID
		if got := apart(rule); len(got) != 2 || got["age"].Path == "" || got["plan"].Path == "" {
			t.Errorf("under a layer set apart by %+v", got)
		}
		if got := apart(map[string]any{"rule": "has(traits.nothing)"}); len(got) != 0 {
			t.Errorf("nobody is set apart by %+v", got)
		}
	}
	told()
	a.get("/api/v1/traits") // learns them
	told()
}

// Traits are learnt anew once there are many more users: until then a preview knows of new
// ones by whom it judges.
func TestARuleThatIsTriedFindsATraitThatIsNew(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(120, func(i int) string { return fmt.Sprintf(`{"age":%d}`, 20+i%40) })
	a.get("/api/v1/traits") // learns them
	a.createUser("newcomer", map[string]any{"q": map[string]any{"deep": 1, "a.b": 2}, "pets": []any{map[string]any{"kind": "dog"}}})
	for rule, unknown := range map[string]string{
		`has(traits.q)`: "", `has(traits.q.deep)`: "", `has(traits.q["a.b"])`: "", `traits.pets.exists(p, p.kind == "dog")`: "",
		`has(traits.q) && !has(traits.q.shallow)`: "traits.q.shallow", `has(traits.q) || has(traits.r)`: "traits.r",
	} {
		preview := want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", map[string]any{"rule": rule}))
		if preview.Members != 1 {
			t.Errorf("%s names %d", rule, preview.Members)
		}
		if warned := preview.Warnings; len(warned) > 1 || (len(warned) == 1) != (unknown != "") || unknown != "" && !strings.Contains(warned[0].Detail, unknown+".") {
			t.Errorf("%s is warned of: %+v", rule, warned)
		}
	}
}

// A moment of the past has the segments of then, and a rule can be tried on it.
func TestARuleIsTriedOnThePast(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(4, func(i int) string { return fmt.Sprintf(`{"age":%d}`, 29+i) })
	at := a.segment("Grown-ups", `traits.age > 30`)
	then := a.createUser("u9", map[string]any{"age": 50})
	moment := a.get("/api/v1/users/" + string(then.ID)).Header.Get("X-Kindred-Position")
	if moment == "" {
		moment = fmt.Sprint(want[httpapi.HistoryProof](t, http.StatusOK, a.get(a.under("/history/proof"))).Size - 1)
	}
	a.createUser("u10", map[string]any{"age": 60})

	rule := map[string]any{"rule": `traits.age > 30`, "at": moment}
	if got := want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", rule)); got.Users != 5 || got.Members != 3 {
		t.Errorf("then it named %+v", got)
	}
	reader := a.with(a.exchange(a.createAPIKey("read").RawKey))
	wantProblem(t, http.StatusForbidden, "missing_scope", reader.send("POST", "/api/v1/rules/preview", rule))
	auditor := a.addMember("auditor")
	want[httpapi.RulePreview](t, http.StatusOK, auditor.send("POST", "/api/v1/rules/preview", rule))
	state := want[httpapi.HistoryState](t, http.StatusOK, a.get(a.under("/history/state?kind=segments&at="+moment)))
	if len(state.Data) != 1 || state.Data[0].Segment.Name != "Grown-ups" || *state.Data[0].Segment.Members != 3 {
		t.Errorf("then there were %+v", state.Data)
	}
	a.send("DELETE", at, nil)
	state = want[httpapi.HistoryState](t, http.StatusOK, a.get(a.under("/history/state?kind=segments&at="+fmt.Sprint(state.Size-2))))
	if len(state.Data) != 1 || state.Data[0].Segment.Retired == nil || state.Data[0].Segment.Rule != nil {
		t.Errorf("of one that was retired since: %+v", state.Data)
	}
	rule["at"] = "tomorrow"
	got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/rules/preview", rule))
	if got.Errors[0].Pointer != "/at" {
		t.Errorf("refused: %+v", got.Errors)
	}

	// Who was erased since is nobody then either, and the others do not stand for them.
	for _, user := range []string{"u9", "u10"} {
		wantDone(t, a.send("DELETE", "/api/v1/users/ext:"+user, nil))
	}
	rule["at"] = moment
	left := want[httpapi.RulePreview](t, http.StatusOK, a.send("POST", "/api/v1/rules/preview", rule))
	if left.Users != 4 || left.Judged != 4 || left.Members != 2 || left.Share != .5 || left.Margin != 0 {
		t.Errorf("once one of them is erased it named %+v", left)
	}
}
