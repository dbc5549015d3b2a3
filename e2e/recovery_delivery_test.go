package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// Every acknowledged match arrives, and the log hears once how each delivery
// ended, although the process that delivers and records is killed meanwhile.
func TestABurstOfDeliveriesOutlivesAKill(t *testing.T) {
	t.Parallel()
	first := startProcess(t, impatient, func(c *app.Config) { c.DatabaseURL, c.WebhookTimeout = pgtest.URL(t), time.Second })
	second := startProcess(t, impatient, replicaOf(first.service), func(c *app.Config) { c.WebhookTimeout = time.Second })
	p := newPairs(second.service)
	r := receive(t, 200)
	hook := p.subscribe(r.URL, "")

	const callers, each = 6, 30
	var done atomic.Int32
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for end := time.Now().Add(patience); done.Load() < callers*each/3 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		first.kill()
	}()
	together(callers, func(i int) struct{} {
		for n := range each {
			key := idempotent(fmt.Sprintf("match %d of %d", n, i))
			for end := time.Now().Add(patience); ; { // lists cannot be read until the other one leads
				got, err := p.try("POST", "/api/v1/users/ext:ann/matches", map[string]string{"matched_user_id": "ext:bob"}, bearer(p.Token), key)
				if err == nil && got.Status == http.StatusOK {
					break
				}
				if err != nil || !passing(got) || time.Now().After(end) {
					t.Errorf("%v: %d %.200s", err, got.Status, got.Body)
					break
				}
				time.Sleep(5 * time.Millisecond) // leaves the other one the machine
			}
			done.Add(1)
		}
		return struct{}{}
	})
	<-killed

	conn := second.database()
	column := func(sql string) []string {
		rows, err := conn.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const (
		ended = `SELECT delivery FROM dispatch_deliveries WHERE state = 'delivered' ORDER BY 1`
		made  = `SELECT encode(uuid_send(event_id), 'hex') FROM events WHERE type = 'match.computed'`
	)
	testkit.Eventually(t, "every match is delivered", func() bool { return len(column(ended)) >= callers*each })
	delivered := column(ended)
	var acknowledged []string
	for _, text := range column(made) {
		var raw [16]byte
		if _, err := hex.Decode(raw[:], []byte(text)); err != nil {
			t.Fatal(err)
		}
		acknowledged = append(acknowledged, string(id.From[id.Event](raw)))
	}
	slices.Sort(acknowledged)
	if len(delivered) != callers*each || len(acknowledged) != callers*each {
		t.Errorf("%d deliveries of %d events, not of %d", len(delivered), len(acknowledged), callers*each)
	}
	if diff := cmp.Diff(acknowledged, column(`SELECT DISTINCT event FROM dispatch_deliveries WHERE state = 'delivered' ORDER BY 1`)); diff != "" {
		t.Errorf("what was acknowledged and what was delivered differ: %s", diff)
	}
	got := map[string]bool{}
	for range len(r.got) {
		got[r.next(t).Header.Get("X-Kindred-Delivery")] = true
	}
	if diff := cmp.Diff(delivered, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("what is noted as delivered and what arrived differ: %s", diff)
	}
	told := func() (ids []string) {
		for _, data := range column(`SELECT convert_from(data, 'UTF8') FROM events WHERE type = 'deliveries.ended'`) {
			var e event.DeliveriesEnded
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			for _, ending := range e.Deliveries {
				ids = append(ids, string(ending.Delivery))
			}
		}
		slices.Sort(ids)
		return ids
	}
	testkit.Eventually(t, "every end is recorded", func() bool { return len(told()) >= callers*each })
	if diff := cmp.Diff(delivered, told()); diff != "" {
		t.Errorf("recorded ends: %s", diff)
	}
	if pending := want[httpapi.DeliveryList](t, http.StatusOK, insist(t, func() answer {
		return p.get(p.under("/webhooks/" + string(hook.ID) + "/deliveries?status=pending"))
	})); len(pending.Data) != 0 {
		t.Errorf("%d are pending", len(pending.Data))
	}
}
