package rule

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/parser"
)

// ofTraits are the functions whose answers change only with a user's traits. Others, such as
// windows of time and segments, may change without these.
var ofTraits = []string{
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, operators.NotStrictlyFalse,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Negate, operators.In, operators.Index,
	"size", "contains", "startsWith", "endsWith", "matches", "distance_km", "timestamp", "bucket",
}

// traitPartsOf finds the parts of a rule, as texts of rules of users, without which it names
// nobody, and which depend on the user's own traits alone, or its bucket, not on the viewer.
// whole says that the rule has no other parts.
func traitPartsOf(source *ast.AST, e ast.Expr) (texts []string, whole bool) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
		whole = true
		for _, part := range e.AsCall().Args() {
			some, all := traitPartsOf(source, part)
			texts, whole = append(texts, some...), whole && all
		}
		return texts, whole
	}
	only, reads := true, false
	names := map[string]bool{"traits": true}
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			names[e.AsComprehension().IterVar()], names[e.AsComprehension().AccuVar()] = true, true
		}
	}))
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			only = only && slices.Contains(ofTraits, e.AsCall().FunctionName())
			reads = reads || e.AsCall().FunctionName() == "bucket"
		case ast.IdentKind:
			only = only && names[e.AsIdent()]
			reads = reads || e.AsIdent() == "traits"
		}
	}))
	text, err := parser.Unparse(e, source.SourceInfo())
	if !only || !reads || err != nil || len(text) > MaxText { // with its spaces it may be longer than as it was written
		return nil, false
	}
	return []string{text}, true
}
