package commands

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Matcher compares the users of a client. It has seen every write that was
// acknowledged before it is asked.
type Matcher interface {
	// Top returns the best matches of a user, the best first.
	Top(ctx context.Context, client id.Client, user id.User, limit int) ([]event.MatchComputed, error)
	// Pair compares two users. ok is false where they share no trait, or too
	// little to be compared.
	Pair(ctx context.Context, client id.Client, user, other id.User) (m event.MatchComputed, ok bool, err error)
}

// ComputeMatches asks for the matches of a user.
type ComputeMatches struct {
	User   UserRef
	Other  UserRef // set: this one pair
	Limit  int     // else: so many of the best
	Record bool    // false: compute without recording
}

// Matches is what was computed, the best first.
type Matches struct {
	User     id.User
	Matches  []event.MatchComputed
	Position eventstore.Position
}

// maxLookBack bounds how far back a repeated request looks for its matches.
const maxLookBack = 10_000

// ComputeMatches computes the matches of a user and, unless told otherwise,
// records each: every match that is returned was recorded and is emitted.
func (c *Commands) ComputeMatches(ctx context.Context, call Call, in ComputeMatches) (Matches, error) {
	user, err := c.existing(ctx, call.Client, in.User)
	if err != nil {
		return Matches{}, err
	}
	stream := matchStream(call.Client, user)
	if in.Record && call.Seed != nil {
		if done, err := c.repeatedMatches(ctx, call, stream); err != nil || len(done.Matches) > 0 {
			done.User = user
			return done, err
		}
	}
	found, err := c.match(ctx, call.Client, user, in)
	if err != nil || !in.Record || len(found) == 0 {
		return Matches{User: user, Matches: found}, err
	}
	position, err := c.recordMatches(ctx, call, stream, found)
	return Matches{User: user, Matches: found, Position: position}, err
}

func (c *Commands) match(ctx context.Context, client id.Client, user id.User, in ComputeMatches) ([]event.MatchComputed, error) {
	if in.Other == "" {
		return c.Matcher.Top(ctx, client, user, in.Limit)
	}
	other, err := c.existing(ctx, client, in.Other)
	if err != nil {
		return nil, err
	}
	if other == user {
		return nil, fault.NewInvalid(fault.Field{Pointer: "/matched_user_id", Detail: "must be another user"})
	}
	m, ok, err := c.Matcher.Pair(ctx, client, user, other)
	if err != nil || !ok {
		return nil, err
	}
	return []event.MatchComputed{m}, nil
}

// existing returns the id of a user that is there.
func (c *Commands) existing(ctx context.Context, client id.Client, ref UserRef) (user id.User, err error) {
	err = c.withUser(ctx, client, ref, func(found id.User) error {
		last, err := c.Log.ReadBack(ctx, userStream(client, found), eventstore.End, 1)
		switch {
		case err != nil:
			return err
		case len(last) == 0:
			return domain.ErrUserUnknown()
		}
		if _, erased := last[0].Event.(event.EndUserErased); erased {
			return errErased
		}
		user = found
		return nil
	})
	return user, err
}

// recordMatches appends matches to a user's match stream, in as few appends as
// their size allows.
func (c *Commands) recordMatches(ctx context.Context, call Call, stream eventstore.Stream, found []event.MatchComputed) (eventstore.Position, error) {
	ids := c.ids(call, string(stream))
	var position eventstore.Position
	for len(found) > 0 {
		chunk, err := firstAppend(found)
		if err != nil {
			return "", err
		}
		recorded, err := c.appendAtEnd(ctx, call, stream, ids, chunk)
		if err != nil {
			return "", err
		}
		position = recorded[len(recorded)-1].Position
		found = found[len(chunk):]
	}
	return position, nil
}

// firstAppend takes as many matches as fit into one append.
func firstAppend(found []event.MatchComputed) ([]event.Event, error) {
	const envelope = 1 << 10
	size, chunk := 0, []event.Event(nil)
	for _, m := range found {
		data, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		size += len(data) + envelope
		if len(chunk) > 0 && size > eventstore.MaxAppendSize || len(chunk) == eventstore.MaxAppend {
			break
		}
		chunk = append(chunk, m)
	}
	return chunk, nil
}

// appendAtEnd appends facts that depend on nothing in their stream.
func (c *Commands) appendAtEnd(ctx context.Context, call Call, stream eventstore.Stream, ids *id.Source, events []event.Event) ([]eventstore.Recorded, error) {
	for range maxConflicts {
		tip, err := c.Log.Tip(ctx, stream)
		if err != nil {
			return nil, err
		}
		attempt := *ids
		recorded, err := c.Log.Append(ctx, tip, call.origin(), &attempt, events...)
		if _, moved := errors.AsType[*eventstore.ConflictError](err); moved {
			continue
		}
		*ids = attempt
		return recorded, err
	}
	return nil, fault.New(fault.Unavailable, "busy", "Too many matches of this user at once. Please try again.").After(time.Second)
}

// repeatedMatches finds what an earlier run of the same request recorded.
func (c *Commands) repeatedMatches(ctx context.Context, call Call, stream eventstore.Stream) (Matches, error) {
	wanted := id.Next[id.Event](c.ids(call, string(stream)))
	const page = 500
	var newest []eventstore.Recorded // the newest first
	for from := eventstore.End; len(newest) < maxLookBack; {
		back, err := c.Log.ReadBack(ctx, stream, from, page)
		if err != nil {
			return Matches{}, err
		}
		for i, r := range back {
			if r.ID == wanted {
				return c.ownMatches(call, append(newest, back[:i+1]...))
			}
		}
		if len(back) < page || back[len(back)-1].Revision == 0 {
			break
		}
		newest = append(newest, back...)
		from = back[len(back)-1].Revision - 1
	}
	return Matches{}, nil
}

// ownMatches takes a request's matches from a stretch of a stream, the newest
// first, that ends with the first of them.
func (c *Commands) ownMatches(call Call, newest []eventstore.Recorded) (Matches, error) {
	first := newest[len(newest)-1]
	if err := sameRequest(call, first); err != nil {
		return Matches{}, err
	}
	ids := c.ids(call, string(first.Stream))
	var own Matches
	next := id.Next[id.Event](ids)
	for i := len(newest) - 1; i >= 0; i-- {
		if newest[i].ID != next {
			continue
		}
		own.Matches = append(own.Matches, newest[i].Event.(event.MatchComputed))
		own.Position = newest[i].Position
		next = id.Next[id.Event](ids)
	}
	return own, nil
}
