// Command limits writes the tables of docs/limits.md from the constants that are the
// limits. A row stands in a comment beside its constant:
//
//	// limit: client | members | {maxMembers} | 409 `too_many_members`
//
// names the table and its cells. {…} is a constant expression where the comment
// stands; a unit may follow: {maxBody B}. Rows keep the order that the page has.
//
// It fails where a constant that is a limit has no row: one whose name says so, and one
// that a refusal compares with.
//
//	go run ./scripts/limits [-check]
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/go/packages"
)

func main() {
	check := flag.Bool("check", false, "change nothing, and fail where there is something to change")
	flag.Parse()
	if err := run(".", *check); err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

const page = "docs/limits.md"

// Not read are packages that are no part of the service.
var left = regexp.MustCompile(`^kindred/(e2e|scripts|golden|sdk|cmd/kindred/demo)\b|test$|testkit$`)

// algorithms are packages whose constants say how well something is computed. None
// is met as an answer or as an amount of memory.
var algorithms = regexp.MustCompile(`^kindred/domain/(clustering|matching|ranking|splitmix)$`)

// bounding are the names of constants that are limits.
var bounding = regexp.MustCompile(`^(max|most)[A-Z0-9]\w*$|^(Max|Most)[A-Z]\w*$|^\w+(AtOnce|Waiting|Most)$`)

func run(dir string, check bool) error {
	tree, err := read(dir)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, page)
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := tables(string(old), tree.rows)
	switch {
	case err != nil || len(tree.faults) > 0:
		return errors.Join(append(tree.faults, err)...)
	case text == string(old):
		return nil
	case check:
		return fmt.Errorf("%s is not what the code says: make generate", page)
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // a page of the documentation
}

type tree struct {
	rows   map[string][][]string // by table
	named  map[types.Object]bool // constants that a row gives
	faults []error
}

// read reads the rows of the source, and finds the limits that lack one.
func read(dir string) (*tree, error) {
	all, err := packages.Load(&packages.Config{ // what others wrote is not read: without NeedDeps its compiled form does
		Dir:  dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedExportFile,
	}, "./...")
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p *packages.Package) bool { return left.MatchString(p.PkgPath) })
	t := &tree{rows: map[string][][]string{}, named: map[types.Object]bool{}}
	used := map[types.Object]bool{}
	for _, p := range all {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		for _, file := range p.Syntax {
			for _, group := range file.Comments {
				for _, line := range group.List {
					t.row(p, line)
				}
			}
		}
		for _, object := range p.TypesInfo.Uses {
			used[object] = true
		}
	}
	for _, p := range all {
		t.unlisted(p)
	}
	for object := range t.named {
		if !used[object] {
			t.faults = append(t.faults, fmt.Errorf("%s has a row in %s, and nothing uses it", object.Name(), page))
		}
	}
	return t, nil
}

var (
	mark  = regexp.MustCompile(`\blimit: (\w+) \| (.*)$`)
	value = regexp.MustCompile(`\{([^{}]*?)( B| ms)?\}`)
)

// row takes the row of a comment, if it has one.
func (t *tree) row(p *packages.Package, line *ast.Comment) {
	found := mark.FindStringSubmatch(line.Text)
	if found == nil {
		return
	}
	at := p.Fset.Position(line.Pos())
	text := value.ReplaceAllStringFunc(found[2], func(one string) string {
		of := value.FindStringSubmatch(one)
		expression, err := types.Eval(p.Fset, p.Types, line.Pos(), of[1])
		if err != nil || expression.Value == nil {
			t.faults = append(t.faults, fmt.Errorf("%s: %s is no constant: %w", at, of[1], err))
			return one
		}
		t.name(p, line.Pos(), of[1])
		return written(expression, of[2])
	})
	cells := strings.Split(text, "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	t.rows[found[1]] = append(t.rows[found[1]], cells)
}

var identifier = regexp.MustCompile(`[A-Za-z_]\w*(\.[A-Za-z_]\w*)?`)

// name notes the constants of an expression.
func (t *tree) name(p *packages.Package, at token.Pos, expression string) {
	for _, name := range identifier.FindAllString(expression, -1) {
		of, member, selected := strings.Cut(name, ".")
		_, object := p.Types.Scope().Innermost(at).LookupParent(of, at)
		if object == nil {
			object = p.Types.Scope().Lookup(of)
		}
		if imported, ok := object.(*types.PkgName); ok && selected {
			object = imported.Imported().Scope().Lookup(member)
		}
		if object != nil {
			t.named[object] = true
		}
	}
}

// written is a value as the page has it: with a unit, and in thousands.
func written(v types.TypeAndValue, unit string) string {
	if v.Type.String() == "time.Duration" {
		n, _ := constant.Int64Val(constant.ToInt(v.Value))
		return duration(time.Duration(n))
	}
	n, exact := constant.Int64Val(constant.ToInt(v.Value))
	switch {
	case !exact:
		return v.Value.String()
	case unit == " B":
		return size(n)
	}
	return thousands(n) + unit
}

func duration(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, " days"}, {time.Hour, " hours"}, {time.Minute, " min"}, {time.Second, " s"}} {
		if d%unit.of != 0 || d < unit.of || unit.of == 24*time.Hour && d < 3*unit.of {
			continue
		}
		name := unit.name
		if d == unit.of {
			name = strings.TrimSuffix(name, "s")
			if unit.of == time.Second {
				name = " s"
			}
		}
		return thousands(int64(d/unit.of)) + name
	}
	return thousands(d.Milliseconds()) + " ms"
}

func size(n int64) string {
	for _, unit := range []struct {
		of   int64
		name string
	}{{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}} {
		if n >= unit.of && n%unit.of == 0 {
			return thousands(n/unit.of) + unit.name
		}
	}
	return thousands(n) + " bytes"
}

func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// unlisted finds the constants of a package that are limits and have no row.
func (t *tree) unlisted(p *packages.Package) {
	report := func(at token.Pos, format string, args ...any) {
		t.faults = append(t.faults, fmt.Errorf("%s: %s has no row in %s: write one beside it, // limit: table | what | {…}", p.Fset.Position(at), fmt.Sprintf(format, args...), page))
	}
	if !algorithms.MatchString(p.PkgPath) {
		for name, object := range p.TypesInfo.Defs {
			if c, ok := object.(*types.Const); ok && numeric(c) && bounding.MatchString(name.Name) && !t.named[object] && !generated(p, name.Pos()) {
				report(name.Pos(), "%s, which is a limit by its name,", name.Name)
			}
		}
	}
	for _, file := range p.Syntax {
		if ast.IsGenerated(file) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt:
				if refuses(p, n.Body.List) {
					t.compared(p, n.Cond, report)
				}
			case *ast.CaseClause:
				if refuses(p, n.Body) {
					for _, condition := range n.List {
						t.compared(p, condition, report)
					}
				}
			}
			return true
		})
	}
}

func generated(p *packages.Package, at token.Pos) bool {
	return slices.ContainsFunc(p.Syntax, func(f *ast.File) bool {
		return f.FileStart <= at && at < f.FileEnd && ast.IsGenerated(f)
	})
}

func numeric(c *types.Const) bool {
	basic, ok := c.Type().Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsNumeric != 0
}

// refuses says whether statements make a fault, of which a caller hears.
func refuses(p *packages.Package, body []ast.Stmt) bool {
	found := false
	for _, statement := range body {
		switch statement.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt:
			continue // has conditions of its own
		}
		ast.Inspect(statement, func(n ast.Node) bool {
			if called, ok := n.(*ast.Ident); ok {
				f, isFunc := p.TypesInfo.Uses[called].(*types.Func)
				found = found || isFunc && f.Pkg() != nil && f.Pkg().Path() == "kindred/domain/fault" && strings.HasPrefix(f.Name(), "New")
			}
			_, literal := n.(*ast.FuncLit)
			return !literal
		})
	}
	return found
}

// compared reports what a condition finds something larger than: a constant without a row, or a
// number without a name.
func (t *tree) compared(p *packages.Package, condition ast.Expr, report func(token.Pos, string, ...any)) {
	ast.Inspect(condition, func(n ast.Node) bool {
		comparison, ok := n.(*ast.BinaryExpr)
		if !ok || !slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, comparison.Op) {
			return true
		}
		side := comparison.Y
		if comparison.Op == token.LSS || comparison.Op == token.LEQ {
			side = comparison.X
		}
		v := p.TypesInfo.Types[side].Value
		if v == nil {
			return true
		}
		if literal, ok := side.(*ast.BasicLit); ok {
			if n, _ := constant.Int64Val(constant.ToInt(v)); n > 1 {
				report(side.Pos(), "%s, with which a refusal compares,", literal.Value)
			}
		}
		ast.Inspect(side, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				if c, ok := p.TypesInfo.Uses[name].(*types.Const); ok && !t.named[c] {
					report(side.Pos(), "%s, with which a refusal compares,", name.Name)
				}
			}
			return true
		})
		return true
	})
}

// tables are the page with the rows of its tables as they are: those that the page
// has, in its order, then new ones.
func tables(text string, rows map[string][][]string) (string, error) {
	var out strings.Builder
	met := map[string]bool{}
	for at, rest := range sections(text) {
		if at == "" {
			out.WriteString(rest)
			continue
		}
		if met[at] = true; len(rows[at]) == 0 {
			return "", fmt.Errorf("the table %s has no rows", at)
		}
		lines := strings.SplitAfter(rest, "\n")
		head := lines[:3] // its mark, names of the columns, a line
		place := func(cells []string) int {
			i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "| "+cells[0]+" |") })
			if i < 0 {
				return len(lines)
			}
			return i
		}
		slices.SortStableFunc(rows[at], func(a, b []string) int { return place(a) - place(b) })
		out.WriteString(strings.Join(head, ""))
		for _, cells := range rows[at] {
			if len(cells) != strings.Count(head[1], "|")-1 {
				return "", fmt.Errorf("the row %q has %d cells, and the table %s %d columns", cells, len(cells), at, strings.Count(head[1], "|")-1)
			}
			out.WriteString(strings.TrimRight("| "+strings.Join(cells, " | "), " ") + " |\n")
		}
	}
	for at := range rows {
		if !met[at] {
			return "", fmt.Errorf("%s has no table %s", page, at)
		}
	}
	return out.String(), nil
}

var begin = regexp.MustCompile(`(?m)^<!-- limits: (\w+) -->\n(?:\|.*\n)+`)

// sections are the parts of a page in order: tables by their names, and what is between.
func sections(text string) func(yield func(string, string) bool) {
	return func(yield func(string, string) bool) {
		last := 0
		for _, m := range begin.FindAllStringSubmatchIndex(text, -1) {
			if !yield("", text[last:m[0]]) || !yield(text[m[2]:m[3]], text[m[0]:m[1]]) {
				return
			}
			last = m[1]
		}
		yield("", text[last:])
	}
}
