package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
)

// Beyond what is read of a stream's end, a request is found by the ids of its events.
func TestARequestIsFoundAgainBehindManyOthers(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	a := first.signUp()
	for _, external := range []string{"ann", "bob"} {
		a.createUser(external, map[string]string{"plan": "pro"})
	}
	const clicks, matches = "/api/v1/users/ext:ann/feed/interactions", "/api/v1/users/ext:ann/matches"
	bodies := map[string]string{clicks: `{"item_id":"ext:bob","type":"click"}`, matches: `{"limit":1}`}
	made := map[string]answer{}
	for path, body := range bodies {
		if made[path] = a.send("POST", path, body, idempotent("key of "+path)); made[path].Status >= 300 {
			t.Fatalf("%d %s", made[path].Status, made[path].Body)
		}
	}
	for range 60 {
		for path, body := range bodies {
			if got := a.send("POST", path, body); got.Status >= 300 {
				t.Fatalf("%d %s", got.Status, got.Body)
			}
		}
	}
	for path, body := range bodies {
		for _, b := range []account{a, a.at(second)} {
			again := b.send("POST", path, body, idempotent("key of "+path))
			if again.Status != made[path].Status || string(again.Body) != string(made[path].Body) {
				t.Errorf("%s: %d %s\nthe first answer: %d %s", path, again.Status, again.Body, made[path].Status, made[path].Body)
			}
		}
	}
	var recorded int
	const count = `SELECT count(*) FROM events WHERE client = $1 AND type IN ('feed.interaction_recorded', 'match.computed')`
	if err := first.database().QueryRow(t.Context(), count, a.Client.ID).Scan(&recorded); err != nil || recorded != 122 {
		t.Errorf("%d are recorded, not 122: %v", recorded, err)
	}
}

func TestARepeatedRequestTakesEffectOnce(t *testing.T) {
	t.Parallel()
	first := keepContract(t, pooled(t))
	second := keepContract(t, replicaOf(first))
	a := first.signUp()
	for _, external := range []string{"ann", "bob", "cat"} {
		a.createUser(external, map[string]string{"plan": "pro"})
	}
	size := func(path string) func() int {
		return func() int { return len(each[json.RawMessage](t, a, path, 100)) }
	}
	for _, tt := range []struct {
		name, path, body, other string
		status                  int
		n                       func() int
	}{
		{"a user", "/api/v1/users", `{"external_id":"new"}`, `{"external_id":"newer"}`, 201, size("/api/v1/users")},
		{"a webhook", a.under("/webhooks"), `{"url":"http://127.0.0.1:1/","event_types":["match.computed"],"secret":"s3cr3t-1"}`, `{"url":"http://127.0.0.1:2/","event_types":["match.computed"]}`, 201, size(a.under("/webhooks"))},
		{"a member", a.under("/members"), `{"email":"repeated@example.com","role":"viewer","password":"long enough"}`, `{"email":"other@example.com","role":"viewer","password":"long enough"}`, 201, size(a.under("/members"))},
		{"matches", "/api/v1/users/ext:ann/matches", `{"limit":2}`, `{"limit":1}`, 200, size("/api/v1/users/ext:ann/matches")},
	} {
		before := tt.n()
		made := a.send("POST", tt.path, tt.body, idempotent("key of "+tt.name))
		if made.Status != tt.status {
			t.Fatalf("%s: %d %s", tt.name, made.Status, made.Body)
		}
		after := tt.n()
		for i, b := range []account{a, a.at(second), a} {
			again := b.send("POST", tt.path, tt.body, idempotent("key of "+tt.name))
			if again.Status != made.Status || string(again.Body) != string(made.Body) ||
				again.Header.Get("Location") != made.Header.Get("Location") || again.Header.Get("ETag") != made.Header.Get("ETag") {
				t.Errorf("%s, repetition %d: %d %s\nthe first answer: %d %s", tt.name, i+1, again.Status, again.Body, made.Status, made.Body)
			}
		}
		if n := tt.n(); n != after || after == before {
			t.Errorf("%s: %d before, %d after one request, %d after four", tt.name, before, after, n)
		}
		for _, b := range []account{a, a.at(second)} {
			wantProblem(t, http.StatusUnprocessableEntity, "idempotency_key_reused", b.send("POST", tt.path, tt.other, idempotent("key of "+tt.name)))
		}
	}

	// A repetition answers as of then, whatever has become of it since.
	made := a.send("POST", "/api/v1/users", `{"external_id":"new"}`, idempotent("key of a user"))
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:new", `{"traits":{"x":1}}`))
	if again := a.send("POST", "/api/v1/users", `{"external_id":"new"}`, idempotent("key of a user")); string(again.Body) != string(made.Body) {
		t.Errorf("after a change: %d %s", again.Status, again.Body)
	}
	// Another client's key is another key, and so is one for another path.
	b := first.signUp()
	for _, got := range []answer{
		b.send("POST", "/api/v1/users", `{"external_id":"theirs"}`, idempotent("key of a user")),
		a.sendTo("POST", "/webhooks", `{"url":"http://127.0.0.1:3/","event_types":["match.computed"]}`, idempotent("key of a user")),
	} {
		if got.Status != http.StatusCreated {
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
	// The same user, a key for each: two requests.
	wantProblem(t, http.StatusConflict, "user_exists", a.send("POST", "/api/v1/users", `{"external_id":"new"}`, idempotent("fresh")))
	// After a refusal the key is free again.
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users", `{"external_id":""}`, idempotent("refused")))
	wantProblem(t, http.StatusConflict, "user_exists", a.send("POST", "/api/v1/users", `{"external_id":"ann"}`, idempotent("refused")))
	want[httpapi.User](t, http.StatusCreated, a.send("POST", "/api/v1/users", `{"external_id":"accepted"}`, idempotent("refused")))

	for _, key := range []string{strings.Repeat("k", 256), "ключ", "tab\tbed"} {
		p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users", `{"external_id":"x"}`, idempotent(key)))
		if diff := cmp.Diff("Idempotency-Key", p.Errors[0].Pointer); diff != "" {
			t.Error(diff)
		}
	}
}

func TestASecretIsNeverShownTwice(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	made := want[httpapi.APIKeyCreated](t, http.StatusCreated, a.sendTo("POST", "/api_keys", `{"name":"once"}`, idempotent("k")))
	s.Logs.keepOut(made.RawKey)
	again := a.sendTo("POST", "/api_keys", `{"name":"once"}`, idempotent("k"))
	wantProblem(t, http.StatusConflict, "secret_already_shown", again)
	if text := string(again.Body); !strings.Contains(text, string(made.Record.ID)) || strings.Contains(text, made.RawKey) {
		t.Error(text)
	}
	wantProblem(t, http.StatusUnprocessableEntity, "idempotency_key_reused", a.sendTo("POST", "/api_keys", `{"name":"other"}`, idempotent("k")))
	if keys := each[httpapi.APIKey](t, a, a.under("/api_keys"), 50); len(keys) != 1 {
		t.Errorf("%d keys", len(keys))
	}
	s.exchange(made.RawKey)
}

func TestRepetitionsAtTheSameTimeTakeEffectOnce(t *testing.T) {
	t.Parallel()
	first := keepContract(t)
	second := keepContract(t, replicaOf(first))
	a := first.signUp()
	for _, tt := range []struct{ path, body, list string }{
		{"/api/v1/users", `{"external_id":"once"}`, "/api/v1/users"},
		{a.under("/webhooks"), `{"url":"http://127.0.0.1:1/","event_types":["match.computed"]}`, a.under("/webhooks")},
		{a.under("/api_keys"), `{"name":"once"}`, a.under("/api_keys")},
	} {
		ids := map[string]int{}
		for _, got := range together(20, func(i int) answer {
			return a.at([]*service{first, second}[i%2]).send("POST", tt.path, tt.body, idempotent("at once"))
		}) {
			switch got.Status {
			case http.StatusCreated:
				ids[got.Header.Get("Location")]++
			case http.StatusConflict:
				p := want[httpapi.Problem](t, http.StatusConflict, got)
				if p.Code != "in_flight" && p.Code != "secret_already_shown" || p.Code == "in_flight" && got.Header.Get("Retry-After") == "" {
					t.Errorf("%s: %s %v", tt.path, got.Body, got.Header)
				}
			default:
				t.Errorf("%s: %d %s", tt.path, got.Status, got.Body)
			}
		}
		if n := len(each[json.RawMessage](t, a, tt.list, 50)); n != 1 || len(ids) != 1 {
			t.Errorf("%s: %d were made, answers name %v", tt.path, n, ids)
		}
	}
	again := a.send("POST", "/api/v1/users", `{"external_id":"once"}`, idempotent("at once"))
	if again.Status != http.StatusCreated {
		t.Error(fmt.Sprint(again.Status), string(again.Body))
	}
}
