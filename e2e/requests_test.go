package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"kindred/httpapi"
	"kindred/testkit"
)

// requests are those of a client that are listed, by one filter or none.
func (a account) requests(query string) httpapi.RequestList {
	a.Helper()
	return want[httpapi.RequestList](a, http.StatusOK, a.get(a.under("/requests?limit=100&"+query)))
}

func TestRequestsAreListedByOperationAndKeyWithoutWhatTheyHeld(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a, other := s.signUp(), s.signUp()
	key := want[httpapi.APIKeyCreated](t, http.StatusCreated, a.send("POST", a.under("/api_keys"), map[string]string{"name": "backend"}))
	server := a
	server.Token = s.exchange(key.RawKey)
	const canary = "canary-of-a-person"
	user := server.createUser(canary, map[string]any{"plan": canary})
	named := server.send("GET", "/api/v1/users/ext:"+canary+"?"+url.Values{"nonsense": {canary}}.Encode(), nil, func(r *http.Request) { r.Header.Set("X-Request-Id", "my-own-name") })
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", named)
	wantProblem(t, http.StatusNotFound, "user_unknown", server.get("/api/v1/users/usr_00000000000000000000000000"))

	testkit.Eventually(t, "they are listed", func() bool { return len(a.requests("status=404").Data) == 1 })
	listed := a.requests("key_id=" + string(key.Record.ID)).Data
	var told []string
	for _, one := range listed {
		told = append(told, fmt.Sprint(one.Method, " ", one.Route, " ", one.Status))
		if one.KeyID == nil || *one.KeyID != string(key.Record.ID) || one.DurationMs <= 0 || one.RequestID == "" {
			t.Errorf("%+v", one)
		}
	}
	if want := []string{"GET /api/v1/users/{user_id} 404", "GET /api/v1/users/{user_id} 422", "POST /api/v1/users 201"}; !slices.Equal(told, want) {
		t.Errorf("%q, not %q", told, want)
	}
	if listed[1].RequestID != "my-own-name" {
		t.Errorf("the caller's own name is told as %s", listed[1].RequestID)
	}
	for filter, most := range map[string]int{"status=4xx": 2, "method=POST&key_id=" + string(key.Record.ID): 1, "route=" + url.QueryEscape("/api/v1/users/{user_id}"): 2, "method=DELETE": 0} {
		if found := a.requests(filter).Data; len(found) != most {
			t.Errorf("%s lists %d, not %d", filter, len(found), most)
		}
	}
	raw := a.get(a.under("/requests"))
	if body := string(raw.Body); strings.Contains(body, canary) || strings.Contains(body, string(user.ID)) {
		t.Errorf("they tell of a person: %s", body)
	}
	if found := other.requests("key_id=" + string(key.Record.ID)).Data; len(found) > 0 {
		t.Errorf("another client sees %d", len(found))
	}
	for _, one := range a.requests("").Data {
		if one.KeyID != nil && *one.KeyID == string(key.Record.ID) {
			continue
		}
		if one.Route != "/api/v1/clients/{client_id}/requests" && one.Route != "/api/v1/clients/{client_id}/api_keys" {
			t.Errorf("a member asked for %s", one.Route)
		}
	}
	first := want[httpapi.RequestList](t, http.StatusOK, a.get(a.under("/requests?limit=1&key_id="+string(key.Record.ID))))
	second := want[httpapi.RequestList](t, http.StatusOK, a.get(a.under("/requests?limit=1&key_id="+string(key.Record.ID)+"&cursor="+url.QueryEscape(*first.NextCursor))))
	if first.Data[0].RequestID != listed[0].RequestID || second.Data[0].RequestID != listed[1].RequestID {
		t.Errorf("the pages hold %v and %v", first.Data, second.Data)
	}
	wantProblem(t, http.StatusBadRequest, "bad_cursor", a.get(a.under("/requests?status=404&cursor="+url.QueryEscape(*first.NextCursor))))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(a.under("/requests?status=4xy")))

	b := a.signIn()
	for _, path := range []string{"developers", "requests", "requests?status=4xx"} {
		if p := b.wantPage(b.open(path), path, "backend"); path != "developers" && !strings.Contains(p.HTML, "<code>GET</code> <code><wbr>/api<wbr>/v1<wbr>/users<wbr>/{user_id}</code>") {
			t.Errorf("%s does not list them", path)
		}
	}
	if p := b.open("requests?status=nonsense"); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("a filter that cannot be read answers %d", p.Status)
	}
	if n := len(a.requests("route=" + url.QueryEscape("/api/v1/events")).Data); n > 0 {
		t.Errorf("%d requests of the console's pages are listed", n)
	}
}
