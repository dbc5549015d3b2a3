// Package replay copies a log: every event with its stored bytes, so that each
// hash, each stream and each client's order stay what they were, whichever
// stores the two logs are kept in. It then says whether both are the same.
package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"kindred/domain/id"
	"kindred/eventstore"
)

const (
	batchSize = 1000    // events between two notes of how far a copy has come
	pageBytes = 4 << 20 // that a page should hold, judged by the one before
	lanes     = 16      // clients whose events are appended at the same time
)

// Source tells the events of a log, or of an export, in their order.
type Source interface {
	// Next returns at most limit events; none where there are no more.
	Next(ctx context.Context, limit int) ([]eventstore.Record, error)
}

// Log is a Source: the events of a store after one position and up to another.
type Log struct {
	Store       eventstore.Store
	After, UpTo eventstore.Position

	most int // events of the next page; 0: any number
}

// Next returns the next events.
func (l *Log) Next(ctx context.Context, limit int) ([]eventstore.Record, error) {
	if l.After >= l.UpTo {
		return nil, nil
	}
	page, err := l.Store.ReadAll(ctx, l.After, min(limit, cmp.Or(l.most, limit)))
	l.most = eventstore.Fitting(page, pageBytes)
	for len(page) > 0 && page[len(page)-1].Position > l.UpTo {
		page = page[:len(page)-1]
	}
	if len(page) > 0 {
		l.After = page[len(page)-1].Position
	}
	return page, err
}

// Loader is a Store that takes many events of many streams at once, in order,
// and passes over those that it has.
type Loader interface {
	Load(ctx context.Context, records []eventstore.Record) error
}

// Copy appends all that a source tells to a log. Done is called after each
// batch, with the position of its last event in the source: from there a copy
// that was broken off may go on. What had been appended beyond is not appended
// twice. Where the store is no Loader, clients are appended side by side: each
// one's events keep their order, but not that among clients.
func Copy(ctx context.Context, from Source, to *eventstore.Log, done func(ctx context.Context, events int, last eventstore.Position) error) error {
	for {
		batch, err := from.Next(ctx, batchSize)
		if err != nil {
			return fmt.Errorf("read what is to be copied: %w", err)
		}
		if len(batch) == 0 {
			return nil
		}
		if loader, ok := to.Store.(Loader); ok {
			err = loader.Load(ctx, batch)
		} else {
			err = appendAll(ctx, to, batch)
		}
		if err != nil {
			return fmt.Errorf("copy after %s: %w", batch[0].Position, err)
		}
		if err := done(ctx, len(batch), batch[len(batch)-1].Position); err != nil {
			return err
		}
	}
}

func appendAll(ctx context.Context, to *eventstore.Log, batch []eventstore.Record) error {
	for len(batch) > 0 {
		// What an event of a shared stream follows may be another client's, so it waits for all before it.
		n := 1 + slices.IndexFunc(batch[1:], func(r eventstore.Record) bool { return r.Stream.Shared() })
		if n == 0 {
			n = len(batch)
		}
		if err := appendLanes(ctx, to, batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// appendLanes appends events, clients side by side.
func appendLanes(ctx context.Context, to *eventstore.Log, batch []eventstore.Record) error {
	byClient := map[id.Client][]eventstore.Record{}
	for _, r := range batch {
		byClient[r.Client] = append(byClient[r.Client], r)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lanes)
	for client, records := range byClient {
		group.Go(func() error { return appendLane(ctx, to, client, records) })
	}
	return group.Wait()
}

// appendLane appends events of one client in their order, those together that
// follow each other in a stream.
func appendLane(ctx context.Context, to *eventstore.Log, client id.Client, records []eventstore.Record) error {
	var last eventstore.Position
	for len(records) > 0 {
		n, size := 0, 0
		var events []eventstore.Proposed
		for n < len(records) && n < eventstore.MaxAppend && records[n].Stream == records[0].Stream {
			if size += len(records[n].Data) + len(records[n].Meta); n > 0 && size > eventstore.MaxAppendSize {
				break
			}
			events = append(events, records[n].Proposed)
			n++
		}
		appended, err := to.Store.Append(ctx, records[0].Stream, records[0].Revision-1, events)
		if err != nil {
			return err
		}
		last, records = appended.Position, records[n:]
	}
	return to.NoteHead(ctx, client, last)
}
