package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	barWidth = 30
	barEvery = 200 * time.Millisecond
)

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// bar shows progress on a terminal, with the rate and an estimate of what is
// left; anywhere else it shows nothing.
type bar struct {
	out   io.Writer // nil: not a terminal
	verb  string
	began time.Time
	first int64 // done when it began
	shown time.Time
}

func newBar(out io.Writer, verb string) *bar {
	b := &bar{verb: verb, began: time.Now()}
	if isTerminal(out) {
		b.out = out
	}
	return b
}

func (b *bar) show(done, total int64) {
	now := time.Now()
	if b.shown.IsZero() {
		b.first = done
	}
	if b.out == nil || now.Sub(b.shown) < barEvery || total <= 0 {
		return
	}
	b.shown = now
	filled := int(barWidth * min(done, total) / total)
	line := fmt.Sprintf("\r[%s%s] %d of %d events %s", strings.Repeat("#", filled), strings.Repeat(" ", barWidth-filled), done, total, b.verb)
	if rate := float64(done-b.first) / now.Sub(b.began).Seconds(); rate > 0 && total >= done {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		line += fmt.Sprintf(", %.0f/s, %s left", rate, left.Round(time.Second))
	}
	fmt.Fprintf(b.out, "%-100s", line)
}

// end leaves the line.
func (b *bar) end() {
	if b.out != nil && !b.shown.IsZero() {
		fmt.Fprintln(b.out)
	}
}
