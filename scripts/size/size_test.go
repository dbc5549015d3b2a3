package main

import "testing"

func TestLinesOfCodeAreCounted(t *testing.T) {
	const text = "// Package p.\npackage p\n\n/* a\nb */\nvar x = 1 // one\nconst sql = `\nSELECT 1\n\nFROM t`\n\nfunc f() {\n\t// nothing\n}\n"
	if n := lines([]byte(text)); n != 8 { // package, var, four of the literal, two of the function
		t.Errorf("%d lines", n)
	}
}
