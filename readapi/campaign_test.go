package readapi

import (
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/httpapi"
	"kindred/projections"
)

// A campaign whose budget is spent half-way was twice as fast as an even pace, and stays so.
func TestTheRatioOfACampaignIsThatOfItsEnd(t *testing.T) {
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	c := projections.Campaign{
		CampaignTerms: event.CampaignTerms{BudgetMinor: 100, EndsAt: new(start.AddDate(0, 0, 10))},
		SpentMinor:    100, StartedAt: start, UpdatedAt: start.AddDate(0, 0, 5),
	}
	for status, want := range map[httpapi.CampaignStatus]float64{httpapi.CampaignRunning: 1.25, httpapi.CampaignPaused: 1.25, httpapi.CampaignCompleted: 2, httpapi.CampaignCancelled: 2} {
		c.Status = string(status)
		if got := paced(c, start.AddDate(0, 0, 8)).Ratio; got != want {
			t.Errorf("%s: %v, want %v", status, got, want)
		}
	}
}
