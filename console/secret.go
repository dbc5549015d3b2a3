package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	kindred "kindred/sdk/go"
)

// note is a secret on its way from the form that made it to the page that shows it once. A
// cookie carries it there, so that to load that page again sends no form again, and any
// replica can show it.
type note struct {
	Kind   string `json:"k"` // key, endpoint or rotated
	Member string `json:"m"` // who made it
	Name   string `json:"n"`
	Of     string `json:"o"` // the endpoint's id
	Secret string `json:"s"`
}

const (
	// noteFor is how long a browser keeps a note that it does not ask for.
	// limit: edge | a secret on its way to the page that shows it once | {noteFor}
	noteFor = time.Minute
	// longestNote bounds its name, in characters, and largestNote all of it, in bytes: a
	// cookie holds 4 KiB.
	longestNote = 100
	largestNote = 3_800
	notePath    = Path + "secret"
)

func (s *Console) noteCookie(value string, age time.Duration) *http.Cookie {
	name := "kindred-note"
	if s.secure {
		name = "__Secure-kindred-note"
	}
	c := &http.Cookie{ //nolint:gosec // Secure wherever there is TLS
		Name: name, Value: value, Path: notePath, HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode, MaxAge: int(age / time.Second),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// reveal leads to the page that shows a secret, or shows one that no cookie can hold.
func (p *page) reveal(n note) error {
	n.Member = p.who.Member
	if name := []rune(n.Name); len(name) > longestNote {
		n.Name = string(name[:longestNote]) + "…"
	}
	raw, err := json.Marshal(n) //nolint:gosec // it goes to who made the secret
	if err != nil {
		return err
	}
	value := base64.RawURLEncoding.EncodeToString(raw)
	if len(value) > largestNote {
		return p.showSecret(n)
	}
	http.SetCookie(p.w, p.noteCookie(value, noteFor))
	http.Redirect(p.w, p.r, notePath, http.StatusSeeOther)
	return nil
}

// secret shows what a note holds, and takes the note away.
func (p *page) secret() error {
	n := p.note()
	http.SetCookie(p.w, p.noteCookie("", 0))
	if n.Secret == "" || n.Member != p.who.Member {
		return &kindred.Error{Status: http.StatusGone, Detail: say("secret.a_secret_is_shown")}
	}
	return p.showSecret(n)
}

// note is the one that the browser carries; a zero one where it carries none.
func (p *page) note() (n note) {
	c, err := p.r.Cookie(p.noteCookie("", 0).Name)
	if err != nil {
		return note{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || json.Unmarshal(raw, &n) != nil {
		return note{}
	}
	return n
}

func (p *page) showSecret(n note) error {
	at := Path + "webhooks/" + url.PathEscape(n.Of)
	switch n.Kind {
	case "key":
		return p.show("secret", "Developers", say("titles.the_api_key"), map[string]any{
			"What": say("developers.the_api_key", n.Name), "Secret": n.Secret, "Next": Path + "developers", "Use": say("developers.your_servers_exchange_it"),
		})
	case "rotated":
		return p.show("secret", "Webhooks", say("titles.the_new_signing_secret"), map[string]any{
			"What": say("webhook.the_new_signing_secret", n.Name), "Secret": n.Secret, "Next": at, "Use": say("webhook.for_hours_deliveries_are"),
		})
	}
	return p.show("secret", "Webhooks", say("titles.the_signing_secret"), map[string]any{
		"What": say("webhook.the_signing_secret_of", n.Name), "Secret": n.Secret, "Next": at, "Use": say("webhook.your_server_verifies_deliveries"),
	})
}
