package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
	"kindred/testkit"
)

func (a account) openSession() httpapi.SessionOpened {
	a.Helper()
	opened := want[httpapi.SessionOpened](a, http.StatusCreated,
		a.service.send("POST", "/auth/sessions", map[string]string{"email": a.Email, "password": a.Password}))
	a.Logs.keepOut(opened.Secret)
	return opened
}

func (s *service) sessionToken(secret string) answer {
	return s.send("POST", "/auth/sessions/token", map[string]string{"secret": secret})
}

// by is the account with a token of a session.
func (a account) by(opened httpapi.SessionOpened) account {
	a.Helper()
	token := want[httpapi.LoggedIn](a, http.StatusOK, a.sessionToken(opened.Secret)).Token
	a.Logs.keepOut(token)
	return a.with(token)
}

// wantOut waits until a token that was ended opens nothing. What is asked a second later
// has to be refused, however long the answer takes.
func (a account) wantOut(what string) {
	a.Helper()
	ended := time.Now()
	testkit.Eventually(a, what+" opens nothing", func() bool {
		asked := time.Now()
		got := a.get("/api/v1/users", eventual())
		if got.Status != http.StatusOK {
			wantProblem(a, http.StatusUnauthorized, "invalid_token", got)
			return true
		}
		if late := asked.Sub(ended); late > time.Second {
			a.Errorf("%s opened things after %s", what, late)
			return true
		}
		return false
	})
}

func (a account) listedSessions() (ids []httpapi.SessionID) {
	a.Helper()
	for _, s := range each[httpapi.Session](a, a, a.under("/sessions"), 2) {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestASessionThatEndsIsOutEverywhereWithinASecond(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	owner := first.signUp()
	made := owner.createSandbox("ci")
	for name, end := range map[string]func(a account, s httpapi.SessionOpened){
		"a session that its member ended": func(a account, s httpapi.SessionOpened) {
			wantDone(t, a.sendTo("DELETE", "/sessions/"+string(s.Session.ID), nil))
		},
		"a session that an admin ended": func(_ account, s httpapi.SessionOpened) {
			wantDone(t, owner.sendTo("DELETE", "/sessions/"+string(s.Session.ID), nil))
		},
		"a session of a member who was removed": func(a account, _ httpapi.SessionOpened) {
			wantDone(t, owner.sendTo("DELETE", "/members/"+string(a.User.ID), nil))
		},
		"a session from before a change of the password": func(a account, _ httpapi.SessionOpened) {
			const password = "a wholly other horse"
			first.Logs.keepOut(password)
			want[httpapi.LoggedIn](t, http.StatusOK, a.sendTo("PUT", "/members/me/password", map[string]string{"current": a.Password, "new": password}))
		},
	} {
		member := owner.addMember("viewer")
		opened := member.openSession()
		token := member.at(second).by(opened)
		here := member.with(token.Token)
		in := want[httpapi.LoggedIn](t, http.StatusOK, second.send("POST", "/auth/sessions/token",
			map[string]string{"secret": opened.Secret, "client_id": string(made.ID)})).Token
		first.Logs.keepOut(in)
		inside := token.with(in)
		inside.Client.ID = made.ID
		for _, a := range []account{here, token, inside} {
			if got := a.get("/api/v1/users"); got.Status != http.StatusOK {
				t.Fatalf("%s, before: %d %s", name, got.Status, got.Body)
			}
		}
		streams := []*stream{token.stream(""), here.stream(""), inside.stream("")}
		end(member, opened)
		ended := time.Now()
		for _, a := range []account{here, token, inside} {
			a.wantOut(name)
		}
		for _, s := range streams {
			s.wantEnded(ended)
		}
		for _, s := range []*service{first, second} {
			wantProblem(t, http.StatusUnauthorized, "invalid_session", s.sessionToken(opened.Secret))
		}
	}
	if left := owner.at(second).listedSessions(); len(left) != 0 {
		t.Errorf("listed are %v", left)
	}
}

// A member's other sessions go on, and so do their streams.
func TestASessionThatEndsTakesItsOwnStreamsAlone(t *testing.T) {
	t.Parallel()
	p := newPairs(keepContract(t))
	ended, kept := p.openSession(), p.openSession()
	var ending, going []*stream
	for range 4 {
		ending, going = append(ending, p.by(ended).stream("")), append(going, p.by(kept).stream(""))
	}
	in := p.inside(p.createSandbox("ci"))
	wantDone(t, p.sendTo("DELETE", "/sessions/"+string(ended.Session.ID), nil))
	began := time.Now()
	for _, s := range ending {
		s.wantEnded(began)
	}
	p.match("ann", "bob")
	for _, s := range going {
		if _, ok := s.next(); !ok {
			t.Error("the stream of another session of the member has ended")
		}
	}
	if got := in.get("/api/v1/users"); got.Status != http.StatusOK {
		t.Errorf("in a sandbox: %d %s", got.Status, got.Body)
	}
}

func TestSessionsAreListedToThoseWhoseTheyAreAndToAdmins(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	owner := s.signUp()
	viewer := owner.addMember("viewer")
	admin := owner.addMember("admin")
	ofOwner, ofViewer, another := owner.openSession(), viewer.openSession(), viewer.openSession()

	got := viewer.by(ofViewer).get(viewer.under("/sessions"))
	wantShape(t, got.Body, "data[].id string", "data[].member_id string", "data[].current bool", "data[].created_at string",
		"data[].last_seen_at string", "data[].expires_at string", "next_cursor null")
	listed := want[httpapi.SessionList](t, http.StatusOK, got).Data
	if len(listed) != 2 || !listed[0].Current || listed[1].Current || listed[0].ID != ofViewer.Session.ID ||
		listed[0].MemberID != viewer.User.ID || listed[0].ExpiresAt.Sub(listed[0].CreatedAt.Time) != 7*24*time.Hour {
		t.Errorf("%s", got.Body)
	}
	all := []httpapi.SessionID{ofOwner.Session.ID, ofViewer.Session.ID, another.Session.ID}
	for _, who := range []account{owner, admin} {
		if diff := cmp.Diff(all, who.listedSessions()); diff != "" {
			t.Errorf("%s sees (-want +got): %s", who.User.Role, diff)
		}
	}
	path := "/sessions/" + string(ofOwner.Session.ID)
	wantProblem(t, http.StatusNotFound, "session_unknown", viewer.sendTo("DELETE", path, nil))
	wantProblem(t, http.StatusForbidden, "owner_only", admin.sendTo("DELETE", path, nil))
	wantProblem(t, http.StatusNotFound, "session_unknown", owner.sendTo("DELETE", "/sessions/x", nil))
	wantProblem(t, http.StatusForbidden, "login_required", owner.with(s.exchange(owner.createAPIKey("admin").RawKey)).sendTo("DELETE", path, nil))
	other := s.signUp()
	wantProblem(t, http.StatusNotFound, "session_unknown", other.sendTo("DELETE", path, nil))
	wantProblem(t, http.StatusForbidden, "other_client", other.send("DELETE", owner.under(path), nil))
	wantProblem(t, http.StatusForbidden, "other_client", other.get(owner.under("/sessions")))
	if seen := other.listedSessions(); len(seen) != 0 {
		t.Errorf("another client sees %v", seen)
	}
	wantDone(t, owner.sendTo("DELETE", path, nil))
	wantProblem(t, http.StatusNotFound, "session_unknown", owner.sendTo("DELETE", path, nil))
}

func TestAChangedPasswordCountsOnEveryReplica(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	owner := first.signUp()
	const password = "a wholly other horse"
	first.Logs.keepOut(password)
	kept, lost := owner.openSession(), owner.openSession()
	token := owner.by(kept)
	in := owner.inside(owner.createSandbox("ci"))
	inside := in.at(second).stream("")
	change := func(a account, current, next string) answer {
		return a.sendTo("PUT", "/members/me/password", map[string]string{"current": current, "new": next})
	}
	wantProblem(t, http.StatusForbidden, "wrong_password", change(token, "not that one", password))
	wrong := wantProblem(t, http.StatusUnprocessableEntity, "invalid", change(token, owner.Password, owner.Email))
	if len(wrong.Errors) != 1 || wrong.Errors[0].Pointer != "/new" {
		t.Errorf("%+v", wrong.Errors)
	}
	wantProblem(t, http.StatusForbidden, "login_required", change(owner.with(first.exchange(owner.createAPIKey("admin").RawKey)), owner.Password, password))
	changed := want[httpapi.LoggedIn](t, http.StatusOK, change(token, owner.Password, password))
	first.Logs.keepOut(changed.Token)
	inside.wantEnd()
	for _, s := range []*service{first, second} {
		in.at(s).wantOut("a token of a sandbox")
		owner.at(s).wantOut("the token of the sign-up")
		token.at(s).wantOut("the token that changed it")
		if got := owner.at(s).with(changed.Token).get("/api/v1/users"); got.Status != http.StatusOK {
			t.Errorf("the token of the answer: %d %s", got.Status, got.Body)
		}
		wantProblem(t, http.StatusUnauthorized, "invalid_credentials", s.send("POST", "/auth/token", map[string]string{"email": owner.Email, "password": owner.Password}))
		want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": owner.Email, "password": password}))
		want[httpapi.LoggedIn](t, http.StatusOK, s.sessionToken(kept.Secret))
		wantProblem(t, http.StatusUnauthorized, "invalid_session", s.sessionToken(lost.Secret))
	}
}
