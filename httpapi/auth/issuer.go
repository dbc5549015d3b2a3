package auth

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"kindred/domain/id"
)

// Session is a token and what its holder is told about it.
type Session struct {
	Token     string
	ExpiresIn int // seconds
	Scopes    []string
}

// Issuer signs tokens.
type Issuer struct {
	Keys *Keyring
	URL  string // the public URL of the service: the issuer claim
}

const leeway = time.Second // beyond exp, which is cut to whole seconds

// claims of a token (RFC 7519). The audience is a plain string, times are
// seconds since 1970.
type claims struct {
	Issuer   string    `json:"iss"`
	Subject  id.Member `json:"sub"` // of an exchange token: who made the API key
	Audience id.Client `json:"aud"`
	Livemode bool      `json:"livemode"` // the client is no sandbox
	// Parent is the client beside which a sandbox stands that a member logged in to.
	Parent id.Client `json:"parent,omitempty"`
	Party  id.Key    `json:"azp,omitempty"` // the API key of an exchange token
	// Session is the member's session that a token was got with.
	Session id.Session `json:"sid,omitempty"`
	// PasswordChanges says of a member's token how often the password was changed before.
	PasswordChanges int    `json:"pwd,omitempty"`
	Scope           string `json:"scope"`             // separated by spaces
	Implied         string `json:"implied,omitempty"` // scopes beside those
	ID              string `json:"jti"`
	IssuedAt        int64  `json:"iat"`
	Expires         int64  `json:"exp"`
}

// Login signs a member's token with EdDSA. Its scopes follow from the role. It does not
// outlive the session that it was got with, if any.
func (i *Issuer) Login(a Account, with SessionRecord) (Session, error) {
	scopes := roleScopes(a.Role)
	if scopes == nil {
		return Session{}, fmt.Errorf("role %q of member %s is not known", a.Role, a.Member)
	}
	c := claims{Subject: a.Member, Audience: a.Client, PasswordChanges: a.PasswordChanges, Session: with.Session}
	if a.Home != a.Client {
		c.Parent = a.Home
	}
	if with.Session != "" {
		c.Expires = with.ExpiresAt.Add(-leeway).Unix()
	}
	return i.sign(loginAlgorithm, c, scopes, nil)
}

// Exchange signs an API key's token with ES256. Its scopes are the key's; it does
// not outlive the key.
func (i *Issuer) Exchange(k KeyRecord) (Session, error) {
	c := claims{Subject: k.IssuedBy, Audience: k.Client, Party: k.Key}
	if !k.Expires.IsZero() {
		c.Expires = k.Expires.Add(-leeway).Unix()
	}
	return i.sign(exchangeAlgorithm, c, k.Scopes, k.Implied)
}

func roleScopes(role string) []string {
	switch role {
	case "owner", "admin":
		return []string{"admin", "read", "write"}
	case "viewer":
		return []string{"read"}
	case "auditor":
		return []string{"read", "audit"}
	}
	return nil
}

// sign signs a token of scopes, and of those that they imply, which its holder is
// not told of. Claims that say when it expires bound its lifetime.
func (i *Issuer) sign(alg jose.SignatureAlgorithm, c claims, scopes, implied []string) (Session, error) {
	key, err := i.Keys.signer(alg)
	if err != nil {
		return Session{}, err
	}
	var jti [16]byte
	if _, err := io.ReadFull(i.Keys.Entropy, jti[:]); err != nil {
		return Session{}, fmt.Errorf("read entropy: %w", err)
	}
	lifetime := int64(i.Keys.TokenTTL / time.Second)
	c.Issuer, c.Livemode = i.URL, !c.Audience.Sandbox()
	c.Scope, c.Implied = strings.Join(scopes, " "), strings.Join(implied, " ")
	c.ID = base64.RawURLEncoding.EncodeToString(jti[:])
	c.IssuedAt = i.Keys.Now().Unix()
	if c.Expires == 0 || c.Expires > c.IssuedAt+lifetime {
		c.Expires = c.IssuedAt + lifetime
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return Session{}, fmt.Errorf("encode claims: %w", err)
	}
	signed, err := key.signer.Sign(payload)
	if err != nil {
		return Session{}, fmt.Errorf("sign a token: %w", err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		return Session{}, fmt.Errorf("write a token: %w", err)
	}
	return Session{Token: token, ExpiresIn: int(c.Expires - c.IssuedAt), Scopes: scopes}, nil
}
