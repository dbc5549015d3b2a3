package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/httpapi"
)

func lookupsOf(t *testing.T, f *app.App) map[string]string {
	t.Helper()
	rows, err := f.Pool.Query(t.Context(), `SELECT subject, coalesce(encode(lookup, 'hex'), '') FROM subject_keys WHERE subject LIKE 'usr%'`)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	var subject, lookup string
	if _, err := pgx.ForEachRow(rows, []any{&subject, &lookup}, func() error { all[subject] = lookup; return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

// What finds users is made from the log, at a start for users of an earlier
// release, and anew on demand.
func TestUsersAreFoundFromTheLog(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string]func() []func(*app.Config){
		"Postgres":     func() []func(*app.Config) { return nil },
		"EventStoreDB": func() []func(*app.Config) { return []func(*app.Config){onEventStore(t, esdbtest.Start(t))} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startService(t, changes()...)
			a, other := s.signUp(), s.signUp()
			one, two, gone := a.createUser("one", nil), a.createUser("two", nil), a.createUser("gone", nil)
			theirs := other.createUser("one", nil)
			wantDone(t, a.send("DELETE", "/api/v1/users/ext:gone", nil))
			f := openApp(t, s.Config)
			before := lookupsOf(t, f)
			if len(before) != 4 || before[string(gone.ID)] != "" || before[string(one.ID)] == "" || before[string(one.ID)] == before[string(theirs.ID)] {
				t.Errorf("%v", before)
			}
			// As an earlier release left them, whose service ended meanwhile.
			if _, err := f.Pool.Exec(t.Context(), `UPDATE subject_keys SET lookup = NULL`); err != nil {
				t.Fatal(err)
			}
			s.stop()
			s = startService(t, replicaOf(s))
			a, other = a.at(s), other.at(s)
			if diff := cmp.Diff(before, lookupsOf(t, f)); diff != "" {
				t.Errorf("after a start: %s", diff)
			}
			check := func() {
				t.Helper()
				for external, user := range map[string]httpapi.User{"one": one, "two": two} {
					if got := want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:"+external)); got.ID != user.ID {
						t.Errorf("%s is %s, want %s", external, got.ID, user.ID)
					}
					wantProblem(t, http.StatusConflict, "user_exists", a.send("POST", "/api/v1/users", map[string]any{"external_id": external}))
				}
			}
			check()

			// Mixed up, and lost.
			const spoil = `UPDATE subject_keys SET lookup = CASE subject WHEN $1 THEN decode($2, 'hex') END WHERE subject IN ($1, $3)`
			if _, err := f.Pool.Exec(t.Context(), spoil, string(one.ID), strings.Repeat("17", 16), string(two.ID)); err != nil {
				t.Fatal(err)
			}
			if said, err := tool(t, s.Config, "keys", "lookups", "--client", string(other.Client.ID)); err != nil || !strings.HasPrefix(said, "0 users") {
				t.Errorf("another client's: %s, %v", said, err)
			}
			if said, err := tool(t, s.Config, "keys", "lookups"); err != nil || !strings.HasPrefix(said, "2 users") {
				t.Errorf("%s, %v", said, err)
			}
			if diff := cmp.Diff(before, lookupsOf(t, f)); diff != "" {
				t.Errorf("made anew: %s", diff)
			}
			check()
		})
	}
}

func TestAUserIsPutOverTheAPI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	const path = "/api/v1/users/ext:my%20u1"
	made := a.send("PUT", path, `{"traits":{"a":1}}`, header("If-None-Match", "*"))
	user := want[httpapi.User](t, http.StatusCreated, made)
	if user.ExternalID != "my u1" || made.Header.Get("Location") != "/api/v1/users/"+string(user.ID) || made.Header.Get("ETag") != httpapi.UserETag(user.ID, 0) || made.Header.Get("X-Kindred-Position") == "" {
		t.Errorf("%+v, %v", user, made.Header)
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PUT", path, `{}`, header("If-None-Match", "*")))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("PUT", path, `{}`, header("If-None-Match", `"0"`)))
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PUT", "/api/v1/users/ext:nobody", `{}`, header("If-Match", "*")))
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PUT", "/api/v1/users/ext:nobody", `{}`, header("If-Match", `"what"`)))
	if p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("PUT", path, `{"external_id":"u2"}`)); len(p.Errors) != 1 || p.Errors[0].Pointer != "/external_id" {
		t.Errorf("%+v", p)
	}
	for n, body := range []string{`{"external_id":"my u1","traits":{"b":2}}`, `{"traits":{"b":2}}`} {
		changed := a.send("PUT", path, body, header("If-Match", httpapi.UserETag(user.ID, int64(n))))
		got := want[httpapi.User](t, http.StatusOK, changed)
		if got.ID != user.ID || string(got.Traits) != `{"b":2}` || changed.Header.Get("ETag") != httpapi.UserETag(user.ID, 1) || changed.Header.Get("Location") != "" {
			t.Errorf("%+v, %v", got, changed.Header)
		}
	}
	if got := want[httpapi.User](t, http.StatusOK, a.get(path)); string(got.Traits) != `{"b":2}` {
		t.Errorf("%s", got.Traits)
	}
	want[httpapi.User](t, http.StatusOK, a.send("PUT", "/api/v1/users/"+string(user.ID), `{}`))
	wantProblem(t, http.StatusNotFound, "user_unknown", a.send("PUT", "/api/v1/users/usr_00000000000000000000000000", `{}`))

	// The next user of the external id is another object, whatever its revision.
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("PUT", path, `{}`, header("If-Match", `"2"`)))
	tag := a.get(path).Header.Get("ETag")
	want[struct{}](t, http.StatusNoContent, a.send("DELETE", path, "", header("If-Match", tag)))
	for n := range 3 {
		a.send("PUT", path, fmt.Sprintf(`{"traits":{"n":%d}}`, n))
	}
	for _, method := range []string{"PUT", "PATCH"} {
		wantProblem(t, http.StatusPreconditionFailed, "stale", a.send(method, path, `{"traits":{}}`, header("If-Match", tag)))
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("DELETE", path, "", header("If-Match", tag)))
	next := a.get(path)
	if got := want[httpapi.User](t, http.StatusOK, next); got.ID == user.ID || string(got.Traits) != `{"n":2}` {
		t.Errorf("%+v", got)
	}
	want[struct{}](t, http.StatusNoContent, a.send("DELETE", path, "", header("If-Match", next.Header.Get("ETag"))))
}
