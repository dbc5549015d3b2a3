package app

import (
	"context"
	"time"

	"kindred/commands"
	"kindred/commands/writeapi"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/httpapi/auth"
	"kindred/projections"
)

// accounts finds members by the log itself, which is never behind.
type accounts struct{ commands *commands.Commands }

func (a accounts) ByEmail(ctx context.Context, email string) (auth.Account, error) {
	account, err := a.commands.AccountByEmail(ctx, email)
	return authAccount(account), err
}

func (a accounts) ByMember(ctx context.Context, client id.Client, member id.Member) (auth.Account, error) {
	account, err := a.commands.AccountByMember(ctx, client, member)
	return authAccount(account), err
}

// LoggedIn fulfils auth.Accounts.
func (a accounts) LoggedIn(ctx context.Context, who auth.Account, network string) error {
	return a.commands.NoteLogin(ctx, callOf(ctx, who), who.Member, network)
}

// SetPassword fulfils auth.Accounts.
func (a accounts) SetPassword(ctx context.Context, who auth.Account, hash string, keep id.Session) (auth.SessionRecord, string, error) {
	set, outcome, err := a.commands.SetPassword(ctx, callOf(ctx, who), hash, who.PasswordChanges, keep)
	if err != nil || len(set.Sessions) == 0 {
		return auth.SessionRecord{}, string(outcome.Position), err
	}
	return sessionRecord(who.Home, who.Member, set.Sessions[0]), string(outcome.Position), nil
}

// callOf is the call of a member who has said the password, on whose behalf no token is.
func callOf(ctx context.Context, who auth.Account) commands.Call {
	return commands.Call{
		Client: who.Home, Member: who.Member, Actor: string(who.Member), Correlation: string(httpapi.CallFrom(ctx).ID), Trace: eventstore.TraceOf(ctx),
	}
}

func authAccount(a commands.Account) auth.Account {
	return auth.Account{
		Client: a.Client, Home: a.Home, ClientName: a.ClientName, ClientSlug: a.ClientSlug,
		Member: a.Member, Email: a.Email, Role: a.Role, PasswordHash: a.PasswordHash, PasswordChanges: a.PasswordChanges,
	}
}

// login makes the token that a sign-up answers with.
func login(issuer *auth.Issuer) func(context.Context, commands.Account) (writeapi.Login, error) {
	return func(_ context.Context, account commands.Account) (writeapi.Login, error) {
		session, err := issuer.Login(authAccount(account), auth.SessionRecord{})
		return writeapi.Login{
			Token: session.Token, Scopes: session.Scopes, ExpiresIn: time.Duration(session.ExpiresIn) * time.Second,
		}, err
	}
}

// keyLookup finds API keys for the exchange.
type keyLookup struct {
	model projections.APIKeys
	log   *eventstore.Log
}

func (l keyLookup) ByHash(ctx context.Context, hash [32]byte) (auth.KeyRecord, error) {
	key, err := l.model.ByHash(ctx, hash, l.log.Store.Head)
	return auth.KeyRecord{
		Key: key.ID, Client: key.Client, IssuedBy: key.IssuedBy, Scopes: key.Scopes, Implied: key.Implied,
		Revoked: key.Revoked, Expires: httpapi.Or(key.ExpiresAt, time.Time{}), LastUsed: httpapi.Or(key.LastUsedAt, time.Time{}),
	}, err
}

func (l keyLookup) NoteUse(ctx context.Context, client id.Client, key id.Key) error {
	return l.model.NoteUse(ctx, client, key)
}
