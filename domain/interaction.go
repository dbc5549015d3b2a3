package domain

import (
	"kindred/domain/event"
	"kindred/domain/fault"
)

// RecordInteraction adds what a user did about an item of the feed. What is known,
// by the event's key, adds nothing.
// Faults: invalid.
func RecordInteraction(e event.InteractionRecorded, known bool) ([]event.Event, error) {
	if e.Item == string(e.User) {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/item_id", Detail: "must not be the user whose feed it is"})
	}
	if known {
		return nil, nil
	}
	return []event.Event{e}, nil
}
