package commands

import (
	"context"
	"errors"
	"fmt"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// Session is a session that was opened, and how that left the member's stream.
type Session struct {
	event.SessionStanding
	Outcome Outcome
}

// memberPassword opens the hash of a member's newest password, and returns how often the
// password was changed. first is the hash that the member was added with: it counts until
// the first change.
func (c *Commands) memberPassword(ctx context.Context, client id.Client, member id.Member, first string) (hash string, changes int, err error) {
	stream := eventstore.AccessStream(client, member)
	access, err := latest[domain.Access](ctx, c, stream)
	if err != nil || access.PasswordSet == nil {
		return first, 0, err
	}
	set, err := c.Log.ReadBack(ctx, stream, eventstore.Revision(*access.PasswordSet), 1)
	if err != nil {
		return "", 0, err
	}
	if len(set) == 0 || int64(set[0].Revision) != *access.PasswordSet {
		return "", 0, fmt.Errorf("the password of %s does not stand at revision %d", stream, *access.PasswordSet)
	}
	phc, err := c.open(ctx, set[0], "password_hash")
	return string(phc), access.Changes, err
}

// SetPassword records another password of a member. changes is how often the password had
// been changed when the member gave the old one. It ends the member's tokens, and all of
// the member's sessions but keep, and returns how access stands then. It fails with a fault
// of kind Missing for a member who was removed.
// Faults: account_unknown, busy, catching_up, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) SetPassword(ctx context.Context, call Call, hash string, changes int, keep id.Session) (event.AccessStanding, Outcome, error) {
	set := event.MemberPasswordSet{Member: call.Member, PasswordHash: event.Private([]byte(hash))}
	outcome, err := execute(ctx, c, call, eventstore.AccessStream(call.Client, call.Member), false, c.last(call),
		func(a *domain.Access, last []eventstore.Recorded) ([]event.Event, error) {
			at := int64(0)
			if len(last) > 0 {
				at = int64(last[len(last)-1].Revision) + 1
			}
			return a.SetPassword(set, changes, keep, at)
		})
	if errors.Is(err, seal.ErrErased) {
		return event.AccessStanding{}, Outcome{}, fault.UnknownAccount()
	}
	if err != nil {
		return event.AccessStanding{}, Outcome{}, err
	}
	recorded := outcome.Recorded[0]
	return recorded.Event.(event.MemberPasswordSet).Standing, outcome, c.Revoked(ctx, call.Client, id.Logins(call.Member, changes), recorded.RecordedAt)
}

// OpenSession opens a session for a member who gave the password; hash is that of the
// session's secret. changes is how often the password had been changed by then. It fails
// with a fault of kind Missing for a member who was removed.
// Faults: account_unknown, busy, catching_up, idempotency_key_reused, overloaded, quarantined,
// session_unknown, stale.
func (c *Commands) OpenSession(ctx context.Context, call Call, hash [32]byte, changes int) (Session, error) {
	opening := event.SessionStanding{Session: id.Next[id.Session](c.ids(call, "session")), Hash: hash[:], OpenedAt: c.Log.Now().UTC()}
	outcome, err := execute(ctx, c, call, eventstore.AccessStream(call.Client, call.Member), false, c.last(call),
		func(a *domain.Access, _ []eventstore.Recorded) ([]event.Event, error) {
			return a.Open(call.Member, changes, opening)
		})
	if err != nil {
		return Session{}, err
	}
	recorded := outcome.Recorded[0]
	for _, ended := range recorded.Event.(event.SessionOpened).Ended {
		if err := c.Revoked(ctx, call.Client, string(ended), recorded.RecordedAt); err != nil {
			return Session{}, err
		}
	}
	company, _, err := c.company(ctx, call.Client)
	if err != nil {
		return Session{}, err
	}
	if company.Member(call.Member) == nil { // removed meanwhile: nothing is left open
		_, err := c.endSession(ctx, call, call.Member, opening.Session)
		return Session{}, errors.Join(fault.UnknownAccount(), err)
	}
	return Session{opening, outcome}, nil
}

// EndSession ends a session of a member, and its tokens. Members end their own; those who
// may manage members end those of others, but only an owner an owner's.
// Faults: busy, catching_up, idempotency_key_reused, overloaded, owner_only, quarantined, session_unknown,
// stale.
func (c *Commands) EndSession(ctx context.Context, call Call, manages bool, member id.Member, session id.Session) (Outcome, error) {
	if member != call.Member {
		company, _, err := c.company(ctx, call.Client)
		if err != nil {
			return Outcome{}, err
		}
		if !manages {
			return Outcome{}, fault.UnknownSession()
		}
		if err := company.MayEndSessionOf(call.Member, member); err != nil {
			return Outcome{}, err
		}
	}
	return c.endSession(ctx, call, member, session)
}

func (c *Commands) endSession(ctx context.Context, call Call, member id.Member, session id.Session) (Outcome, error) {
	outcome, err := execute(ctx, c, call, eventstore.AccessStream(call.Client, member), false, c.last(call),
		func(a *domain.Access, _ []eventstore.Recorded) ([]event.Event, error) {
			return a.End(member, session, c.Log.Now())
		})
	if err != nil {
		return Outcome{}, err
	}
	return outcome, c.Revoked(ctx, call.Client, string(session), outcome.Recorded[0].RecordedAt)
}

// SessionByHash finds a member's session by the hash of its secret, or fails with a fault
// of kind Missing. The session may have expired: the caller checks that.
// Faults: session_unknown.
func (c *Commands) SessionByHash(ctx context.Context, client id.Client, member id.Member, hash [32]byte) (event.SessionStanding, error) {
	access, err := latest[domain.Access](ctx, c, eventstore.AccessStream(client, member))
	if err != nil {
		return event.SessionStanding{}, err
	}
	if s := access.Session(hash); s != nil {
		return *s, nil
	}
	return event.SessionStanding{}, fault.UnknownSession()
}
