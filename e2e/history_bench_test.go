package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"runtime"
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// BenchmarkHistory enters events in the history and exports them.
func BenchmarkHistory(b *testing.B) {
	config := testConfig(b)
	config.DatabaseURL = pgtest.URL(b)
	f := openApp(b, config)
	ids := id.Random(rand.Reader)
	client := id.Next[id.Client](ids)
	const events = 100_000
	for n := range events / eventstore.MaxAppend {
		batch := make([]event.Event, eventstore.MaxAppend)
		for i := range batch {
			batch[i] = event.ClientRenamed{Client: client, Name: fmt.Sprintf("name %d of what is renamed over and over", n*len(batch)+i)}
		}
		tip := eventstore.NewStreamVersion(eventstore.Stream(fmt.Sprintf("client-%s-%d", client, n)))
		if _, err := f.Log.Append(b.Context(), tip, eventstore.Origin{Client: client, Actor: string(id.Next[id.Key](ids))}, ids, batch...); err != nil {
			b.Fatal(err)
		}
	}
	enter := func() {
		if err := f.Runner.Rebuild(b.Context(), projections.History{}, nil); err != nil {
			b.Fatal(err)
		}
	}
	enter()
	b.Run("enter", func(b *testing.B) {
		for b.Loop() {
			enter()
		}
		b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	auditor, err := f.Auditor(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("export", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for b.Loop() {
			if err := auditor.Export(b.Context(), client, false, io.Discard, nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapSys)/(1<<20), "MiB-heap")
	})
}
