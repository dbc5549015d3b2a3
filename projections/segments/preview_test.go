package segments

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"kindred/testkit"
)

// shareOf is the share of some numbers that are in.
func shareOf(numbers []int64, in func(number int64) bool) (named int, share float64) {
	for _, number := range numbers {
		if in(number) {
			named++
		}
	}
	return named, float64(named) / float64(len(numbers))
}

// Users are often numbered in a pattern, such as two variants that take turns: a sample that
// has one, too, tells of the pattern. A preview may stop early, so a beginning is a sample, too.
func TestASampleFollowsNoPattern(t *testing.T) {
	for _, n := range []int{20_001, 30_000, 40_000, 1_000_000} {
		all := sampled(n, previewAll)
		if !slices.Equal(all, sampled(n, previewAll)) {
			t.Errorf("of %d it is another one each time", n)
		}
		if some := slices.Compact(slices.Sorted(slices.Values(all))); len(some) != previewAll || some[0] < 0 || some[previewAll-1] >= int64(n) {
			t.Errorf("of %d: %d different ones from %d to %d", n, len(some), some[0], some[len(some)-1])
		}
		for what, in := range map[string]func(int64) bool{
			"every second":              func(number int64) bool { return number%2 == 0 },
			"every third":               func(number int64) bool { return number%3 == 0 },
			"three of ten, then others": func(number int64) bool { return number%10 < 3 },
			"the first half":            func(number int64) bool { return number < int64(n)/2 },
		} {
			truly, wrong := 0, 0
			for number := range int64(n) {
				if in(number) {
					truly++
				}
			}
			for most := 1_000; most <= previewAll; most += 1_000 {
				named, share := shareOf(all[:most], in)
				if math.Abs(share-float64(truly)/float64(n)) > 2*margin(named, most, n) {
					wrong++
				}
			}
			if wrong > 0 {
				t.Errorf("%s of %d: %d of 20 beginnings are far off", what, n, wrong)
			}
		}
	}
	if few := slices.Sorted(slices.Values(sampled(3, previewAll))); !slices.Equal(few, []int64{0, 1, 2}) || len(sampled(0, previewAll)) != 0 {
		t.Errorf("of three: %v", few)
	}
}

// The margin says what it holds for: 19 of 20 samples, of rare members and of many, of large
// populations and of those that were judged nearly all.
func TestAMarginHoldsFor19Of20Samples(t *testing.T) {
	const populations, most = 2_000, 400
	random := testkit.Random(t)
	for what, shareOfAll := range map[string]func() float64{
		"some":        random.Float64,
		"few":         func() float64 { return 0.01 * random.Float64() },
		"nearly none": func() float64 { return 0.001 * random.Float64() },
		"nearly all":  func() float64 { return 1 - 0.01*random.Float64() },
		"a half":      func() float64 { return .5 },
	} {
		hold := 0
		for range populations {
			n := most + 1 + random.IntN(20*most)
			in, truly := population(random, n, shareOfAll())
			named, share := shareOf(sampled(n, most), func(number int64) bool { return in[number] })
			if math.Abs(share-truly) <= margin(named, most, n) {
				hold++
			}
		}
		if held := float64(hold) / populations; held < .92 { // six deviations below 0.95
			t.Errorf("%s: %.3f of the margins hold", what, held)
		}
	}
	for _, named := range []int{0, 7, 10} {
		if got := margin(named, 10, 10); got != 0 {
			t.Errorf("all were judged, %d named: ± %v", named, got)
		}
	}
}

// Where nearly all were judged, and few are in or out, whether one of these was met decides.
func TestAMarginHoldsForEveryNumberOfMembers(t *testing.T) {
	t.Parallel()
	const judged = 20_000
	choose := func(n, k int) float64 { // the logarithm of the ways
		all, _ := math.Lgamma(float64(n + 1))
		in, _ := math.Lgamma(float64(k + 1))
		out, _ := math.Lgamma(float64(n - k + 1))
		return all - in - out
	}
	for _, n := range []int{20_001, 20_100, 22_000, 25_000, 42_561, 1_000_000} {
		for _, members := range []int{1, 2, 3, 5, 20, 200, 2_000, n - 3, n - 1} {
			holds := 0.0
			for named := max(0, members-(n-judged)); named <= min(members, judged); named++ {
				if math.Abs(float64(named)/judged-float64(members)/float64(n)) <= margin(named, judged, n) {
					holds += math.Exp(choose(members, named) + choose(n-members, judged-named) - choose(n, judged))
				}
			}
			if holds < .945 {
				t.Errorf("%d members of %d: the margin holds for %.3f of the samples", members, n, holds)
			}
		}
	}
}

// population are users of whom about a share is in, and what share truly is.
func population(random *rand.Rand, n int, share float64) (in []bool, truly float64) {
	in = make([]bool, n)
	count := 0
	for i := range in {
		if in[i] = random.Float64() < share; in[i] {
			count++
		}
	}
	return in, float64(count) / float64(n)
}
