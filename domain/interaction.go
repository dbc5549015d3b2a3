package domain

import (
	"kindred/domain/event"
	"kindred/domain/fault"
)

// Interactions is the fold of what a user did about one item of the feed, or
// of the newest part of that.
type Interactions struct {
	dismissed bool
	known     map[interaction]bool
}

// interaction is what happens once: a kind of answer to an impression.
type interaction struct{ impression, kind string }

// Apply folds an event.
func (i *Interactions) Apply(e event.Event) {
	recorded, ok := e.(event.InteractionRecorded)
	if !ok {
		return
	}
	if i.known == nil {
		i.known = map[interaction]bool{}
	}
	if recorded.Impression != "" {
		i.known[interaction{recorded.Impression, recorded.Kind}] = true
	}
	i.dismissed = i.dismissed || recorded.Kind == Dismiss
}

// Record adds an interaction. An impression is seen, clicked and converted
// once; an item is dismissed once.
func (i *Interactions) Record(e event.InteractionRecorded) ([]event.Event, error) {
	switch {
	case e.Item == string(e.User):
		return nil, fault.NewInvalid(fault.Field{Pointer: "/item_id", Detail: "must not be the user whose feed it is"})
	case e.Impression != "" && i.known[interaction{e.Impression, e.Kind}]:
		return nil, nil
	case e.Kind == Dismiss && i.dismissed:
		return nil, nil
	}
	return []event.Event{e}, nil
}
