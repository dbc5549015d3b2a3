package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"kindred/domain/fault"
)

// importOf is what each line of a file of CSV becomes: its JSON, why it is refused,
// or nothing.
func importOf(t *testing.T, from io.Reader) []string {
	t.Helper()
	text, err := io.ReadAll(newCSVLines(from))
	if err != nil {
		t.Fatal(err)
	}
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
		"what is no text": {"external_id,a\nu1,\xff\nu2,1\n", []string{"", "\x1aline 2 is not UTF-8", `{"external_id":"u2","traits":{"a":1}}`}},
		"a header alone":  {"external_id,a\n", []string{""}},
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
		"":                  "The file has no header",
		"a,b\n":             "has no column external_id",
		"external_id,a,a\n": "columns 2 and 3 of the header have one name",
		"external_id,\n":    "column 2 of the header has no name",
		"external_id,\"a\n": "cannot be read",
		"external_id" + strings.Repeat(",", 1024) + "\n": "1025 columns",
	} {
		_, err := io.ReadAll(newCSVLines(strings.NewReader(file)))
		if f := fault.As(err); f == nil || f.Code != "invalid_csv" || !strings.Contains(f.Detail, detail) {
			t.Errorf("%.30q: %v, want %s", file, err, detail)
		}
	}
}

func TestARecordThatDoesNotEndCostsNoOtherAndLittleMemory(t *testing.T) {
	const users = 20_000
	endless := io.MultiReader(strings.NewReader("external_id,a\nu,\"open\n"), &numbered{most: users},
		strings.NewReader("long,"+strings.Repeat("x", 3*maxRecord)+"\nlast,1\n"))
	lines := newCSVLines(endless)
	text, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
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

func TestAnImportThatBreaksOffFailsAsWhatItReads(t *testing.T) {
	gone := errors.New("gone")
	_, err := io.ReadAll(newCSVLines(io.MultiReader(strings.NewReader("external_id\nu1\nu2"), iotest.ErrReader(gone))))
	if !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
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
