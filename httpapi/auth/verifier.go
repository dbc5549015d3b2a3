package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	lru "github.com/hashicorp/golang-lru/v2"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

const (
	// limit: requests | token | {maxToken B} | 401 `invalid_token`
	maxToken = 8 << 10 // bytes
	// limit: edge | tokens that are known to be good | {cached}
	cached = 1 << 15 // tokens, about 1 KiB each
)

// Verifier tells who holds a token. It implements [httpapi.Authenticator].
type Verifier struct {
	keys        *Keyring
	url         string
	revocations *Revocations
	cache       *lru.Cache[[32]byte, verified] // by SHA-256 of the token
}

var _ httpapi.Authenticator = (*Verifier)(nil)

// verified is what a token's signature vouches for, for ever.
type verified struct {
	principal httpapi.Principal
	kid       string
}

// NewVerifier accepts the tokens that url, the public URL of the service, has
// issued.
func NewVerifier(keys *Keyring, url string, revocations *Revocations) *Verifier {
	cache, err := lru.New[[32]byte, verified](cached)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &Verifier{keys, url, revocations, cache}
}

// Authenticate returns who holds a bearer token. It fails with a fault: of
// kind Unauthenticated for a token that is not valid (any more), of kind
// Unavailable when that cannot be known just now.
// Faults: building, expired_token, invalid_token, overloaded, quarantined, stale, unverifiable.
func (v *Verifier) Authenticate(ctx context.Context, bearer string) (httpapi.Principal, error) {
	if len(bearer) > maxToken {
		return httpapi.Principal{}, errInvalidToken()
	}
	sum := sha256.Sum256([]byte(bearer))
	token, hit := v.cache.Get(sum)
	if !hit || v.keys.known(token.kid) == nil {
		var err error
		if token, err = v.verify(ctx, bearer); err != nil {
			return httpapi.Principal{}, err
		}
	}
	// One that ends later than any does was issued by a clock that was ahead, and would
	// outlive what is remembered of its revocation.
	if now, ends := v.keys.Now(), token.principal.Expires; !now.Before(ends.Add(leeway)) || ends.After(now.Add(v.keys.TokenTTL+Skew)) {
		v.cache.Remove(sum)
		return httpapi.Principal{}, errExpiredToken()
	}
	if !hit {
		v.cache.Add(sum, token)
	}
	revoked, err := v.revocations.ended(ctx, token.principal)
	switch {
	case err != nil:
		return httpapi.Principal{}, err
	case revoked:
		v.cache.Remove(sum) // so that its holder takes no more of what the client shares
		return httpapi.Principal{}, errInvalidToken()
	}
	return token.principal, nil
}

// Ended says whether the holder of a token that was verified has lost it since. It
// fails with a fault of kind Unavailable where that cannot be known just now.
// Faults: building, overloaded, quarantined, stale, unverifiable.
func (v *Verifier) Ended(ctx context.Context, p httpapi.Principal) (bool, error) {
	return v.revocations.ended(ctx, p)
}

// Known returns the client of a token that was verified lately and has not
// expired, "" where none was. It may have been revoked since.
func (v *Verifier) Known(bearer string) id.Client {
	if len(bearer) > maxToken {
		return ""
	}
	token, hit := v.cache.Peek(sha256.Sum256([]byte(bearer)))
	if !hit || !v.keys.Now().Before(token.principal.Expires.Add(leeway)) {
		return ""
	}
	return token.principal.Client
}

// verify checks the signature and reads the claims, whatever the time.
func (v *Verifier) verify(ctx context.Context, bearer string) (verified, error) {
	jws, err := jose.ParseSignedCompact(bearer, algorithms)
	if err != nil || !strict(bearer) {
		return verified{}, errInvalidToken()
	}
	header := jws.Signatures[0].Protected
	key, err := v.keys.find(ctx, header.KeyID)
	if err != nil {
		return verified{}, errUnsure(fmt.Errorf("look for a signing key: %w", err))
	}
	if key == nil || header.Algorithm != string(key.alg) {
		return verified{}, errInvalidToken()
	}
	payload, err := jws.Verify(key.public)
	if err != nil {
		return verified{}, errInvalidToken()
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil || c.Issuer != v.url {
		return verified{}, errInvalidToken()
	}
	principal, ok := v.principal(c)
	if !ok {
		return verified{}, errInvalidToken()
	}
	return verified{principal, key.kid}, nil
}

// strict says whether a token is spelled as we spell it. The bits beyond the end of each
// part are signed by nobody: with them, one token would have thousands of spellings, each
// of which would take a place among those that are known to be good.
func strict(token string) bool {
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return false
		}
	}
	return true
}

func (v *Verifier) principal(c claims) (httpapi.Principal, bool) {
	client, err1 := id.Parse[id.Client](string(c.Audience))
	member, err2 := id.Parse[id.Member](string(c.Subject))
	if err1 != nil || err2 != nil {
		return httpapi.Principal{}, false
	}
	if c.Parent != "" {
		if _, err := id.Parse[id.Client](string(c.Parent)); err != nil {
			return httpapi.Principal{}, false
		}
	}
	if c.Party != "" {
		if _, err := id.Parse[id.Key](string(c.Party)); err != nil {
			return httpapi.Principal{}, false
		}
	}
	if c.Session != "" {
		if _, err := id.Parse[id.Session](string(c.Session)); err != nil {
			return httpapi.Principal{}, false
		}
	}
	// Revocations are forgotten after the lifetime that is configured now, so
	// no token outlives it, even one that was issued under a longer one.
	expires := min(c.Expires, c.IssuedAt+int64(v.keys.TokenTTL/time.Second))
	p := httpapi.Principal{
		Client: client, Parent: c.Parent, Member: member, Key: c.Party, Session: c.Session,
		Scopes: strings.Fields(c.Scope + " " + c.Implied), TokenID: c.ID, Expires: time.Unix(expires, 0).UTC(),
	}
	if p.Key == "" {
		p.Logins = id.Logins(member, c.PasswordChanges)
	}
	return p, true
}

func errInvalidToken() error {
	return fault.New(fault.Unauthenticated, "invalid_token",
		"The access token is not valid. Get one from /auth/exchange or /auth/token.")
}

func errExpiredToken() error {
	return fault.New(fault.Unauthenticated, "expired_token",
		"The access token has expired. Get a new one from /auth/exchange or /auth/token.")
}
