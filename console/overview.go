package console

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"kindred/console/chart"
	kindred "kindred/sdk/go"
)

// days is how many the overview shows, beside as many before.
const days = 30

// card is a figure with what it was before, and its course.
type card struct {
	Name, Unit, Figure, Delta, Tone, Path string
	Course                                []float64
}

// alarm is something that needs somebody.
type alarm struct {
	Kind, Tone, Name, Path, Detail string
	Since                          *time.Time
}

func (p *page) overview() error {
	ctx := p.r.Context()
	cards, deliveries, err := p.figures()
	if err != nil {
		return err
	}
	alarms, more, err := p.alarms()
	if err != nil {
		return err
	}
	events, err := p.api.Events.List(ctx, kindred.ListEventsParams{Order: kindred.OrderDesc, Limit: new(int64(20))})
	if err != nil {
		return err
	}
	names, err := p.names(events.Data)
	if err != nil {
		return err
	}
	return p.show("overview", "Overview", say("titles.overview"), map[string]any{
		"Cards": cards, "Deliveries": deliveries, "Sent": deliveries.Highest() > 0, "Alarms": alarms, "Named": alarms[:min(len(alarms), named)], "Unnamed": alarms[min(len(alarms), named):], "More": more, "Events": events.Data, "Names": names, "Days": days,
	})
}

// daily reads a metric of the days up to today, and of as many before: a value a day, the newest
// last.
func (p *page) daily(today time.Time, metric kindred.StatisticMetric) (before, now []kindred.StatisticEntry, err error) {
	zone := zoneOf(p.r)
	today = today.In(zone)
	first := time.Date(today.Year(), today.Month(), today.Day()-2*days+1, 0, 0, 0, 0, zone)
	found, err := p.api.Overview.GetStatistics(p.r.Context(), kindred.GetStatisticsParams{
		Metric: metric, Interval: kindred.StatisticIntervalDay, From: first, Timezone: zone.String(),
	})
	if err != nil {
		return nil, nil, err
	}
	all := make([]kindred.StatisticEntry, 2*days)
	for i := range all { // by noon, which each day has: where clocks go forward at midnight, there is none
		all[i].Start = time.Date(today.Year(), today.Month(), today.Day()-2*days+1+i, 12, 0, 0, 0, zone)
	}
	for _, entry := range found.Series {
		for i := range all {
			if all[i].Start.Format(time.DateOnly) == entry.Start.In(zone).Format(time.DateOnly) {
				all[i] = entry
			}
		}
	}
	if total := found.Total.Users; total != nil { // a day on which nobody came or went has the users of the day before
		there := total.There - total.Created + total.Erased
		for i := range all {
			if all[i].Users == nil {
				all[i].Users = &kindred.UserCounts{There: there}
			}
			there = all[i].Users.There
		}
	}
	return all[:days], all[days:], nil
}

// figures are the cards of the overview, and the deliveries by day.
func (p *page) figures() (cards []card, deliveries chart.Data, err error) {
	today, err := p.clock()
	if err != nil {
		return nil, deliveries, err
	}
	_, userNow, err := p.daily(today, kindred.StatisticMetricUsers)
	if err != nil {
		return nil, deliveries, err
	}
	matchBefore, matchNow, err := p.daily(today, kindred.StatisticMetricMatches)
	if err != nil {
		return nil, deliveries, err
	}
	sentBefore, sentNow, err := p.daily(today, kindred.StatisticMetricDeliveries)
	if err != nil {
		return nil, deliveries, err
	}
	spentBefore, spentNow, err := p.daily(today, kindred.StatisticMetricSpend)
	if err != nil {
		return nil, deliveries, err
	}
	cards = append(
		[]card{usersCard(userNow), matchesCard(matchBefore, matchNow), deliveriesCard(sentBefore, sentNow)},
		spendCards(spentBefore, spentNow)...,
	)
	deliveries = chart.Data{
		Title: say("overview.webhook_deliveries_by_day"), Label: say("overview.day"), Newest: true,
		Series: []chart.Series{{Name: say("overview.delivered_at_the_first")}, {Name: say("overview.delivered_after_retries")}, {Name: say("overview.dropped")}},
	}
	total := [3]int64{}
	for _, entry := range sentNow {
		deliveries.Labels = append(deliveries.Labels, entry.Start.In(zoneOf(p.r)).Format("2 Jan"))
		var d kindred.DeliveryCounts
		if entry.Deliveries != nil {
			d = *entry.Deliveries
		}
		for i, n := range [3]int64{d.FirstTry, d.Retried, d.Dropped} {
			total[i] += n
			deliveries.Series[i].Values = append(deliveries.Series[i].Values, float64(n))
		}
	}
	deliveries.Description = say("overview.delivered_at_the_first2", number(total[0]), number(total[1]), number(total[2]))
	return cards, deliveries, nil
}

func usersCard(now []kindred.StatisticEntry) card {
	one := card{Name: say("common.users"), Path: Path + "users"}
	count, gained := int64(0), int64(0)
	for _, entry := range now {
		if entry.Users != nil {
			count = entry.Users.There
			gained += entry.Users.Created - entry.Users.Erased
		}
		one.Course = append(one.Course, float64(count))
	}
	one.Figure = number(count)
	one.Delta, one.Tone = signed(gained), rising(gained)
	return one
}

func matchesCard(before, now []kindred.StatisticEntry) card {
	one := card{Name: say("overview.matches_told"), Path: Path + "users"}
	sum := func(entries []kindred.StatisticEntry, each func(int64)) (n int64) {
		for _, entry := range entries {
			told := int64(0)
			if entry.Matches != nil {
				told = entry.Matches.Recorded
			}
			n += told
			each(told)
		}
		return n
	}
	was := sum(before, func(int64) {})
	is := sum(now, func(n int64) { one.Course = append(one.Course, float64(n)) })
	one.Figure = number(is)
	one.Delta, one.Tone = signed(is-was), rising(is-was)
	return one
}

func deliveriesCard(before, now []kindred.StatisticEntry) card {
	one := card{Name: say("overview.delivered_at_once"), Path: Path + "webhooks", Figure: "–"}
	sum := func(entries []kindred.StatisticEntry, each func(share float64)) (first, all int64) {
		for _, entry := range entries {
			d := entry.Deliveries
			if d == nil || d.FirstTry+d.Retried+d.Dropped == 0 {
				continue
			}
			first, all = first+d.FirstTry, all+d.FirstTry+d.Retried+d.Dropped
			each(float64(d.FirstTry) / float64(d.FirstTry+d.Retried+d.Dropped))
		}
		return first, all
	}
	wasFirst, wasAll := sum(before, func(float64) {})
	isFirst, isAll := sum(now, func(share float64) { one.Course = append(one.Course, share) })
	if isAll > 0 {
		one.Figure = percent(float64(isFirst) / float64(isAll))
	}
	if isAll > 0 && wasAll > 0 {
		points := 100*float64(isFirst)/float64(isAll) - 100*float64(wasFirst)/float64(wasAll)
		one.Delta, one.Tone = say("overview.points", signed(int64(points))), rising(int64(points))
	}
	return one
}

// spendCards are one for each currency that was spent, at most two.
func spendCards(before, now []kindred.StatisticEntry) (cards []card) {
	sum := func(entries []kindred.StatisticEntry, currency string) (total int64, course []float64) {
		for _, entry := range entries {
			spent := int64(0)
			for _, s := range entry.Spend {
				if s.Currency == currency {
					spent = s.AmountMinor
				}
			}
			total += spent
			course = append(course, float64(spent))
		}
		return total, course
	}
	var currencies []string
	for _, entry := range now {
		for _, s := range entry.Spend {
			if !slices.Contains(currencies, s.Currency) {
				currencies = append(currencies, s.Currency)
			}
		}
	}
	for _, currency := range currencies[:min(len(currencies), 2)] {
		is, course := sum(now, currency)
		was, _ := sum(before, currency)
		cards = append(cards, card{
			Name: say("common.spent"), Unit: currency, Figure: amount(is, currency), Path: Path + "campaigns", Course: course, Delta: "+" + amount(is-was, currency),
		})
		if is < was {
			cards[len(cards)-1].Delta = amount(is-was, currency)
		}
	}
	if len(cards) == 0 {
		return []card{{Name: say("common.spent"), Figure: "–", Path: Path + "campaigns"}}
	}
	return cards
}

// signed writes a difference with its sign.
func signed(n int64) string {
	if n > 0 {
		return "+" + number(n)
	}
	return number(n)
}

// rising is the class of a difference that is good where it is more.
func rising(n int64) string {
	switch {
	case n > 0:
		return "up"
	case n < 0:
		return "down"
	}
	return ""
}

// named is how many of the things that need somebody are called by their names, and seen at once: each name
// takes a call.
const named = 8

// alarms are what needs somebody, and whether there is more than is shown.
func (p *page) alarms() (alarms []alarm, more bool, err error) {
	found, err := p.api.Overview.ListAttention(p.r.Context())
	if err != nil {
		return nil, false, err
	}
	for i, item := range found.Data {
		one := alarm{Tone: "warn", Name: short(item.SubjectID), Since: item.Since}
		if item.Severity == kindred.AttentionSeverityCritical {
			one.Tone = "bad"
		}
		p.tell(&one, item)
		if i < named {
			if name := p.nameOf(item); name != "" {
				one.Name = name
			}
		}
		alarms = append(alarms, one)
	}
	return alarms, found.HasMore, nil
}

// tell says in words what is the matter.
func (p *page) tell(one *alarm, item kindred.AttentionItem) {
	at := url.PathEscape(item.SubjectID)
	switch item.Kind {
	case kindred.AttentionKindEndpointFailing:
		one.Kind, one.Path, one.Detail = say("overview.endpoint_failing"), Path+"webhooks/"+at, say("overview.no_delivery_waits")
		if n := item.DeliveriesWaiting; n != nil && *n > 0 {
			one.Detail = say("overview.deliveries_wait", number(n))
		}
	case kindred.AttentionKindBudgetNearlySpent:
		one.Kind, one.Path = say("overview.kind_budget"), Path+"campaigns/"+at
		if item.SpentMinor != nil && item.BudgetMinor != nil && *item.BudgetMinor > 0 {
			one.Detail = say("overview.has_spent_of_its", percent(float64(*item.SpentMinor)/float64(*item.BudgetMinor)))
		}
	case kindred.AttentionKindClusterDrifted:
		one.Kind, one.Path, one.Detail = say("overview.kind_drift"), Path+"clusters/"+at, say("overview.is_no_longer_who")
	case kindred.AttentionKindClusteringRunFailed:
		one.Kind, one.Path, one.Detail = say("overview.run_failed"), Path+"runs/"+at, fmt.Sprint(deref(item.ErrorCode))
	case kindred.AttentionKindAPIKeyExpires:
		one.Kind, one.Path, one.Detail = say("overview.key_expires"), Path+"developers", say("overview.stops_working")
		one.Since = item.ExpiresAt
	case kindred.AttentionKindProjectionBehind:
		one.Kind, one.Path, one.Detail = say("overview.kind_behind"), Path+"settings#projections", say("overview.lags_behind_the_log")
	case kindred.AttentionKindProjectionQuarantined:
		one.Kind, one.Path, one.Detail = say("overview.kind_stopped"), Path+"settings#projections", say("overview.cannot_apply_an_event")
	default: // newer than this page
		one.Kind, one.Path = strings.ReplaceAll(string(item.Kind), "_", " "), Path
	}
}

// nameOf is what the subject is called, where that can be asked.
func (p *page) nameOf(item kindred.AttentionItem) string {
	ctx := p.r.Context()
	switch item.Kind {
	case kindred.AttentionKindEndpointFailing:
		if one, err := p.api.Webhooks.Get(ctx, item.SubjectID); err == nil {
			return one.URL
		}
	case kindred.AttentionKindBudgetNearlySpent:
		if one, err := p.api.Campaigns.Get(ctx, item.SubjectID); err == nil {
			return one.Name
		}
	case kindred.AttentionKindClusterDrifted:
		if one, err := p.api.Clusters.Get(ctx, item.SubjectID); err == nil {
			return one.Label
		}
	}
	return ""
}

// names finds the own ids of the users that events are about.
func (p *page) names(events []kindred.PublicEvent) (map[string]string, error) {
	var ids []string
	for _, e := range events {
		for _, field := range []string{"user_id", "matched_user_id"} {
			if one, _ := e.Data[field].(string); strings.HasPrefix(one, "usr_") {
				ids = append(ids, one)
			}
		}
	}
	return p.ownIDs(ids)
}

// ownIDs are the client's own ids of users who are there.
func (p *page) ownIDs(ids []string) (map[string]string, error) {
	names := map[string]string{}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return names, nil
	}
	found, err := p.api.Users.ListPage(p.r.Context(), kindred.ListUsersParams{IDs: ids[:min(len(ids), 100)], Limit: new(int64(100))})
	if err != nil {
		return nil, err
	}
	for _, u := range found.Data {
		names[u.ID] = u.ExternalID
	}
	return names, nil
}
