package projections_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/feed"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// campaignHistory is a made-up history of a few campaigns and users.
func campaignHistory(seed uint64, length int) (history []eventstore.Recorded) {
	random := rand.New(rand.NewPCG(seed, 1))
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	add := func(client id.Client, e event.Event) {
		at = at.Add(time.Duration(random.IntN(600)) * time.Second)
		history = append(history, eventstore.Recorded{
			Record: eventstore.Record{
				Position: eventstore.Position(fmt.Sprintf("%016x", len(history)+1)),
				Proposed: eventstore.Proposed{Client: client, RecordedAt: at},
			},
			Event: e,
		})
	}
	type shown struct {
		client id.Client
		event  event.CampaignEngagementRecorded
	}
	var impressions []shown
	spent := map[id.Campaign]int64{}
	ends := at.Add(30 * 24 * time.Hour)
	terms := event.CampaignTerms{Name: "a", BudgetMinor: 1 << 40, Currency: "EUR", Audience: "all", EndsAt: &ends}
	campaigns := 3
	of := func(n int) (id.Client, id.Campaign) {
		return id.Client(fmt.Sprintf("cli_%d", n%2)), id.Campaign(fmt.Sprintf("cam_%d", n))
	}
	for n := range campaigns {
		client, campaign := of(n)
		add(client, event.CampaignDrafted{Campaign: campaign, CampaignTerms: terms})
		add(client, event.CampaignStarted{Campaign: campaign, StartedAt: at})
	}
	for len(history) < length {
		client, campaign := of(random.IntN(campaigns))
		user := id.User(fmt.Sprintf("usr_%d", random.IntN(20)))
		switch random.IntN(10) {
		case 0:
			add(client, event.CampaignPaused{Campaign: campaign})
		case 1:
			add(client, event.CampaignResumed{Campaign: campaign})
		case 2, 3:
			amount := 1 + random.Int64N(50)
			spent[campaign] += amount
			add(client, event.CampaignSpendRecorded{Campaign: campaign, SpendID: fmt.Sprint(len(history)), AmountMinor: amount, Currency: "EUR", SpentMinor: spent[campaign]})
		case 4:
			if random.IntN(10) == 0 {
				add(client, event.EndUserErased{User: user})
			}
		case 5, 6, 7:
			e := event.CampaignEngagementRecorded{Campaign: campaign, Impression: id.Impression(fmt.Sprint("ipr_", len(history))), User: user, Kind: "impression"}
			impressions = append(impressions, shown{client, e})
			add(client, e)
		default:
			if len(impressions) > 0 {
				s := impressions[random.IntN(len(impressions))]
				s.event.Kind = []string{"click", "conversion"}[random.IntN(2)]
				add(s.client, s.event)
			}
		}
	}
	return history
}

// build applies a history in batches of these sizes and returns the tables as
// text.
func build(t *testing.T, pool *pgxpool.Pool, schema string, model feed.ReadModel, history []eventstore.Recorded, size func() int, tables ...string) []string {
	t.Helper()
	within := func(work func(ctx context.Context, tx pgx.Tx) error) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = `+schema); err != nil {
				return err
			}
			return work(t.Context(), tx)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `CREATE SCHEMA `+schema); err != nil {
		t.Fatal(err)
	}
	within(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, model.Schema())
		return err
	})
	for len(history) > 0 {
		n := min(size(), len(history))
		within(func(ctx context.Context, tx pgx.Tx) error { return model.Apply(ctx, tx, history[:n]) })
		history = history[n:]
	}
	var rows []string
	for _, table := range tables {
		within(func(ctx context.Context, tx pgx.Tx) error {
			found, err := tx.Query(ctx, `SELECT r::text FROM `+table+` r ORDER BY 1`)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(found, pgx.RowTo[string])
			rows = append(rows, lines...)
			return err
		})
	}
	return rows
}

func TestCampaignsAreTheSameHoweverTheBatchesFall(t *testing.T) {
	pool := pgtest.New(t)
	for seed := range uint64(4) {
		history := campaignHistory(seed, 600)
		random := rand.New(rand.NewPCG(seed, 2))
		for _, m := range []struct {
			model  feed.ReadModel
			tables []string
		}{
			{projections.Campaigns{}, []string{"campaigns", "campaign_slots", "campaign_impressions", "campaign_users"}},
			{projections.Spends{}, []string{"spends"}},
		} {
			name := fmt.Sprintf("%s_%d", m.model.Name(), seed)
			whole := build(t, pool, name+"_whole", m.model, history, func() int { return len(history) }, m.tables...)
			single := build(t, pool, name+"_single", m.model, history, func() int { return 1 }, m.tables...)
			parts := build(t, pool, name+"_parts", m.model, history, func() int { return 1 + random.IntN(50) }, m.tables...)
			if len(whole) < 10 {
				t.Fatalf("only %d rows", len(whole))
			}
			if diff := cmp.Diff(whole, single); diff != "" {
				t.Errorf("%s: one by one it is another: %s", name, diff)
			}
			if diff := cmp.Diff(whole, parts); diff != "" {
				t.Errorf("%s: in parts it is another: %s", name, diff)
			}
		}
	}
}

// The totals are held against a plain count over the history.
func TestTheTotalsOfCampaignsAddUp(t *testing.T) {
	pool := pgtest.New(t)
	history := campaignHistory(9, 2_000)
	build(t, pool, "totals", projections.Campaigns{}, history, func() int { return 100 })
	type totals struct{ spent, impressions, engaged, answers, reach int64 }
	want := map[string]*totals{}
	engaged, reached := map[id.Impression]bool{}, map[string]bool{}
	for _, r := range history {
		switch e := r.Event.(type) {
		case event.CampaignDrafted:
			want[string(e.Campaign)] = &totals{}
		case event.CampaignSpendRecorded:
			want[string(e.Campaign)].spent += e.AmountMinor
		case event.CampaignEngagementRecorded:
			c := want[string(e.Campaign)]
			switch {
			case e.Kind == "impression":
				c.impressions++
				if key := fmt.Sprint(r.Client, e.Campaign, e.User); !reached[key] {
					reached[key] = true
					c.reach++
				}
				continue
			case !engaged[e.Impression]:
				engaged[e.Impression] = true
				c.engaged++
			}
			c.answers++
		case event.EndUserErased: // an id is never used again; the history's are
			for key := range reached {
				for campaign := range want {
					if key == fmt.Sprint(r.Client, campaign, e.User) {
						delete(reached, key)
					}
				}
			}
		}
	}
	rows, err := pool.Query(t.Context(), `
		SELECT c.id, c.spent_minor, c.impressions, c.engaged, c.clicks + c.conversions, c.reach,
			(SELECT (sum(spent_minor), sum(impressions), sum(engaged), sum(clicks + conversions))::text = (c.spent_minor::numeric, c.impressions::numeric, c.engaged::numeric, (c.clicks + c.conversions)::numeric)::text
			 FROM totals.campaign_slots s WHERE s.campaign = c.id)
		FROM totals.campaigns c`)
	if err != nil {
		t.Fatal(err)
	}
	var (
		campaign string
		got      totals
		same     bool
	)
	tag, err := pgx.ForEachRow(rows, []any{&campaign, &got.spent, &got.impressions, &got.engaged, &got.answers, &got.reach, &same}, func() error {
		if got != *want[campaign] || !same {
			t.Errorf("%s: %+v, want %+v; its slots add up: %t", campaign, got, *want[campaign], same)
		}
		return nil
	})
	if err != nil || tag.RowsAffected() != 3 {
		t.Fatal(tag, err)
	}
}
