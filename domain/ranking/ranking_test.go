package ranking

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestScores(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"a fresh, perfect match", MatchScore(1, 0, 0), 0.7},
		{"two impressions without a click", MatchScore(1, 2, 0), 0.7 * 0.64},
		{"half of the freshness is gone after 30 days", Freshness(30 * 24 * time.Hour), 0.9},
		{"nothing is staler than 0.8", Freshness(100 * 365 * 24 * time.Hour), 0.8},
		{"a clock that is behind makes nothing fresher", Freshness(-time.Hour), 1},
		{"the prior alone", Response{}.ExpectedClickRate(), 1.0 / 21},
		{"9 of 79", Response{Impressions: 79, Clicks: 9}.ExpectedClickRate(), 0.1},
		{"a campaign at half its pace", ClickScore(Response{Impressions: 79, Clicks: 9}, 0.5, 1, 0), 0.04},
		{"the first position", ClickWeight(1), 1},
		{"the third position", ClickWeight(3), 2},
		{"a position that is not known", ClickWeight(0), 1},
		{"far down", ClickWeight(1 << 20), 10},
		{"propensity of the seventh", Propensity(7), 1.0 / 3},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestAClickRateIsARateHoweverClicksAreWeighed(t *testing.T) {
	property := func(impressions, clicks uint16) bool {
		r := Response{Impressions: float64(impressions), Clicks: float64(clicks) * 1.5}
		rate := r.ExpectedClickRate()
		more := Response{Impressions: r.Impressions, Clicks: r.Clicks + 1}.ExpectedClickRate()
		fewer := Response{Impressions: r.Impressions + 1, Clicks: r.Clicks}.ExpectedClickRate()
		return rate > 0 && rate < 1 && more > rate && fewer <= rate
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

// people are points on a line, alike when near.
type people []float64

func (p people) alike(candidate int, others []int, similarity []float64) {
	for i, other := range others {
		similarity[i] = 1 - math.Abs(p[candidate]-p[other])
	}
}

func (p people) near(point float64) []Candidate {
	out := make([]Candidate, len(p))
	for i, x := range p {
		out[i].Score = MatchScore(1-math.Abs(x-point), 0, 0)
	}
	return out
}

func crowd(random *rand.Rand, n int) people {
	p := make(people, n)
	for i := range p {
		p[i] = random.Float64()
	}
	return p
}

func campaigns(random *rand.Rand, n int) []Candidate {
	out := make([]Candidate, n)
	for i := range out {
		out[i] = Candidate{Score: random.Float64(), Share: 1}
	}
	return out
}

// eachInput checks a law on random inputs.
func eachInput(t *testing.T, law func(t *testing.T, in Input)) {
	t.Helper()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := crowd(random, random.IntN(120))
		in := Input{Matches: p.near(0.5), Alike: p.alike, Fill: make([]Candidate, random.IntN(40)), Campaigns: campaigns(random, random.IntN(30))}
		in.Seed[0], in.Seed[15] = byte(seed), byte(seed*7)
		law(t, in)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func TestEverybodyIsShownOnceAndCampaignsAtMostOnce(t *testing.T) {
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		seen, count := map[[2]int]bool{}, map[Kind]int{}
		for _, s := range Arrange(in) {
			key := [2]int{int(s.Kind), s.Index}
			if seen[key] {
				t.Errorf("%v twice", s)
			}
			seen[key] = true
			count[s.Kind]++
		}
		if count[Match] != len(in.Matches) || count[Fill] != len(in.Fill) || count[Campaign] > len(in.Campaigns) {
			t.Errorf("%v of %d matches, %d fill and %d campaigns", count, len(in.Matches), len(in.Fill), len(in.Campaigns))
		}
	})
}

func TestCampaignsHaveEveryFifthSlotAndNoOther(t *testing.T) {
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		left := len(in.Campaigns)
		for i, s := range Arrange(in) {
			if turn := i%5 == 4 && left > 0; turn != (s.Kind == Campaign) {
				t.Errorf("slot %d holds %v with %d campaigns left", i, s, left)
			}
			if s.Kind == Campaign {
				left--
			}
		}
	})
}

// A fifth slot has its campaign also where nobody stands behind it.
func TestACampaignMayEndTheOrder(t *testing.T) {
	for people, want := range map[int]int{0: 0, 3: 0, 4: 1, 7: 1, 8: 2, 12: 2} {
		order := Arrange(Input{Fill: make([]Candidate, people), Campaigns: campaigns(rand.New(rand.NewPCG(1, 1)), 2)})
		found := 0
		for i, s := range order {
			if s.Kind == Campaign {
				found++
				if i%5 != 4 {
					t.Errorf("beside %d people slot %d holds a campaign", people, i)
				}
			}
		}
		if found != want || len(order) != people+want {
			t.Errorf("beside %d people stand %d campaigns of 2 in %d slots, not %d", people, found, len(order), want)
		}
	}
}

func TestCampaignsAreRankedAmongThemselves(t *testing.T) {
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		last, drawn := math.Inf(1), map[int]bool{}
		for _, s := range Arrange(in) {
			if s.Kind != Campaign {
				continue
			}
			if s.Explore {
				drawn[s.Index] = true
				continue
			}
			if score := in.Campaigns[s.Index].Score; score > last {
				t.Errorf("a campaign with %v comes after one with %v", score, last)
			} else {
				last = score
			}
		}
	})
}

func TestTheSameSeedGivesTheSameOrder(t *testing.T) {
	differs := false
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		first := Arrange(in)
		if diff := cmp.Diff(first, Arrange(in)); diff != "" {
			t.Error(diff)
		}
		in.Seed[3]++
		differs = differs || !slices.Equal(first, Arrange(in))
	})
	if !differs {
		t.Error("the seed changes nothing")
	}
}

func TestOneSlotInTwentyExploresAndNeverTheFirst(t *testing.T) {
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		order := Arrange(in)
		for from := 0; from+20 <= len(order); from += 20 {
			explored := 0
			for i, s := range order[from : from+20] {
				if s.Explore {
					explored++
					if i == 0 {
						t.Errorf("slot %d explores", from)
					}
				}
			}
			if explored != 1 {
				t.Errorf("%d of the slots from %d on explore", explored, from)
			}
		}
	})
}

func TestOneSlotInTwentyHoldsWhoHasSeldomBeenShown(t *testing.T) {
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		without := Arrange(in)
		in.Underexposed = make([]Candidate, 5)
		next := 0
		for i, s := range Arrange(in) {
			if s.Kind != Underexposed {
				continue
			}
			if s.Index != next || i%20 == 0 || i/20 < next || s.Explore {
				t.Errorf("slot %d: %+v", i, s)
			}
			next++
		}
		if want := min(5, len(without)/20); next < want-1 {
			t.Errorf("%d have places of %d slots", next, len(without))
		}
	})
}

func TestExplorationFavoursWhatMightBeWell(t *testing.T) {
	known := Response{Impressions: 10_000, Clicks: 2_000}
	hopeless := Response{Impressions: 10_000}
	in := Input{Fill: []Candidate{{Response: hopeless}, {Response: hopeless}, {Response: known}, {}}}
	slots := []Slot{{Fill, 0, false}, {Fill, 1, false}, {Fill, 2, false}, {Fill, 3, false}}
	drawn := map[int]int{}
	for seed := range 2000 {
		drawn[in.draw(slots, newChance(Seed{byte(seed), byte(seed >> 8)}))]++
	}
	// A Beta(1, 20) is over 0.2 with a chance of 0.8^20 = 0.0115.
	if drawn[0]+drawn[1] > 0 || drawn[3] < 5 || drawn[3] > 60 {
		t.Errorf("drawn %v", drawn)
	}
}

func TestPaceIsTheShareOfFeedsThatACampaignTakesPartIn(t *testing.T) {
	part := 0
	for seed := range 4000 {
		part += len(takingPart([]Candidate{{Share: 0.25}, {Share: 0}}, newChance(Seed{byte(seed), byte(seed >> 8)})))
	}
	if part < 900 || part > 1100 {
		t.Errorf("%d of 4000", part)
	}
}

func TestBetaDrawsHaveTheirMean(t *testing.T) {
	r, c, sum := Response{Impressions: 79, Clicks: 9}, newChance(Seed{1}), 0.0
	for range 20_000 {
		sum += c.clickRate(r)
	}
	if mean := sum / 20_000; math.Abs(mean-0.1) > 0.002 {
		t.Errorf("mean %v", mean)
	}
}

func sum(p []float64) (total float64) {
	for _, x := range p {
		total += x
	}
	return total
}

// intraList is the mean similarity of all pairs.
func intraList(order []int, alike Alike) float64 {
	var total float64
	one := make([]float64, 1)
	for i, a := range order {
		for _, b := range order[:i] {
			alike(a, []int{b}, one)
			total += one[0]
		}
	}
	return total / float64(len(order)*(len(order)-1)/2)
}

func TestEveryPageKeepsItsRelevance(t *testing.T) {
	eachInput(t, func(t *testing.T, in Input) {
		t.Helper()
		keeps(t, in, 0.9)
		twinned := in.Alike
		in.Alike = func(candidate int, others []int, similarity []float64) {
			twinned(candidate, others, similarity)
			for i := range similarity {
				similarity[i] *= 0.9
			}
		}
		keeps(t, in, 0.99)
	})
}

// keeps checks that each beginning of an order keeps a share of the relevance.
func keeps(t *testing.T, in Input, share float64) {
	t.Helper()
	s := scores(in.Matches)
	order := diversify(s, in.Alike)
	best := slices.Clone(s)
	slices.Sort(best)
	slices.Reverse(best)
	for n := range len(order) + 1 {
		var kept float64
		for _, i := range order[:n] {
			kept += s[i]
		}
		if kept < share*sum(best[:n])-1e-9 {
			t.Fatalf("the first %d keep %v of %v", n, kept, sum(best[:n]))
		}
	}
}

// Of thirty who are the same and a little better than thirty others, one stands on the first page.
func TestTwinsFillNoPage(t *testing.T) {
	twin := func(i int) bool { return i < 30 }
	s := make([]float64, 60)
	for i := range s {
		if s[i] = MatchScore(0.75, 0, 0); twin(i) {
			s[i] = MatchScore(0.8, 0, 0)
		}
	}
	order := diversify(s, func(candidate int, others []int, similarity []float64) {
		for i, other := range others {
			if similarity[i] = 0.5; twin(candidate) && twin(other) {
				similarity[i] = 1
			}
		}
	})[:20]
	others := slices.DeleteFunc(slices.Clone(order), twin)
	if len(others) != 19 || !twin(order[0]) {
		t.Errorf("%d of the first %d are no twins: %v", len(others), len(order), order)
	}
}

func TestTwinsOfTheFirstComeLater(t *testing.T) {
	p := people{0.5, 0.5, 0.3, 0.9}
	got := diversify([]float64{0.7, 0.699, 0.698, 0.5}, p.alike)
	if diff := cmp.Diff([]int{0, 2, 1, 3}, got); diff != "" {
		t.Error(diff)
	}
}
