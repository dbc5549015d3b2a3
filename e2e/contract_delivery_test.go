package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/httpapi"
	"kindred/testkit"
)

// delivery is a request that a receiver got.
type delivery struct {
	At     time.Time
	Path   string
	Header http.Header
	Body   []byte
}

// receiver is somebody's web server. What it gets is held against the contract.
// answers are the statuses of its first
// answers, the last one for all that follow; 0 hangs.
type receiver struct {
	URL string
	got chan delivery
}

func receive(t *testing.T, answers ...int) *receiver {
	t.Helper()
	if _, err := loadContract(); err != nil { // before a delivery waits for it
		t.Fatal(err)
	}
	r := &receiver{got: make(chan delivery, 1000)}
	turns := make(chan int, 1)
	turns <- 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Errorf("receive: %v", err)
		}
		if err := checkDelivery(q.Header, body); err != nil {
			t.Errorf("%s was delivered against the contract: %v", body, err)
		}
		turn := <-turns
		turns <- turn + 1
		r.got <- delivery{time.Now(), q.URL.Path, q.Header, body}
		switch status := answers[min(turn, len(answers)-1)]; {
		case status == 0:
			<-q.Context().Done()
		case status/100 == 3:
			w.Header().Set("Location", "/elsewhere")
			fallthrough
		default:
			w.WriteHeader(status)
		}
	}))
	t.Cleanup(server.Close)
	r.URL = server.URL + "/hook"
	return r
}

// next waits for the next delivery.
func (r *receiver) next(t *testing.T) delivery {
	t.Helper()
	select {
	case d := <-r.got:
		return d
	case <-time.After(patience):
		t.Fatal("nothing was delivered")
		return delivery{}
	}
}

// pairs is a client with four users whose matches are the events.
type pairs struct {
	account
	users map[string]httpapi.User // by external id
}

func newPairs(s *service) pairs { return pairsOf(s.signUp()) }

func pairsOf(a account) pairs {
	p := pairs{a, map[string]httpapi.User{}}
	for _, external := range []string{"ann", "bob", "cat", "dan"} {
		p.users[external] = p.createUser(external, map[string]string{"plan": "pro", "name": external})
	}
	return p
}

// match computes the match of a pair, which is an event, and returns its score.
func (p pairs) match(user, other string) float64 {
	p.Helper()
	got := want[httpapi.ComputedMatches](p, http.StatusOK,
		p.send("POST", "/api/v1/users/ext:"+user+"/matches", map[string]string{"matched_user_id": "ext:" + other})).Data
	if len(got) != 1 {
		p.Fatalf("%d matches", len(got))
	}
	return *got[0].Score
}

// of is the pair that a delivery is about, as in "ann+bob".
func (p pairs) of(d delivery) string {
	p.Helper()
	var body struct {
		Data struct {
			User  string `json:"user_id"`
			Other string `json:"matched_user_id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(d.Body, &body); err != nil {
		p.Errorf("%v: %s", err, d.Body)
	}
	name := func(id string) string {
		for external, user := range p.users {
			if string(user.ID) == id {
				return external
			}
		}
		return id
	}
	return name(body.Data.User) + "+" + name(body.Data.Other)
}

func counted(t *testing.T, conn *pgx.Conn, query string, args ...any) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// states waits until nothing is queued for a webhook, and returns how its
// deliveries ended.
func (p pairs) states(t *testing.T, hook httpapi.Webhook) []string {
	t.Helper()
	conn := p.database()
	testkit.Eventually(t, "the queue is empty", func() bool {
		return counted(t, conn, `SELECT count(*) FROM dispatch_queue WHERE webhook = $1`, hook.ID) == 0
	})
	rows, err := conn.Query(t.Context(), `SELECT state || ' after ' || attempts FROM dispatch_deliveries WHERE webhook = $1 ORDER BY 1`, hook.ID)
	if err != nil {
		t.Fatal(err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return states
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	delays := []time.Duration{40 * time.Millisecond, 80 * time.Millisecond, 120 * time.Millisecond, 160 * time.Millisecond, 200 * time.Millisecond}
	const timeout = 3 * time.Second // a receiver on a loaded machine answers within it: nothing is sent twice
	s := keepContract(t, pooled(t), func(c *app.Config) { c.RetryDelays, c.WebhookTimeout = delays, timeout })

	t.Run("a delivery is what the contract says", func(t *testing.T) {
		p := newPairs(s)
		signed, plain, other := receive(t, 204), receive(t, 200), receive(t, 200)
		p.subscribe(signed.URL, "sécret")
		p.subscribe(plain.URL, "")
		p.subscribe(other.URL, "", "clustering.completed", "clustering.failed", "campaign.budget_exhausted", "cluster.drift_detected")
		everything := receive(t, 200)
		p.subscribe(everything.URL, "", "match.computed", "clustering.completed", "clustering.failed", "campaign.budget_exhausted", "cluster.drift_detected")
		before := time.Now().Add(-time.Second)
		score := p.match("ann", "bob")

		with, without := signed.next(t), plain.next(t)
		if !bytes.Equal(with.Body, without.Body) || !bytes.Equal(with.Body, everything.next(t).Body) {
			t.Errorf("%s\n%s", with.Body, without.Body)
		}
		wantShape(t, with.Body, "event_type string", "timestamp string",
			"data.client_id string", "data.user_id string", "data.matched_user_id string", "data.score number")
		wantTimestamps(t, with.Body)
		var body struct {
			EventType string `json:"event_type"`
			Timestamp time.Time
			Data      map[string]any
		}
		if err := json.Unmarshal(with.Body, &body); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{
			"client_id": string(p.Client.ID), "user_id": string(p.users["ann"].ID), "matched_user_id": string(p.users["bob"].ID), "score": score,
		}, body.Data); diff != "" || body.EventType != "match.computed" {
			t.Errorf("%s: %s", body.EventType, diff)
		}
		if body.Timestamp.Before(before) || body.Timestamp.After(time.Now().Add(time.Second)) {
			t.Errorf("timestamp %s", body.Timestamp)
		}
		mac := hmac.New(sha256.New, []byte("sécret"))
		mac.Write(with.Body)
		for name, want := range map[string]string{
			"Content-Type": "application/json", "X-Service-Event": "match.computed",
			"X-Service-Signature": hex.EncodeToString(mac.Sum(nil)), "X-Kindred-Test": "",
		} {
			if got := strings.Join(with.Header.Values(name), ", "); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		for _, name := range []string{"X-Service-Signature", "Webhook-Signature"} {
			if _, there := without.Header[name]; there {
				t.Errorf("%s without a secret", name)
			}
		}
		if n := len(other.got); n != 0 {
			t.Errorf("%d deliveries to who did not ask for this type", n)
		}
	})

	t.Run("the newest secret signs", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 200)
		hook := p.subscribe(r.URL, "")
		s.Logs.keepOut("rotated-secret")
		want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", "/webhooks/"+string(hook.ID), `{"secret":"rotated-secret"}`))
		p.match("ann", "bob")
		d := r.next(t)
		mac := hmac.New(sha256.New, []byte("rotated-secret"))
		mac.Write(d.Body)
		if got := d.Header.Get("X-Service-Signature"); got != hex.EncodeToString(mac.Sum(nil)) {
			t.Errorf("signature %q", got)
		}
	})

	t.Run("what is not accepted is tried again at the delays, five times, and dropped", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 500, 302, 404, 0, 199+400, 410)
		hook := p.subscribe(r.URL, "secret")
		p.match("ann", "bob")
		first := r.next(t)
		last := first
		for i, delay := range delays {
			d := r.next(t)
			if i == 3 { // the one before hung until the time-out, which runs from dialling: before it arrived here
				delay += timeout - 100*time.Millisecond
			}
			if gap := d.At.Sub(last.At); gap < delay || gap > delay+3*time.Second {
				t.Errorf("retry %d came after %s, not %s", i+1, gap, delay)
			}
			if d.Path != "/hook" || !bytes.Equal(d.Body, first.Body) ||
				d.Header.Get("X-Service-Signature") != first.Header.Get("X-Service-Signature") || d.Header.Get("Webhook-Id") != first.Header.Get("Webhook-Id") {
				t.Errorf("retry %d differs: %s %s", i+1, d.Path, d.Body)
			}
			last = d
		}
		if diff := cmp.Diff([]string{"dropped after 6"}, p.states(t, hook)); diff != "" {
			t.Error(diff)
		}
		if n := len(r.got); n != 0 {
			t.Errorf("%d attempts too many", n)
		}
	})

	t.Run("a retry that is accepted is the last one", func(t *testing.T) {
		p := newPairs(s)
		r := receive(t, 503, 299)
		hook := p.subscribe(r.URL, "")
		p.match("ann", "bob")
		r.next(t)
		r.next(t)
		if diff := cmp.Diff([]string{"delivered after 2"}, p.states(t, hook)); diff != "" {
			t.Error(diff)
		}
		if n := len(r.got); n != 0 {
			t.Errorf("%d attempts too many", n)
		}
	})

	t.Run("paused receives nothing, and nothing of it later", func(t *testing.T) {
		p := newPairs(s)
		r, witness := receive(t, 200), receive(t, 200)
		hook := p.subscribe(r.URL, "")
		p.subscribe(witness.URL, "")
		set := func(status string) {
			t.Helper()
			changed := want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", "/webhooks/"+string(hook.ID), map[string]string{"status": status}))
			if string(changed.Status) != status {
				t.Errorf("status %s", changed.Status)
			}
		}
		p.match("ann", "bob")
		set("paused")
		p.match("ann", "cat")
		p.match("bob", "cat")
		set("active")
		p.match("ann", "dan")
		var got, all []string
		for range 4 {
			all = append(all, p.of(witness.next(t)))
		}
		// The first one may be cancelled by the pause that came right after it.
		for !slices.Contains(got, "ann+dan") {
			got = append(got, p.of(r.next(t)))
		}
		p.states(t, hook)
		for range len(r.got) {
			got = append(got, p.of(<-r.got))
		}
		slices.Sort(got)
		if got := slices.DeleteFunc(got, func(pair string) bool { return pair == "ann+bob" }); !slices.Equal(got, []string{"ann+dan"}) {
			t.Errorf("received %v", got)
		}
		if slices.Sort(all); !slices.Equal(all, []string{"ann+bob", "ann+cat", "ann+dan", "bob+cat"}) {
			t.Errorf("the other one received %v", all)
		}
	})

	for _, tt := range []struct {
		what string
		stop func(p pairs, path string)
	}{
		{"a pause cancels what waits for its retry", func(p pairs, path string) {
			want[httpapi.Webhook](p, http.StatusOK, p.sendTo("PATCH", path, `{"status":"paused"}`))
			want[httpapi.Webhook](p, http.StatusOK, p.sendTo("PATCH", path, `{"status":"active"}`))
		}},
		{"what was removed receives nothing", func(p pairs, path string) { wantDone(p, p.sendTo("DELETE", path, nil)) }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			slow := keepContract(t, func(c *app.Config) { c.RetryDelays = []time.Duration{time.Hour} })
			p := newPairs(slow)
			r, witness := receive(t, 500), receive(t, 200)
			hook := p.subscribe(r.URL, "")
			p.subscribe(witness.URL, "")
			p.match("ann", "bob")
			r.next(t)
			conn := p.database()
			testkit.Eventually(t, "it waits for its retry", func() bool {
				return counted(t, conn, `SELECT count(*) FROM dispatch_queue WHERE webhook = $1 AND failed > 0 AND leased_until IS NULL`, hook.ID) == 1
			})
			tt.stop(p, "/webhooks/"+string(hook.ID))
			if diff := cmp.Diff([]string{"cancelled after 1"}, p.states(t, hook)); diff != "" {
				t.Error(diff)
			}
			p.match("ann", "cat")
			witness.next(t)
			witness.next(t)
			if p.get(p.under("/webhooks/"+string(hook.ID))).Status == http.StatusOK { // it was resumed
				if pair := p.of(r.next(t)); pair != "ann+cat" {
					t.Errorf("received %s", pair)
				}
			}
			if n := len(r.got); n != 0 {
				t.Errorf("%d deliveries too many", n)
			}
		})
	}

	t.Run("each retry goes to the current URL", func(t *testing.T) {
		p := newPairs(s)
		old, anew := receive(t, 500), receive(t, 200)
		hook := p.subscribe(old.URL, "")
		p.match("ann", "bob")
		old.next(t)
		want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", "/webhooks/"+string(hook.ID), map[string]string{"url": anew.URL}))
		if pair := p.of(anew.next(t)); pair != "ann+bob" {
			t.Errorf("received %s", pair)
		}
	})

	t.Run("another client's events are another's", func(t *testing.T) {
		p, q := newPairs(s), newPairs(s)
		r := receive(t, 200)
		p.subscribe(r.URL, "")
		q.match("ann", "bob")
		p.match("ann", "cat")
		if pair := p.of(r.next(t)); pair != "ann+cat" || len(r.got) > 0 {
			t.Errorf("received %s and %d more", pair, len(r.got))
		}
	})
}

func TestDeliveriesReachNoPrivateAddress(t *testing.T) {
	t.Parallel()
	guarded := func(c *app.Config) { c.AllowNetworks = nil }
	s := keepContract(t, guarded)
	a := s.signUp()
	for _, url := range []string{
		"http://127.0.0.1:9/", "http://localhost/", "http://[::1]/", "http://10.0.0.1/", "http://192.168.1.1/", "http://172.16.0.1/",
		"http://169.254.169.254/latest/meta-data/", "http://100.64.0.1/", "http://[::ffff:127.0.0.1]/", "http://[fe80::1]/", "http://0.0.0.0/",
		"http://2130706433/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://user:hunter2@example.com/", "ftp://example.com/", "http://", "nonsense",
	} {
		p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.sendTo("POST", "/webhooks", map[string]any{"url": url, "event_types": []string{"match.computed"}}))
		if len(p.Errors) != 1 || p.Errors[0].Pointer != "/url" || strings.Contains(p.Errors[0].Detail, "hunter2") {
			t.Errorf("%s: %+v", url, p.Errors)
		}
	}
	// A target that is allowed when it is named is judged again when it is dialled.
	lenient := keepContract(t, replicaOf(s), func(c *app.Config) { c.Roles = []string{app.RoleAPI} })
	p := newPairs(lenient)
	r := receive(t, 200)
	hook := p.subscribe(r.URL, "")
	p.match("ann", "bob")
	conn := s.database()
	testkit.Eventually(t, "the attempt fails", func() bool {
		var reason string
		err := conn.QueryRow(t.Context(), `
SELECT a.error FROM dispatch_attempts a JOIN dispatch_queue q USING (delivery) WHERE q.webhook = $1`, hook.ID).Scan(&reason)
		return err == nil && strings.Contains(reason, "leads to no public address")
	})
	if n := len(r.got); n != 0 {
		t.Errorf("%d deliveries", n)
	}
}
