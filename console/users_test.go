package console

import (
	"encoding/json"
	"net/http"
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
