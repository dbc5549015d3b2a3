package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// printTable writes the figures, one a line.
func printTable(w io.Writer, r Report) error {
	lines := [][]string{{"", "unit", "kindred", "beside", "ratio", "target", ""}}
	for _, f := range r.Figures {
		line := []string{f.Name, f.Unit, f.Value.String(), f.Beside.String(), f.Ratio.String(), "", f.Mark()}
		if f.Target != nil {
			line[5] = f.Target.String()
		}
		if f.Skipped != "" {
			line[6] += ": " + f.Skipped
		}
		lines = append(lines, line)
	}
	_, err := fmt.Fprintf(w, "%s\n%s", r.Conditions(), aligned(lines))
	return err
}

// printComparison writes the figures of b beside those of a, with the change
// of their medians. Changes that the spreads do not tell from noise are marked.
func printComparison(w io.Writer, a, b Report) error {
	lines := [][]string{{"", "unit", "A", "B", "change", "ratio A", "ratio B", "change", ""}}
	earlier := map[string]Figure{}
	for _, f := range a.Figures {
		earlier[f.Name] = f
	}
	for _, f := range b.Figures {
		before := earlier[f.Name]
		delete(earlier, f.Name)
		lines = append(lines, compared(before, f))
	}
	for _, f := range a.Figures { // those that B has not
		if _, left := earlier[f.Name]; left {
			lines = append(lines, compared(f, Figure{Name: f.Name, Unit: f.Unit}))
		}
	}
	_, err := fmt.Fprintf(w, "A: %s\nB: %s\n%s", a.Conditions(), b.Conditions(), aligned(lines))
	return err
}

func compared(a, b Figure) []string {
	line := []string{
		b.Name, b.Unit, a.Value.String(), b.Value.String(), change(a.Value, b.Value),
		median(a.Ratio), median(b.Ratio), change(a.Ratio, b.Ratio), "",
	}
	if before, after := a.Mark(), b.Mark(); before != after && before != "" && after != "" {
		line[8] = before + " → " + after
	}
	return line
}

func median(s *Spread) string {
	if s == nil {
		return ""
	}
	return number(s.Median)
}

// change in percent; "~" says that the spreads overlap.
func change(a, b *Spread) string {
	if a == nil || b == nil || a.Median == 0 {
		return ""
	}
	text := fmt.Sprintf("%+.1f %%", 100*(b.Median/a.Median-1))
	if a.Min <= b.Max && b.Min <= a.Max && (a.Min < a.Max || b.Min < b.Max) {
		text += " ~"
	}
	return text
}

// aligned puts the first two columns to the left and figures to the right.
func aligned(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		var row strings.Builder
		for i, cell := range line {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 2 || i == len(line)-1 {
				row.WriteString(cell + space + "  ")
			} else {
				row.WriteString(space + cell + "  ")
			}
		}
		b.WriteString(strings.TrimRight(row.String(), " ") + "\n")
	}
	return b.String()
}
