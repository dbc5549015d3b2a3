package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/travel"
)

// BenchmarkPast builds the state of a client of 20,000 users with 100,000
// events, and a second kindred from its log.
func BenchmarkPast(b *testing.B) {
	config := testConfig(b)
	config.DatabaseURL = pgtest.URL(b)
	f := openApp(b, config)
	ids := id.Random(rand.Reader)
	client := id.Next[id.Client](ids)
	const users, each = 20_000, 5
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(32)
	for n := range users {
		group.Go(func() error {
			user := id.Next[id.User](ids)
			happened := []event.Event{event.EndUserCreated{
				User: user, ExternalID: event.Private([]byte(fmt.Sprint("person ", n))), Traits: event.Private([]byte(`{"age":1}`)),
			}}
			for i := 1; i < each; i++ {
				happened = append(happened, event.EndUserTraitsChanged{User: user, Traits: event.Private(fmt.Appendf(nil, `{"age":%d}`, i))})
			}
			tip := eventstore.NewStreamVersion(eventstore.Stream("user-" + string(client) + "-" + string(user)))
			_, err := f.Log.Append(ctx, tip, eventstore.Origin{Client: client, Actor: "bench"}, id.Random(rand.Reader), happened...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	for _, model := range projections.All() {
		if err := f.Runner.Rebuild(b.Context(), model, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			if err := f.Traveller().Build(b.Context(), client, users*each, nil, func(context.Context, *travel.State) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(users*each*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("replay", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			into := pgtest.URL(b)
			b.StartTimer()
			began := time.Now()
			if _, err := replayed(b, f.Config, "--into", into); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(users*each/time.Since(began).Seconds(), "events/s")
		}
	})
}
