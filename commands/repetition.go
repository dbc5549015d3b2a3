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

// EventIDs finds events that a client can have recorded once only, however long
// ago: those whose ids are derived, and those that have a key (event.Single).
type EventIDs interface {
	// Revisions returns, for each of ids, the revision of the first event in its stream
	// that has it as its id or key: for all events at or before reached, a position of the
	// log, and perhaps for later ones. It fails where an event before reached may be
	// missing. Events of users and spends are not looked for.
	Revisions(ctx context.Context, client id.Client, ids []id.Event) (found map[id.Event]eventstore.Revision, reached eventstore.Position, err error)
}

// find looks in a stream for the event that has an id or a key. seen is the end of the
// stream as it was read before.
//
// The event is looked for in seen, then in EventIDs, which know all events up to a
// position. Where that position is before the first of seen, the events between them are
// read back. What others append after seen makes the append conflict. So the answer is
// exact, however old the event is and however many follow it, and only as many events are
// read as EventIDs lag behind.
func (c *Commands) find(ctx context.Context, client id.Client, seen []eventstore.Recorded, key id.Event,
	is func(eventstore.Recorded) bool,
) (found eventstore.Recorded, ok bool, err error) {
	if i := slices.IndexFunc(seen, is); i >= 0 {
		return seen[i], true, nil
	}
	if len(seen) == 0 || seen[0].Revision == 0 {
		return found, false, nil
	}
	known, reached, err := c.EventIDs.Revisions(ctx, client, []id.Event{key})
	if err != nil {
		return found, false, err
	}
	stream := seen[0].Stream
	if at, ok := known[key]; ok {
		there, err := c.Log.ReadBack(ctx, stream, at, 1)
		if err != nil {
			return found, false, err
		}
		if len(there) == 1 && there[0].Revision == at && is(there[0]) {
			return there[0], true, nil
		}
		return found, false, errElsewhere
	}
	if seen[0].Position <= reached {
		return found, false, nil
	}
	read := 0
	for r, err := range c.Log.Backward(ctx, stream, seen[0].Revision-1, longPage) {
		switch {
		case err != nil:
			return found, false, err
		case r.Position <= reached:
			return found, false, nil
		case is(r):
			return r, true, nil
		}
		if read++; read > maxBehind {
			return found, false, errCatchingUp()
		}
	}
	return found, false, nil
}

// errElsewhere: the event does not stand in the stream that was looked into.
var errElsewhere = errors.New("the event stands elsewhere")

func errKeyReused() error {
	return fault.New(fault.Invalid, "idempotency_key_reused",
		"This Idempotency-Key came with another request before. Use a new key for a new request.")
}

func errCatchingUp() error {
	return fault.New(fault.Unavailable, "catching_up",
		"The service is catching up with what was recorded. Please try again.").After(time.Second)
}

// own finds an event that this call has recorded in a stream.
func (c *Commands) own(ctx context.Context, call Call, seen []eventstore.Recorded, wanted id.Event) (eventstore.Recorded, bool, error) {
	found, ok, err := c.find(ctx, call.Client, seen, wanted, func(r eventstore.Recorded) bool { return r.ID == wanted })
	if errors.Is(err, errElsewhere) { // its id follows from the stream: the log was set back
		err = errCatchingUp()
	}
	if err == nil && ok {
		err = sameRequest(call, found)
	}
	return found, ok && err == nil, err
}

// following are the events that a call appended together with first, and the id
// that the next one would have.
func (c *Commands) following(ctx context.Context, first eventstore.Recorded, ids *id.Source) (events []eventstore.Recorded, next id.Event, err error) {
	events, next = []eventstore.Recorded{first}, id.Next[id.Event](ids)
	for page := 2; ; page = min(4*page, longPage) {
		records, err := c.Log.Store.ReadStream(ctx, first.Stream, events[len(events)-1].Revision+1, page)
		if err != nil {
			return nil, next, err
		}
		for _, record := range records {
			if record.ID != next {
				return events, next, nil
			}
			r, err := c.Log.Decode(record)
			if err != nil {
				return nil, next, err
			}
			events, next = append(events, r), id.Next[id.Event](ids)
		}
		if len(records) < page {
			return events, next, nil
		}
	}
}

// repetition answers with what an earlier run of the same request recorded in the
// stream, which load has read.
func (c *Commands) repetition(ctx context.Context, call Call, l loaded, load load) (Outcome, bool, error) {
	if call.Seed == nil || len(l.seen) == 0 {
		return Outcome{}, false, nil
	}
	ids := c.ids(call, string(l.version.Stream))
	first, ok, err := c.own(ctx, call, l.seen, id.Next[id.Event](ids))
	if err != nil || !ok {
		return Outcome{}, false, err
	}
	recorded, _, err := c.following(ctx, first, ids)
	if err != nil {
		return Outcome{}, false, err
	}
	last := recorded[len(recorded)-1]
	if len(l.history) == 0 || l.history[0].Revision > last.Revision { // how things stood then
		if l, err = load(ctx, l.version.Stream, last.Revision); err != nil {
			return Outcome{}, false, err
		}
	}
	history := slices.DeleteFunc(slices.Clone(l.history), func(r eventstore.Recorded) bool { return r.Revision > last.Revision })
	return Outcome{
		Position: last.Position, Revision: last.Revision, Repeated: true, History: history, Recorded: recorded,
	}, true, c.log(call).NoteHead(ctx, call.Client, last.Position)
}

// sameRequest refuses a request that came with the Idempotency-Key of another.
func sameRequest(call Call, recorded eventstore.Recorded) error {
	if call.Seed == nil {
		return nil
	}
	meta, err := eventstore.DecodeMeta(recorded.Meta)
	if err != nil {
		return err
	}
	if meta.Request != call.Request {
		return errKeyReused()
	}
	return nil
}

// hasKey selects the event that has a key.
func hasKey(key id.Event) func(eventstore.Recorded) bool {
	return func(r eventstore.Recorded) bool {
		single, ok := r.Event.(event.Single)
		if !ok {
			return false
		}
		other, ok := single.Key()
		return ok && other == key
	}
}
