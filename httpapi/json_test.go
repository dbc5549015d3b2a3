package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kindred/domain/fault"
)

func TestCheckJSON(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	long := strings.Repeat("x", 100)
	tests := []struct {
		name, body, code, pointer string
	}{
		{"a scalar", `1`, "", ""},
		{"every kind of value", " {\"a\":[1,-0.5e+3,true,false,null,\"\\u00e9\\n\",{}],\"b\":[] }\n", "", ""},
		{"the same name in two objects", `[{"a":1},{"a":1}]`, "", ""},
		{"a pair of surrogates", `"\ud83d\ude00"`, "", ""},
		{"64 levels", strings.Repeat("[", 64) + strings.Repeat("]", 64), "", ""},
		{"many names", "{" + strings.Join(many, ",") + "}", "", ""},

		{"nothing", ``, "invalid_json", ""},
		{"trailing garbage", `{} x`, "invalid_json", ""},
		{"two values", `{}{}`, "invalid_json", ""},
		{"a trailing comma", `[1,]`, "invalid_json", ""},
		{"a trailing comma in an object", `{"a":1,}`, "invalid_json", ""},
		{"no colon", `{"a" 1}`, "invalid_json", ""},
		{"the wrong bracket", `{"a":[1}}`, "invalid_json", ""},
		{"a leading zero", `01`, "invalid_json", ""},
		{"no fraction", `1.`, "invalid_json", ""},
		{"a bare minus", `-`, "invalid_json", ""},
		{"no exponent", `1e+`, "invalid_json", ""},
		{"a raw control character", "\"\x01\"", "invalid_json", ""},
		{"an unknown escape", `"\x"`, "invalid_json", ""},
		{"a short escape", `"\u00`, "invalid_json", ""},
		{"an open string", `"abc`, "invalid_json", ""},
		{"not UTF-8", "\"\xff\"", "invalid_json", ""},
		{"a byte order mark", "\ufeff{}", "invalid_json", ""},
		{"NaN", `NaN`, "invalid_json", ""},
		{"65 levels", strings.Repeat("[", 65) + strings.Repeat("]", 65), "json_too_deep", ""},
		{"20,000 levels", strings.Repeat(`{"a":`, 20_000), "json_too_deep", ""},
		{"too many values", "[" + strings.Repeat("0,", maxValues) + "0]", "too_many_values", ""},
		{"NUL", `{"traits":{"a":[1,"x\u0000"]}}`, "invalid", "/traits/a/1"},
		{"NUL in a name", `{"traits":{"a\u0000":1}}`, "invalid", "/traits"},
		{"NUL in a later name", `{"traits":{"b":1,"a\u0000":1}}`, "invalid", "/traits"},
		{"half a pair", `{"a/b~":"\ud800"}`, "invalid", "/a~1b~0"},
		{"two first halves", `["\ud800\ud800"]`, "invalid", "/0"},
		{"the second half alone", `["\udc00"]`, "invalid", "/0"},
		{"a repeated name", `{"a":1,"b":2,"a":3}`, "invalid", "/a"},
		{"a name repeated in disguise", `{"a":1,"\u0061":3}`, "invalid", "/a"},
		{"a name repeated among many", "{" + strings.Join(many, ",") + `,"k7":1}`, "invalid", "/k7"},
		{"a long name", `{"` + long + `":"\u0000"}`, "invalid", "/" + long[:64] + "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := checkJSON([]byte(tt.body))
			f := fault.As(err)
			switch {
			case tt.code == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tt.code != "" && (f == nil || f.Code != tt.code):
				t.Fatalf("got %v, want %s", err, tt.code)
			case tt.pointer != "" && f.Fields[0].Pointer != tt.pointer:
				t.Fatalf("got pointer %q, want %q", f.Fields[0].Pointer, tt.pointer)
			}
		})
	}
}

// A text that is wrong at each character, as deep and below names as long as may be, costs no more than one that is wrong
// once: else one body would keep a processor for a minute.
func TestWhatIsWrongManyTimesIsNamedOnce(t *testing.T) {
	wrong := func(times int) []byte {
		return []byte(strings.Repeat(`{"`+strings.Repeat("k~/", 100)+`":`, 60) + `"` + strings.Repeat(`\u0000`, times) + `"` + strings.Repeat("}", 60))
	}
	allocations := func(body []byte) float64 {
		return testing.AllocsPerRun(3, func() {
			if err := checkJSON(body); len(fault.As(err).Fields) != 1 {
				t.Fatal(err)
			}
		})
	}
	if once, often := allocations(wrong(1)), allocations(wrong(1000)); often > once+10 {
		t.Errorf("%v allocations where it is wrong once, %v where it is a thousand times", once, often)
	}
}

// What passes is JSON to encoding/json as well; what encoding/json refuses
// never passes, and what it accepts is refused only for a reason of our own.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-0.5e+3,true,false,null,"\u00e9\n",{}],"b":[]}`, `{"a":1,"a":2}`, `"\ud83d\ude00"`, `01`, `[1,]`,
		`"\u0000"`, `{}x`, "\"\xff\"", `-`, `1e`, `[[[[`, `{"":{"":{}}}`, `nul`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkJSON(body)
		valid := json.Valid(body)
		switch refusal := fault.As(err); {
		case err == nil && !valid:
			t.Fatalf("accepted %q", body)
		case err != nil && refusal == nil:
			t.Fatalf("not a fault: %v", err)
		case err != nil && valid && refusal.Code == "invalid_json" && json.Valid(bytes.ToValidUTF8(body, nil)) &&
			bytes.Equal(bytes.ToValidUTF8(body, nil), body):
			t.Fatalf("refused %q: %v", body, err)
		}
	})
}

func BenchmarkCheckJSON(b *testing.B) {
	body := []byte(`{"external_id":"customer-4711","traits":{"plan":"pro","age":42,"city":"Wien","interests":["climbing","jazz"],"active":true}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := checkJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}
