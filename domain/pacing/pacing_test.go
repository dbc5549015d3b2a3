package pacing_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"kindred/domain/pacing"
)

func TestABudgetIsSpreadEvenlyOverItsTime(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := pacing.Spending{BudgetMinor: 1_000, StartedAt: start, EndsAt: start.Add(10 * time.Hour)}
	for name, c := range map[string]struct {
		spent              int64
		after              time.Duration
		ratio, probability float64
	}{
		"in the first minute nothing is held back": {1_000, 59 * time.Second, 0, 1},
		"on pace":                   {500, 5 * time.Hour, 1, 1},
		"behind":                    {100, 5 * time.Hour, 0.2, 1},
		"twice as fast":             {1_000, 5 * time.Hour, 2, 0},
		"a little ahead":            {510, 5 * time.Hour, 1.02, 0.6},
		"at the end":                {900, 10 * time.Hour, 0.9, 1},
		"long after":                {900, 100 * time.Hour, 0.9, 1},
		"before it began":           {900, -time.Hour, 0, 1},
		"four times as fast, early": {400, time.Hour, 4, 0},
	} {
		s.SpentMinor = c.spent
		now := start.Add(c.after)
		if got := pacing.Ratio(s, now); math.Abs(got-c.ratio) > 1e-9 {
			t.Errorf("%s: the ratio is %v, want %v", name, got, c.ratio)
		}
		if got := pacing.Probability(s, now); math.Abs(got-c.probability) > 1e-9 {
			t.Errorf("%s: the probability is %v, want %v", name, got, c.probability)
		}
	}
	s.SpentMinor, s.EndsAt = 1_000, time.Time{}
	if got := pacing.Ratio(s, start.Add(time.Hour)); got != 0 {
		t.Errorf("without an end the ratio is %v", got)
	}
	s.EndsAt = start.Add(30 * time.Second) // ends within the first minute
	if p := pacing.Probability(s, start.Add(time.Minute)); p <= 0 || p > 1 {
		t.Errorf("the probability is %v", p)
	}
}

// However often the campaign could be shown, by night and by day, its budget lasts until its end, nearly.
func TestABudgetLastsHoweverMuchCouldBeSpent(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, surplus := range []float64{1.5, 20, 200} {
		random := rand.New(rand.NewPCG(1, 2))
		s := pacing.Spending{BudgetMinor: 70_000, StartedAt: start, EndsAt: start.AddDate(0, 0, 7)}
		of := map[int]int64{} // by day
		for at := start; at.Before(s.EndsAt) && s.SpentMinor < s.BudgetMinor; at = at.Add(time.Minute) {
			busy := 1 + 0.9*math.Sin(at.Sub(start).Hours()/24*2*math.Pi)
			for chances := surplus * busy * 1_000 / (24 * 60); random.Float64() < chances; chances-- {
				if random.Float64() < pacing.Probability(s, at) {
					s.SpentMinor += 10
					of[at.YearDay()] += 10
				}
			}
		}
		for day := start.YearDay() + 1; day < start.YearDay()+6; day++ { // the first day takes what the first minute spends too
			if spent := of[day]; spent < 9_000 || spent > 11_000 {
				t.Errorf("with %g times the chances day %d spends %d of %d", surplus, day, spent, s.BudgetMinor)
			}
		}
		if s.SpentMinor < 68_000 {
			t.Errorf("with %g times the chances %d of %d are spent", surplus, s.SpentMinor, s.BudgetMinor)
		}
	}
}
