package commands

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

// loaded is what a command has read of a stream.
type loaded struct {
	version eventstore.StreamVersion
	history []eventstore.Recorded // what its aggregate folds, in order
	// seen is the end of the stream without a gap, in order; the whole where its
	// first event is the stream's first.
	seen []eventstore.Recorded
}

// load reads the end of a stream, up to a revision, as far back as a command
// needs it.
type load func(ctx context.Context, stream eventstore.Stream, upTo eventstore.Revision) (loaded, error)

const (
	// snapshotAfter is how many events are folded before the next change records
	// how things stand, where no single event says that.
	snapshotAfter = 100
	// statePage holds, in one read, all that can follow a snapshot.
	statePage = 128
	longPage  = 500 // events of a stream without snapshots that are read at once
	// maxHistory bounds what is folded of a stream without snapshots.
	// limit: commands | events of a stream that are folded | {maxHistory}
	maxHistory = 100_000
)

// snapshotter is an aggregate of which no event but a snapshot says all, and
// which may be changed any number of times.
type snapshotter interface {
	Snapshot() event.Event
}

// isSnapshot says whether an event says all that the events before it add up to.
func isSnapshot(e event.Event) bool {
	switch e.(type) {
	case event.ClientSnapshotTaken, event.WebhookSnapshotTaken, event.SegmentsSnapshotTaken:
		return true
	}
	return false
}

// snapshot is what is recorded before the next events, or nothing.
type snapshot struct {
	event   event.Event
	version eventstore.StreamVersion
}

// snapshotOf takes a snapshot where it is time for one.
func snapshotOf(l loaded, state any) snapshot {
	if of, ok := state.(snapshotter); ok && len(l.history) >= snapshotAfter {
		return snapshot{of.Snapshot(), l.version}
	}
	return snapshot{}
}

// entries are none or one. Its id follows from its place: a repetition finds what
// its request recorded by the ids of that alone. A snapshot that no event can hold, as of
// many segments with long names, is left out: then the stream is read back further.
func (s snapshot) entries(call Call) []eventstore.Entry {
	if s.event == nil || !fits(s.event) {
		return nil
	}
	ids := id.Derived("snapshot", string(s.version.Stream), strconv.FormatInt(int64(s.version.Revision)+1, 10))
	return []eventstore.Entry{{ID: id.Next[id.Event](ids), Origin: call.origin(), Event: s.event}}
}

// fits says whether a snapshot is small enough to be an event. One with a field that is yet
// to be sealed cannot be encoded, and is.
func fits(snapshot event.Event) bool {
	const envelope = 3 << 10 // bytes, at most
	data, err := event.Encode(snapshot)
	return err != nil || len(data)+envelope <= eventstore.MaxEventSize
}

// saysAll is for streams of which each event says how things stand.
func saysAll(event.Event) bool { return true }

// whole reads all of a stream that stays short.
func (c *Commands) whole(ctx context.Context, stream eventstore.Stream, _ eventstore.Revision) (loaded, error) {
	history, end, err := c.Log.Load(ctx, stream)
	return loaded{end, history, history}, err
}

// ends reads the first and the last event of a stream, of which no other counts.
func (c *Commands) ends(ctx context.Context, stream eventstore.Stream, _ eventstore.Revision) (loaded, error) {
	history, end, err := c.Log.LoadEnds(ctx, stream)
	return loaded{end, history, history}, err
}

// backTo reads a stream back, a page first, to the last event that says all, or to the first
// of the stream where none does. That event and those after it are the history.
func (c *Commands) backTo(page int, saysAll func(event.Event) bool) load {
	return func(ctx context.Context, stream eventstore.Stream, upTo eventstore.Revision) (loaded, error) {
		var seen []eventstore.Recorded // the newest first
		for size := page; ; size = max(page, longPage) {
			back, err := c.Log.ReadBack(ctx, stream, upTo, size)
			if err != nil || len(back) == 0 {
				return loaded{version: eventstore.NewStreamVersion(stream)}, err
			}
			from := slices.IndexFunc(back, func(r eventstore.Recorded) bool { return saysAll(r.Event) })
			oldest := back[len(back)-1].Revision
			if from < 0 && oldest == 0 {
				from = len(back) - 1
			}
			before := len(seen)
			if seen = append(seen, back...); len(seen) > maxHistory {
				return loaded{}, fmt.Errorf("load %s: more than %d events", stream, maxHistory)
			}
			if from >= 0 {
				end, err := versionOf(stream, seen)
				slices.Reverse(seen)
				return loaded{end, seen[len(seen)-before-from-1:], seen}, err
			}
			upTo = oldest - 1
		}
	}
}

// last reads the last event of a stream, which says all; some more of the last
// where the request may be a repetition, which is most often among them.
func (c *Commands) last(call Call) load {
	page := 1
	if call.Seed != nil {
		page = repeatedPage
	}
	return c.backTo(page, saysAll)
}

// latest is the fold of the last event of a stream, which says all.
func latest[T any, A aggregate[T]](ctx context.Context, c *Commands, stream eventstore.Stream) (*T, error) {
	last, err := c.Log.ReadBack(ctx, stream, eventstore.End, 1)
	return fold[T, A](last), err
}

// repeatedPage is how many of the last events a repetition looks at before it
// asks for its own by their ids.
const repeatedPage = 16
