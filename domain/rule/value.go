package rule

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"kindred/domain/traits"
)

// value computes a part of a rule: a bool, float64, string, time.Time, []any or
// map[string]any; nil where it is unknown.
type value func(j *judgement) any

func constant(v any) value { return func(*judgement) any { return v } }

// of makes a value of what is known of other values alone.
func of(args []value, f func(known []any) any) value { return weighed(args, nil, f) }

// weighed is of for what takes as many steps more as weight says.
func weighed(args []value, weight func(known []any) int, f func(known []any) any) value {
	return func(j *judgement) any {
		if j.takes(1) {
			return nil
		}
		at := len(j.args)
		defer func() { j.args = j.args[:at] }()
		for _, arg := range args {
			v := arg(j)
			if v == nil {
				return nil
			}
			j.args = append(j.args, v)
		}
		known := j.args[at:]
		if weight != nil && j.takes(weight(known)) {
			return nil
		}
		return f(known)
	}
}

// whole is what it takes to look at all of some values.
func whole(known []any) (steps int) {
	for _, v := range known {
		if steps > maxSteps {
			break
		}
		switch v := v.(type) {
		case string:
			steps += len(v) / 32
		case []any:
			steps += len(v) + whole(v)
		case map[string]any:
			for name, of := range v {
				if steps > maxSteps {
					break
				}
				steps += 1 + len(name)/32 + whole([]any{of})
			}
		}
	}
	return steps
}

// numbers makes a value of two numbers. What is no number, such as 1 / 0, is unknown.
func numbers(f func(x, y float64) float64) func([]any) any {
	return func(known []any) any {
		x, isX := known[0].(float64)
		y, isY := known[1].(float64)
		if !isX || !isY {
			return nil
		}
		return finite(f(x, y))
	}
}

func finite(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return x
}

// texts makes a value of two texts.
func texts(f func(s, t string) any) func([]any) any {
	return func(known []any) any {
		s, isS := known[0].(string)
		t, isT := known[1].(string)
		if !isS || !isT {
			return nil
		}
		return f(s, t)
	}
}

// ordered makes a value of how two values stand in order. Of two types nothing is known.
func ordered(f func(order int) bool) func([]any) any {
	return func(known []any) any {
		order, ok := compare(known[0], known[1])
		if !ok {
			return nil
		}
		return f(order)
	}
}

// compare says how two values stand in order; beside a time, a text is one, too.
func compare(x, y any) (order int, ok bool) {
	switch x := x.(type) {
	case float64:
		y, ok := y.(float64)
		return cmp.Compare(x, y), ok
	case string:
		switch y := y.(type) {
		case string:
			return strings.Compare(x, y), true
		case time.Time:
			at, ok := moment(x)
			return at.Compare(y), ok
		default:
			return 0, false
		}
	case time.Time:
		at, ok := moment(y)
		return x.Compare(at), ok
	case bool:
		y, ok := y.(bool)
		switch {
		case x == y:
			return 0, ok
		case x:
			return 1, ok
		default:
			return -1, ok
		}
	default:
		return 0, false
	}
}

// equal says whether two values are the same: true, false, or nil, unknown. Those of two types
// never are. A member that is missing is none; an element that is missing may be anything.
func equal(x, y any) any {
	if x == nil || y == nil {
		return nil
	}
	var all any = true
	switch x := x.(type) {
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			switch equal(x[i], y[i]) {
			case false:
				return false
			case nil:
				all = nil
			}
		}
		return all
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || members(x) != members(y) {
			return false
		}
		for k, v := range x {
			switch same := equal(v, y[k]); {
			case v == nil:
			case same == false, y[k] == nil:
				return false
			case same == nil:
				all = nil
			}
		}
		return all
	default:
		order, ok := compare(x, y)
		return ok && order == 0
	}
}

// contains says whether a value stands in a list, or names a member of an object.
// Nothing stands in anything else. Elements that are missing are passed over.
func contains(known []any) any {
	switch in := known[1].(type) {
	case []any:
		var found any = false
		for _, v := range in {
			switch same := equal(known[0], v); {
			case same == true:
				return true
			case same == nil && v != nil:
				found = nil
			}
		}
		return found
	case map[string]any:
		name, ok := known[0].(string)
		return ok && in[name] != nil
	default:
		return false
	}
}

// member is a member of an object, or an element of a list.
func member(known []any) any {
	switch in := known[0].(type) {
	case map[string]any:
		if name, ok := known[1].(string); ok {
			return in[name]
		}
	case []any:
		if at, ok := known[1].(float64); ok && at >= 0 && at < float64(len(in)) && at == math.Trunc(at) {
			return in[int(at)]
		}
	}
	return nil
}

// size counts characters, elements, or the members that are there.
func size(known []any) any {
	switch v := known[0].(type) {
	case string:
		return float64(utf8.RuneCountInString(v))
	case []any:
		return float64(len(v))
	case map[string]any:
		return float64(members(v))
	default:
		return nil
	}
}

// members counts those that are there.
func members(of map[string]any) (n int) {
	for _, v := range of {
		if v != nil {
			n++
		}
	}
	return n
}

// add adds numbers, and joins texts and lists.
func add(known []any) any {
	switch x := known[0].(type) {
	case float64:
		if y, ok := known[1].(float64); ok {
			return finite(x + y)
		}
	case string:
		if y, ok := known[1].(string); ok {
			return x + y
		}
	case []any:
		if y, ok := known[1].([]any); ok {
			return slices.Concat(x, y)
		}
	}
	return nil
}

func negative(known []any) any {
	if x, ok := known[0].(float64); ok {
		return -x
	}
	return nil
}

// matching finds a pattern in a text. At its worst that takes a look at every
// instruction of the pattern's program for each byte.
func matching(args []value, pattern *regexp.Regexp, instructions int) value {
	return weighed(args, func(known []any) int {
		s, _ := known[0].(string)
		return len(s) * instructions
	}, func(known []any) any {
		if s, ok := known[0].(string); ok {
			return pattern.MatchString(s)
		}
		return nil
	})
}

// letters is what it takes to read a text as something else; of any other value little is looked at.
func letters(known []any) int {
	s, _ := known[0].(string)
	return len(s) / 32
}

// moment reads the time of a value.
func (j *judgement) moment(of value) (at time.Time, ok bool) {
	v := of(j)
	if j.takes(letters([]any{v})) {
		return time.Time{}, false
	}
	return moment(v)
}

// within is true in the window that ends now, and older before it.
func within(when value, window time.Duration) value {
	return func(j *judgement) any {
		at, ok := j.moment(when)
		if !ok {
			return nil
		}
		return j.in(at, window)
	}
}

// interactions counts those of a kind that happened in the window that ends now.
func interactions(kind string, window time.Duration) value {
	return func(j *judgement) any {
		if j.Acts == nil {
			return nil
		}
		acts, n := j.Acts(kind), 0
		if j.takes(1 + len(acts)/4) {
			return nil
		}
		for _, at := range acts {
			if j.in(at, window) {
				n++
			}
		}
		return float64(n)
	}
}

// seen is true where a campaign was seen in the window that ends now.
func seen(campaign string, window time.Duration) value {
	return func(j *judgement) any {
		if j.Acts == nil {
			return nil
		}
		times := j.Acts(campaign)
		return len(times) > 0 && j.in(times[len(times)-1], window)
	}
}

// in says whether a moment is in the window that ends now.
func (j *judgement) in(at time.Time, window time.Duration) bool {
	end := at.Add(window)
	switch {
	case j.Now.Before(at):
		j.flips(at)
		return false
	case j.Now.Before(end):
		j.flips(end)
		return true
	default:
		return false
	}
}

func older(when value, window time.Duration) value {
	return func(j *judgement) any {
		at, ok := j.moment(when)
		if !ok {
			return nil
		}
		end := at.Add(window)
		if j.Now.Before(end) {
			j.flips(end)
			return false
		}
		return true
	}
}

func distance(from traits.Point) func([]any) any {
	return func(known []any) any {
		if place, ok := traits.PlaceOf(known[0]); ok {
			return place.Km(from)
		}
		return nil
	}
}

// bucket divides users evenly, and by another salt in another way. It has one answer
// for a user for ever.
func bucket(salt string, n uint64) value {
	return func(j *judgement) any {
		if j.takes(len(salt) / 32) {
			return nil
		}
		var room [128]byte // of the stack
		text := append(append(room[:0], j.Client...), 0)
		text = append(append(text, salt...), 0)
		sum := sha256.Sum256(append(text, j.ID...))
		return float64(binary.BigEndian.Uint64(sum[:8]) % n)
	}
}
