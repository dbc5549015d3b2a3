package commands_test

import (
	"testing"
	"time"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

func TestABatchOfEndsIsRecordedOnce(t *testing.T) {
	w := newFixture(t)
	client, webhook := id.From[id.Client]([16]byte{1}), id.From[id.Webhook]([16]byte{2})
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	ended := func(n byte) event.DeliveriesEnded {
		return event.DeliveriesEnded{Webhook: webhook, Deliveries: []event.Ending{
			{Delivery: id.From[id.Delivery]([16]byte{n}), Event: id.From[id.Event]([16]byte{n}), State: "dropped", Attempts: 6},
		}}
	}
	record := func(n byte, after eventstore.Revision) {
		t.Helper()
		if err := w.RecordEndings(t.Context(), client, day, after, ended(n)); err != nil {
			t.Fatal(err)
		}
	}
	const total = 60
	for n := range byte(total) {
		after, err := w.EndingsRevision(t.Context(), client, webhook, day)
		if err != nil || after != eventstore.Revision(n)-1 {
			t.Fatalf("the stream ends at %d: %v", after, err)
		}
		record(n, after)
		record(n, after)                    // a crash repeats it
		for m := byte(0); m <= n; m += 10 { // so does a process that was held up, however long
			record(m, eventstore.Revision(m)-1)
		}
	}
	history, _, err := w.log.Load(t.Context(), eventstore.Stream("deliveries-"+string(client)+"-"+string(webhook)+"-20260301"))
	if err != nil {
		t.Fatal(err)
	}
	if len(history) != total {
		t.Fatalf("%d events", len(history))
	}
	for i, r := range history {
		got := r.Event.(event.DeliveriesEnded)
		if r.Revision != eventstore.Revision(i) || got.Deliveries[0] != ended(byte(i)).Deliveries[0] {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

// A dispatcher goes by the machine's clock, a sandbox's own may be far ahead.
func TestASubscriptionThatFailsIsPausedWhateverItsClientsClockSays(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "ada@example.com")
	sandbox := testkit.Must(w.CreateSandbox(t.Context(), call, "try", 0))(t)
	inside := call
	inside.Client = sandbox.Sandbox
	ahead := 40 * 24 * time.Hour
	if _, _, _, err := w.MoveClock(t.Context(), inside, w.clock().Add(ahead)); err != nil {
		t.Fatal(err)
	}
	for where, call := range map[string]commands.Call{"the client": call, "the sandbox": inside} {
		before := w.clock()
		hook, err := w.Subscribe(t.Context(), call, commands.Subscribe{
			URL: "https://x.example", EventTypes: []string{"match.computed"}, Controls: domain.ControlsChange{DisableAfter: new(60)},
		})
		if err != nil {
			t.Fatal(err)
		}
		already := w.count(t, "webhook.disabled")
		for paused, asOf := range []time.Time{before, w.clock()} {
			if err := w.DisableWebhook(t.Context(), call.Client, hook.ID, before, asOf); err != nil {
				t.Fatal(err)
			}
			if n := w.count(t, "webhook.disabled") - already; n != paused {
				t.Errorf("%s: %d pauses as of %v", where, n, asOf)
			}
		}
	}
}
