package console

import (
	"slices"
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
