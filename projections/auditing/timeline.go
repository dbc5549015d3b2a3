package auditing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/eventstore/seal"
	"kindred/projections"
)

// Happening is something that happened to a user, or that the user did.
type Happening struct {
	Ordinal  int64
	Event    id.Event
	Type     string
	Actor    string
	At       time.Time
	Changed  []string        // paths of traits that were set, changed or taken away; 100 at most
	Layer    id.ConsentLayer // where one is concerned
	Campaign id.Campaign     // likewise
	Other    id.User         // with whom there was a match
	Item     string          // of a feed
	Kind     string          // of an interaction or an engagement
}

const (
	// limit: models | changed traits that an entry of a timeline names | {maxChanged}
	maxChanged  = 100
	changedDeep = 8 // keys of a path that are told apart
)

// Timeline returns what happened to a user below an ordinal, the newest first. It fails
// with a fault of kind Missing where nothing ever did. Of who was erased it tells what
// happened, and not which traits changed.
// Faults: building, overloaded, quarantined, stale, user_unknown.
func (a *Auditor) Timeline(ctx context.Context, client id.Client, eventual bool, user id.User, below int64, limit int) ([]Happening, error) {
	asked := a.Now()
	streams, err := projections.StreamsOfUser(ctx, a.History.Reader, client, eventual, user)
	if err != nil {
		return nil, err
	}
	entries, err := a.History.Newest(ctx, client, eventual, streams, below, limit)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		known, err := a.History.Newest(ctx, client, eventual, streams[:1], math.MaxInt64, 1)
		if err == nil && len(known) == 0 {
			err = fault.UnknownUser()
		}
		return nil, err
	}
	// The oldest first, so that what was said before is known.
	slices.Reverse(entries)
	found := make([]Happening, 0, len(entries))
	var last spoken
	for some := range slices.Chunk(entries, readAtOnce) {
		records, err := projections.Events(ctx, a.Log.Store, some)
		if err != nil {
			return nil, err
		}
		for i, r := range records {
			h, err := a.happening(ctx, r, some[i], &last, asked)
			if err != nil {
				return nil, err
			}
			found = append(found, h)
		}
	}
	slices.Reverse(found)
	return found, nil
}

// spoken is what a user has said by a revision of its stream.
type spoken struct {
	revision eventstore.Revision
	traits   map[string]json.RawMessage // nil: nothing is known
}

func (a *Auditor) happening(ctx context.Context, r eventstore.Record, entry projections.Entry, last *spoken, asked time.Time) (Happening, error) {
	actor, _, _ := audit.Shown(r.Meta)
	h := Happening{Ordinal: entry.Ordinal, Event: r.ID, Type: r.Type, Actor: actor, At: r.RecordedAt}
	recorded, err := a.Log.Decode(r)
	if err != nil {
		return h, nil //nolint:nilerr // told as far as it is known; what cannot be read has nothing to add
	}
	switch e := recorded.Event.(type) {
	case event.EndUserCreated, event.EndUserTraitsChanged:
		now, err := a.saidBy(ctx, recorded, asked)
		if err != nil || now == nil {
			return h, err
		}
		if r.Revision > 0 && (last.traits == nil || last.revision != r.Revision-1) {
			before, err := a.Log.ReadBack(ctx, r.Stream, r.Revision-1, 1)
			if err != nil {
				return h, err
			}
			last.traits = nil
			if len(before) > 0 {
				if last.traits, err = a.saidBy(ctx, before[0], asked); err != nil {
					return h, err
				}
			}
		}
		h.Changed = changedPaths(nil, "", changedDeep, last.traits, now)
		*last = spoken{r.Revision, now}
		slices.Sort(h.Changed)
		h.Changed = h.Changed[:min(len(h.Changed), maxChanged)]
	case event.MatchComputed:
		h.Other, h.Layer = e.MatchedUser, e.Layer
	case event.ConsentGranted:
		h.Layer = e.Layer
	case event.ConsentWithdrawn:
		h.Layer = e.Layer
	case event.CampaignEngagementRecorded:
		h.Campaign, h.Kind = e.Campaign, e.Kind
	case event.InteractionRecorded:
		h.Item, h.Kind = e.Item, e.Kind
	}
	return h, nil
}

// saidBy opens all traits that an event of a user carries; nil where they are gone.
func (a *Auditor) saidBy(ctx context.Context, r eventstore.Recorded, asked time.Time) (traits map[string]json.RawMessage, err error) {
	plain, err := a.Log.OpenAsOf(ctx, asked, r, "traits")
	if errors.Is(err, seal.ErrErased) || err == nil && plain == nil {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(plain, &traits)
	}
	return traits, err
}

// changedPaths adds the paths in which two objects differ, as traits are named.
func changedPaths(paths []string, under string, deep int, before, now map[string]json.RawMessage) []string {
	keys := maps.Clone(now)
	if keys == nil {
		keys = map[string]json.RawMessage{}
	}
	maps.Copy(keys, before)
	for key := range keys {
		was, is := before[key], now[key]
		if bytes.Equal(was, is) {
			continue
		}
		var inBefore, inNow map[string]json.RawMessage
		objects := deep > 1 && (was == nil || json.Unmarshal(was, &inBefore) == nil) && (is == nil || json.Unmarshal(is, &inNow) == nil)
		if objects && len(inBefore)+len(inNow) > 0 {
			paths = changedPaths(paths, under+key+".", deep-1, inBefore, inNow)
		} else {
			paths = append(paths, under+key)
		}
	}
	return paths
}
