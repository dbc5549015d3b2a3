package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"kindred/eventstore"
	"kindred/postgres/pgtest"
)

func TestNothingIsAcknowledgedThatTheStandbyLacks(t *testing.T) {
	t.Parallel()
	primary := pgtest.Durable(t)
	standby := primary.Standby()
	store := open(t, connect(t, primary.URL()))
	standby.Await(primary)
	stream, e := newStream(), newEvent()
	key := eventstore.Key{Client: client, Subject: "usr_a"}
	key.ID, key.Under, key.Wrapped = "key", "root", []byte("wrapped")
	for _, work := range []func(context.Context) error{
		func(ctx context.Context) error { return appendEvent(ctx, store, stream, eventstore.NoStream, e) },
		func(ctx context.Context) error {
			_, err := store.MakeKeys(ctx, []eventstore.Key{key})
			return err
		},
	} {
		standby.Needed(primary, work)
	}
	standby.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := appendEvent(ctx, store, stream, 0, newEvent()); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("within the caller's time: got %v, want ErrUnavailable", err)
	}
	if err := store.Confirm(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("confirm within the caller's time: got %v, want ErrUnavailable", err)
	}
	standby.Start()
}
