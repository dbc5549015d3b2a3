package clustering

import (
	"math"
	"strconv"
	"time"

	"kindred/domain/traits"
)

// reading is what one user says about one trait.
type reading struct {
	known  bool
	number float64  // of number, and of date in days before the run's as-of
	day    float64  // of date, in days since 1970-01-01 UTC
	levels []string // of all other types; of a set any number
}

// reader reads the users of one run.
type reader struct {
	traits []traits.Trait // those that participate, sorted by path
	known  []map[string]bool
	asOf   float64 // days since 1970-01-01 UTC
}

func newReader(s traits.Schema, asOf time.Time) reader {
	r := reader{asOf: float64(asOf.Unix()) / (24 * 60 * 60)}
	for _, t := range s.Traits {
		if !t.Participates() {
			continue
		}
		known := make(map[string]bool, len(t.Levels))
		for _, level := range t.Levels {
			known[level.Name] = true
		}
		r.traits, r.known = append(r.traits, t), append(r.known, known)
	}
	return r
}

// read reads one trait into r, of which it keeps the memory. Levels that the
// schema does not count are one, but for those of a set, which are none.
func (r *reading) read(from reader, i int, f traits.Flat) {
	t := from.traits[i]
	v, ok := t.Read(f)
	*r = reading{known: ok, levels: r.levels[:0]}
	if !ok {
		return
	}
	switch t.Type {
	case traits.TypeNumber:
		r.number = v.Number
	case traits.TypeDate:
		r.number, r.day = daysBefore(from.asOf, v.Number), v.Number
	case traits.TypeBool:
		r.levels = append(r.levels, strconv.FormatBool(v.Number != 0))
	case traits.TypeGeo:
		r.levels = append(r.levels, cell(v.Number, v.Lon))
	case traits.TypeCategory:
		level := v.Text
		if !from.known[i][level] {
			level = traits.OtherLevels
		}
		r.levels = append(r.levels, level)
	case traits.TypeSet:
		for _, member := range v.Set {
			if from.known[i][member] {
				r.levels = append(r.levels, member)
			}
		}
	}
}

// daysBefore are the days from a date to an as-of. Those of a whole day are whole: very many may
// share it, and the hour of a run is to bring none of them from one bin to the next.
func daysBefore(asOf, day float64) float64 {
	if day == math.Trunc(day) {
		return math.Floor(asOf) - day
	}
	return asOf - day
}

// cellDegrees is the size of the squares that the places of a geo trait are
// counted in; there are 2,592 of them.
const cellDegrees = 5

// cell names the square that a place is in by its southern and western sides.
func cell(lat, lon float64) string {
	side := func(degrees, limit float64, positive, negative string) string {
		d := int(min(math.Floor(degrees/cellDegrees)*cellDegrees, limit-cellDegrees))
		if d < 0 {
			return strconv.Itoa(-d) + "°" + negative
		}
		return strconv.Itoa(d) + "°" + positive
	}
	return side(lat, 90, "N", "S") + " " + side(lon, 180, "E", "W")
}
