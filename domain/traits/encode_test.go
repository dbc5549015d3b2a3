package traits

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func near() cmp.Option { return cmpopts.EquateApprox(0, 1e-5) }

func TestEncodedVector(t *testing.T) {
	s := Schema{Traits: []Trait{
		{Path: "age", Type: TypeNumber, Weight: 4, Numbers: Numbers{Min: -1, P1: 0, P25: 20, P50: 30, P75: 40, P99: 60}},
		{Path: "home", Type: TypeGeo, Weight: 1},
		{Path: "joined", Type: TypeDate, Weight: 1, Numbers: Numbers{
			Min: 20000, P1: 20000, P25: 20100, P50: 20110, P75: 20120, P99: 20200, Max: 20200,
		}},
		{Path: "plan", Type: TypeCategory, Weight: 1, Levels: []Level{{"free", 9}, {"pro", 3}}},
		{Path: "secret", Type: TypeBool, Weight: 1, Sensitive: true},
		{Path: "still", Type: TypeNumber, Weight: 1, Numbers: Numbers{Min: 5, P1: 5, P25: 5, P50: 5, P75: 5, P99: 5, Max: 5}},
		{Path: "tags", Type: TypeSet, Weight: 1, Levels: []Level{{"a", 3}, {"b", 2}, {"c", 1}}},
		{Path: "vip", Type: TypeBool, Weight: 0.25},
	}}
	e := s.Encoder(noon)
	wantDimensions := []Dimension{
		{"age", ""},
		{"home", "x"},
		{"home", "y"},
		{"home", "z"},
		{"joined", ""},
		{"plan", "free"},
		{"plan", "pro"},
		{"plan", OtherLevels},
		{"tags", "a"},
		{"tags", "b"},
		{"tags", "c"},
		{"vip", ""},
	}
	if diff := cmp.Diff(wantDimensions, e.Dimensions()); diff != "" {
		t.Fatal(diff)
	}
	tests := []struct {
		name, doc string
		want      []float32
	}{
		{"nothing said", `{}`, make([]float32, 12)},
		{
			"everything said", `{"age":40,"home":{"lat":0,"lon":90},"joined":"2025-01-22","plan":"pro","tags":["c","a","?"],"vip":true,"secret":true,"still":5}`,
			[]float32{2 * 10 * 1.349 / 20, 0, 1, 0, 0, 0, 0.5, 0, 0.707 / math.Sqrt2, 0, 0.707 / math.Sqrt2, 0.5 * 0.707},
		},
		{
			"clipped, rare and false", `{"age":1e9,"home":{"lat":-90,"lon":0},"joined":"2025-02-01","plan":"gold","tags":["?"],"vip":false}`,
			[]float32{6, 0, 0, -1, -10 * 1.349 / 20, 0, 0, 0.5, 0, 0, 0, 0},
		},
		{"of another type", `{"age":"40","home":1,"joined":"soon","plan":1,"tags":"a","vip":1}`, make([]float32, 12)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			// 20110 days after 1970 is 2025-01-22; a vector is appended to what there is.
			got := e.Append([]float32{8}, flat(t, test.doc))
			if diff := cmp.Diff(append([]float32{8}, test.want...), got, near()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLongUpperTailIsReadOnALogScale(t *testing.T) {
	skewed := column(t, generate(200, func(i int) string { return fmt.Sprint(math.Exp(float64(i) / 20)) }), nil).Numbers
	if s := skewed.scale(); !s.log || math.Abs(s.z(skewed.P50)) > 1e-12 || math.Abs(s.z(skewed.P75)-normalIQR/2) > 0.05 {
		t.Errorf("%+v: %+v", skewed, s)
	}
	if s := column(t, generate(200, func(i int) string { return fmt.Sprint(-math.Exp(float64(i) / 20)) }), nil).Numbers.scale(); s.log {
		t.Error("negative numbers have no logarithm")
	}
	gains := column(t, generate(200, func(i int) string { return fmt.Sprint(max(0, i-190) * 1000) }), nil).Numbers
	if s := gains.scale(); !s.log || s.spread != gains.LogSD || s.spread == 0 {
		t.Errorf("where the quartiles coincide the deviation counts: %+v", s)
	}
}

func TestDatesAreAgesAtAsOf(t *testing.T) {
	trait := column(t, generate(200, func(i int) string {
		return fmt.Sprintf("%q", noon.Add(-time.Duration(math.Exp(float64(i)/25)*float64(24*time.Hour))).Format(time.RFC3339))
	}), nil)
	if trait.Type != TypeDate {
		t.Fatal(trait.Type)
	}
	s := Schema{Traits: []Trait{trait}}
	e := s.Encoder(noon)
	if !e.traits[0].scale.log {
		t.Error("ages with a long upper tail are read on a log scale")
	}
	young := e.Append(nil, flat(t, `{"a":"2025-05-31"}`))[0]
	old := e.Append(nil, flat(t, `{"a":"2020-05-31"}`))[0]
	future := e.Append(nil, flat(t, `{"a":"2031-05-31"}`))[0]
	if !(young < 0 && old > 1 && future <= young) {
		t.Errorf("young %v, old %v, future %v", young, old, future)
	}
	if e := s.Encoder(noon.AddDate(-4, 0, 0)); e.traits[0].scale.log {
		t.Error("before some of the dates there is no logarithm of their age")
	}
	still := Schema{Traits: []Trait{column(t, constantly(30, `"2024-01-01"`), nil)}}
	if d := still.Encoder(noon).Dimensions(); len(d) != 0 {
		t.Errorf("one date for everyone has dimensions %v", d)
	}
}

func TestRestrictKeepsPermittedPaths(t *testing.T) {
	s := Infer(each([]user{{"a", flat(t, `{"a":1,"b":true,"c":false}`)}}), nil)
	got := s.Restrict(func(path string) bool { return path != "b" })
	if len(got.Traits) != 2 || got.Traits[0].Path != "a" || got.Traits[1].Path != "c" || len(s.Traits) != 3 {
		t.Errorf("got %+v", got.Traits)
	}
}

func TestNumbersOfOneUnitShareAScale(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	var users []Flat
	for range 300 {
		var parts []string
		for i := range 9 { // the last hardly varies
			answer := random.IntN(6)
			if i == 8 {
				answer = random.IntN(100) / 99
			}
			parts = append(parts, fmt.Sprintf(`"answer_%d":%d,"height_%d":%g`, i, answer, i, random.NormFloat64()))
			if i < 7 {
				parts = append(parts, fmt.Sprintf(`"few_%d":%d`, i, random.IntN(6)))
			}
		}
		parts = append(parts, fmt.Sprintf(`"age":%d`, 18+random.IntN(60)))
		f := testkit.Must(Flatten([]byte("{" + strings.Join(parts, ",") + "}")))(t)
		users = append(users, f)
	}
	s := Infer(func(yield func(string, Flat) bool) {
		for i, u := range users {
			if !yield(fmt.Sprint(i), u) {
				return
			}
		}
	}, nil)
	for _, trait := range s.Traits {
		if shares := strings.HasPrefix(trait.Path, "answer_"); shares != (trait.Series != Numbers{}) {
			t.Errorf("%s is in a series: %t", trait.Path, !shares)
		}
	}
	e := s.Encoder(time.Time{})
	dims := e.Dimensions()
	at := func(path string) int {
		return slices.IndexFunc(dims, func(d Dimension) bool { return d.Path == path })
	}
	first, last := Flat{Values: []Value{{Path: "answer_0", Kind: Number, Number: 5}}}, Flat{Values: []Value{{Path: "answer_8", Kind: Number, Number: 5}}}
	a, b := e.Append(nil, first)[at("answer_0")], e.Append(nil, last)[at("answer_8")]
	if a != b || a <= 0 {
		t.Errorf("the same answer is encoded as %v and as %v", a, b)
	}
}
