package auth

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/testkit"
)

const otherPassword = "a wholly other horse"

func (s *service) open(t testing.TB, address, password string) (httpapi.SessionOpened, error) {
	t.Helper()
	answer, err := s.endpoints.CreateSession(from(t, address), httpapi.CreateSessionRequestObject{
		Body: &httpapi.TokenRequest{Email: &s.account.Email, Password: password},
	})
	if err != nil {
		return httpapi.SessionOpened{}, err
	}
	return answer.(httpapi.CreateSession201JSONResponse).Body, nil
}

func (s *service) token(t testing.TB, secret string) (httpapi.LoggedIn, error) {
	t.Helper()
	answer, err := s.endpoints.GetSessionToken(t.Context(), httpapi.GetSessionTokenRequestObject{Body: &httpapi.SessionTokenRequest{Secret: secret}})
	if err != nil {
		return httpapi.LoggedIn{}, err
	}
	return httpapi.LoggedIn(answer.(httpapi.GetSessionToken200JSONResponse)), nil
}

// as is the principal of a token.
func (s *service) as(t testing.TB, token string) httpapi.Principal {
	t.Helper()
	return testkit.Must(s.verifier.Authenticate(t.Context(), token))(t)
}

func (s *service) setPassword(t testing.TB, p httpapi.Principal, address, current, next string) (httpapi.LoggedIn, error) {
	t.Helper()
	ctx := httpapi.With(t.Context(), p, httpapi.Call{RemoteAddr: address})
	answer, err := s.endpoints.ChangePassword(ctx, httpapi.ChangePasswordRequestObject{Body: &httpapi.PasswordChange{Current: current, New: next}})
	if err != nil {
		return httpapi.LoggedIn{}, err
	}
	return answer.(httpapi.ChangePassword200JSONResponse).Body, nil
}

func TestASessionGivesTokensThatEndWithIt(t *testing.T) {
	s := newService(t)
	opened := testkit.Must(s.open(t, "192.0.2.1", password))(t)
	got := testkit.Must(s.token(t, opened.Secret))(t)
	if want := int(ttl / time.Second); got.ExpiresIn != want { // though the session lasts longer
		t.Errorf("the token lives for %d s; want %d", got.ExpiresIn, want)
	}
	if p := s.as(t, got.Token); p.Session != opened.Session.ID || p.Member != s.account.Member || p.Key != "" || !p.May("admin") {
		t.Errorf("%+v", p)
	}
	if code := s.refusal(t, s.login(t)); code != "" {
		t.Errorf("a token without a session: %s", code)
	}
	s.source.all = append(s.source.all, noted{string(opened.Session.ID), s.Now()})
	s.poll(t)
	if code := s.refusal(t, got.Token); code != "invalid_token" {
		t.Errorf("a token of a session that was ended: %q", code)
	}
	if code := s.refusal(t, s.login(t)); code != "" {
		t.Errorf("a token of the same member without it: %s", code)
	}
}

func TestASessionEndsWhenItIsNotUsedAndAtItsAge(t *testing.T) {
	s := newService(t)
	opened := testkit.Must(s.open(t, "192.0.2.1", password))(t)
	for range 15 { // 7 days but for 30 minutes
		s.Advance(11*time.Hour + 10*time.Minute)
		if _, err := s.token(t, opened.Secret); err != nil {
			t.Fatal(err)
		}
	}
	s.Advance(20 * time.Minute)
	last, err := s.token(t, opened.Secret)
	if err != nil || last.ExpiresIn > 600 {
		t.Errorf("%v, its token lives for %d s", err, last.ExpiresIn)
	}
	s.Advance(10*time.Minute - leeway - time.Millisecond)
	if last, err = s.token(t, opened.Secret); err != nil || last.ExpiresIn < 0 || s.refusal(t, last.Token) != "" {
		t.Errorf("at the end: %v, a token that lives for %d s, %q", err, last.ExpiresIn, s.refusal(t, last.Token))
	}
	for _, later := range []time.Duration{time.Millisecond, leeway - time.Millisecond, time.Millisecond} {
		s.Advance(later)
		if _, err := s.token(t, opened.Secret); !fault.Is(err, "invalid_session") {
			t.Errorf("after 7 days: %v", err)
		}
	}
	if opened, err = s.open(t, "192.0.2.1", password); err != nil {
		t.Fatal(err)
	}
	s.Advance(12 * time.Hour)
	if _, err := s.token(t, opened.Secret); !fault.Is(err, "invalid_session") {
		t.Errorf("after 12 hours: %v", err)
	}
}

func TestWhatIsNoSecretOfASessionIsNotLookedUp(t *testing.T) {
	s := newService(t)
	opened := testkit.Must(s.open(t, "192.0.2.1", password))(t)
	secret, before := opened.Secret, s.lookups
	for _, wrong := range []string{"", s.apiKey, sessionPrefix, secret[:len(secret)-1], secret + "x", strings.ToUpper(secret), strings.Replace(secret, "_", "-", 1)} {
		if _, err := s.token(t, wrong); !fault.Is(err, "invalid_session") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if s.lookups != before {
		t.Errorf("%d were looked up", s.lookups-before)
	}
	other := testkit.Must(newSessionSecret(rand.Reader, s.account.Client, s.account.Member))(t)
	for range 11 {
		if _, err := s.token(t, other); !fault.Is(err, "invalid_session") {
			t.Fatal(err)
		}
	}
	if _, err := s.token(t, other); !fault.Is(err, "too_many_attempts") {
		t.Errorf("who keeps trying one: %v", err)
	}
	if _, err := s.token(t, secret); err != nil {
		t.Errorf("another: %v", err)
	}
}

func TestFailuresOfLoginsSessionsAndPasswordChangesCountTogether(t *testing.T) {
	s := newService(t)
	p := s.as(t, s.login(t))
	for i := range 11 {
		switch i % 3 {
		case 0:
			if err := s.logInFrom(t, "192.0.2.1", s.account.Email, "wrong"); !fault.Is(err, "invalid_credentials") {
				t.Fatal(err)
			}
		case 1:
			if _, err := s.open(t, "192.0.2.1", "wrong"); !fault.Is(err, "invalid_credentials") {
				t.Fatal(err)
			}
		default:
			if _, err := s.setPassword(t, p, "192.0.2.1", "wrong", otherPassword); !fault.Is(err, "wrong_password") {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.setPassword(t, p, "192.0.2.1", password, otherPassword); !fault.Is(err, "too_many_attempts") {
		t.Errorf("a change: %v", err)
	}
	if _, err := s.open(t, "192.0.2.1", password); !fault.Is(err, "too_many_attempts") {
		t.Errorf("a session: %v", err)
	}
	if _, err := s.setPassword(t, p, "192.0.2.2", password, otherPassword); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
}

func TestAnotherPasswordVoidsTheTokensFromBefore(t *testing.T) {
	s := newService(t)
	kept, err1 := s.open(t, "192.0.2.1", password)
	lost, err2 := s.open(t, "192.0.2.1", password)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	token := testkit.Must(s.token(t, kept.Secret))(t)
	before := []string{s.login(t), token.Token}
	for _, weak := range []string{"short", "password1", s.account.Email} {
		if _, err := s.setPassword(t, s.as(t, token.Token), "192.0.2.1", password, weak); fault.As(err) == nil || fault.As(err).Fields[0].Pointer != "/new" {
			t.Errorf("%s: %v", weak, err)
		}
	}
	changed := testkit.Must(s.setPassword(t, s.as(t, token.Token), "192.0.2.1", password, otherPassword))(t)
	s.source.all = append(s.source.all, noted{id.Logins(s.account.Member, 0), s.Now()})
	s.poll(t)
	for _, token := range before {
		if code := s.refusal(t, token); code != "invalid_token" {
			t.Errorf("a token from before: %q", code)
		}
	}
	if p := s.as(t, changed.Token); p.Session != kept.Session.ID {
		t.Errorf("%+v", p)
	}
	if _, err := s.token(t, kept.Secret); err != nil {
		t.Errorf("the session that changed it: %v", err)
	}
	if _, err := s.token(t, lost.Secret); !fault.Is(err, "invalid_session") {
		t.Errorf("another session: %v", err)
	}
	if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); !fault.Is(err, "invalid_credentials") {
		t.Errorf("the password from before: %v", err)
	}
	if err := s.logInFrom(t, "192.0.2.1", s.account.Email, otherPassword); err != nil {
		t.Errorf("the password of now: %v", err)
	}
}
