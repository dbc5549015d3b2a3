package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kindred"
)

// block is one of a page, with what stands behind its three backticks.
type block struct{ language, info, text string }

var blockPattern = regexp.MustCompile("(?ms)^```([a-z]+)(?: ([^\n]*))?\n(.*?)^```$")

func blocksOf(t *testing.T, page string) (list []block) {
	t.Helper()
	text, err := kindred.Documentation.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range blockPattern.FindAllSubmatch(text, -1) {
		list = append(list, block{string(one[1]), string(one[2]), string(one[3])})
	}
	return list
}

func TestTheGuidesShowTheExamplesAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/sdk-go.md", "docs/sdk-typescript.md", "docs/sdk-python.md"} {
		shown := 0
		for _, b := range blocksOf(t, page) {
			if !strings.HasPrefix(b.info, "sdk/") {
				continue
			}
			shown++
			program, err := os.ReadFile(filepath.Join("..", "..", b.info))
			if err != nil || string(program) != b.text {
				t.Errorf("%s does not show %s as it is (%v)", page, b.info, err)
			}
		}
		if shown != 1 {
			t.Errorf("%s shows %d programs", page, shown)
		}
	}
}

// TestTheBlocksOfTheGuidesRun makes one program of the blocks of a guide, in their
// order, checks its types, and runs it on a kindred with a new client. A block
// that names a file of the page's own is written there first.
func TestTheBlocksOfTheGuidesRun(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		guide, known := map[string]func(g *guide){"go": (*guide).golang, "typescript": (*guide).typescript, "python": (*guide).python}[d.name]
		if !known {
			return // asyncio has no guide of its own
		}
		url := startKindred(t)
		program, err := buildKindred()
		if err != nil {
			t.Fatal(err)
		}
		g := newGuide(t, d.name)
		g.environment = append(g.environment, "KINDRED_URL="+url, "KINDRED_API_KEY="+keyOf(t, url), "WEBHOOK_SECRET="+oldSecret, "KINDRED_EMAIL=ada@example.com", "KINDRED_PASSWORD=correct horse battery",
			"PATH="+filepath.Dir(program)+":"+filepath.Dir(pythonOf())+":"+os.Getenv("PATH"))
		guide(g)
		for _, b := range g.commands {
			g.run("sh", "-ec", b)
		}
	})
}

// guide is a page that is run in a folder of its own.
type guide struct {
	testing.TB
	dir         string
	sdk         string // its folder
	program     string
	commands    []string // at a shell, once the program has run
	environment []string
}

func newGuide(t *testing.T, name string) *guide {
	t.Helper()
	sdk, err := filepath.Abs(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	g := &guide{TB: t, dir: t.TempDir(), sdk: sdk, environment: os.Environ()}
	language := map[string]string{"go": "go", "typescript": "ts", "python": "python"}[name]
	for _, b := range blocksOf(t, "docs/sdk-"+name+".md") {
		switch {
		case strings.HasPrefix(b.info, "sdk/") || b.info == "norun first-webhook" || b.language == "" && b.info == "":
			// an example, which has tests of its own; commands that scripts/first-webhook runs
		case b.language == language && b.info == "":
			g.program += b.text
		case b.language == "sh" && b.info == "norun": // it is listed with its reason in e2e
		case b.language == "sh" && b.info == "norun guide":
			g.commands = append(g.commands, b.text)
		case b.info != "" && !strings.Contains(b.info, " "):
			g.write(b.info, b.text)
		default:
			t.Errorf("the block %q %q is run by nothing:\n%s", b.language, b.info, b.text)
		}
	}
	return g
}

func (g *guide) write(name, text string) {
	g.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.Fatal(err)
	}
}

func (g *guide) run(name string, arguments ...string) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir, cmd.Env = g.dir, g.environment
	if out, err := cmd.CombinedOutput(); err != nil {
		g.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
}

// golang puts the blocks into one function, which returns an error.
func (g *guide) golang() {
	g.Helper()
	imports := ""
	for _, path := range []string{"context", "encoding/json", "errors", "fmt", "io", "log", "net/http", "os", "time"} {
		name := path[strings.LastIndex(path, "/")+1:]
		if path == "context" || path == "log" || strings.Contains(g.program, name+".") {
			imports += fmt.Sprintf("\t%q\n", path)
		}
	}
	g.write("go.mod", "module example\n\ngo 1.26\n\nrequire kindred/sdk/go v0.0.0\n\nreplace kindred/sdk/go => "+g.sdk+"\n")
	g.write("main.go", "package main\n\nimport (\n"+imports+"\n\tkindred \"kindred/sdk/go\"\n)\n\nfunc main() {\n\tif err := run(context.Background()); err != nil {\n\t\tlog.Fatal(err)\n\t}\n}\n\n"+
		"func run(ctx context.Context) error {\n"+g.program+"\treturn nil\n}\n")
	g.environment = append(g.environment, "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	g.run("go", "vet", "main.go")
	g.run("go", "run", "main.go")
	g.run("go", "test", "example_test.go")
}

func (g *guide) typescript() {
	g.Helper()
	g.write("guide.mts", g.program)
	g.write("package.json", `{"type":"module"}`)
	if err := os.Mkdir(filepath.Join(g.dir, "node_modules"), 0o700); err != nil {
		g.Fatal(err)
	}
	for name, to := range map[string]string{"kindred": g.sdk, "@types": filepath.Join(g.sdk, "node_modules", "@types"), "undici-types": filepath.Join(g.sdk, "node_modules", "undici-types")} {
		if err := os.Symlink(to, filepath.Join(g.dir, "node_modules", name)); err != nil {
			g.Fatal(err)
		}
	}
	g.run(filepath.Join(g.sdk, "node_modules", ".bin", "tsc"), "--strict", "--target", "es2023", "--module", "nodenext", "--types", "node", "guide.mts")
	g.run("node", "--no-warnings", "guide.mjs")
}

func (g *guide) python() {
	g.Helper()
	g.write("guide.py", g.program)
	python := pythonOf()
	g.environment = append(g.environment, "PYTHONPATH="+filepath.Join(g.sdk, "src"), "MYPYPATH="+filepath.Join(g.sdk, "src"))
	g.run(python, "-m", "mypy", "--strict", "--config-file=", "guide.py")
	g.run(python, "guide.py")
}

// keyOf signs up and makes an API key that may do everything.
func keyOf(t *testing.T, url string) string {
	t.Helper()
	post := func(path, token string, body command) json.RawMessage {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %d %s (%v)", path, resp.StatusCode, out, err)
		}
		return out
	}
	up := post("/auth/signup", "", command{"email": "ada@example.com", "password": "correct horse battery", "company_name": "Acme"})
	made := post("/api/v1/clients/"+field[string](t, up, "client", "id")+"/api_keys", field[string](t, up, "token"), command{"name": "backend", "scopes": []string{"admin"}})
	return field[string](t, made, "raw_key")
}

// TestPythonFindsTheVectorsOfTheSpecificationOfAVerifier computes what
// docs/history.md says of events and trees.
func TestPythonFindsTheVectorsOfTheSpecificationOfAVerifier(t *testing.T) {
	const program = `
import hashlib, json, sys
from kindred.history import Tree, event_bytes, event_hash
event, roots = json.load(sys.stdin)
assert event_bytes(event["id"]).hex() == event["id_bytes"], event_bytes(event["id"])
assert event_hash(event).hex() == event["hash"], event_hash(event)
tree = Tree()
for n, root in enumerate(roots):
    tree.append(hashlib.sha256(str(n).encode()).digest())
    assert tree.root().hex() == root, (n, tree.root())
`
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		if d.name != "python" {
			return // it alone has a verifier; kindred's own has tests of its own
		}
		vectors := map[string]string{}
		for _, b := range blocksOf(t, "docs/history.md") {
			vectors[b.info] = b.text
		}
		cmd := exec.CommandContext(t.Context(), pythonOf(), "-c", program)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "python", "src"))
		cmd.Stdin = strings.NewReader("[" + vectors["hash"] + "," + vectors["roots"] + "]")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
