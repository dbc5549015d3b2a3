package kindred

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kindred/golden"
)

// source is what the service is made from, without tests and what was generated.
type source struct {
	t      *testing.T
	folder map[*ast.File]string
	files  map[string]string // the folder of each file
	texted map[string]string // constants of text, by folder and name
}

func readSource(t *testing.T) *source {
	t.Helper()
	s := &source{t: t, folder: map[*ast.File]string{}, files: map[string]string{}, texted: map[string]string{}}
	root := "."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "scripts" || strings.HasSuffix(entry.Name(), "test")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".gen.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.folder[file] = filepath.Dir(path)
		s.files[path] = filepath.Dir(path)
		s.inspect(file, func(n ast.Node) {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return
			}
			for i, name := range spec.Names {
				if i >= len(spec.Values) {
					continue
				}
				if text, ok := literal(spec.Values[i]); ok {
					s.texted[s.folder[file]+" "+name.Name] = text
				}
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (*source) inspect(file *ast.File, see func(ast.Node)) {
	ast.Inspect(file, func(n ast.Node) bool {
		see(n)
		return true
	})
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// said is what an expression says: its texts, and … for whatever else it holds.
func (s *source) said(folder string, e ast.Expr) string {
	if text, ok := literal(e); ok {
		return strconv.Quote(text)
	}
	switch e := e.(type) {
	case *ast.Ident:
		if text, ok := s.texted[folder+" "+e.Name]; ok {
			return strconv.Quote(text)
		}
	case *ast.BinaryExpr:
		return s.said(folder, e.X) + "+" + s.said(folder, e.Y)
	case *ast.CompositeLit:
		return s.listed(folder, e.Elts)
	case *ast.CallExpr:
		if called(e) == "append" || called(e) == "Concat" {
			return s.listed(folder, e.Args)
		}
	}
	return "…"
}

func (s *source) listed(folder string, all []ast.Expr) string {
	said := make([]string, len(all))
	for i, one := range all {
		said[i] = s.said(folder, one)
	}
	return strings.Join(said, " ")
}

// called is the name of what a call calls, without what it belongs to.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// seeds are the parts that ids are derived from, where they name something: those
// given to id.Derived or to what calls that, and those that are put in a Seed.
func (s *source) seeds() (lines []string) {
	for file, folder := range s.folder {
		add := func(said string) {
			if strings.Contains(said, `"`) {
				lines = append(lines, "seed "+said)
			}
		}
		s.inspect(file, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.CallExpr:
				if slices.Contains([]string{"Derived", "derived", "ids"}, called(n)) {
					add(s.listed(folder, n.Args))
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Seed" {
					add(s.said(folder, n.Value))
				}
			case *ast.AssignStmt:
				of, ok := n.Lhs[0].(*ast.SelectorExpr)
				if name, isName := n.Lhs[0].(*ast.Ident); ok && of.Sel.Name == "Seed" || isName && name.Name == "seed" {
					add(s.said(folder, n.Rhs[0]))
				}
			}
		})
	}
	return lines
}

// Each pattern marks texts, in which a group is what is named.
var named = map[string]*regexp.Regexp{
	"actor":            regexp.MustCompile(`^(policy:\w+)$`),
	"advisory lock":    regexp.MustCompile(`hashtextextended\('([^']+)'`),
	"channel":          regexp.MustCompile(`(?:^|LISTEN |pg_notify\(')(kindred_(?:log|checkpoint|deliveries|\w+))(?:$|')`),
	"header":           regexp.MustCompile(`^((?:X|Webhook)-[A-Z][A-Za-z-]*)$`),
	"sealed or hashed": regexp.MustCompile(`^(kindred\.[a-z.-]+\.\d+ ?|\w+_key/)$`),
	"connection":       regexp.MustCompile(`^(kindred (?:tool|control|migrate|start))$`),
	"type of a JWS":    regexp.MustCompile(`^(kindred-head)$`),
}

func (s *source) texts() (lines []string) {
	for file := range s.folder {
		s.inspect(file, func(n ast.Node) {
			e, ok := n.(ast.Expr)
			if !ok {
				return
			}
			text, ok := literal(e)
			if !ok {
				return
			}
			for what, pattern := range named {
				for _, found := range pattern.FindAllStringSubmatch(text, -1) {
					if what == "channel" && metricName.MatchString(found[1]) {
						continue
					}
					lines = append(lines, what+" "+found[1])
				}
			}
		})
	}
	return lines
}

var metricName = regexp.MustCompile(`_(total|seconds|info|pending|waiting|failing|flight|progress)$|^kindred_(pool|projection)_`)

// purposes are what keyed hashes and sealed secrets are for: another word, and
// what was hashed is not found, what was sealed is not opened.
func (s *source) purposes() (lines []string) {
	at := map[string]int{"Index": 2, "SealSecret": 1, "OpenSecret": 1, "SealFor": 3, "OpenFor": 3, "Lookup": 2, "keyedHash": 1}
	for file, folder := range s.folder {
		s.inspect(file, func(n ast.Node) {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return
			}
			if i, known := at[called(c)]; known && i < len(c.Args) {
				if said := s.said(folder, c.Args[i]); strings.Contains(said, `"`) {
					lines = append(lines, "purpose "+said)
				}
			}
		})
	}
	return lines
}

// What the source names in texts: seeds that ids are derived from, actors, locks
// and channels that processes of two releases share during an upgrade, purposes
// that secrets are derived for, headers.
func TestNamesWithinTextsStay(t *testing.T) {
	source := readSource(t)
	lines := slices.Concat(source.seeds(), source.texts(), source.purposes())
	if len(lines) < 50 {
		t.Fatalf("only %d were found: the walk does not see the tree", len(lines))
	}
	golden.Check(t, "texts.txt", lines)
}

var statement = regexp.MustCompile(`(?s)^\s*(SELECT|INSERT INTO|UPDATE \w+|DELETE FROM|WITH \w+|TRUNCATE|COPY|CREATE|ALTER|DROP|BEGIN|SET|LOCK|LISTEN|NOTIFY)\b[^a-z]`)

// SQL stands in the package that owns its tables: the wiring and the command line have none.
func TestTheWiringHasNoSQL(t *testing.T) {
	source := readSource(t)
	found := map[bool]int{}
	for file, folder := range source.folder {
		folder = filepath.ToSlash(folder)
		wiring := folder == "app" || strings.HasPrefix(folder, "cmd/")
		source.inspect(file, func(n ast.Node) {
			e, ok := n.(ast.Expr)
			if !ok {
				return
			}
			text, ok := literal(e)
			if !ok || !statement.MatchString(text) {
				return
			}
			if found[wiring]++; wiring {
				t.Errorf("%s: %s", folder, text)
			}
		})
	}
	if found[false] < 200 {
		t.Fatalf("only %d statements were found", found[false])
	}
}

// mechanisms are packages that only a mechanism imports: a cache, rounds that are shared,
// places that are bounded.
var mechanisms = []string{"github.com/hashicorp/golang-lru/", "golang.org/x/sync/singleflight", "kindred/coalesce", "kindred/semaphore"}

var inPerformance = regexp.MustCompile("`([a-z_/]+\\.go)`")

// docs/performance.md says of each mechanism what it pays for: its files stand in a row.
func TestEachMechanismHasARow(t *testing.T) {
	page, err := Documentation.ReadFile("docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	// The files of a row are those of its second column; a name alone is of the folder before.
	named := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 7 {
			continue
		}
		folder := ""
		for _, found := range inPerformance.FindAllStringSubmatch(cells[2], -1) {
			if strings.Contains(found[1], "/") {
				folder = filepath.Dir(found[1])
				named[found[1]] = true
			} else {
				named[filepath.Join(folder, found[1])] = true
			}
		}
	}
	source := readSource(t)
	fset := token.NewFileSet()
	checked := 0
	for path := range source.files {
		if strings.HasPrefix(path, "sdk") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range file.Imports {
			imported, err := strconv.Unquote(one.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(mechanisms, func(of string) bool { return strings.HasPrefix(imported, of) }) {
				continue
			}
			if checked++; !named[filepath.ToSlash(path)] {
				t.Errorf("%s imports %s, and docs/performance.md has no row that names it", path, imported)
			}
		}
	}
	if checked < 20 {
		t.Fatalf("only %d mechanisms were found", checked)
	}
}

// Whoever tries an example is not told that its ids cannot be.
func TestAnIDThatTheDocsShowCanBeOne(t *testing.T) {
	paths, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, path := range append(paths, "README.md", "httpapi/openapi.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`\b[a-z]{3}_([0-9a-v]{26})\b`).FindAllSubmatch(text, -1) {
			shown++
			if !strings.Contains("048cgkos", string(found[1][25])) { // 128 bits, five to a letter
				t.Errorf("%s shows %s", path, found[0])
			}
		}
	}
	if shown < 50 {
		t.Errorf("%d ids were looked at", shown)
	}
}
