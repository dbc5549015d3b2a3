// Package pacing spreads a campaign's budget evenly over its time. It has no
// clock: whoever asks says when.
package pacing

import "time"

// grace is how long nothing is held back: so early, the share of the time that
// has passed says nothing.
const grace = time.Minute

// Spending is how a campaign stands.
type Spending struct {
	SpentMinor  int64
	BudgetMinor int64
	StartedAt   time.Time
	EndsAt      time.Time // zero: there is nothing to spread over
}

// Ratio is what was spent by what would have been spent at an even pace,
// spent / (budget × elapsed / duration): over 1 the campaign is ahead. It is 0
// in the first minute, and where no end is set.
func Ratio(s Spending, now time.Time) float64 {
	elapsed, duration := now.Sub(s.StartedAt), s.EndsAt.Sub(s.StartedAt)
	if s.EndsAt.IsZero() || s.BudgetMinor <= 0 || elapsed < grace {
		return 0
	}
	if elapsed >= duration {
		return float64(s.SpentMinor) / float64(s.BudgetMinor)
	}
	return float64(s.SpentMinor) / (float64(s.BudgetMinor) * (float64(elapsed) / float64(duration)))
}

// Probability is how likely the campaign should be shown where it could be:
// 1 while it is not ahead, 1/Ratio else.
func Probability(s Spending, now time.Time) float64 {
	return 1 / max(1, Ratio(s, now))
}
