package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"kindred/domain/rule"
	"kindred/httpapi"
	"kindred/testkit"
)

// filtering is a client whose filters are judged once more, user by user.
type filtering struct {
	account
	random  *rand.Rand
	ids     map[string]string // by external id
	traits  map[string]string
	granted map[string]bool
	layer   httpapi.ConsentLayer
	segment string
	inside  string // its rule
	always  string // the match rule
}

func (f *filtering) drawn() string {
	pick := func(of ...string) string { return of[f.random.IntN(len(of))] }
	// What all have alike keeps each score above 0: who has a score of 0 with another is no match of it.
	doc := fmt.Sprintf(`{"here":"é","z":%d`, f.random.IntN(50))
	for _, member := range []string{
		`"n":` + pick("1", "2", "30", `"2"`, "null", "true", "1e400", "[2]"), `"plan":` + pick(`"a"`, `"b"`, `"é"`, "null", `""`), `"l":` + pick(`["x"]`, `["y","x"]`, `[]`, `"x"`, `[{"a":1}]`, `{"x":1}`),
		`"sex":` + pick(`"f"`, `"m"`), `"seeks":` + pick(`["f"]`, `["m"]`, `["f","m"]`, `"f"`), `"o":` + pick(`{"n":2}`, `{"n":null}`, `3`),
	} {
		if f.random.IntN(4) > 0 {
			doc += "," + member
		}
	}
	return doc + "}"
}

func (f *filtering) facts(name string, viewer *rule.Facts) *rule.Facts {
	var all map[string]any
	_ = json.Unmarshal([]byte(f.traits[name]), &all)
	return &rule.Facts{
		Traits: all, ExternalID: name, Client: string(f.Client.ID), ID: f.ids[name], Viewer: viewer, Granted: func(layer string) bool { return f.granted[name] },
		InSegment: func(string) bool { return f.judge(f.inside, rule.Users, f.facts(name, nil)) },
	}
}

func (f *filtering) judge(text string, scope rule.Scope, facts *rule.Facts) bool {
	f.Helper()
	r, err := rule.Parse(text, scope)
	if err != nil {
		f.Fatal(text, err)
	}
	return r.Judge(facts) == rule.True
}

// named are those whom a filter names for a viewer, or for nobody.
func (f *filtering) named(filter, segment, viewer, layer string) (names []string) {
	for name := range f.traits {
		var seen *rule.Facts
		scope := rule.Users
		if viewer != "" {
			scope, seen = rule.Pairs, f.facts(viewer, nil)
		}
		facts := f.facts(name, seen)
		if name == viewer || layer != "" && !f.granted[name] || filter != "" && !f.judge(filter, scope, facts) || segment != "" && !f.judge(f.inside, rule.Users, facts) {
			continue
		}
		if viewer != "" && f.always != "" && layer == "" {
			back := f.facts(viewer, facts)
			if !f.judge(f.always, rule.Pairs, facts) || !f.judge(f.always, rule.Pairs, back) {
				continue
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Matches, feeds and lists hold those whom a filter names, user by user, while traits, consents and the match rule
// change, and parts of filters are kept beside the users.
func TestWhateverIsFilteredIsWhatTheRuleNames(t *testing.T) {
	t.Parallel()
	f := &filtering{account: shared(t).signUp(), random: testkit.Random(t), ids: map[string]string{}, traits: map[string]string{}, granted: map[string]bool{}}
	f.importUsers(140, func(i int) string {
		f.traits[fmt.Sprintf("u%d", i)] = f.drawn()
		return f.traits[fmt.Sprintf("u%d", i)]
	})
	for _, u := range each[httpapi.User](f, f.account, "/api/v1/users", 200) {
		f.ids[u.ExternalID] = string(u.ID)
	}
	f.layer = f.createLayer("n", "plan", "z", "here")
	for i := range 130 {
		name := fmt.Sprintf("u%d", i)
		f.grant(name, true)
	}
	f.inside = `traits.n == 2 || "x" in traits.l`
	f.segment = idOfSegment(f.account.segment("S", f.inside))
	parts := []string{
		`traits.n == 2`, `traits.n != 2`, `traits.n in [1, 30, "2"]`, `traits.plan == "a"`, `traits.plan >= "b"`, `has(traits.n)`, `!has(traits.plan)`, `traits.z > 10`, `bucket("é", 2) == 0`, `traits.z / 2 < 20 && traits["plan"] != "é"`,
		fmt.Sprintf(`granted(%q)`, f.layer.ID),
	}
	of := append(slices.Clone(parts), `"x" in traits.l`, `traits.l.exists(p, p.a == 1)`, `size(traits.l) > 0`, `traits.sex in viewer.traits.seeks`, `viewer.traits.sex in traits.seeks`, `traits.z > viewer.traits.z`,
		`traits.o.n == 2 ? traits.z > 5 : viewer.traits.z > 5`, `user.external_id > "u5"`, `viewer.external_id != user.external_id`, fmt.Sprintf(`in_segment(%q)`, f.segment), fmt.Sprintf(`!in_segment(%q)`, f.segment), `traits.sex == viewer.traits.sex`)
	var pool []string
	compose := func(of []string) string {
		text := of[f.random.IntN(len(of))]
		for range f.random.IntN(3) {
			text = "(" + text + ")" + []string{" && ", " && ", " || "}[f.random.IntN(3)] + "(" + of[f.random.IntN(len(of))] + ")"
		}
		return text
	}
	for range 12 {
		pool = append(pool, compose(of))
	}
	layered := []string{}
	for range 5 {
		layered = append(layered, compose(parts))
	}
	compared := 0
	for n := range 15 {
		who := func() string { return fmt.Sprintf("u%d", f.random.IntN(140)) }
		if one := who(); f.traits[one] != "" && f.random.IntN(2) == 0 {
			switch f.random.IntN(6) {
			case 0, 1, 2:
				f.traits[one] = f.drawn()
				want[httpapi.User](t, http.StatusOK, f.send("PUT", "/api/v1/users/ext:"+one, `{"traits":`+f.traits[one]+`}`))
			case 3:
				f.grant(one, !f.granted[one])
			case 4:
				if len(f.traits) > 120 {
					f.send("DELETE", "/api/v1/users/ext:"+one, nil)
					delete(f.traits, one)
					delete(f.granted, one)
				}
			case 5:
				f.always = []string{"", `traits.sex in viewer.traits.seeks`, `traits.z < viewer.traits.z + 30 && traits.plan != "b"`}[f.random.IntN(3)]
				body := `{"settings":{"match_rule":null}}`
				if f.always != "" {
					body = fmt.Sprintf(`{"settings":{"match_rule":%q}}`, f.always)
				}
				want[httpapi.ClientDetails](t, http.StatusOK, f.sendTo("PATCH", "", body))
			}
		}
		viewer := who()
		if f.traits[viewer] == "" {
			continue
		}
		filter, segment, layer := pool[f.random.IntN(len(pool))], "", ""
		if f.random.IntN(4) == 0 {
			filter, layer = layered[f.random.IntN(len(layered))], string(f.layer.ID)
			if !f.granted[viewer] {
				continue
			}
		} else if f.random.IntN(4) == 0 {
			segment = f.segment
		}
		about := fmt.Sprintf("step %d: %s of %q, layer %q, always %s, viewer %s %s", n, filter, segment, layer, f.always, viewer, f.traits[viewer])
		wanted := f.named(filter, segment, viewer, layer)
		body := map[string]any{"filter": filter, "record": false, "limit": 100}
		query := "?record=false&limit=50&filter=" + url.QueryEscape(filter)
		if segment != "" {
			body["segment_id"] = segment
			query += "&segment_id=" + segment
		}
		if layer != "" {
			body["consent_layer_id"] = layer
			query += "&consent_layer_id=" + layer
		}
		found := want[httpapi.ComputedMatches](t, http.StatusOK, f.send("POST", "/api/v1/users/ext:"+viewer+"/matches", body))
		var names []string
		score := 1.0
		for _, m := range found.Data {
			names = append(names, m.ExternalID)
			if *m.Score > score {
				t.Errorf("%s: not in order", about)
			}
			score = *m.Score
		}
		best := slices.Clone(names)
		slices.Sort(names)
		if len(wanted) <= 100 && !slices.Equal(names, wanted) || len(names) != min(len(wanted), 100) || found.Truncated != nil {
			t.Errorf("%s:\nfound %v\nnot   %v", about, names, wanted)
		}
		compared += len(wanted)
		body["limit"] = 5
		few := want[httpapi.ComputedMatches](t, http.StatusOK, f.send("POST", "/api/v1/users/ext:"+viewer+"/matches", body))
		for i, m := range few.Data {
			if *m.Score != *found.Data[i].Score {
				t.Errorf("%s: the best are %s at %d, not %s", about, m.ExternalID, i, best[i])
			}
		}
		if len(few.Data) != min(len(wanted), 5) {
			t.Errorf("%s: %d of five", about, len(few.Data))
		}
		if f.random.IntN(2) == 0 {
			var shown []string
			for page, more := "/api/v1/users/ext:"+viewer+"/feed"+query, true; more; {
				got := want[httpapi.Feed](t, http.StatusOK, f.get(page))
				for _, i := range got.Data {
					shown = append(shown, *i.ExternalID)
				}
				if more = got.NextCursor != nil; more {
					page = "/api/v1/users/ext:" + viewer + "/feed" + query + "&cursor=" + url.QueryEscape(*got.NextCursor)
				}
			}
			slices.Sort(shown)
			if !slices.Equal(shown, wanted) {
				t.Errorf("%s:\nshown %v\nnot   %v", about, shown, wanted)
			}
		}
		if !strings.Contains(filter, "viewer") && segment == "" {
			path := "/api/v1/users?filter=" + url.QueryEscape(filter)
			var listed []string
			for _, u := range each[httpapi.User](f, f.account, path, 60) {
				listed = append(listed, u.ExternalID)
			}
			slices.Sort(listed)
			if wanted := f.named(filter, "", "", ""); !slices.Equal(listed, wanted) {
				t.Errorf("%s:\nlisted %v\nnot    %v", about, listed, wanted)
			}
		}
		if t.Failed() {
			return
		}
	}
	if compared == 0 {
		t.Error("nobody was named")
	}
}

func (f *filtering) grant(name string, is bool) {
	f.Helper()
	method := "PUT"
	if !is {
		method = "DELETE"
	}
	if got := f.send(method, layersPath+"/"+string(f.layer.ID)+"/users/ext:"+name, nil); got.Status/100 != 2 {
		f.Fatal(got.Status)
	}
	f.granted[name] = is
}
