// Package golden keeps what others hold in their hands as it is: one text file
// here for each list of names, formats and bytes that clients, operators,
// auditors, stored histories and processes of another release rely on. A test
// beside the owner of each list derives it from the running code.
//
// The rule: nothing that stands here is renamed or removed, and no bytes
// change. What is added appears as an added line, by
//
//	make golden
//
// which adds lines and never takes one away. A line that must go is deleted by
// hand, with the reason in the commit. Texts that are free to change, such as
// descriptions and details of errors, are in none of the lists.
package golden

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Update says whether files are to be written that lack something. They are
// never made to say anything else than they do.
var Update = flag.Bool("update", false, "add to the golden files what they lack; never change or remove what they hold")

// Check compares a list, in whatever order, with the lines of a file of this
// folder.
func Check(t *testing.T, file string, got []string) {
	t.Helper()
	file = filepath.Join(root(t), "golden", file)
	got = slices.Compact(slices.Sorted(slices.Values(got)))
	for _, line := range got {
		if strings.ContainsAny(line, "\n\r") {
			t.Fatalf("an item of more than one line: %q", line)
		}
	}
	var want []string
	switch text, err := os.ReadFile(file); {
	case err == nil:
		want = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	case !errors.Is(err, fs.ErrNotExist) || !*Update:
		t.Fatal(err)
	}
	gone, added := without(want, got), without(got, want)
	if *Update && len(added) > 0 {
		all := slices.Sorted(slices.Values(slices.Concat(want, added)))
		if err := os.WriteFile(file, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil { //nolint:gosec // G703: a test names its file
			t.Fatal(err)
		}
		added = nil
	}
	for _, line := range gone {
		t.Errorf("others hold this in their hands, and it has gone: %s", line)
	}
	for _, line := range added {
		t.Errorf("this is new (make golden adds it): %s", line)
	}
	if t.Failed() {
		t.Logf("see %s", file)
	}
}

// without is what a has and b lacks.
func without(a, b []string) (left []string) {
	for _, line := range a {
		if !slices.Contains(b, line) {
			left = append(left, line)
		}
	}
	return left
}

// root is the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if filepath.Dir(at) == at {
			t.Fatal("there is no go.mod above")
		}
		at = filepath.Dir(at)
	}
}
