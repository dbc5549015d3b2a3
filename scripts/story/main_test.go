package main

import (
	"strings"
	"testing"
)

func TestFilesAreCountedThatAMatchAloneRunsThrough(t *testing.T) {
	read := func(lines ...string) map[string]map[string]int {
		found, err := ran("mode: atomic\n" + strings.Join(lines, "\n") + "\n")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	without := read("kindred/a.go:1.1,2.2 3 9", "kindred/b.go:1.1,2.2 1 1")
	with := read("kindred/a.go:1.1,2.2 3 1", "kindred/a.go:3.1,4.2 8 1", "kindred/b.go:1.1,2.2 1 2", "kindred/c.go:1.1,2.2 2 1",
		"kindred/d.go:1.1,2.2 5 0", "kindred/api.gen.go:1.1,2.2 5 1", "kindred/sdk/go/x.go:1.1,2.2 5 1")
	var out strings.Builder
	if err := report(&out, with, without, true); err != nil {
		t.Fatal(err)
	}
	if want := "*    8  a.go\n     2  c.go\n1 of 2 files tell the story: they hold 80 % of its 10 statements\n"; out.String() != want {
		t.Errorf("%s", &out)
	}
}
