package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

// Config is what [Endpoints] need.
type Config struct {
	Issuer    *Issuer
	Accounts  Accounts
	Keys      KeyLookup
	Passwords *Passwords
	Metrics   prometheus.Registerer
}

// Endpoints serve /auth/exchange, /auth/token and /.well-known/jwks.json: a
// part of [httpapi.StrictServerInterface].
type Endpoints struct {
	c Config

	// Who keeps failing waits: by API key as sent, by account, by address. An
	// address may be a whole office, so it is granted more. API keys are not
	// throttled by address: many servers share one, and nobody guesses a key.
	failedKeys      *throttle
	failedAccounts  *throttle
	failedAddresses *throttle
	// Who signs up companies waits too, by address, once there are many.
	signups *throttle

	logins, exchanges *prometheus.CounterVec // by outcome
}

// New makes the endpoints and registers their metrics.
func New(c Config) *Endpoints {
	now := c.Issuer.Keys.Now
	e := &Endpoints{
		c:               c,
		failedKeys:      newThrottle(10, time.Minute, now),
		failedAccounts:  newThrottle(10, time.Minute, now),
		failedAddresses: newThrottle(50, time.Minute, now),
		signups:         newThrottle(20, 15*time.Minute, now),
		logins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kindred_logins_total", Help: "Logins with a password, by outcome.",
		}, []string{"outcome"}),
		exchanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kindred_exchanges_total", Help: "Exchanges of an API key for a token, by outcome.",
		}, []string{"outcome"}),
	}
	c.Metrics.MustRegister(e.logins, e.exchanges)
	return e
}

// JWKS publishes the keys that verify tokens.
func (e *Endpoints) JWKS(context.Context, httpapi.JWKSRequestObject) (httpapi.JWKSResponseObject, error) {
	return httpapi.JWKS200JSONResponse{
		Body: e.c.Issuer.Keys.JWKS(),
		Headers: httpapi.JWKS200ResponseHeaders{
			CacheControl: fmt.Sprintf("public, max-age=%d", JWKSMaxAge/time.Second),
		},
	}, nil
}

// Exchange gives a token for an API key.
func (e *Endpoints) Exchange(ctx context.Context, request httpapi.ExchangeRequestObject) (httpapi.ExchangeResponseObject, error) {
	session, err := e.exchange(ctx, request.Body.APIKey)
	e.exchanges.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	return httpapi.Exchange200JSONResponse{Data: httpapi.SessionToken{
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
	if record.Revoked {
		e.failedKeys.take(hash)
		return Session{}, fault.New(fault.Unauthenticated, "invalid_api_key", "The API key is not valid.")
	}
	return e.c.Issuer.Exchange(record)
}

// SignUp signs a company up, unless the caller's address has to wait. Refusals
// count like companies, so that nobody tries out who has an account, and so does
// a caller who has gone away, as it may have signed up. An address that is not
// public is the house's own, or a proxy's that nobody has named.
func (e *Endpoints) SignUp(ctx context.Context, signUp func() error) error {
	from := httpapi.CallFrom(ctx).RemoteAddr
	if a, err := netip.ParseAddr(from); err == nil && (a.Unmap().IsLoopback() || a.Unmap().IsPrivate()) {
		return signUp()
	}
	address := sourceOf(from)
	if wait := e.signups.take(address); wait > 0 {
		return fault.New(fault.Limited, "too_many_signups", "Too many sign-ups from your address. Try again later.").After(wait)
	}
	err := signUp()
	gone := errors.Is(ctx.Err(), context.Canceled)
	if err != nil && !gone && (fault.As(err) == nil || fault.Of(err, fault.Unavailable)) {
		e.signups.giveBack(address)
	}
	return err
}

// LogIn gives a token for a member's password.
func (e *Endpoints) LogIn(ctx context.Context, request httpapi.LogInRequestObject) (httpapi.LogInResponseObject, error) {
	account, session, err := e.logIn(ctx, *request.Body)
	e.logins.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return nil, err
	}
	return httpapi.LogIn200JSONResponse{
		Token: session.Token, Scopes: session.Scopes, ExpiresIn: session.ExpiresIn,
		User:   httpapi.ClientUser{ID: account.Member, Email: account.Email, Role: httpapi.Role(account.Role)},
		Client: httpapi.ClientName{ID: account.Client, Slug: account.ClientSlug, Name: account.ClientName},
	}, nil
}

// logIn answers every wrong login alike and after as long, so that nobody
// learns which accounts exist.
func (e *Endpoints) logIn(ctx context.Context, r httpapi.TokenRequest) (Account, Session, error) {
	byEmail := r.Email != nil && r.ClientID == nil && r.UserID == nil
	byMember := r.Email == nil && r.ClientID != nil && r.UserID != nil
	if !byEmail && !byMember {
		return Account{}, Session{}, fault.NewInvalid(fault.Field{
			Detail: "Give either email and password, or client_id, user_id and password.",
		})
	}
	address := sourceOf(httpapi.CallFrom(ctx).RemoteAddr)
	if wait := e.failedAddresses.take(address); wait > 0 {
		return Account{}, Session{}, errThrottled(wait)
	}
	account, subject, err := e.find(ctx, r)
	if err != nil {
		e.failedAddresses.giveBack(address)
		return Account{}, Session{}, fmt.Errorf("look up an account: %w", err)
	}
	if wait := e.failedAccounts.take(subject); wait > 0 {
		e.failedAddresses.giveBack(address)
		return Account{}, Session{}, errThrottled(wait)
	}
	right, err := e.c.Passwords.Verify(ctx, account.PasswordHash, r.Password)
	switch {
	case err != nil:
		e.failedAddresses.giveBack(address)
		e.failedAccounts.giveBack(subject)
		return Account{}, Session{}, err
	case !right:
		return Account{}, Session{}, fault.New(fault.Unauthenticated, "invalid_credentials",
			"There is no such account, or the password is wrong.")
	}
	e.failedAddresses.giveBack(address)
	e.failedAccounts.forget(subject)
	session, err := e.c.Issuer.Login(account)
	return account, session, err
}

// find returns the account that r names, zero where there is none, and what
// its failures count against: one and the same however it is named.
func (e *Endpoints) find(ctx context.Context, r httpapi.TokenRequest) (account Account, subject [32]byte, err error) {
	var name string
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
		name = "member " + string(account.Member)
	}
	return account, sha256.Sum256([]byte(name)), err
}

// sourceOf names the network that a request comes from: an IPv4 address, or
// the /64 that an IPv6 host can choose from.
func sourceOf(remote string) [32]byte {
	addr, err := netip.ParseAddr(remote)
	if err != nil {
		return sha256.Sum256([]byte(remote))
	}
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	return sha256.Sum256([]byte(netip.PrefixFrom(addr, bits).Masked().String()))
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
