package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
	"kindred/testkit"
)

// Any one of the words opens an operation. Requests are such that those who
// may send them get past the guard and change nothing.
func operations(a account) []struct{ method, path, opens string } {
	return []struct{ method, path, opens string }{
		{"GET", a.under(""), "read admin"},
		{"PATCH", a.under(""), "admin"},
		{"GET", a.under("/members"), "admin"},
		{"POST", a.under("/members"), "login"},
		{"DELETE", a.under("/members/mem_x"), "login"},
		{"PUT", a.under("/members/me/password"), "member"},
		{"GET", a.under("/sessions"), "member"},
		{"DELETE", a.under("/sessions/ses_x"), "member"},
		{"GET", a.under("/api_keys"), "admin"},
		{"POST", a.under("/api_keys"), "login"},
		{"DELETE", a.under("/api_keys/key_x"), "login"},
		{"GET", a.under("/requests"), "admin"},
		{"GET", a.under("/history"), "admin audit"},
		{"GET", a.under("/history/proof"), "admin audit"},
		{"GET", "/api/v1/events", "read admin"},
		{"GET", "/api/v1/events/stream", "read admin"},
		{"GET", a.under("/webhooks"), "read admin webhooks"},
		{"POST", a.under("/webhooks"), "webhooks admin"},
		{"GET", a.under("/webhooks/whk_x"), "read admin webhooks"},
		{"PATCH", a.under("/webhooks/whk_x"), "webhooks admin"},
		{"DELETE", a.under("/webhooks/whk_x"), "webhooks admin"},
		{"GET", "/api/v1/users", "read admin read:user"},
		{"POST", "/api/v1/users", "write admin"},
		{"POST", "/api/v1/users/import", "write admin"},
		{"GET", "/api/v1/users/imports/imp_x", "read write admin"},
		{"GET", "/api/v1/users/usr_x", "read admin read:user"},
		{"PATCH", "/api/v1/users/usr_x", "write admin"},
		{"DELETE", "/api/v1/users/usr_x", "admin erase"},
		{"GET", "/api/v1/users/usr_x/matches", "read admin read:user"},
		{"POST", "/api/v1/users/usr_x/matches", "read write admin"},
		{"GET", "/api/v1/traits", "read admin"},
		{"PATCH", "/api/v1/traits", "write admin"},
		{"GET", "/api/v1/matching/sweep", "read admin"},
		{"GET", "/api/v1/clustering_runs/run_x/map", "read admin"},
		{"GET", "/api/v1/clustering_runs/run_x/flow", "read admin"},
		{"GET", "/api/v1/traits/age/distribution", "read admin"},
		{"POST", "/api/v1/traits/preview", "read admin"},
		{"POST", "/api/v1/clusters/assign", "read admin"},
		{"GET", "/api/v1/users/usr_x/timeline", "admin"},
		{"GET", "/api/v1/users/usr_x/memberships", "read admin"},
		{"GET", "/api/v1/statistics?metric=users", "read admin"},
		{"GET", "/api/v1/attention", "read admin"},
	}
}

func TestEachOperationTakesItsScopes(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	holders := map[string]struct {
		token string
		words []string
	}{
		"owner":   {a.Token, []string{"member", "login", "admin"}},
		"admin":   {a.addMember("admin").Token, []string{"member", "login", "admin"}},
		"viewer":  {a.addMember("viewer").Token, []string{"member", "read"}},
		"auditor": {a.addMember("auditor").Token, []string{"member", "read", "audit"}},
	}
	for _, scope := range []string{"read", "write", "read:user", "admin", "erase", "webhooks"} {
		holders["key with "+scope] = struct {
			token string
			words []string
		}{s.exchange(a.createAPIKey(scope).RawKey), []string{scope}}
	}
	for name, holder := range holders {
		for _, op := range operations(a) {
			var body any
			if op.method == "POST" || op.method == "PATCH" || op.method == "PUT" {
				body = `{"unknown":1}`
			}
			got := a.with(holder.token).send(op.method, op.path, body)
			may := slices.ContainsFunc(strings.Fields(op.opens), func(word string) bool { return slices.Contains(holder.words, word) })
			if refused := got.Status == http.StatusForbidden; refused == may || got.Status == http.StatusUnauthorized {
				t.Errorf("%s, %s %s: %d %.200s", name, op.method, op.path, got.Status, got.Body)
			}
			if !may {
				code := "missing_scope"
				if (op.opens == "login" || op.opens == "member") && strings.HasPrefix(name, "key ") {
					code = "login_required"
				}
				wantProblem(t, http.StatusForbidden, code, got)
			}
		}
	}
	for _, op := range operations(a) {
		got := s.send(op.method, op.path, nil)
		wantProblem(t, http.StatusUnauthorized, "token_missing", got)
	}
	for _, op := range contract(a) {
		if len(*op.Security) == 0 {
			continue
		}
		wantProblem(t, http.StatusUnauthorized, "token_missing", s.send(op.method, op.path, nil))
		for name, holder := range holders {
			var body any
			if op.RequestBody != nil {
				body = `{"unknown":1}`
			}
			got := a.with(holder.token).send(op.method, op.path, body)
			if refused := got.Status == http.StatusForbidden; refused == op.opens(holder.words) || got.Status == http.StatusUnauthorized {
				t.Errorf("%s, %s %s: %d %.200s", name, op.method, op.path, got.Status, got.Body)
			}
		}
	}
}

func TestMembersAndTheirRoles(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	owner := s.signUp()
	admin, viewer, auditor := owner.addMember("admin"), owner.addMember("viewer"), owner.addMember("auditor")

	for _, tt := range []struct {
		who    account
		scopes []string
	}{{admin, []string{"admin", "read", "write"}}, {viewer, []string{"read"}}, {auditor, []string{"read", "audit"}}} {
		if diff := cmp.Diff(tt.scopes, tt.who.Scopes); diff != "" {
			t.Errorf("%s: %s", tt.who.User.Role, diff)
		}
	}
	list := owner.get(owner.under("/members"))
	wantShape(t, list.Body, "data[].id string", "data[].email string", "data[].role string", "data[].created_at string", "next_cursor null")
	wantTimestamps(t, list.Body)
	var roles []httpapi.Role
	for _, m := range want[httpapi.MemberList](t, http.StatusOK, list).Data {
		roles = append(roles, m.Role)
	}
	if diff := cmp.Diff([]httpapi.Role{"owner", "admin", "viewer", "auditor"}, roles); diff != "" {
		t.Error(diff)
	}

	wantProblem(t, http.StatusForbidden, "missing_scope", auditor.get(owner.under("/history?personal=open")))
	want[httpapi.HistoryPage](t, http.StatusOK, auditor.get(owner.under("/history")))

	member := func(email, role string) map[string]string {
		return map[string]string{"email": email, "role": role, "password": "a good password"}
	}
	wantProblem(t, http.StatusForbidden, "owner_only", admin.send("POST", owner.under("/members"), member("second@example.com", "owner")))
	wantProblem(t, http.StatusForbidden, "owner_only", admin.send("DELETE", owner.under("/members/"+string(owner.User.ID)), nil))
	wantProblem(t, http.StatusConflict, "last_owner", owner.send("DELETE", owner.under("/members/"+string(owner.User.ID)), nil))
	wantProblem(t, http.StatusConflict, "email_exists", owner.send("POST", owner.under("/members"), member(strings.ToUpper(owner.Email), "viewer")))
	wantProblem(t, http.StatusConflict, "email_exists", s.signUp().sendTo("POST", "/members", member(viewer.Email, "viewer")))
	wantProblem(t, http.StatusNotFound, "member_unknown", owner.send("DELETE", owner.under("/members/mem_00000000000000000000000000"), nil))

	// Of many owners that remove each other at once, one stays.
	second := owner.addMember("owner")
	results := together(2, func(i int) int {
		pair := []account{owner, second}
		return pair[i].send("DELETE", owner.under("/members/"+string(pair[1-i].User.ID)), nil).Status
	})
	if count(results, http.StatusNoContent) != 1 {
		t.Errorf("two owners removed each other: %v", results)
	}

	// Who is removed can be added again, and the address is free for others.
	wantDone(t, admin.send("DELETE", owner.under("/members/"+string(viewer.User.ID)), nil))
	wantProblem(t, http.StatusUnauthorized, "invalid_credentials",
		s.send("POST", "/auth/token", map[string]string{"email": viewer.Email, "password": viewer.Password}))
	want[httpapi.Member](t, http.StatusCreated, s.signUp().sendTo("POST", "/members", member(viewer.Email, "admin")))
}

func TestRevocationBitesWithinASecondOnEveryReplica(t *testing.T) {
	t.Parallel()
	first := keepContract(t, pooled(t))
	second := keepContract(t, replicaOf(first))
	owner := first.signUp()
	for name, revoke := range map[string]func() (token string, end func() answer){
		"a revoked key": func() (string, func() answer) {
			key := owner.createAPIKey()
			return first.exchange(key.RawKey), func() answer {
				return owner.sendTo("DELETE", "/api_keys/"+string(key.Record.ID), nil)
			}
		},
		"a removed member": func() (string, func() answer) {
			member := owner.addMember("admin")
			return member.Token, func() answer { return owner.sendTo("DELETE", "/members/"+string(member.User.ID), nil) }
		},
	} {
		token, end := revoke()
		for _, s := range []*service{first, second} {
			if got := owner.at(s).with(token).get("/api/v1/users"); got.Status != http.StatusOK {
				t.Fatalf("%s, before: %d %s", name, got.Status, got.Body)
			}
		}
		wantDone(t, end())
		acknowledged := time.Now()
		for _, s := range []*service{first, second} {
			var got answer
			testkit.Eventually(t, name+" opens nothing", func() bool {
				got = owner.at(s).with(token).get("/api/v1/users", eventual())
				return got.Status != http.StatusOK
			})
			if took := time.Since(acknowledged); took > time.Second {
				t.Errorf("%s opened things for %s", name, took)
			}
			wantProblem(t, http.StatusUnauthorized, "invalid_token", got)
		}
	}
}

func TestARevokedKeyStaysListedAndExchangesNothing(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	owner := first.signUp()
	admin := owner.addMember("admin")
	key, orphan := owner.createAPIKey("read", "erase"), admin.createAPIKey()
	for range 2 { // revoking twice is no error
		wantDone(t, owner.sendTo("DELETE", "/api_keys/"+string(key.Record.ID), nil))
	}
	for _, s := range []*service{first, second} {
		wantProblem(t, http.StatusUnauthorized, "invalid_api_key", s.send("POST", "/auth/exchange", map[string]string{"api_key": key.RawKey}))
	}
	listed := each[httpapi.APIKey](t, owner.at(second), owner.under("/api_keys"), 1)
	if len(listed) != 2 {
		t.Fatalf("%d keys are listed", len(listed))
	}
	key.Record.Revoked = true
	for i, want := range []httpapi.APIKey{key.Record, orphan.Record} {
		if diff := cmp.Diff(want, listed[i]); diff != "" {
			t.Error(diff)
		}
	}
	wantProblem(t, http.StatusNotFound, "api_key_unknown", owner.sendTo("DELETE", "/api_keys/key_00000000000000000000000000", nil))

	// The keys that a member made go with the member, but for those kept.
	lost := admin.createAPIKey()
	lostToken := first.exchange(lost.RawKey)
	member := "/members/" + string(admin.User.ID)
	wantProblem(t, http.StatusNotFound, "api_key_unknown", owner.sendTo("DELETE", member+"?keep_api_keys="+string(key.Record.ID), nil))
	wantDone(t, owner.sendTo("DELETE", member+"?keep_api_keys="+string(orphan.Record.ID), nil))
	wantProblem(t, http.StatusUnauthorized, "invalid_api_key", second.send("POST", "/auth/exchange", map[string]string{"api_key": lost.RawKey}))
	testkit.Eventually(t, "its tokens open nothing", func() bool {
		return owner.at(second).with(lostToken).get("/api/v1/users").Status == http.StatusUnauthorized
	})
	token := second.exchange(orphan.RawKey)
	if got := owner.with(token).get("/api/v1/users"); got.Status != http.StatusOK {
		t.Errorf("the key of a removed member that was kept: %d", got.Status)
	}
}

func TestAKeyExpiresWithItsTokensAndTellsItsLastUse(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	expiry := time.Now().Add(4 * time.Second).UTC().Truncate(time.Microsecond)
	wantProblem(t, http.StatusUnprocessableEntity, "invalid",
		a.sendTo("POST", "/api_keys", map[string]any{"name": "late", "expires_at": time.Now().Add(-time.Second)}))
	key := want[httpapi.APIKeyCreated](t, http.StatusCreated, a.sendTo("POST", "/api_keys", map[string]any{"name": "brief", "expires_at": expiry}))
	if key.Record.ExpiresAt == nil || !key.Record.ExpiresAt.Equal(expiry) || key.Record.LastUsedAt != nil {
		t.Errorf("%+v", key.Record)
	}
	session := want[httpapi.Exchanged](t, http.StatusOK, s.send("POST", "/auth/exchange", map[string]string{"api_key": key.RawKey})).Data
	if session.ExpiresIn < 1 || session.ExpiresIn > 4 {
		t.Errorf("its token lives for %d s", session.ExpiresIn)
	}
	listed := each[httpapi.APIKey](t, a, a.under("/api_keys"), 10)
	if used := listed[0].LastUsedAt; used == nil || !used.Equal(used.Truncate(time.Hour)) || time.Since(used.Time) > time.Hour+time.Minute {
		t.Errorf("last used at %v", used)
	}
	token := a.with(session.Token)
	testkit.Eventually(t, "its token expires", func() bool { return token.get("/api/v1/users", eventual()).Status == http.StatusUnauthorized })
	if past := time.Since(expiry); past > time.Second {
		t.Errorf("its token outlived it by %s", past)
	}
	testkit.Eventually(t, "it is exchanged no more", func() bool {
		return s.send("POST", "/auth/exchange", map[string]string{"api_key": key.RawKey}).Status == http.StatusUnauthorized
	})
}

func TestWhoOnlyWritesReadsNothing(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	standard, writer := a.with(s.exchange(a.createAPIKey().RawKey)), a.with(s.exchange(a.createAPIKey("write").RawKey))
	keeper := a.with(s.exchange(a.createAPIKey("webhooks").RawKey))
	user := a.createUser("u1", map[string]any{"salary": 1_000})
	a.createUser("u2", map[string]any{"salary": 1_000})
	path := "/api/v1/users/" + string(user.ID)
	for i, who := range []account{standard, writer} {
		traits := i == 0
		for _, got := range []answer{
			who.send("PATCH", path, `{"traits":{}}`),
			who.send("POST", "/api/v1/users", map[string]any{"external_id": "new-" + who.Token[len(who.Token)-8:], "traits": map[string]any{"salary": 2_000}}),
		} {
			if shown := strings.Contains(string(got.Body), "salary"); got.Status >= 300 || shown != traits {
				t.Errorf("%d %s; traits shown: %v, want %v", got.Status, got.Body, shown, traits)
			}
		}
		got := who.send("POST", path+"/matches", `{"record":false}`)
		if shown := strings.Contains(string(got.Body), "salary"); got.Status != http.StatusOK || shown != traits {
			t.Errorf("matches: %d %s", got.Status, got.Body)
		}
	}
	hook := a.subscribe("https://hooks.example.com/x", "whsec_c2VjcmV0")
	hookPath := a.under("/webhooks/" + string(hook.ID))
	wantProblem(t, http.StatusForbidden, "missing_scope", writer.send("POST", hookPath+"/rotate_secret", `{}`))
	wantProblem(t, http.StatusForbidden, "missing_scope", writer.send("PATCH", hookPath, `{"url":"https://evil.example.com"}`))
	for _, who := range []account{standard, keeper} {
		want[httpapi.Webhook](t, http.StatusOK, who.send("PATCH", hookPath, `{"url":"https://hooks.example.com/y"}`))
		want[httpapi.Webhook](t, http.StatusOK, who.get(hookPath))
	}
	wantProblem(t, http.StatusForbidden, "missing_scope", keeper.get("/api/v1/users"))
	login := want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": a.Email, "password": a.Password}))
	want[httpapi.Webhook](t, http.StatusOK, a.with(login.Token).send("PATCH", hookPath, `{"status":"paused"}`))
}

// existing fills in the parameters of an operation's path with what is there.
func existing(path string, there map[string]string) string {
	for name, is := range there {
		path = strings.ReplaceAll(path, "{"+name+"}", is)
	}
	return inPath.ReplaceAllString(path, "x")
}

// A token that may write, but not read, is shown no trait, no secret and no score
// of what was there, by no operation.
func TestNoOperationShowsWhatIsThereToWhoOnlyWrites(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	writer := a.with(s.exchange(a.createAPIKey("write").RawKey))
	var user httpapi.User
	for n := range 12 { // so many share a value that the schema shows it
		user = a.createUser(fmt.Sprint("u", n), map[string]any{"city": []string{"Hidden-on-Sea", "Hidden-on-Hill"}[n/11], "age": 30 + n})
	}
	if before := a.get("/api/v1/traits"); !strings.Contains(string(before.Body), "Hidden-on-Sea") {
		t.Fatalf("the schema shows nothing: %s", before.Body)
	}
	hook := a.subscribe("https://hooks.example.com/x", "whsec_SGlkZGVuIHNlY3JldCBvZiB0aGUgaG9vaw==")
	there := map[string]string{"client_id": string(a.Client.ID), "user_id": string(user.ID), "webhook_id": string(hook.ID)}
	bodies := map[string]string{
		"changeTraits": `{"traits":{"age":{"weight":2}}}`, "changeUser": `{"traits":{}}`, "putUser": `{}`, "createUser": `{"external_id":"new"}`,
		"computeMatches": `{"limit":5}`, "importUsers": `{"external_id":"u1"}`,
	}
	doc, err := openapi3.NewLoader().LoadFromData(httpapi.Contract())
	if err != nil {
		t.Fatal(err)
	}
	answered := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if method == http.MethodDelete {
				continue // nothing would be left to show
			}
			var body any
			var headers []option
			if op.RequestBody != nil {
				body = "{}"
				if own := bodies[op.OperationID]; own != "" {
					body = own
				}
				if op.RequestBody.Value.Content["application/json"] == nil {
					headers = append(headers, header("Content-Type", "application/x-ndjson"))
				}
			}
			got := writer.send(method, existing(path, there), body, headers...)
			answered[op.OperationID] = got.Status < 300
			for _, hidden := range []string{"Hidden", "SGlkZGVu", `"score"`, `"percentile"`, `"contribution"`} {
				if strings.Contains(string(got.Body), hidden) {
					t.Errorf("%s shows %s: %d %s", op.OperationID, hidden, got.Status, got.Body)
				}
			}
		}
	}
	for operation := range bodies {
		if !answered[operation] {
			t.Errorf("%s was not answered", operation)
		}
	}
}

func TestTheClientAndItsSettings(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	got := a.get(a.under(""))
	wantShape(t, got.Body, "id string", "slug string", "name string", "status string", "tier string", "livemode bool", "settings.webhook_user_ids string",
		"settings.matching_requires_layer bool", "settings.automatic_matching.on bool", "settings.automatic_matching.k number", "settings.automatic_matching.min_score number", "created_at string")
	wantTimestamps(t, got.Body)
	before, tag := want[httpapi.ClientDetails](t, http.StatusOK, got), got.Header.Get("ETag")
	if before.ID != a.Client.ID || before.Slug != a.Client.Slug || before.Settings.WebhookUserIds != "user_id" {
		t.Errorf("%s", got.Body)
	}
	renamed := want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", `{"name":"New Name"}`, header("If-Match", tag)))
	before.Name = "New Name"
	if diff := cmp.Diff(before, renamed); diff != "" {
		t.Errorf("renamed: %s", diff)
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.sendTo("PATCH", "", `{"name":"Too late"}`, header("If-Match", tag)))
	set := want[httpapi.ClientDetails](t, http.StatusOK, a.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"external_id"}}`))
	before.Settings.WebhookUserIds = "external_id"
	if diff := cmp.Diff(before, set); diff != "" {
		t.Errorf("set: %s", diff)
	}
	for _, read := range []answer{a.get(a.under("")), a.sendTo("PATCH", "", `{}`)} {
		if diff := cmp.Diff(before, want[httpapi.ClientDetails](t, http.StatusOK, read)); diff != "" {
			t.Errorf("read: %s", diff)
		}
	}
	login := want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": a.Email, "password": a.Password}))
	if login.Client.Name != "New Name" || login.Client.Slug != a.Client.Slug {
		t.Errorf("%+v", login.Client)
	}
}
