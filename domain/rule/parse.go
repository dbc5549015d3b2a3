package rule

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
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
	function("interactions", cel.DoubleType, cel.StringType, cel.StringType),
	function("seen", cel.BoolType, cel.StringType, cel.StringType),
}

func function(name string, result *cel.Type, args ...*cel.Type) cel.EnvOption {
	return cel.Function(name, cel.Overload("kindred_"+name, args, result))
}

// has is the macro of that name, which takes a member by its name in [ ], too.
var has = cel.GlobalMacro(operators.Has, 1, func(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	if of, name := step(args[0]); of != nil && name != "" {
		return f.NewPresenceTest(of, name), nil
	}
	return nil, f.NewError(args[0].ID(), `A member stands in has: has(traits.home.city), or has(traits["odd name"])`)
})

func environment(names ...cel.EnvOption) (*cel.Env, error) {
	excluded := []*env.Function{env.NewFunction("size"), env.NewFunction("int"), env.NewFunction("uint")} // all numbers are doubles
	return cel.NewCustomEnv(append(names,
		cel.StdLib(cel.StdLibSubset(env.NewLibrarySubset().SetDisableMacros(true).AddExcludedFunctions(excluded...))),
		cel.EnableMacroCallTracking(), cel.Macros(has, cel.AllMacro, cel.ExistsMacro),
		function("size", cel.DoubleType, cel.DynType),
		cel.Function("size", cel.MemberOverload("member_size", []*cel.Type{cel.DynType}, cel.DoubleType)),
		cel.ParserRecursionLimit(maxDepth), cel.ParserErrorRecoveryLimit(4), cel.ParserExpressionSizeLimit(MaxText),
		cel.ExpressionNodeLimit(maxNodes), cel.ExpressionNestingDepthLimit(maxDepth),
		function("within", cel.BoolType, cel.DynType, cel.StringType),
		function("older", cel.BoolType, cel.DynType, cel.StringType),
		function("distance_km", cel.DoubleType, cel.DynType, cel.DynType, cel.DynType),
		function("bucket", cel.DoubleType, cel.StringType, cel.DoubleType),
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
	parsed, issues := env.Parse(text)
	if err := firstOf(text, scope, issues); err != nil {
		return nil, err
	}
	source := ast.Copy(parsed.NativeRep())
	asChecked(parsed.NativeRep().Expr())
	checked, issues := env.Check(parsed)
	if err := firstOf(text, scope, issues); err != nil {
		return nil, err
	}
	c := compiler{scope: scope, source: source, typeOf: checked.NativeRep().GetType}
	if err := c.ofNegated(c.source.Expr()); err != nil {
		return nil, err
	}
	root, err := c.logic(c.source.Expr())
	if err != nil {
		return nil, err
	}
	if scope != Events {
		if c.origins, err = c.originsOf(c.source.Expr()); err != nil {
			return nil, err
		}
	}
	most := maxSteps
	if scope == Events {
		most = maxEventSteps
	}
	r := &Rule{
		root: root, most: most, comparisons: c.comparisons, reads: c.reads, touched: c.ofTraits(),
		size: len(text)*textSize + nodes(c.source.Expr())*nodeSize + c.size,
	}
	r.joins, r.joined = joins(root)
	r.traitParts, r.onlyTraitParts = traitPartsOf(c.source, c.source.Expr())
	return r, nil
}

// firstOf is the first of what is wrong.
func firstOf(text string, scope Scope, issues *cel.Issues) error {
	errs := issues.Errors()
	if len(errs) == 0 {
		return issues.Err()
	}
	first := slices.MinFunc(errs, func(a, b *cel.Error) int {
		return cmp.Or(cmp.Compare(a.Location.Line(), b.Location.Line()), cmp.Compare(a.Location.Column(), b.Location.Column()))
	})
	wrong := &Error{Line: max(first.Location.Line(), 1), Column: max(first.Location.Column()+1, 1), Detail: sentence(first.Message)}
	wrong.Detail += cure(text, scope, wrong)
	return wrong
}

// nameUnknown is what is said of a name that a rule does not know.
var nameUnknown = regexp.MustCompile(`^A rule knows nothing of the name '(.*)'\.$`)

// cure is a sentence that says what was meant where something is wrong; "" where that is hard to say.
func cure(text string, scope Scope, wrong *Error) string {
	line := []rune(strings.Split(text, "\n")[wrong.Line-1])
	at := min(wrong.Column-1, len(line))
	before, from := string(line[:at]), string(line[at:])
	if hyphened.MatchString(before) && beginsName.MatchString(from) {
		return ` A name with a hyphen is written traits["first-name"].`
	}
	if endsInNot.MatchString(before) {
		return " ! is not."
	}
	found := nameUnknown.FindStringSubmatch(wrong.Detail)
	if found == nil {
		return ""
	}
	name, traits := found[1], "traits."
	if scope == Events {
		traits = "data."
	}
	for _, known := range names {
		if strings.EqualFold(name, known) && name != known {
			return " It is written " + known + "."
		}
	}
	if strings.HasPrefix(from, name) && !slices.Contains(names, name) { // of a function its bracket is the place
		return " If it is a trait, write " + traits + name + ", and if it is a text, \"" + name + "\"."
	}
	return ""
}

var (
	hyphened   = regexp.MustCompile(`\pL-$`)
	beginsName = regexp.MustCompile(`^[\pL\d_]`)
	endsInNot  = regexp.MustCompile(`(?i)(^|[^\pL\d_.])not\s+$`)
	names      = []string{
		"traits", "user", "viewer", "data", "event_type", "has", "exists", "all", "size", "contains", "startsWith", "endsWith", "matches",
		"within", "older", "timestamp", "distance_km", "in_segment", "in_cluster", "granted", "interactions", "seen", "bucket",
	}
)

// asChecked writes a rule as the checker is to see it. It makes doubles of whole numbers, as all numbers of
// JSON are: to the checker 1 is none, and is not to be compared with 0.5. An index stays what it is. And it
// makes o.x of o["x"]: to the checker the one is anything, and the other of the first type that fits what it
// is added to, which is bytes.
func asChecked(of ast.Expr) {
	index := map[int64]bool{}
	ast.PostOrderVisit(of, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.Index {
			return
		}
		index[e.AsCall().Args()[1].ID()] = true
		if up, name := step(e); name != "" {
			e.SetKindCase(ast.NewExprFactory().NewSelect(e.ID(), up, name))
		}
	}))
	ast.PostOrderVisit(of, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind || index[e.ID()] {
			return
		}
		switch n := e.AsLiteral().(type) {
		case types.Int:
			e.SetKindCase(ast.NewExprFactory().NewLiteral(e.ID(), types.Double(n)))
		case types.Uint:
			e.SetKindCase(ast.NewExprFactory().NewLiteral(e.ID(), types.Double(n)))
		}
	}))
}

// What a byte of the text and a node of the tree take in memory, about.
const textSize, nodeSize = 4, 128

func nodes(e ast.Expr) (n int) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(ast.Expr) { n++ }))
	return n
}

// wording is what cel-go says of a text that is no rule, and what is said instead.
type wording struct {
	said    *regexp.Regexp
	instead string
}

// misread is of any text: what cel-go expected somewhere is a list of all that could begin a value.
var misread = []wording{
	{regexp.MustCompile(`^Syntax error: mismatched input '<EOF>'.*`), "The rule ends where something is missing"},
	{regexp.MustCompile(`^Syntax error: missing ('.*') at '<EOF>'.*`), "$1 is missing at the end"},
	{regexp.MustCompile(`^Syntax error: missing ('.*') at ('.*').*`), "$1 is missing before $2"},
	{regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input ('.*') expecting .*`), "$1 does not belong here"},
	{regexp.MustCompile(`^Syntax error: no viable alternative at input ('.*').*`), "$1 does not belong here"},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '=[<>].*`), "At least is written >=, and at most <="},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '[“”„‘’‚«»‹›].*`), `A text stands in plain quotes: "pro"`},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '=[^=].*`), "A comparison is written ==, not ="},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '[|&].*`), "What joins comparisons is written && or ||"},
	{regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)'.*`), "This cannot be read: $1"},
	{regexp.MustCompile(`^('(?i:and|or|not)') does not belong here`), "$1 does not belong here: && is and, || is or, ! is not"},
	{regexp.MustCompile(`^('(?i:like)') does not belong here`), "$1 does not belong here: texts are searched by contains, startsWith, endsWith and matches"},
	{regexp.MustCompile(`^('(?i:between)') does not belong here`), "$1 does not belong here: two comparisons are joined by &&"},
	{regexp.MustCompile(`^('(?i:is)') does not belong here`), "$1 does not belong here: == is is, and what is there is asked for by has(…)"},
	{regexp.MustCompile(`^('I[Nn]') does not belong here`), "$1 does not belong here: it is written in"},
	{regexp.MustCompile(`^(?:Expression recursion limit exceeded|[Mm]ax recursion depth exceeded|expression nesting depth).*`), fmt.Sprintf("A rule nests %d deep at most, and a sum as often as it has parts", maxDepth)},
	{regexp.MustCompile(`^expression node count exceeds limit.*`), fmt.Sprintf("A rule has %d names, values and operators at most", maxNodes)},
	{regexp.MustCompile(`^invalid u?int literal`), "A whole number has 18 digits at most: write a longer one with a point, such as 9223372036854775808.0"},
	{regexp.MustCompile(`^reserved identifier: (.*)`), "'$1' does not belong here"},
	{regexp.MustCompile(`^invalid double literal`), "There is no number as large as this"},
	{regexp.MustCompile(`^expected type 'bool' but found .*`), "What is joined, or asked by ! or ?, is true or false, which this never is"},
	{regexp.MustCompile(`^expression of type .* cannot be range of a comprehension.*`), "What exists and all ask is the elements of a list, which this never is"},
	{regexp.MustCompile(`^iteration variable overwrites accumulator variable`), "The elements take another name in exists and all"},
	{regexp.MustCompile(`^undeclared reference to '(?i:true|false)'.*`), "It is written true and false"},
	{regexp.MustCompile(`^undeclared reference to '(?i:null|nil|none|undefined)'.*`), "What is missing or null is asked for by has(…)"},
	{regexp.MustCompile(`^undeclared reference to '(?:exists|all)'.*`), `What exists and all take is a name, and what is asked of each element by it: traits.pets.exists(p, p.kind == "dog")`},
	{regexp.MustCompile(`^undeclared reference to ('.*?').*`), "A rule knows nothing of the name $1"},
	{regexp.MustCompile(`^type '.*' does not support field selection.*`), "Only an object has members"},
	{regexp.MustCompile(`^found no matching overload for '_%_' .*`), "There is no function % here"},
}

// mismatched is of operators and functions beside what they do not take. It holds names of types, which are
// said in our words, and nothing that a client has written.
var mismatched = []wording{
	{regexp.MustCompile(`^found no matching overload for`), "There is no"},
	{regexp.MustCompile(`'_\?_:_'`), "'? :'"},
	{regexp.MustCompile(`'_?([^' _]+)_'`), "'$1'"},
	{regexp.MustCompile(`'@in'`), "'in'"},
	{regexp.MustCompile(`\b(?:double|int|uint)\b`), "number"},
	{regexp.MustCompile(`\bstring\b`), "text"},
	{regexp.MustCompile(`\bdyn\b`), "any"},
	{regexp.MustCompile(`\bmap\(text, any\)`), "object"},
	{regexp.MustCompile(`\bgoogle\.protobuf\.Timestamp\b`), "time"},
}

// sentence makes one of what cel-go says.
func sentence(message string) string {
	message = strings.ReplaceAll(message, "\n", " ")
	all := misread
	if strings.HasPrefix(message, "found no matching overload for") {
		all = slices.Concat(misread, mismatched)
	}
	for _, s := range all {
		message = s.said.ReplaceAllString(message, s.instead)
	}
	message = strings.TrimRight(strings.TrimSpace(message), ".") + "."
	return strings.ToUpper(message[:1]) + message[1:]
}
