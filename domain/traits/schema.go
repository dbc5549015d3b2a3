package traits

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Type is what a schema reads at a path.
type Type string

// The types of a path. An excluded one (free text, ids, addresses) stays in
// the schema, so that a client can see it and declare it to be something else.
const (
	TypeBool     Type = "bool"
	TypeNumber   Type = "number"
	TypeDate     Type = "date" // counted in days since 1970-01-01 UTC
	TypeGeo      Type = "geo"
	TypeSet      Type = "set"
	TypeCategory Type = "category"
	TypeExcluded Type = "excluded"
)

// MaxWeight is the largest weight of a trait; the default is 1.
// limit: models | weight of a trait | {MaxWeight}
const MaxWeight = 10

// Schema is what one version of a client's traits looks like. It is plain
// data: it survives JSON unchanged. Its levels are values of real people, so
// it is to be kept as carefully as the traits themselves.
type Schema struct {
	Version int     `json:"version"`
	Sampled int     `json:"sampled"` // users that it was learnt from
	Traits  []Trait `json:"traits"`  // sorted by path
	Skipped int     `json:"skipped"` // paths beyond MaxPaths, the rarest, and those that were cut off the user with the most beyond its bounds
	Edition int     `json:"edition,omitempty"`
}

// Edition is the form of what is learnt now. A schema of an older one lacks
// something that comparisons need, or keeps too much, and is learnt anew.
const Edition = 4 // 1 told what is to be expected of two users, 2 how values are read, 3 counts nothing that neither has said, 4 tells nobody's number

// Trait is one path of a schema.
type Trait struct {
	Path      string  `json:"path"`
	Type      Type    `json:"type"`
	Declared  bool    `json:"declared,omitempty"` // the client chose the type
	Weight    float64 `json:"weight"`
	Ignored   bool    `json:"ignored,omitempty"`
	Sensitive bool    `json:"sensitive,omitempty"`
	Known     int     `json:"known"`             // sampled users with a value of any kind that does not stand for nothing
	Numbers   Numbers `json:"numbers,omitzero"`  // of number and date
	Series    Numbers `json:"series,omitzero"`   // of all numbers of its series together, where it is in one
	Levels    []Level `json:"levels,omitempty"`  // of category and set: the most frequent, then by name
	Distinct  int     `json:"distinct,omitzero"` // levels before they were cut
	Expected  float64 `json:"expected,omitzero"` // similarity of two random users who have it

	Rules     int         `json:"rules,omitempty"`     // by which its values are read; 0 before there were formats
	Format    Format      `json:"format,omitempty"`    // how they spell the type
	Sentinels []float64   `json:"sentinels,omitempty"` // numbers that stand for nothing
	Countries bool        `json:"countries,omitempty"` // codes of two letters: NA is one
	Because   Because     `json:"because,omitempty"`   // the type and the format are these
	Firm      bool        `json:"firm,omitempty"`      // they stay, whatever is learnt
	Suggested *Suggestion `json:"suggested,omitempty"` // what would be, had it not been kept
}

// Level is one value of a category, or one member of a set.
type Level struct {
	Name  string `json:"name"`
	Count int    `json:"count"` // sampled users that hold it
}

// Numbers describes the sampled values of a number or a date, as describeNumbers keeps them.
type Numbers struct {
	Min   float64 `json:"min"`
	P1    float64 `json:"p1"`
	P25   float64 `json:"p25"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	SD    float64 `json:"sd"`
	LogSD float64 `json:"log_sd"` // of log(1+x); 0 where a value is negative
}

// Span is the distance over which two numbers become wholly unlike.
func (n Numbers) Span() float64 { return n.P99 - n.P1 }

// Participates tells whether the trait may take part in anything: in matches,
// in clusters and in their explanations.
func (t Trait) Participates() bool {
	return t.Type != TypeExcluded && !t.Ignored && !t.Sensitive && t.Weight > 0
}

// Decide returns the schema under other overrides than those it was inferred
// under. It is false where a path is to have another type: then what its values
// are like has to be learnt anew.
func (s Schema) Decide(overrides map[string]Override) (Schema, bool) {
	decided := make([]Trait, len(s.Traits))
	for i, t := range s.Traits {
		before, declared := t.Type, t.Declared
		t.decide(overrides)
		if t.Type != before || t.Declared != declared {
			return Schema{}, false
		}
		decided[i] = t
	}
	s.Traits = decided
	return s, true
}

// Restrict returns the schema with the permitted paths alone, as a consent
// layer asks for.
func (s Schema) Restrict(permit func(path string) bool) Schema {
	permitted := make([]Trait, 0, len(s.Traits))
	for _, t := range s.Traits {
		if permit(t.Path) {
			permitted = append(permitted, t)
		}
	}
	s.Traits = permitted
	return s
}

// Read returns what f says about the trait, as a value of the trait's type: a
// date as a Number of days, a category as Text. False where f says nothing or
// something of another type. A type that the client declared also reads the
// scalars that spell such a value: the number 8001 as a category, the string
// "42" as a number.
func (t Trait) Read(f Flat) (Value, bool) {
	v, ok := f.Get(t.Path)
	if !ok {
		return Value{}, false
	}
	return t.convert(v)
}

func (t Trait) convert(v Value) (Value, bool) {
	if t.Rules >= formatsSince {
		if v.Kind == Text && standsForNothing(v.Text, t.Countries, t.Rules) {
			return Value{}, false
		}
		if v.Kind == Set && slices.ContainsFunc(v.Set, func(m string) bool { return standsForNothing(m, t.Countries, t.Rules) }) {
			v.Set = slices.DeleteFunc(slices.Clone(v.Set), func(m string) bool { return standsForNothing(m, t.Countries, t.Rules) })
		}
		if !v.Pair || t.Rules >= pairsSince {
			v = t.Format.read(v)
		}
	}
	if t.Declared {
		v = v.declaredAs(t.Type)
	}
	switch t.Type {
	case TypeBool:
		return v, v.Kind == Bool
	case TypeNumber:
		return v, v.Kind == Number && !slices.Contains(t.Sentinels, v.Number)
	case TypeGeo:
		return v, v.Kind == Geo
	case TypeSet:
		return v, v.Kind == Set
	case TypeCategory:
		return v, v.Kind == Text
	case TypeDate:
		days, ok := t.Format.days(v)
		return Value{Path: v.Path, Kind: Number, Number: days}, ok && !slices.Contains(t.Sentinels, days)
	}
	return Value{}, false
}

func (v Value) declaredAs(t Type) Value {
	switch {
	case t == TypeCategory && v.Kind == Number:
		v.Kind, v.Text = Text, numberText(v.Number)
	case t == TypeCategory && v.Kind == Bool:
		v.Kind, v.Text = Text, strconv.FormatBool(v.Number != 0)
	case t == TypeNumber && v.Kind == Text:
		if x, err := strconv.ParseFloat(v.Text, 64); err == nil && math.Abs(x) <= MaxMagnitude {
			v.Kind, v.Number = Number, x
		}
	}
	return v
}

// days reads an RFC 3339 time or a YYYY-MM-DD date as days since 1970-01-01 UTC.
func (v Value) days() (float64, bool) {
	layout := time.RFC3339
	if len(v.Text) == len(time.DateOnly) {
		layout = time.DateOnly
	}
	if v.Kind != Text || len(v.Text) < len(time.DateOnly) || v.Text[4] != '-' {
		return 0, false // most strings are no date, and a failed parse is dear
	}
	at, err := time.Parse(layout, v.Text)
	if err != nil {
		return 0, false
	}
	return daysOf(at), true
}

func daysOf(t time.Time) float64 {
	return (float64(t.Unix()) + float64(t.Nanosecond())/1e9) / (24 * 60 * 60)
}
