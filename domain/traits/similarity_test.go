package traits

import (
	"fmt"
	"math"
	"testing"
)

func TestWhatIsExpectedOfTwoUsers(t *testing.T) {
	var values []Value
	for i := range 3000 {
		values = append(values, Value{Path: "plan", Kind: Text, Text: fmt.Sprint("p", i%4)})
	}
	values = append(values, Value{Path: "plan", Kind: Other}) // is no plan
	plan := describe("plan", values, nil, nil)
	if math.Abs(plan.Expected-0.25) > 0.02 {
		t.Errorf("of four levels that are as frequent, %v", plan.Expected)
	}
	if again := describe("plan", values, nil, nil); again.Expected != plan.Expected {
		t.Error("the same values, another expectation")
	}
	var few []Value // all three pairs are looked at
	for _, x := range []float64{0, 1, 2} {
		few = append(few, Value{Path: "age", Kind: Number, Number: x})
	}
	age := describe("age", few, nil, nil)
	span := age.Numbers.Span()
	if want := (2*(1-1/span) + 0) / 3; math.Abs(age.Expected-want) > 1e-12 {
		t.Errorf("of three numbers %v, not %v", age.Expected, want)
	}
	for _, one := range []Value{{Kind: Number, Number: 1}, {Kind: Text, Text: "x"}, {Kind: Set}, {Kind: Geo}} {
		if d := describe("x", []Value{one}, nil, nil); d.Expected != 0 {
			t.Errorf("nobody can be compared: %+v", d)
		}
	}
}

func TestSimilarityOfValues(t *testing.T) {
	number := Trait{Type: TypeNumber, Numbers: Numbers{P1: 0, P99: 10}}
	place := func(lat, lon float64) Value { return Value{Kind: Geo, Number: lat, Lon: lon} }
	for _, c := range []struct {
		name string
		Trait
		a, b Value
		want float64
	}{
		{"numbers", number, Value{Number: 1}, Value{Number: 3.5}, 0.75},
		{"far numbers", number, Value{Number: -100}, Value{Number: 3}, 0},
		{"bools", Trait{Type: TypeBool}, Value{Number: 1}, Value{Number: 0}, 0},
		{"levels", Trait{Type: TypeCategory}, Value{Text: "x"}, Value{Text: "x"}, 1},
		{"sets", Trait{Type: TypeSet}, Value{Set: []string{"a", "b"}}, Value{Set: []string{"b", "c"}}, 1.0 / 3},
		{"empty sets", Trait{Type: TypeSet}, Value{}, Value{}, 1},
		{"places", Trait{Type: TypeGeo}, place(0, 179.5), place(0, -179.5), math.Exp(-6371.0088 * math.Pi / 180 / 1000)},
	} {
		if got := c.Similarity(c.a, c.b); math.Abs(got-c.want) > 1e-9 || got != c.Similarity(c.b, c.a) {
			t.Errorf("%s: %v, not %v", c.name, got, c.want)
		}
	}
}
