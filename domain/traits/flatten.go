// Package traits reads what clients say about their end users: free-form JSON
// becomes typed, bounded columns, and the same users give the same columns in
// whatever order they arrive.
//
// [Flatten] reads one user, [Infer] learns a [Schema] from many, and an
// [Encoder] turns a user into the vector that clustering works on. Nothing in
// here reads a clock, a database or a random source.
package traits

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The bounds of one user's traits. What lies beyond the first three is left
// out and counted in [Flat.Skipped]; what lies beyond the others is a value of
// kind [Other].
const (
	MaxDepth = 4 // keys from the root to a value
	// limit: client | traits of a user that are compared | {MaxPaths}, {MaxDepth} keys deep, with paths of {MaxPathBytes} bytes and texts of {MaxTextBytes} | the rest takes no part
	MaxPaths     = 256  // paths of one user, and of one schema
	MaxPathBytes = 256  // bytes of one dotted path
	MaxTextBytes = 256  // bytes of a string that can still be a level
	MaxMembers   = 1024 // distinct members of one set
	// limit: client | members of a user's sets that are compared | {MaxAllMembers}, of one set {MaxMembers} | the rest takes no part
	MaxAllMembers = 4096 // members of all sets of one user; sets beyond, in the order of paths, are of kind [Other]
	// limit: client | numbers that are compared | up to {MaxMagnitude} either way | they take no part
	MaxMagnitude = 1e150 // of a number: its square is still finite
)

// ErrNotObject says that traits were not one well-formed JSON object. It holds
// no part of the input.
var ErrNotObject = errors.New("traits are not a JSON object")

// Kind is the JSON shape of one value.
type Kind uint8

// The kinds of value. A null counts as no value and never leaves [Flatten].
const (
	null Kind = iota
	Bool
	Number
	Text
	Set   // an array of scalars
	Geo   // an object that holds lat and lon (or lng), in range
	Other // there, but nothing that can be compared: too long, too large, nested
)

// Value is one trait of one user.
type Value struct {
	Path   string
	Kind   Kind
	Pair   bool     // a Set that was an array of two numbers, Number and Lon
	Number float64  // of Number; 0 or 1 of Bool; degrees north of Geo
	Lon    float64  // degrees east of Geo
	Text   string   // of Text
	Set    []string // of Set: sorted, distinct, compared by their text
}

// Flat is one user's traits by dotted path.
type Flat struct {
	Values  []Value // sorted by path, each path once
	Skipped int     // paths beyond the bounds, which take part in nothing
}

// Get returns the value at path.
func (f Flat) Get(path string) (Value, bool) {
	i, ok := slices.BinarySearchFunc(f.Values, path, func(v Value, p string) int { return strings.Compare(v.Path, p) })
	if !ok {
		return Value{}, false
	}
	return f.Values[i], true
}

// Flatten reads one JSON object into dotted paths, in time linear in the input
// but for one sort.
//
//   - An array of scalars is a set of their texts (nulls left out), and keeps
//     two numbers, which may be a place; an array that holds an object or an
//     array is [Other].
//   - An object below the root that holds the numbers lat and lon (or lng) is
//     one [Geo] value at its own path; its other keys stay paths.
//   - A string stays a string, whatever it spells. A number that is larger than
//     [MaxMagnitude] is [Other].
//   - A key with dots spells the same path as nested objects do. Where a path
//     is spelled twice, by that or by a repeated key, the last value counts.
//   - Empty keys are skipped. Bytes that are not UTF-8 read as U+FFFD.
//
// The texts of the result may share memory with one copy of doc.
func Flatten(doc []byte) (Flat, error) {
	if !json.Valid(doc) {
		return Flat{}, ErrNotObject
	}
	r := reader{doc: string(doc)}
	if r.peek() != '{' {
		return Flat{}, ErrNotObject
	}
	r.out = make([]Value, 0, 16)
	r.object("", 1)
	return r.normalized(), nil
}

// normalized sorts by path, keeps the last value of each and drops the nulls and
// what is beyond MaxPaths.
func (r *reader) normalized() Flat {
	slices.SortStableFunc(r.out, func(a, b Value) int { return strings.Compare(a.Path, b.Path) })
	kept := r.out[:0]
	for i, v := range r.out {
		if i+1 < len(r.out) && r.out[i+1].Path == v.Path || v.Kind == null {
			continue
		}
		kept = append(kept, v)
	}
	over := max(0, len(kept)-MaxPaths)
	kept = kept[:len(kept)-over]
	members := 0
	for i, v := range kept {
		if members += len(v.Set); members > MaxAllMembers {
			members -= len(v.Set)
			kept[i] = Value{Path: v.Path, Kind: Other}
		}
	}
	return Flat{Values: slices.Clip(kept), Skipped: r.skipped + over}
}

// Bytes is about how much memory the traits take.
func (f Flat) Bytes() int {
	const value, text = 104, 16
	size := 0
	for _, v := range f.Values {
		size += value + len(v.Path) + len(v.Text)
		for _, member := range v.Set {
			size += text + len(member)
		}
	}
	return size
}

// reader walks a document that json.Valid has accepted, so that it never has
// to ask whether a token is there.
type reader struct {
	doc     string
	at      int
	out     []Value
	skipped int
}

// peek skips white space and returns the byte after it.
func (r *reader) peek() byte {
	for {
		switch c := r.doc[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
}

// object reads the object that starts here; its members lie depth keys below
// the root. One level beyond MaxDepth is still read, because a place may lie
// there.
func (r *reader) object(path string, depth int) {
	start := len(r.out)
	var lat, lon bool
	r.at++ // {
	for c := r.peek(); c != '}'; c = r.peek() {
		if c == ',' {
			r.at++
			r.peek()
		}
		key := r.text()
		r.peek()
		r.at++ // :
		member := key
		if path != "" {
			member = path + "." + key
		}
		if key == "" || len(member) > MaxPathBytes {
			r.skip()
			r.skipped++
			continue
		}
		lat = lat || key == "lat"
		lon = lon || key == "lon" || key == "lng"
		r.value(member, depth)
	}
	r.at++ // }

	if lat && lon && path != "" {
		r.foldPlace(path, start)
	}
	if depth > MaxDepth {
		kept := start
		if last := len(r.out) - 1; last >= start && r.out[last].Path == path {
			r.out[start] = r.out[last] // a place, which has its object's path
			kept++
		}
		r.skipped += len(r.out) - kept
		r.out = r.out[:kept]
	}
}

func (r *reader) value(path string, depth int) {
	v := Value{Path: path}
	switch c := r.peek(); c {
	case '{':
		if depth > MaxDepth {
			r.skip()
			r.skipped++
			return
		}
		r.object(path, depth+1)
		return
	case '[':
		r.set(&v)
	case '"':
		v.Kind, v.Text = Text, r.text()
		if len(v.Text) > MaxTextBytes {
			v.Kind, v.Text = Other, ""
		}
	case 't', 'f':
		v.Kind = Bool
		if c == 't' {
			v.Number = 1
		}
		r.skip()
	case 'n':
		r.skip()
	default:
		v.Kind, v.Number = r.number()
	}
	r.out = append(r.out, v)
}

// foldPlace turns the coordinates among the members of the object at path,
// which begin at start, into one value.
func (r *reader) foldPlace(path string, start int) {
	var place [3]Value // the last of each name
	names := [3]string{"lat", "lon", "lng"}
	coordinate := func(v Value) int { return slices.Index(names[:], v.Path[len(path)+1:]) }
	for _, v := range r.out[start:] {
		if i := coordinate(v); i >= 0 {
			place[i] = v
		}
	}
	lat, lon := place[0], place[1]
	if lon.Kind != Number {
		lon = place[2]
	}
	if lat.Kind != Number || lon.Kind != Number {
		return
	}
	members := slices.DeleteFunc(r.out[start:], func(v Value) bool { return coordinate(v) >= 0 })
	v := Value{Path: path, Kind: Geo, Number: lat.Number, Lon: lon.Number}
	if math.Abs(v.Number) > 90 || math.Abs(v.Lon) > 180 {
		v = Value{Path: path, Kind: Other}
	}
	r.out = append(r.out[:start+len(members)], v)
}

// set reads the array that starts here.
func (r *reader) set(v *Value) {
	start := r.at
	members, numbers := []string{}, [2]float64{}
	n := 0 // numbers, while there is nothing else
	other := func() {
		r.at = start
		r.skip()
		*v = Value{Path: v.Path, Kind: Other}
	}
	r.at++ // [
	for c := r.peek(); c != ']'; c = r.peek() {
		switch c {
		case ',':
			r.at++
		case '{', '[':
			other()
			return
		case '"':
			text := r.text()
			if len(text) > MaxTextBytes {
				other()
				return
			}
			members, n = append(members, text), len(numbers)+1
		case 't', 'f', 'n':
			word := r.at
			r.skip()
			if n = len(numbers) + 1; c != 'n' {
				members = append(members, r.doc[word:r.at])
			}
		default:
			kind, number := r.number()
			if kind != Number {
				other()
				return
			}
			if n < len(numbers) {
				numbers[n] = number
			}
			members = append(members, numberText(number))
			n++
		}
	}
	r.at++ // ]
	if members = sortedSet(members); len(members) > MaxMembers {
		v.Kind = Other
		return
	}
	v.Kind, v.Set = Set, members
	if v.Pair = n == len(numbers); v.Pair {
		v.Number, v.Lon = numbers[0], numbers[1]
	}
}

func sortedSet(members []string) []string {
	slices.Sort(members)
	return slices.Compact(members)
}

// number reads the number that starts here.
func (r *reader) number() (Kind, float64) {
	start := r.at
	r.skip()
	x, err := strconv.ParseFloat(r.doc[start:r.at], 64)
	if err != nil || math.Abs(x) > MaxMagnitude {
		return Other, 0
	}
	return Number, x + 0 // -0 reads as 0
}

// numberText is how a number reads where it is a member or a level.
func numberText(x float64) string {
	if abs := math.Abs(x); abs >= 1e21 || abs > 0 && abs < 1e-6 {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// text reads the string that starts here.
func (r *reader) text() string {
	start := r.at
	r.skip()
	raw := r.doc[start+1 : r.at-1]
	if strings.IndexByte(raw, '\\') < 0 && utf8.ValidString(raw) {
		return raw
	}
	var s string
	if json.Unmarshal([]byte(r.doc[start:r.at]), &s) != nil {
		return "" // not reached: the whole document was valid
	}
	return s
}

// skip passes over one value of any shape, without recursion.
func (r *reader) skip() {
	for depth := 0; ; {
		switch r.peek() {
		case '{', '[':
			depth++
			r.at++
		case '}', ']':
			depth--
			r.at++
		case ',', ':':
			r.at++
			continue
		case '"':
			for r.at++; r.doc[r.at] != '"'; r.at++ {
				if r.doc[r.at] == '\\' {
					r.at++
				}
			}
			r.at++
		default:
			for r.at < len(r.doc) && strings.IndexByte(" \t\r\n,:{}[]\"", r.doc[r.at]) < 0 {
				r.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}
