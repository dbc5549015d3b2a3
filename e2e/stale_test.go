package e2e

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

func TestAModelThatStandsStillHoldsNobodyElseUp(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a, other := s.signUp(), s.signUp()
	a.populate(1)
	pgtest.Lock(t, s.database(), projector.Slot(projections.Users{})+`.users IN SHARE MODE`)
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
	eventually(t, "all wait", func() bool { return s.counted("kindred_http_requests_in_flight") > more })
	for range 5 {
		want[httpapi.WebhookList](t, http.StatusOK, other.sendTo("GET", "/webhooks", nil))
	}
}
