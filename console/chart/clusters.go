package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Point is where one lies on a map.
type Point struct{ X, Y float64 }

// Group is those who belong together. Its place in the list is its colour and shape.
type Group struct {
	Name   string
	Points []Point
}

// Swatch is the colour and shape of a group of a map, for a table beside it.
func Swatch(group int) template.HTML {
	round := ` rx="5"`
	if group/6%2 == 1 {
		round = ""
	}
	return template.HTML(fmt.Sprintf(`<svg class="swatch" viewBox="0 0 10 10" width="10" height="10" aria-hidden="true"><rect class="f%d" width="10" height="10"%s/></svg>`, group%6+1, round)) //nolint:gosec // numbers alone
}

const (
	mapWide, mapTall = 640.0, 400.0
	margin           = 14.0 // around dots and names
	line             = 15.0 // from one name to the next
	longest          = 28   // letters of a name in a picture
	flowWide         = 720.0
	block            = 12.0 // wide
)

// Map draws groups in two dimensions, each with its name above its middle. Groups are
// told apart by colour, and from the seventh on by shape too.
func (w Words) Map(title, description string, groups []Group) template.HTML {
	place := fitted(groups)
	var b builder
	type label struct {
		name string
		Point
	}
	var labels []label
	for i, g := range groups {
		if len(g.Points) == 0 {
			continue
		}
		var dots strings.Builder
		name := label{g.Name, Point{0, mapTall}}
		for _, p := range g.Points {
			at := place(p)
			fmt.Fprintf(&dots, "M%.1f %.1fh0", at.X, at.Y)
			name.X += at.X / float64(len(g.Points))
			name.Y = min(name.Y, at.Y)
		}
		b.add(`<path class="p%d dot%s" d="%s"/>`, i%6+1, [...]string{"", " square"}[i/6%2], dots.String())
		labels = append(labels, name)
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.Y, b.Y) })
	step := min(line, (mapTall-2*margin)/float64(max(len(labels)-1, 1)))
	for i, l := range labels {
		lowest := margin + step*float64(i) // those above have their lines already
		if i > 0 {
			lowest = labels[i-1].Y + step
		}
		labels[i].Y = min(max(l.Y-8, lowest), mapTall-margin-step*float64(len(labels)-1-i))
		half := letterWide * float64(utf8.RuneCountInString(cut(l.name))) / 2
		b.add(`<text class="strong" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			min(max(l.X, half), mapWide-half), labels[i].Y, cut(l.name))
	}
	return w.picture(title, description, mapWide, mapTall, b.String())
}

// fitted returns what puts a point into the picture, with one scale for both directions.
func fitted(groups []Group) func(Point) Point {
	low, high := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, g := range groups {
		for _, p := range g.Points {
			low, high = Point{min(low.X, p.X), min(low.Y, p.Y)}, Point{max(high.X, p.X), max(high.Y, p.Y)}
		}
	}
	scale := min((mapWide-2*margin)/max(high.X-low.X, 1e-9), (mapTall-2*margin)/max(high.Y-low.Y, 1e-9))
	return func(p Point) Point {
		return Point{mapWide/2 + scale*(p.X-(low.X+high.X)/2), mapTall/2 - scale*(p.Y-(low.Y+high.Y)/2)}
	}
}

// End is where moves begin or end.
type End struct {
	Name   string
	Colour int // the place of its group on a map; below 0: grey
}

// Move says how many went from one end to another; both are places in the lists of ends.
type Move struct {
	From, To int
	Count    int64
}

// Flow draws moves from the ends at the left, as they were then, to those at the right,
// as they are now, and lists them in a table.
func (w Words) Flow(title, description, then, now string, from, to []End, moves []Move) template.HTML {
	var all int64
	leaving, coming := make([]int64, len(from)), make([]int64, len(to))
	for _, m := range moves {
		all += m.Count
		leaving[m.From] += m.Count
		coming[m.To] += m.Count
	}
	most := float64(max(len(from), len(to), 1))
	tall := max(220, most*(line+9))
	scale := (tall - (most-1)*6) / float64(max(all, 1))
	var b builder
	b.add(`<text x="0" y="12">%s</text><text x="%.0f" y="12" text-anchor="end">%s</text>`, then, flowWide, now)
	stack := func(ends []End, counts []int64, x float64) (tops []float64) {
		y := 22.0
		for i, e := range ends {
			tops = append(tops, y)
			b.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"><title>%s: %s</title></rect>`,
				fill(e.Colour), x, y, block, scale*float64(counts[i]), e.Name, figure(float64(counts[i]), 0))
			y += scale*float64(counts[i]) + 6
		}
		return tops
	}
	left, right := stack(from, leaving, 0), stack(to, coming, flowWide-block)
	names := namesOf(from, leaving, left, scale, block+6, "start") + namesOf(to, coming, right, scale, flowWide-block-6, "end")
	slices.SortStableFunc(moves, func(a, b Move) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	for _, m := range moves {
		tall := scale * float64(m.Count)
		at, end := left[m.From], right[m.To]
		left[m.From], right[m.To] = at+tall, end+tall
		const middle = flowWide / 2
		b.add(`<path class="%s flow" d="M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1fV%.1fC%.1f %.1f %.1f %.1f %.1f %.1fZ"><title>%s</title></path>`,
			fill(to[m.To].Colour), block, at, middle, at, middle, end, flowWide-block, end, end+tall, middle, end+tall, middle, at+tall, block, at+tall,
			w.Moved(figure(float64(m.Count), 0), from[m.From].Name, to[m.To].Name))
	}
	fmt.Fprint(&b, names) // above the ribbons
	out := w.picture(title, description, flowWide, tall+26, b.String())
	var table builder
	table.table(w)
	table.add(`<th scope="col">%s</th><th scope="col">%s</th><th scope="col" class="num">%s</th></tr></thead><tbody>`, then, now, w.Users)
	for _, m := range moves {
		table.add(`<tr><td class="name">%s</td><td class="name">%s</td><td class="num">%s</td></tr>`, from[m.From].Name, to[m.To].Name, figure(float64(m.Count), 0))
	}
	table.add("</tbody></table></div></details>")
	return out + template.HTML(table.String()) //nolint:gosec // every text in it is escaped
}

// namesOf writes the names of ends beside their blocks, where there is the height of a letter.
func namesOf(ends []End, counts []int64, tops []float64, scale, x float64, anchor string) string {
	var b builder
	for i, e := range ends {
		if tall := scale * float64(counts[i]); tall >= 8 {
			b.add(`<text class="strong" x="%.1f" y="%.1f" text-anchor="%s">%s, %s</text>`, x, tops[i]+tall/2+4, anchor, cut(e.Name), figure(float64(counts[i]), 0))
		}
	}
	return b.String()
}

func fill(colour int) string {
	if colour < 0 {
		return "grey"
	}
	return fmt.Sprintf("f%d", colour%6+1)
}

func cut(name string) string {
	if utf8.RuneCountInString(name) <= longest {
		return name
	}
	return string([]rune(name)[:longest-1]) + "…"
}

// picture puts what was drawn into an SVG with a title and a description.
func (w Words) picture(title, description string, wide, tall float64, drawn string) template.HTML {
	var b builder
	id := ident(title + description)
	b.add(`<svg viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="t%s d%s"><title id="t%s">%s</title><desc id="d%s">%s</desc>`,
		wide, tall, id, id, id, title, id, description)
	fmt.Fprintf(&b, "%s</svg>", drawn)
	var out builder
	out.wide(w, "wide whole", b.String())
	return template.HTML(out.String()) //nolint:gosec // every text in it is escaped
}
