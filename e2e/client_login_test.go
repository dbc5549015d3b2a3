package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kindred/httpapi"
)

// typing runs a command with what is piped to it.
func (s shell) typing(in string, args ...string) (out, errs string, err error) {
	s.Helper()
	var o, e bytes.Buffer
	err = s.begin(s.Context(), strings.NewReader(in), &o, &e, args...)
	return o.String(), e.String(), err
}

func TestAMemberLogsInOnTheCommandLineAndOut(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	sh := newShell(t, s.URL, "")
	mail, password := a.Email, a.Password
	s.Logs.keepOut(password)

	if _, _, err := sh.run("whoami"); err == nil || !strings.Contains(err.Error(), "kindred login") {
		t.Errorf("without a login: %v", err)
	}
	if _, errs, err := sh.typing("wrong password\n", "login", "--email", mail); err == nil || strings.Contains(errs+err.Error(), "wrong password") {
		t.Errorf("with a wrong password: %v", err)
	}
	if _, _, err := sh.typing("", "login", "--email", mail); err == nil || !strings.Contains(err.Error(), "nothing was given") {
		t.Errorf("without a password: %v", err)
	}
	if _, errs, err := sh.typing(mail+"\n"+password+"\n", "login"); err != nil || !strings.Contains(errs, "Logged in") || strings.Contains(errs, password) {
		t.Fatalf("%v: %s", err, errs)
	}
	file := filepath.Join(sh.environment["XDG_CONFIG_HOME"], "kindred", "profiles.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	who := asJSON[map[string]any](t, sh.must("whoami", "--json"))
	if who["client_id"] != string(a.Client.ID) || who["member"] != mail || who["credential"] != "session" {
		t.Errorf("%v", who)
	}
	sessions := func() int {
		return len(want[httpapi.SessionList](t, http.StatusOK, a.get(a.under("/sessions"))).Data)
	}
	if n := sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	if _, errs, err := sh.typing(password+"\n", "login", "--email", mail); err != nil || sessions() != 1 {
		t.Errorf("a second login leaves %d sessions: %v %s", sessions(), err, errs)
	}

	// A login goes nowhere but to where it was made, and a key goes before it.
	sh.environment["KINDRED_URL"] = "http://127.0.0.1:1"
	if _, _, err := sh.run("whoami"); err == nil || !strings.Contains(err.Error(), "goes nowhere else") {
		t.Errorf("to another service: %v", err)
	}
	delete(sh.environment, "KINDRED_URL")
	if who := asJSON[map[string]any](t, sh.must("whoami", "--json")); who["url"] != s.URL {
		t.Errorf("%v", who)
	}
	sh.environment["KINDRED_API_KEY"] = a.createAPIKey().RawKey
	if who := asJSON[map[string]any](t, sh.must("whoami", "--json")); who["credential"] != "api_key" {
		t.Errorf("%v", who)
	}
	delete(sh.environment, "KINDRED_API_KEY")

	// It ends with the member, and says so.
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, err := sh.run("logout"); err != nil || !strings.Contains(errs, "Logged out") || sessions() != 0 {
		t.Errorf("%v %s, %d sessions", err, errs, sessions())
	}
	if _, _, err := sh.run("logout"); err == nil || !strings.Contains(err.Error(), "no login") {
		t.Errorf("a second time: %v", err)
	}
	if err := os.WriteFile(file, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sh.run("whoami"); err == nil || !strings.Contains(err.Error(), "has ended: kindred login") {
		t.Errorf("with what was kept of a login that has ended: %v", err)
	}
	if _, errs, err := sh.run("logout"); err != nil {
		t.Errorf("of one that has ended: %v %s", err, errs)
	}
}
