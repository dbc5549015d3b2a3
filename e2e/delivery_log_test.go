package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/domain/event"
	"kindred/httpapi"
	"kindred/testkit"
)

// deliveries lists the deliveries to a webhook.
func (a account) deliveries(hook httpapi.Webhook, query string) httpapi.DeliveryList {
	a.Helper()
	return want[httpapi.DeliveryList](a, http.StatusOK, a.get(a.under("/webhooks/"+string(hook.ID)+"/deliveries"+query)))
}

// settled waits until a webhook has n deliveries of a status, and returns them.
func (a account) settled(t *testing.T, hook httpapi.Webhook, status string, n int) []httpapi.Delivery {
	t.Helper()
	var found []httpapi.Delivery
	testkit.Eventually(t, "deliveries are "+status, func() bool {
		found = a.deliveries(hook, "?status="+status).Data
		return len(found) == n
	})
	return found
}

func TestDeliveryLog(t *testing.T) {
	t.Parallel()
	s := keepContract(t, func(c *app.Config) {
		c.RetryDelays, c.WebhookTimeout = []time.Duration{20 * time.Millisecond, 30 * time.Millisecond}, 3*time.Second
	})

	t.Run("what is dropped is told, sent again, and recovered once", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 500, 0, 503, 200, 500, 500, 500, 200)
		hook := p.subscribe(r.URL, "s3cr3t")
		path := "/webhooks/" + string(hook.ID)
		start := time.Now().Add(-time.Minute)
		p.match("ann", "bob")
		dropped := p.settled(t, hook, "dropped", 1)[0]
		if len(dropped.Attempts) != 3 || *dropped.Attempts[0].Status != 500 || dropped.Attempts[1].Status != nil ||
			!strings.Contains(*dropped.Attempts[1].Error, "time-out") || dropped.EndedAt == nil || dropped.Test {
			t.Errorf("%+v", dropped)
		}
		first := r.next(t)
		for range 2 {
			r.next(t)
		}
		if h := first.Header; h.Get("X-Kindred-Delivery") != string(dropped.ID) || h.Get("Webhook-Id") != dropped.EventID {
			t.Errorf("the headers name %s of %s", h.Get("X-Kindred-Delivery"), h.Get("Webhook-Id"))
		}
		got := p.get(p.under(path + "/deliveries/" + string(dropped.ID)))
		if one := want[httpapi.Delivery](t, http.StatusOK, got); one.ID != dropped.ID || len(one.Attempts) != 3 {
			t.Errorf("%s", got.Body)
		}

		again := p.sendTo("POST", path+"/deliveries/"+string(dropped.ID)+"/redeliver", nil, idempotent("again"))
		made := want[httpapi.Delivery](t, http.StatusAccepted, again)
		if d := r.next(t); !bytes.Equal(d.Body, first.Body) || d.Header.Get("Webhook-Id") != dropped.EventID || d.Header.Get("X-Kindred-Delivery") != string(made.ID) || made.ID == dropped.ID {
			t.Errorf("%s as %s", d.Body, d.Header.Get("Webhook-Id"))
		}
		if d := p.settled(t, hook, "delivered", 1)[0]; *d.RedeliveryOf != string(dropped.ID) {
			t.Errorf("%+v", d)
		}
		repeated := p.sendTo("POST", path+"/deliveries/"+string(dropped.ID)+"/redeliver", nil, idempotent("again"))
		if d := want[httpapi.Delivery](t, http.StatusAccepted, repeated); d.ID != made.ID {
			t.Errorf("a repetition made %s", d.ID)
		}
		if got := again.Header.Get("Location"); got != p.under(path+"/deliveries/"+string(made.ID)) {
			t.Errorf("Location %s", got)
		}

		since := map[string]any{"since": start}
		if got := want[httpapi.Recovery](t, http.StatusAccepted, p.sendTo("POST", path+"/recover", since)); got.Recovered != 0 || got.More {
			t.Errorf("what was sent again is recovered as well: %+v", got)
		}
		p.match("ann", "cat")
		p.settled(t, hook, "dropped", 2)
		for range 2 {
			got := want[httpapi.Recovery](t, http.StatusAccepted, p.sendTo("POST", path+"/recover", since, idempotent("recover")))
			if got.Recovered != 1 || got.More {
				t.Errorf("%+v", got)
			}
		}
		p.settled(t, hook, "delivered", 2)
		if got := want[httpapi.Recovery](t, http.StatusAccepted, p.sendTo("POST", path+"/recover", since)); got.Recovered != 0 {
			t.Errorf("recovered twice: %+v", got)
		}
		if n := len(p.deliveries(hook, "").Data); n != 4 {
			t.Errorf("%d deliveries", n)
		}
		if pages := each[httpapi.Delivery](t, p.account, p.under(path+"/deliveries"), 1); len(pages) != 4 || pages[0].ID != dropped.ID {
			t.Errorf("page by page %d", len(pages))
		}
		health := want[httpapi.Webhook](t, http.StatusOK, p.get(p.under(path))).Deliveries
		if health.Pending != 0 || health.Skipped != 0 {
			t.Errorf("%+v", health)
		}
		testkit.Eventually(t, "the last answers are told", func() bool {
			health := want[httpapi.Webhook](t, http.StatusOK, p.get(p.under(path))).Deliveries
			return health.LastSuccessAt != nil && health.LastFailureAt != nil && health.FailingSince == nil
		})
	})

	t.Run("what was skipped while paused is counted, and never sent", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 200)
		hook := p.subscribe(r.URL, "")
		path := "/webhooks/" + string(hook.ID)
		want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"status":"paused"}`))
		p.match("ann", "bob")
		if got := p.deliveries(hook, ""); len(got.Data) != 0 || got.Skipped != 1 {
			t.Errorf("%+v", got)
		}
		wantProblem(t, http.StatusConflict, "webhook_paused", p.sendTo("POST", path+"/test", `{"event_type":"match.computed"}`))
		wantProblem(t, http.StatusConflict, "webhook_paused", p.sendTo("POST", path+"/recover", `{"since":"2026-01-01T00:00:00Z"}`))
		want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"status":"active"}`))
		if got := want[httpapi.Recovery](t, http.StatusAccepted, p.sendTo("POST", path+"/recover", `{"since":"2026-01-01T00:00:00Z"}`)); got.Recovered != 0 {
			t.Errorf("%+v", got)
		}
		p.match("ann", "cat")
		if pair := p.of(r.next(t)); pair != "ann+cat" {
			t.Errorf("%s was delivered", pair)
		}
	})

	t.Run("a test is signed, marked, and of any type", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 200)
		hook := p.subscribe(r.URL, "s3cr3t")
		path := "/webhooks/" + string(hook.ID)
		for eventType, fields := range map[string][]string{
			"match.computed":            {"data.user_id string", "data.matched_user_id string", "data.score number"},
			"clustering.completed":      {"data.consent_layer_id string", "data.clustering_run_id string", "data.clusters[].id string", "data.clusters[].size number", "data.clusters[].label string"},
			"clustering.failed":         {"data.consent_layer_id string", "data.error_details string"},
			"campaign.budget_exhausted": {"data.campaign_id string"},
			"cluster.drift_detected":    {"data.cluster_id string"},
		} {
			made := want[httpapi.Delivery](t, http.StatusAccepted, p.sendTo("POST", path+"/test", map[string]string{"event_type": eventType}, idempotent(eventType)))
			d := r.next(t)
			wantShape(t, d.Body, append([]string{"event_type string", "timestamp string", "test bool", "data.client_id string"}, fields...)...)
			if d.Header.Get("X-Kindred-Test") != "true" || d.Header.Get("X-Service-Event") != eventType || d.Header.Get("X-Service-Signature") == "" ||
				d.Header.Get("Webhook-Id") != made.EventID || !made.Test {
				t.Errorf("%s: %v", eventType, d.Header)
			}
			repeated := want[httpapi.Delivery](t, http.StatusAccepted, p.sendTo("POST", path+"/test", map[string]string{"event_type": eventType}, idempotent(eventType)))
			if repeated.ID != made.ID {
				t.Errorf("a repetition made %s", repeated.ID)
			}
		}
		p.settled(t, hook, "delivered", 5)
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", p.sendTo("POST", path+"/test", `{"event_type":"internal"}`))
		for range 15 {
			want[httpapi.Delivery](t, http.StatusAccepted, p.sendTo("POST", path+"/test", `{"event_type":"match.computed"}`))
		}
		refused := p.sendTo("POST", path+"/test", `{"event_type":"match.computed"}`)
		wantProblem(t, http.StatusTooManyRequests, "too_many_tests", refused)
		if after, err := strconv.Atoi(refused.Header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
			t.Errorf("Retry-After %q", refused.Header.Get("Retry-After"))
		}
		sent := p.settled(t, hook, "delivered", 20)[0]
		wantProblem(t, http.StatusTooManyRequests, "too_many_tests", p.sendTo("POST", path+"/deliveries/"+string(sent.ID)+"/redeliver", nil))
	})

	t.Run("what is not subscribed to any more is not sent, and not recovered", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 500)
		hook := p.subscribe(r.URL, "")
		path := "/webhooks/" + string(hook.ID)
		p.match("ann", "bob")
		dropped := p.settled(t, hook, "dropped", 1)[0]
		want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", path, `{"event_types":["clustering.failed"]}`))
		wantProblem(t, http.StatusConflict, "event_type_not_subscribed", p.sendTo("POST", path+"/deliveries/"+string(dropped.ID)+"/redeliver", nil))
		if got := want[httpapi.Recovery](t, http.StatusAccepted, p.sendTo("POST", path+"/recover", `{"since":"2026-01-01T00:00:00Z"}`)); got.Recovered != 0 {
			t.Errorf("%+v", got)
		}
	})

	t.Run("two secrets sign after a rotation", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 200)
		hook := p.subscribe(r.URL, "old secret")
		path := "/webhooks/" + string(hook.ID) + "/rotate_secret"
		rotated := want[httpapi.Webhook](t, http.StatusOK, p.sendTo("POST", path, nil, idempotent("rotate")))
		p.Logs.keepOut(*rotated.Secret)
		if !strings.HasPrefix(*rotated.Secret, "whsec_") || !rotated.HasSecret {
			t.Error("no secret of the usual form was made")
		}
		repeated := p.sendTo("POST", path, nil, idempotent("rotate"))
		if problem := wantProblem(t, http.StatusConflict, "secret_already_shown", repeated); !strings.Contains(problem.Detail, string(hook.ID)) {
			t.Errorf("%s", repeated.Body)
		}
		p.match("ann", "bob")
		d := r.next(t)
		if n := len(strings.Fields(d.Header.Get("Webhook-Signature"))); n != 2 {
			t.Errorf("%d signatures", n)
		}
		p.Logs.keepOut("chosen secret")
		for range 2 { // the second time as a repetition
			got := want[httpapi.Webhook](t, http.StatusOK, p.sendTo("POST", path, `{"secret":"chosen secret"}`, idempotent("choose")))
			if *got.Secret != "chosen secret" {
				t.Error("the chosen secret was not taken")
			}
		}
		wantProblem(t, http.StatusUnprocessableEntity, "idempotency_key_reused", p.sendTo("POST", path, `{"secret":"another"}`, idempotent("choose")))
	})

	t.Run("nobody sees another's deliveries", func(t *testing.T) {
		p, stranger := newPairs(s), s.signUp()
		r := receive(t, 200)
		hook := p.subscribe(r.URL, "")
		p.match("ann", "bob")
		d := p.settled(t, hook, "delivered", 1)[0]
		path := "/webhooks/" + string(hook.ID)
		for _, a := range []answer{
			stranger.get(stranger.under(path + "/deliveries")), stranger.get(stranger.under(path + "/deliveries/" + string(d.ID))),
			stranger.sendTo("POST", path+"/deliveries/"+string(d.ID)+"/redeliver", nil),
			stranger.sendTo("POST", path+"/test", `{"event_type":"match.computed"}`),
			stranger.sendTo("POST", path+"/recover", `{"since":"2026-01-01T00:00:00Z"}`), stranger.sendTo("POST", path+"/rotate_secret", nil),
		} {
			wantProblem(t, http.StatusNotFound, "webhook_unknown", a)
		}
		other := p.subscribe(r.URL, "")
		under := "/webhooks/" + string(other.ID) + "/deliveries/" + string(d.ID)
		wantProblem(t, http.StatusNotFound, "delivery_unknown", p.get(p.under(under)))
		wantProblem(t, http.StatusNotFound, "delivery_unknown", p.sendTo("POST", under+"/redeliver", nil))
		wantProblem(t, http.StatusNotFound, "delivery_unknown", p.get(p.under(path+"/deliveries/nonsense")))
	})

	t.Run("users are named as the client chose, by the order of the log", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 200, 500, 200)
		hook := p.subscribe(r.URL, "")
		p.match("ann", "bob")
		if d := r.next(t); p.of(d) != "ann+bob" || bytes.Contains(d.Body, []byte(`"ann"`)) {
			t.Errorf("%s", d.Body)
		}
		want[httpapi.ClientDetails](t, http.StatusOK, p.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"external_id"}}`))
		p.match("ann", "cat")
		first, second := r.next(t), r.next(t)
		if !bytes.Contains(first.Body, []byte(`"user_id":"ann","matched_user_id":"cat"`)) || bytes.Contains(first.Body, []byte("usr_")) || !bytes.Equal(first.Body, second.Body) {
			t.Errorf("%s, then %s", first.Body, second.Body)
		}
		p.settled(t, hook, "delivered", 2)

		delivered := p.deliveries(hook, "").Data[1]
		wantDone(t, p.send("DELETE", "/api/v1/users/ext:cat", nil))
		want[httpapi.Delivery](t, http.StatusAccepted, p.sendTo("POST", "/webhooks/"+string(hook.ID)+"/deliveries/"+string(delivered.ID)+"/redeliver", nil))
		p.settled(t, hook, "cancelled", 1)
		if n := len(r.got); n != 0 {
			t.Errorf("%d deliveries name who was erased", n)
		}
		want[httpapi.ClientDetails](t, http.StatusOK, p.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"user_id"}}`))
		p.match("ann", "dan")
		if d := r.next(t); p.of(d) != "ann+dan" || bytes.Contains(d.Body, []byte(`"dan"`)) {
			t.Errorf("%s", d.Body)
		}
	})
}

// The log hears of each delivery once, however it ended.
func TestEndsOfDeliveriesAreRecorded(t *testing.T) {
	t.Parallel()
	s := keepContract(t, func(c *app.Config) { c.RetryDelays = []time.Duration{10 * time.Millisecond} })
	p := newPairs(s)
	good, bad := p.subscribe(receive(t, 200).URL, ""), p.subscribe(receive(t, 500).URL, "")
	for _, other := range []string{"bob", "cat", "dan"} {
		p.match("ann", other)
	}
	states := map[string]string{}
	for hook, status := range map[httpapi.WebhookID]string{good.ID: "delivered", bad.ID: "dropped"} {
		for _, d := range p.settled(t, httpapi.Webhook{ID: hook}, status, 3) {
			states[string(d.ID)] = status
		}
	}
	conn := s.database()
	recorded := func() (told []string) {
		rows, err := conn.Query(t.Context(), `SELECT stream, data FROM events WHERE type = 'deliveries.ended' ORDER BY position`)
		if err != nil {
			t.Fatal(err)
		}
		var (
			stream string
			data   []byte
		)
		if _, err := pgx.ForEachRow(rows, []any{&stream, &data}, func() error {
			var e event.DeliveriesEnded
			if err := json.Unmarshal(data, &e); err != nil {
				return err
			}
			if want := "deliveries-" + string(p.Client.ID) + "-" + string(e.Webhook) + "-"; !strings.HasPrefix(stream, want) {
				t.Errorf("stream %s", stream)
			}
			for _, ending := range e.Deliveries {
				told = append(told, string(ending.Delivery))
				if states[string(ending.Delivery)] != ending.State || ending.Event == "" || ending.Attempts != map[string]int{"delivered": 1, "dropped": 2}[ending.State] {
					t.Errorf("%+v", ending)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return told
	}
	testkit.Eventually(t, "all ends are recorded", func() bool { return len(recorded()) >= 6 })
	told := recorded()
	slices.Sort(told)
	if len(slices.Compact(told)) != 6 {
		t.Errorf("told of %q", told)
	}
}
