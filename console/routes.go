package console

import (
	"net/http"
	"path"
	"strings"
)

// route says which page answers what. What follows a page's path names what is done there.
func (s *Console) route() {
	shown, sent := map[string]bool{}, []string{}
	get := func(path string, do func(*page) error) {
		shown[path] = true
		s.mux.Handle("GET "+Path+path, s.handle(do))
	}
	post := func(path string, do func(*page) error) {
		sent = append(sent, path)
		s.mux.Handle("POST "+Path+path, s.handle(do))
	}

	s.mux.Handle("GET "+Path+"sign-in", s.open((*page).showSignIn))
	s.mux.Handle("POST "+Path+"sign-in", s.open((*page).doSignIn))
	s.mux.Handle("GET "+Path+"sign-up", s.open((*page).showSignUp))
	s.mux.Handle("POST "+Path+"sign-up", s.open((*page).doSignUp))
	post("sign-out", (*page).doSignOut)

	get("{$}", (*page).overview)
	get("first-steps", (*page).firstSteps)

	get("users", (*page).users)
	get("users.csv", (*page).downloadUsers)
	post("users", (*page).createUser)
	post("users/import", (*page).importUsers)
	post("users/import/preview", (*page).previewImport)
	get("imports/{id}", (*page).showImport)
	get("users/{id}", (*page).user)
	post("users/{id}", (*page).changeUser)
	post("users/{id}/match", (*page).matchUser)
	post("users/{id}/erase", (*page).eraseUser)
	post("users/{id}/consent", (*page).changeConsent)

	get("traits", (*page).traits)
	post("traits", (*page).changeTrait)

	get("segments", (*page).segments)
	post("segments", (*page).createSegment)
	get("segments/{id}", (*page).segment)
	get("segments/{id}/members.csv", (*page).downloadMembers)
	post("segments/{id}", (*page).changeSegment)
	post("segments/{id}/retire", (*page).retireSegment)

	get("clusters", (*page).clusters)
	get("clusters/{id}", (*page).cluster)
	post("runs", (*page).startRun)
	get("runs/{id}", (*page).run)
	post("runs/{id}/cancel", (*page).cancelRun)
	post("runs/{id}/verdict/cancel", (*page).cancelVerdict)

	get("campaigns", (*page).campaigns)
	post("campaigns", (*page).createCampaign)
	get("campaigns/{id}", (*page).campaign)
	post("campaigns/{id}", (*page).changeCampaign)

	get("webhooks", (*page).webhooks)
	post("webhooks", (*page).createWebhook)
	get("webhooks/{id}", (*page).webhook)
	post("webhooks/{id}", (*page).changeWebhook)
	post("webhooks/{id}/{action}", (*page).actOnWebhook)
	get("webhooks/{id}/deliveries/{delivery}", (*page).delivery)
	post("webhooks/{id}/deliveries/{delivery}/redeliver", (*page).redeliver)

	get("developers", (*page).developers)
	post("developers/keys", (*page).createKey)
	post("developers/keys/{id}/revoke", (*page).revokeKey)
	get("requests", (*page).requestLog)
	get("secret", (*page).secret)
	get("live", (*page).live)

	get("history", (*page).history)
	get("history.ndjson", (*page).downloadHistory)
	get("history/{ordinal}", (*page).historyEvent)
	get("history-at", (*page).historyAt)

	get("settings", (*page).settings)
	post("settings", (*page).changeSettings)
	post("settings/members", (*page).addMember)
	post("settings/members/{id}/remove", (*page).removeMember)
	post("settings/layers", (*page).createLayer)
	post("settings/layers/{id}", (*page).changeLayer)
	post("settings/layers/{id}/grant", (*page).grantLayer)
	post("settings/layers/{id}/retire", (*page).retireLayer)
	post("settings/projections/{name}/rebuild", (*page).rebuild)
	post("settings/sandboxes", (*page).createSandbox)
	post("settings/sandboxes/{id}/open", (*page).openSandbox)
	post("settings/sandboxes/{id}/delete", (*page).deleteSandbox)
	post("settings/clock", (*page).moveClock)
	post("leave-sandbox", (*page).closeSandbox)

	get("account", (*page).account)
	post("account/password", (*page).changePassword)
	post("account/sessions/{id}/end", (*page).endSession)

	// A form that was refused is shown where it was sent to. Whoever asks for that address, as a part does that is read
	// again, is led to the page of the form.
	s.mux.HandleFunc("GET "+Path+"runs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, Path+"clusters?"+r.URL.RawQuery, http.StatusSeeOther) //nolint:gosec // within the console
	})
	for _, to := range sent {
		if to != "runs" && !shown[to] {
			s.mux.HandleFunc("GET "+Path+to, leadUp(to, shown))
		}
	}

	s.mux.HandleFunc("GET "+Path+"static/", s.serveAsset)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if _, pattern := s.mux.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host}); pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.refuse(w, r, http.StatusMethodNotAllowed, say("problem.this_is_not_how"), say("problem.open_the_console_itself"))
			return
		}
		s.refuse(w, r, http.StatusNotFound, say("problem.there_is_no_such"), say("problem.it_may_have_been"))
	})
}

// leadUp leads to the nearest page above the address of a form, or to the overview.
func leadUp(to string, shown map[string]bool) http.HandlerFunc {
	up := 0
	for ; !shown[to] && to != "."; up++ {
		to = path.Dir(to)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		at := strings.TrimPrefix(r.URL.EscapedPath(), Path)
		for range up {
			at = path.Dir(at)
		}
		http.Redirect(w, r, Path+strings.TrimPrefix(at, "."), http.StatusSeeOther) //nolint:gosec // within the console
	}
}
