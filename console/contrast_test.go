package console

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// luminance is that of a colour, #rrggbb (WCAG 2.2, relative luminance).
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	var l float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			l += weight * c / 12.92
		} else {
			l += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return l
}

// Texts can be read on what they stand on (WCAG 2.2, 1.4.3), and fields and pictures are
// seen on it (1.4.11), by day and by night.
func TestColoursStandOut(t *testing.T) {
	style, err := os.ReadFile("static/console.css")
	if err != nil {
		t.Fatal(err)
	}
	colours := map[string][]string{}
	for _, m := range regexp.MustCompile(`--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)`).FindAllStringSubmatch(string(style), -1) {
		colours[m[1]] = m[2:]
	}
	for _, pair := range []struct {
		least           float64
		fronts, grounds []string
	}{
		{4.5, []string{"ink", "soft", "accent", "good", "warn", "bad"}, []string{"paper", "card", "sunk"}},
		{4.5, []string{"ink", "soft", "accent"}, []string{"accent-wash", "warn-wash", "bad-wash"}},
		{4.5, []string{"warn"}, []string{"warn-wash"}},
		{4.5, []string{"bad"}, []string{"bad-wash"}},
		{3, []string{"edge", "s1", "s2", "s3", "s4", "s5", "s6"}, []string{"paper", "card"}},
	} {
		for _, front := range pair.fronts {
			for _, ground := range pair.grounds {
				for mode := range 2 {
					if len(colours[front]) == 0 || len(colours[ground]) == 0 {
						t.Fatalf("there is no %s on %s", front, ground)
					}
					a, b := luminance(t, colours[front][mode])+0.05, luminance(t, colours[ground][mode])+0.05
					if contrast := max(a, b) / min(a, b); contrast < pair.least {
						t.Errorf("%s on %s has a contrast of %.2f", front, ground, contrast)
					}
				}
			}
		}
	}
	if !regexp.MustCompile(`(?m)^input, select, textarea \{.*border: 1px solid var\(--edge\)`).Match(style) {
		t.Error("fields have another edge")
	}
}
