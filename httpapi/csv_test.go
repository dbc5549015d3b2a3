package httpapi

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"kindred/domain/fault"
	"kindred/testkit"
)

// importOf is what each line of a file of CSV becomes: its JSON, why it is refused,
// or nothing.
func importOf(t *testing.T, from io.Reader) []string {
	t.Helper()
	text := testkit.Must(io.ReadAll(newCSVLines(from)))(t)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func TestEachRecordOfCSVIsAUserOnItsLine(t *testing.T) {
	for what, one := range map[string]struct {
		file string
		want []string
	}{
		"values": {
			"external_id,a,b,c\n1,true,-1.5e3,x\n2,false,007,+1\n3,null,,1234567890123456\n",
			[]string{
				"", `{"external_id":"1","traits":{"a":true,"b":-1.5e3,"c":"x"}}`, `{"external_id":"2","traits":{"a":false,"b":"007","c":"+1"}}`,
				`{"external_id":"3","traits":{"a":null,"c":"1234567890123456"}}`,
			},
		},
		"lists, objects and texts that look so": {
			"likes,external_id\n\"[\"\"jazz\"\",\"\"go\"\"]\",u1\n\"{\"\"n\"\":1}\",u2\n[jazz],u3\n<b>&\t,u4\n",
			[]string{
				"", `{"external_id":"u1","traits":{"likes":["jazz","go"]}}`, `{"external_id":"u2","traits":{"likes":{"n":1}}}`,
				`{"external_id":"u3","traits":{"likes":"[jazz]"}}`, `{"external_id":"u4","traits":{"likes":"<b>&\t"}}`,
			},
		},
		"an object that has a line break, which no line may have": {
			"external_id,a\nu1,\"{\"\"n\"\":\n1}\"\nu2,1\n",
			[]string{"", `{"external_id":"u1","traits":{"a":"{\"n\":\n1}"}}`, "", `{"external_id":"u2","traits":{"a":1}}`},
		},
		"exponents of either case": {
			"external_id,a,b\nu1,123456789012345e1,123456789012345E1\n",
			[]string{"", `{"external_id":"u1","traits":{"a":123456789012345e1,"b":123456789012345E1}}`},
		},
		"line breaks in quotes, ends of Windows, a mark of order and blank lines": {
			"\ufeffexternal_id,note\r\nu1,\"a\r\nb\"\r\n\r\nu2,\"x,\"\"y\"\"\"\r\n",
			[]string{"", `{"external_id":"u1","traits":{"note":"a\nb"}}`, "", "", `{"external_id":"u2","traits":{"note":"x,\"y\""}}`},
		},
		"no end of the last line": {"external_id\nu1", []string{"", `{"external_id":"u1","traits":{}}`}},
		"broken records": {
			"external_id,a\nu1\nu2,5\" pipe\nu3,1\nu4,\"open\nu5,2\nu6,1,2\nu7,3\n",
			[]string{
				"", "\x1aline 2 has 1 columns, and the header 2", "\x1aline 3, column 5: bare \" in non-quoted-field", `{"external_id":"u3","traits":{"a":1}}`,
				"\x1aline 5, column 10: extraneous or missing \" in quoted-field", `{"external_id":"u5","traits":{"a":2}}`, "\x1aline 7 has 3 columns, and the header 2",
				`{"external_id":"u7","traits":{"a":3}}`,
			},
		},
		"spaces behind the comma": {
			"external_id, age, job, note\nu1, 40, State-gov,\" x\"\nu2, , \"a, b\",\n",
			[]string{"", `{"external_id":"u1","traits":{"age":40,"job":"State-gov","note":" x"}}`, `{"external_id":"u2","traits":{"job":"a, b"}}`},
		},
		"semicolons": {
			"\ufeffexternal_id;age;spend\r\nu1;40;1.234,5\r\nu2;; a,b;c\r\n",
			[]string{"", `{"external_id":"u1","traits":{"age":40,"spend":"1.234,5"}}`, "\x1aline 3 has 4 columns, and the header 3"},
		},
		"a line of spreadsheets for one another": {
			"\ufeffsep=;\r\nexternal_id;a\r\nu1;1,5\r\n", []string{"", "", `{"external_id":"u1","traits":{"a":"1,5"}}`},
		},
		"that line in quotes, and again":     {"\"sep=\t\"\nexternal_id\ta\nsep=\t\n", []string{"", "", `{"external_id":"sep=","traits":{}}`}},
		"a column that is called so":         {"sep=,external_id\n1,u1\n", []string{"", `{"external_id":"u1","traits":{"sep=":1}}`}},
		"tabs":                               {"external_id\ta\tb\nu1\t\tx;y\n", []string{"", `{"external_id":"u1","traits":{"b":"x;y"}}`}},
		"commas in names between semicolons": {"\"sales, net\";external_id;town, land\n1,5;u1;\n", []string{"", `{"external_id":"u1","traits":{"sales, net":"1,5"}}`}},
		"semicolons in names between tabs":   {"external_id\ta;b\nu1\tx\n", []string{"", `{"external_id":"u1","traits":{"a;b":"x"}}`}},
		"a semicolon where there are commas": {"external_id,a;b\nu1,x;y\n", []string{"", `{"external_id":"u1","traits":{"a;b":"x;y"}}`}},
		"what is no text":                    {"external_id,a\nu1,\xff\nu2,1\n", []string{"", "\x1aline 2 is not UTF-8: save the file as CSV UTF-8", `{"external_id":"u2","traits":{"a":1}}`}},
		"a header alone":                     {"external_id,a\n", []string{""}},
		"columns without names at the end": {
			"external_id,a,,\nu1,1,,\nu2,2,,x\nu3,3,,\n",
			[]string{"", `{"external_id":"u1","traits":{"a":1}}`, "\x1aline 3 has a value in column 4, of which the header has no name", `{"external_id":"u3","traits":{"a":3}}`},
		},
	} {
		for _, from := range []io.Reader{strings.NewReader(one.file), iotest.OneByteReader(strings.NewReader(one.file))} {
			if got := importOf(t, from); strings.Join(got, "\n") != strings.Join(one.want, "\n") {
				t.Errorf("%s:\n got %q\nwant %q", what, got, one.want)
			}
		}
	}
}

func TestAFileOfCSVWithoutAUsableHeaderIsRefused(t *testing.T) {
	for file, detail := range map[string]string{
		"":                        "The file has no header",
		"External_ID;b\n":         `has no column that is spelled external_id. It has 2: ["External_ID" "b"]. Rename "External_ID".`,
		"a,external id \n":        `Rename "external id ".`,
		"id,b\n":                  `It has 2: ["id" "b"].`,
		"external_id|b\n":         `It has 1: ["external_id|b"]. Fields stand between commas, semicolons or tabs.`,
		"external_id,a,a\n":       `columns 2 and 3 of the header have one name, "a"`,
		",external_id,\n":         "column 1 of the header has no name. Give it one, or take it out",
		"external_id,,b\n":        "column 2 of the header has no name",
		"external_id,\"a\n":       "cannot be read",
		"external_id,age\rx3,3\r": "Save it with LF or CRLF",
		"external_id\rx3\r\"x\n":  "Save it with LF or CRLF",
		// What a spreadsheet calls Unicode text, and text of an older one.
		"\xff\xfee\x00x\x00;\x00\r\x00\n\x00":            "not text in UTF-8. Save it as CSV UTF-8",
		"e\x00x\x00;\x00\r\x00\n\x00":                    "not text in UTF-8",
		"external_id,stra\xdfe\r\n":                      "not text in UTF-8",
		"PK\x03\x04\x14\x00":                             "a workbook or an archive. Save the sheet as CSV UTF-8",
		"\xd0\xcf\x11\xe0":                               "a workbook",
		"\ufeff [\n{\"external_id\":\"a\"}]":             "begins a list of JSON. Write one object a line",
		"[{\"external_id\":\"a\"}]":                      "a list of JSON",
		"[likes],b\n":                                    "no column that is spelled external_id",
		"external_id" + strings.Repeat("\rx", maxRecord): "Save it with LF or CRLF",
		"external_id" + strings.Repeat(",", 1024) + "\n": "1025 columns",
		// Each line would repeat it: 400 KB of a file were 800 MB of users.
		"external_id,a," + strings.Repeat("n", 257) + "\n": "column 3 of the header has 257 bytes, and may have 256",
	} {
		_, err := io.ReadAll(newCSVLines(strings.NewReader(file)))
		if f := fault.As(err); f == nil || f.Code != "invalid_csv" || !strings.Contains(f.Detail, detail) {
			t.Errorf("%.30q: %v, want %s", file, err, detail)
		}
	}
}

func TestARecordThatDoesNotEndCostsNoOtherAndLittleMemory(t *testing.T) {
	const users = 200_000 // several times what may be held
	endless := io.MultiReader(strings.NewReader("external_id,a\nu,\"open\n"), &numbered{most: users},
		strings.NewReader("long,"+strings.Repeat("x", 3*maxRecord)+"\nlast,1\n"))
	lines := newCSVLines(endless)
	text := testkit.Must(io.ReadAll(lines))(t)
	got := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(got) != users+4 || !strings.HasPrefix(got[1], "\x1aline 2, column 9") || !strings.HasPrefix(got[users+2], "\x1aline "+fmt.Sprint(users+3)) || got[users+3] != `{"external_id":"last","traits":{"a":1}}` {
		t.Errorf("%d lines: %q … %.60q %.60q", len(got), got[1], got[users+2], got[len(got)-1])
	}
	for i, line := range got[2 : users+2] {
		if want := fmt.Sprintf(`{"external_id":"u%d","traits":{"a":%d}}`, i, i); line != want {
			t.Fatalf("line %d is %s, want %s", i+3, line, want)
		}
	}
	if cap(lines.buffer) > 4*maxRecord {
		t.Errorf("%d bytes were held", cap(lines.buffer))
	}
}

type numbered struct {
	n, most int
	rest    []byte
}

func (f *numbered) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.n == f.most {
			return 0, io.EOF
		}
		f.rest = fmt.Appendf(f.rest, "u%d,%d\n", f.n, f.n)
		f.n++
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// TestShortLinesOfCSVTakeLittle: a client that sends millions of them keeps the processors from others.
func TestShortLinesOfCSVTakeLittle(t *testing.T) {
	const lines = 10_000
	for line, most := range map[string]uint64{"": 16, "1": 1_000} { // bytes of memory for each
		file := "external_id\n" + strings.Repeat(line+"\n", lines)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := io.Copy(io.Discard, newCSVLines(strings.NewReader(file))); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) / lines; took > most {
			t.Errorf("a line %q takes %d bytes of memory, not %d at most", line, took, most)
		}
	}
}

func TestAnImportThatBreaksOffFailsAsWhatItReads(t *testing.T) {
	gone := errors.New("gone")
	_, err := io.ReadAll(newCSVLines(io.MultiReader(strings.NewReader("external_id\nu1\nu2"), iotest.ErrReader(gone))))
	if !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

// backFromCSV is what a trait is after it was written as CSV and read again; "" where there is none.
func backFromCSV(t *testing.T, value string) string {
	t.Helper()
	field := testkit.Must(CSVField(json.RawMessage(value)))(t)
	var file strings.Builder
	out := csv.NewWriter(&file)
	if err := out.WriteAll([][]string{{ExternalIDColumn, "a"}, {"u1", field}}); err != nil {
		t.Fatal(err)
	}
	var user struct{ Traits map[string]json.RawMessage }
	lines := strings.Join(importOf(t, strings.NewReader(file.String())), "")
	if err := json.Unmarshal([]byte(lines), &user); err != nil {
		t.Fatalf("%s: %q: %v", value, lines, err)
	}
	return string(user.Traits["a"])
}

// CSV has texts alone: docs/segments.md lists what comes back as something else.
func TestTraitsComeBackFromCSVButForWhatIsSaid(t *testing.T) {
	for value, back := range map[string]string{
		`""`: "", `"31"`: "31", `"true"`: "true", `"null"`: "null", `"[1]"`: "[1]", `"{}"`: "{}", `"a\r\nb"`: `"a\nb"`,
		`123456789012345678`: `"123456789012345678"`, `0.30000000000000004`: `0.30000000000000004`, `-2.220446049250313e-16`: `-2.220446049250313e-16`,
		`0.300000000000000040`: `"0.300000000000000040"`, `1234567890123456`: `"1234567890123456"`,
		`1e100`: `"1e100"`, `"\"x\""`: `"\"x\""`, `[123456789012345678,""]`: `[123456789012345678,""]`,
	} {
		if got := backFromCSV(t, value); got != back {
			t.Errorf("%s came back as %s, not %s", value, got, back)
		}
	}
	random := testkit.Random(t)
	for range 5_000 {
		value := anyJSON(random, 3)
		text, isText := value.(string)
		if isText && (text == "" || json.Valid([]byte(text)) || strings.Contains(text, "\r\n")) {
			continue // as above
		}
		if n, ok := value.(json.Number); ok && digits(string(n)) > exactDigits && !printed(string(n)) {
			continue
		}
		written := testkit.Must(json.Marshal(value))(t)
		decoder := json.NewDecoder(strings.NewReader(backFromCSV(t, string(written))))
		decoder.UseNumber()
		var back any
		if err := decoder.Decode(&back); err != nil || !reflect.DeepEqual(back, value) {
			t.Errorf("%s came back as %v, %v", written, back, err)
		}
	}
}

// anyJSON draws a value of any type, lists and objects so deep.
func anyJSON(random *rand.Rand, depth int) any {
	text := func() string {
		parts := []string{"a", "é", " ", ",", `"`, "\n", "\r", "\t", "=", "-", "1", "0", ".", "e", "[", "]", "{", "}", ":", "true", "null", "<&>"}
		var out strings.Builder
		for range random.IntN(5) {
			out.WriteString(parts[random.IntN(len(parts))])
		}
		return out.String()
	}
	switch kind := random.IntN(7); {
	case kind == 0:
		return nil
	case kind == 1:
		return random.IntN(2) == 0
	case kind == 2:
		return json.Number(strconv.Itoa(random.IntN(1_000_000) - 500_000))
	case kind == 3:
		return json.Number(strconv.FormatFloat(random.NormFloat64()*math.Pow(10, float64(random.IntN(40)-20)), 'g', 1+random.IntN(17), 64))
	case kind == 4 && depth > 0:
		list := make([]any, random.IntN(4))
		for i := range list {
			list[i] = anyJSON(random, depth-1)
		}
		return list
	case kind == 5 && depth > 0:
		object := map[string]any{}
		for range random.IntN(4) {
			object[text()] = anyJSON(random, depth-1)
		}
		return object
	}
	return text()
}

func FuzzCSVMakesLinesOfJSON(f *testing.F) {
	f.Add("external_id,a\nu1,\"x\ny\"\nu2,[1\nu3,\"")
	f.Fuzz(func(t *testing.T, file string) {
		text, err := io.ReadAll(newCSVLines(strings.NewReader(file)))
		if err != nil {
			return
		}
		lines := strings.Count(file, "\n")
		if !strings.HasSuffix(file, "\n") {
			lines++
		}
		if got := strings.Count(string(text), "\n"); got != lines {
			t.Errorf("%q has %d lines, and became %d", file, lines, got)
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if line != "" && line[0] != refusedRecord && !json.Valid([]byte(line)) {
				t.Errorf("%q became %q", file, line)
			}
		}
	})
}
