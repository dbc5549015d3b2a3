package cli

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

// Terminal is the terminal that is written to, or nil.
func Terminal(out io.Writer) *os.File {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return file
}

// Bar shows progress on a terminal, with the rate and an estimate of what is
// left; anywhere else it shows nothing.
type Bar struct {
	out   *os.File // nil: not a terminal
	what  string   // is counted, and what is done to it
	began time.Time
	first int64 // done when it began
	shown time.Time
}

// NewBar makes a bar for a terminal, or for nothing where that is nil.
func NewBar(terminal *os.File, what string) *Bar {
	return &Bar{out: terminal, what: what, began: time.Now()}
}

// Show draws the bar, a few times a second at most.
func (b *Bar) Show(done, total int64) {
	now := time.Now()
	if b.shown.IsZero() {
		b.first = done
	}
	if b.out == nil || now.Sub(b.shown) < barEvery || total <= 0 {
		return
	}
	b.shown = now
	filled := int(barWidth * min(done, total) / total)
	line := fmt.Sprintf("\r[%s%s] %d of %d %s", strings.Repeat("#", filled), strings.Repeat(" ", barWidth-filled), done, total, b.what)
	if rate := float64(done-b.first) / now.Sub(b.began).Seconds(); rate > 0 && total >= done {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		line += fmt.Sprintf(", %.0f/s, %s left", rate, left.Round(time.Second))
	}
	fmt.Fprintf(b.out, "%-100s", line)
}

// End leaves the line.
func (b *Bar) End() {
	if b.out != nil && !b.shown.IsZero() {
		fmt.Fprintln(b.out)
	}
}

// ReadUnder shows how much of a file was read.
type ReadUnder struct {
	*Bar
	File  io.Reader
	Total int64 // bytes
	read  int64
}

func (r *ReadUnder) Read(p []byte) (int, error) {
	n, err := r.File.Read(p)
	r.read += int64(n)
	r.Show(r.read, r.Total)
	return n, err
}
