package traits

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
)

// All decodes a JSON object as encoding/json does, but for numbers that no float64 holds: they
// are unknown, nil.
func All(doc []byte) (map[string]any, error) {
	var all map[string]any
	err := json.Unmarshal(doc, &all)
	return all, butForNumbers(err)
}

// butForNumbers is an error of encoding/json, unless that is of a number that no float64 holds:
// in its place nil was decoded, and everything else.
func butForNumbers(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Type.Kind() == reflect.Float64 {
		return nil
	}
	return err
}

// Members decodes those members of a JSON object that are wanted, as [All] does, and passes
// over the others. The error is [ErrNotObject].
func Members(doc []byte, wanted func(name string) bool) (map[string]any, error) {
	all, err := membersOf(doc)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m member) bool { return !wanted(m.name) })
	members := make(map[string]any, len(all))
	for _, m := range all {
		if members[m.name], err = decoded(m.value); err != nil {
			return nil, err
		}
	}
	return members, nil
}

// Differing names the members that are not written alike in two JSON objects. The error is
// [ErrNotObject].
func Differing(one, other []byte) (names []string, err error) {
	before, err := membersOf(one)
	if err != nil {
		return nil, err
	}
	after, err := membersOf(other)
	if err != nil {
		return nil, err
	}
	inBefore, inAfter := places{of: before}, places{of: after}
	for i, m := range after {
		if at, there := inBefore.find(m.name, i); !there || before[at].value != m.value {
			names = append(names, m.name)
		}
	}
	for i, m := range before {
		if _, there := inAfter.find(m.name, i); !there {
			names = append(names, m.name)
		}
	}
	return names, nil
}

// places finds members by their names.
type places struct {
	of []member
	by map[string]int // nil: each stood where it was likely so far
}

func (p *places) find(name string, likely int) (at int, there bool) {
	if likely < len(p.of) && p.of[likely].name == name {
		return likely, true
	}
	if p.by == nil {
		p.by = make(map[string]int, len(p.of))
		for i, m := range p.of {
			p.by[m.name] = i
		}
	}
	at, there = p.by[name]
	return at, there
}

// member is one of a JSON object, with its value as it is written.
type member struct{ name, value string }

func membersOf(doc []byte) ([]member, error) {
	if !json.Valid(doc) {
		return nil, ErrNotObject
	}
	return membersIn(string(doc))
}

// membersIn is membersOf of what is known to be JSON.
func membersIn(doc string) ([]member, error) {
	r := reader{doc: doc}
	if r.peek() != '{' {
		return nil, ErrNotObject
	}
	r.at++
	found := make([]member, 0, 32)
	for c := r.peek(); c != '}'; c = r.peek() {
		if c == ',' {
			r.at++
			r.peek()
		}
		name := r.text()
		r.peek()
		r.at++ // :
		r.peek()
		start := r.at
		r.skip()
		found = append(found, member{name, r.doc[start:r.at]})
	}
	return found, nil
}

// decoded is a JSON value, of which the plain kinds need no decoder.
func decoded(value string) (v any, err error) {
	switch value[0] {
	case '"':
		return (&reader{doc: value}).text(), nil
	case 't', 'f':
		return value == "true", nil
	case 'n':
		return nil, nil //nolint:nilnil // null is nil
	case '{', '[':
	default:
		if x, err := strconv.ParseFloat(value, 64); err == nil {
			return x, nil
		}
	}
	err = json.Unmarshal([]byte(value), &v)
	return v, butForNumbers(err)
}
