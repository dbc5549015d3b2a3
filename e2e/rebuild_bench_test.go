package e2e

import (
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"kindred/app"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// copyEvents makes as many clients of one, whose events take turns.
const copyEvents = `
INSERT INTO events (position, client, stream, revision, event_id, type, version, data, meta, recorded_at)
SELECT (SELECT max(position) FROM events) + row_number() OVER (ORDER BY e.position, n),
	'cli_' || lpad(n::text, 26, '0'), e.stream || '-' || n, e.revision, gen_random_uuid(), e.type, e.version, e.data, e.meta, e.recorded_at
FROM events e, generate_series(1, $1) AS n`

// fillWithUsers records users of several clients, each created and, thousands
// of users later, changed; all is sealed.
func fillWithUsers(b *testing.B, f *app.App, events int) {
	b.Helper()
	const own, later, writers = 20_000, 2_500, 40
	client := id.Next[id.Client](id.Random(rand.Reader))
	traits := func(i int) *event.Personal {
		return event.Private(fmt.Appendf(nil, `{"age":%d,"plan":"p%d","city":"c%d","likes":["l%d","l%d"],"visits":%d}`, 18+i%60, i%4, i%11, i%9, i%7, i%300))
	}
	var group errgroup.Group
	for writer := range writers {
		group.Go(func() error {
			ids := id.Random(rand.Reader)
			origin := eventstore.Origin{Client: client, Actor: string(id.Next[id.Key](ids)), Correlation: string(id.Next[id.Request](ids))}
			var users []id.User
			var tips []eventstore.StreamVersion
			record := func(i int, e event.Event) error {
				recorded, err := f.Log.Append(b.Context(), tips[i], origin, ids, e)
				if err == nil {
					tips[i], err = recorded[0].StreamVersion()
				}
				return err
			}
			for i := range (own/2 + later) / writers {
				if i < own/2/writers {
					user := id.Next[id.User](ids)
					users = append(users, user)
					tips = append(tips, eventstore.NewStreamVersion(eventstore.Stream(fmt.Sprintf("end_user-%s-%s", client, user))))
					external := event.Private(fmt.Appendf(nil, "user-%d-%d", writer, i))
					if err := record(i, event.EndUserCreated{User: user, ExternalID: external, Traits: traits(i)}); err != nil {
						return err
					}
				}
				if i -= later / writers; i >= 0 && i < len(users) {
					if err := record(i, event.EndUserTraitsChanged{User: users[i], Traits: traits(i + 1)}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	if copies := events/own - 1; copies > 0 {
		if _, err := f.Pool.Exec(b.Context(), copyEvents, copies); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := f.Pool.Exec(b.Context(), `VACUUM (ANALYZE) events`); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRebuildUsers builds the read model of users from 100,000 events,
// BenchmarkRebuildUsersLarge from a million, on a server of its own that
// flushes to the disk.
func BenchmarkRebuildUsers(b *testing.B)      { benchmarkRebuild(b, 100_000) }
func BenchmarkRebuildUsersLarge(b *testing.B) { benchmarkRebuild(b, 1_000_000) }

func benchmarkRebuild(b *testing.B, events int) {
	b.Helper()
	config := testConfig(b)
	config.DatabaseURL = pgtest.OnDisk(b).URL()
	f := openApp(b, config)
	fillWithUsers(b, f, events)
	users := projections.Users{}
	var slowest float64 // of the tenths of a run
	for b.Loop() {
		began, at := time.Now(), int64(0)
		var tenths []float64
		err := f.Runner.Rebuild(b.Context(), users, func(r projector.Rebuilding) {
			if r.Events-at >= int64(events/10) {
				tenths = append(tenths, float64(r.Events-at)/time.Since(began).Seconds())
				began, at = time.Now(), r.Events
			}
		})
		if err != nil {
			b.Fatal(err)
		}
		slowest = slices.Min(tenths)
	}
	var rows int
	if err := f.Pool.QueryRow(b.Context(), `SELECT count(*) FROM users`).Scan(&rows); err != nil || rows != events/2 {
		b.Fatalf("%d users of %d events: %v", rows, events, err)
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(slowest, "slowest-tenth-events/s")
}
