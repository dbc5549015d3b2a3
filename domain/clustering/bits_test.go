package clustering

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

// What a run comes to is one, to the last bit, on every kind of processor: make
// test-arm64 runs this on another.
func TestARunHasTheSameBitsOnEveryProcessor(t *testing.T) {
	const want = "2df199ae90539bac"
	random := splitmix.Source(1)
	bell := func() float64 { // without a logarithm, which a processor may round otherwise
		sum := 0.0
		for range 12 {
			sum += random.Float64()
		}
		return sum - 6
	}
	flats := make([]traits.Flat, 240)
	for i := range flats {
		kind := float64(i % 3)
		document := fmt.Sprintf(`{"age":%v,"spend":%v,"plan":"p%d","tags":["t%d","t%d"],"joined":"20%02d-01-01","home":{"lat":%v,"lon":%v}}`,
			40+40*kind+3*bell(), 1000*random.Float64()*random.Float64()*random.Float64()*random.Float64(), i%3, i%7, i%5, 10+i%10, 40*float64(2*i%3)+bell(), bell()) // kinds in a line were one long cloud
		var err error
		if flats[i], err = traits.Flatten([]byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	schema := traits.Infer(func(yield func(string, traits.Flat) bool) {
		for i, flat := range flats {
			if !yield(fmt.Sprint("u", i), flat) {
				return
			}
		}
	}, nil)
	encoder := schema.Encoder(asOf)
	points := Points{Dims: len(encoder.Dimensions())}
	for _, flat := range flats {
		points.Data = encoder.Append(points.Data, flat)
	}
	r := mustFit(t, points, Options{Seed: 7, Threads: 2})
	at, held := Plane(points)
	judged := mustJudge(t, Trial{Points: points, Traits: Spans(schema, encoder), Assigned: r.Assignments, K: r.K, Seed: 7, Threads: 2})
	if judged.Agreement == nil {
		t.Fatalf("the users are not divided anew: %+v", judged)
	}
	sum := sha256.New()
	for _, part := range []any{
		points.Data, r.Assignments, r.Spreads, r.Inertia, r.Silhouette, held, at,
		judged.Stability,
	} {
		if err := binary.Write(sum, binary.BigEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprint(sum, judged.Shuffled, *judged.Cloud, *judged.Agreement)
	for _, centroid := range r.Centroids {
		if err := binary.Write(sum, binary.BigEndian, centroid); err != nil {
			t.Fatal(err)
		}
	}
	for _, spread := range r.Spreads {
		if digits, _, _ := strings.Cut(strconv.FormatFloat(spread, 'e', -1, 64), "e"); len(digits) > len("1.23") {
			t.Errorf("a spread of %v tells of single users", spread)
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil))[:16]; got != want {
		t.Errorf("%d clusters: %s, not %s", r.K, got, want)
	}
}
