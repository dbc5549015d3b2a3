package docsite_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"kindred/testkit"
)

// luminance is that of a colour, #rrggbb (WCAG 2.2, relative luminance).
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	var l float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n := testkit.Must(strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8))(t)
		c := float64(n) / 255
		if c <= 0.04045 {
			l += weight * c / 12.92
		} else {
			l += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return l
}

// What is written can be read on what it stands on, by day and by night (WCAG 2.2, 1.4.3).
func TestTextsStandOut(t *testing.T) {
	style := testkit.Must(os.ReadFile("style.css"))(t)
	colours := map[string][]string{}
	for _, m := range regexp.MustCompile(`--(\w+): light-dark\((#\w{6}), (#\w{6})\)`).FindAllStringSubmatch(string(style), -1) {
		colours[m[1]] = m[2:]
	}
	if mark := regexp.MustCompile(`(?m)^mark \{.*color: var\(--ink\)`); !mark.Match(style) {
		t.Error("what is marked takes the colour of what is around it, which is 3.8:1 by night")
	}
	for _, text := range []string{"ink", "quiet", "accent", "warn", "stop", "blue"} {
		for _, ground := range []string{"paper", "sheet", "soft"} {
			for mode := range 2 {
				a, b := luminance(t, colours[text][mode])+0.05, luminance(t, colours[ground][mode])+0.05
				if contrast := max(a, b) / min(a, b); contrast < 4.5 {
					t.Errorf("%s on %s has a contrast of %.2f", text, ground, contrast)
				}
			}
		}
	}
}
