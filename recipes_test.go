package kindred

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// placesOf are the files, but for tests, that each recipe changes by hand. A public event
// has the ones of its aggregate and its command besides, which makes five.
var placesOf = map[string]int{"An event": 4, "A read model": 2, "Operations": 3, "A public event": 3}

func TestTheRecipesTakeFewPlaces(t *testing.T) {
	t.Parallel()
	page, err := Documentation.ReadFile("docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, recipe := range strings.Split(string(page), "\n## ")[1:] {
		places := slices.DeleteFunc(regexp.MustCompile(`(?m)^\+\+\+ .*`).FindAllString(recipe, -1),
			func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		if name, _, _ := strings.Cut(recipe, ":"); len(places) != placesOf[name] {
			t.Errorf("%s takes the places %q, not %d", name, places, placesOf[name])
		}
	}
}

// TestTheRecipesMakeATreeThatBuildsAndPasses applies docs/recipes.md to a copy of
// the tree, as its reader does: all of it where KINDRED_TEST_RECIPES is set (make recipes),
// else all but operations, as an offline machine may not have the generator of the server.
func TestTheRecipesMakeATreeThatBuildsAndPasses(t *testing.T) {
	t.Parallel()
	page, err := Documentation.ReadFile("docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	copyTree(t, tree)
	broken := "a block of docs/recipes.md fits no more: mend its context"
	in := func(stdin, name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Stdin = tree, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "GIT_CEILING_DIRECTORIES="+filepath.Dir(tree)) // what has not changed is built already
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v; %s\n%s", name, strings.Join(args, " "), err, broken, out)
		}
	}
	whole := os.Getenv("KINDRED_TEST_RECIPES") != ""
	if !whole {
		page = regexp.MustCompile(`(?ms)^## Operations.*?(^## )`).ReplaceAll(page, []byte("$1"))
	}
	for _, found := range regexp.MustCompile("(?ms)^```diff\n(.*?)^```$").FindAllSubmatch(page, -1) {
		in(string(found[1]), "git", "apply", "--recount", "-")
	}
	broken = "where the tree fails without docs/recipes.md, too, mend that first; else mend the page"
	if whole {
		in("", "go", "generate", "./httpapi") // this and the next are a part of make generate
	}
	in("", "go", "run", "./sdk/generate")
	in("", "go", "test", "-vet=off", "-run=Stay$|NewestSample$", "./domain/event", "./httpapi", "-args", "-update") // a part of make golden
	in("", "go", "vet", "./domain", "./domain/event", "./commands", "./commands/writeapi", "./projections", "./readapi")
	in("", "go", "build", "./app", "./cmd/kindred/cli") // all that the binary is linked from
	in("", "go", "test", "-vet=off", "-ldflags=-w", "./domain", "./domain/event")
	in("", "go", "test", "-vet=off", "-ldflags=-w", "-run=TestEachEventIs|TestEachReadModelIs|TestEachStreamOf|TestReadModelsKeep", ".") // nothing was forgotten
	in("", "go", "test", "-vet=off", "-ldflags=-w", "-run=TestEveryTypeOfEvent|TestSubscribersMay|TestTheEventsAre|TestOtherSchemas|TestOperations|Stay$", "./cli", "./httpapi")
	if whole {
		in("", "go", "test", "-vet=off", "-ldflags=-w", "-run=Golden", "./console", "-update")
	}
	in("", "go", "test", "-vet=off", "-ldflags=-w", "-run=TestAKeyHasHadTheseNames|TestAnyBatchesMakeTheSameTables", "./projections")
}

// copyTree copies the sources into a folder: all but what is made from them.
func copyTree(t *testing.T, to string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, path), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, path), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
