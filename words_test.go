package kindred

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// privateWords are words that the field has another word for, and the folders in which
// a name with them would mean that; "…" is everywhere.
var privateWords = map[string]struct {
	folders []string
	field   string
}{
	"agenda":     {everywhere, "scheduler"},
	"aside":      {everywhere, "scratch schema"},
	"beat":       {everywhere, "heartbeat"},
	"bell":       {everywhere, "notifier"},
	"beside":     {everywhere, "shadow build"},
	"born":       {everywhere, "created at position"},
	"bury":       {everywhere, "reap"},
	"companion":  {everywhere, "neighbour"},
	"consenting": {[]string{"projections"}, "consent set"},
	"courtesy":   {everywhere, "throttle"},
	"desk":       {everywhere, "fixture"},
	"doubt":      {everywhere, "invalidate, suspect"},
	"door":       {everywhere, "accept-time shedding"},
	"few":        {[]string{"eventstore", "dispatcher", "httpapi"}, "what is bounded, by its name"},
	"forget":     {[]string{"dispatcher"}, "evict"},
	"gather":     {everywhere, "batch, coalesce"},
	"gathered":   {everywhere, "batch, coalesce"},
	"gathering":  {everywhere, "batch, coalesce"},
	"held":       {[]string{"eventstore/projector"}, "paused"},
	"hopeful":    {everywhere, "optimistic"},
	"join":       {[]string{"dispatcher"}, "register"},
	"lane":       {[]string{"dispatcher", "eventstore/pgstore", "httpapi"}, "kind of attempt, client queue, semaphore"},
	"learn":      {[]string{"dispatcher"}, "observe"},
	"leave":      {[]string{"dispatcher"}, "deregister"},
	"lift":       {everywhere, "upcast"},
	"likeness":   {everywhere, "route key"},
	"linger":     {everywhere, "await callers"},
	"outside":    {[]string{"httpapi", "projections", "eventstore"}, "released slot"},
	"office":     {everywhere, "fixture"},
	"place":      {[]string{"dispatcher", "eventstore/tail"}, "endpoint state, coverage"},
	"plan":       {[]string{"dispatcher"}, "allocate"},
	"polite":     {everywhere, "throttle"},
	"rig":        {everywhere, "fixture"},
	"ring":       {everywhere, "signal"},
	"roll":       {everywhere, "worker registry"},
	"slot":       {[]string{"eventstore/projector"}, "projection id"},
	"strike":     {everywhere, "reap"},
	"taken":      {[]string{"httpapi"}, "buffered body"},
	"settle":     {everywhere, "record, resolve, commit, complete, assign"},
	"settled":    {everywhere, "resolved, completed, decided"},
	"settling":   {everywhere, "resolving"},
	"tip":        {everywhere, "end, version"},
	"teller":     {everywhere, "notifier"},
	"turn":       {[]string{"dispatcher", "eventstore/pgstore", "eventstore/tail", "eventstore/projector", "eventstore/seal", "projections"}, "quota, lock, rotation"},
	"wary":       {everywhere, "conflicted"},
}

var everywhere = []string{"…"}

// excepted are names with such a word, each with its reason.
var excepted = map[string]string{
	"cmd/kindred/cli buryKeys":            "leaves tombstones of erased subjects' keys",
	"cmd/kindred/demo gather":             "collects options",
	"commands gather":                     "collects the lines of an import",
	"dispatcher keepPlans":                "query plans of Postgres",
	"dispatcher planAfresh":               "the query plan of Postgres",
	"dispatcher planOnce":                 "the query plan of Postgres",
	"domain/clustering gather":            "collects points, as in gather and scatter",
	"domain/matching likeness":            "how alike two users are",
	"eventstore/seal bury":                "leaves a tombstone of an erased subject's key",
	"eventstore/seal/epochs Turn":         "one turn of the rotation of epochs",
	"eventstore/seal/pgkeys Bury":         "leaves tombstones of erased subjects' keys",
	"eventstore/seal/pgkeys burySubjects": "leaves tombstones of erased subjects' keys",
	"domain/clustering Settling":          "a phase of a run, as the contract names it",
	"httpapi gathered":                    "metrics that are collected",
	"httpapi/auth hashLanes":              "lanes of Argon2, RFC 9106",
	"httpapi/auth lanes":                  "lanes of Argon2, RFC 9106",
	"httpapi/auth maxLanes":               "lanes of Argon2, RFC 9106",
	"projections Consenting":              "users that have granted a layer",
	"projections NotConsenting":           "users that have not granted a layer",
	"projections consentingUsers":         "users that have granted a layer",
	"projections/feeds companion":         "a user that is shown beside others in a feed",
}

// The words are those of the glossary of docs/architecture.md, one meaning each.
func TestNamesUseTheFieldsWords(t *testing.T) {
	source := readSource(t)
	met := map[string]bool{}
	checked := 0
	check := func(folder, name string) {
		checked++
		for _, word := range wordsOf(name) {
			private, known := privateWords[word]
			if !known && strings.HasSuffix(word, "s") {
				private, known = privateWords[strings.TrimSuffix(word, "s")]
			}
			if !known || !slices.ContainsFunc(private.folders, func(under string) bool {
				return under == "…" || folder == under || strings.HasPrefix(folder, under+"/")
			}) {
				continue
			}
			at := folder + " " + name
			if met[at] = true; excepted[at] == "" {
				t.Errorf("%s: %q is none of the field's words, which are: %s", at, word, private.field)
			}
		}
	}
	for file, folder := range source.folder {
		folder = filepath.ToSlash(folder)
		check(folder, file.Name.Name)
		for _, name := range declared(file) {
			check(folder, name)
		}
	}
	for path, folder := range source.files {
		check(filepath.ToSlash(folder), strings.TrimSuffix(filepath.Base(path), ".go"))
	}
	if checked < 5_000 {
		t.Fatalf("only %d names were found: the walk does not see the tree", checked)
	}
	for at := range excepted {
		if !met[at] {
			t.Errorf("%s is excepted, and does not occur any more", at)
		}
	}
}

// What a test stands on is called a fixture, whatever it consists of.
func TestFixturesAreCalledSo(t *testing.T) {
	private := []string{"desk", "lived", "office", "parcel", "rig", "stand", "stage", "stormy", "told", "town", "trial", "world"}
	tests := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), ".") {
			return cmp.Or(err, fs.SkipDir)
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(filepath.Dir(path), "test") || !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		tests++
		ast.Inspect(file, func(n ast.Node) bool { // types within functions, too
			if spec, ok := n.(*ast.TypeSpec); ok && slices.ContainsFunc(wordsOf(spec.Name.Name), func(word string) bool { return slices.Contains(private, word) }) {
				t.Errorf("%s: %s is a fixture", path, spec.Name.Name)
			}
			return true
		})
		return nil
	})
	if err != nil || tests < 200 {
		t.Fatalf("%d files of tests were read: %v", tests, err)
	}
}

// declared lists the types, functions, methods, fields, parameters, constants and
// package variables of a file.
func declared(file *ast.File) (names []string) {
	add := func(all ...*ast.Ident) {
		for _, one := range all {
			names = append(names, one.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.Field:
			add(n.Names...)
		case *ast.GenDecl:
			if n.Tok == token.CONST || n.Tok == token.VAR {
				for _, spec := range n.Specs {
					if values, ok := spec.(*ast.ValueSpec); ok {
						add(values.Names...)
					}
				}
			}
		}
		return true
	})
	return names
}

// wordsOf splits a name at its capitals and underscores, in lower case.
func wordsOf(name string) (words []string) {
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
			word.Reset()
		}
	}
	for i, r := range name {
		if r == '_' || unicode.IsUpper(r) && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			end()
		}
		if r != '_' {
			word.WriteRune(unicode.ToLower(r))
		}
	}
	end()
	return words
}
