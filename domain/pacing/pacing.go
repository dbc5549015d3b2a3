// Package pacing spreads a campaign's budget evenly over its time. It has no
// clock: whoever asks says when.
package pacing

import "time"

// grace is how long nothing is held back: so early, the share of the time that
// has passed says nothing.
const grace = time.Minute

// ahead is how far ahead a campaign is held back entirely. 1/Ratio, which never does that,
// was measured to spend the budget sqrt(n) times as fast as asked where n times as
// much could be spent.
const ahead = 0.05

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
// 1 while it is not ahead, and evenly less until it is ahead by a twentieth, when it is 0.
func Probability(s Spending, now time.Time) float64 {
	return min(1, max(0, (1+ahead-Ratio(s, now))/ahead))
}
