package readapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"kindred/domain/fault"
	"kindred/httpapi"
	"kindred/projections"
)

// limit: requests | intervals of a series of statistics | {maxIntervals} | 422 `invalid`
const maxIntervals = 1_000

const (
	defaultDays  = 30
	defaultHours = 48
)

// GetStatistics tells how much happened, by hour or by day.
func (a *API) GetStatistics(ctx context.Context, r httpapi.GetStatisticsRequestObject) (httpapi.GetStatisticsResponseObject, error) {
	zone, err := zoneOf(r.Params.Timezone)
	if err != nil {
		return nil, err
	}
	client, eventual := asked(ctx)
	now, _, err := a.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	unit := httpapi.Or(r.Params.Interval, httpapi.StatisticDay)
	from, to, err := intervals(unit, zone, r.Params.From, httpapi.Or(r.Params.To, now))
	if err != nil {
		return nil, err
	}
	metric := r.Params.Metric
	found, err := projections.Statistics{Reader: a.Reader}.Series(ctx, client, eventual, string(metric), string(unit), zone, from, to)
	if errors.Is(err, projections.ErrZoneUnknown) {
		return nil, errZoneUnknown()
	}
	if err != nil {
		return nil, err
	}
	answer := httpapi.GetStatistics200JSONResponse{
		Metric: metric, Interval: unit, Timezone: zone.String(), From: httpapi.Time{Time: from}, To: httpapi.Time{Time: to},
		Series: []httpapi.StatisticEntry{},
	}
	all, there := map[string]int64{}, int64(0)
	for _, counted := range found {
		there += counted.Parts[projections.PartCreated] - counted.Parts[projections.PartErased]
		if counted.Start.IsZero() {
			continue // before the first interval
		}
		for part, n := range counted.Parts {
			all[part] = projections.AddCount(all[part], n)
		}
		c := countsBody(metric, counted.Parts, there)
		answer.Series = append(answer.Series, httpapi.StatisticEntry{
			Start: httpapi.Time{Time: counted.Start}, Users: c.Users, Matches: c.Matches, Deliveries: c.Deliveries, Spend: c.Spend,
		})
	}
	answer.Total = countsBody(metric, all, there)
	return answer, nil
}

// intervals returns when the intervals begin and end that hold two times, and those
// between them. Without the first there are as many as is usual.
func intervals(unit httpapi.StatisticInterval, zone *time.Location, first *time.Time, last time.Time) (from, to time.Time, err error) {
	begin := func(t time.Time, later int) time.Time {
		t = t.In(zone)
		if unit == httpapi.StatisticDay {
			return projections.DayBegins(t.Year(), t.Month(), t.Day()+later, zone)
		}
		past := time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
		return t.Add(time.Duration(later)*time.Hour - past)
	}
	invalid := func(at, detail string) (time.Time, time.Time, error) {
		return from, to, fault.NewInvalid(fault.Field{Pointer: at, Detail: detail})
	}
	usual := defaultHours
	if unit == httpapi.StatisticDay {
		usual = defaultDays
	}
	begins := "to"
	from, to = begin(last, 1-usual), begin(last, 1)
	if first != nil {
		begins, from = "from", begin(*first, 0)
		switch {
		case first.After(last):
			return invalid("from", "must not be after to")
		case begin(*first, maxIntervals).Before(to):
			return invalid("from", fmt.Sprintf("begins more than %d intervals", maxIntervals))
		}
	}
	switch { // as the answer could not tell it
	case from.UTC().Year() < 1:
		return invalid(begins, "begins an interval before the year 1")
	case to.UTC().Year() > 9999:
		return invalid("to", "ends an interval after the year 9999")
	}
	return from, to, nil
}

// countsBody is what was counted of a metric, and how many users there were then.
func countsBody(metric httpapi.StatisticMetric, parts map[string]int64, there int64) (c httpapi.StatisticCounts) {
	switch metric {
	case httpapi.StatisticUsers:
		c.Users = &httpapi.UserCounts{There: there, Created: parts[projections.PartCreated], Erased: parts[projections.PartErased]}
	case httpapi.StatisticMatches:
		c.Matches = &httpapi.MatchCounts{Recorded: parts[projections.PartRecorded]}
	case httpapi.StatisticDeliveries:
		c.Deliveries = &httpapi.DeliveryCounts{
			FirstTry: parts[projections.PartFirstTry], Retried: parts[projections.PartRetried],
			Dropped: parts[projections.PartDropped], Cancelled: parts[projections.PartCancelled],
		}
	case httpapi.StatisticSpend:
		c.Spend = new(each(slices.Sorted(maps.Keys(parts)), func(currency string) httpapi.SpentAmount {
			return httpapi.SpentAmount{Currency: currency, AmountMinor: parts[currency]}
		}))
	}
	return c
}
