package console

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	actions   = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	samples   = regexp.MustCompile(`(?s)<pre.*?</pre>`)
	tags      = regexp.MustCompile(`(?s)<!?/?[a-zA-Z](?:[^"'>]|"[^"]*"|'[^']*')*>`)
	literals  = regexp.MustCompile(`"[^"]*"`)
	entities  = regexp.MustCompile(`&[a-z#0-9]+;`)
	spoken    = regexp.MustCompile(`\b(?:placeholder|aria-label|title|alt)="([^"]*)"`)
	word      = regexp.MustCompile(`[\p{L}]{2,}`)
	told      = regexp.MustCompile(`\b(?:t|say) "([a-z_]+\.[a-z0-9_]+)"`)
	said      = regexp.MustCompile(`\bsay\("([a-z_]+\.[a-z0-9_]+)"`)
	scripted  = regexp.MustCompile(`\bwords\.([a-z0-9_]+)`)
	sentences = regexp.MustCompile(`\p{L}{2,} \p{Ll}{2,}`)
)

func templates(t *testing.T) map[string]string {
	t.Helper()
	names, err := fs.Glob(pages, "pages/*.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := pages.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

// What pages say stands in pages/en.json, so that it can be read, mended and translated in
// one place. Samples of code, between <pre> and </pre>, stay where they are.
func TestNoTemplateHoldsWordsOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, text := range templates(t) {
		for _, action := range actions.FindAllString(text, -1) {
			for _, literal := range literals.FindAllString(action, -1) {
				if sentences.MatchString(literal) {
					t.Errorf("%s: an action says %s", name, literal)
				}
			}
		}
		text = samples.ReplaceAllString(actions.ReplaceAllString(text, ""), "")
		for _, found := range spoken.FindAllStringSubmatch(text, -1) {
			if word.MatchString(found[1]) {
				t.Errorf("%s: an attribute says %q", name, found[1])
			}
		}
		for _, found := range word.FindAllString(entities.ReplaceAllString(tags.ReplaceAllString(text, " "), " "), -1) {
			t.Errorf("%s: it says %q", name, found)
		}
	}
}

// unspoken are calls whose texts are for operators, or for nobody.
var unspoken = []string{"Errorf", "New", "MustCompile", "ErrorContext", "WarnContext", "panic", "Set", "Get", "say", "NewReplacer", "Format", "ParseInLocation"}

// exceptions are literals of Go with a space that no reader sees as words.
var exceptions = regexp.MustCompile(`^(default-src |public, max-age|attachment; |text/|data:|image |%3C|const words|await |curl |" -H|<time )|^ \w+$|^(GET|POST) `)

func TestNoPageHoldsWordsOfItsOwn(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec, *ast.Field:
				return false
			case *ast.CallExpr:
				name := ""
				switch f := n.Fun.(type) {
				case *ast.Ident:
					name = f.Name
				case *ast.SelectorExpr:
					name = f.Sel.Name
				}
				return !slices.Contains(unspoken, name)
			case *ast.BasicLit:
				text, _ := strconv.Unquote(n.Value)
				if n.Kind == token.STRING && sentences.MatchString(text) && !exceptions.MatchString(text) {
					t.Errorf("%s says %q", file, text)
				}
			}
			return true
		})
	}
}

func TestEachTextIsThereAndSaidSomewhere(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	note := func(text string, by *regexp.Regexp, page string) {
		for _, found := range by.FindAllStringSubmatch(text, -1) {
			used[page+found[1]] = true
		}
	}
	for _, text := range templates(t) {
		note(text, told, "")
	}
	script, err := os.ReadFile("static/console.js")
	if err != nil {
		t.Fatal(err)
	}
	note(string(script), scripted, "script.")
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		note(string(text), said, "")
		for _, found := range said.FindAllStringSubmatch(string(text), -1) {
			if strings.ContainsAny(words()[found[1]], "<&") {
				t.Errorf("%s says %s, which has tags", file, found[1])
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(words())), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("texts (-in pages/en.json +said somewhere):\n%s", diff)
	}
	for key, text := range words() {
		for _, tag := range tags.FindAllString(text, -1) {
			if places.MatchString(tag) {
				t.Errorf("%s fills the tag %s, where nothing is escaped for it", key, tag)
			}
		}
	}
}

func TestWhatFillsATextIsEscaped(t *testing.T) {
	t.Parallel()
	got, err := tell("common.of", `<script>"`)
	if err != nil || strings.ContainsAny(string(got), `<"`) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := tell("nowhere.at_all"); err == nil {
		t.Error("what is not there is told")
	}
}

func TestATextOfOneIsNotThatOfMany(t *testing.T) {
	for count, want := range map[string]string{"0": "0 deliveries wait.", "1": "1 delivery waits.", "1,001": "1,001 deliveries wait."} {
		if text := say("overview.deliveries_wait", count); text != want {
			t.Errorf("of %s: %q", count, text)
		}
	}
}
