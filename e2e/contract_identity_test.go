package e2e

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"kindred/app"
	"kindred/httpapi"
	"kindred/testkit"
)

func TestIdentity(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	a := s.signUp()

	t.Run("signup answers as specified", func(t *testing.T) {
		got := s.send("POST", "/auth/signup", map[string]string{
			"email": "First.Last@Example.com", "password": "correct horse battery", "company_name": "Ünïted Çats & Co.",
		})
		signedUp := want[httpapi.SignedUp](t, http.StatusCreated, got)
		s.Logs.keepOut("First.Last@", "first.last@", "correct horse battery", signedUp.Token)
		wantShape(t, got.Body,
			"client.id string", "client.slug string", "client.name string", "client.status string", "client.tier string",
			"user.id string", "user.email string", "user.role string",
			"token string", "scopes[] string", "expires_in number")
		if signedUp.Client.Status != "active" || signedUp.Client.Tier != "graph" || signedUp.User.Role != "owner" ||
			signedUp.ExpiresIn != 900 || signedUp.Client.Name != "Ünïted Çats & Co." {
			t.Errorf("%s", got.Body)
		}
		if diff := cmp.Diff([]string{"admin", "read", "write"}, signedUp.Scopes); diff != "" {
			t.Error(diff)
		}
		if !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(signedUp.Client.Slug) {
			t.Errorf("slug %q", signedUp.Client.Slug)
		}
		if location := got.Header.Get("Location"); location != "/api/v1/clients/"+string(signedUp.Client.ID) {
			t.Errorf("Location: %s", location)
		}
		again := s.send("POST", "/auth/signup", map[string]string{
			"email": "first.last@example.com", "password": "another password", "company_name": "Other",
		})
		wantProblem(t, http.StatusConflict, "email_exists", again)
	})

	t.Run("companies of one name get slugs of their own", func(t *testing.T) {
		var slugs []string
		for _, got := range together(5, func(i int) answer {
			return s.send("POST", "/auth/signup", map[string]string{
				"email": fmt.Sprintf("same-%d@example.com", i), "password": "correct horse battery", "company_name": "Same Name",
			})
		}) {
			slugs = append(slugs, want[httpapi.SignedUp](t, http.StatusCreated, got).Client.Slug)
		}
		slices.Sort(slugs)
		if len(slices.Compact(slugs)) != 5 || !slices.Contains(slugs, "same-name") {
			t.Errorf("slugs %q", slugs)
		}
	})

	t.Run("of many sign-ups with one e-mail address, one succeeds", func(t *testing.T) {
		statuses := together(20, func(int) int {
			return s.send("POST", "/auth/signup", map[string]string{
				"email": "contended@example.com", "password": "correct horse battery", "company_name": "Contended",
			}).Status
		})
		slices.Sort(statuses)
		if diff := cmp.Diff(append([]int{201}, slices.Repeat([]int{409}, 19)...), statuses); diff != "" {
			t.Error(diff)
		}
		want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token",
			map[string]string{"email": "contended@example.com", "password": "correct horse battery"}))
	})

	t.Run("login takes both forms and answers as specified", func(t *testing.T) {
		for name, form := range map[string]map[string]string{
			"by e-mail":                {"email": a.Email, "password": a.Password},
			"by e-mail, in upper case": {"email": strings.ToUpper(a.Email), "password": a.Password},
			"by ids":                   {"client_id": string(a.Client.ID), "user_id": string(a.User.ID), "password": a.Password},
		} {
			got := s.send("POST", "/auth/token", form)
			login := want[httpapi.LoggedIn](t, http.StatusOK, got)
			wantShape(t, got.Body, "token string", "scopes[] string", "expires_in number",
				"user.id string", "user.email string", "user.role string", "client.id string", "client.slug string", "client.name string")
			if login.User != a.User || login.Client.ID != a.Client.ID || login.Client.Slug != a.Client.Slug ||
				login.Client.Name != a.Client.Name || login.ExpiresIn != 900 {
				t.Errorf("%s: %s", name, got.Body)
			}
			if got := a.with(login.Token).get("/api/v1/users"); got.Status != http.StatusOK {
				t.Errorf("%s: the token opens nothing: %d", name, got.Status)
			}
		}
	})

	t.Run("wrong logins are all refused alike", func(t *testing.T) {
		b := s.signUp()
		var details []string
		for _, form := range []map[string]string{
			{"email": a.Email, "password": "wrong password"},
			{"email": "nobody@example.com", "password": a.Password},
			{"client_id": string(a.Client.ID), "user_id": string(a.User.ID), "password": ""},
			{"client_id": string(b.Client.ID), "user_id": string(a.User.ID), "password": a.Password},
			{"client_id": "x", "user_id": "../y", "password": a.Password},
			{"email": a.Email, "password": a.Password + " "},
		} {
			got := s.send("POST", "/auth/token", form)
			p := wantProblem(t, http.StatusUnauthorized, "invalid_credentials", got)
			if got.Header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
			details = append(details, p.Detail)
		}
		if len(slices.Compact(details)) != 1 {
			t.Errorf("they can be told apart: %q", details)
		}
		for _, form := range []map[string]string{
			{"password": "x"},
			{"email": a.Email},
			{"client_id": "x", "password": "y"},
			{"email": a.Email, "client_id": string(a.Client.ID), "user_id": string(a.User.ID), "password": a.Password},
		} {
			wantProblem(t, http.StatusUnprocessableEntity, "invalid", s.send("POST", "/auth/token", form))
		}
	})

	t.Run("an API key is shown once and exchanged as specified", func(t *testing.T) {
		got := a.send("POST", a.under("/api_keys"), map[string]string{"name": "backend"})
		key := want[httpapi.APIKeyCreated](t, http.StatusCreated, got)
		s.Logs.keepOut(key.RawKey)
		wantShape(t, got.Body, "raw_key string", "record.id string", "record.client_id string", "record.name string",
			"record.fingerprint string", "record.revoked bool", "record.created_at string", "record.scopes[] string", "record.created_by string",
			"record.expires_at null", "record.last_used_at null")
		wantTimestamps(t, got.Body)
		if r := key.Record; r.ClientID != a.Client.ID || r.Name != "backend" || r.Revoked || r.CreatedBy != a.User.ID || r.Fingerprint == "" {
			t.Errorf("%+v", r)
		}
		if location := got.Header.Get("Location"); location != a.under("/api_keys/"+string(key.Record.ID)) {
			t.Errorf("Location: %s", location)
		}
		if list := a.get(a.under("/api_keys")); strings.Contains(string(list.Body), key.RawKey) {
			t.Error("the list shows the raw key")
		}
		exchanged := s.send("POST", "/auth/exchange", map[string]string{"api_key": key.RawKey})
		session := want[httpapi.Exchanged](t, http.StatusOK, exchanged).Data
		wantShape(t, exchanged.Body, "data.token string", "data.expires_in number", "data.scopes[] string")
		if diff := cmp.Diff([]string{"read", "write"}, session.Scopes); diff != "" || session.ExpiresIn != 900 {
			t.Errorf("%d s, scopes %s", session.ExpiresIn, diff)
		}
	})

	t.Run("whatever is no API key is answered with 401", func(t *testing.T) {
		raw := a.createAPIKey().RawKey
		for _, key := range []string{"", "x", "kin_live_", raw[:len(raw)-1], raw + "x", strings.ToLower(raw), strings.Repeat("k", 3000), "ключ", a.Token} {
			got := s.send("POST", "/auth/exchange", map[string]string{"api_key": key})
			wantProblem(t, http.StatusUnauthorized, "invalid_api_key", got)
		}
	})

	t.Run("tokens verify against the published keys alone", func(t *testing.T) {
		got := s.send("GET", "/.well-known/jwks.json", nil)
		keys := want[jose.JSONWebKeySet](t, http.StatusOK, got)
		if !strings.Contains(got.Header.Get("Cache-Control"), "max-age=300") {
			t.Errorf("Cache-Control: %s", got.Header.Get("Cache-Control"))
		}
		if strings.Contains(string(got.Body), `"d":`) {
			t.Fatal("private keys are published")
		}
		login := want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": a.Email, "password": a.Password}))
		key := a.createAPIKey()
		for _, tt := range []struct {
			name, token, party string
			alg                jose.SignatureAlgorithm
			scope              string
		}{
			{"signup", a.Token, "", jose.EdDSA, "admin read write"},
			{"login", login.Token, "", jose.EdDSA, "admin read write"},
			{"exchange", s.exchange(key.RawKey), string(key.Record.ID), jose.ES256, "read write"},
		} {
			jws, err := jose.ParseSignedCompact(tt.token, []jose.SignatureAlgorithm{tt.alg})
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			found := keys.Key(jws.Signatures[0].Header.KeyID)
			if len(found) != 1 || found[0].Algorithm != string(tt.alg) || found[0].Use != "sig" {
				t.Fatalf("%s: published keys %+v", tt.name, found)
			}
			payload, err := jws.Verify(found[0])
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			wantClaims(t, tt.name, payload, map[string]any{
				"iss": s.Config.PublicURL, "sub": string(a.User.ID), "aud": string(a.Client.ID), "scope": tt.scope, "azp": tt.party,
			})
		}
	})
}

// wantClaims compares a token's claims; an empty one must be absent.
func wantClaims(t *testing.T, name string, payload []byte, wanted map[string]any) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(payload, &got); err != nil {
		t.Fatal(err)
	}
	for claim, value := range wanted {
		if there := got[claim]; there != value && (value != "" || there != nil) {
			t.Errorf("%s: %s is %v, want %v", name, claim, there, value)
		}
	}
	issued, expires := got["iat"].(float64), got["exp"].(float64)
	if expires-issued != 900 || time.Since(time.Unix(int64(issued), 0)).Abs() > time.Minute || got["jti"] == "" {
		t.Errorf("%s: iat %v, exp %v, jti %v", name, got["iat"], got["exp"], got["jti"])
	}
}

func TestTokensThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	s, other := keepContract(t), keepContract(t)
	a, b, foreign := s.signUp(), s.signUp(), other.signUp()
	parts := strings.Split(a.Token, ".")
	kid := headerOf(t, a.Token)["kid"].(string)
	exchangeKid := headerOf(t, s.exchange(a.createAPIKey().RawKey))["kid"].(string)
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwks := want[jose.JSONWebKeySet](t, http.StatusOK, s.send("GET", "/.well-known/jwks.json", nil))
	public := []byte(jwks.Key(kid)[0].Key.(ed25519.PublicKey))

	otherClient := strings.Replace(string(payload), string(a.Client.ID), string(b.Client.ID), 1)
	for name, token := range map[string]string{
		"the payload changed":              parts[0] + "." + encode(otherClient) + "." + parts[2],
		"no signature":                     parts[0] + "." + parts[1] + ".",
		"another's signature":              parts[0] + "." + parts[1] + "." + strings.Split(b.Token, ".")[2],
		"algorithm none":                   encode(`{"alg":"none","kid":"`+kid+`"}`) + "." + parts[1] + ".",
		"the public key as an HMAC secret": sign(t, jose.HS256, public, kid, payload),
		"another key under our kid":        sign(t, jose.EdDSA, edKey, kid, payload),
		"an unknown kid":                   sign(t, jose.EdDSA, edKey, "unknown", payload),
		"the other algorithm under a kid":  sign(t, jose.ES256, ecKey, kid, payload),
		"another ES256 key under our kid":  sign(t, jose.ES256, ecKey, exchangeKid, payload),
		"no kid":                           sign(t, jose.EdDSA, edKey, "", payload),
		"of another service":               foreign.Token,
		"not a token":                      "x",
		"three dots":                       "...",
		"an API key":                       a.createAPIKey().RawKey,
		"too long":                         parts[0] + "." + strings.Repeat("A", 20_000) + "." + parts[2],
		"twice":                            a.Token + " " + a.Token,
	} {
		got := a.with(token).get("/api/v1/users")
		wantProblem(t, http.StatusUnauthorized, "invalid_token", got)
		if !strings.Contains(got.Header.Get("WWW-Authenticate"), "invalid_token") {
			t.Errorf("%s: WWW-Authenticate: %s", name, got.Header.Get("WWW-Authenticate"))
		}
	}
	wantProblem(t, http.StatusUnauthorized, "token_missing", s.send("GET", "/api/v1/users", nil))
	wantProblem(t, http.StatusUnauthorized, "invalid_token", s.send("GET", "/api/v1/users", nil, header("Authorization", "Basic eDp5")))
	if got := s.send("GET", "/api/v1/users", nil, header("Authorization", "bearer "+a.Token)); got.Status != http.StatusOK {
		t.Errorf("the scheme in lower case: %d", got.Status)
	}
	// A token is good for its own client alone, and says nothing about others.
	theirs := a.get(b.under("/webhooks"))
	nobodys := a.get("/api/v1/clients/cli_00000000000000000000000000/webhooks")
	p, q := wantProblem(t, http.StatusForbidden, "other_client", theirs), wantProblem(t, http.StatusForbidden, "other_client", nobodys)
	if p.Detail != q.Detail {
		t.Errorf("%q, %q", p.Detail, q.Detail)
	}
}

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func headerOf(t *testing.T, token string) map[string]any {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	var header map[string]any
	if err := json.Unmarshal(text, &header); err != nil {
		t.Fatal(err)
	}
	return header
}

func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, payload []byte) string {
	t.Helper()
	options := new(jose.SignerOptions)
	if kid != "" {
		options = options.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	s := keepContract(t, func(c *app.Config) { c.TokenTTL = time.Second })
	a := s.signUp()
	if a.ExpiresIn != 1 {
		t.Errorf("expires_in %d", a.ExpiresIn)
	}
	began := time.Now()
	testkit.Eventually(t, "the token expires", func() bool { return a.get("/api/v1/users", eventual()).Status == http.StatusUnauthorized })
	if lived := time.Since(began); lived > 4*time.Second {
		t.Errorf("it lived %s", lived)
	}
	wantProblem(t, http.StatusUnauthorized, "expired_token", a.get("/api/v1/users"))
	login := want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": a.Email, "password": a.Password}))
	if got := a.with(login.Token).get("/api/v1/users"); got.Status != http.StatusOK {
		t.Errorf("after logging in anew: %d", got.Status)
	}
}

func TestWhoKeepsFailingHasToWait(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	a, b := s.signUp(), s.signUp()
	key, good := strings.Replace(a.createAPIKey().RawKey, "kin_", "kim_", 1), a.createAPIKey().RawKey
	logIn := func(email, password string) answer {
		return s.send("POST", "/auth/token", map[string]string{"email": email, "password": password})
	}
	throttled := func(got answer) bool {
		if got.Status != http.StatusTooManyRequests {
			return false
		}
		wantProblem(t, http.StatusTooManyRequests, "too_many_attempts", got)
		if wait, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
			t.Errorf("Retry-After: %s", got.Header.Get("Retry-After"))
		}
		return true
	}

	for i := range 11 {
		if got := logIn(a.Email, "wrong"); got.Status != http.StatusUnauthorized {
			t.Fatalf("failure %d: %d", i+1, got.Status)
		}
	}
	if !throttled(logIn(a.Email, a.Password)) {
		t.Error("the account was not throttled")
	}
	if !throttled(s.send("POST", "/auth/token", map[string]string{
		"client_id": string(a.Client.ID), "user_id": string(a.User.ID), "password": a.Password,
	})) {
		t.Error("the other form got past the throttle")
	}
	if got := logIn(b.Email, b.Password); got.Status != http.StatusOK {
		t.Errorf("another account: %d", got.Status)
	}
	testkit.Eventually(t, "the pause ends", func() bool { return logIn(a.Email, a.Password).Status == http.StatusOK })

	for range 11 {
		wantProblem(t, http.StatusUnauthorized, "invalid_api_key", s.send("POST", "/auth/exchange", map[string]string{"api_key": key}))
	}
	if !throttled(s.send("POST", "/auth/exchange", map[string]string{"api_key": key})) {
		t.Error("the key was not throttled")
	}
	s.exchange(good)

	statuses := together(60, func(i int) int { return logIn(fmt.Sprintf("guess-%d@example.com", i), "wrong").Status })
	if refused := count(statuses, http.StatusTooManyRequests); refused == 0 || refused+count(statuses, http.StatusUnauthorized) != 60 {
		t.Errorf("guesses from one address: %v", statuses)
	}
	s.exchange(good) // servers behind one address are not held up
}

func TestSigningUpAndAddingMembersAreLimitedOverReplicas(t *testing.T) {
	t.Parallel()
	limited := func(c *app.Config) { c.RateLimit = true }
	s := keepContract(t, limited)
	replicas := []*service{s, keepContract(t, replicaOf(s), limited)}
	owner := s.signUp() // on this machine itself
	tries := func(what, code string, try func(i int) answer) {
		passed := 0
		for ; passed < 100; passed++ {
			got := try(passed)
			if got.Status == http.StatusTooManyRequests {
				wantProblem(t, http.StatusTooManyRequests, code, got)
				if wait, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || wait < 1 {
					t.Errorf("%s: Retry-After: %s", what, got.Header.Get("Retry-After"))
				}
				break
			}
		}
		if passed != 21 {
			t.Errorf("%s: %d passed", what, passed)
		}
	}
	tries("sign-ups through a proxy that nobody has named", "too_many_signups", func(i int) answer {
		return replicas[i%2].send("POST", "/auth/signup", map[string]string{"email": owner.Email, "password": "a good password", "company_name": "x"},
			header("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i)))
	})
	tries("adding members", "too_many_new_members", func(i int) answer {
		return owner.at(replicas[i%2]).sendTo("POST", "/members", map[string]string{"email": owner.Email, "password": "a good password", "role": "viewer"})
	})
	s.signUp() // here they go on
	if !strings.Contains(s.Logs.String(), "network=127.0.0.0/24") {
		t.Error("the log does not say where sign-ups come from")
	}
}

func count[T comparable](all []T, one T) (n int) {
	for _, v := range all {
		if v == one {
			n++
		}
	}
	return n
}

func TestSignUpsWaitByTheAddressThatTheProxySays(t *testing.T) {
	t.Parallel()
	s := keepContract(t, func(c *app.Config) {
		c.RateLimit, c.TrustedProxies = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	signUp := func(from string) answer {
		return s.send("POST", "/auth/signup", map[string]string{
			"email": "ada@example.com", "password": "correct horse battery", "company_name": "Acme",
		}, header("X-Forwarded-For", "198.51.100.1, "+from))
	}
	s.Logs.keepOut("198.51.100.1", "203.0.113.9", "203.0.113.10")
	want[httpapi.SignedUp](t, http.StatusCreated, signUp("203.0.113.9"))
	for range 20 {
		wantProblem(t, http.StatusConflict, "email_exists", signUp("203.0.113.9"))
	}
	limited := signUp("203.0.113.9")
	for range 5 { // a pause may be over before the next one comes; the next is twice as long
		if limited.Status == http.StatusConflict {
			limited = signUp("203.0.113.9")
		}
	}
	wantProblem(t, http.StatusTooManyRequests, "too_many_signups", limited)
	if limited.Header.Get("Retry-After") == "" {
		t.Error("nobody says when to try again")
	}
	wantProblem(t, http.StatusConflict, "email_exists", signUp("203.0.113.10"))
}
