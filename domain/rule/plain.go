package rule

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
)

// plain compares a member of the traits with a text, a number, true or false, as most parts of
// rules do. It is what [surely] would be of the same expression, in as many steps.
type plain struct {
	member   string
	to       any
	weight   int // of to, see whole
	equality bool
	holds    func(order int) bool // what is equal has the order 0, and what is not 1
}

// plain is an expression that compares so; ok is false of any other.
func (c *compiler) plain(e ast.Expr) (p plain, ok bool) {
	call := e.AsCall()
	holds, compares := orders[call.FunctionName()]
	if !compares || call.Args()[0].Kind() != ast.SelectKind {
		return p, false
	}
	of := call.Args()[0].AsSelect()
	if of.IsTestOnly() || of.Operand().AsIdent() != AllTraits {
		return p, false
	}
	to := c.fixed(call.Args()[1])
	return plain{
		member: of.FieldName(), to: to, weight: whole([]any{to}), holds: holds,
		equality: call.FunctionName() == operators.Equals || call.FunctionName() == operators.NotEquals,
	}, to != nil
}

// orders say of comparisons in which order two values are where they hold.
var orders = map[string]func(order int) bool{
	operators.Equals:        func(order int) bool { return order == 0 },
	operators.NotEquals:     func(order int) bool { return order != 0 },
	operators.Less:          func(order int) bool { return order < 0 },
	operators.LessEquals:    func(order int) bool { return order <= 0 },
	operators.Greater:       func(order int) bool { return order > 0 },
	operators.GreaterEquals: func(order int) bool { return order >= 0 },
}

func (p plain) judge(j *judgement) Truth {
	if j.takes(1) {
		return Unknown
	}
	if j.takes(1) { // for the member
		return Unknown
	}
	v := j.Traits[p.member]
	if v == nil {
		return Unknown
	}
	weight := p.weight
	switch of := v.(type) {
	case string:
		weight += len(of) / 32
	case float64, bool:
	default:
		weight = whole([]any{v, p.to})
	}
	if j.takes(weight) {
		return Unknown
	}
	order, known := compare(v, p.to)
	switch {
	case known:
		return truth(p.holds(order))
	case p.equality:
		return truth(p.holds(1))
	default:
		return Unknown
	}
}
