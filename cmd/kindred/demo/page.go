package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// page is where the story is written, in lines that fit a terminal.
type page struct {
	to       io.Writer
	terminal bool // a person watches: colour, and a line that shows progress
}

const (
	strong = "\x1b[1m"
	faint  = "\x1b[2m"
	plain  = "\x1b[0m"
	redraw = "\r\x1b[K"
)

func newPage(to io.Writer) *page {
	p := &page{to: to}
	if f, ok := to.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 &&
			os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
	}
	return p
}

func (p *page) styled(style, text string) string {
	if !p.terminal {
		return text
	}
	return style + text + plain
}

// title begins a step.
func (p *page) title(n int, text string) {
	fmt.Fprintf(p.to, "\n%s\n", p.styled(strong, fmt.Sprintf("%2d  %s", n, text)))
}

// say writes a line under the step's title.
func (p *page) say(format string, args ...any) {
	fmt.Fprintf(p.to, "    %s\n", fmt.Sprintf(format, args...))
}

func (p *page) blank() { fmt.Fprintln(p.to) }

// progress shows how far something is, where a person watches.
func (p *page) progress(format string, args ...any) {
	if p.terminal {
		fmt.Fprintf(p.to, "%s    %s", redraw, p.styled(faint, fmt.Sprintf(format, args...)))
	}
}

// endProgress wipes the progress line.
func (p *page) endProgress() {
	if p.terminal {
		fmt.Fprint(p.to, redraw)
	}
}

// table writes rows under a head, or without one; columns of numbers stand to
// the right.
func (p *page) table(head []string, rows [][]string) {
	var widths []int
	var left []bool // a column with words in it
	for i, row := range append([][]string{head}, rows...) {
		for j, cell := range row {
			if j == len(widths) {
				widths, left = append(widths, 0), append(left, false)
			}
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
			left[j] = left[j] || i > 0 && !numeric(cell)
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for j, cell := range row {
			gap := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell))
			if left[j] {
				b.WriteString(cell + gap + "  ")
			} else {
				b.WriteString(gap + cell + "  ")
			}
		}
		return strings.TrimRight(b.String(), " ")
	}
	if head != nil {
		p.say("%s", p.styled(faint, line(head)))
	}
	for _, row := range rows {
		p.say("%s", line(row))
	}
}

func numeric(cell string) bool {
	if cell == "" || cell == missing {
		return true
	}
	_, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64)
	return err == nil
}

// count writes a number with its thousands apart.
func count(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// cut shortens a text to a width, in characters.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// brief writes a duration with as many digits as a person reads.
func brief(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}
