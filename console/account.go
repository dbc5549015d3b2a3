package console

import (
	"cmp"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	kindred "kindred/sdk/go"
)

func (p *page) account() error {
	if p.who.Sandbox { // which has neither sessions nor passwords
		return p.show("account", "Account", say("titles.account"), nil)
	}
	sessions, _, err := collect(p.api.Members.ListSessions(p.r.Context(), kindred.ListSessionsParams{}), allOf)
	if err != nil {
		return err
	}
	var members map[string]*kindred.Member
	if p.who.Admin() { // who sees the sessions of all
		if members, err = p.members(); err != nil {
			return err
		}
	}
	return p.show("account", "Account", say("titles.account"), map[string]any{"Sessions": sessions, "Members": members})
}

// members are those of the client by their ids.
func (p *page) members() (map[string]*kindred.Member, error) {
	all, _, err := collect(p.api.Members.List(p.r.Context(), kindred.ListMembersParams{}), allOf)
	members := map[string]*kindred.Member{}
	for i := range all {
		members[all[i].ID] = &all[i]
	}
	return members, err
}

func (p *page) endSession() error {
	if err := p.api.Members.RevokeSession(p.r.Context(), p.r.PathValue("id")); err != nil {
		return p.again(err, p.account)
	}
	return p.done(Path+"account", "ended")
}

// changePassword ends the member's other sessions; the one of this page goes on.
func (p *page) changePassword() error {
	if _, err := p.api.Members.ChangePassword(p.r.Context(), kindred.PasswordChange{Current: p.r.Form.Get("current"), New: p.r.Form.Get("new")}); err != nil {
		if what := problemOf(err); what.Code == kindred.CodeWrongPassword {
			p.refused = problemOf(invalid("current", what.Detail))
			p.refused.Status = what.Status
			return p.account()
		}
		return p.again(err, p.account)
	}
	return p.done(Path+"account", "changed")
}

// live passes the client's events on as they come, for the page that shows them.
func (p *page) live() error {
	target := "/api/v1/events/stream"
	if after := cmp.Or(p.r.Header.Get("Last-Event-Id"), p.r.URL.Query().Get("after")); after != "" {
		target += "?after=" + url.QueryEscape(after)
	}
	resp, err := p.stream(target, "text/event-stream")
	if err != nil {
		return err
	}
	p.w.Header().Set("X-Accel-Buffering", "no")
	return p.pass(resp)
}

// stream asks the API for what goes to the browser as it comes.
func (p *page) stream(target, accept string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(p.r.Context(), http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("Accept", accept)
	return transport{p.API, p.ProxyHeaders, p.r, p.calls, p.conn}.RoundTrip(r)
}

// download passes a file on as the API writes it. What the API refuses is shown as a page, and is no file.
func (p *page) download(target, accept, name string) error {
	resp, err := p.stream(target, accept)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		var refused kindred.Error
		if err := json.NewDecoder(resp.Body).Decode(&refused); err != nil {
			return err
		}
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // none is 0
		refused.RetryAfter = time.Duration(seconds) * time.Second
		return &refused
	}
	p.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	return p.pass(resp)
}

// pass passes an answer on.
func (p *page) pass(resp *http.Response) error {
	defer resp.Body.Close()
	p.w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	p.w.WriteHeader(resp.StatusCode)
	conn, part := http.NewResponseController(p.w), make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(part)
		if n > 0 {
			if _, err := p.w.Write(part[:n]); err != nil {
				return nil // the reader has gone
			}
			if err := conn.Flush(); err != nil {
				return nil // the reader has gone
			}
		}
		if err != nil {
			if err != io.EOF {
				panic(http.ErrAbortHandler)
			}
			return nil
		}
	}
}
