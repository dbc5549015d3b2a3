package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kindred"
	"kindred/testkit"
)

// notRun says why a block of commands that is marked "sh norun" cannot be run by
// a test, by its first line.
var notRun = map[string]string{
	"make run": "it installs Postgres where there is none, and serves until it is interrupted; scripts and serve have tests of their own",
	"make run      # builds and serves, with a private Postgres": "as above; make test would run itself",
	"bin/kindred demo":                        "it takes a minute; the demo has tests of its own",
	"go build -o bin/kindred ./cmd/kindred":   "it serves until it is interrupted, on a database of the reader's",
	"go build -o bin/testpg ./scripts/testpg": "it runs these tests",
	"SECRET='whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==' PORT=9000 python3 receiver.py":                            "it serves until it is interrupted; the test runs the receiver itself",
	`kindred keys snapshot --to keys.age --recipient age1… -- pg_dump -Fc -f kindred.dump "$KINDRED_DATABASE_URL"`: "it needs an age identity of the reader's; keys snapshot has tests of its own",
	"createdb --encoding=UTF8 --template=template0 restored && pg_restore -d restored kindred.dump":                "it needs the dump of the block before; keys restore has tests of its own",
	"export KINDRED_URL=http://127.0.0.1:8080 KINDRED_API_KEY=kin_live_…":                                          "it needs a key of the reader's",
	"cd my-app && npm install --save-dev typescript @types/node":                                                   "it installs packages; sdk/conformance compiles and runs the module in the same way",
	"new/kindred migrate": "it needs two releases",
	"bin/kindred login --url https://kindred.example.com":                                                                             "it asks for a password; it has tests of its own",
	"bin/kindred listen --forward-to http://localhost:3000/hooks --events match.computed":                                             "it listens until it is interrupted, and has tests of its own",
	"SANDBOX=$(bin/kindred sandboxes create ci --expires-in 24h)":                                                                     "it needs a login, and has tests of its own",
	"bin/kindred clusters list --layer lay_…":                                                                                         "it needs clusters, and has tests of its own",
	"KINDRED_TEST_POOLED=1 bin/testpg go test ./e2e":                                                                                  "it is these tests once more",
	"bin/testpg go test -vet=off -skip Recipes . ./domain ./domain/event ./domain/id ./eventstore ./projections ./readapi ./commands": "make test runs these, too",
	"bin/kindred trigger cluster.drift_detected":                                                                                      "it needs a sandbox, and has tests of its own",
}

// TestTheCommandsOfTheDocumentationRun runs the blocks of each page in their
// order, as one script, against a kindred of the page's own. Pages that use what
// the first steps have set begin with those.
func TestTheCommandsOfTheDocumentationRun(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "curl", "jq", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not on this machine", tool)
		}
	}
	var met []string
	for _, page := range pagesWithCommands(t) {
		var script strings.Builder
		for _, b := range blocksOf(t, page) {
			first, _, _ := strings.Cut(b.Text, "\n")
			switch {
			case b.Language != "sh":
			case b.Info == "":
				script.WriteString(b.Text)
			case b.Info == "norun" && notRun[first] != "":
				met = append(met, first)
			case b.Info == "norun first-webhook": // scripts/first-webhook runs them, installing packages
			case b.Info == "norun guide": // sdk/conformance runs them behind the program of their page
			default:
				t.Errorf("%s: %q is not run, and no reason is given", page, first)
			}
		}
		if script.Len() == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			commands := script.String()
			if (strings.Contains(commands, "$CLIENT") || strings.Contains(commands, "$AUTH")) && !strings.Contains(commands, "/auth/signup") {
				commands = firstSteps(t) + commands
			}
			runCommands(t, commands)
		})
	}
	for first := range notRun {
		if !slices.Contains(met, first) {
			t.Errorf("no page has %q any more", first)
		}
	}
}

func pagesWithCommands(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, folder := range []string{".", "docs", "docs/adr"} {
		entries, err := kindred.Documentation.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if strings.HasSuffix(entry.Name(), ".md") {
				pages = append(pages, filepath.ToSlash(filepath.Join(folder, entry.Name())))
			}
		}
	}
	return pages
}

// firstSteps are the blocks of the guide up to the token of a server.
func firstSteps(t *testing.T) string {
	t.Helper()
	var script strings.Builder
	for _, b := range blocksOf(t, "docs/guide.md") {
		if b.Language == "sh" && b.Info == "" {
			script.WriteString(b.Text)
		}
		if strings.Contains(b.Text, "AUTH=") {
			return script.String()
		}
	}
	t.Fatal("the guide gets no token")
	return ""
}

// runCommands runs a script beside a kindred that has just been started, with
// the receiver of the documentation where the script expects one.
func runCommands(t *testing.T, commands string) {
	t.Helper()
	s := startService(t)
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "scripts"), filepath.Join(dir, "scripts")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", asKindred, os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "bin", "kindred"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	told := func() string { return "" }
	if secret := regexp.MustCompile(`127\.0\.0\.1:9000/hooks"[^}]*"secret":"([^"]+)"`).FindStringSubmatch(commands); secret != nil {
		for _, b := range blocksOf(t, "docs/webhooks.md") {
			if b.Info == "receiver.py" {
				var url string
				url, told = runReceiver(t, b, secret[1])
				commands = strings.ReplaceAll(commands, "http://127.0.0.1:9000/hooks", url)
			}
		}
	}
	awake, end, err := os.Pipe() // a kindred of the tests ends with its standard input
	if err != nil {
		t.Fatal(err)
	}
	defer awake.Close()
	defer end.Close()
	cmd := exec.CommandContext(t.Context(), "bash", "-xeuo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Stdin = dir, awake
	cmd.Env = append(os.Environ(), "B="+s.URL, "KINDRED_PUBLIC_URL="+s.Config.PublicURL,
		"KINDRED_DATABASE_URL="+s.Config.DatabaseURL, "KINDRED_MASTER_KEY="+s.Config.MasterKey,
		"KINDRED_DATA_DIR="+s.Config.DataDir, "KINDRED_EPOCH_DIR="+s.Config.EpochKeys(), "XDG_CONFIG_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-3000):])
	}
	if strings.Contains(commands, `/test"`) {
		testkit.Eventually(t, "the receiver has told the test", func() bool { return strings.HasPrefix(told(), "match.computed\n") })
	}
}
