package streams

import (
	"cmp"
	"context"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
)

// lookForChanges is how often those who wait for changes of segments look, all in one
// statement: of 1,000 segments' changes most concern nobody who waits.
const lookForChanges = 250 * time.Millisecond

// Changes reads a page of a segment's changes once there is something on it, or after
// wait, when it may be empty.
// Faults: building, cursor_expired, overloaded, quarantined, segment_building, segment_unknown, stale.
func (s *Streams) Changes(ctx context.Context, client id.Client, eventual bool, segment id.Segment, page readmodel.Page, wait time.Duration) (
	found []segments.Change, more bool, next eventstore.Position, err error,
) {
	if found, more, next, err = s.listChanges(ctx, client, eventual, segment, page); err != nil || len(found) > 0 || more {
		return found, more, next, err
	}
	page.After = next
	over := time.NewTimer(wait)
	defer over.Stop()
	look := time.NewTicker(lookForChanges)
	defer look.Stop()
	for last := false; !last; {
		select {
		case <-ctx.Done():
			return nil, false, page.After, context.Cause(ctx)
		case <-over.C:
			last = true
		case <-look.C:
			looked, err := s.looks.Ask(ctx, segments.ChangesAfter{Client: client, Segment: segment, After: page.After})
			if err != nil {
				return nil, false, page.After, cmp.Or(context.Cause(ctx), err)
			}
			if last = looked.Changed; !last {
				page.After = max(page.After, looked.UpTo) // so that nothing is looked through twice
			}
		}
	}
	return s.listChanges(ctx, client, eventual, segment, page)
}

// listChanges reads a page. Clients share the connections of followers.
func (s *Streams) listChanges(ctx context.Context, client id.Client, eventual bool, segment id.Segment, page readmodel.Page) (
	found []segments.Change, more bool, next eventstore.Position, err error,
) {
	if !s.reading.Take(ctx, client.Owner()) {
		return nil, false, page.After, cmp.Or(context.Cause(ctx), error(fault.New(fault.Unavailable, "overloaded", "Too many wait at once. Try again.").After(time.Second)))
	}
	defer s.reading.Give(client.Owner())
	return s.segments.Changes(ctx, client, eventual, segment, false, page)
}
