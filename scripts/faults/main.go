// Command faults writes into the comment of each exported function which faults it
// can fail with, as the code says: those that it makes, and those of what it calls,
// also through interfaces of the service. What a function asks for by fault.Is counts
// as handled. Handlers of requests are left out: the contract names their answers.
//
//	go run ./scripts/faults [-check]
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const (
	module = "kindred"
	faults = module + "/domain/fault"
	width  = 110 // of a line
)

// left are packages that are no part of the service's own code.
var left = regexp.MustCompile(`^kindred/(e2e|scripts|golden|sdk|cli)\b|test$|testkit$`)

func main() {
	check := flag.Bool("check", false, "change nothing, and fail where there is something to change")
	flag.Parse()
	changed, err := mend(".", *check)
	if err == nil && *check && len(changed) > 0 {
		err = fmt.Errorf("comments do not say the faults as they are (make generate mends them): %s", strings.Join(changed, ", "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// function is what is known of one function.
type function struct {
	decl  *ast.FuncDecl
	pkg   *packages.Package
	makes map[string]bool // codes
	asks  map[string]bool // codes that it looks for
	calls map[*types.Func]bool
}

type program struct {
	functions map[*types.Func]*function
	types     []types.Type // that may stand behind an interface
}

func load(dir string) (*program, error) {
	all, err := packages.Load(&packages.Config{
		Dir:  dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedExportFile,
	}, "./...")
	if err != nil {
		return nil, err
	}
	p := &program{functions: map[*types.Func]*function{}}
	for _, pkg := range all {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("the faults in comments can be said once all builds: %w", pkg.Errors[0])
		}
		if left.MatchString(pkg.PkgPath) || pkg.Name == "main" {
			continue
		}
		for _, name := range pkg.Types.Scope().Names() {
			if t, ok := pkg.Types.Scope().Lookup(name).(*types.TypeName); ok && !types.IsInterface(t.Type()) {
				p.types = append(p.types, t.Type(), types.NewPointer(t.Type()))
			}
		}
		for _, file := range pkg.Syntax {
			for _, d := range file.Decls {
				if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
					p.functions[pkg.TypesInfo.Defs[decl.Name].(*types.Func)] = read(pkg, decl)
				}
			}
		}
	}
	return p, nil
}

// read finds what a function makes, asks for and calls.
func read(pkg *packages.Package, decl *ast.FuncDecl) *function {
	f := &function{decl: decl, pkg: pkg, makes: map[string]bool{}, asks: map[string]bool{}, calls: map[*types.Func]bool{}}
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			callee, ok := calleeOf(pkg, n.Fun)
			if !ok || callee.Pkg() == nil || callee.Pkg().Path() != faults {
				break
			}
			switch {
			case callee.Name() == "NewInvalid":
				f.makes["invalid"] = true
			case callee.Name() == "New" && len(n.Args) > 1:
				f.note(f.makes, n.Args[1])
			case callee.Name() == "Is" && len(n.Args) > 1:
				f.note(f.asks, n.Args[1])
			}
		case *ast.Ident:
			if used, ok := pkg.TypesInfo.Uses[n].(*types.Func); ok {
				f.calls[used.Origin()] = true
			}
		}
		return true
	})
	return f
}

func calleeOf(pkg *packages.Package, fun ast.Expr) (*types.Func, bool) {
	if selected, ok := fun.(*ast.SelectorExpr); ok {
		fun = selected.Sel
	}
	name, ok := fun.(*ast.Ident)
	if !ok {
		return nil, false
	}
	callee, ok := pkg.TypesInfo.Uses[name].(*types.Func)
	return callee, ok
}

func (f *function) note(codes map[string]bool, arg ast.Expr) {
	if v := f.pkg.TypesInfo.Types[arg].Value; v != nil && v.Kind() == constant.String {
		codes[constant.StringVal(v)] = true
	}
}

// behind returns the functions that a call may reach: of an interface of the
// service, the methods of all that implement it.
func (p *program) behind(called *types.Func) []*types.Func {
	receiver := called.Signature().Recv()
	if receiver == nil || !types.IsInterface(receiver.Type()) {
		return []*types.Func{called}
	}
	if called.Pkg() == nil || !strings.HasPrefix(called.Pkg().Path(), module) {
		return nil
	}
	var reached []*types.Func
	for _, t := range p.types {
		if types.Implements(t, receiver.Type().Underlying().(*types.Interface)) {
			if method, _, _ := types.LookupFieldOrMethod(t, true, called.Pkg(), called.Name()); method != nil {
				if m, ok := method.(*types.Func); ok {
					reached = append(reached, m.Origin())
				}
			}
		}
	}
	return reached
}

// codes returns which faults each function can fail with.
func (p *program) codes() map[*types.Func]map[string]bool {
	codes := make(map[*types.Func]map[string]bool, len(p.functions))
	callees := make(map[*types.Func][]*types.Func, len(p.functions))
	for f, known := range p.functions {
		codes[f] = maps.Clone(known.makes)
		for called := range known.calls {
			for _, reached := range p.behind(called) {
				if p.functions[reached] != nil {
					callees[f] = append(callees[f], reached)
				}
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for f, known := range p.functions {
			for _, callee := range callees[f] {
				if !fails(callee) {
					continue
				}
				for code := range codes[callee] {
					if !known.asks[code] && !codes[f][code] {
						codes[f][code], grown = true, true
					}
				}
			}
		}
	}
	return codes
}

// fails says whether a function returns an error, or is one that another passes on.
func fails(f *types.Func) bool {
	results := f.Signature().Results()
	for v := range results.Variables() {
		if types.Implements(v.Type(), errorType()) || types.IsInterface(v.Type()) && v.Type().String() == "error" {
			return true
		}
	}
	return false
}

func errorType() *types.Interface {
	return types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
}

// mend mends the comments below a folder, or only looks at them, and returns the
// files whose comments were not as they should be.
func mend(dir string, look bool) ([]string, error) {
	p, err := load(dir)
	if err != nil {
		return nil, err
	}
	type edit struct {
		from, to int
		text     string
	}
	edits := map[string][]edit{}
	for f, codes := range p.codes() {
		known := p.functions[f]
		if !told(f) || ast.IsGenerated(fileOf(known)) {
			continue
		}
		position := known.pkg.Fset.Position
		begin := known.decl.Pos()
		var old []string
		if known.decl.Doc != nil {
			begin = known.decl.Doc.Pos()
			for _, c := range known.decl.Doc.List {
				old = append(old, c.Text)
			}
		}
		comment := strings.Join(said(old, codes), "\n")
		if comment == strings.Join(old, "\n") {
			continue
		}
		if comment != "" && known.decl.Doc == nil {
			comment += "\n"
		}
		end := begin
		if known.decl.Doc != nil {
			end = known.decl.Doc.End()
		}
		at := position(begin)
		edits[at.Filename] = append(edits[at.Filename], edit{at.Offset, position(end).Offset, comment})
	}
	for name, all := range edits {
		if look {
			break
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(all, func(a, b edit) int { return cmp.Compare(b.from, a.from) })
		for _, e := range all {
			text = slices.Concat(text[:e.from], []byte(e.text), text[e.to:])
		}
		if err := os.WriteFile(name, bytes.TrimLeft(text, "\n"), 0o600); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(edits)), nil
}

func fileOf(f *function) *ast.File {
	i := slices.IndexFunc(f.pkg.Syntax, func(file *ast.File) bool { return file.FileStart <= f.decl.Pos() && f.decl.Pos() < file.FileEnd })
	return f.pkg.Syntax[i]
}

// told says whether a function's faults are said: it is exported, and no handler.
func told(f *types.Func) bool {
	if !f.Exported() || !fails(f) || f.Pkg().Path() == faults {
		return false
	}
	if receiver := f.Signature().Recv(); receiver != nil {
		t := receiver.Type()
		if pointer, ok := t.(*types.Pointer); ok {
			t = pointer.Elem()
		}
		if named, ok := t.(*types.Named); ok && !named.Obj().Exported() {
			return false
		}
	}
	for v := range f.Signature().Results().Variables() {
		if strings.HasSuffix(v.Type().String(), "ResponseObject") {
			return false
		}
	}
	return true
}

const mark = "// Faults: "

// said is a comment with the lines that say the faults as they are.
func said(comment []string, codes map[string]bool) []string {
	return slices.Concat(without(comment), lines(codes))
}

// without is a comment without the lines that say the faults, which are its last.
func without(comment []string) []string {
	i := slices.IndexFunc(comment, func(line string) bool { return strings.HasPrefix(line+" ", mark) }) // it may name none
	if i < 0 {
		return comment
	}
	return comment[:i]
}

// lines say faults.
func lines(codes map[string]bool) []string {
	if len(codes) == 0 {
		return nil
	}
	var all []string
	line := mark
	for i, code := range slices.Sorted(maps.Keys(codes)) {
		if code += ","; i == len(codes)-1 {
			code = strings.TrimSuffix(code, ",") + "."
		}
		if len(line)+len(code) > width {
			all, line = append(all, strings.TrimSuffix(line, " ")), "// "
		}
		line += code + " "
	}
	return append(all, strings.TrimSuffix(line, " "))
}
