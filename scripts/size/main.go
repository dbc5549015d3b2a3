// Command size counts the lines of Go that make up the service, folder by folder:
// without blanks, comments, tests, test support, benchmarks, the demo and what is
// generated.
//
//	go run ./scripts/size [FOLDER]
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	counts, err := count(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
	total := 0
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		fmt.Printf("%7d  %s\n", counts[folder], folder)
		total += counts[folder]
	}
	fmt.Printf("%7d  in all\n", total)
}

// count returns the lines of code below a folder, by the folder that they are in.
func count(root string) (map[string]int, error) {
	counts := map[string]int{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && left(entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // G122: a tree of the reader's own
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		counts[folder] += lines(text)
		return err
	})
	return counts, err
}

// left says which folders are no part of the service: what tests, measures or
// plays with it, and what is not of this module.
func left(folder string) bool {
	switch folder {
	case "scripts", "demo", "golden", "e2e", "sdk", "node_modules", "testdata", "testkit":
		return true
	}
	return strings.HasPrefix(folder, ".") || strings.HasSuffix(folder, "test")
}

// lines counts the lines of a file that hold some of its code.
func lines(text []byte) int {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, nil, 0)
	with := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return len(with)
		case tok == token.SEMICOLON && literal == "\n": // the scanner's own
			continue
		}
		first := file.Line(pos)
		for i := range 1 + strings.Count(literal, "\n") { // SQL and the like
			with[first+i] = true
		}
	}
}
