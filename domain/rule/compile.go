package rule

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/parser"

	"kindred/domain/id"
	"kindred/domain/traits"
)

// compiler makes of a checked tree what judges.
type compiler struct {
	scope       Scope
	source      *ast.AST // as it was written
	typeOf      func(id int64) *types.Type
	comparisons []comparison
	reads
	element string // the name of the elements that are asked; "": none are
	counted bool   // interactions stands beside a number that it is compared with
	size    int    // bytes of the patterns so far; see patternSize
}

// read is what an expression reads.
func (c *compiler) read(e ast.Expr, name string) read {
	at := c.source.SourceInfo().GetStartLocation(e.ID())
	return read{name: name, line: max(at.Line(), 1), column: max(at.Column()+1, 1)}
}

func (c *compiler) wrong(e ast.Expr, detail string, args ...any) error {
	return c.read(e, "").wrong(fmt.Sprintf(detail, args...))
}

// logic compiles what is true or false.
func (c *compiler) logic(e ast.Expr) (logic, error) {
	if e.Kind() == ast.ComprehensionKind {
		return c.quantified(e)
	}
	if e.Kind() == ast.CallKind {
		args := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd, operators.LogicalOr:
			parts, err := each(args, c.logic)
			return all{parts, e.AsCall().FunctionName() == operators.LogicalOr}, err
		case operators.LogicalNot:
			of, err := c.logic(args[0])
			return not{of}, err
		case operators.Conditional:
			parts, err := each(args, c.logic)
			if err != nil {
				return nil, err
			}
			return choice{parts[0], parts[1], parts[2]}, nil
		}
	}
	v, err := c.value(e)
	if err != nil {
		return nil, err
	}
	if !c.mayBeTruth(e) {
		return nil, c.wrong(e, "A rule is true or false, which this never is.")
	}
	return c.explained(e, surely(v)), nil
}

// mayBeTruth says whether the type of an expression is bool, or not known before it is judged.
func (c *compiler) mayBeTruth(e ast.Expr) bool {
	if e.Kind() == ast.CallKind && slices.Contains(arithmetic, e.AsCall().FunctionName()) {
		return false
	}
	kind := c.typeOf(e.ID()).Kind()
	return kind == types.BoolKind || kind == types.DynKind
}

var arithmetic = []string{operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Negate}

// explained notes a comparison; those of a list's elements are explained together.
func (c *compiler) explained(e ast.Expr, l logic) logic {
	if c.element != "" {
		return l
	}
	text, err := parser.Unparse(e, c.source.SourceInfo())
	if err != nil {
		return l
	}
	made := comparison{text, c.look(e), l}
	c.comparisons = append(c.comparisons, made)
	return made
}

// quantified compiles list.exists(x, …) and list.all(x, …), of which cel-go makes a fold:
// accumulator || … from false, or accumulator && … from true.
func (c *compiler) quantified(e ast.Expr) (logic, error) {
	fold := e.AsComprehension()
	if c.element != "" {
		return nil, c.wrong(e, "exists and all may not stand in one another.")
	}
	if fold.HasIterVar2() || slices.Contains([]string{"traits", "user", "viewer", "data", "event_type"}, fold.IterVar()) {
		return nil, c.wrong(e, "exists and all take one name for the elements, which stands for nothing else.")
	}
	list, err := c.value(fold.IterRange())
	if err != nil {
		return nil, err
	}
	c.element = fold.IterVar()
	step := fold.LoopStep().AsCall()
	part, err := c.logic(step.Args()[1])
	c.element = ""
	if err != nil {
		return nil, err
	}
	return c.explained(e, quantified{list, all{[]logic{part}, step.FunctionName() == operators.LogicalOr}}), nil
}

// ofNegated refuses to ask anything of a negated number: nothing is true of it, and cel-go writes a part of a rule
// that does as text without its brackets, of which -traits.a.b is another one.
func (c *compiler) ofNegated(e ast.Expr) (err error) {
	ast.PostOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		var of ast.Expr
		switch e.Kind() {
		case ast.SelectKind:
			of = e.AsSelect().Operand()
		case ast.ComprehensionKind:
			of = e.AsComprehension().IterRange()
		case ast.CallKind:
			if call := e.AsCall(); call.IsMemberFunction() {
				of = call.Target()
			} else if call.FunctionName() == operators.Index {
				of = call.Args()[0]
			}
		}
		if err == nil && of != nil && of.AsCall().FunctionName() == operators.Negate {
			err = c.wrong(of, "What - makes is a number: it has no members, and is neither a text nor a list.")
		}
	}))
	return err
}

// each compiles several parts.
func each[T any](parts []ast.Expr, compile func(ast.Expr) (T, error)) ([]T, error) {
	made := make([]T, len(parts))
	for i, part := range parts {
		var err error
		if made[i], err = compile(part); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// value compiles what has a value.
func (c *compiler) value(e ast.Expr) (value, error) {
	if isWhole(e) {
		c.other(e, AllTraits)
	}
	switch e.Kind() {
	case ast.LiteralKind:
		v, err := c.literal(e)
		return constant(v), err
	case ast.IdentKind:
		return c.name(e)
	case ast.SelectKind:
		return c.member(e)
	case ast.ListKind:
		elements, err := each(e.AsList().Elements(), c.value)
		return of(elements, func(known []any) any { return slices.Clone(known) }), err
	case ast.CallKind:
		return c.call(e)
	case ast.ComprehensionKind:
		return c.truth(e)
	default:
		return nil, c.wrong(e, "A rule makes no objects.")
	}
}

// literal reads a value that stands in the rule. Numbers are doubles, as in JSON.
func (c *compiler) literal(e ast.Expr) (any, error) {
	switch v := e.AsLiteral().Value().(type) {
	case bool, string, float64:
		return v, nil
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	default:
		return nil, c.wrong(e, "There are numbers, texts, true and false. What is missing or null is asked for by has(…).")
	}
}

// other notes what is read beside paths of traits.
func (c *compiler) other(e ast.Expr, name string) { c.others = note(c.others, c.read(e, name)) }

// container compiles what a member is read of, which is not read itself where the member
// has a path.
func (c *compiler) container(e, member ast.Expr) (v value, err error) {
	before := len(c.paths)
	_, isPath := pathOf(member)
	switch {
	case e.Kind() == ast.IdentKind:
		v, err = c.name(e)
	case isWhole(e):
		v, err = c.member(e)
	default:
		v, err = c.value(e)
	}
	switch {
	case isPath:
		c.paths = c.paths[:before]
	case isWhole(e):
		c.other(e, AllTraits)
	}
	return v, err
}

// isWhole says whether an expression is all the traits of somebody.
func isWhole(e ast.Expr) bool {
	if e.Kind() == ast.SelectKind {
		of := e.AsSelect().Operand()
		return e.AsSelect().FieldName() == "traits" && of.Kind() == ast.IdentKind && of.AsIdent() == "viewer"
	}
	return e.Kind() == ast.IdentKind && e.AsIdent() == "traits"
}

// name compiles a name that a path begins with; which of them a scope has, its environment says.
func (c *compiler) name(e ast.Expr) (value, error) {
	switch name := e.AsIdent(); name {
	case c.element:
		return func(j *judgement) any { return j.element }, nil
	case "traits":
		return func(j *judgement) any { return object(j.Traits) }, nil
	case "data":
		return func(j *judgement) any { return object(j.Data) }, nil
	case "event_type":
		return func(j *judgement) any { return j.EventType }, nil
	default:
		return nil, c.wrong(e, "%s stands for nothing by itself.", name)
	}
}

func object(m map[string]any) any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// ofUser are the members of user.
var ofUser = map[string]value{
	"external_id": func(j *judgement) any {
		if j.ExternalID == "" {
			return nil
		}
		return j.ExternalID
	},
	"created_at": func(j *judgement) any { return j.CreatedAt },
	"updated_at": func(j *judgement) any { return j.UpdatedAt },
}

// member compiles a.b, and has(a.b), which is never unknown.
func (c *compiler) member(e ast.Expr) (value, error) {
	selected := e.AsSelect()
	from := selected.Operand()
	var v value
	switch from.AsIdent() { // elements have other names
	case "user":
		if v = ofUser[selected.FieldName()]; v == nil {
			return nil, c.wrong(e, "user has external_id, created_at and updated_at, and no %s.", selected.FieldName())
		}
		c.other(e, "user."+selected.FieldName())
	case "viewer":
		of := ofUser[selected.FieldName()]
		if selected.FieldName() == "traits" {
			of = func(j *judgement) any { return object(j.Traits) }
		} else {
			c.other(e, "viewer."+selected.FieldName())
		}
		if of == nil {
			return nil, c.wrong(e, "viewer has traits, external_id, created_at and updated_at, and no %s.", selected.FieldName())
		}
		v = func(j *judgement) any {
			if j.Viewer == nil {
				return nil
			}
			return of(&judgement{Facts: j.Viewer})
		}
	default:
		object, err := c.container(from, e)
		if err != nil {
			return nil, err
		}
		c.path(e)
		v = of([]value{object, constant(selected.FieldName())}, member)
	}
	if selected.IsTestOnly() {
		return func(j *judgement) any { return v(j) != nil }, nil
	}
	return v, nil
}

// path notes a path.
func (c *compiler) path(e ast.Expr) {
	if path, ok := pathOf(e); ok && path != "" {
		c.paths = note(c.paths, c.read(e, path))
	}
}

// step is a member, and what it is one of.
func step(e ast.Expr) (up ast.Expr, name string) {
	switch e.Kind() {
	case ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName()
	case ast.CallKind:
		if call := e.AsCall(); call.FunctionName() == operators.Index && call.Args()[1].Kind() == ast.LiteralKind {
			name, _ = call.Args()[1].AsLiteral().Value().(string)
			return call.Args()[0], name
		}
	}
	return nil, ""
}

// pathOf is where in the traits, or in an event's data, an expression reads.
func pathOf(e ast.Expr) (path string, ok bool) {
	switch {
	case e.Kind() == ast.IdentKind:
		return "", e.AsIdent() == "traits" || e.AsIdent() == "data"
	case isWhole(e):
		return "", true
	}
	up, name := step(e)
	if up == nil || name == "" {
		return "", false
	}
	path, ok = pathOf(up)
	if path != "" {
		name = path + "." + name
	}
	return name, ok
}

// truth compiles logic that stands where a value may.
func (c *compiler) truth(e ast.Expr) (value, error) {
	l, err := c.logic(e)
	return func(j *judgement) any {
		switch l.judge(j) {
		case True:
			return true
		case False:
			return false
		default:
			return nil
		}
	}, err
}

var comparing = []string{operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals}

// functions are of known values alone: what is missing makes them unknown.
var functions = map[string]func(known []any) any{
	operators.Equals: func(known []any) any { return equal(known[0], known[1]) },
	operators.NotEquals: func(known []any) any {
		if same, ok := equal(known[0], known[1]).(bool); ok {
			return !same
		}
		return nil
	},
	operators.Less:          ordered(func(order int) bool { return order < 0 }),
	operators.LessEquals:    ordered(func(order int) bool { return order <= 0 }),
	operators.Greater:       ordered(func(order int) bool { return order > 0 }),
	operators.GreaterEquals: ordered(func(order int) bool { return order >= 0 }),
	operators.In:            contains,
	operators.Index:         member,
	operators.Add:           add,
	operators.Subtract:      numbers(func(x, y float64) float64 { return x - y }),
	operators.Multiply:      numbers(func(x, y float64) float64 { return x * y }),
	operators.Divide:        numbers(func(x, y float64) float64 { return x / y }),
	operators.Negate:        negative,
	"dyn":                   func(known []any) any { return known[0] }, // whose type is not checked
	"size":                  size,
	"contains":              texts(func(s, t string) any { return strings.Contains(s, t) }),
	"startsWith":            texts(func(s, t string) any { return strings.HasPrefix(s, t) }),
	"endsWith":              texts(func(s, t string) any { return strings.HasSuffix(s, t) }),
}

func (c *compiler) call(e ast.Expr) (value, error) {
	call := e.AsCall()
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	switch name := call.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		return c.truth(e)
	case operators.Conditional:
		return c.choice(args)
	case "matches":
		return c.matches(args)
	case "timestamp":
		at, ok := moment(c.fixed(args[0]))
		if !ok {
			return nil, c.wrong(args[0], "timestamp takes a time in the rule itself, such as timestamp(\"2026-01-31T12:00:00Z\").")
		}
		return constant(at), nil
	case "within", "older":
		return c.window(name, args)
	case "distance_km":
		return c.distance(args)
	case "in_segment", "in_cluster", "granted":
		return c.in(e, name, args[0])
	case "interactions":
		return c.interactions(e, args)
	case "seen":
		return c.seen(e, args)
	case "bucket":
		if c.scope == Events {
			return nil, c.wrong(e, "bucket divides users, and this is about events.")
		}
		salt, isText := c.fixed(args[0]).(string)
		n, isNumber := c.fixed(args[1]).(float64)
		if !isText || !isNumber || n < 1 || n > 1e6 || n != math.Trunc(n) {
			return nil, c.wrong(args[1], "bucket takes a text and a whole number from 1 to 1,000,000 in the rule itself.")
		}
		return bucket(salt, uint64(n)), nil
	default:
		f := functions[name]
		if f == nil {
			return nil, c.wrong(e, "There is no function %s here.", strings.Trim(name, "_@"))
		}
		first := c.value
		if name == operators.Index {
			first = func(of ast.Expr) (value, error) { return c.container(of, e) }
		}
		known := make([]value, len(args))
		counted, err := c.count(name, args)
		if err != nil {
			return nil, err
		}
		c.counted = counted
		defer func() { c.counted = false }()
		for i, arg := range args {
			if known[i], err = first(arg); err != nil {
				return nil, err
			}
			first = c.value
		}
		if name == operators.Index {
			if c.fixed(args[1]) == nil {
				return nil, c.wrong(args[1], "What stands in [ ] is a text or a number in the rule itself.")
			}
			c.path(e)
		}
		if slices.Contains(comparing, name) {
			c.compares(args[0], args[1])
			c.compares(args[1], args[0])
		}
		if name == operators.Index || name == "dyn" { // which look at one thing
			return of(known, f), nil
		}
		return weighed(known, whole, f), nil
	}
}

// compares notes a path beside a value in the rule itself.
func (c *compiler) compares(e, with ast.Expr) {
	value := c.fixed(with)
	if with.Kind() == ast.CallKind && with.AsCall().FunctionName() == "timestamp" {
		value = time.Time{}
	}
	if _, isTime := moment(value); value != nil && !isTime && isTimeOfUser(e) {
		of, name := step(e)
		c.timeless = append(c.timeless, c.read(e, of.AsIdent()+"."+name))
	}
	c.meets(e, value)
}

// isTimeOfUser says whether an expression is a time that every user has.
func isTimeOfUser(e ast.Expr) bool {
	of, name := step(e)
	return of != nil && (of.AsIdent() == "user" || of.AsIdent() == "viewer") && (name == "created_at" || name == "updated_at")
}

// meets notes a path that a value, or a time, is held against.
func (c *compiler) meets(e ast.Expr, value any) {
	if path, ok := pathOf(e); ok && path != "" && !isHas(e) && value != nil {
		c.compared = append(c.compared, compared{c.read(e, path), value})
	}
}

// fixed is the value of an argument that stands in the rule; nil: it does not.
func (c *compiler) fixed(e ast.Expr) any {
	if e.Kind() != ast.LiteralKind {
		return nil
	}
	v, err := c.literal(e)
	if err != nil {
		return nil
	}
	return v
}

// in compiles what a user is in, by its id.
func (c *compiler) in(e ast.Expr, name string, arg ast.Expr) (value, error) {
	text, _ := c.fixed(arg).(string)
	var err error
	var example, of string
	var names *[]string
	var is func(*judgement) func(string) bool
	switch name {
	case "in_segment":
		_, err = id.Parse[id.Segment](text)
		example, of, names, is = "seg_", "segment", &c.segments, func(j *judgement) func(string) bool { return j.InSegment }
	case "in_cluster":
		_, err = id.Parse[id.Cluster](text)
		example, of, names, is = "clu_", "cluster", &c.clusters, func(j *judgement) func(string) bool { return j.InCluster }
	default:
		_, err = id.Parse[id.ConsentLayer](text)
		example, of, names, is = "lay_", "consent layer", &c.layers, func(j *judgement) func(string) bool { return j.Granted }
	}
	switch {
	case err != nil && text != "":
		return nil, c.wrong(arg, `%s takes the id of a %s, which begins with "%s": this is none.`, name, of, example)
	case err != nil:
		return nil, c.wrong(arg, `%s takes the id of a %s in the rule itself, such as "%s…".`, name, of, example)
	}
	c.other(e, name)
	*names = once(*names, text)
	return func(j *judgement) any {
		if in := is(j); in != nil {
			return in(text)
		}
		return nil
	}, nil
}

func once[T comparable](all []T, one T) []T {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

const (
	// MaxActs is how many interactions of a user and type are counted.
	// limit: models | newest interactions of a user and type that `interactions` of a rule counts | {MaxActs}
	MaxActs = 256
	// ActsKept is the longest window of interactions and seen.
	// limit: requests | a window of `interactions` and `seen` | 90 days | 422 `invalid`
	ActsKept = 90 * 24 * time.Hour
)

// Kinds are the types of interactions.
func Kinds() []string { return []string{"impression", "click", "dismiss", "conversion"} }

func (c *compiler) interactions(e ast.Expr, args []ast.Expr) (value, error) {
	kind, _ := c.fixed(args[0]).(string)
	window, ok := c.duration(args[1], ActsKept)
	switch {
	case !slices.Contains(Kinds(), kind):
		return nil, c.wrong(args[0], "interactions takes one of %s in the rule itself.", strings.Join(Kinds(), ", "))
	case !ok:
		return nil, c.wrong(args[1], `interactions takes a window of 90 days at most in the rule itself: a whole number of m, h, d or w, such as "7d".`)
	case !c.counted:
		return nil, c.wrong(e, `interactions is compared with a number in the rule itself, such as interactions("click", "7d") >= 2.`)
	}
	c.other(e, "interactions")
	c.acts = once(c.acts, kind)
	return interactions(kind, window), nil
}

func (c *compiler) seen(e ast.Expr, args []ast.Expr) (value, error) {
	campaign, _ := c.fixed(args[0]).(string)
	if _, err := id.Parse[id.Campaign](campaign); err != nil {
		return nil, c.wrong(args[0], `seen takes the id of a campaign in the rule itself, such as "cam_…".`)
	}
	window, ok := c.duration(args[1], ActsKept)
	if !ok {
		return nil, c.wrong(args[1], `seen takes a window of 90 days at most in the rule itself: a whole number of m, h, d or w, such as "30d".`)
	}
	c.other(e, "seen")
	c.acts = once(c.acts, campaign)
	return seen(campaign, window), nil
}

// mostCounted is with what a count may be compared so that the newest MaxActs decide.
var mostCounted = map[string]float64{
	operators.GreaterEquals: MaxActs, operators.Less: MaxActs,
	operators.Greater: MaxActs - 1, operators.LessEquals: MaxActs - 1, operators.Equals: MaxActs - 1, operators.NotEquals: MaxActs - 1,
}

// turned is a comparison of the other way round.
var turned = map[string]string{
	operators.Less: operators.Greater, operators.LessEquals: operators.GreaterEquals,
	operators.Greater: operators.Less, operators.GreaterEquals: operators.LessEquals,
}

// count refuses to compare a count of interactions with what it cannot tell.
func (c *compiler) count(comparison string, args []ast.Expr) (counted bool, err error) {
	isCount := func(e ast.Expr) bool { return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "interactions" }
	if len(args) != 2 || !isCount(args[0]) && !isCount(args[1]) {
		return false, nil
	}
	with := args[1]
	if !isCount(args[0]) {
		with = args[0]
		if other := turned[comparison]; other != "" {
			comparison = other
		}
	}
	most, compares := mostCounted[comparison]
	n, isNumber := c.fixed(with).(float64)
	if compares && (!isNumber || n > most) {
		return false, c.wrong(with, "The newest %d interactions are counted: they are compared so with a number in the rule itself of %.0f at most.", MaxActs, most)
	}
	return compares, nil
}

func (c *compiler) choice(args []ast.Expr) (value, error) {
	condition, err := c.logic(args[0])
	if err != nil {
		return nil, err
	}
	branches, err := each(args[1:], c.value)
	return func(j *judgement) any {
		switch condition.judge(j) {
		case True:
			return branches[0](j)
		case False:
			return branches[1](j)
		default:
			return nil
		}
	}, err
}

func (c *compiler) matches(args []ast.Expr) (value, error) {
	text, isText := c.fixed(args[1]).(string)
	if !isText {
		return nil, c.wrong(args[1], "matches takes a regular expression in the rule itself.")
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, c.wrong(args[1], "This is no regular expression (RE2): %v.", err)
	}
	if c.size += patternSize(parsed); c.size > maxPatterns { // before it is written out
		return nil, c.wrong(args[1], "The patterns of a rule take %d KiB at most once their repetitions are written out.", maxPatterns>>10)
	}
	pattern, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	in, err := c.value(args[0])
	return matching([]value{in}, pattern, len(program.Inst)), err
}

// A pattern is searched with as a program, in which each repetition is written out:
// `(a{100}){10}` is a thousand letters.
const (
	instructionSize = 64 // bytes
	rangeSize       = 32 // of a class of letters: where all is one way, it is copied several times
)

// patternSize is about how many bytes a pattern takes as a program.
func patternSize(p *syntax.Regexp) int {
	size := instructionSize
	switch p.Op {
	case syntax.OpLiteral:
		size = instructionSize * len(p.Rune)
	case syntax.OpCharClass:
		size += rangeSize * len(p.Rune) / 2
	}
	for _, part := range p.Sub {
		size += patternSize(part)
	}
	if p.Op == syntax.OpRepeat {
		size *= max(p.Min+1, p.Max)
	}
	return size
}

// windows are the units of a window.
var windows = map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// longestWindow is longer than anybody lives.
// limit: requests | a window of a rule, such as "30d" | 150 years | 422 `invalid`
const longestWindow = 150 * 365 * 24 * time.Hour

// duration reads a window that stands in the rule.
func (c *compiler) duration(e ast.Expr, longest time.Duration) (time.Duration, bool) {
	text, _ := c.fixed(e).(string)
	if text == "" {
		return 0, false
	}
	unit := windows[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if unit == 0 || err != nil || n == 0 || float64(n)*float64(unit) > float64(longest) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

func (c *compiler) window(name string, args []ast.Expr) (value, error) {
	window, ok := c.duration(args[1], longestWindow)
	if !ok {
		return nil, c.wrong(args[1], `%s takes a window in the rule itself: a whole number of m, h, d or w, such as "30d", and 150 years at most.`, name)
	}
	c.meets(args[0], time.Time{})
	when, err := c.value(args[0])
	if name == "older" {
		return older(when, window), err
	}
	return within(when, window), err
}

func (c *compiler) distance(args []ast.Expr) (value, error) {
	lat, isLat := c.fixed(args[1]).(float64)
	lon, isLon := c.fixed(args[2]).(float64)
	from, ok := traits.PlaceAt(lat, lon)
	if !isLat || !isLon || !ok {
		return nil, c.wrong(args[1], "distance_km takes a place, and a latitude and a longitude in the rule itself.")
	}
	place, err := c.value(args[0])
	return weighed([]value{place}, letters, distance(from)), err
}
