package readapi

import (
	"testing"
	"time"

	"kindred/httpapi"
)

func TestWithoutAFirstTimeThereAreAsManyIntervalsAsTheContractSays(t *testing.T) {
	for unit, want := range map[httpapi.StatisticInterval]time.Duration{
		httpapi.StatisticDay: 30 * 24 * time.Hour, httpapi.StatisticHour: 48 * time.Hour,
	} {
		from, to, err := intervals(unit, time.UTC, nil, time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC))
		if err != nil || to.Sub(from) != want {
			t.Errorf("by the %s: %s to %s, %v", unit, from, to, err)
		}
	}
}
