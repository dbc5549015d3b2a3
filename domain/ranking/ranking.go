// Package ranking puts what a user could be shown in order: the best first,
// not all alike, campaigns in their own slots, and now and then something to
// learn from. The same input and seed give the same order.
package ranking

import (
	"math"
	"time"
)

const (
	// matchWeight is what a match score counts for.
	matchWeight = 0.7
	// fatigue is what an impression without a click leaves of a score.
	fatigue = 0.8
	// FatigueWindow is how long an impression without a click counts.
	FatigueWindow = 7 * 24 * time.Hour

	// staleShare is what age leaves of a score in the end, and halfFresh how
	// long half of the rest takes to go.
	staleShare = 0.8
	halfFresh  = 30 * 24 * time.Hour

	// The prior of a click rate: a Beta(1, 20) distribution, mean 1/21.
	priorClicks = 1
	priorMisses = 20

	// maxClickWeight clips the weight of a click far down.
	maxClickWeight = 10
)

// Response is how often something was shown to anybody, and what came back.
type Response struct {
	Impressions float64
	Clicks      float64 // each weighed by [ClickWeight]
}

// ExpectedClickRate is the mean of the Beta posterior, in 0..1.
func (r Response) ExpectedClickRate() float64 {
	clicks, misses := r.posterior()
	return clicks / (clicks + misses)
}

// posterior are the parameters of the Beta distribution of the click rate.
// Weighed clicks can outnumber the impressions.
func (r Response) posterior() (clicks, misses float64) {
	return priorClicks + r.Clicks, priorMisses + max(0, r.Impressions-r.Clicks)
}

// Propensity is how likely somebody looks at a position, which counts from 1:
// 1/log2(1+position), the discount of DCG (Järvelin and Kekäläinen, 2002).
func Propensity(position int) float64 { return 1 / math.Log2(1+float64(max(1, position))) }

// ClickWeight is what a click at a position counts for, since few look so far
// down: the inverse of its propensity, clipped at 10. Where the position is not
// known (0) it is 1.
func ClickWeight(position int) float64 { return min(maxClickWeight, 1/Propensity(position)) }

// Fatigue is what is left of a score after so many impressions without a click.
func Fatigue(unanswered int) float64 { return math.Pow(fatigue, float64(max(0, unanswered))) }

// Freshness falls with the time since something last changed, from 1 to 0.8,
// by half of what is left every 30 days.
func Freshness(age time.Duration) float64 {
	return staleShare + (1-staleShare)*math.Exp2(-float64(max(0, age))/float64(halfFresh))
}

// MatchScore is what a match with a similarity in 0..1 is worth.
func MatchScore(similarity float64, unanswered int, age time.Duration) float64 {
	return matchWeight * similarity * Fatigue(unanswered) * Freshness(age)
}

// ClickScore is what something with an expected click rate is worth. pace, in
// 0..1, holds back a campaign that is ahead of its budget.
func ClickScore(r Response, pace float64, unanswered int, age time.Duration) float64 {
	return r.ExpectedClickRate() * pace * Fatigue(unanswered) * Freshness(age)
}
