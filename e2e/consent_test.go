package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kindred/httpapi"
)

const layersPath = "/api/v1/consent_layers"

// createLayer makes a consent layer.
func (a account) createLayer(paths ...string) httpapi.ConsentLayer {
	a.Helper()
	return want[httpapi.ConsentLayer](a, http.StatusCreated,
		a.send("POST", layersPath, map[string]any{"name": "Personalisation", "trait_paths": paths}))
}

// importUsers makes users u0, u1, … with the traits that each gets.
func (a account) importUsers(n int, traits func(i int) string) {
	a.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"external_id":"u%d","traits":%s}`+"\n", i, traits(i))
	}
	done := want[httpapi.ImportResult](a, http.StatusOK,
		a.send("POST", "/api/v1/users/import", lines.String(), header("Content-Type", "application/x-ndjson")))
	if done.Created != int64(n) {
		a.Fatalf("imported %+v", done)
	}
}

// consenting lists the external ids of who granted a layer, in order of name.
func (a account) consenting(layer httpapi.ConsentLayer, filter string) []string {
	a.Helper()
	var names []string
	for _, u := range each[httpapi.ConsentingUser](a, a, layersPath+"/"+string(layer.ID)+"/users"+filter, 3) {
		names = append(names, u.ExternalID)
	}
	slices.Sort(names)
	return names
}

func TestConsent(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.importUsers(8, func(i int) string { return fmt.Sprintf(`{"age":%d,"plan":"p%d"}`, 20+i, i%2) })
	layer := a.createLayer("age")
	at := layersPath + "/" + string(layer.ID)

	// Layers can be read, listed, changed under a condition.
	got := a.get(at)
	if l := want[httpapi.ConsentLayer](t, http.StatusOK, got); l.Name != "Personalisation" || !slices.Equal(l.TraitPaths, []string{"age"}) {
		t.Errorf("got %+v", l)
	}
	changed := a.send("PATCH", at, map[string]any{"trait_paths": []string{"age", "plan"}}, header("If-Match", got.Header.Get("ETag")))
	if l := want[httpapi.ConsentLayer](t, http.StatusOK, changed); len(l.TraitPaths) != 2 {
		t.Errorf("got %+v", l)
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale",
		a.send("PATCH", at, map[string]any{"name": "x"}, header("If-Match", got.Header.Get("ETag"))))
	if all := each[httpapi.ConsentLayer](t, a, layersPath, 1); len(all) != 1 {
		t.Errorf("listed %d layers", len(all))
	}

	// Many grants at once, all of them or none; the repetition does not speak for newcomers.
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", at+"/grants", map[string]any{"user_ids": []string{"ext:u1", "ext:nobody"}}))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", at+"/grants", map[string]any{}))
	if names := a.consenting(layer, ""); len(names) != 0 {
		t.Errorf("granted by %v before anybody did", names)
	}
	some := want[httpapi.ConsentsChanged](t, http.StatusOK, a.send("POST", at+"/grants", map[string]any{"user_ids": []string{"ext:u0", "ext:u1", "ext:u0"}, "source": "form"}))
	if some.Changed != 2 {
		t.Errorf("got %+v", some)
	}
	everybody := func() httpapi.ConsentsChanged {
		return want[httpapi.ConsentsChanged](t, http.StatusOK, a.send("POST", at+"/grants", map[string]any{"all": true}, idempotent("everybody")))
	}
	first := everybody()
	if first.Changed != 6 || first.Unchanged != 2 {
		t.Errorf("got %+v", first)
	}
	a.createUser("newcomer", map[string]any{"age": 24, "plan": "p0"})
	if again := everybody(); again != first {
		t.Errorf("the repetition answers %+v, the first %+v", again, first)
	}
	if names := a.consenting(layer, ""); len(names) != 8 {
		t.Errorf("granted by %v", names)
	}

	// One user's consent, with its history.
	wantDone(t, a.send("DELETE", at+"/users/ext:u1", nil))
	wantDone(t, a.send("PUT", at+"/users/ext:u2", map[string]any{"source": "support call"}))
	one := want[httpapi.UserConsent](t, http.StatusOK, a.get(at+"/users/ext:u1"))
	if one.Status != httpapi.ConsentWithdrawn || len(one.History) != 2 || *one.History[1].Source != "form" || one.History[0].Actor != string(a.User.ID) {
		t.Errorf("got %+v", one)
	}
	if none := want[httpapi.UserConsent](t, http.StatusOK, a.get(at+"/users/ext:newcomer")); none.Status != httpapi.ConsentNone || len(none.History) != 0 {
		t.Errorf("got %+v", none)
	}
	if names := a.consenting(layer, "?status=withdrawn"); !slices.Equal(names, []string{"u1"}) {
		t.Errorf("withdrawn by %v", names)
	}

	// Matches keep to the layer: without who withdrew, was erased or never granted, and by its traits alone.
	within := map[string]any{"consent_layer_id": layer.ID, "record": false}
	match := func(user string) []string {
		t.Helper()
		found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:"+user+"/matches", within))
		var names []string
		for _, m := range found.Data {
			names = append(names, m.ExternalID)
		}
		slices.Sort(names)
		return names
	}
	if names := match("u0"); !slices.Equal(names, []string{"u2", "u3", "u4", "u5", "u6", "u7"}) {
		t.Errorf("matched %v", names)
	}
	wantDone(t, a.send("DELETE", "/api/v1/users/ext:u3", nil))
	wantDone(t, a.send("DELETE", at+"/users/ext:u4", nil))
	if names := match("u0"); !slices.Equal(names, []string{"u2", "u5", "u6", "u7"}) {
		t.Errorf("matched %v", names)
	}
	if names := a.consenting(layer, ""); !slices.Equal(names, []string{"u0", "u2", "u5", "u6", "u7"}) {
		t.Errorf("granted by %v", names)
	}
	wantProblem(t, http.StatusConflict, "consent_missing", a.send("POST", "/api/v1/users/ext:u1/matches", within))
	want[httpapi.ConsentLayer](t, http.StatusOK, a.send("PATCH", at, map[string]any{"trait_paths": []string{"plan"}}))
	for _, m := range want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", within)).Data {
		if len(m.Explanation) != 1 || m.Explanation[0].Trait != "plan" {
			t.Errorf("a match by what the layer does not permit: %+v", m)
		}
	}

	// A client may choose that nobody is compared without a layer.
	settings := func(s string) answer { return a.send("PATCH", a.under(""), `{"settings":`+s+`}`) }
	if c := want[httpapi.ClientDetails](t, http.StatusOK, settings(`{"matching_requires_layer":true}`)); !c.Settings.MatchingRequiresLayer {
		t.Errorf("got %+v", c.Settings)
	}
	if c := want[httpapi.ClientDetails](t, http.StatusOK, a.get(a.under(""))); !c.Settings.MatchingRequiresLayer {
		t.Errorf("got %+v", c.Settings)
	}
	for _, refused := range []answer{
		a.send("POST", "/api/v1/users/ext:u0/matches", nil), a.send("POST", "/api/v1/users/ext:u0/matches", `{"matched_user_id":"ext:u2"}`),
		a.get("/api/v1/users/ext:u0/feed"), settings(`{"automatic_matching":{"on":true}}`),
	} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", refused)
	}
	want[httpapi.Feed](t, http.StatusOK, a.get("/api/v1/users/ext:u0/feed?consent_layer_id="+string(layer.ID)))
	want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", within))

	// A retired layer is gone.
	wantDone(t, a.send("DELETE", at, nil))
	for _, gone := range []answer{
		a.get(at), a.get(at + "/users"), a.send("PUT", at+"/users/ext:u0", nil),
		a.send("POST", "/api/v1/users/ext:u0/matches", within), a.send("DELETE", at, nil),
	} {
		wantProblem(t, http.StatusNotFound, "consent_layer_unknown", gone)
	}
	if all := each[httpapi.ConsentLayer](t, a, layersPath, 1); len(all) != 0 {
		t.Errorf("listed %d layers", len(all))
	}
}
