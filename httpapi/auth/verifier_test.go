package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const publicURL = "https://kindred.example"

// revocationLog implements RevocationSource.
type revocationLog struct {
	now    func() time.Time
	lag    time.Duration // of upTo
	behind time.Duration // its clock is
	err    error
	all    []noted
	afters []time.Time

	unnoted map[id.Client][]string // revoked, but told by Revoked alone
	unsure  error                  // of Revoked
	lookups int
}

type noted struct {
	id string // of a key or a member
	at time.Time
}

func (r *revocationLog) Since(_ context.Context, within time.Duration, _ int) ([]string, time.Time, error) {
	after := r.now().Add(-r.behind - within)
	r.afters = append(r.afters, after)
	if r.err != nil {
		return nil, time.Time{}, r.err
	}
	var since []string
	for _, one := range r.all {
		if !one.at.Before(after) {
			since = append(since, one.id)
		}
	}
	return since, r.now().Add(-r.lag), nil
}

func (r *revocationLog) Revoked(_ context.Context, client id.Client, subjects ...string) (bool, error) {
	r.lookups++
	return slices.ContainsFunc(subjects, func(s string) bool { return slices.Contains(r.unnoted[client], s) }), r.unsure
}

// fixture is a service that can issue and verify.
type fixture struct {
	*clock
	source      *revocationLog
	keys        *Keyring
	issuer      *Issuer
	revocations *Revocations
	verifier    *Verifier
	account     Account
	record      KeyRecord
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	w := &fixture{clock: newClock()}
	w.keys = openKeyring(t, pgtest.New(t), w.Now)
	w.issuer = &Issuer{Keys: w.keys, URL: publicURL}
	w.source = &revocationLog{now: w.Now}
	w.revocations = &Revocations{Source: w.source, TokenTTL: ttl, Now: w.Now, Logger: slog.New(slog.DiscardHandler)}
	w.verifier = NewVerifier(w.keys, publicURL, w.revocations)
	ids := id.Derived("test")
	w.account = Account{
		Client: id.Next[id.Client](ids), ClientName: "Acme", ClientSlug: "acme",
		Member: id.Next[id.Member](ids), Email: "ada@example.com", Role: "owner",
	}
	w.account.Home = w.account.Client
	w.record = KeyRecord{
		Key: id.Next[id.Key](ids), Client: w.account.Client, IssuedBy: w.account.Member,
		Scopes: []string{"read", "write"},
	}
	w.poll(t)
	return w
}

func (w *fixture) poll(t testing.TB) {
	t.Helper()
	if err := w.revocations.poll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) login(t testing.TB) string {
	t.Helper()
	session := testkit.Must(w.issuer.Login(w.account, SessionRecord{}))(t)
	return session.Token
}

func (w *fixture) exchanged(t testing.TB) string {
	t.Helper()
	session := testkit.Must(w.issuer.Exchange(w.record))(t)
	return session.Token
}

// refusal is the code that a token is refused with, "" if it is not.
func (w *fixture) refusal(t testing.TB, token string) string {
	t.Helper()
	_, err := w.verifier.Authenticate(t.Context(), token)
	if err == nil {
		return ""
	}
	f := fault.As(err)
	switch {
	case f == nil:
		t.Fatalf("refused with %v; want a fault", err)
	case f.Kind != fault.Unauthenticated && f.Kind != fault.Unavailable:
		t.Fatalf("refused with kind %d", f.Kind)
	}
	return f.Code
}

// decode returns the header and the claims of a token.
func decode(t testing.TB, token string) (header, claims map[string]any) {
	t.Helper()
	for i, into := range []*map[string]any{&header, &claims} {
		raw := testkit.Must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i]))(t)
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

func TestTokensCarryTheClaimsOfTheContract(t *testing.T) {
	w := newFixture(t)
	iat := float64(w.Now().Unix())
	exchange := map[string]any{
		"iss": publicURL, "sub": string(w.account.Member), "aud": string(w.account.Client), "azp": string(w.record.Key),
		"scope": "read write", "iat": iat, "exp": iat + 900, "livemode": true,
	}
	login := map[string]any{
		"iss": publicURL, "sub": string(w.account.Member), "aud": string(w.account.Client),
		"scope": "admin read write", "iat": iat, "exp": iat + 900, "livemode": true,
	}
	seen := make(map[any]bool)
	for _, test := range []struct {
		name, token string
		alg         jose.SignatureAlgorithm
		claims      map[string]any
	}{
		{"exchange", w.exchanged(t), jose.ES256, exchange},
		{"login", w.login(t), jose.EdDSA, login},
	} {
		header, claims := decode(t, test.token)
		wantHeader := map[string]any{"alg": string(test.alg), "typ": "JWT", "kid": signerID(t, w.keys, test.alg)}
		if diff := cmp.Diff(wantHeader, header); diff != "" {
			t.Errorf("%s: header %s", test.name, diff)
		}
		if jti, _ := claims["jti"].(string); len(jti) != 22 || seen[jti] {
			t.Errorf("%s: jti is %q", test.name, jti)
		}
		seen[claims["jti"]] = true
		delete(claims, "jti")
		if diff := cmp.Diff(test.claims, claims); diff != "" {
			t.Errorf("%s: claims %s", test.name, diff)
		}
	}
}

func TestATokenTellsWhoHoldsIt(t *testing.T) {
	w := newFixture(t)
	expires := w.Now().Add(ttl)
	viewer := w.account
	viewer.Role = "viewer"
	viewing := testkit.Must(w.issuer.Login(viewer, SessionRecord{}))(t)
	for _, test := range []struct {
		name, token string
		want        httpapi.Principal
	}{
		{"exchange", w.exchanged(t), httpapi.Principal{
			Client: w.account.Client, Member: w.account.Member, Key: w.record.Key, Scopes: []string{"read", "write"}, Expires: expires,
		}},
		{"login of an owner", w.login(t), httpapi.Principal{
			Client: w.account.Client, Member: w.account.Member, Logins: id.Logins(w.account.Member, 0), Scopes: []string{"admin", "read", "write"}, Expires: expires,
		}},
		{"login of a viewer", viewing.Token, httpapi.Principal{
			Client: w.account.Client, Member: w.account.Member, Logins: id.Logins(w.account.Member, 0), Scopes: []string{"read"}, Expires: expires,
		}},
	} {
		_, claims := decode(t, test.token)
		test.want.TokenID, _ = claims["jti"].(string)
		for _, time := range []string{"first", "second"} { // the second time from the cache
			got, err := w.verifier.Authenticate(t.Context(), test.token)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s, the %s time: %s", test.name, time, diff)
			}
		}
	}
	if _, err := w.issuer.Login(Account{Role: "janitor"}, SessionRecord{}); err == nil {
		t.Error("a role that does not exist gets a token")
	}
}

func TestEveryForgeryIsRefusedAlike(t *testing.T) {
	w := newFixture(t)
	_, genuine := decode(t, w.exchanged(t))
	kid := map[jose.SignatureAlgorithm]string{jose.ES256: signerID(t, w.keys, jose.ES256), jose.EdDSA: signerID(t, w.keys, jose.EdDSA)}
	genuineKey := testkit.Must(w.keys.signer(jose.ES256))(t)
	stranger := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	public := testkit.Must(x509.MarshalPKIXPublicKey(genuineKey.public))(t)

	// sign makes a token of any kind; edit changes the genuine claims.
	sign := func(key jose.SigningKey, header map[jose.HeaderKey]any, edit func(map[string]any)) string {
		options := &jose.SignerOptions{ExtraHeaders: header}
		signer := testkit.Must(jose.NewSigner(key, options))(t)
		return signClaims(t, signer, genuine, edit)
	}
	ours := func(edit func(map[string]any)) string { return signClaims(t, genuineKey.signer, genuine, edit) }
	with := func(kid string) map[jose.HeaderKey]any { return map[jose.HeaderKey]any{"kid": kid} }
	forged := jose.SigningKey{Algorithm: jose.ES256, Key: stranger}
	keep := func(map[string]any) {}
	set := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { c[name] = value }
	}
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	parts := strings.Split(ours(keep), ".")
	// respelled is the same signature: the last character's lowest bit is beyond its end.
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	respelled := parts[2][:85] + string(alphabet[strings.IndexByte(alphabet, parts[2][85])^1])
	claims := testkit.Must(json.Marshal(genuine))(t)

	if code := w.refusal(t, ours(keep)); code != "" {
		t.Fatalf("the genuine token is refused: %s", code)
	}
	for name, token := range map[string]string{
		"empty":                   "",
		"no token":                "hunter2",
		"two parts":               parts[0] + "." + parts[1],
		"four parts":              strings.Join(parts, ".") + "." + parts[0],
		"API key":                 "kin_live_0123456789ABCDEFGHIJKLMNOPQRST4PMbyp",
		"JSON serialization":      `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"no signature":            parts[0] + "." + parts[1] + ".",
		"changed claims":          parts[0] + "." + b64(strings.Replace(string(claims), "read", "admin read", 1)) + "." + parts[2],
		"changed signature":       parts[0] + "." + parts[1] + "." + strings.Repeat("A", 86),
		"another spelling":        parts[0] + "." + parts[1] + "." + respelled,
		"alg none":                b64(`{"alg":"none","kid":"`+kid[jose.ES256]+`"}`) + "." + parts[1] + ".",
		"alg None with signature": b64(`{"alg":"None","kid":"`+kid[jose.ES256]+`"}`) + "." + parts[1] + "." + parts[2],
		"HMAC with the public key": sign(jose.SigningKey{Algorithm: jose.HS256, Key: public},
			with(kid[jose.ES256]), keep),
		"another's key":             sign(forged, with(kid[jose.ES256]), keep),
		"another's key, EdDSA's id": sign(forged, with(kid[jose.EdDSA]), keep),
		"another's key in the header": sign(forged, map[jose.HeaderKey]any{
			"kid": kid[jose.ES256], "jwk": jose.JSONWebKey{Key: stranger.Public()},
		}, keep),
		"our key, EdDSA's id":      b64(`{"alg":"EdDSA","kid":"`+kid[jose.ES256]+`"}`) + "." + parts[1] + "." + parts[2],
		"unknown key":              sign(forged, with("unknown"), keep),
		"no key id":                sign(forged, nil, keep),
		"key id of another kind":   b64(`{"alg":"ES256","kid":7}`) + "." + parts[1] + "." + parts[2],
		"unknown critical header":  b64(`{"alg":"ES256","kid":"`+kid[jose.ES256]+`","crit":["x"],"x":1}`) + "." + parts[1] + "." + parts[2],
		"over 8 KiB":               ours(set("scope", strings.Repeat("read ", 2000))),
		"a megabyte":               strings.Repeat("a", 1<<20),
		"a megabyte of dots":       strings.Repeat(".", 1<<20),
		"other issuer":             ours(set("iss", "https://other.example")),
		"no issuer":                ours(func(c map[string]any) { delete(c, "iss") }),
		"no audience":              ours(func(c map[string]any) { delete(c, "aud") }),
		"a list of audiences":      ours(set("aud", []string{string(w.account.Client)})),
		"an audience of no client": ours(set("aud", "everybody")),
		"no subject":               ours(func(c map[string]any) { delete(c, "sub") }),
		"a party that is no key":   ours(set("azp", "me")),
		"a parent of no client":    ours(set("parent", "everybody")),
		"a session that is none":   ours(set("sid", "mine")),
		"claims that are no JSON":  signPayload(t, genuineKey.signer, []byte("hunter2")),
	} {
		_, err := w.verifier.Authenticate(t.Context(), token)
		if diff := cmp.Diff(errInvalidToken(), err); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, token := range map[string]string{
		"expired":   ours(set("exp", w.Now().Add(-2*time.Second).Unix())),
		"no expiry": ours(func(c map[string]any) { delete(c, "exp") }),
		"issued too long ago for the lifetime of tokens": ours(func(c map[string]any) {
			c["iat"], c["exp"] = w.Now().Add(-ttl-2*time.Second).Unix(), w.Now().Add(time.Hour).Unix()
		}),
	} {
		_, err := w.verifier.Authenticate(t.Context(), token)
		if diff := cmp.Diff(errExpiredToken(), err); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func signClaims(t testing.TB, signer jose.Signer, genuine map[string]any, edit func(map[string]any)) string {
	t.Helper()
	claims := maps.Clone(genuine)
	edit(claims)
	payload := testkit.Must(json.Marshal(claims))(t)
	return signPayload(t, signer, payload)
}

func signPayload(t testing.TB, signer jose.Signer, payload []byte) string {
	t.Helper()
	signed := testkit.Must(signer.Sign(payload))(t)
	return testkit.Must(signed.CompactSerialize())(t)
}

func TestATokenExpiresInTheCacheToo(t *testing.T) {
	w := newFixture(t)
	for _, known := range []bool{false, true} {
		token := w.exchanged(t)
		if known && w.refusal(t, token) != "" {
			t.Fatal("a fresh token is refused")
		}
		w.Advance(ttl + leeway - 1)
		w.poll(t)
		if code := w.refusal(t, token); code != "" {
			t.Errorf("seen before: %v: refused with %s within its life", known, code)
		}
		if got := w.verifier.Known(token); got != w.account.Client {
			t.Errorf("seen before: %v: it counts for %q within its life", known, got)
		}
		w.Advance(1)
		if got := w.verifier.Known(token); got != "" {
			t.Errorf("seen before: %v: it counts for %q after its life", known, got)
		}
		if code := w.refusal(t, token); code != "expired_token" {
			t.Errorf("seen before: %v: %q after its life; want expired_token", known, code)
		}
	}
	if n := w.verifier.cache.Len(); n != 0 {
		t.Errorf("%d expired tokens are kept", n)
	}
}

// What is remembered of a revocation is forgotten when no token from before it can be left.
func TestATokenOfAClockThatWasAheadIsRefused(t *testing.T) {
	w := newFixture(t)
	token := w.exchanged(t)
	w.Advance(-Skew)
	w.poll(t)
	if code := w.refusal(t, token); code != "" {
		t.Errorf("refused with %s by a clock within the skew", code)
	}
	w.Advance(-3 * time.Hour)
	w.poll(t)
	if code := w.refusal(t, token); code != "expired_token" {
		t.Errorf("got %q", code)
	}
	if code := w.refusal(t, w.exchanged(t)); code != "" {
		t.Errorf("a new one is refused with %s", code)
	}
}

// What was revoked is forgotten after the lifetime that is set now.
func TestATokenOutlivesNoShorterLifetimeThatWasSetSince(t *testing.T) {
	w := newFixture(t)
	w.keys.TokenTTL = 2 * ttl
	token := w.exchanged(t)
	w.keys.TokenTTL = ttl
	w.Advance(ttl + ttl/2)
	w.poll(t)
	if code := w.refusal(t, token); code != "expired_token" {
		t.Errorf("got %q", code)
	}
}

func TestTokensOfALeakedKeyEndAtOnce(t *testing.T) {
	w := newFixture(t)
	token := w.exchanged(t)
	if code := w.refusal(t, token); code != "" {
		t.Fatalf("refused with %s", code)
	}
	if _, err := w.keys.RotateNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	reload(t, w.keys)
	if code := w.refusal(t, token); code != "invalid_token" {
		t.Errorf("%q; want invalid_token", code)
	}
	if code := w.refusal(t, w.exchanged(t)); code != "" {
		t.Errorf("a token of the new key is refused with %s", code)
	}
}

func TestTokensOutliveARotation(t *testing.T) {
	w := newFixture(t)
	if _, err := w.keys.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Advance(JWKSMaxAge + Skew - 1)
	reload(t, w.keys)
	token := w.exchanged(t) // the last one of the old key
	w.Advance(ttl)
	w.poll(t)
	reload(t, w.keys)
	if code := w.refusal(t, token); code != "" {
		t.Errorf("refused with %s", code)
	}
}

func TestAnUnknownKeyIDWithoutTheTableIsNotA401(t *testing.T) {
	w := newFixture(t)
	token := w.exchanged(t)
	other := newFixture(t)
	if _, err := other.keys.Pool.Exec(t.Context(), "DROP TABLE signing_keys"); err != nil {
		t.Fatal(err)
	}
	if code := other.refusal(t, token); code != "unverifiable" {
		t.Errorf("%q; want unverifiable", code)
	}
	if code := other.refusal(t, other.exchanged(t)); code != "" {
		t.Errorf("a token of a known key is refused with %s", code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := other.verifier.Authenticate(ctx, token); !errors.Is(err, context.Canceled) && fault.As(err) == nil {
		t.Errorf("a request that has gone got %v", err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	w := newFixture(t)
	for i := range cached + 10 {
		w.verifier.cache.Add([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, verified{})
	}
	if n := w.verifier.cache.Len(); n != cached {
		t.Errorf("%d tokens are kept; want %d", n, cached)
	}
}
