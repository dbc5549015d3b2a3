package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kindred/app"
	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/testkit"
)

// BenchmarkSpends records spends on PostgreSQL while all read models follow:
// spends a second on one campaign, and over many.
func BenchmarkSpends(b *testing.B) {
	for _, shape := range []struct{ campaigns, callers int }{{1, 32}, {1, 200}, {100, 200}} {
		b.Run(fmt.Sprintf("campaigns=%d/callers=%d", shape.campaigns, shape.callers), func(b *testing.B) {
			c, call := spending(b)
			campaigns := make([]id.Campaign, shape.campaigns)
			for i := range campaigns {
				campaigns[i] = runCampaign(b, c, call, 1<<50)
			}
			b.ResetTimer()
			b.ReportMetric(spendRate(b, c, call, campaigns, shape.callers, 0, b.N), "spends/s")
		})
	}
}

// BenchmarkSpendsAfterMany records spends on a new campaign, and after a
// million of them, with the rate of the beginning beside.
func BenchmarkSpendsAfterMany(b *testing.B) {
	const callers, many = 200, 1_000_000
	c, call := spending(b)
	campaigns := []id.Campaign{runCampaign(b, c, call, 1<<50)}
	recorded := 0
	record := func(b *testing.B, n int) (rate float64) {
		b.Helper()
		rate = spendRate(b, c, call, campaigns, callers, recorded, n)
		recorded += n
		return rate
	}
	record(b, 10_000) // the first are slow
	followed(b, c, call, campaigns[0])
	early := 0.0
	b.Run("early", func(b *testing.B) {
		early = record(b, b.N)
		b.ReportMetric(early, "spends/s")
	})
	for range 10 {
		record(b, many/10)
		followed(b, c, call, campaigns[0])
	}
	b.Run("late", func(b *testing.B) {
		b.ReportMetric(record(b, b.N), "spends/s")
		b.ReportMetric(early, "early-spends/s")
	})
}

// followed returns once the read model of spends has all that was recorded.
func followed(b *testing.B, c *commands.Commands, call commands.Call, campaign id.Campaign) {
	b.Helper()
	head, err := c.Log.Store.Head(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	testkit.Eventually(b, "the read models follow", func() bool {
		_, reached, err := c.Spends.Recorded(b.Context(), call.Client, campaign, nil)
		return err == nil && reached >= head
	})
}

// spendRate has callers record n spends, in turn on each campaign, and returns
// how many a second that was. The ids follow upon those of so many before.
func spendRate(b *testing.B, c *commands.Commands, call commands.Call, campaigns []id.Campaign, callers, before, n int) float64 {
	b.Helper()
	next, last := atomic.Int64{}, int64(before+n)
	next.Store(int64(before))
	began := time.Now()
	together(callers, func(int) (none struct{}) {
		for i := next.Add(1); i <= last; i = next.Add(1) {
			spend := commands.Spend{Campaign: campaigns[i%int64(len(campaigns))], ID: fmt.Sprint(i), AmountMinor: 3}
			if _, err := c.RecordSpend(b.Context(), call, spend); err != nil {
				b.Error(err)
				break
			}
		}
		return none
	})
	return float64(n) / time.Since(began).Seconds()
}

// runCampaign makes a campaign that runs.
func runCampaign(t testing.TB, c *commands.Commands, call commands.Call, budget int64) id.Campaign {
	t.Helper()
	drafted, err := c.DraftCampaign(t.Context(), call, event.CampaignTerms{Name: "Spring", BudgetMinor: budget, Currency: "EUR", Audience: "all"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ChangeCampaign(t.Context(), call, drafted.ID, commands.ChangeCampaign{
		Status: "running", Terms: func(t event.CampaignTerms) event.CampaignTerms { return t },
	}); err != nil {
		t.Fatal(err)
	}
	return drafted.ID
}

// 32 callers record 1,000 spends each, most of them known already, and cross
// the budget on the way.
func TestThirtyTwoThousandSpendsCountOnce(t *testing.T) {
	t.Parallel()
	const callers, spends, distinct, amount = 32, 1_000, 12_000, 7
	const budget = 8_000*amount + 5
	c, call := spending(t)
	campaign := runCampaign(t, c, call, budget)
	type tally struct{ accepted map[int]int64 } // what had been spent with each
	tallies := together(callers, func(caller int) tally {
		mine := tally{map[int]int64{}}
		for i := range spends {
			n := (caller*7_919 + i*31) % distinct
			got, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(n), AmountMinor: amount})
			switch before, known := mine.accepted[n]; {
			case fault.Is(err, "campaign_not_running"):
			case err != nil:
				t.Errorf("spend %d: %v", n, err)
			case known && before != got.SpentMinor:
				t.Errorf("spend %d was answered with %d and %d", n, before, got.SpentMinor)
			default:
				mine.accepted[n] = got.SpentMinor
			}
		}
		return mine
	})
	all, totals := map[int]int64{}, map[int64]bool{}
	for _, mine := range tallies {
		for n, spent := range mine.accepted {
			if before, known := all[n]; known && before != spent {
				t.Errorf("spend %d was answered with %d and %d", n, before, spent)
			}
			all[n], totals[spent] = spent, true
		}
	}
	const last = (budget/amount + 1) * amount // the record that crosses the budget is taken in full
	if got := int64(len(all)) * amount; got != last || int64(len(totals))*amount != last || !totals[last] {
		t.Errorf("%d were accepted with %d totals, want %d", got, len(totals), last)
	}
	if _, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: "late", AmountMinor: 1}); !fault.Is(err, "campaign_not_running") {
		t.Errorf("a spend after the end: %v", err)
	}
}

// spending is what records spends, with the read models beside it.
func spending(t testing.TB) (*commands.Commands, commands.Call) {
	t.Helper()
	config := testConfig(t)
	config.DatabaseURL = pgtest.URL(t)
	f, err := app.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { f.Progress.Run(ctx) })
	for _, model := range projections.All() {
		following.Go(func() {
			if err := f.Runner.Run(ctx, model); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		following.Wait()
		f.Close()
	})
	c, err := f.Commands(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, commands.Call{Client: "cli_0000000000000000000000000g", Actor: "bench"}
}
