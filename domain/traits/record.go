package traits

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

const (
	// MinHolders is how many sampled users must share a value before a schema
	// that is recorded names it.
	MinHolders = 10
	// MaxRecorded bounds the JSON of a recorded schema, in bytes.
	// limit: models | a schema of traits, as recorded | {MaxRecorded B}
	MaxRecorded = 256 << 10
)

// Recorded returns the schema as it is kept in the log, where it outlives the
// people that it was learnt from: without the levels that only few of them
// share, its extremes rounded outwards to powers of two, and small enough to
// be one event. Whoever uses a schema uses this form, so that the log
// holds exactly what was used.
func (s Schema) Recorded() Schema {
	kept := make([]Trait, len(s.Traits))
	for i, t := range s.Traits {
		t.Numbers.Min, t.Numbers.Max = -outwards(-t.Numbers.Min), outwards(t.Numbers.Max)
		t.Levels = t.Shared()
		kept[i] = t
	}
	s.Traits = kept
	for most := SetLevels; most > 0 && !s.fits(); most /= 2 {
		for i, t := range s.Traits {
			s.Traits[i].Levels = t.Levels[:min(len(t.Levels), most/2)]
		}
	}
	return s
}

// Kept returns the schema as a run keeps it, so that others can be read as its users
// were: what participates, in the same dimensions, without the names of levels that only
// few share, whose users count as holding a rare one. It is false where that is more
// than MaxRecorded.
func (s Schema) Kept() (kept Schema, ok bool) {
	kept = s
	kept.Traits = nil
	for _, t := range s.Traits {
		if !t.Participates() {
			continue
		}
		if t.Numbers.Min != t.Numbers.Max {
			t.Numbers.Min, t.Numbers.Max = -outwards(-t.Numbers.Min), outwards(t.Numbers.Max)
		} else {
			t.Numbers.Min, t.Numbers.Max = 0, 0 // that they are one says that the trait has no scale
		}
		t.Levels = slices.Clone(t.Levels)
		for i := len(t.Shared()); i < len(t.Levels); i++ {
			t.Levels[i] = Level{}
		}
		kept.Traits = append(kept.Traits, t)
	}
	return kept, kept.fits()
}

// Decode reads a schema that was recorded; the zero value of no document.
func Decode(recorded []byte) (s Schema, err error) {
	if len(recorded) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(recorded, &s); err != nil {
		return Schema{}, fmt.Errorf("decode a trait schema: %w", err)
	}
	return s, nil
}

// Shared are the levels that at least MinHolders sampled users hold.
func (t Trait) Shared() []Level {
	for i, level := range t.Levels { // the most frequent first
		if level.Count < MinHolders {
			return t.Levels[:i:i]
		}
	}
	return t.Levels
}

func (s Schema) fits() bool {
	text, err := json.Marshal(s)
	return err == nil && len(text) <= MaxRecorded
}

// outwards rounds up to the next power of two, or its negative down to
// nothing nearer to 0 than half of it.
func outwards(x float64) float64 {
	if x == 0 {
		return 0
	}
	fraction, exponent := math.Frexp(math.Abs(x)) // fraction in [0.5, 1)
	switch {
	case x < 0:
		return -math.Ldexp(0.5, exponent)
	case fraction == 0.5:
		return x
	}
	return math.Ldexp(1, exponent)
}
