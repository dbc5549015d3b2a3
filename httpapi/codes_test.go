package httpapi_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"go/types"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred"
	"kindred/domain/fault"
	"kindred/httpapi"
	"kindred/testkit"
)

var kinds = map[string]fault.Kind{
	"Unreadable": fault.Unreadable, "Unauthenticated": fault.Unauthenticated, "Forbidden": fault.Forbidden, "Missing": fault.Missing,
	"Conflict": fault.Conflict, "Gone": fault.Gone, "Stale": fault.Stale, "TooLarge": fault.TooLarge, "WrongType": fault.WrongType,
	"Invalid": fault.Invalid, "Limited": fault.Limited, "Unavailable": fault.Unavailable,
}

// TestTheContractNamesEveryCode compares the paragraphs that begin with a
// status with all faults that the code makes.
func TestTheContractNamesEveryCode(t *testing.T) {
	made := map[string]bool{ // written by the door, by the edge itself, or by fault.NewInvalid
		"400 unreadable_request": true, "417 unreadable_request": true, "431 unreadable_request": true, "501 unreadable_request": true, "505 unreadable_request": true,
		"405 method_not_allowed": true, "422 invalid": true, "500 internal": true, "503 overloaded": true,
	}
	collectCodes(t, made)
	for _, internal := range []string{"409 already_claimed", "404 account_unknown"} { // others take their places
		delete(made, internal)
	}

	doc, named := loadContract(t), namedCodes(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(named))); diff != "" {
		t.Errorf("(-made +named):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), explained(t)); diff != "" {
		t.Errorf("docs/errors.md (-made +explained):\n%s", diff)
	}
	codes, listed := map[string]bool{}, map[string]bool{}
	for code := range made {
		_, word, _ := strings.Cut(code, " ")
		codes[word] = true
	}
	for _, code := range doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		listed[fmt.Sprint(code)] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(codes)), slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("Problem.code (-made +listed):\n%s", diff)
	}
}

// explained lists the codes that docs/errors.md has a paragraph about, each behind
// the status that it stands under.
func explained(t *testing.T) []string {
	t.Helper()
	page := testkit.Must(kindred.Documentation.ReadFile("docs/errors.md"))(t)
	var codes []string
	for status := range strings.SplitSeq(string(page), "\n## ") {
		for code := range strings.SplitSeq(status, "\n### ") {
			name, text, _ := strings.Cut(code, "\n")
			if strings.Contains(name, " ") || strings.HasPrefix(name, "#") {
				continue // what stands before the first code
			}
			codes = append(codes, status[:3]+" "+name)
			if len(strings.TrimSpace(text)) < 20 {
				t.Errorf("docs/errors.md says nothing about %s", name)
			}
		}
	}
	slices.Sort(codes)
	return codes
}

// namedCodes are those that the contract's paragraphs name, behind their status.
func namedCodes(t *testing.T) map[string]bool {
	t.Helper()
	named := map[string]bool{}
	for paragraph := range strings.SplitSeq(loadContract(t).Info.Description, "\n\n") {
		status, text, _ := strings.Cut(strings.TrimSpace(paragraph), " ")
		if _, err := strconv.Atoi(status); err != nil {
			continue
		}
		for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(text, -1) {
			named[status+" "+code[1]] = true
		}
	}
	return named
}

// collectCodes finds the calls of fault.New in the service, and those of New in fault itself.
func collectCodes(t *testing.T, made map[string]bool) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != ".." && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			prefix := "fault."
			if file.Name.Name == "fault" {
				prefix = ""
			}
			if types.ExprString(call.Fun) != prefix+"New" {
				return true
			}
			kind, known := kinds[strings.TrimPrefix(types.ExprString(call.Args[0]), prefix)]
			code, literal := call.Args[1].(*ast.BasicLit)
			if !known || !literal {
				t.Errorf("%s: a fault whose kind and code do not stand where it is made", path)
				return true
			}
			made[fmt.Sprint(httpapi.Status(kind), " ", strings.Trim(code.Value, `"`))] = true
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
