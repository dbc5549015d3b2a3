package domain_test

import (
	"testing"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
)

func TestInteractions(t *testing.T) {
	did := func(kind, impression string) event.InteractionRecorded {
		return event.InteractionRecorded{User: "usr_a", Item: "usr_b", Kind: kind, Impression: impression}
	}
	for _, c := range []struct {
		what  string
		given []event.InteractionRecorded
		when  event.InteractionRecorded
		added int
	}{
		{"the first", nil, did(domain.Impression, "i"), 1},
		{"the same answer to an impression", []event.InteractionRecorded{did(domain.Click, "i")}, did(domain.Click, "i"), 0},
		{"another answer to it", []event.InteractionRecorded{did(domain.Click, "i")}, did(domain.Conversion, "i"), 1},
		{"the same answer to another one", []event.InteractionRecorded{did(domain.Click, "i")}, did(domain.Click, "j"), 1},
		{"an answer to none that is known, again", []event.InteractionRecorded{did(domain.Click, "")}, did(domain.Click, ""), 1},
		{"dismissing what was dismissed", []event.InteractionRecorded{did(domain.Dismiss, "i")}, did(domain.Dismiss, ""), 0},
		{"clicking what was dismissed", []event.InteractionRecorded{did(domain.Dismiss, "i")}, did(domain.Click, "i"), 1},
	} {
		known := false
		key, single := c.when.Key()
		for _, e := range c.given {
			other, ok := e.Key()
			known = known || single && ok && other == key
		}
		if events, err := domain.RecordInteraction(c.when, known); err != nil || len(events) != c.added {
			t.Errorf("%s adds %v, %v", c.what, events, err)
		}
	}
	if _, err := domain.RecordInteraction(event.InteractionRecorded{User: "usr_a", Item: "usr_a", Kind: domain.Click}, false); !fault.Is(err, "invalid") {
		t.Errorf("a user in their own feed: %v", err)
	}
}
