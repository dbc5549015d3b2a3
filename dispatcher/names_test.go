package dispatcher

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/golden"
	"kindred/testkit"
)

// What receivers have programmed against: the body of each event, the headers
// and the signatures, byte by byte.
func TestBodiesHeadersAndSignaturesOfDeliveriesStay(t *testing.T) {
	t.Parallel()
	var lines []string
	at := time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
	client, ids := id.From[id.Client]([16]byte{7}), id.Derived("test")
	rec := eventstore.Recorded{Record: eventstore.Record{Proposed: eventstore.Proposed{
		ID: id.From[id.Event]([16]byte{7}), Client: client, RecordedAt: at,
	}}}
	bodies := map[string][]byte{}
	for _, name := range event.PublicTypes() {
		for version := 1; version <= event.All().Types()[name]; version++ { // what an older one has told stays so
			sample, err := os.ReadFile(fmt.Sprintf("../domain/event/testdata/%s.v%d.json", name, version))
			if err != nil {
				t.Fatal(err)
			}
			e := testkit.Must(event.All().Decode(name, version, sample))(t)
			rec.Type = name
			if bodies[name], err = event.Body(e.(event.Public), rec.Type, rec.Client, rec.RecordedAt); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, "body "+string(bodies[name]))
		}
		made := testkit.Must(json.Marshal(testMessage{event.MessageOf(event.Example(name, ids), name, client, at), true}))(t)
		var fields struct {
			Data map[string]any `json:"data"`
			Test bool           `json:"test"`
		}
		if err := json.Unmarshal(made, &fields); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("body of a test of %s has %v in data, and \"test\":%t", name, slices.Sorted(maps.Keys(fields.Data)), fields.Test))
	}

	received := make(chan string, 20)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			received <- fmt.Sprintf("%s %s: %q", r.Method, name, values)
		}
		close(received)
	}))
	defer server.Close()
	w := newWorker(&Dispatcher{Guard: NewGuard(netip.MustParsePrefix("127.0.0.0/8")), Now: time.Now}, Config{}.withDefaults())
	c := claim{
		Delivery: deliveryOf(rec.ID, "whk_1"), Webhook: "whk_1", Event: rec.ID, EventType: "match.computed",
		URL: server.URL, Body: bodies["match.computed"], Test: true,
	}
	if _, _, _, err := w.post(t.Context(), c, at, [][]byte{[]byte("whsec_c2VjcmV0"), []byte("an old one")}); err != nil {
		t.Fatal(err)
	}
	w.transport.CloseIdleConnections()
	for line := range received {
		lines = append(lines, line)
	}
	golden.Check(t, "deliveries.txt", lines)
}
