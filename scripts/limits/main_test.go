package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestTheLimitsPageIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	if err := run(filepath.Join("..", ".."), true); err != nil {
		t.Fatal(err)
	}
}

func TestCodesOfTheLimitsPageAreKnown(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	codes, err := os.ReadFile(filepath.Join(root, "golden", "codes.txt"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("\\| (4\\d\\d|5\\d\\d) `(\\w+)`").FindAllSubmatch(text, -1)
	if len(found) < 20 {
		t.Fatalf("only %d rows name a code", len(found))
	}
	for _, one := range found {
		if code := string(one[1]) + " " + string(one[2]); !strings.Contains(string(codes), code+"\n") {
			t.Errorf("there is no %s", code)
		}
	}
}

// module is a module named kindred with one package of the domain, and a page.
func module(t *testing.T, source, rows string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                "module kindred\n\ngo 1.26\n",
		"domain/fault/fault.go": "package fault\n\nfunc New(code string) error { return nil }\n",
		"domain/domain.go":      "package domain\n\nimport \"kindred/domain/fault\"\n\n" + source,
		page:                    "# Limits\n\n<!-- limits: client -->\n| limit | value | beyond |\n|---|---|---|\n" + rows,
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	tagged   = "// limit: client | members | {2 * members}, {size B} | 409 `many`\nconst members, size = 500, 3 << 20\n\n"
	refusing = "func Add(n, of int) error {\n\tif n > members*2 || of >= size {\n\t\treturn fault.New(`many`)\n\t}\n\treturn nil\n}\n"
	row      = "| members | 1,000, 3 MiB | 409 `many` |\n"
)

func TestATableIsWrittenFromTheCommentsOfItsConstants(t *testing.T) {
	t.Parallel()
	dir := module(t, tagged+refusing, "| members | 999 | 409 `many` |\n| gone | 1 | |\n")
	if err := run(dir, true); err == nil {
		t.Fatal("an old page passes")
	}
	if err := run(dir, false); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, page))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(text), "|---|---|---|\n"+row) {
		t.Errorf("the page is\n%s", text)
	}
}

func TestWhatIsALimitAndHasNoRowFails(t *testing.T) {
	t.Parallel()
	for what, extra := range map[string]string{
		"maxNames, which is a limit by its name":    "const maxNames = 3\n\nvar _ = maxNames\n",
		"readsAtOnce, which is a limit by its name": "func f() int {\n\tconst readsAtOnce = 3\n\treturn readsAtOnce\n}\n",
		"names, with which a refusal compares":      "const names = 3\n\nfunc f(n int) error {\n\tswitch {\n\tcase n > names:\n\t\treturn fault.New(`x`)\n\t}\n\treturn nil\n}\n",
		"7, with which a refusal compares":          "func f(n int) error {\n\tif 7 < n && n != 9 {\n\t\treturn fault.New(`x`)\n\t}\n\treturn nil\n}\n",
		"nothing uses it":                           "// limit: client | unused | {unused} | -\nconst unused = 1\n",
		"is no constant":                            "// limit: client | unknown | {unknown} | -\n",
		"no table nowhere":                          "// limit: nowhere | members | {members} | -\n",
	} {
		dir := module(t, tagged+refusing+extra, row)
		if err := run(dir, true); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := run(module(t, tagged+refusing+"func f(n int) error {\n\tif n < 3 {\n\t\treturn fault.New(`few`)\n\t}\n\treturn nil\n}\n", row), true); err != nil {
		t.Error(err)
	}
}
