package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
)

func (a account) distribution(path string) httpapi.TraitDistribution {
	a.Helper()
	return want[httpapi.TraitDistribution](a, http.StatusOK, a.get("/api/v1/traits/"+url.PathEscape(path)+"/distribution"))
}

func TestADistributionSinglesOutNobody(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := s.signUp(), s.signUp()
	a.importUsers(200, func(i int) string {
		plan := []string{"free", "pro"}[i%2]
		if i < 5 {
			plan = "bespoke" // few have it
		}
		age := 20 + i%40
		if i == 7 {
			age = 119 // one is the oldest by far
		}
		return fmt.Sprintf(`{"age":%d,"plan":%q,"member":%t,"likes":["music","l%d"],"health":{"score":%d}}`, age, plan, i%4 == 0, i, i%50)
	})
	viewer := a.addMember("viewer")

	age := viewer.distribution("age")
	if len(age.Bins) < 5 || len(age.Values) != 0 || age.Coverage != 1 || age.Bins[0].From != nil || age.Bins[len(age.Bins)-1].To != nil {
		t.Fatalf("ages: %+v", age)
	}
	sum := 0.0
	for i, bin := range age.Bins {
		sum += bin.Share
		if bin.Share*200 < 9.5 || i > 0 && *bin.From != *age.Bins[i-1].To || bin.To != nil && *bin.To > 60 {
			t.Errorf("bin %d: %+v", i, bin)
		}
	}
	if sum < 0.999 || sum > 1.001 {
		t.Errorf("the bins hold %v", sum)
	}
	if diff := cmp.Diff([]httpapi.TraitValue{{Value: "pro", Share: 98. / 200}, {Value: "free", Share: 97. / 200}}, viewer.distribution("plan").Values); diff != "" {
		t.Errorf("plans: %s", diff)
	}
	if diff := cmp.Diff([]httpapi.TraitValue{{Value: "false", Share: 0.75}, {Value: "true", Share: 0.25}}, viewer.distribution("member").Values); diff != "" {
		t.Errorf("members: %s", diff)
	}
	if diff := cmp.Diff([]httpapi.TraitValue{{Value: "music", Share: 1}}, viewer.distribution("likes").Values); diff != "" {
		t.Errorf("likes: %s", diff)
	}
	if d := viewer.distribution("health.score"); !d.Sensitive || len(d.Bins)+len(d.Values) != 0 {
		t.Errorf("what is sensitive: %+v", d)
	}
	for _, path := range []string{"nothing", "a/b"} {
		wantProblem(t, http.StatusNotFound, "trait_unknown", a.get("/api/v1/traits/"+url.PathEscape(path)+"/distribution"))
	}
	wantProblem(t, http.StatusNotFound, "trait_unknown", other.get("/api/v1/traits/age/distribution"))
}

func TestAPreviewShowsWhatAWeightWouldDo(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := s.signUp(), s.signUp()
	a.importUsers(60, func(i int) string { return fmt.Sprintf(`{"age":%d,"plan":"p%d"}`, 20+i, i%3) })
	viewer := a.addMember("viewer")
	want[httpapi.TraitSchema](t, http.StatusOK, a.get("/api/v1/traits")) // it is learnt
	before := a.size()
	preview := func(traits string) httpapi.PreviewedTraits {
		t.Helper()
		return want[httpapi.PreviewedTraits](t, http.StatusOK,
			viewer.send("POST", "/api/v1/traits/preview", `{"user_id":"ext:u0","limit":5,"traits":`+traits+`}`))
	}
	same := preview(`{}`)
	for i := range same.Before {
		same.Before[i].Percentile = nil
	}
	if diff := cmp.Diff(same.Before, same.After); diff != "" || len(same.After) != 5 {
		t.Errorf("nothing is changed (-before +after):\n%s", diff)
	}
	ignored := preview(`{"plan":{"ignore":true}}`)
	heavy := preview(`{"plan":{"weight":10},"age":{"weight":0.1}}`)
	for i := range 5 {
		if terms := ignored.After[i].Explanation; len(terms) != 1 || terms[0].Trait != "age" {
			t.Errorf("without the plan, %+v", terms)
		}
		if terms := heavy.After[i].Explanation; terms[0].Trait != "plan" || terms[0].Weight != 10 || *heavy.After[i].Score < 0.99 {
			t.Errorf("with a heavy plan, %+v", heavy.After[i])
		}
	}
	if diff := cmp.Diff(ignored.Before, heavy.Before); diff != "" || a.size() != before {
		t.Errorf("a preview changed something: %s", diff)
	}
	for body, pointer := range map[string]string{
		`{"user_id":"ext:u","traits":{"plan":{"weight":11}}}`:                   "/traits/plan/weight",
		`{"user_id":"ext:u","traits":{"plan":{"type":"set"}}}`:                  "/traits/plan/type",
		`{"user_id":"ext:u0","traits":{"plan":{"weight":1}},"limit":51}`:        "/limit",
		`{"user_id":"ext:u0","traits":{},"consent_layer_id":"lay_x","limit":0}`: "/limit",
	} {
		p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", viewer.send("POST", "/api/v1/traits/preview", body))
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	wantProblem(t, http.StatusNotFound, "user_unknown", other.send("POST", "/api/v1/traits/preview", `{"user_id":"ext:u0","traits":{}}`))

	// What takes no part now cannot be seen before it is decided.
	want[httpapi.TraitSchema](t, http.StatusOK, a.send("PATCH", "/api/v1/traits", `{"traits":{"plan":{"sensitive":true}}}`))
	want[httpapi.TraitSchema](t, http.StatusOK, a.send("PATCH", "/api/v1/traits", `{"traits":{"age":{"type":"category"}}}`))
	p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", viewer.send("POST", "/api/v1/traits/preview",
		`{"user_id":"ext:u0","traits":{"plan":null}}`))
	if len(p.Errors) != 1 || p.Errors[0].Pointer != "/traits" {
		t.Errorf("%+v", p.Errors)
	}
}
