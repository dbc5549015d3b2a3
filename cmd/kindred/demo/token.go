package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// claims are those of docs/contract.md#tokens: "azp" is the API key that a token
// was exchanged for.
type claims struct {
	jwt.Claims
	Key   string `json:"azp"`
	Scope string `json:"scope"`
}

// verifyToken checks both tokens against the published keys
// (docs/contract.md#tokens).
func (s *story) verifyToken(ctx context.Context) error {
	var published jose.JSONWebKeySet
	if err := s.api.do(ctx, request{method: "GET", path: "/.well-known/jwks.json", open: true, want: 200}, &published); err != nil {
		return err
	}
	token, err := s.api.fresh(ctx)
	if err != nil {
		return err
	}
	rows := make([][]string, 2)
	for i, t := range []struct{ whose, token, key string }{{"owner", s.login.Token, ""}, {"server", token, s.key.ID}} {
		key, is, err := verify(published, t.token, time.Now())
		switch {
		case err != nil:
			return fmt.Errorf("the %s's token: %w", t.whose, err)
		case is.Subject != s.owner.ID || !slices.Equal(is.Audience, jwt.Audience{s.client.ID}):
			return fmt.Errorf("the %s's token is of %s for %s, not of %s for %s", t.whose, is.Subject, is.Audience, s.owner.ID, s.client.ID)
		case is.Key != t.key:
			return fmt.Errorf("the %s's token names the API key %q, not %q", t.whose, is.Key, t.key)
		case t.key != "" && key.Algorithm != string(jose.ES256):
			return fmt.Errorf("the %s's token is signed with %s, not ES256", t.whose, key.Algorithm)
		}
		rows[i] = []string{t.whose, key.Algorithm, cut(key.KeyID, 12), cut(is.Subject, 14), cut(is.Audience[0], 14), strings.ReplaceAll(is.Scope, " ", ", ")}
	}
	s.page.say("Signatures hold against the %d keys at /.well-known/jwks.json.", len(published.Keys))
	s.page.table([]string{"token", "signed", "kid", "sub (user)", "aud (client)", "scope"}, rows)
	return nil
}

// verify finds the key that a token names, and checks the signature and the
// times. The key declares the algorithm; what the token says must agree.
func verify(published jose.JSONWebKeySet, token string, now time.Time) (jose.JSONWebKey, claims, error) {
	var is claims
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA})
	if err != nil {
		return jose.JSONWebKey{}, is, err
	}
	header := parsed.Headers[0]
	keys := published.Key(header.KeyID)
	if len(keys) != 1 {
		return jose.JSONWebKey{}, is, fmt.Errorf("%d published keys have its kid %q", len(keys), header.KeyID)
	}
	key := keys[0]
	if key.Algorithm != header.Algorithm {
		return key, is, fmt.Errorf("it says %s where its key says %s", header.Algorithm, key.Algorithm)
	}
	if err := parsed.Claims(key, &is); err != nil {
		return key, is, err
	}
	if is.Expiry == nil {
		return key, is, errors.New("it never expires")
	}
	return key, is, is.ValidateWithLeeway(jwt.Expected{Time: now}, time.Minute)
}
