package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kindred/httpapi"
)

func TestTraits(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	schema := func(got answer) (httpapi.TraitSchema, map[string]httpapi.Trait) {
		t.Helper()
		body := want[httpapi.TraitSchema](t, http.StatusOK, got)
		if tag := fmt.Sprintf(`"%d"`, body.Version-1); got.Header.Get("ETag") != tag {
			t.Errorf("ETag %s, not %s", got.Header.Get("ETag"), tag)
		}
		byPath := map[string]httpapi.Trait{}
		for _, trait := range body.Traits {
			byPath[trait.Path] = trait
		}
		return body, byPath
	}
	if nobody, _ := schema(a.get("/api/v1/traits")); nobody.Version != 0 || len(nobody.Traits) != 0 {
		t.Errorf("of nobody: %+v", nobody)
	}
	for _, tag := range []string{`"0"`, `"what"`, `W/"-1"`} {
		wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PATCH", "/api/v1/traits", `{"traits":{"plan":{"weight":2}}}`, header("If-Match", tag)))
	}
	schema(a.send("PATCH", "/api/v1/traits", `{"traits":{}}`, header("If-Match", `"-1"`)))
	for i := range 24 {
		a.createUser(fmt.Sprintf("u%d", i), map[string]any{"age": 20 + i, "plan": fmt.Sprintf("p%d", i%2), "religion": fmt.Sprintf("r%d", i%2)})
	}
	first, traits := schema(a.get("/api/v1/traits"))
	if first.Version == 0 || first.Users != 24 || len(traits) != 3 {
		t.Fatalf("%+v", first)
	}
	if plan := traits["plan"]; plan.Type != "category" || !plan.Participates || plan.Coverage != 1 || !slices.Equal(plan.Levels, []string{"p0", "p1"}) {
		t.Errorf("%+v", plan)
	}
	if hidden := traits["religion"]; hidden.Participates || !hidden.Sensitive || *hidden.Reason != "sensitive" || len(hidden.Levels) != 0 {
		t.Errorf("%+v", hidden)
	}
	best := func() httpapi.ComputedMatch {
		t.Helper()
		return want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:u0/matches", `{"limit":1,"record":false}`)).Data[0]
	}
	if m := best(); m.ExternalID != "u2" || len(m.Explanation) != 2 { // one plan, and hardly older
		t.Errorf("%+v", m)
	}

	// What is decided counts with the answer.
	patched := a.send("PATCH", "/api/v1/traits", `{"traits":{"plan":{"ignore":true},"religion":{"sensitive":false,"weight":0.5}}}`)
	second, traits := schema(patched)
	if patched.Header.Get("X-Kindred-Position") == "" || second.Version != first.Version+1 || *traits["plan"].Reason != "ignored" || !traits["religion"].Participates {
		t.Errorf("%+v", second)
	}
	if m := best(); m.Explanation[0].Trait == "plan" || m.Explanation[1].Trait == "plan" || m.ExternalID == "u0" {
		t.Errorf("%+v", m)
	}
	if again, _ := schema(a.get("/api/v1/traits")); again.Version != second.Version || *again.Overrides["religion"].Weight != 0.5 {
		t.Errorf("%+v", again)
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PATCH", "/api/v1/traits", `{"traits":{"plan":null}}`, header("If-Match", `"0"`)))
	reset := a.send("PATCH", "/api/v1/traits", `{"traits":{"plan":null,"religion":{"weight":null,"sensitive":null}}}`, header("If-Match", patched.Header.Get("ETag")))
	if last, traits := schema(reset); len(last.Overrides) != 0 || !traits["plan"].Participates || traits["religion"].Participates {
		t.Errorf("%+v", last)
	}
	if nothing := a.send("PATCH", "/api/v1/traits", `{"traits":{}}`); nothing.Status != http.StatusOK {
		t.Errorf("%d %s", nothing.Status, nothing.Body)
	}
	for _, wrong := range []string{`{"traits":{"age":{"weight":11}}}`, `{"traits":{"age":{"type":"colour"}}}`, `{"traits":{"age":{"size":1}}}`, `{"traits":{"age":3}}`, `{"traits":null}`, `{}`} {
		if got := a.send("PATCH", "/api/v1/traits", wrong); got.Status != http.StatusUnprocessableEntity || !strings.Contains(string(got.Body), "/traits") {
			t.Errorf("%s: %d %s", wrong, got.Status, got.Body)
		}
	}
	other := s.signUp()
	if theirs, _ := schema(other.get("/api/v1/traits")); theirs.Version != 0 {
		t.Errorf("another client's: %+v", theirs)
	}
}
