package traits_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"kindred/domain/traits"
	"kindred/testkit"
)

var someValues = []string{
	`1`, `-0.5e3`, `"a"`, `"é\u0041\n\ud83d\ude00"`, `""`, `true`, `false`, `null`, `[]`, `[1, {"a": "}"}, "]"]`, `{}`, `{"a": {"b": [1]}, "c":2}`, "\"\xff\"",
}

func drawObject(t *rapid.T, label string) string {
	doc := " {"
	for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "a.b", "", `q\"`, "\\u0064"}), 0, 6, rapid.ID).Draw(t, label) {
		if i > 0 {
			doc += ", "
		}
		doc += `"` + name + `" :` + rapid.SampledFrom(someValues).Draw(t, "value")
	}
	return doc + "\n}"
}

func TestMembersAreDecodedAsAllWouldBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := drawObject(t, "one"), drawObject(t, "other")
		var whole, changed map[string]any
		if err := errors.Join(json.Unmarshal([]byte(one), &whole), json.Unmarshal([]byte(other), &changed)); err != nil {
			t.Fatal(err)
		}
		wanted := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c", "a.b", "", `q"`, "d"})).Draw(t, "wanted")
		got, err := traits.Members([]byte(one), func(name string) bool { return slices.Contains(wanted, name) })
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		for name, v := range whole {
			if slices.Contains(wanted, name) {
				want[name] = v
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		names, err := traits.Differing([]byte(one), []byte(other))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c", "a.b", "", `q"`, "d"} {
			v, is := whole[name]
			w, stays := changed[name]
			if differs := is != stays || fmt.Sprint(v) != fmt.Sprint(w); differs && !slices.Contains(names, name) {
				t.Fatalf("%q differs between %s and %s", name, one, other)
			} else if !is && !stays && slices.Contains(names, name) {
				t.Fatalf("%q stands in neither", name)
			}
		}
		if same, err := traits.Differing([]byte(one), []byte(one)); err != nil || len(same) > 0 {
			t.Fatalf("%v, %v", same, err)
		}
	})
	for _, doc := range []string{``, `[]`, `null`, `{"a":1`, `{"a":1} x`} {
		if _, err := traits.Members([]byte(doc), func(string) bool { return true }); err == nil {
			t.Errorf("%s is taken", doc)
		}
	}
}

func TestANumberThatNoFloat64HoldsIsUnknown(t *testing.T) {
	doc := []byte(`{"a":1e999,"b":[-1e999,{"c":1e999,"d":2}],"e":1e-999,"f":"1e999"}`)
	want := map[string]any{"a": nil, "b": []any{nil, map[string]any{"c": nil, "d": 2.0}}, "e": 0.0, "f": "1e999"}
	all, err := traits.All(doc)
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Error(err, diff)
	}
	wanted, err := traits.Members(doc, func(string) bool { return true })
	if diff := cmp.Diff(want, wanted); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for _, doc := range []string{``, `[]`, `[1e999]`, `1e999`, `{"a":1e999`, `{"a":1} x`} {
		if _, err := traits.All([]byte(doc)); err == nil {
			t.Errorf("%s is taken", doc)
		}
	}
}

func BenchmarkMembers(b *testing.B) {
	document := map[string]any{"age": 33, "plan": "pro"}
	for i := range 23 {
		document[fmt.Sprint("t", i)] = 100 - i
	}
	doc := testkit.Must(json.Marshal(document))(b)
	for name, decode := range map[string]func() error{
		"two of 25": func() error {
			_, err := traits.Members(doc, func(name string) bool { return name == "age" || name == "plan" })
			return err
		},
		"encoding-json": func() error {
			var all map[string]any
			return json.Unmarshal(doc, &all)
		},
		"differing": func() error {
			_, err := traits.Differing(doc, doc)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
