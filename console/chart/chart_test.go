package chart_test

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"kindred/console/chart"
)

var words = chart.Words{
	Chart: "Chart", Table: "Table", AsTable: "As a table", Users: "Users",
	Moved: func(count, from, to string) string { return count + " from " + from + " to " + to },
}

// wellFormed fails unless a picture is XML to its end.
func wellFormed(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, picture template.HTML,
) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader("<all>" + string(picture) + "</all>"))
	for {
		if _, err := decoder.Token(); err == io.EOF { //nolint:errorlint // as the decoder answers it
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
	}
}

var rectangle = regexp.MustCompile(`<rect class="f\d" x="([-\d.]+)" y="([-\d.]+)" width="([-\d.]+)" height="([-\d.]+)"`)

// Whatever the figures and names are, a picture stays in its frame, says all of them in
// its table and holds no markup of theirs.
func TestAnyFiguresMakeAPicture(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := chart.Data{Title: rapid.String().Draw(t, "title"), Description: "<b>&", Label: "Day", Places: rapid.IntRange(0, 3).Draw(t, "places")}
		n := rapid.IntRange(0, 70).Draw(t, "n")
		for i := range n {
			d.Labels = append(d.Labels, fmt.Sprintf("<%d>", i))
		}
		for s := range rapid.IntRange(1, 7).Draw(t, "series") {
			d.Series = append(d.Series, chart.Series{Name: fmt.Sprintf("<i>%d", s), Values: rapid.SliceOfN(rapid.Float64Range(0, 1e12), n, n).Draw(t, "values")})
		}
		for _, picture := range []template.HTML{words.Bars(d), words.Line(d)} {
			text := strings.Map(func(r rune) rune { // what XML cannot hold
				if r < ' ' || r == '\uFFFE' || r == '\uFFFF' {
					return -1
				}
				return r
			}, string(picture))
			wellFormed(t, template.HTML(text))
			if strings.Contains(text, "<i>") || strings.Contains(text, "<b>") {
				t.Fatalf("a name is markup: %s", text)
			}
			if got := strings.Count(text, "<tr>"); got != n+1 {
				t.Fatalf("%d rows in the table of %d labels", got, n)
			}
			for _, r := range rectangle.FindAllStringSubmatch(text, -1) {
				var at [4]float64
				for i := range at {
					at[i], _ = strconv.ParseFloat(r[i+1], 64)
				}
				if at[0] < 0 || at[0]+at[2] > 720.1 || at[1] < 0 || at[1]+at[3] > 220 {
					t.Fatalf("a bar is outside: %s", r[0])
				}
			}
			if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Fatalf("not a number: %s", text)
			}
		}
	})
}

func TestBarsAreAsTallAsTheirFigures(t *testing.T) {
	t.Parallel()
	picture := string(words.Bars(chart.Data{
		Title: "Deliveries", Label: "Day", Labels: []string{"1 Nov", "2 Nov"},
		Series: []chart.Series{{Name: "first", Values: []float64{10, 20}}, {Name: "dropped", Values: []float64{5, 0}}},
	}))
	var tall []float64
	for _, r := range rectangle.FindAllStringSubmatch(picture, -1) {
		h, err := strconv.ParseFloat(r[4], 64)
		if err != nil {
			t.Fatal(err)
		}
		tall = append(tall, h)
	}
	if len(tall) != 3 || math.Abs(tall[2]-2*tall[0]) > .2 || math.Abs(tall[1]*2-tall[0]) > .2 {
		t.Errorf("10, 5 and 20 are %v tall", tall)
	}
	for _, text := range []string{"<title>1 Nov: 10 first</title>", "<title>2 Nov: 20 first</title>", `<th scope="col">Day</th>`, "As a table"} {
		if !strings.Contains(picture, text) {
			t.Errorf("lacks %s", text)
		}
	}
}

// Long labels, such as spans of days, are fewer, and none runs into another; each stands in the table.
func TestLabelsRunIntoNoOther(t *testing.T) {
	t.Parallel()
	for label, least := range map[string]int{"1 Nov": 7, "52 to 54": 6, "1 Nov 2024 to 11 Jun 2025": 2, strings.Repeat("long", 50): 1} {
		d := chart.Data{Series: []chart.Series{{Name: "users"}}}
		for range 13 {
			d.Labels, d.Series[0].Values = append(d.Labels, label), append(d.Series[0].Values, 1)
		}
		for _, picture := range []template.HTML{words.Bars(d), words.Line(d)} {
			found, end := regexp.MustCompile(`<text x="([0-9.]+)" y="216"`).FindAllStringSubmatch(string(picture), -1), 0.0
			for _, text := range found {
				x, err := strconv.ParseFloat(text[1], 64)
				if half := 4.5 * float64(len(label)); err != nil || x-half < end-.1 {
					t.Errorf("%q at %s runs into the one that ends at %.1f", label, text[1], end)
				} else {
					end = x + half
				}
			}
			if len(found) < least || strings.Count(string(picture), `<th scope="row">`+label) != 13 {
				t.Errorf("of %q there are %d labels: %s", label, len(found), picture)
			}
		}
	}
}

// The end is what a phone shows of a picture that begins there: its last 240 units.
func TestASingleDayStandsWhereAPhoneLooks(t *testing.T) {
	picture := string(words.Line(chart.Data{Title: "Members", Labels: []string{"26 Nov"}, Newest: true, Series: []chart.Series{{Name: "Members", Values: []float64{10}}}}))
	found := regexp.MustCompile(`<circle [^>]*cx="([0-9.]+)"`).FindStringSubmatch(picture)
	if found == nil {
		t.Fatalf("no day in %s", picture)
	}
	if x, err := strconv.ParseFloat(found[1], 64); err != nil || x < 480 || x > 715 {
		t.Errorf("it stands at %s of 720", found[1])
	}
}

func TestSmallPicturesAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, picture := range []template.HTML{
		chart.Spark(nil), chart.Spark([]float64{1, 1, 1}), chart.Spark([]float64{1, 5, 2}), chart.Meter(.5, .4, `"half"`), chart.Meter(2, -1, "<all>"),
		chart.Terms([]chart.Part{{Name: `<"plan">`, Value: .4}, {Name: "age", Value: -.1}}),
		words.Map("Map", "Of <people>", []chart.Group{{Name: "<ann>", Points: []chart.Point{{1, 2}, {-1, 2}}}, {Name: "none"}}), words.Map("Map", "", nil),
		words.Map("Map", "", []chart.Group{{Name: "one", Points: []chart.Point{{1, 2}}}}),
		words.Flow("Flow", "From <then>", "then", "now", ends("<a>", "b"), ends("<a>", "c"), []chart.Move{{0, 0, 5}, {1, 1, 2}, {0, 1, 1}}),
		words.Flow("Flow", "", "then", "now", nil, nil, nil),
	} {
		wellFormed(t, picture)
		if strings.Contains(string(picture), "NaN") || strings.Contains(string(picture), "Inf") {
			t.Errorf("not a number: %s", picture)
		}
	}
}

func ends(names ...string) (all []chart.End) {
	for i, name := range names {
		all = append(all, chart.End{Name: name, Colour: i})
	}
	return all
}

var (
	dot    = regexp.MustCompile(`M(-?[\d.]+) (-?[\d.]+)h0`)
	letter = regexp.MustCompile(`<text class="strong" x="([\d.]+)" y="([\d.]+)"`)
)

// Whatever the points are, their dots and the names of their groups lie within the
// picture, and no name lies on another.
func TestAMapHasAllItsDotsAndNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		at := rapid.OneOf(rapid.Float64Range(-3, 3), rapid.Just(0.0), rapid.Float64Range(-1e9, 1e9))
		groups := make([]chart.Group, rapid.IntRange(1, 14).Draw(r, "groups"))
		points := 0
		for i := range groups {
			groups[i].Name = rapid.StringOfN(rapid.RuneFrom([]rune(`ab <>&"é漢`)), 0, 60, -1).Draw(r, "name")
			for range rapid.IntRange(1, 5).Draw(r, "points") {
				groups[i].Points = append(groups[i].Points, chart.Point{X: at.Draw(r, "x"), Y: at.Draw(r, "y")})
				points++
			}
		}
		picture := words.Map("Map", "", groups)
		wellFormed(r, picture)
		dots := dot.FindAllStringSubmatch(string(picture), -1)
		if len(dots) != points {
			r.Fatalf("%d dots for %d points", len(dots), points)
		}
		within := func(found []string, what string) (x, y float64) {
			x, errX := strconv.ParseFloat(found[1], 64)
			y, errY := strconv.ParseFloat(found[2], 64)
			if errX != nil || errY != nil || x < 0 || x > 640 || y < 0 || y > 400 {
				r.Fatalf("%s lies outside: %v", what, found)
			}
			return x, y
		}
		for _, d := range dots {
			within(d, "a dot")
		}
		names := letter.FindAllStringSubmatch(string(picture), -1)
		if len(names) != len(groups) {
			r.Fatalf("%d names of %d groups", len(names), len(groups))
		}
		var heights []float64
		for _, n := range names {
			_, y := within(n, "a name")
			for _, other := range heights {
				if math.Abs(y-other) < 14 {
					r.Fatalf("a name at height %v lies on one at %v", y, other)
				}
			}
			heights = append(heights, y)
		}
	})
}

var ribbon = regexp.MustCompile(`<path class="f\d flow" d="M[\d.]+ ([\d.]+)C[^V]*V([\d.]+)C[^Z]* ([\d.]+)Z"><title>([^<]*)</title>`)

func TestFlowsAreAsWideAsThoseWhoWent(t *testing.T) {
	t.Parallel()
	picture := string(words.Flow("Flow", "", "then", "now", ends("a", "b"), ends("a", "b"), []chart.Move{{0, 0, 30}, {0, 1, 10}, {1, 1, 20}}))
	found := ribbon.FindAllStringSubmatch(picture, -1)
	if len(found) != 3 {
		t.Fatalf("%d ribbons: %s", len(found), picture)
	}
	var wide []float64
	for i, said := range []string{"30 from a to a", "10 from a to b", "20 from b to b"} {
		from, errFrom := strconv.ParseFloat(found[i][1], 64)
		to, errTo := strconv.ParseFloat(found[i][3], 64)
		if errFrom != nil || errTo != nil || found[i][4] != said {
			t.Fatalf("%v, want %s", found[i], said)
		}
		wide = append(wide, to-from)
	}
	if math.Abs(wide[0]-3*wide[1]) > .3 || math.Abs(wide[2]-2*wide[1]) > .3 || wide[1] <= 0 {
		t.Errorf("30, 10 and 20 are %v wide", wide)
	}
}
