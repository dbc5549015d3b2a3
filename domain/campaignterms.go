package domain

import (
	"fmt"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// Audiences of a campaign.
const (
	AudienceAll      = "all"
	AudienceClusters = "clusters"
	AudienceSegments = "segments"
)

const (
	// limit: client | an amount in minor units | {maxMinor} | 422 `invalid`
	maxMinor = 1<<53 - 1 // what every JSON reader can hold exactly
	// limit: client | clusters that a campaign is for | {maxClusters} | 422 `invalid`
	maxClusters = 1_000
	// limit: client | segments that a campaign is for | {maxAudienceSegments} in `any_of`, and as many in `none_of` | 422 `invalid`
	maxAudienceSegments = 20
	// limit: client | `frequency_cap` | {maxFrequencyCap} impressions in {maxFrequencyWindow / 86_400} days | 422 `invalid`
	maxFrequencyCap    = 100
	maxFrequencyWindow = 366 * 24 * 60 * 60 // seconds
)

// checkTerms tells all that is wrong with the terms of a campaign; was are those
// that it has, none for a new one.
func checkTerms(t, was event.CampaignTerms) (wrong []fault.Field) {
	say := func(pointer, detail string, args ...any) {
		wrong = append(wrong, fault.Field{Pointer: pointer, Detail: fmt.Sprintf(detail, args...)})
	}
	if wrong := wrongName(t.Name); wrong != "" {
		say("/name", "%s", wrong)
	}
	if t.BudgetMinor < 1 || t.BudgetMinor > maxMinor {
		say("/budget_minor", "must be from 1 to %d", int64(maxMinor))
	}
	if !isCurrency(t.Currency) {
		say("/currency", "must be a currency code of ISO 4217, such as EUR")
	}
	wrong = append(wrong, checkAudience(t)...)
	const years = "must be in the years 1 to 9999 (UTC)" // what every reader of RFC 3339 can hold
	if !sameTime(t.StartsAt, was.StartsAt) && !inYears(t.StartsAt) {
		say("/starts_at", years)
	}
	if !sameTime(t.EndsAt, was.EndsAt) && !inYears(t.EndsAt) {
		say("/ends_at", years)
	}
	if t.StartsAt != nil && t.EndsAt != nil && !t.EndsAt.After(*t.StartsAt) {
		if sameTime(t.EndsAt, was.EndsAt) {
			say("/starts_at", "must be before ends_at")
		} else {
			say("/ends_at", "must be after starts_at")
		}
	}
	if t.FrequencyCap < 0 || t.FrequencyCap > maxFrequencyCap {
		say("/frequency_cap", "must be from 1 to %d", maxFrequencyCap)
	}
	switch {
	case t.FrequencyWindow < 0 || t.FrequencyWindow > maxFrequencyWindow:
		say("/frequency_window_seconds", "must be from 1 to %d", maxFrequencyWindow)
	case t.FrequencyWindow > 0 && t.FrequencyCap == 0:
		say("/frequency_window_seconds", "needs a frequency_cap")
	}
	return wrong
}

func checkAudience(t event.CampaignTerms) []fault.Field {
	one := func(pointer, detail string) []fault.Field { return []fault.Field{{Pointer: pointer, Detail: detail}} }
	switch {
	case t.Audience != AudienceAll && t.Audience != AudienceClusters && t.Audience != AudienceSegments:
		return one("/audience", "must be all, clusters or segments")
	case t.Audience != AudienceClusters && len(t.Clusters) > 0:
		return one("/cluster_ids", `needs the audience "clusters"`)
	case t.Audience != AudienceSegments && t.Segments != nil:
		return one("/segments", `needs the audience "segments"`)
	case t.Audience == AudienceClusters && (len(t.Clusters) == 0 || len(t.Clusters) > maxClusters):
		return one("/cluster_ids", fmt.Sprintf("must name 1 to %d clusters", maxClusters))
	case t.Audience == AudienceClusters:
		return checkNamed("/cluster_ids", "a cluster", t.Clusters, map[id.Cluster]bool{})
	case t.Audience == AudienceAll:
		return nil
	case t.Segments == nil || len(t.Segments.AnyOf)+len(t.Segments.NoneOf) == 0:
		return one("/segments", "must name a segment, in any_of or none_of")
	case len(t.Segments.AnyOf) > maxAudienceSegments:
		return one("/segments/any_of", fmt.Sprintf("must name at most %d segments", maxAudienceSegments))
	case len(t.Segments.NoneOf) > maxAudienceSegments:
		return one("/segments/none_of", fmt.Sprintf("must name at most %d segments", maxAudienceSegments))
	}
	seen := map[id.Segment]bool{}
	return append(checkNamed("/segments/any_of", "a segment", t.Segments.AnyOf, seen),
		checkNamed("/segments/none_of", "a segment", t.Segments.NoneOf, seen)...)
}

// checkNamed refuses what is no id, and what was seen before.
func checkNamed[T id.Typed](pointer, what string, named []T, seen map[T]bool) (wrong []fault.Field) {
	for i, one := range named {
		at := fmt.Sprintf("%s/%d", pointer, i)
		if _, err := id.Parse[T](string(one)); err != nil {
			wrong = append(wrong, fault.Field{Pointer: at, Detail: "is not the id of " + what})
		} else if seen[one] {
			wrong = append(wrong, fault.Field{Pointer: at, Detail: "is named twice"})
		}
		seen[one] = true
	}
	return wrong
}

// Standing is where a user stands, as far as audiences ask.
type Standing struct {
	Clusters []id.Cluster      // that the user is in
	In       []id.Segment      // that the user is in
	Out      []id.Segment      // that the user is surely not in
	Granted  []id.ConsentLayer // by the user, now
}

// Reaches says whether a campaign of these terms is for a user. What is not surely known,
// as of a segment that is blocked, being built or no more, keeps the user out.
func Reaches(t event.CampaignTerms, s Standing) bool {
	switch of := t.Segments; {
	case t.Audience == AudienceAll:
		return true
	case t.Audience == AudienceClusters:
		return slices.ContainsFunc(t.Clusters, func(c id.Cluster) bool { return slices.Contains(s.Clusters, c) })
	case of == nil || of.Layer != "" && !slices.Contains(s.Granted, of.Layer):
		return false
	case len(of.AnyOf) > 0 && !slices.ContainsFunc(of.AnyOf, func(one id.Segment) bool { return slices.Contains(s.In, one) }):
		return false
	default:
		return !slices.ContainsFunc(of.NoneOf, func(one id.Segment) bool { return !slices.Contains(s.Out, one) })
	}
}

// checkChange refuses terms that the campaign cannot change to any more. A
// budget may change as long as the campaign is not over, while it runs too, but
// not to what was spent already: that would complete it without a spend.
func (c *Campaign) checkChange(t event.CampaignTerms, now time.Time) error {
	switch {
	case c.Over():
		return errCampaignOver(c.Status)
	case c.Status != CampaignDraft && c.ended(now): // whether that was recorded yet or not
		return errCampaignOver(CampaignCompleted)
	}
	wrong := checkTerms(t, c.CampaignTerms)
	say := func(pointer, detail string) { wrong = append(wrong, fault.Field{Pointer: pointer, Detail: detail}) }
	if !c.StartedAt.IsZero() {
		if t.Currency != c.Currency {
			say("/currency", "cannot be changed once the campaign has started")
		}
		if !sameTime(t.StartsAt, c.StartsAt) {
			say("/starts_at", "cannot be changed once the campaign has started")
		}
		if t.BudgetMinor <= c.SpentMinor {
			say("/budget_minor", "must be more than what was spent already")
		}
	}
	if !sameTime(t.EndsAt, c.EndsAt) && t.EndsAt != nil && !t.EndsAt.After(now) {
		say("/ends_at", "must be in the future")
	}
	if len(wrong) > 0 {
		return fault.NewInvalid(wrong...)
	}
	return nil
}

func sameTerms(a, b event.CampaignTerms) bool {
	return a.Name == b.Name && a.BudgetMinor == b.BudgetMinor && a.Currency == b.Currency &&
		a.Audience == b.Audience && slices.Equal(a.Clusters, b.Clusters) && sameSegments(a.Segments, b.Segments) &&
		sameTime(a.StartsAt, b.StartsAt) && sameTime(a.EndsAt, b.EndsAt) &&
		a.FrequencyCap == b.FrequencyCap && a.FrequencyWindow == b.FrequencyWindow
}

func sameSegments(a, b *event.SegmentAudience) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Layer == b.Layer && slices.Equal(a.AnyOf, b.AnyOf) && slices.Equal(a.NoneOf, b.NoneOf)
}

func inYears(at *time.Time) bool {
	return at == nil || at.UTC().Year() >= 1 && at.UTC().Year() <= 9999
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
