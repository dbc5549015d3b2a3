package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"kindred/httpapi"
	"kindred/testkit"
)

// recordedFor is whom a user was matched with, and how well.
func (a account) recordedFor(user string) map[string]float64 {
	a.Helper()
	scores := map[string]float64{}
	for _, m := range each[httpapi.Match](a, a, "/api/v1/users/"+user+"/matches", 200) {
		scores[m.ExternalID] = m.Score
	}
	return scores
}

// swept waits until nobody waits to be matched.
func (a account) swept() httpapi.Sweep {
	a.Helper()
	var s httpapi.Sweep
	testkit.Eventually(a, "the sweep ends", func() bool {
		s = want[httpapi.Sweep](a, http.StatusOK, a.get("/api/v1/matching/sweep"))
		return s.State == "idle"
	})
	return s
}

func TestAutomaticMatching(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	person := func(age int) map[string]any { return map[string]any{"age": age, "plan": fmt.Sprintf("p%d", age%2)} }
	for age := range 10 {
		a.createUser(fmt.Sprintf("old%d", age), person(20+age))
	}
	if s := a.swept(); s.Done != 0 || len(a.recordedFor("ext:old0")) != 0 {
		t.Errorf("it is on by default: %+v", s)
	}
	client := want[httpapi.ClientDetails](t, http.StatusOK, a.send("PATCH", a.under(""), `{"settings":{"automatic_matching":{"on":true,"k":3,"min_score":0.6}}}`))
	if m := client.Settings.AutomaticMatching; !m.On || m.K != 3 || m.MinScore != 0.6 {
		t.Errorf("%+v", m)
	}
	// Those who are there are matched once it is on.
	if swept := a.swept(); swept.Done != 10 || swept.Recorded < 10 || len(a.recordedFor("ext:old4")) == 0 {
		t.Errorf("after it was switched on: %+v", swept)
	}
	before := len(a.recordedFor("ext:old4"))
	kept := want[httpapi.ClientDetails](t, http.StatusOK, a.send("PATCH", a.under(""), `{"settings":{"automatic_matching":{"k":4}}}`))
	if m := kept.Settings.AutomaticMatching; !m.On || m.K != 4 || m.MinScore != 0.6 {
		t.Errorf("%+v", m)
	}

	// A new user, and a bulk import.
	a.createUser("new", person(24))
	a.swept()
	told := a.recordedFor("ext:new")
	if len(told) == 0 || len(told) > 4 || told["old4"] != 1 {
		t.Errorf("told of %v", told)
	}
	if got := a.recordedFor("ext:old4"); len(got) != before {
		t.Errorf("old4, who did not change, was matched with %v", got)
	}
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, `{"external_id":"bulk%d","traits":{"age":%d,"plan":"p0"}}`+"\n", i, 20+i%10)
	}
	imported := want[httpapi.ImportResult](t, http.StatusOK, a.send("POST", "/api/v1/users/import", lines.String(), header("Content-Type", "application/x-ndjson")))
	if imported.Created != 40 {
		t.Errorf("%+v", imported)
	}
	after := a.swept()
	if after.Pending != 0 || after.Recorded < 40 {
		t.Errorf("%+v", after)
	}
	for i := range 40 {
		if got := a.recordedFor(fmt.Sprintf("ext:bulk%d", i)); len(got) == 0 || len(got) > 4 {
			t.Errorf("bulk%d: %v", i, got)
		}
	}

	// Another schema is no news; another user is.
	count := len(told)
	want[httpapi.TraitSchema](t, http.StatusOK, a.send("PATCH", "/api/v1/traits", `{"traits":{"age":{"weight":9}}}`))
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:new", `{"traits":{"note":"nothing that counts"}}`))
	a.swept()
	for name, score := range a.recordedFor("ext:new") {
		if before, known := told[name]; known && before != score {
			t.Errorf("%s: %v became %v by the schema alone", name, before, score)
		}
	}
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:new", `{"traits":{"age":29}}`))
	a.swept()
	if got := a.recordedFor("ext:new"); len(got) <= count {
		t.Errorf("older now, and still matched with %v", got)
	}
	wantDone(t, a.send("DELETE", "/api/v1/users/ext:old9", nil))
	a.createUser("late", person(29))
	a.swept()
	if _, found := a.recordedFor("ext:late")["old9"]; found {
		t.Error("an erased user was matched")
	}
	want[httpapi.ClientDetails](t, http.StatusOK, a.send("PATCH", a.under(""), `{"settings":{"automatic_matching":{"on":false}}}`))
	a.createUser("unmatched", person(25))
	if a.swept(); len(a.recordedFor("ext:unmatched")) != 0 {
		t.Error("matched after it was switched off")
	}
	for _, wrong := range []string{`{"k":0}`, `{"k":101}`, `{"min_score":1.5}`, `{"on":1}`, `{"other":1}`} {
		got := a.send("PATCH", a.under(""), `{"settings":{"automatic_matching":`+wrong+`}}`)
		if got.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", wrong, got.Status, got.Body)
		}
	}
}
