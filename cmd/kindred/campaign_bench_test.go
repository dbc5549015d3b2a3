package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// BenchmarkSpends records spends on PostgreSQL while all read models follow:
// spends a second on one campaign, over many, and at the end of a long history
// beside its beginning.
func BenchmarkSpends(b *testing.B) {
	for _, shape := range []struct{ campaigns, callers int }{{1, 32}, {1, 200}, {100, 200}} {
		b.Run(fmt.Sprintf("campaigns=%d/callers=%d", shape.campaigns, shape.callers), func(b *testing.B) {
			c, call := spending(b)
			campaigns := make([]id.Campaign, shape.campaigns)
			for i := range campaigns {
				drafted, err := c.DraftCampaign(b.Context(), call, event.CampaignTerms{Name: "bench", BudgetMinor: 1 << 50, Currency: "EUR", Audience: "all"})
				if err != nil {
					b.Fatal(err)
				}
				campaigns[i] = drafted.ID
				if _, err := c.ChangeCampaign(b.Context(), call, drafted.ID, commands.ChangeCampaign{
					Status: "running", Terms: func(t event.CampaignTerms) event.CampaignTerms { return t },
				}); err != nil {
					b.Fatal(err)
				}
			}
			var next atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			marks := make([]time.Duration, 11) // when each tenth was done
			b.ResetTimer()
			for range shape.callers {
				all.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if _, err := c.RecordSpend(b.Context(), call, commands.Spend{Campaign: campaigns[n%int64(len(campaigns))], ID: fmt.Sprint(n), AmountMinor: 3}); err != nil {
							b.Error(err)
							return
						}
						if tenth := int64(b.N) / 10; tenth > 0 && n%tenth == 0 {
							marks[n/tenth] = time.Since(began)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "spends/s")
			if b.N >= 10_000 {
				first, last := marks[2]-marks[1], marks[10]-marks[9]
				b.ReportMetric(float64(last)/float64(first), "last/second-tenth")
			}
		})
	}
}

// spending is what records spends, with the read models beside it.
func spending(b *testing.B) (*commands.Commands, commands.Call) {
	b.Helper()
	config := testConfig(b)
	config.DatabaseURL = pgtest.URL(b)
	f, err := found(b.Context(), config, slog.New(slog.DiscardHandler), true)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var following sync.WaitGroup
	following.Go(func() { f.progress.Run(ctx) })
	for _, model := range projections.All() {
		following.Go(func() {
			if err := f.runner.Run(ctx, model); err != nil {
				b.Error(err)
			}
		})
	}
	b.Cleanup(func() {
		stop()
		following.Wait()
		f.close()
	})
	c, err := f.commands(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	return c, commands.Call{Client: "cli_0000000000000000000000000g", Actor: "bench"}
}
