// Package chart draws pictures as SVG: each with a title, a description and its figures
// in a table behind a fold. Colours come from the stylesheet.
package chart

import (
	"fmt"
	"hash/fnv"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Words are what pictures say of themselves.
type Words struct {
	Chart, Table, AsTable string
	Users                 string // the head of a column of counts
	Moved                 func(count, from, to string) string
}

// Series is one row of figures of a picture, with a name.
type Series struct {
	Name   string
	Values []float64
}

// Data is what a picture shows: for each label one value of each series.
type Data struct {
	Title, Description string
	Label              string // of the labels, as in Day
	Labels             []string
	Series             []Series
	Places             int  // decimals of the values
	Newest             bool // the last label is the newest: where there is no room for all, it is seen first
}

const (
	width      = 720.0
	left       = 52.0 // what the axis takes, as in console.css
	bottom     = 196.0
	top        = 12.0
	widest     = 40.0 // a bar
	letterWide = 9.0  // about, of the larger letters of a picture that is drawn small
	shown      = 7    // labels below the axis: more do not fit without smaller letters
)

// Bars draws stacked bars.
func (w Words) Bars(d Data) template.HTML {
	var b builder
	highest := 0.0
	for i := range d.Labels {
		sum := 0.0
		for _, s := range d.Series {
			sum += s.Values[i]
		}
		highest = max(highest, sum)
	}
	scale := b.open(d, highest)
	step := (width - left) / float64(max(len(d.Labels), 1))
	wide := min(step*.64, widest)
	for i, label := range d.Labels {
		y := bottom
		for n, s := range d.Series {
			tall := s.Values[i] * scale
			if tall <= 0 {
				continue
			}
			y -= tall
			b.add(`<rect class="f%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="1.5"><title>%s: %s %s</title></rect>`,
				n%6+1, left+step*(float64(i)+.5)-wide/2, y, wide, tall, label, figure(s.Values[i], d.Places), s.Name)
		}
	}
	return b.close(w, d, func(i int) float64 { return left + step*(float64(i)+.5) })
}

// Highest is the largest value of any series; 0 where there is none.
func (d Data) Highest() (highest float64) {
	for _, s := range d.Series {
		for _, v := range s.Values {
			highest = max(highest, v)
		}
	}
	return highest
}

// Line draws a line for each series; the area below the first is washed.
func (w Words) Line(d Data) template.HTML {
	var b builder
	scale := b.open(d, d.Highest())
	x := func(i int) float64 {
		switch {
		case len(d.Labels) > 1:
		case d.Newest:
			return width - letterWide*float64(utf8.RuneCountInString(d.Labels[0]))/2 // a phone shows the end
		default:
			return (left + width) / 2
		}
		return left + (width-left)*float64(i)/float64(len(d.Labels)-1)
	}
	for n, s := range d.Series {
		var path strings.Builder
		for i, v := range s.Values {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(i), bottom-v*scale)
		}
		if n == 0 && len(s.Values) > 1 {
			b.add(`<path class="wash" d="%sL%.1f %.1fL%.1f %.1fZ"/>`, path.String(), x(len(s.Values)-1), bottom, left, bottom)
		}
		b.add(`<path class="l%d" d="%s"/>`, n%6+1, path.String())
		if len(s.Values) == 1 {
			b.add(`<circle class="f%d" cx="%.1f" cy="%.1f" r="3"/>`, n%6+1, x(0), bottom-s.Values[0]*scale)
		}
	}
	return b.close(w, d, x)
}

// Spark draws a small line without letters, for beside a figure that says what it is.
func Spark(values []float64) template.HTML {
	if len(values) < 2 {
		return ""
	}
	lowest, highest := values[0], values[0]
	for _, v := range values {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	var path strings.Builder
	for i, v := range values {
		y := 40.0
		if highest > lowest {
			y = 40 - 36*(v-lowest)/(highest-lowest)
		}
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], 220*float64(i)/float64(len(values)-1), y)
	}
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 220 44" width="220" height="44" aria-hidden="true"><path class="wash" d="%sL220 44L0 44Z"/><path class="l1" d="%s"/></svg>`, path.String(), path.String())) //nolint:gosec // numbers alone
}

// Part is one piece of a whole, with a name.
type Part struct {
	Name  string
	Value float64
}

// Terms draws what each part adds to a sum of at most 1, as one bar.
func Terms(parts []Part) template.HTML {
	var b builder
	said := make([]string, len(parts))
	x := 0.0
	for i, p := range parts {
		said[i] = p.Name + " " + figure(p.Value, 2)
		wide := 240 * max(p.Value, 0)
		b.add(`<rect class="f%d" x="%.1f" y="2" width="%.1f" height="12"><title>%s</title></rect>`, i%6+1, x, wide, said[i])
		x += wide
	}
	return template.HTML(fmt.Sprintf(`<svg class="terms" viewBox="0 0 240 16" width="240" height="16" role="img" aria-label="%s"><rect class="sunk" width="240" height="12" y="2"/>%s</svg>`, //nolint:gosec // escaped
		template.HTMLEscapeString(strings.Join(said, ", ")), b.String()))
}

// Meter draws a share of a whole, 0 to 1, beside what is expected by now; less than 0: nothing is.
func Meter(share, expected float64, label string) template.HTML {
	mark := ""
	if expected >= 0 {
		mark = fmt.Sprintf(`<rect class="mark" x="%.1f" width="2" height="16"/>`, 240*min(expected, 1)-1)
	}
	class := "f1"
	if share > 1 || expected >= 0 && share > expected*1.25 {
		class = "f2"
	}
	return template.HTML(fmt.Sprintf(`<svg class="terms" viewBox="0 0 240 16" width="240" height="16" role="img" aria-label="%s"><rect class="sunk" width="240" height="12" y="2"/><rect class="%s" width="%.1f" height="12" y="2"/>%s</svg>`, //nolint:gosec // escaped
		template.HTMLEscapeString(label), class, 240*min(max(share, 0), 1), mark))
}

type builder struct {
	strings.Builder
	axis strings.Builder // what stays in sight while the picture is scrolled
}

// add writes a piece; texts in it are escaped.
func (b *builder) add(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	fmt.Fprintf(b, format, args...)
}

// wide puts a picture where it can be scrolled, or is seen whole.
func (b *builder) wide(w Words, class, drawn string) {
	b.add(`<div class="%s" tabindex="0" role="group" aria-label="%s">`, class, w.Chart)
	fmt.Fprintf(b, "%s</div>", drawn)
}

// table begins the table of a picture, and its head.
func (b *builder) table(w Words) {
	b.add(`<details><summary>%s</summary><div class="scroll" tabindex="0" role="group" aria-label="%s"><table><thead><tr>`, w.AsTable, w.Table)
}

// open draws the grid, and returns how tall one unit is.
func (b *builder) open(d Data, highest float64) (scale float64) {
	id := ident(d.Title + d.Description + strings.Join(d.Labels, " "))
	b.add(`<svg viewBox="0 0 720 220" role="img" aria-labelledby="t%s d%s"><title id="t%s">%s</title><desc id="d%s">%s</desc>`, id, id, id, d.Title, id, d.Description)
	step := nice(highest / 4)
	if d.Places == 0 {
		step = max(step, 1)
	}
	places := d.Places
	if step >= 1 {
		places = 0
	}
	ceiling := step * max(math.Ceil(highest/step), 1)
	scale = (bottom - top) / ceiling
	fmt.Fprintf(&b.axis, `<svg class="axis" viewBox="0 0 %.0f 220" aria-hidden="true"><rect width="%.0f" height="%.0f"/>`, left, left-2, 220.0)
	for v := 0.0; v <= ceiling+step/2; v += step {
		y := bottom - v*scale
		b.add(`<line class="grid" x1="%.0f" x2="720" y1="%.1f" y2="%.1f"/>`, left, y, y)
		text := figure(v, places)
		if ceiling >= 10_000 {
			text = brief(v)
		}
		fmt.Fprintf(&b.axis, `<text x="%.0f" y="%.1f" text-anchor="end">%s</text>`, left-8, y+4, text)
	}
	return scale
}

// close draws the labels and the table.
func (b *builder) close(w Words, d Data, x func(i int) float64) template.HTML {
	every, end := max((len(d.Labels)+shown-1)/shown, 1), 0.0
	for i, label := range d.Labels {
		half := letterWide * float64(utf8.RuneCountInString(label)) / 2
		middle := max(min(x(i), width-half), left+half)
		if i%every != 0 || middle-half < end { // it would run into the one before
			continue
		}
		b.add(`<text x="%.1f" y="216" text-anchor="middle">%s</text>`, middle, label)
		end = middle + half
	}
	b.add("</svg>")
	fmt.Fprintf(&b.Builder, "%s</svg>", b.axis.String())
	var all builder
	all.add(`<ul class="key">`) // of one series too: it says what the axis counts
	for n, s := range d.Series {
		all.add(`<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="f%d" width="10" height="10" rx="2"/></svg>%s</li>`, n%6+1, s.Name)
	}
	all.add("</ul>")
	class := "wide"
	if d.Newest {
		class = "wide newest"
	}
	all.wide(w, class, b.String())
	all.table(w)
	all.add(`<th scope="col">%s</th>`, d.Label)
	for _, s := range d.Series {
		all.add(`<th scope="col" class="num">%s</th>`, s.Name)
	}
	all.add("</tr></thead><tbody>")
	for i, label := range d.Labels {
		all.add(`<tr><th scope="row">%s</th>`, label)
		for _, s := range d.Series {
			all.add(`<td class="num">%s</td>`, figure(s.Values[i], d.Places))
		}
		all.add("</tr>")
	}
	all.add("</tbody></table></div></details>")
	return template.HTML(all.String()) //nolint:gosec // every text in it is escaped
}

// nice is the next of 1, 2 and 5 times a power of ten.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*unit*(1+1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// brief writes a number of many digits in few, as in 1.5M.
func brief(v float64) string {
	for _, unit := range []struct {
		of   float64
		sign string
	}{{1e12, "tn"}, {1e9, "bn"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.of {
			return strconv.FormatFloat(v/unit.of, 'g', 4, 64) + unit.sign
		}
	}
	return figure(v, 0)
}

// figure writes a number with separators.
func figure(v float64, places int) string {
	text := strconv.FormatFloat(math.Abs(v), 'f', places, 64)
	whole, part, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if part != "" {
		whole += "." + part
	}
	if v < 0 {
		return "−" + whole
	}
	return whole
}

// ident is an id for a picture that stays the same as long as the picture does.
func ident(text string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // it never fails
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}
