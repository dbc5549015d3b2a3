package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kindred/golden"
	"kindred/testkit"
)

// Callers hold API keys, and verify tokens by themselves.
func TestAPIKeysAndTokensStay(t *testing.T) {
	key := testkit.Must(Generate(bytes.NewReader(bytes.Repeat([]byte{7}, 128)), ""))(t)
	lines := []string{
		"API key " + key, fmt.Sprintf("what is stored of it %x", Hash(key)), "its fingerprint " + Fingerprint(key),
	}
	w := newFixture(t)
	w.record.Implied = []string{"webhooks"}
	secret := testkit.Must(newSessionSecret(bytes.NewReader(bytes.Repeat([]byte{7}, 128)), w.account.Client, w.account.Member))(t)
	w.account.PasswordChanges = 2
	session := testkit.Must(w.issuer.Login(w.account, SessionRecord{Session: "ses_04hk8ls48pkqs04hk8ls48pkqs", ExpiresAt: w.Now().Add(time.Hour)}))(t)
	w.account.PasswordChanges = 0
	lines = append(lines, "secret of a session "+secret)
	for of, token := range map[string]string{"login": w.login(t), "exchange": w.exchanged(t), "session": session.Token} {
		for i, part := range strings.Split(token, ".")[:2] {
			raw := testkit.Must(base64.RawURLEncoding.DecodeString(part))(t)
			var fields map[string]any
			if err := json.Unmarshal(raw, &fields); err != nil {
				t.Fatal(err)
			}
			for name, value := range fields {
				switch name {
				case "kid", "jti", "iat", "exp", "sub", "aud", "azp", "sid":
					value = fmt.Sprintf("%T", value)
				}
				lines = append(lines, fmt.Sprintf("token of %s, %s %s: %v", of, []string{"header", "claim"}[i], name, value))
			}
		}
	}
	for _, role := range []string{"owner", "admin", "viewer", "auditor"} {
		lines = append(lines, fmt.Sprintf("scopes of role %s: %v", role, roleScopes(role)))
	}
	golden.Check(t, "tokens.txt", lines)
}
