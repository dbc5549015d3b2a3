package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kindred/httpapi"
)

var typesOf = regexp.MustCompile(`"type":"([a-z_.]+)"`)

// Those who run kindred delete a client, and nothing of it is left but its log, which nobody can open.
func TestADeletedClientIsOver(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	p, other := newPairs(first), newPairs(first)
	owner := p.account
	member := owner.addMember("admin")
	session := owner.openSession()
	made := owner.createSandbox("ci")
	inside := pairsOf(owner.inside(made))
	raw := p.createAPIKey().RawKey
	key := first.exchange(raw)
	r := receive(t, 500)
	p.subscribe(r.URL, "")
	p.match("ann", "bob")
	r.next(t) // and is tried again later
	open := p.at(second).stream("?after=" + *p.at(second).pull("").LastID)

	remove := func(client, slug string) (string, error) {
		return tool(t, first.Config, "clients", "delete", client, "--slug", slug)
	}
	if said, err := remove(string(owner.Client.ID), other.Client.Slug); err == nil || !strings.Contains(err.Error(), "nothing was deleted") {
		t.Errorf("by the slug of another: %v %s", err, said)
	}
	if said, err := remove(string(made.ID), owner.Client.Slug); err == nil || !strings.Contains(err.Error(), "is a sandbox") {
		t.Errorf("a sandbox: %v %s", err, said)
	}
	want[httpapi.User](t, http.StatusOK, inside.get("/api/v1/users/ext:ann"))
	for range 2 { // it can be run again
		if said, err := remove(string(owner.Client.ID), owner.Client.Slug); err != nil || !strings.HasSuffix(said, " is deleted, and its keys are destroyed.\n") {
			t.Fatalf("%v %s", err, said)
		}
	}
	open.wantEnded(time.Now())
	for what, a := range map[string]account{
		"a login": owner, "a login at another replica": p.at(second), "another member's": member, "the token of a key": p.with(key), "a login to its sandbox": inside.account,
	} {
		a.wantOut(what)
	}
	for _, s := range []*service{first, second} {
		wantProblem(t, http.StatusUnauthorized, "invalid_api_key", s.send("POST", "/auth/exchange", map[string]string{"api_key": raw}))
		wantProblem(t, http.StatusUnauthorized, "invalid_session", s.sessionToken(session.Secret))
		for _, client := range []httpapi.ClientID{owner.Client.ID, made.ID} {
			wantProblem(t, http.StatusUnauthorized, "invalid_credentials", s.send("POST", "/auth/token", map[string]string{
				"client_id": string(client), "user_id": string(owner.User.ID), "password": owner.Password,
			}))
		}
	}

	db := first.database()
	wantNothingLeft(t, db, owner.Client.ID)
	wantNothingLeft(t, db, made.ID)
	if out, err := tool(t, first.Config, "clients"); err != nil || strings.Contains(out, string(owner.Client.ID)) || !strings.Contains(out, string(other.Client.ID)) {
		t.Errorf("listed are %v\n%s", err, out)
	}
	again := want[httpapi.SignedUp](t, http.StatusCreated, first.send("POST", "/auth/signup", map[string]string{
		"email": owner.Email, "password": owner.Password, "company_name": owner.Client.Name,
	}))
	if again.Client.Slug != owner.Client.Slug || again.Client.ID == owner.Client.ID {
		t.Errorf("signed up anew as %+v", again.Client)
	}
	other.match("ann", "bob")
	if out, err := tool(t, first.Config, "projections", "verify"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	listed, err := tool(t, first.Config, "history", "export", "--client", string(owner.Client.ID))
	out, export := listed, filepath.Join(t.TempDir(), "export")
	if err == nil {
		err = os.WriteFile(export, []byte(listed), 0o600)
	}
	if err == nil {
		out, err = tool(t, first.Config, "history", "verify", "--jwks", first.URL+"/.well-known/audit-jwks.json", export)
	}
	if err != nil {
		t.Errorf("its history: %v %s", err, out)
	}
	_, after, _ := strings.Cut(listed, `"type":"client.deleted"`)
	for _, recorded := range typesOf.FindAllStringSubmatch(after, -1) {
		if recorded[1] != "claim.released" && recorded[1] != "sandbox.removed" {
			t.Errorf("after its end is recorded %s", recorded[1])
		}
	}
}
