package console

import (
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
	Sandbox                                 bool // the pages are of a sandbox beside the client that was signed in to
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

// zoneOf is the zone in which times are shown; UTC where the browser did not say, or named one that the API takes for none:
// localtime and posix/… are files of the host, as Local is its zone.
func zoneOf(r *http.Request) *time.Location {
	if c, err := r.Cookie(zoneCookie); err == nil && len(c.Value) < 64 && c.Value >= "A" && c.Value < "[" {
		if zone, err := time.LoadLocation(c.Value); err == nil && zone != time.Local {
			return zone
		}
	}
	return time.UTC
}

// identify finds who asks for the page, and calls the API with a token of theirs from now
// on. The cookie holds the session's secret; a token lives for one page.
func (p *page) identify() error {
	c, err := p.r.Cookie(p.cookie())
	if err != nil || c.Value == "" {
		return errSignedOut
	}
	anybody, err := p.client(p.r, p.calls, "")
	if err != nil {
		return err
	}
	asking := kindred.SessionTokenRequest{Secret: c.Value}
	if inside, err := p.r.Cookie(sandboxCookie); err == nil && inside.Value != "" && !p.home {
		asking.ClientID = &inside.Value
	}
	in, err := anybody.Authentication.GetSessionToken(p.r.Context(), asking)
	if refused := (*kindred.Error)(nil); asking.ClientID != nil && errors.As(err, &refused) && refused.Code == kindred.CodeOtherClient {
		p.leaveSandbox() // it was deleted, or another's
		p.gone = true
		asking.ClientID = nil
		in, err = anybody.Authentication.GetSessionToken(p.r.Context(), asking)
	}
	if err != nil {
		return err
	}
	p.token = in.Token
	p.who = identity{Client: in.Client.ID, ClientName: in.Client.Name, Email: in.User.Email, Role: string(in.User.Role), Member: in.User.ID, Scopes: in.Scopes, Sandbox: asking.ClientID != nil}
	p.api, err = p.client(p.r, p.calls, p.token)
	return err
}

// signIn leads to the form, and back to this page afterwards, or to that of the form that was sent.
func (p *page) signIn() {
	asked := url.Values{}
	if p.r.URL.Path != Path {
		asked.Set("to", p.r.URL.RequestURI())
	}
	switch {
	case p.r.URL.Path == Path+"sign-out":
		asked = url.Values{"done": {"left"}}
	case p.r.Method == http.MethodPost:
		asked.Set("done", "untaken")
	}
	http.Redirect(p.w, p.r, strings.TrimSuffix(Path+"sign-in?"+asked.Encode(), "?"), http.StatusSeeOther)
}

func (p *page) signOut() {
	p.setCookie(p.w, "", 0)
	p.leaveSandbox()
}

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
	return s.withForm(largestEntrance, func(w http.ResponseWriter, r *http.Request) {
		p := &page{Console: s, w: w, r: r, calls: &calls{}}
		var err error
		if p.api, err = s.client(r, p.calls, ""); err == nil {
			err = do(p)
		}
		if err != nil {
			p.problem(problemOf(err))
		}
	})
}

func (p *page) showSignIn() error {
	return p.show("sign-in", "", say("titles.sign_in"), entrance{within(p.r.Form.Get("to"))})
}

func (p *page) showSignUp() error { return p.show("sign-up", "", say("titles.sign_up"), nil) }

// openSession opens one with the e-mail address and the password that were typed.
func (p *page) openSession() error {
	opened, err := p.api.Authentication.CreateSession(p.r.Context(), kindred.TokenRequest{Email: new(p.form("email")), Password: p.r.Form.Get("password")})
	if err != nil {
		return err
	}
	p.setCookie(p.w, opened.Secret, opened.Session.ExpiresAt.Sub(p.Now()))
	return nil
}

func (p *page) doSignIn() error {
	if err := p.openSession(); err != nil {
		if what := problemOf(err); what.Status == http.StatusUnauthorized {
			p.refused = &Problem{Status: http.StatusUnauthorized, Title: say("sign_in.e_mail_address_or"), Detail: say("sign_in.nothing_was_signed_in")}
			return p.showSignIn()
		}
		return p.again(err, p.showSignIn)
	}
	http.Redirect(p.w, p.r, within(p.r.Form.Get("to")), http.StatusSeeOther)
	return nil
}

func (p *page) doSignUp() error {
	if _, err := p.api.Authentication.SignUp(p.r.Context(), kindred.SignupRequest{
		Email: p.form("email"), Password: p.r.Form.Get("password"), CompanyName: p.form("company_name"),
	}); err != nil {
		return p.again(err, p.showSignUp)
	}
	if err := p.openSession(); err != nil {
		return p.again(err, p.showSignIn)
	}
	http.Redirect(p.w, p.r, Path+"first-steps", http.StatusSeeOther)
	return nil
}

func (p *page) doSignOut() error {
	if p.home = true; p.who.Sandbox { // the session is of the client beside it
		if err := p.identify(); err != nil {
			return err
		}
	}
	for one, err := range p.api.Members.ListSessions(p.r.Context(), kindred.ListSessionsParams{Limit: new(int64(allOf))}) { // all of the client's, to an admin
		if err != nil {
			return err
		}
		if one.Current {
			if err := p.api.Members.RevokeSession(p.r.Context(), one.ID); err != nil {
				return err
			}
			break
		}
	}
	p.signOut()
	http.Redirect(p.w, p.r, Path+"sign-in?done=left", http.StatusSeeOther)
	return nil
}
