package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"kindred/app"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/testkit"
)

func TestAModelThatStandsStillHoldsNobodyElseUp(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a, other := s.signUp(), s.signUp()
	a.populate(1)
	pgtest.Lock(t, s.database(), projector.ID(projections.Users{})+`.users IN SHARE MODE`)
	ctx, stop := context.WithCancel(t.Context())
	want[httpapi.User](t, http.StatusCreated, a.send("POST", "/api/v1/users", `{"external_id":"late"}`))

	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	const more = 40 // than are read at a time
	for range more {
		waiting.Go(func() {
			for ctx.Err() == nil {
				if got, err := a.try("GET", "/api/v1/users?limit=1", nil); err != nil || got.Status != http.StatusServiceUnavailable {
					t.Errorf("%d %s, %v", got.Status, got.Body, err)
				}
			}
		})
	}
	testkit.Eventually(t, "all wait", func() bool { return s.counted("kindred_http_requests_in_flight") > more })
	for range 5 {
		want[httpapi.WebhookList](t, http.StatusOK, other.sendTo("GET", "/webhooks", nil))
	}
}

// Reads that hang in the database, of three clients, leave connections to another's.
func TestReadsThatHangHoldNobodyElseUp(t *testing.T) {
	t.Parallel()
	s := startService(t, func(c *app.Config) { c.DatabaseConns = 24 }) // 12 of them for reads
	other := s.signUp()
	greedy := []account{s.signUp(), s.signUp(), s.signUp()}
	for _, a := range append(greedy, other) { // their tokens are known from here on
		want[httpapi.WebhookList](t, http.StatusOK, a.sendTo("GET", "/webhooks", nil))
	}
	pgtest.Lock(t, s.database(), projector.ID(projections.Campaigns{})+`.campaigns IN ACCESS EXCLUSIVE MODE`)
	ctx, end := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	defer hanging.Wait()
	defer end()
	const each = 20
	for _, a := range greedy {
		for range each {
			hanging.Go(func() {
				for ctx.Err() == nil {
					if got, err := a.try("GET", "/api/v1/campaigns", nil); err != nil || got.Status != http.StatusServiceUnavailable {
						t.Errorf("%d %s, %v", got.Status, got.Body, err)
					}
				}
			})
		}
	}
	const hang = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'kindred reads' AND wait_event_type = 'Lock'`
	conn := s.database()
	stuck := func() (n int) {
		if err := conn.QueryRow(t.Context(), hang).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	testkit.Eventually(t, "they hang", func() bool { return stuck() >= 10 })
	for range 20 {
		want[httpapi.WebhookList](t, http.StatusOK, other.sendTo("GET", "/webhooks", nil))
		if n := stuck(); n < 10 || n > 11 {
			t.Fatalf("%d reads hang, not 6, 3 and 1 or 2 of a client", n)
		}
	}
}
