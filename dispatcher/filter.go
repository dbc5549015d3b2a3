package dispatcher

import (
	"encoding/json"
	"fmt"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"kindred/domain/rule"
)

// filtersKept bounds the filters that are kept ready to judge, for all clients.
// limit: webhooks | filters of subscriptions that are kept ready to judge | {filtersKept}
const filtersKept = 8192

// filters judge events by the rules of subscriptions, by their texts.
type filters struct {
	once   sync.Once
	parsed *lru.Cache[string, *rule.Rule]
}

// names says whether a filter surely names an event.
func (f *filters) names(filter string, facts *rule.Facts) bool {
	f.once.Do(func() {
		var err error
		if f.parsed, err = lru.New[string, *rule.Rule](filtersKept); err != nil {
			panic(err) // the size is no size
		}
	})
	parsed, found := f.parsed.Get(filter)
	if !found {
		var err error
		if parsed, err = rule.Parse(filter, rule.Events); err != nil {
			return false // it was a rule when it was written; what it leaves out is counted
		}
		f.parsed.Add(filter, parsed)
	}
	return parsed.Judge(facts) == rule.True
}

// factsOf reads what a delivery says.
func factsOf(body []byte) (*rule.Facts, error) {
	var message struct {
		EventType string         `json:"event_type"`
		Data      map[string]any `json:"data"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return nil, fmt.Errorf("read what a delivery says: %w", err)
	}
	return &rule.Facts{EventType: message.EventType, Data: message.Data}, nil
}
