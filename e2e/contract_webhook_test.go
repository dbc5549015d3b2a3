package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/app"
	"kindred/httpapi"
)

// TestAChangedSubscriptionCountsFromItsAnswerOn slows the dispatcher down where
// it notes a change.
func TestAChangedSubscriptionCountsFromItsAnswerOn(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	hook := a.subscribe("https://example.com/a", "whsec_dmVyeSB3aHNlY190aGUtZmlyc3Q=")
	path := "/webhooks/" + string(hook.ID)
	want[httpapi.DeliveryList](t, http.StatusOK, a.get(a.under(path+"/deliveries"))) // the dispatcher knows it
	conn := a.database()
	if _, err := conn.Exec(t.Context(), `CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END';
		CREATE TRIGGER dawdle BEFORE INSERT ON dispatch_endpoints FOR EACH ROW EXECUTE FUNCTION dawdle()`); err != nil {
		t.Fatal(err)
	}
	var first string
	if err := conn.QueryRow(t.Context(), `SELECT sealed_url::text FROM dispatch_endpoints WHERE webhook = $1`, hook.ID).Scan(&first); err != nil {
		t.Fatal(err)
	}
	secrets := func(n int) string { return fmt.Sprintf("jsonb_array_length(secrets) = %d", n) }
	for _, step := range []struct {
		method, path string
		body         any
		holds        string
	}{
		{"PATCH", path, `{"url":"https://example.com/b"}`, `sealed_url <> '` + first + `'`},
		{"PATCH", path, `{"event_types":["clustering.failed"]}`, `event_types = '{clustering.failed}'`},
		{"PATCH", path, `{"secret":"whsec_dmVyeSB3aHNlY190aGUtc2Vjb25k"}`, secrets(2)},
		{"POST", path + "/rotate_secret", `{}`, secrets(3)},
		{"PATCH", path, `{"status":"paused"}`, `state = 'paused'`},
		{"PATCH", path, `{"status":"active"}`, `state = 'active'`},
		{"DELETE", path, nil, `state = 'removed'`},
	} {
		if got := a.sendTo(step.method, step.path, step.body); got.Status/100 != 2 {
			t.Fatalf("%s %s: %d %s", step.method, step.body, got.Status, got.Body)
		}
		if counted(t, conn, `SELECT count(*) FROM dispatch_endpoints WHERE webhook = $1 AND `+step.holds, hook.ID) != 1 {
			t.Errorf("%s %s is answered, and does not count yet", step.method, step.body)
		}
	}
}

func TestASubscriptionChangesAlsoWhileNobodyDelivers(t *testing.T) {
	t.Parallel()
	s := startService(t, func(c *app.Config) { c.Roles = []string{app.RoleAPI, app.RoleProjections, app.RolePolicies} })
	a := s.signUp()
	hook := a.subscribe("https://example.com/a", "")
	want[httpapi.Webhook](t, http.StatusOK, a.sendTo("PATCH", "/webhooks/"+string(hook.ID), `{"status":"paused"}`))
	wantDone(t, a.sendTo("DELETE", "/webhooks/"+string(hook.ID), nil))
}

func TestWebhookSubscriptions(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)
	a := s.signUp()
	s.Logs.keepOut("whsec_dmVyeS")
	created := a.sendTo("POST", "/webhooks", `{"url":"https://example.com/a?token=tok-in-url","event_types":["match.computed","cluster.drift_detected"],"secret":"whsec_dmVyeSB3aHNlY192ZXJ5LXNlY3JldA=="}`)
	s.Logs.keepOut("tok-in-url")
	s.Logs.keepOut("tok-in-header")
	hook := want[httpapi.Webhook](t, http.StatusCreated, created)
	fields := []string{"id string", "url string", "event_types[] string", "status string", "has_secret bool", "created_at string", "updated_at string"}
	wantShape(t, created.Body, append([]string{"secret string"}, fields...)...)
	wantTimestamps(t, created.Body)
	if hook.Status != "active" || !hook.HasSecret || *hook.Secret != "whsec_dmVyeSB3aHNlY192ZXJ5LXNlY3JldA==" || created.Header.Get("Location") != a.under("/webhooks/"+string(hook.ID)) {
		t.Errorf("%s", created.Body)
	}
	path := "/webhooks/" + string(hook.ID)
	got := a.get(a.under(path))
	wantShape(t, got.Body, append([]string{
		"deliveries.pending number", "deliveries.skipped number",
		"deliveries.last_success_at null", "deliveries.last_failure_at null", "deliveries.failing_since null",
	}, fields...)...)
	hook.Secret = nil
	shown := want[httpapi.Webhook](t, http.StatusOK, got)
	shown.Deliveries = nil
	if diff := cmp.Diff(hook, shown); diff != "" {
		t.Error(diff)
	}
	second := a.subscribe("https://example.com/b", "")
	list := a.get(a.under("/webhooks"))
	if diff := cmp.Diff([]httpapi.Webhook{hook, second}, want[httpapi.WebhookList](t, http.StatusOK, list).Data); diff != "" || bytes.Contains(list.Body, []byte("whsec_dmVyeS")) {
		t.Error(diff)
	}

	tag := header("If-Match", got.Header.Get("ETag"))
	for _, step := range []struct {
		patch string
		apply func(*httpapi.Webhook)
	}{
		{`{}`, func(*httpapi.Webhook) {}},
		{`{"status":"paused"}`, func(w *httpapi.Webhook) { w.Status = "paused" }},
		{`{"status":"paused"}`, func(*httpapi.Webhook) {}},
		{`{"url":"https://example.com/c"}`, func(w *httpapi.Webhook) { w.URL = "https://example.com/c" }},
		{`{"event_types":["clustering.failed"],"status":"active"}`, func(w *httpapi.Webhook) { w.Status, w.EventTypes = "active", []httpapi.EventType{"clustering.failed"} }},
		{`{"secret":"whsec_dmVyeSB3aHNlY192ZXJ5LW5ldw=="}`, func(*httpapi.Webhook) {}},
		{`{"headers":{"x-b":"tok-in-header","X-A":"2"}}`, func(w *httpapi.Webhook) { w.HeaderNames = []string{"X-A", "x-b"} }},
		{`{"respect_retry_after":true,"disable_after_seconds":3600}`, func(w *httpapi.Webhook) { w.RespectRetryAfter, w.DisableAfterSeconds = new(true), new(3600) }},
		{`{"max_per_second":1000,"ordered":true}`, func(w *httpapi.Webhook) { w.MaxPerSecond, w.Ordered = new(1000), new(true) }},
		{`{"headers":null,"respect_retry_after":false,"disable_after_seconds":null,"max_per_second":null,"ordered":false}`, func(w *httpapi.Webhook) {
			w.HeaderNames, w.RespectRetryAfter, w.DisableAfterSeconds, w.MaxPerSecond, w.Ordered = nil, nil, nil, nil, nil
		}},
	} {
		step.apply(&hook)
		changed := want[httpapi.Webhook](t, http.StatusOK, a.sendTo("PATCH", path, step.patch))
		read := want[httpapi.Webhook](t, http.StatusOK, a.get(a.under(path)))
		read.Deliveries = nil
		if changed.UpdatedAt.Before(hook.UpdatedAt.Time) {
			t.Error("updated_at went back")
		}
		hook.UpdatedAt = changed.UpdatedAt
		if diff := cmp.Diff(hook, changed) + cmp.Diff(hook, read); diff != "" {
			t.Errorf("%s: %s", step.patch, diff)
		}
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale", a.sendTo("PATCH", path, `{"status":"paused"}`, tag))
	want[httpapi.Webhook](t, http.StatusOK, a.sendTo("PATCH", "/webhooks/"+string(second.ID), `{"status":"paused"}`))
	for status, id := range map[string]any{"active": hook.ID, "paused": second.ID} {
		if found := want[httpapi.WebhookList](t, http.StatusOK, a.get(a.under("/webhooks?status="+status))).Data; len(found) != 1 || found[0].ID != id {
			t.Errorf("%s: %+v", status, found)
		}
	}
	for _, wrong := range []string{
		`{"status":"running"}`, `{"event_types":[]}`, `{"event_types":["internal.event"]}`, `{"event_types":["match.computed","match.computed"]}`,
		`{"filter":{}}`, `{"headers":{"Host":"x"}}`, `{"headers":{"X-A":"a\r\nb"}}`, `{"headers":{"X-A":1}}`, `{"headers":[]}`, `{"respect_retry_after":null}`,
		`{"disable_after_seconds":59}`, `{"disable_after_seconds":2592001}`, `{"disable_after_seconds":"1h"}`,
		`{"max_per_second":0}`, `{"max_per_second":1001}`, `{"max_per_second":1.5}`, `{"ordered":null}`, `{"ordered":"yes"}`,
		`{"headers":{"a":"1","b":"1","c":"1","d":"1","e":"1","f":"1","g":"1","h":"1","i":"1","j":"1","k":"1"}}`,
		`{"url":null}`, `{"url":"x"}`, `{"secret":""}`, `{"id":"whk_x"}`, `{"event_types":"match.computed"}`,
	} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.sendTo("PATCH", path, wrong))
	}
	wantProblem(t, http.StatusNotFound, "webhook_unknown", s.signUp().sendTo("PATCH", path, `{"status":"paused"}`))
	wantDone(t, a.sendTo("DELETE", path, nil))
	for _, gone := range []answer{a.get(a.under(path)), a.sendTo("PATCH", path, `{}`), a.sendTo("DELETE", path, nil)} {
		wantProblem(t, http.StatusNotFound, "webhook_unknown", gone)
	}
	if found := each[httpapi.Webhook](t, a, a.under("/webhooks"), 1); len(found) != 1 {
		t.Errorf("%+v", found)
	}
}

func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	replicas := []account{s.signUp()}
	replicas = append(replicas, replicas[0].at(keepContract(t, replicaOf(s))))
	subscribe := func(i int) answer {
		return replicas[i%2].sendTo("POST", "/webhooks", `{"url":"https://example.com/a","event_types":["match.computed"]}`)
	}
	listed := func() []httpapi.Webhook { // which also waits for the model that counts them
		return each[httpapi.Webhook](t, replicas[0], replicas[0].under("/webhooks"), 200)
	}
	made := 0
	for _, got := range together(160, subscribe) { // none of which sees all others
		if got.Status == http.StatusCreated {
			made++
			continue
		}
		wantProblem(t, http.StatusConflict, "too_many_webhooks", got)
	}
	hooks := listed()
	if len(hooks) != 100 || made != 100 {
		t.Fatalf("there are %d, and %d were made", len(hooks), made)
	}
	for _, refused := range together(10, subscribe) {
		wantProblem(t, http.StatusConflict, "too_many_webhooks", refused)
	}
	wantDone(t, replicas[0].sendTo("DELETE", "/webhooks/"+string(hooks[0].ID), nil))
	listed()
	want[httpapi.Webhook](t, http.StatusCreated, subscribe(1))
}

func TestHeaderValuesAreInNoHistory(t *testing.T) {
	t.Parallel()
	a := sharedContract(t).signUp()
	hook := a.subscribe("https://example.com/tok-of-url", "")
	want[httpapi.Webhook](t, http.StatusOK, a.sendTo("PATCH", "/webhooks/"+string(hook.ID), `{"headers":{"X-Token":"tok-of-header"}}`))
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		body := a.get(a.under("/history?personal=open"), header("Accept", accept)).Body
		if !bytes.Contains(body, []byte("X-Token")) || !bytes.Contains(body, []byte("tok-of-url")) || bytes.Contains(body, []byte("tok-of-header")) {
			t.Errorf("%s: %s", accept, body)
		}
	}
}
