package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	kindred "kindred/sdk/go"
)

// errSignedOut: nobody is signed in.
var errSignedOut = errors.New("nobody is signed in")

// identity is who looks at a page.
type identity struct {
	Client, ClientName, Email, Role, Member string
	Scopes                                  []string
}

// cookie is the name of the cookie that holds the session's secret.
func (s *Console) cookie() string {
	if s.secure {
		return "__Host-kindred"
	}
	return "kindred"
}

func (s *Console) setCookie(w http.ResponseWriter, value string, age time.Duration) {
	c := &http.Cookie{ //nolint:gosec // Secure wherever there is TLS
		Name: s.cookie(), Value: value, Path: "/", HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode, MaxAge: int(age / time.Second),
	}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// zoneCookie holds the reader's time zone, by its name in the IANA database.
const zoneCookie = "kindred-zone"

// zoneOf is the zone in which times are shown; UTC where the browser did not say.
func zoneOf(r *http.Request) *time.Location {
	if c, err := r.Cookie(zoneCookie); err == nil && len(c.Value) < 64 && c.Value != "Local" {
		if zone, err := time.LoadLocation(c.Value); err == nil {
			return zone
		}
	}
	return time.UTC
}

// identify finds who asks for the page, and calls the API with their token from now on.
func (p *page) identify() error {
	c, err := p.r.Cookie(p.cookie())
	if err != nil || c.Value == "" {
		return errSignedOut
	}
	p.token = c.Value
	if p.who, err = claimsOf(p.token); err != nil {
		return err
	}
	if p.api, err = p.client(p.r, p.calls, p.token); err != nil {
		return err
	}
	client, err := p.api.Client.Get(p.r.Context())
	if err != nil {
		return err
	}
	p.who.ClientName = client.Name
	return nil
}

// claimsOf reads what a token says. The API verifies it with each call.
func claimsOf(token string) (who identity, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return who, errSignedOut
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return who, errSignedOut
	}
	var claims struct {
		Subject  string `json:"sub"`
		Audience string `json:"aud"`
		Scope    string `json:"scope"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return who, errSignedOut
	}
	return identity{Client: claims.Audience, Member: claims.Subject, Scopes: strings.Fields(claims.Scope)}, nil
}

// signIn leads to the form, and back to this page afterwards.
func (p *page) signIn() {
	to := Path + "sign-in"
	if p.r.Method == http.MethodGet && p.r.URL.Path != Path {
		to += "?to=" + url.QueryEscape(p.r.URL.RequestURI())
	}
	http.Redirect(p.w, p.r, to, http.StatusSeeOther)
}

func (p *page) signOut() { p.setCookie(p.w, "", 0) }

// entrance is what the pages before signing in show.
type entrance struct{ To string }

// within is where a page of the console leads, or the overview: never elsewhere.
func within(to string) string {
	if u, err := url.Parse(to); err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(path.Clean(u.Path)+"/", Path) || strings.Contains(to, `\`) {
		return Path
	}
	return to
}

// open serves a page to who is not signed in.
func (s *Console) open(do func(*page) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
		p := &page{Console: s, w: w, r: r, calls: &calls{}}
		err := r.ParseForm()
		if err == nil {
			p.api, err = s.client(r, p.calls, "")
		}
		if err == nil {
			err = do(p)
		}
		if err != nil {
			p.problem(problemOf(err))
		}
	}
}

func (p *page) showSignIn() error {
	return p.show("sign-in", "", "Sign in", entrance{within(p.r.Form.Get("to"))})
}

func (p *page) showSignUp() error { return p.show("sign-up", "", "Sign up", nil) }

func (p *page) doSignIn() error {
	in, err := p.api.Authentication.LogIn(p.r.Context(), kindred.TokenRequest{Email: new(p.form("email")), Password: p.r.Form.Get("password")})
	if err != nil {
		if what := problemOf(err); what.Status == http.StatusUnauthorized {
			p.refused = &Problem{Status: http.StatusUnauthorized, Title: "E-mail address or password is wrong", Detail: "Nothing was signed in. After several wrong tries there is a pause."}
			return p.showSignIn()
		}
		return p.again(err, p.showSignIn)
	}
	p.setCookie(p.w, in.Token, time.Duration(in.ExpiresIn)*time.Second)
	http.Redirect(p.w, p.r, within(p.r.Form.Get("to")), http.StatusSeeOther)
	return nil
}

func (p *page) doSignUp() error {
	up, err := p.api.Authentication.SignUp(p.r.Context(), kindred.SignupRequest{
		Email: p.form("email"), Password: p.r.Form.Get("password"), CompanyName: p.form("company_name"),
	})
	if err != nil {
		return p.again(err, p.showSignUp)
	}
	p.setCookie(p.w, up.Token, time.Duration(up.ExpiresIn)*time.Second)
	http.Redirect(p.w, p.r, Path+"first-steps", http.StatusSeeOther)
	return nil
}

func (p *page) doSignOut() error {
	p.signOut()
	http.Redirect(p.w, p.r, Path+"sign-in?done=left", http.StatusSeeOther)
	return nil
}
