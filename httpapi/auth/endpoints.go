package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// What may be tried before the first pause, and how long a pause becomes.
const (
	// limit: tries | signing up, refusals included | {freeSignUps} | {signUpPause} | `too_many_signups`
	freeSignUps = 20
	// limit: tries | logging in to one account from one network | {freeLoginsOfBoth} failures | {longPause} | `too_many_attempts`
	freeLoginsOfBoth = 10
	// limit: tries | logging in from one network, to any account | {freeLoginsOfNetwork} failures, tries during a pause included | {longPause} | `too_many_attempts`
	freeLoginsOfNetwork = 50
	// limit: tries | logging in to one account from all networks | {freeLogins} failures | {shortPause} | `too_many_attempts`
	freeLogins = 100
	// limit: tries | adding members, by client (by network: {freeMembersOfNetwork}) | {freeMembers} | {longPause} | `too_many_new_members`
	freeMembers          = 20
	freeMembersOfNetwork = 60
	// limit: tries | exchanging one wrong API key, on one process | {freeKeys} | {longPause} | `too_many_attempts`
	freeKeys = 10

	shortPause  = 10 * time.Second
	longPause   = time.Minute
	signUpPause = 15 * time.Minute
)

// Config is what [Endpoints] need.
type Config struct {
	Issuer    *Issuer
	Accounts  Accounts
	Keys      KeyLookup
	Sessions  Sessions
	Passwords *Passwords
	Throttles *Throttles
	// Unlimited lets anybody sign up, and add members, as often as they like.
	Unlimited bool
	Metrics   prometheus.Registerer
}

// Endpoints serve /auth/exchange, /auth/token, /auth/sessions, a member's password and
// /.well-known/jwks.json: a part of [httpapi.StrictServerInterface].
type Endpoints struct {
	c Config

	// Who keeps sending a wrong API key, or a wrong secret of a session, waits, by what
	// was sent, in this process alone. They are not throttled by address: many servers
	// share one, and nobody guesses a key.
	failedKeys *throttle

	logins, exchanges, sessions, passwords *prometheus.CounterVec // by outcome
}

// New makes the endpoints and registers their metrics.
func New(c Config) *Endpoints {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"outcome"})
	}
	e := &Endpoints{
		c:          c,
		failedKeys: newThrottle(freeKeys, longPause, c.Issuer.Keys.Now),
		logins:     counter("kindred_logins_total", "Logins with a password, by outcome."),
		exchanges:  counter("kindred_exchanges_total", "Exchanges of an API key for a token, by outcome."),
		sessions:   counter("kindred_session_tokens_total", "Tokens that were asked for with a session, by outcome."),
		passwords:  counter("kindred_password_changes_total", "Changes of a password, by outcome."),
	}
	c.Metrics.MustRegister(e.logins, e.exchanges, e.sessions, e.passwords)
	return e
}

// GetJWKS publishes the keys that verify tokens.
func (e *Endpoints) GetJWKS(context.Context, httpapi.GetJWKSRequestObject) (httpapi.GetJWKSResponseObject, error) {
	return httpapi.GetJWKS200JSONResponse{
		Body: e.c.Issuer.Keys.JWKS(),
		Headers: httpapi.GetJWKS200ResponseHeaders{
			CacheControl: fmt.Sprintf("public, max-age=%d", JWKSMaxAge/time.Second),
		},
	}, nil
}

// ExchangeAPIKey gives a token for an API key.
func (e *Endpoints) ExchangeAPIKey(ctx context.Context, request httpapi.ExchangeAPIKeyRequestObject) (httpapi.ExchangeAPIKeyResponseObject, error) {
	session, err := e.exchange(ctx, request.Body.APIKey)
	e.exchanges.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	return httpapi.ExchangeAPIKey200JSONResponse{Data: httpapi.SessionToken{
		Token: session.Token, ExpiresIn: session.ExpiresIn, Scopes: session.Scopes,
	}}, nil
}

func (e *Endpoints) exchange(ctx context.Context, apiKey string) (Session, error) {
	hash := Hash(apiKey)
	if wait := e.failedKeys.pause(hash); wait > 0 {
		return Session{}, errThrottled(wait)
	}
	record := KeyRecord{Revoked: true} // so is a key that cannot exist
	if Check(apiKey) {
		var err error
		if record, err = e.c.Keys.ByHash(ctx, hash); fault.Of(err, fault.Missing) {
			record.Revoked = true
		} else if err != nil {
			return Session{}, fmt.Errorf("look up an API key: %w", err)
		}
	}
	now := e.c.Issuer.Keys.Now()
	if record.Revoked || !record.Expires.IsZero() && !now.Before(record.Expires.Add(-leeway)) {
		e.failedKeys.take(hash)
		return Session{}, fault.New(fault.Unauthenticated, "invalid_api_key", "The API key is not valid.")
	}
	if record.LastUsed.Before(now.Truncate(time.Hour)) {
		if err := e.c.Keys.NoteUse(ctx, record.Client, record.Key); err != nil {
			return Session{}, err
		}
	}
	return e.c.Issuer.Exchange(record)
}

// SignUp signs a company up, unless the caller's network has to wait. Refusals
// count like companies, so that nobody tries out who has an account, and so does
// a caller who has gone away, as it may have signed up.
// Faults: too_many_signups.
func (e *Endpoints) SignUp(ctx context.Context, signUp func() error) error {
	if e.c.Unlimited || local(ctx) {
		return signUp()
	}
	return e.attempt(ctx, signUp, ofNetwork(ctx, "signup", freeSignUps, signUpPause), func(wait time.Duration) error {
		return fault.New(fault.Limited, "too_many_signups", "Too many sign-ups from your address. Try again later.").After(wait)
	})
}

// AddMember adds a member, unless the client or the caller's network has to wait:
// the answer tells whether somebody has an e-mail address.
// Faults: too_many_new_members.
func (e *Endpoints) AddMember(ctx context.Context, add func() error) error {
	if e.c.Unlimited {
		return add()
	}
	budgets := []budget{{"members " + string(httpapi.PrincipalFrom(ctx).Client), freeMembers, longPause}}
	if !local(ctx) { // one dashboard may serve many clients
		budgets = append(budgets, ofNetwork(ctx, "members", freeMembersOfNetwork, longPause)...)
	}
	return e.attempt(ctx, add, budgets, func(wait time.Duration) error {
		return fault.New(fault.Limited, "too_many_new_members", "Too many members were added. Try again later.").After(wait)
	})
}

// attempt does what counts against budgets. Our own trouble does not count.
func (e *Endpoints) attempt(ctx context.Context, do func() error, budgets []budget, refusal func(wait time.Duration) error) error {
	wait, err := e.c.Throttles.take(ctx, budgets...)
	switch {
	case err != nil:
		return err
	case wait > 0:
		return refusal(wait)
	}
	err = do()
	gone := errors.Is(ctx.Err(), context.Canceled)
	if err != nil && !gone && (fault.As(err) == nil || fault.Of(err, fault.Unavailable)) {
		return errors.Join(err, e.c.Throttles.giveBack(ctx, budgets...))
	}
	return err
}

// LogIn gives a token for a member's password.
func (e *Endpoints) LogIn(ctx context.Context, request httpapi.LogInRequestObject) (httpapi.LogInResponseObject, error) {
	account, err := e.logIn(ctx, *request.Body)
	var token Session
	if err == nil {
		token, err = e.c.Issuer.Login(account, SessionRecord{})
	}
	e.logins.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	return httpapi.LogIn200JSONResponse(loggedIn(account, token)), nil
}

func loggedIn(account Account, token Session) httpapi.LoggedIn {
	return httpapi.LoggedIn{
		Token: token.Token, Scopes: token.Scopes, ExpiresIn: token.ExpiresIn, User: clientUser(account), Client: clientName(account),
	}
}

func clientUser(a Account) httpapi.ClientUser {
	return httpapi.ClientUser{ID: a.Member, Email: a.Email, Role: httpapi.Role(a.Role)}
}

func clientName(a Account) httpapi.ClientName {
	return httpapi.ClientName{ID: a.Client, Slug: a.ClientSlug, Name: a.ClientName}
}

// logIn finds out who logs in. It answers every wrong login alike and after as long, so
// that nobody learns which accounts exist.
func (e *Endpoints) logIn(ctx context.Context, r httpapi.TokenRequest) (account Account, err error) {
	byEmail := r.Email != nil && r.ClientID == nil && r.UserID == nil
	byMember := r.Email == nil && r.ClientID != nil && r.UserID != nil
	if !byEmail && !byMember {
		return Account{}, fault.NewInvalid(fault.Field{
			Detail: "Give either email and password, or client_id, user_id and password.",
		})
	}
	err = e.fromNetwork(ctx, func() (err error) {
		account, err = e.verify(ctx, r)
		return err
	})
	return account, err
}

// fromNetwork tries a password, unless the caller's network has to wait.
func (e *Endpoints) fromNetwork(ctx context.Context, try func() error) error {
	network := ofNetwork(ctx, "login", freeLoginsOfNetwork, longPause)
	if wait, err := e.c.Throttles.take(ctx, network...); err != nil || wait > 0 {
		return cmp.Or(err, errThrottled(wait))
	}
	err := try()
	// A try within an account's pause counts: to wait for its end costs as much as to guess.
	if !fault.Of(err, fault.Unauthenticated) && !fault.Of(err, fault.Limited) {
		err = errors.Join(err, e.c.Throttles.giveBack(ctx, network...))
	}
	return err
}

// verify looks an account up and checks its password.
func (e *Endpoints) verify(ctx context.Context, r httpapi.TokenRequest) (Account, error) {
	account, subject, err := e.find(ctx, r)
	if err != nil {
		return Account{}, fmt.Errorf("look up an account: %w", err)
	}
	if err := e.check(ctx, account, subject, r.Password); err != nil {
		return Account{}, err
	}
	from, _ := networksOf(httpapi.CallFrom(ctx).RemoteAddr)
	if err := e.c.Accounts.LoggedIn(ctx, account, from); fault.Of(err, fault.Missing) {
		return Account{}, errCredentials()
	} else if err != nil {
		return Account{}, fmt.Errorf("note a login: %w", err)
	}
	return account, nil
}

// check checks the password of an account whose failures count against a subject, unless
// that has to wait.
func (e *Endpoints) check(ctx context.Context, account Account, subject, password string) error {
	// What one network fails at keeps no other one out. All together, they keep its
	// owner out for seconds at most.
	from, _ := networksOf(httpapi.CallFrom(ctx).RemoteAddr)
	failures := []budget{{subject + " from " + from, freeLoginsOfBoth, longPause}, {subject, freeLogins, shortPause}}
	if wait, err := e.c.Throttles.take(ctx, failures...); err != nil || wait > 0 {
		return cmp.Or(err, errThrottled(wait))
	}
	right, err := e.c.Passwords.Verify(account.PasswordHash, password)
	switch {
	case err != nil:
		return errors.Join(err, e.c.Throttles.giveBack(ctx, failures...))
	case !right:
		return errCredentials()
	}
	return e.c.Throttles.forget(ctx, failures...)
}

// subjectOf is what the failures of an account count against.
func subjectOf(account Account) string { return "member " + string(account.Member) }

func errCredentials() error {
	return fault.New(fault.Unauthenticated, "invalid_credentials", "There is no such account, or the password is wrong.")
}

// find returns the account that r names, zero where there is none, and what
// its failures count against: one and the same however it is named.
func (e *Endpoints) find(ctx context.Context, r httpapi.TokenRequest) (account Account, name string, err error) {
	if r.Email != nil {
		name = "email " + strings.ToLower(strings.TrimSpace(*r.Email))
		account, err = e.c.Accounts.ByEmail(ctx, *r.Email)
	} else {
		name = "member " + *r.UserID
		client, err1 := id.Parse[id.Client](*r.ClientID)
		member, err2 := id.Parse[id.Member](*r.UserID)
		if err1 == nil && err2 == nil {
			account, err = e.c.Accounts.ByMember(ctx, client, member)
		}
	}
	switch {
	case fault.Of(err, fault.Missing):
		account, err = Account{}, nil
	case account.Member != "":
		name = subjectOf(account)
	}
	return account, name, err
}

func errThrottled(wait time.Duration) error {
	return fault.New(fault.Limited, "too_many_attempts", "Too many failed attempts. Try again later.").After(wait)
}

// outcome names how an attempt ended, for the metrics.
func outcome(err error) string {
	f := fault.As(err)
	switch {
	case err == nil:
		return "ok"
	case f == nil:
		return "error"
	}
	switch f.Kind {
	case fault.Unauthenticated:
		return "refused"
	case fault.Limited:
		return "throttled"
	case fault.Unavailable:
		return "unavailable"
	default:
		return "invalid"
	}
}
