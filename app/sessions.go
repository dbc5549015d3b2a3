package app

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/httpapi/auth"
	"kindred/projections"
)

// sessions finds sessions by the log itself, which is never behind; when they were last
// used stands beside it.
type sessions struct {
	commands *commands.Commands
	model    projections.Sessions
	now      func() time.Time
}

var _ auth.Sessions = sessions{}

// Open fulfils auth.Sessions.
func (s sessions) Open(ctx context.Context, who auth.Account, hash [32]byte) (auth.SessionRecord, string, error) {
	opened, err := s.commands.OpenSession(ctx, callOf(ctx, who), hash, who.PasswordChanges)
	return sessionRecord(who.Home, who.Member, opened.SessionStanding), string(opened.Outcome.Position), err
}

// ByHash fulfils auth.Sessions.
func (s sessions) ByHash(ctx context.Context, client id.Client, member id.Member, hash [32]byte) (auth.SessionRecord, error) {
	standing, err := s.commands.SessionByHash(ctx, client, member, hash)
	if err != nil {
		return auth.SessionRecord{}, err
	}
	record := sessionRecord(client, member, standing)
	record.SeenAt, err = s.model.SeenAt(ctx, client, standing.Session, standing.OpenedAt)
	record.Over = standing.Over(record.SeenAt, s.now())
	return record, err
}

// NoteSeen fulfils auth.Sessions.
func (s sessions) NoteSeen(ctx context.Context, r auth.SessionRecord) error {
	return s.model.NoteSeen(ctx, r.Client, r.Session, r.SeenAt, s.now())
}

func sessionRecord(client id.Client, member id.Member, s event.SessionStanding) auth.SessionRecord {
	return auth.SessionRecord{
		Session: s.Session, Client: client, Member: member,
		OpenedAt: s.OpenedAt, SeenAt: s.OpenedAt, ExpiresAt: s.OpenedAt.Add(event.SessionLifetime),
	}
}

// sessionOf says whose a session is that lasts.
func sessionOf(model projections.Sessions, now func() time.Time) func(context.Context, id.Client, id.Session) (id.Member, error) {
	return func(ctx context.Context, client id.Client, session id.Session) (id.Member, error) {
		found, err := model.Find(ctx, client, session, now())
		return found.Member, err
	}
}
