package auth

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// A session's secret is "kin_sess_", the ids of its client and its member without their
// prefixes, and what an API key has behind its prefix. The ids lead to the member's
// stream, so that a secret is found without an index; the rest, 178 random bits, is what
// nobody can guess.
const (
	sessionPrefix = "kin_sess_"
	bareID        = 26 // characters of an id behind its prefix
)

// newSessionSecret makes a session's secret from entropy.
func newSessionSecret(entropy io.Reader, client id.Client, member id.Member) (string, error) {
	random, err := randomText(entropy)
	return sessionPrefix + string(client)[len("cli_"):] + string(member)[len("mem_"):] + random, err
}

// sessionOf says whose session's a secret would be, and whether it has the form of one.
func sessionOf(secret string) (client id.Client, member id.Member, ok bool) {
	body, found := strings.CutPrefix(secret, sessionPrefix)
	if !found || len(body) < 2*bareID || !checked(body[2*bareID:]) {
		return "", "", false
	}
	client, err1 := id.Parse[id.Client]("cli_" + body[:bareID])
	member, err2 := id.Parse[id.Member]("mem_" + body[bareID:2*bareID])
	return client, member, err1 == nil && err2 == nil
}

// CreateSession opens a session for a member's password.
func (e *Endpoints) CreateSession(ctx context.Context, request httpapi.CreateSessionRequestObject) (httpapi.CreateSessionResponseObject, error) {
	account, opened, err := e.openSession(ctx, *request.Body)
	e.logins.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	s := opened.SessionRecord
	return httpapi.CreateSession201JSONResponse{
		Body: httpapi.SessionOpened{
			Secret: opened.secret,
			Session: httpapi.Session{
				ID: s.Session, MemberID: s.Member, CreatedAt: httpapi.Time{Time: s.OpenedAt},
				LastSeenAt: httpapi.Time{Time: s.SeenAt}, ExpiresAt: httpapi.Time{Time: s.ExpiresAt},
			},
			User: clientUser(account), Client: clientName(account),
		},
		Headers: httpapi.CreateSession201ResponseHeaders{
			Location: fmt.Sprintf("/api/v1/clients/%s/sessions/%s", s.Client, s.Session), XKindredPosition: opened.position,
		},
	}, nil
}

// openedSession is a new session, whose secret is shown this once.
type openedSession struct {
	SessionRecord
	secret, position string
}

func (e *Endpoints) openSession(ctx context.Context, r httpapi.TokenRequest) (Account, openedSession, error) {
	account, err := e.logIn(ctx, r)
	if err != nil {
		return Account{}, openedSession{}, err
	}
	if account.Home != account.Client {
		return Account{}, openedSession{}, errNotInSandbox(account.Home)
	}
	secret, err := newSessionSecret(e.c.Issuer.Keys.Entropy, account.Client, account.Member)
	if err != nil {
		return Account{}, openedSession{}, err
	}
	opened, position, err := e.c.Sessions.Open(ctx, account, Hash(secret))
	if fault.Of(err, fault.Missing) {
		return Account{}, openedSession{}, errCredentials()
	}
	return account, openedSession{opened, secret, position}, err
}

// errNotInSandbox says where a member's sessions and password are.
func errNotInSandbox(home id.Client) error {
	return fault.New(fault.Conflict, "not_in_sandbox",
		"A sandbox has no members of its own. Do this in %s, beside which it stands; a session of that gives tokens of the sandbox where client_id names it.", home)
}

// GetSessionToken gives a token for a session's secret.
func (e *Endpoints) GetSessionToken(ctx context.Context, request httpapi.GetSessionTokenRequestObject) (httpapi.GetSessionTokenResponseObject, error) {
	account, token, err := e.sessionToken(ctx, *request.Body)
	e.sessions.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	return httpapi.GetSessionToken200JSONResponse(loggedIn(account, token)), nil
}

func (e *Endpoints) sessionToken(ctx context.Context, r httpapi.SessionTokenRequest) (Account, Session, error) {
	secret, hash := r.Secret, Hash(r.Secret)
	if wait := e.failedKeys.pause(hash); wait > 0 {
		return Account{}, Session{}, errThrottled(wait)
	}
	account, session, err := e.bySecret(ctx, secret, hash)
	// Of its last second, a token would have expired before it was used.
	over := session.Over || !e.c.Issuer.Keys.Now().Before(session.ExpiresAt.Add(-leeway))
	if fault.Of(err, fault.Missing) || err == nil && over {
		e.failedKeys.take(hash)
		return Account{}, Session{}, fault.New(fault.Unauthenticated, "invalid_session",
			"The session is not valid, or has ended. Log in again.")
	}
	if err != nil {
		return Account{}, Session{}, fmt.Errorf("look up a session: %w", err)
	}
	if err := e.c.Sessions.NoteSeen(ctx, session); err != nil {
		return Account{}, Session{}, err
	}
	if r.ClientID != nil && *r.ClientID != string(account.Client) {
		if account, err = e.inSandbox(ctx, account, *r.ClientID); err != nil {
			return Account{}, Session{}, err
		}
	}
	token, err := e.c.Issuer.Login(account, session)
	return account, token, err
}

// inSandbox is an account as it logs in to a sandbox beside its client.
func (e *Endpoints) inSandbox(ctx context.Context, account Account, named string) (Account, error) {
	refused := fault.New(fault.Forbidden, "other_client", "The session is not for this client, nor is that a sandbox beside its own.")
	sandbox, err := id.Parse[id.Client](named)
	if err != nil || !sandbox.Sandbox() {
		return Account{}, refused
	}
	inside, err := e.c.Accounts.ByMember(ctx, sandbox, account.Member)
	switch {
	case fault.Of(err, fault.Missing), err == nil && inside.Home != account.Client:
		return Account{}, refused
	case err != nil:
		return Account{}, fmt.Errorf("look up an account: %w", err)
	}
	return inside, nil
}

// bySecret finds a session and whose it is, or fails with a fault of kind Missing. The
// account comes first: a password that is changed after it was read voids the token.
func (e *Endpoints) bySecret(ctx context.Context, secret string, hash [32]byte) (Account, SessionRecord, error) {
	client, member, ok := sessionOf(secret)
	if !ok {
		return Account{}, SessionRecord{}, fault.UnknownSession()
	}
	account, err := e.c.Accounts.ByMember(ctx, client, member)
	if err != nil {
		return Account{}, SessionRecord{}, err
	}
	session, err := e.c.Sessions.ByHash(ctx, client, member, hash)
	return account, session, err
}

// ChangePassword gives the member who asks another password, and a token in place of those
// that end with the old one.
func (e *Endpoints) ChangePassword(ctx context.Context, request httpapi.ChangePasswordRequestObject) (httpapi.ChangePasswordResponseObject, error) {
	p := httpapi.PrincipalFrom(ctx)
	account, kept, position, err := e.setPassword(ctx, p, *request.Body)
	e.passwords.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	account.PasswordChanges++
	token, err := e.c.Issuer.Login(account, kept)
	if err != nil {
		return nil, err
	}
	return httpapi.ChangePassword200JSONResponse{
		Body:    loggedIn(account, token),
		Headers: httpapi.ChangePassword200ResponseHeaders{XKindredPosition: position},
	}, nil
}

func (e *Endpoints) setPassword(ctx context.Context, p httpapi.Principal, r httpapi.PasswordChange) (account Account, kept SessionRecord, position string, err error) {
	account, err = e.c.Accounts.ByMember(ctx, p.Client, p.Member)
	if fault.Of(err, fault.Missing) { // removed just now
		return Account{}, SessionRecord{}, "", errInvalidToken()
	} else if err != nil {
		return Account{}, SessionRecord{}, "", fmt.Errorf("look up an account: %w", err)
	}
	if account.Home != account.Client {
		return Account{}, SessionRecord{}, "", errNotInSandbox(account.Home)
	}
	if err := e.fromNetwork(ctx, func() error { return e.check(ctx, account, subjectOf(account), r.Current) }); err != nil {
		return Account{}, SessionRecord{}, "", cmp.Or(wrongPassword(err), err)
	}
	if err := CheckPassword("/new", r.New, account.Email, account.ClientName); err != nil {
		return Account{}, SessionRecord{}, "", err
	}
	hash, err := e.c.Passwords.Hash(r.New)
	if err != nil {
		return Account{}, SessionRecord{}, "", err
	}
	kept, position, err = e.c.Accounts.SetPassword(ctx, account, hash, p.Session)
	if fault.Of(err, fault.Missing) {
		return Account{}, SessionRecord{}, "", errWrongPassword()
	}
	return account, kept, position, err
}

// wrongPassword makes of wrong credentials what does not tell who asks to get another
// token: the one at hand is valid.
func wrongPassword(err error) error {
	if fault.Of(err, fault.Unauthenticated) {
		return errWrongPassword()
	}
	return nil
}

func errWrongPassword() error {
	return fault.New(fault.Forbidden, "wrong_password", "The current password is wrong.")
}
