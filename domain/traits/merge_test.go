package traits

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// rfcMerge is the algorithm of RFC 7396, section 2, word for word.
func rfcMerge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged := map[string]any{}
	if was, ok := target.(map[string]any); ok {
		maps.Copy(merged, was)
	}
	for name, value := range changes {
		if value == nil {
			delete(merged, name)
		} else {
			merged[name] = rfcMerge(merged[name], value)
		}
	}
	return merged
}

var someNames = rapid.SampledFrom([]string{"a", "b", "<c>", "", "é\u2028"})

func someJSON(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{rapid.SampledFrom([]any{nil, true, "a", "<é\u2028>", "", json.Number("1"), json.Number("1.0"), json.Number("1e400")})}
	if depth > 0 {
		kinds = append(kinds, rapid.Map(someObject(depth-1), func(o map[string]any) any { return o }),
			rapid.Map(rapid.SliceOfN(someJSON(depth-1), 0, 3), func(list []any) any { return list }))
	}
	return rapid.OneOf(kinds...)
}

func someObject(depth int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(someNames, someJSON(depth), 0, 4)
}

func TestPatchesMergeAsTheAlgorithmDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document, patch := someObject(3).Draw(t, "document"), someObject(3).Draw(t, "patch")
		text := func(v any) []byte {
			b, err := json.MarshalIndent(v, "", rapid.SampledFrom([]string{"", " "}).Draw(t, "indent"))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		merged, err := Merge(text(document), text(patch))
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(merged))
		decoder.UseNumber()
		var got any
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("%s: %v", merged, err)
		}
		want := rfcMerge(document, patch)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got) %s", diff)
		}
		if same := cmp.Equal(any(document), want); Same(text(document), merged) != same {
			t.Fatalf("told apart: %t", same)
		}
	})
}

func TestNamesKeepTheirOrder(t *testing.T) {
	merged, err := Merge([]byte(`{"z": 1, "y": {"b": 1, "a": 2}, "x": 3}`), []byte(`{"w": 0, "x": null, "y": {"c": 3, "b": "<"}, "z": [ null, {"a": null} ]}`))
	if want := `{"z":[ null, {"a": null} ],"y":{"b":"<","a":2,"c":3},"w":0}`; err != nil || string(merged) != want {
		t.Errorf("%s, %v", merged, err)
	}
	for _, none := range []string{``, `null`, `[]`, `"x"`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a" 1}`} {
		if _, err := Merge([]byte(`{}`), []byte(none)); err == nil {
			t.Errorf("%s is taken", none)
		}
		if _, err := Merge([]byte(none), []byte(`{}`)); err == nil {
			t.Errorf("%s is merged into", none)
		}
	}
}

func TestObjectsAreTheSameInWhateverOrder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[1,{"c":2,"d":null}]}`, `{"b":[1,{"d":null,"c":2}],"a":1}`, true},
		{`{"a":1, "b": "x"}`, `{"b":"\u0078","a":1}`, true},
		{`{"a":1,"b":2}`, `{"b":1,"a":2}`, false},
		{`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":1,"b":2}`, `{"a":1,"c":2}`, false},
		{`{"a":1}`, `{"a":1.0}`, false}, // numbers are kept as they are written
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":1}`, `[1]`, false},
		{`{}`, ` { } `, true},
	} {
		if Same([]byte(c.a), []byte(c.b)) != c.same || Same([]byte(c.b), []byte(c.a)) != c.same {
			t.Errorf("%s and %s: not %v", c.a, c.b, c.same)
		}
	}
}
