package rule

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"

	"kindred/domain/traits"
)

// environments declare what rules may name, by scope; making one takes milliseconds.
var environments = map[Scope]func() (*cel.Env, error){
	Users: sync.OnceValues(func() (*cel.Env, error) { return environment(ofUsers...) }),
	Pairs: sync.OnceValues(func() (*cel.Env, error) { return environment(append(slices.Clone(ofUsers), variable("viewer"))...) }),
	Events: sync.OnceValues(func() (*cel.Env, error) {
		return environment(cel.Variable("event_type", cel.StringType), variable("data"))
	}),
}

func variable(name string) cel.EnvOption {
	return cel.Variable(name, cel.MapType(cel.StringType, cel.DynType))
}

var ofUsers = []cel.EnvOption{
	variable("traits"), variable("user"),
	function("in_segment", cel.BoolType, cel.StringType),
	function("in_cluster", cel.BoolType, cel.StringType),
	function("granted", cel.BoolType, cel.StringType),
	function("interactions", cel.IntType, cel.StringType, cel.StringType),
	function("seen", cel.BoolType, cel.StringType, cel.StringType),
}

func function(name string, result *cel.Type, args ...*cel.Type) cel.EnvOption {
	return cel.Function(name, cel.Overload("kindred_"+name, args, result))
}

func environment(names ...cel.EnvOption) (*cel.Env, error) {
	return cel.NewEnv(append(names,
		cel.ClearMacros(), cel.EnableMacroCallTracking(), cel.Macros(cel.HasMacro, cel.AllMacro, cel.ExistsMacro),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserRecursionLimit(maxDepth), cel.ParserErrorRecoveryLimit(4), cel.ParserExpressionSizeLimit(MaxText),
		cel.ExpressionNodeLimit(maxNodes), cel.ExpressionNestingDepthLimit(maxDepth),
		function("within", cel.BoolType, cel.DynType, cel.StringType),
		function("older", cel.BoolType, cel.DynType, cel.StringType),
		function("distance_km", cel.DoubleType, cel.DynType, cel.DynType, cel.DynType),
		function("bucket", cel.IntType, cel.StringType, cel.IntType),
	)...)
}

// Parse reads and checks a rule. It fails with an *Error where the rule is wrong.
func Parse(text string, scope Scope) (*Rule, error) {
	switch {
	case len(text) > MaxText:
		return nil, &Error{Line: 1, Column: 1, Detail: "A rule has 4,096 bytes at most."}
	case !utf8.ValidString(text):
		return nil, &Error{Line: 1, Column: 1, Detail: "A rule is UTF-8."}
	case strings.TrimSpace(text) == "":
		return nil, &Error{Line: 1, Column: 1, Detail: `A rule says whom it means, for example traits.plan == "pro".`}
	}
	env, err := environments[scope]()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if errs := issues.Errors(); len(errs) > 0 {
		at := errs[0].Location
		return nil, &Error{Line: max(at.Line(), 1), Column: max(at.Column()+1, 1), Detail: sentence(errs[0].Message)}
	}
	if err := issues.Err(); err != nil {
		return nil, err
	}
	c := compiler{scope: scope, source: checked.NativeRep()}
	root, err := c.logic(c.source.Expr())
	if err != nil {
		return nil, err
	}
	for _, paths := range [][]read{c.paths, c.members} {
		for i := range paths {
			paths[i].likely = scope != Events && traits.LikelySensitive(paths[i].name)
		}
	}
	most := maxSteps
	if scope == Events {
		most = maxEventSteps
	}
	r := &Rule{
		root: root, most: most, comparisons: c.comparisons, needed: needed(root), joined: conjuncts(root), reads: c.reads, touched: c.ofTraits(),
		size: len(text)*textSize + nodes(c.source.Expr())*nodeSize + c.size,
	}
	r.lasting, r.lasts = lastingOf(c.source, c.source.Expr())
	return r, nil
}

// What a byte of the text and a node of the tree take in memory, about.
const textSize, nodeSize = 4, 128

func nodes(e ast.Expr) (n int) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { n++ }))
	return n
}

// misread are what the parser says of a text that is no rule, and what is said instead: what
// it expected there is a list of all that could begin a value.
var misread = []struct {
	said    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^Syntax error: mismatched input '<EOF>'.*`), "The rule ends where something is missing"},
	{regexp.MustCompile(`^Syntax error: missing ('.*') at '<EOF>'.*`), "$1 is missing at the end"},
	{regexp.MustCompile(`^Syntax error: missing ('.*') at ('.*').*`), "$1 is missing before $2"},
	{regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input ('.*') expecting .*`), "$1 does not belong here"},
	{regexp.MustCompile(`^Syntax error: no viable alternative at input ('.*').*`), "$1 does not belong here"},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '=[^=].*`), "A comparison is written ==, not ="},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)'.*`), "This cannot be read: $1"},
}

// sentence makes one of what cel-go says, without its own names for what is ours.
func sentence(message string) string {
	for _, s := range misread {
		message = s.said.ReplaceAllString(message, s.instead)
	}
	message = strings.NewReplacer("\n", " ", "(in container '')", "", "found no matching overload for", "there is no",
		"undeclared reference to", "a rule knows nothing of the name").Replace(message)
	message = strings.TrimRight(strings.TrimSpace(message), ".") + "."
	return strings.ToUpper(message[:1]) + message[1:]
}
