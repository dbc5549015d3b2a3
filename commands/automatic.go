package commands

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
)

// movedBy is how much a score has to change before a match is told again.
const movedBy = 0.05

const (
	// maxTold bounds how far back is looked for what was told.
	// limit: commands | events of a user that are looked through for matches told before | {maxTold}
	maxTold  = 10_000
	toldPage = 500 // events that are read at once
)

// MatchAutomatically records the matches among a user's best k that were never
// told of, or whose score has moved since. That a score moved because the
// schema of the traits did is not told: then the user as it was is compared by
// the schema of today. The call's seed names the event that called for it, so
// that doing it again adds nothing. It returns how many were recorded.
// Faults: building, busy, catching_up, idempotency_key_reused, invalid, overloaded, population_too_large,
// quarantined, stale, user_unknown.
func (c *Commands) MatchAutomatically(ctx context.Context, call Call, user id.User, k int, minScore float64) (int, error) {
	best := sync.OnceValues(func() ([]event.MatchComputed, error) {
		if _, err := c.FindUser(ctx, call.Client, UserRef(user)); err != nil {
			return nil, err
		}
		company, _, err := c.company(ctx, call.Client)
		if err != nil {
			return nil, err
		}
		within := event.Within{MatchRule: company.Settings.MatchRule}
		var found []event.MatchComputed
		err = fault.Await(ctx, func(ctx context.Context) error {
			filter, err := c.among(ctx, call.Client, rule.Filter{}, within)
			if fault.Of(err, fault.Invalid) {
				return nil // until the match rule reads nothing that is sensitive
			}
			if err == nil {
				found, _, err = c.top(ctx, call.Client, user, within, k, filter)
			}
			return err
		})
		return slices.DeleteFunc(found, func(m event.MatchComputed) bool { return m.Score < minScore }), err
	})
	recorded, err := c.recordMatches(ctx, call, user, func() ([]event.MatchComputed, error) {
		found, err := best()
		if err != nil {
			return nil, err
		}
		return c.news(ctx, call.Client, user, found) // others may have told some of them meanwhile
	})
	if fault.Of(err, fault.Missing) {
		err = nil // the user was erased
	}
	return len(recorded.Matches), err
}

// news are the matches that are worth telling.
func (c *Commands) news(ctx context.Context, client id.Client, user id.User, found []event.MatchComputed) ([]event.MatchComputed, error) {
	told, err := c.told(ctx, client, user)
	if err != nil {
		return nil, err
	}
	newest := sync.OnceValues(func() ([]eventstore.Recorded, error) {
		return c.newestOfUser(ctx, client, user)
	})
	var news []event.MatchComputed
	for _, m := range found {
		last, known := told[m.MatchedUser]
		if known {
			before := last.Event.(event.MatchComputed).Score
			if last.Event.(event.MatchComputed).Schema != m.Schema {
				if before, err = c.scoreOfThen(ctx, client, newest, last.Position, m); err != nil {
					return nil, err
				}
			}
			if math.Abs(m.Score-before) < movedBy-1e-9 {
				continue
			}
		}
		news = append(news, m)
	}
	return news, nil
}

// told is the newest match that was recorded for a user with each other one,
// as far back as is looked.
func (c *Commands) told(ctx context.Context, client id.Client, user id.User) (map[id.User]eventstore.Recorded, error) {
	told := map[id.User]eventstore.Recorded{}
	seen := 0
	for r, err := range c.Log.Backward(ctx, eventstore.MatchStream(client, user), eventstore.End, toldPage) {
		if err != nil {
			return nil, err
		}
		if m, ok := r.Event.(event.MatchComputed); ok && m.Layer == "" {
			if _, newer := told[m.MatchedUser]; !newer {
				told[m.MatchedUser] = r
			}
		}
		if seen++; seen == maxTold {
			break
		}
	}
	return told, nil
}

// scoreOfThen is what a match would score today, were the user still as it was
// at a position.
func (c *Commands) scoreOfThen(ctx context.Context, client id.Client, newest func() ([]eventstore.Recorded, error),
	at eventstore.Position, m event.MatchComputed,
) (float64, error) {
	now, err := newest()
	if err != nil {
		return 0, err
	}
	if len(now) == 0 || now[0].Position <= at {
		return m.Score, nil // nothing of the user has changed
	}
	then, err := c.userAt(ctx, now, at)
	if err != nil || then.Event == nil {
		return m.Score, err
	}
	document, err := c.open(ctx, then, "traits")
	if err != nil {
		return 0, err
	}
	var score float64
	err = fault.Await(ctx, func(ctx context.Context) (err error) {
		score, _, err = c.Matcher.Like(ctx, client, json.RawMessage(document), m.MatchedUser)
		return err
	})
	return score, err
}
