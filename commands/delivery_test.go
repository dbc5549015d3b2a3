package commands_test

import (
	"testing"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

func TestABatchOfEndsIsRecordedOnce(t *testing.T) {
	w := newWorld(t)
	client, webhook := id.From[id.Client]([16]byte{1}), id.From[id.Webhook]([16]byte{2})
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	ended := func(n byte) event.DeliveriesEnded {
		return event.DeliveriesEnded{Webhook: webhook, Deliveries: []event.Ending{
			{Delivery: id.From[id.Delivery]([16]byte{n}), Event: id.From[id.Event]([16]byte{n}), State: "dropped", Attempts: 6},
		}}
	}
	for _, n := range []byte{1, 1, 2, 1, 2, 3} { // a crash repeats the last; a process that was held up, what is before it
		if err := w.RecordEndings(t.Context(), commands.Call{Client: client, Actor: "policy:endings"}, day, ended(n)); err != nil {
			t.Fatal(err)
		}
	}
	history, _, err := w.log.Load(t.Context(), eventstore.Stream("deliveries-"+string(client)+"-"+string(webhook)+"-20260301"))
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != 3 {
		t.Fatalf("%d events", len(history))
	}
	for i, r := range history {
		got := r.Event.(event.DeliveriesEnded)
		if r.Revision != eventstore.Revision(i) || got.Deliveries[0] != ended(byte(i + 1)).Deliveries[0] {
			t.Errorf("%d: %+v", i, got)
		}
	}
}
