package eventstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/seal"
)

// Opening is the first event of a stream that is not there yet.
type Opening struct {
	Stream Stream
	Entry  Entry
}

// Sealed is an opening that is ready to be appended, or why it cannot be.
type Sealed struct {
	request  Request
	recorded []Recorded
	err      error
}

// Opened is what came of an opening: the event as it was recorded, or an error
// as of Append. Where it is ErrKeyed, Append may still succeed.
type Opened struct {
	Recorded Recorded
	Err      error
}

// SealOpenings seals the openings of one client, with keys that are new where
// that is possible. At most MaxMany are allowed.
func (l *Log) SealOpenings(ctx context.Context, client id.Client, openings []Opening) ([]Sealed, error) {
	sealed := make([]Sealed, len(openings))
	now, err := l.TimeOf(ctx, client)
	if err != nil {
		return nil, err
	}
	if l.Bulk == nil {
		if err := l.prepareAll(ctx, client, openings, sealed); err != nil {
			return nil, err
		}
	}
	for i, o := range openings {
		if s := &sealed[i]; s.err == nil {
			s.request, s.recorded, s.err = l.draft(ctx, NewStreamVersion(o.Stream), now, []Entry{o.Entry}, l.Bulk != nil)
		}
		runtime.Gosched() // whoever asks for little comes before what is left
	}
	if l.Bulk == nil {
		return sealed, nil
	}
	return sealed, l.makeKeys(ctx, sealed)
}

// makeKeys makes the keys that were drawn for openings, so that the commits of
// these, for which others wait, are short.
func (l *Log) makeKeys(ctx context.Context, sealed []Sealed) error {
	var (
		keys []Key
		of   []*Sealed
	)
	for i := range sealed {
		s := &sealed[i]
		for _, k := range s.request.Keys {
			keys, of = append(keys, k), append(of, s)
		}
		s.request.Keys = nil
	}
	made, err := l.Bulk.MakeKeys(ctx, keys)
	for i, fresh := range made {
		if !fresh {
			of[i].err = ErrKeyed
		}
	}
	return err
}

// prepareAll makes the keys of all, or tells which cannot be made.
func (l *Log) prepareAll(ctx context.Context, client id.Client, openings []Opening, sealed []Sealed) error {
	var wanted []seal.Wanted
	var of []*Sealed
	for i, o := range openings {
		w, err := l.wanted(ctx, client, o.Entry.Event)
		if err != nil {
			return err
		}
		if w.Subject != "" {
			wanted, of = append(wanted, w), append(of, &sealed[i])
		}
	}
	refused, err := l.Vault.PrepareEach(ctx, client, wanted)
	for i, err := range refused {
		of[i].err = err
	}
	return err
}

// AppendOpenings appends openings of one client, each for itself: in their order
// where the store is Bulk, else many at once, in any order.
func (l *Log) AppendOpenings(ctx context.Context, client id.Client, sealed []Sealed) ([]Opened, error) {
	opened := make([]Opened, len(sealed))
	requests, places := make([]Request, 0, len(sealed)), make([]int, 0, len(sealed))
	for i, s := range sealed {
		if opened[i].Err = s.err; s.err == nil {
			requests, places = append(requests, s.request), append(places, i)
		}
	}
	last := Start
	if err := l.verifyKeys(ctx, client); err != nil {
		return opened, err
	}
	for n, result := range l.appendAll(ctx, requests) {
		i := places[n]
		if result.Err != nil {
			opened[i].Err = fmt.Errorf("append to %s: %w", requests[n].Stream, result.Err)
			continue
		}
		opened[i].Recorded = sealed[i].recorded[0]
		opened[i].Recorded.Position = result.Position
		last = max(last, result.Position)
	}
	return opened, l.noteHead(ctx, client, last)
}

// appendAll makes appends to streams of which no two are the same: together where
// the store can, else AtOnce of them.
func (l *Log) appendAll(ctx context.Context, requests []Request) []Result {
	results := make([]Result, len(requests))
	defer func() {
		for i, r := range requests {
			l.count(len(r.Events), results[i].Err)
		}
	}()
	if l.Bulk != nil {
		results = l.Bulk.AppendMany(ctx, requests)
		return results
	}
	group, working := errgroup.WithContext(ctx) // ends where the store cannot work: the rest waits no more for it
	group.SetLimit(l.AtOnce())
	for i, r := range requests {
		group.Go(func() error {
			result := &results[i]
			if working.Err() != nil {
				result.Err = context.Cause(working)
				return result.Err
			}
			result.Appended, result.Err = l.Store.Append(ctx, r.Stream, r.Expected, r.Events)
			if _, moved := errors.AsType[*ConflictError](result.Err); moved {
				return nil
			}
			return result.Err
		})
	}
	_ = group.Wait() // each result has its own error
	return results
}

const (
	// limit: log | appends of an import that are under way | {bulkAtOnce}, on KurrentDB {singleAtOnce}
	bulkAtOnce   = 256 // they share commits
	singleAtOnce = 64  // of the 90 calls that one connection to a server bears: others find a place beside them
)

// AtOnce is how many appends to streams of their own are best made at once for
// one request.
func (l *Log) AtOnce() int {
	if l.Bulk != nil {
		return bulkAtOnce
	}
	return singleAtOnce
}

// opens says whether a stream begins with the first that is known of a subject.
func (l *Log) opens(end StreamVersion, entries []Entry) bool {
	first, ok := entries[0].Event.(event.FirstOfSubject)
	return ok && l.Bulk != nil && end.Revision == NoStream && len(entries) == 1 &&
		!l.Vault.Known(entries[0].Origin.Client, first.Subject())
}
