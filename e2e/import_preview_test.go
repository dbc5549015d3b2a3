package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain"
	"kindred/httpapi"
)

func TestAnImportIsLookedIntoBeforeAnythingIsRecorded(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	a.createUser("somebody", map[string]any{"plan": "free"})
	want[httpapi.TraitSchema](t, http.StatusOK, a.send("PATCH", "/api/v1/traits", `{"traits":{"secret":{"sensitive":true}}}`))
	viewer := a.addMember("viewer")
	before := a.size()
	preview := func(mediaType, content string) httpapi.ImportPreview {
		t.Helper()
		return want[httpapi.ImportPreview](t, http.StatusOK, viewer.send("POST", "/api/v1/users/import/preview", content, header("Content-Type", mediaType)))
	}
	var ndjson, csv strings.Builder
	csv.WriteString("external_id,plan,age,joined,secret\n")
	for i := range 40 {
		plan, age, joined := []string{"free", "pro"}[i%2], 20+i, fmt.Sprintf("2026-01-%02d", 1+i%28)
		fmt.Fprintf(&ndjson, `{"external_id":"u%d","traits":{"plan":%q,"age":%d,"joined":%q,"secret":"s"}}`+"\n", i, plan, age, joined)
		fmt.Fprintf(&csv, "u%d,%s,%d,%s,s\n", i, plan, age, joined)
	}
	lines := preview("application/x-ndjson", ndjson.String()+`{"external_id":"u1","traits":{"plan":"pro","age":21}}`+"\n{\"external_id\":\"\"}\nnonsense\n")
	if lines.Lines != 43 || lines.Users != 40 || lines.Failed != 2 || !lines.Whole || len(lines.Errors) != 2 || lines.Errors[0].Line != 42 {
		t.Errorf("%+v", lines)
	}
	types := map[string]httpapi.TraitType{}
	for _, trait := range lines.Traits {
		types[trait.Path] = trait.Type
		if trait.Path == "secret" && (!trait.Sensitive || trait.Participates) {
			t.Errorf("what was decided does not hold: %+v", trait)
		}
	}
	for path, kind := range map[string]httpapi.TraitType{"plan": "category", "age": "number", "joined": "date"} {
		if types[path] != kind {
			t.Errorf("%s is read as %q, not as %s", path, types[path], kind)
		}
	}
	large := preview("application/x-ndjson", fmt.Sprintf(`{"external_id":"a","traits":{"a":%q}}`+"\n"+`{"external_id":"b","traits":{"a":%q}}`,
		strings.Repeat("x", domain.MaxTraits), strings.Repeat("x", domain.MaxTraits-len(`{"a":""}`))))
	if large.Users != 1 || large.Failed != 1 || len(large.Errors) != 1 || large.Errors[0].Code != "traits_too_large" {
		t.Errorf("traits that are too large: %+v", large)
	}
	table := preview("text/csv", csv.String())
	if table.Users != 40 || table.Failed != 0 {
		t.Errorf("of CSV: %+v", table)
	}
	if diff := cmp.Diff(preview("application/x-ndjson", ndjson.String()).Traits, table.Traits); diff != "" {
		t.Errorf("CSV is read in another way (-NDJSON +CSV):\n%s", diff)
	}
	many := preview("application/x-ndjson", strings.Repeat(`{"external_id":"one","traits":{"n":1}}`+"\n", 12_000))
	if many.Whole || many.Lines < 10_000 || many.Lines >= 12_000 || many.Users != 1 {
		t.Errorf("a long file: %d lines, %d users, whole %t", many.Lines, many.Users, many.Whole)
	}
	if empty := preview("application/x-ndjson", ""); empty.Lines != 0 || !empty.Whole || len(empty.Traits) != 0 {
		t.Errorf("an empty file: %+v", empty)
	}
	wantProblem(t, http.StatusBadRequest, "invalid_csv", viewer.send("POST", "/api/v1/users/import/preview", "plan,age\npro,1\n", header("Content-Type", "text/csv")))
	if after := a.size(); after != before {
		t.Errorf("a preview recorded %d events", after-before)
	}
}
