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

// terminal is the terminal that is written to, by way of the log or at once,
// or nil.
func terminal(out io.Writer) *os.File {
	if lines, ok := out.(*logLines); ok {
		out = lines.out
	}
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return file
}

// bar shows progress on a terminal, with the rate and an estimate of what is
// left; anywhere else it shows nothing.
type bar struct {
	out   *os.File // nil: not a terminal
	what  string   // is counted, and what is done to it
	began time.Time
	first int64 // done when it began
	shown time.Time
}

func newBar(out io.Writer, what string) *bar {
	return &bar{out: terminal(out), what: what, began: time.Now()}
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
	line := fmt.Sprintf("\r[%s%s] %d of %d %s", strings.Repeat("#", filled), strings.Repeat(" ", barWidth-filled), done, total, b.what)
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

// readUnder shows how much of a file was read.
type readUnder struct {
	*bar
	file        io.Reader
	read, total int64 // bytes
}

func (r *readUnder) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	r.read += int64(n)
	r.show(r.read, r.total)
	return n, err
}
