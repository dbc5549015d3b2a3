package commands

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// EndingsRevision is where the stream of a webhook's day ends. Whoever records a batch
// there keeps it from before the first try, for RecordEndings.
func (c *Commands) EndingsRevision(ctx context.Context, client id.Client, webhook id.Webhook, day time.Time) (eventstore.Revision, error) {
	end, err := c.Log.Version(ctx, eventstore.EndingsStream(client, webhook, day))
	return end.Revision, err
}

// RecordEndings records how deliveries to a webhook ended on a day. A batch is
// known by its deliveries: recorded again, it adds nothing, whatever was
// recorded behind it. after is where its stream ended before the first try.
// It fails with [eventstore.ErrDeleted] for a client that was deleted, whose deliveries have
// ended with it.
// Faults: busy.
func (c *Commands) RecordEndings(ctx context.Context, client id.Client, day time.Time, after eventstore.Revision, ended event.DeliveriesEnded) error {
	if deleted, err := c.Log.IsDeleted(ctx, client); deleted || err != nil {
		return cmp.Or(err, eventstore.ErrDeleted)
	}
	call := Call{Client: client, Actor: "policy:endings"}
	stream := eventstore.EndingsStream(client, ended.Webhook, day)
	seed := []string{"deliveries.ended"}
	for _, e := range ended.Deliveries {
		seed = append(seed, string(e.Delivery))
	}
	eventID := id.Next[id.Event](id.Derived(seed...))
	end, err := c.versionAt(ctx, stream, after)
	if err != nil {
		return err
	}
	_, err = retry(ctx, "changes to the same thing", func() (since []eventstore.Recorded, err error) {
		if since, end, err = c.Log.LoadAfter(ctx, end); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(since, func(r eventstore.Recorded) bool { return r.ID == eventID }); i >= 0 {
			return nil, c.Log.NoteHead(ctx, client, since[i].Position)
		}
		return c.Log.Append(ctx, end, call.origin(), id.Derived(seed...), ended)
	})
	return err
}

// versionAt is the version that a stream had at a revision.
func (c *Commands) versionAt(ctx context.Context, stream eventstore.Stream, at eventstore.Revision) (eventstore.StreamVersion, error) {
	end := eventstore.NewStreamVersion(stream)
	if at == end.Revision {
		return end, nil
	}
	last, err := c.Log.ReadBack(ctx, stream, at, 1)
	if err != nil {
		return end, err
	}
	if len(last) == 0 || last[0].Revision != at {
		return end, fmt.Errorf("%s holds no revision %d", stream, at)
	}
	return last[0].StreamVersion()
}
