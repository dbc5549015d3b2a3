package e2e

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"kindred/httpapi"
)

// account is a client of the service, seen by its owner.
type account struct {
	*service
	httpapi.SignedUp
	Email, Password string
}

// signUp makes a client with an owner of its own.
func (s *service) signUp() account {
	s.Helper()
	a := account{service: s, Email: "owner-" + strings.ToLower(rand.Text()) + "@example.com", Password: "pw-" + rand.Text()}
	a.SignedUp = want[httpapi.SignedUp](s, http.StatusCreated, s.send("POST", "/auth/signup", map[string]string{
		"email": a.Email, "password": a.Password, "company_name": "Company " + rand.Text()[:8],
	}))
	s.Logs.keepOut(a.Email, a.Password, a.Token)
	return a
}

// at is the same account at another replica.
func (a account) at(s *service) account {
	a.service = s
	return a
}

// with is the account with another token.
func (a account) with(token string) account {
	a.Token = token
	return a
}

// send sends a request with the account's token.
func (a account) send(method, path string, body any, options ...option) answer {
	a.Helper()
	return a.service.send(method, path, body, append([]option{bearer(a.Token)}, options...)...)
}

// try is send for a service that may be gone.
func (a account) try(method, path string, body any, options ...option) (answer, error) {
	return a.service.try(method, path, body, append([]option{bearer(a.Token)}, options...)...)
}

func (a account) get(path string, options ...option) answer {
	a.Helper()
	return a.send("GET", path, nil, options...)
}

// under is a path below the client's own.
func (a account) under(path string) string {
	return "/api/v1/clients/" + string(a.Client.ID) + path
}

// sendTo sends to a path below the client's own.
func (a account) sendTo(method, path string, body any, options ...option) answer {
	a.Helper()
	return a.send(method, a.under(path), body, options...)
}

// createAPIKey makes an API key; without scopes, one with the default ones.
func (a account) createAPIKey(scopes ...string) httpapi.APIKeyCreated {
	a.Helper()
	body := map[string]any{"name": "key " + rand.Text()[:8]}
	if len(scopes) > 0 {
		body["scopes"] = scopes
	}
	key := want[httpapi.APIKeyCreated](a, http.StatusCreated, a.send("POST", a.under("/api_keys"), body))
	a.Logs.keepOut(key.RawKey)
	return key
}

// exchange returns the token of an API key.
func (s *service) exchange(rawKey string) string {
	s.Helper()
	token := want[httpapi.Exchanged](s, http.StatusOK, s.send("POST", "/auth/exchange", map[string]string{"api_key": rawKey})).Data.Token
	s.Logs.keepOut(token)
	return token
}

// createUser makes an end user; traits may be nil.
func (a account) createUser(external string, traits any) httpapi.User {
	a.Helper()
	body := map[string]any{"external_id": external}
	if traits != nil {
		body["traits"] = traits
	}
	return want[httpapi.User](a, http.StatusCreated, a.send("POST", "/api/v1/users", body))
}

// addMember adds a dashboard user and logs them in.
func (a account) addMember(role string) account {
	a.Helper()
	m := a
	m.Email, m.Password = role+"-"+strings.ToLower(rand.Text())+"@example.com", "pw-"+rand.Text()
	member := want[httpapi.Member](a, http.StatusCreated, a.send("POST", a.under("/members"),
		map[string]string{"email": m.Email, "role": role, "password": m.Password}))
	m.User = httpapi.ClientUser{ID: member.ID, Email: member.Email, Role: member.Role}
	login := want[httpapi.LoggedIn](a, http.StatusOK, a.service.send("POST", "/auth/token",
		map[string]string{"email": m.Email, "password": m.Password}))
	m.Token, m.Scopes = login.Token, login.Scopes
	a.Logs.keepOut(m.Email, m.Password, m.Token)
	return m
}

// subscribe makes a webhook subscription; without a secret where it is empty.
func (a account) subscribe(url, secret string, types ...string) httpapi.Webhook {
	a.Helper()
	if len(types) == 0 {
		types = []string{"match.computed"}
	}
	body := map[string]any{"url": url, "event_types": types}
	if secret != "" {
		body["secret"] = secret
		a.Logs.keepOut(secret)
	}
	return want[httpapi.Webhook](a, http.StatusCreated, a.send("POST", a.under("/webhooks"), body))
}

// each reads a list to its end, page by page.
func each[T any](t testing.TB, a account, path string, limit int) []T {
	t.Helper()
	var all []T
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	next := fmt.Sprintf("%s%slimit=%d", path, separator, limit)
	for range 10_000 {
		page := want[struct {
			Data       []T     `json:"data"`
			NextCursor *string `json:"next_cursor"`
		}](t, http.StatusOK, a.get(next))
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			return all
		}
		next = fmt.Sprintf("%s%slimit=%d&cursor=%s", path, separator, limit, *page.NextCursor)
	}
	t.Fatalf("%s has no end", path)
	return nil
}
