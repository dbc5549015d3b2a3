package rule

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"kindred/domain/traits"
)

// origin is a path of somebody's traits that a rule looks at, by whatever way: directly,
// through a list in the rule, `? :`, dyn, or an element of a list, which has the path of
// the list. The path of all traits is "". Rules are refused by the origins that are
// sensitive.
type origin struct {
	read
	whole  bool // with all that is below it
	likely bool // sensitive, by its name: it takes some 10 µs to tell
}

// sensitive are those of the paths looked at that are sensitive: as the client has decided,
// or else by their names. Where a path is looked at with all that is below it, the rule
// names none of what is below, so only decisions count there.
func (o origin) sensitive(decided map[string]bool) (paths []string) {
	if o.name != "" && traits.Sensitive(o.name, o.likely, decided) {
		return []string{o.name}
	}
	for path, is := range decided {
		if is && o.whole && strings.HasPrefix(path, o.name+".") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// origins finds what a rule looks at.
type origins struct {
	c        *compiler
	found    []origin
	element  string   // the name of the elements that exists or all asks; "": none are
	elements []string // where they may stand
}

// originsOf are those of what a compiled rule looks at, each once, in order.
func (c *compiler) originsOf(e ast.Expr) ([]origin, error) {
	o := &origins{c: c}
	err := o.use(e, false)
	return o.found, err
}

// use notes what an expression is looked at for; with whole, all of it is.
func (o *origins) use(e ast.Expr, whole bool) error {
	paths, err := o.of(e)
	for _, path := range paths {
		if path == "" && whole {
			return o.c.wrong(e, "traits as a whole may hold what is sensitive: name what is meant, such as traits.plan.")
		}
		o.note(e, path, whole)
	}
	return err
}

func (o *origins) note(e ast.Expr, path string, whole bool) {
	at := slices.IndexFunc(o.found, func(known origin) bool { return known.name == path })
	if at < 0 {
		at, o.found = len(o.found), append(o.found, origin{read: o.c.read(e, path), likely: traits.LikelySensitive(path)})
	}
	o.found[at].whole = o.found[at].whole || whole
}

// of are the paths at which what an expression makes may stand. It notes what is looked at on the way.
func (o *origins) of(e ast.Expr) ([]string, error) {
	switch e.Kind() {
	case ast.IdentKind:
		switch e.AsIdent() {
		case o.element:
			return o.elements, nil
		case "traits":
			return []string{""}, nil
		}
	case ast.SelectKind:
		return o.ofMember(e)
	case ast.ListKind:
		return o.ofAny(e.AsList().Elements())
	case ast.CallKind:
		return o.ofCall(e)
	case ast.ComprehensionKind:
		return nil, o.useElements(e.AsComprehension())
	}
	return nil, nil
}

func (o *origins) ofAny(parts []ast.Expr) (paths []string, err error) {
	for _, part := range parts {
		some, err := o.of(part)
		if err != nil {
			return nil, err
		}
		for _, path := range some {
			paths = once(paths, path)
		}
	}
	return paths, nil
}

func (o *origins) ofMember(e ast.Expr) ([]string, error) {
	if isWhole(e) {
		return []string{""}, nil
	}
	selected := e.AsSelect()
	paths, err := o.below(selected.Operand(), selected.FieldName())
	if !selected.IsTestOnly() {
		return paths, err
	}
	for _, path := range paths {
		o.note(e, path, false)
	}
	return nil, err
}

// below are the paths of a member of what an expression makes.
func (o *origins) below(e ast.Expr, member string) ([]string, error) {
	paths, err := o.of(e)
	found := make([]string, len(paths))
	for i, path := range paths {
		found[i] = pathBelow(path, member)
	}
	return found, err
}

func pathBelow(path, member string) string {
	if path == "" && member != "" {
		return member
	}
	return path + "." + member
}

func (o *origins) ofCall(e ast.Expr) ([]string, error) {
	args := e.AsCall().Args()
	if e.AsCall().IsMemberFunction() {
		args = append([]ast.Expr{e.AsCall().Target()}, args...)
	}
	switch name := e.AsCall().FunctionName(); name {
	case operators.Index:
		if member, ok := o.c.fixed(args[1]).(string); ok {
			return o.below(args[0], member)
		}
		return o.of(args[0]) // an element of a list
	case operators.Conditional:
		if err := o.use(args[0], false); err != nil {
			return nil, err
		}
		return o.ofAny(args[1:])
	case operators.Add, "dyn":
		return o.ofAny(args)
	case operators.In:
		return nil, o.useIn(args[0], args[1])
	default:
		compares := name == operators.Equals || name == operators.NotEquals
		for i, arg := range args {
			// Beside what stands in the rule itself, no member of an object decides.
			if err := o.use(arg, compares && args[1-i].Kind() != ast.LiteralKind); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// useIn notes what `x in y` looks at: a list, or whether an object has a member.
func (o *origins) useIn(x, in ast.Expr) error {
	if err := o.use(x, x.Kind() != ast.LiteralKind); err != nil {
		return err
	}
	paths, err := o.of(in)
	for _, path := range paths {
		member, isText := o.c.fixed(x).(string)
		switch {
		case path != "":
			o.note(in, path, true) // of an object, the names of its members
		case isText:
			o.note(x, member, false)
		default:
			return o.c.wrong(x, `What stands before "in traits" is a text in the rule itself, such as "plan".`)
		}
	}
	return err
}

// useElements notes what exists and all look at: the list itself, and what is asked of its elements.
func (o *origins) useElements(fold ast.ComprehensionExpr) error {
	list, err := o.of(fold.IterRange())
	if err != nil {
		return err
	}
	for _, path := range list {
		o.note(fold.IterRange(), path, false)
	}
	o.element, o.elements = fold.IterVar(), list
	return o.use(fold.LoopStep().AsCall().Args()[1], false)
}
