package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/httpapi"
	"kindred/testkit"
)

// createSandbox makes a sandbox beside the account's client.
func (a account) createSandbox(name string) httpapi.Sandbox {
	a.Helper()
	return want[httpapi.Sandbox](a, http.StatusCreated, a.sendTo("POST", "/sandboxes", map[string]any{"name": name}))
}

// inside is the account as it logs in to a sandbox beside its client.
func (a account) inside(sandbox httpapi.Sandbox) account {
	a.Helper()
	in := want[httpapi.LoggedIn](a, http.StatusOK, a.service.send("POST", "/auth/token", map[string]string{
		"client_id": string(sandbox.ID), "user_id": string(a.User.ID), "password": a.Password,
	}))
	a.Logs.keepOut(in.Token)
	if in.Client.ID != sandbox.ID || in.Client.Name != sandbox.Name || in.User != a.User {
		a.Errorf("logged in to %+v as %+v", in.Client, in.User)
	}
	a.Client.ID, a.Client.Name, a.Client.Slug = in.Client.ID, in.Client.Name, in.Client.Slug
	return a.with(in.Token)
}

func (a account) sandboxes() (ids []string) {
	a.Helper()
	for _, s := range each[httpapi.Sandbox](a, a, a.under("/sandboxes"), 2) {
		ids = append(ids, string(s.ID))
	}
	return ids
}

func livemodeOf(t testing.TB, token string) any {
	t.Helper()
	var claims map[string]any
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	return claims["livemode"]
}

func TestASandboxStandsBesideAClient(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	owner := s.signUp()
	viewer := owner.addMember("viewer")
	made := owner.createSandbox("ci")
	wantShape(t, owner.get(owner.under("/sandboxes/"+string(made.ID))).Body, "id string", "parent_id string", "name string", "livemode bool", "created_at string", "expires_at null")
	if got := want[httpapi.Sandbox](t, http.StatusOK, owner.get(owner.under("/sandboxes/"+string(made.ID)))); got != made || got.ParentID != owner.Client.ID || got.Livemode {
		t.Errorf("made %+v, got %+v", made, got)
	}

	t.Run("members log in to it in their roles", func(t *testing.T) {
		for _, a := range []account{owner, viewer} {
			in := a.inside(made)
			client := want[httpapi.ClientDetails](t, http.StatusOK, in.get(in.under("")))
			if client.ID != made.ID || client.Livemode || client.Name != "ci" {
				t.Errorf("%+v", client)
			}
			if live := want[httpapi.ClientDetails](t, http.StatusOK, owner.get(owner.under(""))); !live.Livemode {
				t.Errorf("%+v", live)
			}
		}
		in := viewer.inside(made)
		wantProblem(t, http.StatusForbidden, "missing_scope", in.send("POST", "/api/v1/users", map[string]any{"external_id": "u"}))
	})
	t.Run("a session gives tokens of it", func(t *testing.T) {
		opened := owner.openSession()
		token := func(client string) answer {
			return s.send("POST", "/auth/sessions/token", map[string]string{"secret": opened.Secret, "client_id": client})
		}
		in := want[httpapi.LoggedIn](t, http.StatusOK, token(string(made.ID)))
		if in.Client.ID != made.ID {
			t.Errorf("%+v", in.Client)
		}
		if same := want[httpapi.LoggedIn](t, http.StatusOK, token(string(owner.Client.ID))); same.Client.ID != owner.Client.ID {
			t.Errorf("%+v", same.Client)
		}
		other := s.signUp()
		for _, client := range []string{string(other.Client.ID), string(other.createSandbox("theirs").ID), "cli_x", ""} {
			wantProblem(t, http.StatusForbidden, "other_client", token(client))
		}
		wantDone(t, owner.sendTo("DELETE", "/sessions/"+string(opened.Session.ID), nil))
		inside := owner.with(in.Token)
		inside.wantOut("a token of a session that has ended, in a sandbox")
	})
	t.Run("it has no members, sessions and sandboxes of its own", func(t *testing.T) {
		in := owner.inside(made)
		password := map[string]string{"client_id": string(made.ID), "user_id": string(owner.User.ID), "password": owner.Password}
		for _, got := range []answer{
			s.send("POST", "/auth/sessions", password),
			in.sendTo("POST", "/members", map[string]string{"email": "eve@example.com", "role": "viewer", "password": "correct horse battery"}),
			in.sendTo("POST", "/sandboxes", map[string]string{"name": "deeper"}),
			in.sendTo("PUT", "/members/me/password", map[string]string{"current": owner.Password, "new": "a wholly other horse"}),
		} {
			wantProblem(t, http.StatusConflict, "not_in_sandbox", got)
		}
		if got := each[httpapi.Member](t, in, in.under("/members"), 2); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("what is live and what is not is said", func(t *testing.T) {
		in := owner.inside(made)
		for _, tt := range []struct {
			account
			key, livemode string
		}{{owner, "kin_live_", "true"}, {in, "kin_test_", "false"}} {
			created := tt.createAPIKey()
			if !strings.HasPrefix(created.RawKey, tt.key) || !strings.HasPrefix(created.Record.Fingerprint, tt.key) {
				t.Errorf("a key %.9s, %+v", created.RawKey, created.Record)
			}
			for _, token := range []string{tt.Token, s.exchange(created.RawKey)} {
				if got := livemodeOf(t, token); got != (tt.livemode == "true") {
					t.Errorf("the token says livemode %v, not %s", got, tt.livemode)
				}
				for _, got := range []answer{tt.with(token).get("/api/v1/users"), tt.with(token).get("/api/v1/users/usr_x")} {
					if got := got.Header.Get("X-Kindred-Livemode"); got != tt.livemode {
						t.Errorf("X-Kindred-Livemode: %q, not %s", got, tt.livemode)
					}
				}
			}
		}
	})
	t.Run("deliveries of it say so, and no others", func(t *testing.T) {
		for livemode, p := range map[string]pairs{"false": pairsOf(owner.inside(made)), "": pairsOf(owner)} {
			r := receive(t, 200)
			p.subscribe(r.URL, "")
			p.match("ann", "bob")
			if d := r.next(t); d.Header.Get("X-Kindred-Livemode") != livemode {
				t.Errorf("delivered with %v, not %q", d.Header, livemode)
			}
		}
	})
	t.Run("ten are enough", func(t *testing.T) {
		a := s.signUp()
		idem := func() answer {
			return a.sendTo("POST", "/sandboxes", map[string]any{"name": "one", "expires_in": 3600}, idempotent("one"))
		}
		first := want[httpapi.Sandbox](t, http.StatusCreated, idem())
		if again := want[httpapi.Sandbox](t, http.StatusCreated, idem()); again.ID != first.ID || !again.ExpiresAt.Equal(first.ExpiresAt.Time) {
			t.Errorf("%+v, then %+v", first, again)
		}
		for range 9 {
			a.createSandbox("more")
		}
		wantProblem(t, http.StatusConflict, "too_many_sandboxes", a.sendTo("POST", "/sandboxes", map[string]any{"name": "beyond"}))
		if got := a.sandboxes(); len(got) != 10 {
			t.Errorf("listed are %v", got)
		}
		wantDone(t, a.sendTo("DELETE", "/sandboxes/"+string(first.ID), nil))
		a.createSandbox("in its place")
	})
}

func TestASandboxIsLostWithTheMembershipBesideIt(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	owner := first.signUp()
	made := owner.createSandbox("ci")
	admin := owner.addMember("admin")
	in := admin.inside(made)
	key := first.exchange(in.createAPIKey().RawKey)
	open := in.at(second).stream("")
	wantDone(t, owner.sendTo("DELETE", "/members/"+string(admin.User.ID), nil))
	removed := time.Now()
	for what, a := range map[string]account{
		"the token of a sandbox": in, "the same at another replica": in.at(second),
		"that of a key that was made there": in.with(key),
	} {
		a.wantOut(what)
	}
	open.wantEnded(removed)
	wantProblem(t, http.StatusUnauthorized, "invalid_credentials", first.send("POST", "/auth/token", map[string]string{
		"client_id": string(made.ID), "user_id": string(admin.User.ID), "password": admin.Password,
	}))
	if got := owner.inside(made).get("/api/v1/users"); got.Status != http.StatusOK {
		t.Errorf("the owner: %d %s", got.Status, got.Body)
	}
}

// tablesWithClients are the tables of read models in which rows are some client's, but
// for those that last.
func tablesWithClients(t testing.TB, db *pgx.Conn) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'client' JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname ~ '_[0-9]+$' AND n.nspname !~ '^(pg_|history|revocations)'`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 20 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	return tables
}

func TestADeletedSandboxIsOver(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	owner := first.signUp()
	made := owner.createSandbox("ci")
	p := pairsOf(owner.inside(made))
	live := pairsOf(owner)
	raw := p.createAPIKey().RawKey
	key := first.exchange(raw)
	r := receive(t, 500)
	p.subscribe(r.URL, "")
	p.match("ann", "bob")
	r.next(t) // and is tried again later
	want[httpapi.Feed](t, http.StatusOK, p.get("/api/v1/users/ext:ann/feed?limit=1"))
	want[httpapi.User](t, http.StatusCreated, p.send("POST", "/api/v1/users", map[string]any{"external_id": "repeated"}, idempotent("once")))
	open := p.at(second).stream("?after=" + *p.at(second).pull("").LastID)

	db := first.database()
	count := countsOf(t, db, made.ID)
	for _, table := range []string{"idempotency", "feed_snapshots", "request_log", "api_key_uses"} {
		testkit.Eventually(t, table+" has some of it", func() bool { return count(`SELECT count(*) FROM `+table+` WHERE client = $1`) > 0 })
	}

	wantDone(t, owner.sendTo("DELETE", "/sandboxes/"+string(made.ID), nil))
	deleted := time.Now()
	for what, a := range map[string]account{
		"a login": p.account, "a login at another replica": p.at(second), "the token of a key": p.with(key),
	} {
		a.wantOut(what)
	}
	open.wantEnded(deleted)
	for _, s := range []*service{first, second} {
		wantProblem(t, http.StatusUnauthorized, "invalid_api_key", s.send("POST", "/auth/exchange", map[string]string{"api_key": raw}))
		wantProblem(t, http.StatusUnauthorized, "invalid_credentials", s.send("POST", "/auth/token", map[string]string{
			"client_id": string(made.ID), "user_id": string(owner.User.ID), "password": owner.Password,
		}))
		wantProblem(t, http.StatusNotFound, "sandbox_unknown", owner.at(s).get(owner.under("/sandboxes/"+string(made.ID))))
	}
	wantProblem(t, http.StatusNotFound, "sandbox_unknown", owner.sendTo("DELETE", "/sandboxes/"+string(made.ID), nil))

	wantNothingLeft(t, db, made.ID)
	if got := each[httpapi.User](t, live.account, "/api/v1/users", 10); len(got) != 4 {
		t.Errorf("of the client beside it are left %d users", len(got))
	}
	live.match("ann", "bob")
	if out, err := tool(t, first.Config, "projections", "verify"); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

// countsOf counts what is in the database of a client, which is $1.
func countsOf(t *testing.T, db *pgx.Conn, client httpapi.ClientID) func(sql string) int {
	t.Helper()
	return func(sql string) (n int) {
		t.Helper()
		if err := db.QueryRow(t.Context(), sql, string(client)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// wantNothingLeft waits until the keys and the rows of a client that was deleted are gone.
func wantNothingLeft(t *testing.T, db *pgx.Conn, client httpapi.ClientID) {
	t.Helper()
	count := countsOf(t, db, client)
	if n := count(`SELECT count(*) FROM subject_keys WHERE client = $1 AND wrapped IS NOT NULL`); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if n := count(`SELECT count(*) FROM client_keys c JOIN peppers p USING (client) WHERE client = $1 AND c.wrapped = '' AND p.wrapped = ''`); n != 1 {
		t.Error("its own keys are left")
	}
	testkit.Eventually(t, "nothing of it waits to be delivered", func() bool {
		return count(`SELECT count(*) FROM dispatch_queue WHERE client = $1`) == 0
	})
	testkit.Eventually(t, "no read model has it", func() bool {
		left := 0
		for _, table := range append(tablesWithClients(t, db), "idempotency", "feed_snapshots", "request_log", "request_omissions", "match_queue", "match_sweeps", "dispatch_clients", "api_key_uses") {
			left += count(`SELECT count(*) FROM ` + table + ` WHERE client = $1`)
		}
		return left == 0
	})
}

// What is on its way as the sandbox is deleted, by several at once, is made and destroyed with it, or refused.
func TestASandboxIsDeletedAsItIsWritten(t *testing.T) {
	t.Parallel()
	for log, node := range map[string]func(testing.TB) esdbtest.Node{"in the database": nil, "on an event store": esdbtest.StartNode} {
		t.Run(log, func(t *testing.T) {
			t.Parallel()
			keeps := impatient
			if node != nil {
				keeps = onEventStore(t, node(t))
			}
			first := keepContract(t, keeps)
			both := []*service{first, keepContract(t, replicaOf(first), impatient)}
			owner := first.signUp()
			made := owner.createSandbox("ci")
			in := owner.inside(made)
			var created atomic.Int64
			var writing sync.WaitGroup
			for w := range 16 {
				writing.Go(func() {
					for n := range 1_000 {
						got := in.at(both[w%2]).send("POST", "/api/v1/users", map[string]any{"external_id": fmt.Sprint(w, " ", n)})
						if got.Status != http.StatusCreated {
							wantProblem(t, http.StatusUnauthorized, "invalid_token", got)
							return
						}
						created.Add(1)
					}
					t.Error("nothing refuses what is written")
				})
			}
			testkit.Eventually(t, "users are written", func() bool { return created.Load() > 300 })
			for _, deleted := range together(4, func(i int) answer {
				return owner.at(both[i%2]).sendTo("DELETE", "/sandboxes/"+string(made.ID), nil)
			}) {
				if deleted.Status != http.StatusNoContent {
					wantProblem(t, http.StatusNotFound, "sandbox_unknown", deleted)
				}
			}
			writing.Wait()
			var left int
			if err := first.database().QueryRow(t.Context(), `SELECT count(*) FROM subject_keys WHERE client = $1 AND wrapped IS NOT NULL`, string(made.ID)).Scan(&left); err != nil || left != 0 {
				t.Errorf("%d keys are left, %v", left, err)
			}
		})
	}
}

func TestASandboxDeletesItself(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	owner := s.signUp()
	made := want[httpapi.Sandbox](t, http.StatusCreated, owner.sendTo("POST", "/sandboxes", map[string]any{"name": "short", "expires_in": 60}))
	kept := owner.createSandbox("kept")
	in := owner.inside(made)
	if life := made.ExpiresAt.Sub(made.CreatedAt.Time); life < 59*time.Second || life > time.Minute {
		t.Errorf("it lives for %s", life)
	}
	// The policy goes by the read model: its row is made a minute older.
	if _, err := s.database().Exec(t.Context(), `UPDATE sandboxes_2.sandboxes SET expires_at = now() WHERE client = $1 AND id = $2`,
		string(owner.Client.ID), string(made.ID)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "it is gone", func() bool {
		return in.get("/api/v1/users").Status == http.StatusUnauthorized && len(owner.sandboxes()) == 1
	})
	if got := owner.sandboxes(); got[0] != string(kept.ID) {
		t.Errorf("%v is left", got)
	}
}

func (a account) moveClock(to time.Time) httpapi.Clock {
	a.Helper()
	return want[httpapi.Clock](a, http.StatusOK, a.sendTo("POST", "/clock", map[string]any{"to": to}))
}

func (a account) clock() httpapi.Clock {
	a.Helper()
	return want[httpapi.Clock](a, http.StatusOK, a.get(a.under("/clock")))
}

func TestTheClockOfASandboxIsMovedForward(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	owner := s.signUp()
	in := owner.inside(owner.createSandbox("ci"))
	before := in.clock()
	if before.AheadSeconds != 0 || time.Until(before.Now.Time).Abs() > time.Minute {
		t.Errorf("before: %+v", before)
	}
	to := time.Now().Add(40 * 24 * time.Hour).Truncate(time.Microsecond)
	moved := in.moveClock(to)
	if moved.Now.Before(to) || moved.Now.Sub(to) > time.Minute || moved.AheadSeconds < 39*24*3600 {
		t.Errorf("moved to %s: %+v", to, moved)
	}
	if now := in.clock(); now.Now.Before(moved.Now.Time) || now.AheadSeconds != moved.AheadSeconds {
		t.Errorf("moved %+v, then %+v", moved, now)
	}
	if again := in.moveClock(to); again.AheadSeconds != moved.AheadSeconds { // by a second caller, a moment late
		t.Errorf("moved %+v, then again %+v", moved, again)
	}
	for _, back := range []time.Time{time.Now(), to.Add(-time.Second), to.Add(time.Microsecond)} {
		wantProblem(t, http.StatusConflict, "clock_backward", in.sendTo("POST", "/clock", map[string]any{"to": back}))
	}
	for _, beyond := range []string{"2099-01-01T00:00:00Z", "2330-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} { // Go's durations end after 292 years
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", in.sendTo("POST", "/clock", map[string]any{"to": beyond}))
	}
	wantProblem(t, http.StatusConflict, "sandbox_only", owner.sendTo("POST", "/clock", map[string]any{"to": to}))

	// Everything in it is as of then, and nothing of it beside it.
	if u := in.createUser("u", nil); u.CreatedAt.Before(to) {
		t.Errorf("created at %s, though the clock says %s", u.CreatedAt, to)
	}
	if u := owner.createUser("u", nil); u.CreatedAt.After(time.Now().Add(time.Minute)) {
		t.Errorf("of the client beside it, created at %s", u.CreatedAt)
	}
	if now := owner.clock(); now.AheadSeconds != 0 {
		t.Errorf("the clock of the client beside it: %+v", now)
	}
	// Tokens and keys go by the machine's clock.
	key := s.exchange(in.createAPIKey().RawKey)
	if got := in.with(key).get("/api/v1/users"); got.Status != http.StatusOK {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	in.with(key).moveClock(to.Add(time.Hour)) // by a key, as tests do
	if got := in.state("?at="+url.QueryEscape(to.Add(time.Minute).Format(time.RFC3339)), 10); len(got["user"]) != 1 {
		t.Errorf("as it was then: %v", got)
	}
	if out, err := tool(t, s.Config, "projections", "verify"); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

func TestWhatIsDueHappensOnceWhenTheClockIsMoved(t *testing.T) {
	t.Parallel()
	first := keepContract(t, func(c *app.Config) { c.RetryDelays = []time.Duration{time.Hour, 2 * time.Hour} })
	second := keepContract(t, replicaOf(first), func(c *app.Config) { c.RetryDelays = []time.Duration{time.Hour, 2 * time.Hour} })
	owner := first.signUp()
	p := pairsOf(owner.inside(owner.createSandbox("ci")))
	live := pairsOf(owner)

	now := time.Now()
	c := p.draft(map[string]any{"starts_at": now.Add(time.Hour), "ends_at": now.Add(50 * time.Hour), "frequency_cap": 1, "frequency_window_seconds": 3600})
	want[httpapi.Campaign](t, http.StatusOK, p.change(c, map[string]any{"status": "running"}))
	other := live.draft(map[string]any{"starts_at": now.Add(time.Hour)})
	want[httpapi.Campaign](t, http.StatusOK, live.change(other, map[string]any{"status": "running"}))
	want[httpapi.User](t, http.StatusOK, p.send("PATCH", "/api/v1/users/ext:ann", map[string]any{"traits": map[string]any{"last_seen": now.Format(time.RFC3339)}}))
	seen := p.segment("Seen today", `within(traits.last_seen, "1d")`)
	if got := p.segmentMembers(seen); len(got) != 1 {
		t.Errorf("seen today: %v", got)
	}
	since := want[httpapi.SegmentChangeList](t, http.StatusOK, p.get(seen+"/changes")).Cursor
	r, beside := receive(t, 500, 500, 200), receive(t, 500, 200)
	p.subscribe(r.URL, "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==")
	live.subscribe(beside.URL, "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==")
	p.match("ann", "bob")
	live.match("ann", "bob")
	sent := r.next(t)
	beside.next(t)

	p.at(second).moveClock(now.Add(time.Hour + time.Minute))
	again := r.next(t)
	if again.Header.Get("Webhook-Id") != sent.Header.Get("Webhook-Id") || string(again.Body) != string(sent.Body) {
		t.Errorf("sent %s %s, and again %s %s", sent.Header, sent.Body, again.Header, again.Body)
	}
	testkit.Eventually(t, "the campaign has started", func() bool { return p.campaign(c).Status == "running" })
	if at := p.campaign(c).StartedAt; at.Before(now.Add(time.Hour)) {
		t.Errorf("it started at %s", at)
	}
	user := string(p.users["ann"].ID)
	shown := func() answer { return p.engage(c, map[string]any{"type": "impression", "user_id": user}) }
	if got := shown(); got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	wantProblem(t, http.StatusConflict, "frequency_capped", shown())
	p.moveClock(now.Add(3 * time.Hour)) // the window of the cap is over
	if got := shown(); got.Status != http.StatusCreated {
		t.Errorf("%d %s", got.Status, got.Body)
	}

	p.moveClock(now.Add(26 * time.Hour))
	r.next(t)
	testkit.Eventually(t, "nobody was seen today", func() bool { return len(p.segmentMembers(seen)) == 0 })
	if told, _ := p.segmentChanges(seen, since); len(told) != 1 || told[0] != "left ann" {
		t.Errorf("told is %v", told)
	}
	sizes := func(of account, query string) answer { return of.get(seen + "/sizes" + query) }
	all := want[httpapi.SegmentSizes](t, http.StatusOK, sizes(p.account, "")).Sizes
	oldest, newest := all[0], all[len(all)-1]
	if oldest.Members != 1 || newest.Members != 0 || newest.Day.String() != p.clock().Now.UTC().Format(time.DateOnly) || newest.Day.Sub(oldest.Day.Time) != time.Duration(len(all)-1)*24*time.Hour {
		t.Errorf("the sizes by now are %v", all)
	}
	to := oldest.Day.Add(time.Hour)
	between := func(from time.Time) string {
		return "?from=" + from.Format(time.RFC3339) + "&to=" + to.Format(time.RFC3339)
	}
	for _, from := range []time.Time{to, to.AddDate(0, 0, -400)} {
		if got := want[httpapi.SegmentSizes](t, http.StatusOK, sizes(p.account, between(from))).Sizes; !slices.Equal(got, all[:1]) {
			t.Errorf("the sizes from %s to %s are %v", from, to, got)
		}
	}
	for _, from := range []time.Time{to.Add(time.Second), to.AddDate(0, 0, -400).Add(-time.Second)} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", sizes(p.account, between(from)))
	}
	wantProblem(t, http.StatusNotFound, "segment_unknown", sizes(owner, ""))
	p.moveClock(now.Add(51 * time.Hour))
	testkit.Eventually(t, "the campaign is over", func() bool { return p.campaign(c).Status == "completed" })

	// Each happened once, and of the client beside it nothing.
	happened := map[string]int{}
	for _, e := range each[httpapi.HistoryEvent](t, p.account, p.under("/history"), 100) {
		happened[*e.Type]++
	}
	if happened["campaign.started"] != 1 || happened["campaign.completed"] != 1 || happened["client.clock_moved"] != 4 {
		t.Errorf("%v", happened)
	}
	if got := live.campaign(other).Status; got != "scheduled" {
		t.Errorf("the campaign beside is %s", got)
	}
	if len(r.got) != 0 || len(beside.got) != 0 {
		t.Errorf("%d deliveries more, %d beside", len(r.got), len(beside.got))
	}
	if out, err := tool(t, first.Config, "projections", "verify"); err != nil {
		t.Errorf("%v %s", err, out)
	}
}

func TestAFilterOfUsersGoesByTheClockOfTheSandbox(t *testing.T) {
	t.Parallel()
	owner := shared(t).signUp()
	in := owner.inside(owner.createSandbox("ci"))
	in.createUser("before", map[string]any{"last_seen": time.Now().Format(time.RFC3339), "plan": "pro"})
	in.createUser("item", map[string]any{"plan": "pro"})
	clicked := map[string]any{"item_id": "ext:item", "type": "click"}
	want[httpapi.Interaction](t, http.StatusOK, in.send("POST", "/api/v1/users/ext:before/feed/interactions", clicked))
	named := func(rule string) string {
		t.Helper()
		var listed []string
		for _, u := range each[httpapi.User](t, in, "/api/v1/users?filter="+url.QueryEscape(rule), 100) {
			listed = append(listed, u.ExternalID)
		}
		records, err := csv.NewReader(bytes.NewReader(in.get("/api/v1/users?filter="+url.QueryEscape(rule), header("Accept", "text/csv")).Body)).ReadAll()
		if err != nil || len(records) != len(listed)+1 {
			t.Errorf("%s: as CSV %q, %v, and listed %q", rule, records, err, listed)
		}
		return strings.Join(listed, " ")
	}
	const lastSeen, created, acted = `within(traits.last_seen, "30d")`, `within(user.created_at, "1h")`, `interactions("click", "7d") >= 1`
	for rule, want := range map[string]string{lastSeen: "before", created: "before item", acted: "before"} {
		if got := named(rule); got != want {
			t.Errorf("before the clock is moved %s names %q, not %q", rule, got, want)
		}
	}
	// Whatever else looks at users goes by it, too, though nothing happens after it is moved.
	elsewhere := func() (previewed, matched int) {
		t.Helper()
		preview := want[httpapi.RulePreview](t, http.StatusOK, in.send("POST", "/api/v1/rules/preview", map[string]any{"rule": lastSeen}))
		matches := want[httpapi.ComputedMatches](t, http.StatusOK, in.send("POST", "/api/v1/users/ext:item/matches", map[string]any{"filter": lastSeen, "record": false}))
		return preview.Members, len(matches.Data)
	}
	if previewed, matched := elsewhere(); previewed != 1 || matched != 1 {
		t.Errorf("before the clock is moved a preview names %d, and %d match", previewed, matched)
	}
	in.moveClock(time.Now().Add(40 * 24 * time.Hour))
	if previewed, matched := elsewhere(); previewed != 0 || matched != 0 {
		t.Errorf("once the clock is moved a preview names %d, and %d match", previewed, matched)
	}
	in.createUser("after", map[string]any{"last_seen": in.clock().Now})
	want[httpapi.Interaction](t, http.StatusOK, in.send("POST", "/api/v1/users/ext:after/feed/interactions", clicked))
	for _, rule := range []string{lastSeen, created, acted} {
		if got := named(rule); got != "after" {
			t.Errorf("once the clock is moved %s names %q", rule, got)
		}
	}
}

// named finds the identifiers of things in an answer, but for those of clients and members.
var named = regexp.MustCompile(`(usr|whk|wky|seg|lay|cam|key|evt|dlv|run|clu|imp|ipr)_[0-9a-v]{26}`)

func TestNothingLeaksBetweenASandboxAndTheClientBesideIt(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	owner := s.signUp()
	made := owner.createSandbox("ci")
	r := receive(t, 200)
	fill := func(a account) account {
		p := pairsOf(a)
		a.createAPIKey("read")
		p.subscribe(r.URL, "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==")
		p.segment("Pros", `traits.plan == "pro"`)
		p.createLayer("plan")
		p.run(nil)
		p.match("ann", "bob")
		r.next(t)
		return a
	}
	live, sandbox := fill(owner), fill(owner.inside(made))
	param := regexp.MustCompile(`\{(\w+)\}`)
	doc, err := openapi3.NewLoader().LoadFromData(httpapi.Contract())
	if err != nil {
		t.Fatal(err)
	}
	// All that a client is told by what names nothing.
	told := func(a account) map[string]string {
		found := map[string]string{}
		for path, item := range doc.Paths.Map() {
			at := strings.ReplaceAll(path, "{client_id}", string(a.Client.ID))
			if item.Get == nil || param.MatchString(at) || strings.HasSuffix(at, "/stream") {
				continue
			}
			for _, one := range named.FindAllString(string(a.get(at).Body), -1) {
				found[one] = at
			}
		}
		if len(found) < 15 {
			t.Fatalf("told is no more than %v", found)
		}
		return found
	}
	ofLive, ofSandbox := told(live), told(sandbox)
	for one, at := range ofLive {
		if other, both := ofSandbox[one]; both {
			t.Errorf("%s is told at %s and in the sandbox at %s", one, at, other)
		}
	}
	prefixes := map[string]string{
		"user_id": "usr_", "webhook_id": "whk_", "segment_id": "seg_", "consent_layer_id": "lay_", "campaign_id": "cam_", "key_id": "key_", "event_id": "evt_",
	}
	for _, way := range []struct {
		from   account
		to     account
		things map[string]string
	}{{live, sandbox, ofSandbox}, {sandbox, live, ofLive}} {
		asked := 0
		for path, item := range doc.Paths.Map() {
			for method, op := range item.Operations() {
				if strings.Contains(path, "{client_id}") {
					at := param.ReplaceAllString(strings.ReplaceAll(path, "{client_id}", string(way.to.Client.ID)), "x")
					wantProblem(t, http.StatusForbidden, "other_client", way.from.send(method, at, nil))
				}
				at, known := strings.ReplaceAll(path, "{client_id}", string(way.from.Client.ID)), true
				at = param.ReplaceAllStringFunc(at, func(name string) string {
					prefix := prefixes[strings.Trim(name, "{}")]
					for one := range way.things {
						if prefix != "" && strings.HasPrefix(one, prefix) {
							return one
						}
					}
					known = false
					return name
				})
				if !known || at == path || !param.MatchString(strings.ReplaceAll(path, "{client_id}", "")) {
					continue
				}
				asked++
				switch got := way.from.send(method, at, nil); {
				case method == http.MethodGet && op.RequestBody == nil && got.Status != http.StatusNotFound && got.Status != http.StatusUnprocessableEntity,
					got.Status < 400, got.Status >= 500:
					t.Errorf("%s %s: %d %s", method, at, got.Status, got.Body)
				case got.Status == http.StatusUnprocessableEntity && strings.Contains(string(got.Body), string(way.to.Client.ID)):
					t.Errorf("%s %s: %s", method, at, got.Body)
				}
			}
		}
		if asked < 25 {
			t.Errorf("%d operations were asked for another's things", asked)
		}
	}
}

func TestTheCommandLineWorksInSandboxes(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	owner := s.signUp()
	sh := newShell(t, s.URL, "")
	var errs bytes.Buffer
	if err := sh.begin(t.Context(), strings.NewReader(owner.Password+"\n"), io.Discard, &errs, "login", "--url", s.URL, "--email", owner.Email); err != nil {
		t.Fatalf("%v %s", err, errs.String())
	}
	sandbox := strings.TrimSpace(sh.must("sandboxes", "create", "ci", "--expires-in", "24h"))
	if got := sh.must("sandboxes", "list"); !strings.Contains(got, sandbox) || !strings.Contains(got, "until ") {
		t.Errorf("listed is %s", got)
	}
	if got := sh.must("whoami", "--sandbox", sandbox); !strings.Contains(got, sandbox) || !strings.Contains(got, "false") {
		t.Errorf("in it: %s", got)
	}
	sh.must("trigger", "match.computed", "--sandbox", sandbox)
	before := asJSON[httpapi.Clock](t, sh.must("sandboxes", "clock", "--sandbox", sandbox, "--json"))
	moved := asJSON[httpapi.Clock](t, sh.must("sandboxes", "clock", "--sandbox", sandbox, "--by", "24h", "--json"))
	if moved.Now.Sub(before.Now.Time) < 24*time.Hour {
		t.Errorf("moved from %s to %s", before.Now, moved.Now)
	}
	if _, _, err := sh.run("sandboxes", "clock", "--by", "24h"); err == nil || !strings.Contains(err.Error(), "sandbox_only") {
		t.Errorf("the clock of what is live: %v", err)
	}
	sh.must("sandboxes", "delete", sandbox)
	if got := sh.must("sandboxes", "list"); got != "" {
		t.Errorf("left is %s", got)
	}
	keyed := newShell(t, s.URL, owner.createAPIKey().RawKey)
	if _, _, err := keyed.run("whoami", "--sandbox", sandbox); err == nil || !strings.Contains(err.Error(), "--sandbox goes with a login") {
		t.Errorf("with a key: %v", err)
	}
}
