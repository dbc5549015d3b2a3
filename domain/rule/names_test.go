package rule

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kindred/testkit"
)

// notOfTraits are the functions whose answers change without a user's traits.
var notOfTraits = []string{"within", "older", "in_segment", "in_cluster", "granted", "interactions", "seen"}

// Whoever adds a function is told each place that knows it.
func TestEachFunctionIsKnownWhereverFunctionsAre(t *testing.T) {
	t.Parallel()
	env, err := environments[Pairs]()
	if err != nil {
		t.Fatal(err)
	}
	isName := regexp.MustCompile(`^[a-z]\w*$`)
	found := map[string]bool{"matches": true, "timestamp": true} // CEL declares these two, and the compiler writes them
	for name, f := range env.Functions() {
		for _, o := range f.OverloadDecls() {
			ours := strings.HasPrefix(o.ID(), "kindred_")
			found[name] = found[name] || isName.MatchString(name) && name != "dyn" && (ours || functions[name] != nil)
		}
	}
	maps.DeleteFunc(found, func(_ string, is bool) bool { return !is })
	if len(found) < 15 {
		t.Fatalf("only %d functions", len(found))
	}
	page := string(testkit.Must(os.ReadFile("../../docs/rules.md"))(t))
	_, table, _ := strings.Cut(page, "\n## What it can say\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in names of parse.go: who writes it in capitals is not told how it is written", name)
		}
		if slices.Contains(ofTraits, name) == slices.Contains(notOfTraits, name) {
			t.Errorf("%s stands either in ofTraits of traitparts.go, where its answer changes only with a user's traits, or in notOfTraits of this test", name)
		}
		if !regexp.MustCompile("[`.]" + name + "[`(]").MatchString(table) {
			t.Errorf("%s is not in the table \"What it can say\" of docs/rules.md", name)
		}
	}
	for _, name := range slices.Concat(ofTraits, notOfTraits) {
		if isName.MatchString(name) && !found[name] {
			t.Errorf("%s is said to be a function, and is none", name)
		}
	}
}
