package pgstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres"
	"kindred/postgres/pgtest"
)

const (
	makeBare = `
CREATE TABLE bare (LIKE events INCLUDING ALL);
CREATE SEQUENCE bare_position;
ALTER TABLE bare ALTER position SET DEFAULT nextval('bare_position')`
	insertBare = `
INSERT INTO bare (client, stream, revision, event_id, type, version, data, meta, recorded_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
)

// BenchmarkAppend puts the store beside bare inserts, each its own commit, into
// a table of the same shape on the same durable server. What counts is the
// ratio, "of_bare": to as many writers up to 32, and to 32 beyond.
func BenchmarkAppend(b *testing.B) {
	server := pgtest.OnDisk(b)
	pool, err := postgres.Open(b.Context(), server.URL(), postgres.Options{MaxConns: 32})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), makeBare); err != nil {
		b.Fatal(err)
	}
	store := open(b, pool)
	bare := map[int]float64{} // inserts a second, by writers

	for _, writers := range []int{1, 8, 32, 256} {
		if writers <= 32 {
			b.Run(fmt.Sprintf("bare/%d", writers), func(b *testing.B) {
				bare[writers] = perSecond(b, writers, func(ctx context.Context, stream eventstore.Stream, e eventstore.Proposed) error {
					raw, err := id.Bytes(e.ID)
					if err != nil {
						return err
					}
					_, err = pool.Exec(ctx, insertBare, e.Client, stream, 0, pgtype.UUID{Bytes: raw, Valid: true},
						e.Type, e.Version, e.Data, e.Meta, e.RecordedAt)
					return err
				})
			})
		}
		b.Run(fmt.Sprintf("store/%d", writers), func(b *testing.B) {
			rate := perSecond(b, writers, func(ctx context.Context, stream eventstore.Stream, e eventstore.Proposed) error {
				_, err := store.Append(ctx, stream, eventstore.NoStream, []eventstore.Proposed{e})
				return err
			})
			if floor := bare[min(writers, 32)]; floor > 0 {
				b.ReportMetric(rate/floor, "of_bare")
			}
		})
	}
}

// BenchmarkReadAll reads a log of 20,000 events in pages of 1,000.
func BenchmarkReadAll(b *testing.B) {
	store := open(b, pgtest.New(b))
	const events = 20_000
	for range events / eventstore.MaxAppend {
		batch := make([]eventstore.Proposed, eventstore.MaxAppend)
		for i := range batch {
			batch[i] = newEvent()
		}
		if _, err := store.Append(b.Context(), newStream(), eventstore.NoStream, batch); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		n := 0
		for after := eventstore.Start; n < events; {
			records, err := store.ReadAll(b.Context(), after, 1000)
			if err != nil {
				b.Fatal(err)
			}
			n += len(records)
			after = records[len(records)-1].Position
		}
	}
	b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
}

// perSecond lets writers append b.N events of about 650 bytes, and reports how
// many there were in a second.
func perSecond(b *testing.B, writers int, write func(context.Context, eventstore.Stream, eventstore.Proposed) error) float64 {
	b.Helper()
	var (
		group sync.WaitGroup
		left  atomic.Int64
		data  = []byte(`{"traits":"` + strings.Repeat("x", 400) + `"}`)
		meta  = []byte(`{"actor":"` + strings.Repeat("y", 200) + `"}`)
	)
	left.Store(int64(b.N))
	b.ResetTimer()
	for range writers {
		ids := id.Random(rand.Reader)
		client := id.Next[id.Client](ids)
		group.Go(func() {
			for left.Add(-1) >= 0 {
				stream := eventstore.Stream(fmt.Sprintf("user-%s-%s", client, id.Next[id.User](ids)))
				err := write(b.Context(), stream, eventstore.Proposed{
					ID: id.Next[id.Event](ids), Type: "end_user.created", Version: 1, Client: client,
					RecordedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Data: data, Meta: meta,
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	rate := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(rate, "events/s")
	b.ReportMetric(0, "ns/op") // hidden: writers work at the same time
	return rate
}
