package commands

import (
	"context"
	"errors"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// endingsBack is how far back a repetition of RecordEndings looks for itself.
// Batches are recorded one after another, so it stands at the very end, or
// just before what another process has recorded meanwhile.
const endingsBack = 20

// RecordEndings records how deliveries to a webhook ended on a day. A batch is
// known by its deliveries: recorded again, it adds nothing.
func (c *Commands) RecordEndings(ctx context.Context, call Call, day time.Time, ended event.DeliveriesEnded) error {
	stream := endingsStream(call.Client, ended.Webhook, day)
	seed := []string{"deliveries.ended"}
	for _, e := range ended.Deliveries {
		seed = append(seed, string(e.Delivery))
	}
	eventID := id.Next[id.Event](id.Derived(seed...))
	for range maxConflicts {
		last, err := c.Log.ReadBack(ctx, stream, eventstore.End, endingsBack)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(last, func(r eventstore.Recorded) bool { return r.ID == eventID }) {
			return nil
		}
		tip := eventstore.NewTip(stream)
		if len(last) > 0 {
			if tip, err = last[0].Tip(); err != nil {
				return err
			}
		}
		_, err = c.Log.Append(ctx, tip, call.origin(), id.Derived(seed...), ended)
		if _, moved := errors.AsType[*eventstore.ConflictError](err); !moved {
			return err
		}
	}
	return fault.New(fault.Unavailable, "busy", "Too many changes to the same thing at once. Please try again.")
}

func endingsStream(client id.Client, webhook id.Webhook, day time.Time) eventstore.Stream {
	return eventstore.Stream("deliveries-" + string(client) + "-" + string(webhook) + "-" + day.Format("20060102"))
}
