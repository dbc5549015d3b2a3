package e2e

import (
	"bytes"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"

	"kindred/app"
	"kindred/cmd/kindred/cli"
	"kindred/eventstore/seal"
	"kindred/httpapi"
	"kindred/testkit"
)

// tool runs a command in the environment of a kindred, and returns what it
// prints.
func tool(t testing.TB, c app.Config, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	settings := settingsOf(c)
	tool := cli.Command(func(name string) string { return settings[name] }, &out, io.Discard)
	tool.SetArgs(args)
	err := tool.ExecuteContext(t.Context())
	return out.String(), err
}

func TestKeysAreRotatedAndRewrapped(t *testing.T) {
	t.Parallel()
	s := startService(t, pooled(t))
	a := s.signUp()
	a.createUser("ann", map[string]any{"town": "Ghent"})
	published := func() int {
		return len(want[httpapi.JWKS](t, http.StatusOK, s.send("GET", "/.well-known/jwks.json", nil)).Keys)
	}
	before := published()
	if said, err := tool(t, s.Config, "keys", "rotate"); err != nil || strings.Count(said, "\n") != 1+2*before {
		t.Errorf("%v\n%s", err, said)
	}
	testkit.Eventually(t, "the new keys are published", func() bool { return published() == 2*before })
	want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:ann"))

	fresh, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	history := []string{"history", "list", "--client", string(a.Client.ID), "--type", "end_user.created", "--personal"}
	both, alone := s.Config, s.Config
	both.MasterKey, alone.MasterKey = fresh+","+s.Config.MasterKey, fresh
	if said, err := tool(t, alone, history...); err == nil {
		t.Errorf("another master key opens what the first sealed: %s", said)
	}
	const rewrapped = " keys are wrapped anew. The other master keys can be taken away, unless a process has one of them first.\n"
	if said, err := tool(t, both, "keys", "rewrap"); err != nil || !strings.HasSuffix(said, rewrapped) || said[0] == '0' {
		t.Errorf("%v\n%s", err, said)
	}
	if said, err := tool(t, alone, "keys", "list"); err != nil || strings.Count(said, "\n") != 1+2*before {
		t.Errorf("the keys that sign tokens, under the new master key alone: %v\n%s", err, said)
	}
	if said, err := tool(t, alone, history...); err != nil || !strings.Contains(said, `"Ghent"`) {
		t.Errorf("the new master key alone: %v\n%s", err, said)
	}
}

// What a restored log holds and the dispatcher is not to deliver is skipped.
func TestADispatcherSkipsToTheEnd(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := newPairs(s)
	r := receive(t, http.StatusOK)
	p.subscribe(r.URL, "")
	p.match("ann", "bob")
	r.next(t)
	s.stop()
	nobodyDelivers := func(c *app.Config) { c.Roles = []string{app.RoleAPI, app.RoleProjections, app.RolePolicies} }
	p.account = p.at(startService(t, replicaOf(s), nobodyDelivers))
	p.match("bob", "cat")
	for _, model := range []string{"users_3", "users"} {
		if said, err := tool(t, s.Config, "projections", "skip", model); err == nil || !strings.Contains(err.Error(), "can be rebuilt instead") {
			t.Errorf("a read model is skipped: %v %s", err, said)
		}
	}
	if said, err := tool(t, s.Config, "projections", "skip", "dispatcher"); err != nil || said != "dispatcher goes on from the end of the log.\n" {
		t.Fatalf("%v %s", err, said)
	}
	startService(t, replicaOf(s))
	p.match("cat", "dan")
	if got := p.of(r.next(t)); got != "cat+dan" {
		t.Errorf("%s is delivered", got)
	}
}
