package projections_test

import (
	"testing"

	"kindred/domain/fault"
	"kindred/eventstore/feed"
	"kindred/projections"
)

func TestWhoseSubscriptionsCannotBeReadTakesNoTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.follow(projections.Webhooks{})
	subscriptions := projections.NewSubscriptions(w.reader)
	worked := 0
	work := func() error { worked++; return nil }
	if err := subscriptions.Alone(t.Context(), w.acme, work); err != nil || worked != 1 {
		t.Fatalf("%d worked, %v", worked, err)
	}
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ($1, $2, '', '', '')`,
		feed.Slot(subscriptions), string(w.acme)); err != nil {
		t.Fatal(err)
	}
	if err := subscriptions.Alone(t.Context(), w.acme, work); !fault.Is(err, "quarantined") || worked != 1 {
		t.Errorf("%d worked, %v", worked, err)
	}
}
