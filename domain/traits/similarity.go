package traits

import (
	"cmp"
	"math"

	"kindred/domain/splitmix"
)

// Pairs is how many random pairs of users say what is to be expected of two.
const Pairs = 10_000

// pairsSeed makes them the same ones each time.
const pairsSeed = 1

// Similarity is that of two values of the trait's type, by Gower (1971), in 0..1:
// of numbers and dates 1 - min(1, |a-b|/span), of bools and categories 1 where they
// are equal, of sets Jaccard's index, of places exp(-km/1000).
func (t Trait) Similarity(a, b Value) float64 {
	switch t.Type {
	case TypeNumber, TypeDate:
		return 1 - min(1, math.Abs(a.Number-b.Number)/t.Numbers.Span())
	case TypeSet:
		return Jaccard(a.Set, b.Set)
	case TypeGeo:
		return a.Point().Nearness(b.Point())
	}
	if a.Number == b.Number && a.Text == b.Text {
		return 1
	}
	return 0
}

// expect is how alike two random users are among those who have the trait, which
// is what a comparison takes where one of two has not; 0 where nobody can be
// compared. It is as fine as one of them allows: who knows the values of all others cannot
// find the last one by it.
func (t Trait) expect(values []Value) float64 {
	number := t.Type == TypeNumber || t.Type == TypeDate
	if t.Type == TypeExcluded || number && !(t.Numbers.Span() > 0) {
		return 0
	}
	known := make([]Value, 0, len(values))
	for _, raw := range values {
		if v, ok := t.convert(raw); ok {
			known = append(known, v)
		}
	}
	var sum float64
	n := 0
	for a, b := range splitmix.Pairs(len(known), Pairs, pairsSeed) {
		sum += t.Similarity(known[a], known[b])
		n++
	}
	users := float64(max(len(known), 1))
	return math.Round(float64(users*(sum/float64(max(n, 1))))) / users
}

// Jaccard is the share of the members of two sorted sets that both have; two empty
// sets are equal.
func Jaccard[T cmp.Ordered](x, y []T) float64 {
	if len(x)+len(y) == 0 {
		return 1
	}
	common := 0
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] < y[j]:
			i++
		case x[i] > y[j]:
			j++
		default:
			common, i, j = common+1, i+1, j+1
		}
	}
	return float64(common) / float64(len(x)+len(y)-common)
}

const (
	earthKm = 6371.0088 // mean radius (IUGG)
	decayKm = 1000      // the distance at which similarity has fallen to 1/e
)

// Point is a place on Earth, in radians.
type Point struct{ lat, lon, cosLat float64 }

// Point is where a value of kind Geo lies.
func (v Value) Point() Point {
	lat := v.Number * math.Pi / 180
	return Point{lat, v.Lon * math.Pi / 180, math.Cos(lat)}
}

// Unit returns the point on the unit sphere.
func (p Point) Unit() (x, y, z float64) {
	sin, cos := math.Sincos(p.lon)
	return p.cosLat * cos, p.cosLat * sin, math.Sin(p.lat)
}

// Nearness is exp(-km/1000), by the great circle (haversine formula).
func (p Point) Nearness(q Point) float64 { return NearnessAt(p.angle(q)) }

// Km is the distance of two places by the great circle.
func (p Point) Km(q Point) float64 { return p.angle(q) * earthKm }

func (p Point) angle(q Point) float64 {
	north, east := math.Sin((p.lat-q.lat)/2), math.Sin((p.lon-q.lon)/2)
	h := float64(north*north) + float64(p.cosLat*q.cosLat*(east*east))
	return 2 * math.Asin(math.Sqrt(min(1, h)))
}

// PlaceAt is a place by its degrees; ok says whether there is such a one.
func PlaceAt(lat, lon float64) (p Point, ok bool) {
	return Value{Number: lat, Lon: lon}.Point(), math.Abs(lat) <= 90 && math.Abs(lon) <= 180
}

// PlaceOf reads a place as traits hold it, decoded by encoding/json: an object with
// lat and lon or lng, the array [52.5, 13.4], or text such as "52.5,13.4" or "POINT(13.4 52.5)".
func PlaceOf(v any) (p Point, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		lat, isLat := v["lat"].(float64)
		lon, isLon := v["lon"].(float64)
		if !isLon {
			lon, isLon = v["lng"].(float64)
		}
		if isLat && isLon {
			return PlaceAt(lat, lon)
		}
	case []any:
		if len(v) == 2 {
			lat, isLat := v[0].(float64)
			lon, isLon := v[1].(float64)
			if isLat && isLon {
				return PlaceAt(lat, lon)
			}
		}
	case string:
		for _, f := range []Format{FormatPoint, FormatLatLon} { // no text is both, and it is soon seen that one is no point
			if lat, lon, ok := f.place(v); ok {
				return PlaceAt(lat, lon)
			}
		}
	}
	return Point{}, false
}

// NearnessAt is the similarity of two places at an angle in radians.
func NearnessAt(angle float64) float64 { return math.Exp(-angle * earthKm / decayKm) }
