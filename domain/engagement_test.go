package domain_test

import (
	"testing"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
)

func TestAnImpressionHasAHundredAnswersAtMost(t *testing.T) {
	var answers domain.ImpressionAnswers
	shown := event.CampaignEngagementRecorded{Campaign: spring, Kind: domain.Impression, Impression: "imp_1"}
	if _, err := answers.Record(shown, domain.Impression); !fault.Is(err, "invalid") {
		t.Errorf("an impression as an answer: %v", err)
	}
	for n := range 100 {
		kind := []string{domain.Click, domain.Conversion}[n%2]
		events, err := answers.Record(shown, kind)
		if err != nil || len(events) != 1 || events[0].(event.CampaignEngagementRecorded).Kind != kind {
			t.Fatalf("answer %d: %v, %v", n, events, err)
		}
		answers.Apply(events[0])
	}
	if _, err := answers.Record(shown, domain.Click); !fault.Is(err, "too_many_engagements") {
		t.Errorf("one more: %v", err)
	}
}
