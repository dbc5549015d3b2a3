package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kindred/app"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/testkit"
)

// spoilUsers changes each row of a client's users behind the service's back.
func spoilUsers(t testing.TB, f *app.App, a account) {
	t.Helper()
	done, err := f.Pool.Exec(t.Context(), `UPDATE users SET revision = revision + 1000 WHERE client = $1`, a.Client.ID)
	if err != nil || done.RowsAffected() == 0 {
		t.Fatal(done, err)
	}
}

// spoilt counts the rows of a client's users that were changed so.
func spoilt(t testing.TB, f *app.App, a account) (n int) {
	t.Helper()
	if err := f.Pool.QueryRow(t.Context(), `SELECT count(*) FROM users WHERE client = $1 AND revision >= 1000`, a.Client.ID).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const usersRebuild = "/api/v1/projections/users/rebuild"

// rebuiltUsers waits until the newest rebuild of a client's users has ended.
func (a account) rebuiltUsers() (ended httpapi.Rebuild) {
	a.Helper()
	testkit.Eventually(a, "the rebuild has ended", func() bool {
		ended = want[httpapi.Rebuild](a, http.StatusOK, a.get(usersRebuild))
		return ended.EndedAt != nil
	})
	return ended
}

func TestAClientRebuildsItsPartOverTheAPI(t *testing.T) {
	t.Parallel()
	s := keepContract(t, pooled(t))
	a, other := s.signUp(), s.signUp()
	a.importUsers(30, func(i int) string { return fmt.Sprintf(`{"age":%d}`, i) })
	other.importUsers(3, func(i int) string { return `{}` })
	f := openApp(t, s.Config)
	caughtUp(t, f)
	spoilUsers(t, f, a)
	spoilUsers(t, f, other)

	wantProblem(t, http.StatusNotFound, "rebuild_unknown", a.get(usersRebuild))
	asked := a.send("POST", usersRebuild, nil, idempotent("once"))
	first := want[httpapi.Rebuild](t, http.StatusAccepted, asked)
	if asked.Header.Get("Location") != usersRebuild {
		t.Errorf("Location %q", asked.Header.Get("Location"))
	}
	a.createUser("comes meanwhile", map[string]any{})
	ended := a.rebuiltUsers()
	if ended.Phase != "done" || ended.ID != first.ID || ended.Error != nil || ended.Total < 30 || ended.Done != ended.Total || ended.RequestedBy != string(a.User.ID) {
		t.Errorf("%+v", ended)
	}
	if again := want[httpapi.Rebuild](t, http.StatusAccepted, a.send("POST", usersRebuild, nil, idempotent("once"))); again.ID != first.ID {
		t.Errorf("the same request made %s as well", again.ID)
	}
	soon := a.send("POST", usersRebuild, nil)
	wantProblem(t, http.StatusTooManyRequests, "rebuilt_recently", soon)
	if after := soon.Header.Get("Retry-After"); after != "60" {
		t.Errorf("Retry-After %q", after)
	}
	if spoilt(t, f, a) != 0 || spoilt(t, f, other) != 3 {
		t.Errorf("%d rows are spoilt of the client that was rebuilt, %d of the other", spoilt(t, f, a), spoilt(t, f, other))
	}
	if users := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users?limit=200")).Data; len(users) != 31 {
		t.Errorf("%d users", len(users))
	}

	for n, of := range []account{a, a, other} {
		if _, err := f.Pool.Exec(t.Context(), `INSERT INTO left_out (projection, client, position, event_id, type, reason) VALUES ($1, $2, $3, 'evt_1', 'end_user.created', 'a test')`,
			projector.ID(projections.Users{}), of.Client.ID, fmt.Sprintf("%016x", n+1)); err != nil {
			t.Fatal(err)
		}
	}
	listed := want[httpapi.ProjectionList](t, http.StatusOK, a.get("/api/v1/projections")).Data
	i := slices.IndexFunc(listed, func(p httpapi.Projection) bool { return p.Name == "users" })
	if len(listed) != len(projections.Names()) || i < 0 || listed[i].Rebuild == nil || listed[i].Rebuild.ID != first.ID || !listed[0].Led || listed[i].Position == "" || listed[i].Quarantined != nil || listed[i].LeftOutEvents != 2 || listed[0].LeftOutEvents != 0 {
		t.Errorf("%+v", listed)
	}
	if theirs := other.get("/api/v1/projections"); bytes.Contains(theirs.Body, []byte(first.ID)) {
		t.Error("another client is shown the rebuild")
	}
	wantProblem(t, http.StatusNotFound, "rebuild_unknown", other.get(usersRebuild))
	wantProblem(t, http.StatusNotFound, "projection_unknown", a.send("POST", "/api/v1/projections/nonesuch/rebuild", nil))
	wantProblem(t, http.StatusConflict, "projection_shared", a.send("POST", "/api/v1/projections/claims/rebuild", nil))
	wantProblem(t, http.StatusForbidden, "missing_scope", a.with(s.exchange(a.createAPIKey("read", "write").RawKey)).send("POST", usersRebuild, nil))

	if _, err := tool(t, s.Config, "projections", "skip", "dispatchre"); err == nil || !strings.Contains(err.Error(), "there is none of that name") {
		t.Errorf("skipped what there is not: %v", err)
	}
	said, err := tool(t, s.Config, "projections", "rebuild", "users", "webhooks", "--client", string(other.Client.ID))
	if err != nil || !strings.Contains(said, "rebuilt users "+string(other.Client.ID)) {
		t.Errorf("%v\n%s", err, said)
	}
	if n := spoilt(t, f, other); n != 0 {
		t.Errorf("%d rows are spoilt after the command", n)
	}
	for _, args := range [][]string{{"rebuild", "users"}, {"resume", "dispatcher"}} {
		const nobody = "cli_0000000000000000000000000g"
		if _, err := tool(t, s.Config, "projections", args[0], args[1], "--client", nobody); err == nil || !strings.Contains(err.Error(), "no client "+nobody) {
			t.Errorf("%q of a client that there never was: %v", args, err)
		}
	}
	other.createUser("goes on", map[string]any{})
	caughtUp(t, f)
	s.stop()
	checkRebuilt(t, f)
}

// TestARebuildOverTheAPISurvivesKill9 kills the service while the client is
// held: its part is about to be replaced.
func TestARebuildOverTheAPISurvivesKill9(t *testing.T) {
	t.Parallel()
	p := startProcess(t, func(c *app.Config) { c.DatabaseURL = pgtest.URL(t) })
	a := p.signUp()
	a.importUsers(30, func(i int) string { return `{}` })
	f := openApp(t, p.Config)
	caughtUp(t, f)
	spoilUsers(t, f, a)
	release := pgtest.Lock(t, f.Pool, `users IN SHARE MODE`)
	first := want[httpapi.Rebuild](t, http.StatusAccepted, a.send("POST", usersRebuild, nil))
	testkit.Eventually(t, "the client is paused", func() bool {
		var paused bool
		err := f.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM quarantine WHERE paused AND client = $1)`, a.Client.ID).Scan(&paused)
		return err == nil && paused
	})
	wantProblem(t, http.StatusConflict, "rebuild_in_progress", a.send("POST", usersRebuild, nil))
	if users := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users")).Data; len(users) != 30 {
		t.Errorf("%d users are listed while the part is replaced", len(users))
	}
	p.kill()
	release()
	p.start()
	p.serving()
	if ended := a.rebuiltUsers(); ended.ID != first.ID || ended.Phase != "done" {
		t.Errorf("%+v", ended)
	}
	if n := spoilt(t, f, a); n != 0 {
		t.Errorf("%d rows are spoilt", n)
	}
	a.createUser("goes on", map[string]any{})
	if users := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users")).Data; len(users) != 31 {
		t.Errorf("%d users", len(users))
	}
}
