package dispatcher

import (
	"encoding/json"
	"fmt"
	"time"

	"kindred/domain/rule"
	"kindred/eventstore/projector"
)

// filters judge events by the rules of subscriptions, by their texts.
type filters struct {
	parsed rule.Cache[string, *rule.Rule]
}

// parseSteps is what it takes to parse a filter, for each byte that it takes in memory, as
// [projector.Spend] counts: 4 KiB take some 10 ms.
const parseSteps = 6

// kept says whether a filter, if there is one, is ready to judge.
func (f *filters) kept(filter string) bool { return filter == "" || f.parsed.Get(filter) != nil }

// names says whether a filter surely names an event. One that is not kept is parsed, which is spent.
func (f *filters) names(filter string, facts *rule.Facts, spend projector.Spend) (bool, error) {
	parsed := f.parsed.Get(filter)
	if parsed == nil {
		var err error
		if parsed, err = rule.Parse(filter, rule.Events); err != nil {
			return false, spend(len(filter) * parseSteps) // it was a rule when it was written; what it leaves out is counted
		}
		f.parsed.Add(filter, parsed)
		if err := spend(parsed.Size() * parseSteps); err != nil {
			return false, err
		}
	}
	return parsed.Judge(facts) == rule.True, nil
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
