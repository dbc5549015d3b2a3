package dispatcher

import (
	"encoding/json"
	"fmt"
	"time"

	"kindred/domain/rule"
)

// filters judge events by the rules of subscriptions, by their texts.
type filters struct {
	parsed rule.Cache[string, *rule.Rule]
}

// names says whether a filter surely names an event.
func (f *filters) names(filter string, facts *rule.Facts) bool {
	parsed := f.parsed.Get(filter)
	if parsed == nil {
		var err error
		if parsed, err = rule.Parse(filter, rule.Events); err != nil {
			return false // it was a rule when it was written; what it leaves out is counted
		}
		f.parsed.Add(filter, parsed)
	}
	return parsed.Judge(facts) == rule.True
}

// factsOf reads what a delivery says. It is judged as of when the event was recorded, however late
// it is queued.
func factsOf(body []byte, recorded time.Time) (*rule.Facts, error) {
	var message struct {
		EventType string         `json:"event_type"`
		Data      map[string]any `json:"data"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return nil, fmt.Errorf("read what a delivery says: %w", err)
	}
	return &rule.Facts{EventType: message.EventType, Data: message.Data, Now: recorded}, nil
}
