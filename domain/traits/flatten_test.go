package traits

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
)

func TestFlattenReadsShapes(t *testing.T) {
	number := func(path string, x float64) Value { return Value{Path: path, Kind: Number, Number: x} }
	text := func(path, s string) Value { return Value{Path: path, Kind: Text, Text: s} }
	set := func(path string, members ...string) Value {
		return Value{Path: path, Kind: Set, Set: append([]string{}, members...)}
	}
	other := func(path string) Value { return Value{Path: path, Kind: Other} }
	tests := []struct {
		name, doc string
		want      []Value
		skipped   int
	}{
		{"nothing", `{}`, nil, 0},
		{
			"scalars sorted by path", ` { "b" : true , "a" : -1.5e1, "c":"x", "d":false } `,
			[]Value{number("a", -15), {Path: "b", Kind: Bool, Number: 1}, text("c", "x"), {Path: "d", Kind: Bool}},
			0,
		},
		{"a null is no value", `{"a":null,"b":{"c":null}}`, nil, 0},
		{"a numeric string stays a string", `{"a":"42"}`, []Value{text("a", "42")}, 0},
		{"four keys deep and no deeper", `{"a":{"b":{"c":{"d":1,"e":{"f":2,"g":{"h":3}}}}}}`, []Value{number("a.b.c.d", 1)}, 2},
		{"an array of scalars is a set", `{"a":["y",2,"x","y",null,true,2.0]}`, []Value{set("a", "2", "true", "x", "y")}, 0},
		{
			"an array of two numbers keeps them", `{"a":[52.1,13.4],"b":[2,2],"c":[1,"x",2],"d":[1,2,3],"e":[0]}`,
			[]Value{
				{Path: "a", Kind: Set, Set: []string{"13.4", "52.1"}, Pair: true, Number: 52.1, Lon: 13.4},
				{Path: "b", Kind: Set, Set: []string{"2"}, Pair: true, Number: 2, Lon: 2},
				set("c", "1", "2", "x"), set("d", "1", "2", "3"), set("e", "0"),
			},
			0,
		},
		{"an empty array is an empty set", `{"a":[ ]}`, []Value{set("a")}, 0},
		{"an array of objects says nothing", `{"a":[{"b":1}],"c":[1,[2]],"d":1}`, []Value{other("a"), other("c"), number("d", 1)}, 0},
		{
			"numbers too large to compare", `{"a":1e999,"b":-1e151,"c":[1e999],"d":1e150,"e":1e-999}`,
			[]Value{other("a"), other("b"), other("c"), number("d", 1e150), number("e", 0)},
			0,
		},
		{
			"a place", `{"home":{"lat":48.1,"lng":11.5,"city":"M"}}`,
			[]Value{{Path: "home", Kind: Geo, Number: 48.1, Lon: 11.5}, text("home.city", "M")},
			0,
		},
		{"a place out of range", `{"home":{"lat":91,"lon":0}}`, []Value{other("home")}, 0},
		{"a place beside both spellings takes lon", `{"home":{"lng":1,"lon":2,"lat":3}}`, []Value{{Path: "home", Kind: Geo, Number: 3, Lon: 2}}, 0},
		{"half a place is a number", `{"home":{"lat":1,"lon":null}}`, []Value{number("home.lat", 1)}, 0},
		{"strings are no place", `{"home":{"lat":"1","lon":"2"}}`, []Value{text("home.lat", "1"), text("home.lon", "2")}, 0},
		{"the root is no place", `{"lat":1,"lon":2}`, []Value{number("lat", 1), number("lon", 2)}, 0},
		{"a place at the last depth", `{"a":{"b":{"c":{"d":{"lat":1,"lon":2,"x":3}}}}}`, []Value{{Path: "a.b.c.d", Kind: Geo, Number: 1, Lon: 2}}, 1},
		{"the last of a repeated key", `{"a":1,"a":"x","b":1,"b":null}`, []Value{text("a", "x")}, 0},
		{"a dotted key is a path", `{"a":{"b":1},"a.b":2,"c.d":3}`, []Value{number("a.b", 2), number("c.d", 3)}, 0},
		{"an empty key is skipped", `{"":1,"a":{"":{"b":2}},"c":3}`, []Value{number("c", 3)}, 2},
		{
			"escapes and unicode", `{"\u00e9\n":"\ud83d\ude00","k\"":"\\","日":["\u0061"]}`,
			[]Value{text("k\"", `\`), text("é\n", "😀"), set("日", "a")},
			0,
		},
		{"a lone surrogate", `{"a":"\ud800"}`, []Value{text("a", "\ufffd")}, 0},
		{"bytes that are not UTF-8", "{\"a\":\"\xff\xfe\"}", []Value{text("a", "\ufffd\ufffd")}, 0},
		{"brackets within strings", `{"a":{"b":{"c":{"d":{"e":{"f":"}]\"{"}}}}},"z":1}`, []Value{number("z", 1)}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := testkit.Must(Flatten([]byte(test.doc)))(t)
			if len(got.Values) == 0 {
				got.Values = nil
			}
			if diff := cmp.Diff(Flat{test.want, test.skipped}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFlattenReadsMinusZeroAsZero(t *testing.T) {
	f, err := Flatten([]byte(`{"a":-0.0}`))
	if err != nil || math.Signbit(f.Values[0].Number) {
		t.Errorf("got %v, %v", f, err)
	}
}

func TestFlattenRefusesWhatIsNoObject(t *testing.T) {
	for _, doc := range []string{
		``, ` `, `null`, `[]`, `1`, `"{}"`, `{`, `{"a":}`, `{"a":01}`, `{}{}`, `{'a':1}`, `{"a":1e}`, `{"a":"` + "\n" + `"}`,
		`{"a":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
	} {
		if f, err := Flatten([]byte(doc)); !errors.Is(err, ErrNotObject) {
			t.Errorf("%.20s: got %v, %v", doc, f, err)
		}
	}
}

func TestFlattenKeepsToItsBounds(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("{")
	for i := range 10_000 {
		fmt.Fprintf(&doc, `"k%04d":%d,`, 9999-i, i)
	}
	fmt.Fprintf(&doc, `"%s":1}`, strings.Repeat("x", MaxPathBytes+1))
	f := testkit.Must(Flatten([]byte(doc.String())))(t)
	if len(f.Values) != MaxPaths || f.Skipped != 10_001-MaxPaths || f.Values[0].Path != "k0000" || f.Values[255].Path != "k0255" {
		t.Errorf("%d values from %q, %d skipped", len(f.Values), f.Values[0].Path, f.Skipped)
	}

	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	members := func(n int) string {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		b, _ := json.Marshal(all)
		return string(b)
	}
	for value, want := range map[string]Kind{
		text(MaxTextBytes): Text, text(MaxTextBytes + 1): Other,
		"[" + text(MaxTextBytes) + "]": Set, "[" + text(MaxTextBytes+1) + "]": Other,
		members(MaxMembers): Set, members(MaxMembers + 1): Other,
	} {
		f, err := Flatten([]byte(`{"a":` + value + `}`))
		if err != nil || len(f.Values) != 1 || f.Values[0].Kind != want {
			t.Errorf("%.30s of %d bytes: not of kind %d", value, len(value), want)
		}
	}
}

func FuzzFlatten(f *testing.F) {
	for _, doc := range []string{`{"a":{"b":[1,"x",null]},"h":{"lat":1,"lon":2}}`, `{"a":1e999,"a":null,"":{}}`, `{"\ud800":"\u0000"}`, `[`, `{"a":{"a":{"a":{"a":{"a":{}}}}}}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		flat, err := Flatten(doc)
		var object map[string]any
		// Into a map, a number beyond float64 is an error of its own.
		decoder := json.NewDecoder(strings.NewReader(string(doc)))
		decoder.UseNumber()
		wellFormed := json.Valid(doc) && decoder.Decode(&object) == nil && object != nil
		if wellFormed != (err == nil) {
			t.Fatalf("err %v for an object: %v", err, wellFormed)
		}
		if len(flat.Values) > MaxPaths || flat.Skipped < 0 {
			t.Fatal("beyond the bounds")
		}
		for i, v := range flat.Values {
			if i > 0 && flat.Values[i-1].Path >= v.Path {
				t.Fatal("paths are not in order")
			}
			if v.Kind == null || v.Path == "" || len(v.Path) > MaxPathBytes || len(v.Text) > MaxTextBytes || len(v.Set) > MaxMembers {
				t.Fatalf("value %+v", v)
			}
			if math.IsNaN(v.Number) || math.Abs(v.Number) > MaxMagnitude || !slices.IsSorted(v.Set) {
				t.Fatalf("value %+v", v)
			}
		}
		users := func(yield func(string, Flat) bool) { yield("u", flat) }
		schema := Infer(users, nil)
		for _, x := range schema.Encoder(noon).Append(nil, flat) {
			if math.IsNaN(float64(x)) || math.Abs(float64(x)) > clip {
				t.Fatalf("encoded as %v", x)
			}
		}
	})
}

func BenchmarkFlatten(b *testing.B) {
	doc := []byte(`{"age":34,"income":52000.5,"plan":"pro","joined":"2024-03-01T10:00:00Z","newsletter":true,
		"interests":["climbing","cooking","jazz"],"home":{"lat":48.137,"lon":11.575,"city":"München"},"visits":17,"device":{"os":"ios","version":"17.2"}}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Flatten(doc); err != nil {
			b.Fatal(err)
		}
	}
}
