package rule

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/parser"
)

// lasting are the functions whose answers change with a user's traits alone. Windows of
// time, segments and whatever else is not named here may change beside them.
var lasting = []string{
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.NotStrictlyFalse,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Negate, operators.In, operators.Index,
	"size", "contains", "startsWith", "endsWith", "matches", "distance_km", "timestamp", "bucket",
}

// Lasting are the parts of the rule that hold of all whom it names, and change with the
// traits of the user alone, nobody's who looks at it: rules of users, by their texts. What
// they leave out the rule leaves out.
func (r *Rule) Lasting() []string { return slices.Clone(r.lasting) }

// lastingOf finds them among the parts that must all hold; whole says that there are no others.
func lastingOf(source *ast.AST, e ast.Expr) (texts []string, whole bool) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		whole = true
		for _, part := range e.AsCall().Args() {
			some, all := lastingOf(source, part)
			texts, whole = append(texts, some...), whole && all
		}
		return texts, whole
	}
	lasts, reads := true, false
	names := map[string]bool{"traits": true}
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			names[e.AsComprehension().IterVar()], names[e.AsComprehension().AccuVar()] = true, true
		}
	}))
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			lasts = lasts && slices.Contains(lasting, e.AsCall().FunctionName())
		case ast.IdentKind:
			lasts = lasts && names[e.AsIdent()]
			reads = reads || e.AsIdent() == "traits"
		}
	}))
	text, err := parser.Unparse(e, source.SourceInfo())
	if !lasts || !reads || err != nil {
		return nil, false
	}
	return []string{text}, true
}
