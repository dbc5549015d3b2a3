package domain

import (
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
)

// Kinds of engagement with a campaign, and of interaction with an item of a feed.
const (
	Impression = "impression"
	Click      = "click"
	Conversion = "conversion"
	Dismiss    = "dismiss" // of an item of a feed alone
)

// maxAnswers bounds the clicks and conversions of one impression.
// limit: client | clicks and conversions of an impression | {maxAnswers} | 409 `too_many_engagements`
const maxAnswers = 100

// Capped says whether a user has seen the campaign as often as its frequency
// cap allows. newest are the times of the user's newest impressions, as many as
// the cap counts or more.
func (c *Campaign) Capped(newest []time.Time, now time.Time) bool {
	if c.FrequencyCap == 0 {
		return false
	}
	window, within := time.Duration(c.FrequencyWindow)*time.Second, 0
	for _, at := range newest {
		if window == 0 || event.Recent(window, at, now) {
			within++
		}
	}
	return within >= c.FrequencyCap
}

// ImpressionAnswers is the fold of what came of one impression.
type ImpressionAnswers struct{ count int }

// Apply folds an event.
func (a *ImpressionAnswers) Apply(event.Event) { a.count++ }

// Record records a click on an impression, or a conversion after it.
// Faults: invalid, too_many_engagements.
func (a *ImpressionAnswers) Record(shown event.CampaignEngagementRecorded, kind string) ([]event.Event, error) {
	switch {
	case kind != Click && kind != Conversion:
		return nil, fault.NewInvalid(fault.Field{Pointer: "/type", Detail: "must be impression, click or conversion"})
	case a.count >= maxAnswers:
		return nil, fault.New(fault.Conflict, "too_many_engagements",
			"This impression has %d clicks and conversions; no more are counted.", maxAnswers)
	}
	shown.Kind = kind
	return []event.Event{shown}, nil
}
