package domain

import (
	"bytes"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

// maxSessions bounds the sessions of a member: another ends the oldest.
// limit: client | sessions of a member | {maxSessions}, another ends the oldest | -
const maxSessions = 20

// Access is the fold of a member's access stream: how often the password was changed,
// and which sessions were not ended.
type Access struct{ event.AccessStanding }

// Apply folds an event.
func (a *Access) Apply(e event.Event) {
	switch e := e.(type) {
	case event.MemberPasswordSet:
		a.AccessStanding = e.Standing
	case event.SessionOpened:
		a.AccessStanding = e.Standing
	case event.SessionEnded:
		a.AccessStanding = e.Standing
	}
}

// Session returns the session whose secret has a hash, or nil.
func (a *Access) Session(hash [32]byte) *event.SessionStanding {
	i := slices.IndexFunc(a.Sessions, func(s event.SessionStanding) bool { return bytes.Equal(s.Hash, hash[:]) })
	if i < 0 {
		return nil
	}
	return &a.Sessions[i]
}

// living are the sessions that are not too old, but for one.
func (a *Access) living(now time.Time, but id.Session) []event.SessionStanding {
	return slices.DeleteFunc(slices.Clone(a.Sessions), func(s event.SessionStanding) bool {
		return s.Session == but || s.Over(now, now)
	})
}

// Open opens a session for who gave a password that was changed so often. Where there
// are too many, the oldest end.
// Faults: account_unknown.
func (a *Access) Open(member id.Member, changes int, s event.SessionStanding) ([]event.Event, error) {
	if changes != a.Changes {
		return nil, fault.UnknownAccount()
	}
	e := event.SessionOpened{Member: member, Session: s.Session, Standing: a.AccessStanding}
	e.Standing.Sessions = append(a.living(s.OpenedAt, ""), s)
	if over := len(e.Standing.Sessions) - maxSessions; over > 0 {
		for _, ended := range e.Standing.Sessions[:over] {
			e.Ended = append(e.Ended, ended.Session)
		}
		e.Standing.Sessions = e.Standing.Sessions[over:]
	}
	return []event.Event{e}, nil
}

// End ends a session.
// Faults: session_unknown.
func (a *Access) End(member id.Member, session id.Session, now time.Time) ([]event.Event, error) {
	if !slices.ContainsFunc(a.Sessions, func(s event.SessionStanding) bool { return s.Session == session }) {
		return nil, fault.UnknownSession()
	}
	e := event.SessionEnded{Member: member, Session: session, Standing: a.AccessStanding}
	e.Standing.Sessions = a.living(now, session)
	return []event.Event{e}, nil
}

// SetPassword takes another password, at a revision, from who gave the one that was
// changed so often. Of the sessions, one is kept.
// Faults: account_unknown.
func (a *Access) SetPassword(e event.MemberPasswordSet, changes int, kept id.Session, at int64) ([]event.Event, error) {
	if changes != a.Changes {
		return nil, fault.UnknownAccount()
	}
	e.Standing = event.AccessStanding{Changes: changes + 1, PasswordSet: &at, Sessions: []event.SessionStanding{}}
	for _, s := range a.Sessions {
		if s.Session == kept {
			e.Standing.Sessions = append(e.Standing.Sessions, s)
		}
	}
	return []event.Event{e}, nil
}

// MayEndSessionOf refuses to end the session of an owner to who is none.
// Faults: owner_only.
func (c *Client) MayEndSessionOf(actor, member id.Member) error {
	if c.isOwner(member) && !c.isOwner(actor) {
		return fault.New(fault.Forbidden, "owner_only", "Only an owner can end the sessions of an owner.")
	}
	return nil
}
