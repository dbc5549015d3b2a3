package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	kindred "kindred/sdk/go"
)

// A list of users shows nothing sensitive unasked, in a trait or below it.
func TestColumnsOfUsersAreNotSensitive(t *testing.T) {
	t.Parallel()
	users := []kindred.User{
		{Traits: map[string]any{"age": 1., "faith": "x", "pets": []any{}, "plan": "pro", "zone": 1.}},
		{Traits: map[string]any{"age": 2., "faith": "y", "home": map[string]any{}, "plan": "pro"}},
	}
	schema := &kindred.TraitSchema{Traits: []kindred.Trait{{Path: "age"}, {Path: "faith", Sensitive: true}, {Path: "pets.diet", Sensitive: true}, {Path: "plan"}}}
	if got := columns(users, schema); !slices.Equal(got, []string{"age", "plan", "zone"}) {
		t.Errorf("columns %v", got)
	}
	if got := columns(users, nil); len(got) > 0 {
		t.Errorf("before traits were learnt: %v", got)
	}
}

// An id of the client's own may begin as those of the service do.
func TestAUserIsFoundByAnOwnIDThatBeginsLikeThoseOfTheService(t *testing.T) {
	t.Parallel()
	given := "usr_" + strings.Repeat("0v", 13)
	found := kindred.UserList{Data: []kindred.User{{ID: given, ExternalID: "usr_7"}}}
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/users?external_id=usr_7&limit=50": found, "/api/v1/users?ids=" + given + "&limit=50": found,
		"/api/v1/traits": kindred.TraitSchema{Traits: []kindred.Trait{{Path: "age"}}}, "/api/v1/traits/age/distribution": kindred.TraitDistribution{},
	})
	for _, find := range []string{"usr_7", given} {
		if page := rendered(t, pagesOf(t), world, http.MethodGet, "users?find="+find, ""); !strings.Contains(page, `<a href="/console/users/`+given+`">usr_7</a>`) {
			t.Errorf("%s is not found: %s", find, page)
		}
	}
	for who, want := range map[string]string{"usr_7": "ext:usr_7", given: given, "ext:ann": "ext:ann", "ann": "ext:ann"} {
		asked := ""
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/v1/traits/preview" {
				var body kindred.TraitsPreview
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				asked = body.UserID
			}
			world.ServeHTTP(w, r)
		})
		rendered(t, pagesOf(t), api, http.MethodGet, "traits?path=age&try=1&who="+who, "")
		if asked != want {
			t.Errorf("%s is tried on %q, not %q", who, asked, want)
		}
	}
}

// The users of a page are a file too: all, or those whom its rule names.
func TestUsersAreAFile(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{"": "/api/v1/users", `traits.plan == "a&b"`: "/api/v1/users?filter=traits.plan+%3D%3D+%22a%26b%22"} {
		asked := ""
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept") == "text/csv" {
				asked = r.URL.RequestURI()
			}
			base(kindred.RoleViewer, "Acme", "read").ServeHTTP(w, r)
		})
		page := rendered(t, pagesOf(t), full("Acme"), http.MethodGet, "users?filter="+url.QueryEscape(rule), "")
		_, link, _ := strings.Cut(page, `class="btn" href="/console/users.csv`)
		link, _, _ = strings.Cut(link, `"`) // with what follows the name
		if got := rendered(t, pagesOf(t), api, http.MethodGet, "users.csv"+html.UnescapeString(link), ""); asked != want || !strings.HasPrefix(got, "200 ") {
			t.Errorf("the file of %q, %s, is asked for as %q: %s", rule, link, asked, got)
		}
	}
}

// What a rule compares amiss is said in the part of the page that comes once the page is there.
func TestARuleThatUsersAreFilteredByIsWarnedOfWhereItIsCounted(t *testing.T) {
	t.Parallel()
	page := rendered(t, pagesOf(t), full("Acme"), http.MethodGet, "users?filter=traits.Acme+%3E+30&count=1", "")
	_, part, _ := strings.Cut(page, `<div class="stack" id="named">`)
	part, _, _ = strings.Cut(part, "</div>")
	if !strings.Contains(part, "Did you mean traits.plan?") {
		t.Errorf("the part %q warns of nothing: %s", part, page)
	}
}

func TestATraitSchemaIsSaidToBeLearntOnceItIs(t *testing.T) {
	t.Parallel()
	for version, says := range map[int64]bool{0: false, 3: true} {
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/traits": kindred.TraitSchema{Version: version}})
		if page := rendered(t, pagesOf(t), world, http.MethodGet, "traits", ""); strings.Contains(page, "What was learnt") != says {
			t.Errorf("of version %d: %s", version, page)
		}
	}
}

// What a trait is not compared with is said at its line, and in the words that the builder has.
func TestABuilderSaysAtALineWhatItComparesAmiss(t *testing.T) {
	t.Parallel()
	schema := kindred.TraitSchema{Traits: []kindred.Trait{
		{Path: "age", Type: kindred.TraitTypeNumber},
		{Path: "pays", Type: kindred.TraitTypeNumber, Format: new("number_comma")},
		{Path: "plan", Type: kindred.TraitTypeCategory},
		{Path: "news", Type: kindred.TraitTypeBool},
		{Path: "likes", Type: kindred.TraitTypeSet},
		{Path: "born", Type: kindred.TraitTypeDate},
		{Path: "since", Type: kindred.TraitTypeDate, Format: new("DD.MM.YYYY")},
		{Path: "speaks", Type: kindred.TraitTypeSet, Format: new("a; b")},
		{Path: "home", Type: kindred.TraitTypeGeo},
	}}
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/traits": schema})
	pages := pagesOf(t)
	for _, c := range []struct{ trait, comparison, value, says string }{
		{"age", "over", "abc", "is a number"},
		{"age", "is", "", "is a number"},
		{"age", "has", "30", "is a number"},
		{"age", "within", "30d", "holds no times"},
		{"age", "over", "1,300.5", ""},
		{"pays", "is", "1,5", ""},
		{"pays", "over", "1", "no numbers to a rule"},
		{"pays", "under", "1,5", "no numbers to a rule"},
		{"since", "within", "30d", "no times to a rule"},
		{"since", "older", "30d", "no times to a rule"},
		{"since", "is", "01.02.2026", ""},
		{"plan", "over", "a", ""},
		{"plan", "is", "30", ""},
		{"plan", "has", "p", ""},
		{"news", "is", "yes", "is true or false"},
		{"news", "over", "true", "is true or false"},
		{"news", "not", "true", ""},
		{"likes", "is", "jazz", "is a list"},
		{"likes", "has", "jazz", ""},
		{"likes", "there", "", ""},
		{"born", "within", "30 days", "Write a span"},
		{"born", "within", "30d", ""},
		{"born", "older", "30 days", "Write a span"},
		{"born", "older", "30d", ""},
		{"age", "older", "30d", "holds no times"},
		{"age", "over", "1e+21", ""},
		{"age", "missing", "", ""},
		{"home", "under", "20", "distance_km(traits.home,"},
		{"home", "missing", "", ""},
		{"speaks", "has", "fr", ""},
		{"unknown", "over", "abc", ""},
	} {
		for _, at := range []string{"segments", "users"} {
			page := rendered(t, pages, world, http.MethodGet, at+"?built=1&trait=plan&comparison=is&value=pro&trait="+c.trait+"&comparison="+c.comparison+"&value="+url.QueryEscape(c.value), "")
			_, line, _ := strings.Cut(page, `id="built-1">`)
			line, _, _ = strings.Cut(line, "<")
			if !strings.Contains(line, c.says) || (line == "") != (c.says == "") || strings.HasPrefix(page, "422 ") != (c.says != "") || strings.Contains(page, "traits.plan == &#34;pro&#34; &amp;&amp; ") != (c.says == "") {
				t.Errorf("%s: %s %s %q is told %q: %s", at, c.trait, c.comparison, c.value, line, page)
			}
		}
	}
}
