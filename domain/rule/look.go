package rule

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// look is a comparison that one look at a value of the traits decides, as most parts of rules are:
//
//	traits.plan == "pro"            equals any of some texts, numbers, true and false
//	traits.plan in ["pro", "team"]  the same
//	traits.paid                     the same
//	traits.home.floor >= 3          is beyond a number, or is it
//	has(traits.plan)                is there
//	traits.plan != "free"           is there, and another one
//	"jazz" in traits.likes          holds a text, a number, true or false
//
// Texts in an order are left out, since to compare long ones takes steps.
type look struct {
	path     []string // of the value
	quoted   string   // the path: a name may hold any character
	operator string   // of cel-go; has: none
	values   []any    // each once
}

func lookAt(path []string, operator string, values ...any) *look {
	return &look{path, fmt.Sprintf("%q", path), operator, values}
}

// decides says that a rule which is nothing but such looks is true where they hold. The others may take
// more steps than a rule has: their values may be as long as traits are.
func (l *look) decides() bool {
	return l.operator != operators.In && l.operator != operators.NotEquals
}

// look is what an expression looks at; nil: it is no such comparison.
func (c *compiler) look(e ast.Expr) *look {
	if e.Kind() == ast.SelectKind {
		path := traitOf(e)
		switch {
		case path == nil:
			return nil
		case e.AsSelect().IsTestOnly():
			return lookAt(path, "")
		}
		return lookAt(path, operators.Equals, true)
	}
	if e.Kind() != ast.CallKind || len(e.AsCall().Args()) != 2 {
		return nil
	}
	operator, of, with := e.AsCall().FunctionName(), e.AsCall().Args()[0], e.AsCall().Args()[1]
	path, values := traitOf(of), []any{c.fixed(with)}
	switch operator {
	case operators.Equals, operators.NotEquals:
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if _, is := values[0].(float64); !is {
			return nil
		}
	case operators.In:
		if path != nil && with.Kind() == ast.ListKind {
			operator, values = operators.Equals, nil
			for _, value := range with.AsList().Elements() {
				values = once(values, c.fixed(value))
			}
		} else {
			path, values = traitOf(with), []any{c.fixed(of)}
		}
	default:
		return nil
	}
	if path == nil || isHas(of) || slices.Contains(values, nil) {
		return nil
	}
	return lookAt(path, operator, values...)
}

// isHas says whether an expression is has(…), which is true or false whatever the value at its path is.
func isHas(e ast.Expr) bool { return e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() }

// traitOf is where in the traits of the user an expression reads; nil: it is no such path.
func traitOf(e ast.Expr) []string {
	up, name := step(e)
	if up == nil || name == "" {
		return nil
	}
	if up.Kind() == ast.IdentKind && up.AsIdent() == AllTraits {
		return []string{name}
	}
	if above := traitOf(up); above != nil {
		return append(above, name)
	}
	return nil
}

// valueAt is the value at a path of traits; nil: there is none.
func valueAt(traits map[string]any, path []string) any {
	v := traits[path[0]]
	for _, name := range path[1:] {
		of, _ := v.(map[string]any)
		v = of[name]
	}
	return v
}
