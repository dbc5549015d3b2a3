package kindred

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rules says which of our own packages, and which third-party ones of those
// that matter, each package may import. A package that is not named here may
// import none; "…" is everything.
var rules = map[string][]string{
	"domain/id":            {},
	"domain/fault":         {},
	"domain/traits":        {"domain/splitmix"},
	"domain/rule":          {"domain/fault", "domain/id", "domain/traits", "cel"},
	"domain/splitmix":      {},
	"semaphore":            {},
	"backoff":              {},
	"coalesce":             {},
	"panics":               {"errgroup"},
	"jobs":                 {"backoff", "domain/id", "panics", "pgx"},
	"golden":               {},
	"domain/matching":      {"domain/splitmix", "domain/traits"},
	"domain/ranking":       {"domain/splitmix"},
	"domain/pacing":        {},
	"domain/clustering":    {"domain/splitmix", "domain/traits", "panics"},
	"domain/event":         {"domain/id", "panics"},
	"domain":               {"domain/id", "domain/fault", "domain/event"},
	"eventstore":           {"errgroup", "domain/event", "domain/id", "eventstore/seal"},
	"eventstore/seal":      {"coalesce", "domain/event", "domain/id"},
	"eventstore/audit":     {"domain/id", "eventstore", "go-jose"},
	"eventstore/replay":    {"errgroup", "domain/id", "eventstore", "eventstore/audit", "pgx"},
	"eventstore/projector": {"backoff", "coalesce", "errgroup", "eventstore", "domain/event", "domain/id", "domain/fault", "jobs", "panics", "postgres", "pgx", "watermill"},
	"eventstore/tail":      {"eventstore", "domain/id"},
	"commands":             {"backoff", "coalesce", "domain", "domain/id", "domain/fault", "domain/event", "domain/rule", "domain/traits", "eventstore", "eventstore/seal", "panics", "semaphore"},
	"commands/policies": {
		"backoff", "commands", "domain", "domain/id", "domain/fault", "domain/event", "domain/traits", "domain/clustering",
		"eventstore", "eventstore/projector", "panics", "projections", "projections/segments", "watermill",
	},
	"commands/imports":      {"commands", "domain/id", "domain/fault", "eventstore", "eventstore/seal", "jobs", "pgx"},
	"commands/writeapi":     {"commands", "httpapi", "domain", "domain/id", "domain/fault", "domain/event", "eventstore", "panics"},
	"projections/readmodel": {"domain/event", "domain/fault", "domain/id", "eventstore", "eventstore/projector", "eventstore/seal", "pgx", "semaphore"},
	"projections/segments": {
		"projections/readmodel", "domain/clustering", "domain/event", "domain/fault", "domain/id", "domain/rule", "domain/splitmix", "domain/traits",
		"eventstore", "eventstore/projector", "eventstore/seal", "panics", "pgx",
	},
	"projections": {
		"projections/readmodel", "projections/segments", "coalesce", "domain/clustering", "domain/event", "domain/fault", "domain/id", "domain/ranking",
		"domain/traits", "eventstore", "eventstore/audit", "eventstore/projector", "eventstore/seal", "jobs", "panics", "semaphore", "pgx",
	},
	"projections/populations": {
		"projections", "projections/readmodel", "domain/event", "domain/fault", "domain/id", "domain/matching", "domain/rule", "domain/traits",
		"eventstore", "eventstore/projector", "panics",
	},
	"projections/feeds": {
		"projections", "projections/populations", "projections/readmodel", "projections/segments", "domain", "domain/event", "domain/id", "domain/fault", "domain/pacing", "domain/ranking", "domain/rule", "pgx",
	},
	"projections/auditing": {
		"projections", "projections/readmodel", "domain/event", "domain/id", "domain/fault", "eventstore", "eventstore/audit", "eventstore/seal", "panics", "postgres", "pgx",
	},
	"projections/streams": {
		"projections", "projections/readmodel", "projections/segments", "backoff", "coalesce", "domain/fault", "domain/id", "eventstore", "panics", "semaphore",
	},
	"projections/travel": {
		"projections", "projections/readmodel", "projections/segments", "domain/fault", "domain/id", "eventstore", "eventstore/projector", "panics", "postgres", "pgx", "semaphore",
	},
	"projections/projectionstest": {
		"projections", "projections/readmodel", "domain", "domain/event", "domain/fault", "domain/id", "eventstore", "eventstore/pgstore", "eventstore/projector",
		"eventstore/seal", "eventstore/seal/keystest", "eventstore/seal/pgkeys", "postgres", "postgres/pgtest", "pgx", "testkit",
	},
	"readapi": {
		"projections", "projections/auditing", "projections/feeds", "projections/populations", "projections/readmodel", "projections/segments",
		"projections/streams", "projections/travel", "httpapi", "httpapi/requestlog", "domain/id", "domain/fault", "domain/event", "domain/rule", "domain/traits",
		"domain/pacing", "eventstore", "eventstore/audit",
	},
	"dispatcher":   {"backoff", "coalesce", "domain/event", "domain/id", "domain/fault", "domain/rule", "eventstore", "eventstore/projector", "eventstore/seal", "panics", "postgres", "pgx"},
	"httpapi":      {"domain/id", "domain/fault", "httpapi/docsite", "mux", "semaphore"},
	"httpapi/auth": {"backoff", "httpapi", "domain/id", "domain/fault", "pgx", "go-jose"},
	"postgres":     {"pgx"},

	"console":       {"console/chart", "sdk/go"}, // a client of the public API, and nothing more
	"console/chart": {},

	"eventstore/memstore":           {"eventstore", "eventstore/tail", "domain/id"},
	"eventstore/pgstore":            {"backoff", "coalesce", "eventstore", "eventstore/tail", "eventstore/seal", "domain/id", "postgres", "pgx"},
	"eventstore/esdbstore":          {"backoff", "eventstore", "eventstore/tail", "domain/id", "esdb"},
	"eventstore/esdbstore/esdbtest": {"eventstore/esdbstore", "esdb"},
	"eventstore/eventstoretest":     {"eventstore", "domain/id", "testkit"},
	"eventstore/seal/pgkeys":        {"eventstore/seal", "domain/id", "postgres", "pgx"},
	"eventstore/seal/epochs":        {"eventstore/seal", "domain/id", "postgres", "pgx"},
	"eventstore/seal/keystest":      {"eventstore/seal", "domain/id"},
	"postgres/pgtest":               {"postgres", "pgx"},
	"httpapi/httpapitest":           {"httpapi"},
	"httpapi/pipetest":              {},
	"testkit":                       {},
	"httpapi/docsite":               {},
	".":                             {},
	"e2e":                           {},
	"scripts/testpg":                {"postgres", "postgres/pgtest"},
	"scripts/size":                  {},
	"scripts/evaluate":              {"domain/clustering", "domain/matching", "domain/splitmix", "domain/traits"},
	"scripts/faults":                {},
	"scripts/limits":                {},
	"scripts/story":                 {"app", "eventstore/seal", "httpapi/auth", "postgres/pgtest", "sdk/go"},
	"sdk/conformance":               {},
	"sdk/generate":                  {"httpapi"},
	"sdk/go":                        {},
	"sdk/go/conformance":            {"sdk/go", "sdk/go/kindredtest"},
	"sdk/go/examples/firstwebhook":  {"sdk/go"},
	"sdk/go/kindredtest":            {"sdk/go"},
	"scripts/bench":                 {"errgroup", "postgres", "eventstore", "eventstore/pgstore", "domain/id", "mux", "pgx", "go-jose"},
	"scripts/benchwebhooks":         {"postgres", "pgx"},

	"httpapi/idempotency": {"httpapi", "domain/id", "domain/fault", "pgx"},
	"httpapi/requestlog":  {"backoff", "httpapi", "domain/id", "postgres", "pgx"},

	"cli": {"sdk/go"}, // what clients can do, and nothing of the service

	"app/resources": {
		"httpapi", "readapi", "commands", "commands/imports", "commands/writeapi", "dispatcher", "domain/id", "eventstore",
		"eventstore/projector", "projections/readmodel",
	},
	"app":         {"…"}, // the wiring; the command line alone stands on it
	"cmd/kindred": {"cmd/kindred/cli"},
	"cmd/kindred/cli": {
		"app", "backoff", "cli", "cmd/kindred/demo", "domain/event", "domain/id", "eventstore", "eventstore/audit", "eventstore/projector", "eventstore/replay",
		"eventstore/seal", "eventstore/seal/epochs", "eventstore/seal/pgkeys", "httpapi", "httpapi/auth", "postgres", "projections",
		"projections/auditing", "projections/travel", "readapi", "pgx",
	},
	"cmd/kindred/demo": {"backoff", "domain/id", "go-jose"},
}

// watched are the third-party packages that only some of ours may know.
var watched = map[string]string{
	"github.com/jackc/pgx/":                   "pgx",
	"github.com/ThreeDotsLabs/watermill":      "watermill",
	"golang.org/x/sync/errgroup":              "errgroup", // whose panics end the process: see panics
	"github.com/gorilla/mux":                  "mux",
	"github.com/go-jose/go-jose/":             "go-jose",
	"github.com/EventStore/EventStore-Client": "esdb",
	"cel.dev/cel-go/":                         "cel",
}

func TestEachPackageImportsOnlyWhatItMay(t *testing.T) {
	root := "."
	checked := 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		checked++
		checkImports(t, file, path.Dir(filepath.ToSlash(relative)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 50 {
		t.Fatalf("only %d files were found: the walk does not see the tree", checked)
	}
}

// A stranger looks for a package there.
func TestEachPackageIsInTheTreeOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tree, _ := strings.Cut(string(text), "## Where things are")
	tree, _, _ = strings.Cut(tree, "\n## ")
	inside := regexp.MustCompile(`^(scripts|sdk|e2e)/|test$|^\.$`)
	for folder := range rules {
		if !inside.MatchString(folder) && !strings.Contains(tree, path.Base(folder)+"/") {
			t.Errorf("docs/architecture.md does not say where %s is", folder)
		}
	}
}

func checkImports(t *testing.T, file, folder string) {
	t.Helper()
	allowed, known := rules[folder]
	if !known {
		t.Errorf("%s: the package %s has no import rule", file, folder)
		return
	}
	if slices.Contains(allowed, "…") {
		return
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if name := ruled(imported); name != "" && !slices.Contains(allowed, name) {
			t.Errorf("%s: %s may not import %s", file, folder, name)
		}
	}
}

// ruled is the name under which the rules speak of an import, or "" where they
// do not.
func ruled(imported string) string {
	if own, found := strings.CutPrefix(imported, "kindred/"); found {
		return own
	}
	for prefix, name := range watched {
		if strings.HasPrefix(imported, prefix) {
			return name
		}
	}
	return ""
}
