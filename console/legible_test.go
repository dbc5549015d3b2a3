package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	kindred "kindred/sdk/go"
)

// A name turns nothing round beside it, and one without letters can be seen. What a field holds is not changed.
func TestNamesAreLegible(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"ann":                          "ann",
		"\u2067ann":                    "ann",
		"\u2069\u202cann":              "ann",
		"\u202ea\u202db\u2066c\u2068d": "abcd",
		"\u200fשלום":                   "\u200fשלום",
		"a\u200bn\u00a0n":              "a\u200bn\u00a0n",
		"👩\u200d👧":                     "👩\u200d👧",
		"\u200b\u200b":                 "(blank)",
		"\u00a0 \u2003":                "(blank)",
		"\u3164":                       "(blank)",
		"\u2800":                       "(blank)",
		"\u0301\u0302":                 "(blank)",
		"e\u0301":                      "e\u0301",
	} {
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
			"/api/v1/segments":       kindred.SegmentList{Data: []kindred.Segment{{ID: "seg_1", Name: name, State: kindred.SegmentStateReady}}},
			"/api/v1/segments/seg_1": kindred.Segment{ID: "seg_1", Name: name, State: kindred.SegmentStateReady, Rule: `traits.a == "` + name + `"`},
			"/api/v1/traits":         kindred.TraitSchema{Traits: []kindred.Trait{{Path: name}}},
		})
		pages := pagesOf(t)
		if page := rendered(t, pages, world, http.MethodGet, "segments", ""); !strings.Contains(page, `<a href="/console/segments/seg_1">`+want+`</a>`) || !strings.Contains(page, `<option value="`+name+`">`+want+`</option>`) {
			t.Errorf("%+q is not shown as %+q: %s", name, want, page)
		}
		page := rendered(t, pages, world, http.MethodGet, "segments/seg_1", "")
		if form := formWith(t, page, "name"); form.Get("name") != name || form.Get("rule") != `traits.a == "`+name+`"` {
			t.Errorf("the form of %+q holds %+q and %+q", name, form.Get("name"), form.Get("rule"))
		}
		if !strings.Contains(page, "<h1>"+want+"</h1>") || !strings.Contains(page, "<code>"+want+"</code>") {
			t.Errorf("the page of %+q lacks %+q: %s", name, want, page)
		}
		for typed, taken := range map[string]bool{want: true, name: strings.TrimSpace(name) != "", "": false, "other": false} {
			if got := rendered(t, pages, world, http.MethodPost, "segments/seg_1/retire", url.Values{"confirm": {typed}}.Encode()); strings.HasPrefix(got, "303 ") != taken {
				t.Errorf("%+q is retired by %+q: %s", name, typed, got)
			}
		}
	}
}
