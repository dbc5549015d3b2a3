package console

import (
	"net/http"
	"time"

	kindred "kindred/sdk/go"
)

// sandboxCookie holds the id of the sandbox whose pages are shown. It opens nothing: the
// session does.
const sandboxCookie = "kindred-sandbox"

func (p *page) setSandbox(sandbox string, age int) {
	http.SetCookie(p.w, &http.Cookie{ //nolint:gosec // Secure wherever there is TLS
		Name: sandboxCookie, Value: sandbox, Path: Path, HttpOnly: true, Secure: p.secure, SameSite: http.SameSiteLaxMode, MaxAge: age,
	})
}

func (p *page) leaveSandbox() { p.setSandbox("", -1) }

// sandboxes are what the settings show of the sandboxes beside a client, or of the
// sandbox itself.
type sandboxes struct {
	List  []kindred.Sandbox
	Clock *kindred.Clock // of the sandbox whose settings these are
}

func (p *page) sandboxes() (s sandboxes, err error) {
	if p.who.Sandbox {
		s.Clock, err = p.api.Sandboxes.GetClock(p.r.Context())
		return s, err
	}
	s.List, _, err = collect(p.api.Sandboxes.List(p.r.Context(), kindred.ListSandboxesParams{}), allOf)
	return s, err
}

// clock is what the client's clock says: that of a sandbox may be years ahead.
func (p *page) clock() (time.Time, error) {
	if !p.who.Sandbox {
		return p.Now(), nil
	}
	clock, err := p.api.Sandboxes.GetClock(p.r.Context())
	return clock.Now, err
}

func (p *page) createSandbox() error {
	lasts, err := p.typedSpan("days", 24*time.Hour, 365, nil)
	if err != nil {
		return p.again(err, p.settings)
	}
	body := kindred.NewSandbox{Name: p.form("sandbox_name")}
	if seconds, ends := lasts.Get(); ends {
		body.ExpiresIn = &seconds
	}
	if _, err := p.api.Sandboxes.Create(p.r.Context(), body, p.once()); err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "created")
}

func (p *page) openSandbox() error {
	p.setSandbox(p.r.PathValue("id"), 0)
	http.Redirect(p.w, p.r, Path, http.StatusSeeOther)
	return nil
}

func (p *page) closeSandbox() error {
	p.leaveSandbox()
	to := "settings"
	if p.form("to") == "account" {
		to = "account"
	}
	http.Redirect(p.w, p.r, Path+to, http.StatusSeeOther)
	return nil
}

func (p *page) deleteSandbox() error {
	found, err := p.api.Sandboxes.Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := p.confirmed(found.ID, found.Name, say("settings.type_the_name")); err != nil {
		return p.again(err, p.settings)
	}
	if err := p.api.Sandboxes.Delete(p.r.Context(), found.ID); err != nil {
		return err
	}
	return p.done(Path+"settings", "removed")
}

func (p *page) moveClock() error {
	hours, err := p.whole("hours")
	if err != nil {
		return p.again(err, p.settings)
	}
	clock, err := p.api.Sandboxes.GetClock(p.r.Context())
	if err != nil {
		return err
	}
	if hours == nil || *hours < 1 || *hours > 24*366 {
		return p.again(invalid("hours", say("settings.hours_from_to")), p.settings)
	}
	if _, err := p.api.Sandboxes.MoveClock(p.r.Context(), kindred.ClockMove{To: clock.Now.Add(time.Duration(*hours) * time.Hour)}, p.once()); err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "saved")
}
