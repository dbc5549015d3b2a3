package commands

import (
	"context"
	"errors"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Interact is what a user did about an item of the feed.
type Interact struct {
	User       UserRef
	Item       string // a user (a UserRef) or a campaign
	Kind       string // of the domain's Interaction… constants
	Impression string // empty: not one of a feed that is known
	Position   int    // of that impression, from 1
}

// Interaction is an interaction that was recorded, now or before.
type Interaction struct {
	event.InteractionRecorded
	RecordedAt time.Time
	Outcome    Outcome
}

// maxInteractions bounds how far back a stream of interactions is read: its
// cost does not grow with its length.
const maxInteractions = 200

func interactionStream(client id.Client, user id.User, item string) eventstore.Stream {
	return eventstore.Stream("interactions-" + string(client) + "-" + string(user) + "-" + item)
}

// Interact records an interaction. One that is known already adds nothing.
func (c *Commands) Interact(ctx context.Context, call Call, in Interact) (Interaction, error) {
	user, err := c.existing(ctx, call.Client, in.User)
	if err != nil {
		return Interaction{}, err
	}
	item := in.Item
	if _, err := id.Parse[id.Campaign](item); err != nil {
		shown, err := c.existing(ctx, call.Client, UserRef(item))
		if err != nil {
			return Interaction{}, itemUnknown(err)
		}
		item = string(shown)
	}
	done := event.InteractionRecorded{User: user, Item: item, Kind: in.Kind, Impression: in.Impression, Position: in.Position}
	stream := interactionStream(call.Client, user, item)
	for range maxConflicts {
		outcome, err := c.interact(ctx, call, stream, done)
		if _, moved := errors.AsType[*eventstore.ConflictError](err); moved {
			continue
		}
		if err != nil {
			return Interaction{}, err
		}
		return interactionAfter(done, outcome), nil
	}
	return Interaction{}, fault.New(fault.Unavailable, "busy", "Too many interactions with the same item at once. Please try again.").After(time.Second)
}

func (c *Commands) interact(ctx context.Context, call Call, stream eventstore.Stream, done event.InteractionRecorded) (Outcome, error) {
	history, err := c.Log.ReadBack(ctx, stream, eventstore.End, maxInteractions)
	if err != nil {
		return Outcome{}, err
	}
	tip := eventstore.NewTip(stream)
	if len(history) > 0 {
		if tip, err = history[0].Tip(); err != nil {
			return Outcome{}, err
		}
	}
	slices.Reverse(history)
	if outcome, repeated, err := c.repetition(call, history); repeated || err != nil {
		return outcome, err
	}
	return attempt[domain.Interactions](ctx, c, call, history, tip,
		func(i *domain.Interactions, _ []eventstore.Recorded) ([]event.Event, error) { return i.Record(done) })
}

// interactionAfter finds what was recorded, or had been before.
func interactionAfter(done event.InteractionRecorded, outcome Outcome) Interaction {
	for _, r := range slices.Backward(outcome.History) {
		e, ok := r.Event.(event.InteractionRecorded)
		if ok && e.Kind == done.Kind && (e.Impression == done.Impression || e.Kind == domain.InteractionDismiss) {
			return Interaction{e, r.RecordedAt, outcome}
		}
	}
	return Interaction{InteractionRecorded: done, Outcome: outcome}
}

// itemUnknown says which of the two users there is not.
func itemUnknown(err error) error {
	if f := fault.As(err); f != nil && f.Kind == fault.Missing {
		return fault.New(fault.Missing, "item_unknown", "There is no such item: it was never there, or was erased.")
	}
	return err
}
