package projections_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// campaignHistory is a made-up history of a few campaigns and users of two
// clients.
func campaignHistory(random *rand.Rand, length int, clients ...id.Client) (history []eventstore.Recorded) {
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
	erased := map[int]int{} // how often a person was: an id is never used again
	spent := map[id.Campaign]int64{}
	ends := at.Add(30 * 24 * time.Hour)
	terms := event.CampaignTerms{Name: "a", BudgetMinor: 1 << 40, Currency: "EUR", Audience: "all", EndsAt: &ends}
	campaigns := 3
	of := func(n int) (id.Client, id.Campaign) {
		return clients[n%2], id.Campaign(fmt.Sprintf("cam_%d", n))
	}
	for n := range campaigns {
		client, campaign := of(n)
		add(client, event.CampaignDrafted{Campaign: campaign, CampaignTerms: terms})
		add(client, event.CampaignStarted{Campaign: campaign, StartedAt: at})
	}
	for len(history) < length {
		client, campaign := of(random.IntN(campaigns))
		person := random.IntN(20)
		user := id.User(fmt.Sprintf("usr_%d_%d", person, erased[person]))
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
				erased[person]++
			}
		case 5, 6, 7:
			e := event.CampaignEngagementRecorded{Campaign: campaign, Impression: id.Impression(fmt.Sprint("ipr_", len(history))), User: user, Kind: "impression"}
			impressions = append(impressions, shown{client, e})
			add(client, e)
			if random.IntN(20) == 0 {
				add(client, e) // it stands in the log twice
			}
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

// build applies a history in batches of 100, in a schema of its own.
func build(t *testing.T, pool *pgxpool.Pool, schema string, model projector.ReadModel, history []eventstore.Recorded) {
	t.Helper()
	within := func(work func(ctx context.Context, tx pgx.Tx) error) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL search_path = `+schema+`, public`); err != nil {
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
	for batch := range slices.Chunk(history, 100) {
		within(func(ctx context.Context, tx pgx.Tx) error { return model.Apply(ctx, tx, batch) })
	}
}

// The totals are held against a plain count over the history.
func TestTheTotalsOfCampaignsAddUp(t *testing.T) {
	pool := pgtest.New(t)
	history := campaignHistory(rand.New(rand.NewPCG(9, 1)), 2_000, "cli_0", "cli_1")
	build(t, pool, "totals", projections.Campaigns{}, history)
	type totals struct{ spent, spends, impressions, engaged, clicks, conversions, reach int64 }
	want := map[string]*totals{}
	seen, engaged, reached := map[id.Impression]bool{}, map[id.Impression]bool{}, map[string]bool{}
	for _, r := range history {
		switch e := r.Event.(type) {
		case event.CampaignDrafted:
			want[string(e.Campaign)] = &totals{}
		case event.CampaignSpendRecorded:
			c := want[string(e.Campaign)]
			c.spent += e.AmountMinor
			c.spends++
		case event.CampaignEngagementRecorded:
			c := want[string(e.Campaign)]
			switch {
			case e.Kind == "impression":
				if seen[e.Impression] {
					continue
				}
				seen[e.Impression] = true
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
			if e.Kind == "click" {
				c.clicks++
			} else {
				c.conversions++
			}
		}
	}
	rows, err := pool.Query(t.Context(), `
		SELECT c.id, c.spent_minor, c.spends, c.impressions, c.engaged, c.clicks, c.conversions, c.reach,
			(SELECT (sum(spent_minor), sum(spends), sum(impressions), sum(engaged), sum(clicks), sum(conversions))::text
				= (c.spent_minor, c.spends, c.impressions, c.engaged, c.clicks, c.conversions)::text
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
	tag, err := pgx.ForEachRow(rows, []any{&campaign, &got.spent, &got.spends, &got.impressions, &got.engaged, &got.clicks, &got.conversions, &got.reach, &same}, func() error {
		if got != *want[campaign] || !same {
			t.Errorf("%s: %+v, want %+v; its slots add up: %t", campaign, got, *want[campaign], same)
		}
		return nil
	})
	if err != nil || tag.RowsAffected() != 3 {
		t.Fatal(tag, err)
	}
}

// What a change costs does not grow with what its client has: the plans of a process that began
// with few campaigns and impressions would read all of them to change one.
func TestAChangeOfACampaignReadsNoOthers(t *testing.T) {
	t.Parallel()
	conn := testkit.Must(pgtest.New(t).Acquire(t.Context()))(t)
	defer conn.Release()
	const client, batch, batches = id.Client("cli_0"), 50, 10
	terms := event.CampaignTerms{Name: "a", BudgetMinor: 1 << 40, Currency: "EUR", Audience: "all"}
	apply := func(n int) (read float64) {
		tx := testkit.Must(conn.Begin(t.Context()))(t)
		defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it is committed, or the test fails
		if n == 0 {
			testkit.Must(tx.Exec(t.Context(), projections.Campaigns{}.Schema()+projections.Campaigns{}.Options().Indexes[0]))(t)
		}
		var events []eventstore.Recorded
		for i := range batch {
			of := fmt.Sprint(n, "_", i)
			campaign, shown := id.Campaign("cam_"+of), event.CampaignEngagementRecorded{Campaign: id.Campaign("cam_" + of), Impression: id.Impression("ipr_" + of), User: id.User("usr_" + of), Kind: "impression"}
			answer := shown
			answer.Kind = "click"
			for _, e := range []event.Event{
				event.CampaignDrafted{Campaign: campaign, CampaignTerms: terms},
				event.CampaignStarted{Campaign: campaign, StartedAt: time.Now()},
				event.CampaignSpendRecorded{Campaign: campaign, SpendID: "s", AmountMinor: 1, Currency: "EUR", SpentMinor: 1},
				shown, answer,
			} {
				events = append(events, eventstore.Recorded{Record: eventstore.Record{
					Position: eventstore.Position(fmt.Sprintf("%016x", n*batch*5+len(events))), Proposed: eventstore.Proposed{Client: client, RecordedAt: time.Now()},
				}, Event: e})
			}
		}
		// Counts of transactions that ended less than a second ago are among these still.
		counted := func() (rows float64) {
			if err := tx.QueryRow(t.Context(), `SELECT coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_xact_user_tables`).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		before := counted()
		for one := range slices.Chunk(events, 5) {
			if err := (projections.Campaigns{}).Apply(t.Context(), tx, one); err != nil {
				t.Fatal(err)
			}
		}
		read = counted() - before
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return read
	}
	var read float64
	for n := range batches {
		read = apply(n)
	}
	if most := 50.0 * batch; read > most {
		t.Errorf("%d campaigns beside %d others read %v rows, over %v", batch, batch*(batches-1), read, most)
	}
}

func TestACampaignOfTheYearZeroIsDue(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{}, projections.Sandboxes{})
	campaign, zero, later := id.Next[id.Campaign](w.IDs), time.Date(0, 2, 29, 0, 0, 0, 0, time.UTC), time.Now().Add(time.Hour)
	terms := event.CampaignTerms{Name: "a", BudgetMinor: 1, Currency: "EUR", Audience: "all", StartsAt: &later, EndsAt: &later}
	changed := terms
	changed.StartsAt = &zero
	w.Record(w.Acme, "campaign-"+string(campaign),
		event.CampaignDrafted{Campaign: campaign, CampaignTerms: terms},
		event.CampaignScheduled{Campaign: campaign},
		event.CampaignChanged{Campaign: campaign, CampaignTerms: changed})
	campaigns := projections.Campaigns{Reader: w.Reader}
	testkit.Must(campaigns.List(t.Context(), w.Acme, false, nil, readmodel.Page{Limit: 1}))(t) // it is there
	due := testkit.Must(campaigns.Due(t.Context(), time.Now(), 1))(t)
	if due[campaign] != w.Acme {
		t.Errorf("due are %v", due)
	}
}

// From a share of its budget on, a campaign that runs is nearly spent, to the cent.
func TestWhichCampaignsHaveNearlySpentTheirBudgets(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{})
	spends := func(client id.Client, cents int64, then ...func(id.Campaign) event.Event) id.Campaign {
		campaign := id.Next[id.Campaign](w.IDs)
		events := []event.Event{
			event.CampaignDrafted{Campaign: campaign, CampaignTerms: event.CampaignTerms{Name: "a", BudgetMinor: 1_000, Currency: "EUR", Audience: "all"}},
			event.CampaignStarted{Campaign: campaign, StartedAt: time.Now()},
			event.CampaignSpendRecorded{Campaign: campaign, SpendID: "s", AmountMinor: cents, Currency: "EUR", SpentMinor: cents},
		}
		for _, of := range then {
			events = append(events, of(campaign))
		}
		w.Record(client, "campaign-"+string(campaign), events...)
		return campaign
	}
	spends(w.Bolt, 950)
	spends(w.Acme, 899)
	want := []id.Campaign{spends(w.Acme, 990), spends(w.Acme, 900)}
	w.Record(w.Acme, "campaign-"+string(want[0]), event.CampaignSpendRecorded{Campaign: want[0], SpendID: "later", AmountMinor: 1, Currency: "EUR", SpentMinor: 991})
	spends(w.Acme, 1_000, func(c id.Campaign) event.Event { return event.CampaignCompleted{Campaign: c} })
	spends(w.Acme, 950, func(c id.Campaign) event.Event { return event.CampaignPaused{Campaign: c} })
	campaigns := projections.Campaigns{Reader: w.Reader}
	testkit.Must(campaigns.List(t.Context(), w.Acme, false, nil, readmodel.Page{Limit: 10}))(t) // it has caught up
	for limit := 1; limit <= 3; limit++ {
		var got []id.Campaign
		for _, c := range testkit.Must(campaigns.NearlySpent(t.Context(), w.Acme, .9, limit))(t) {
			got = append(got, c.ID)
		}
		if of := want[:min(limit, len(want))]; !slices.Equal(got, of) {
			t.Errorf("of %d at most got %v, want %v", limit, got, of)
		}
	}
}

func TestAnErasedUserIsNobodyToTheCampaigns(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{})
	campaign, shown := id.Next[id.Campaign](w.IDs), id.Next[id.Impression](w.IDs)
	user := w.Create(w.Acme, "ada", `{}`)
	w.Record(w.Acme, "campaign-"+string(campaign),
		event.CampaignDrafted{Campaign: campaign, CampaignTerms: event.CampaignTerms{Name: "a", BudgetMinor: 1, Currency: "EUR", Audience: "all"}},
		event.CampaignEngagementRecorded{Campaign: campaign, Impression: shown, User: user, Kind: "impression"})
	model := projections.Campaigns{Reader: w.Reader}
	found := func() event.CampaignEngagementRecorded {
		t.Helper()
		return testkit.Must(model.Find(t.Context(), w.Acme, shown))(t).Event.(event.CampaignEngagementRecorded)
	}
	if got := found(); got.User != user {
		t.Errorf("the impression is %s's, not %s's", got.User, user)
	}
	w.Erase(w.Acme, user)
	if got := found(); got.User != "" {
		t.Errorf("after the erasure the impression is %s's", got.User)
	}
	const kept = `SELECT (SELECT count(*) FROM campaign_impressions WHERE user_id IS NOT NULL), (SELECT count(*) FROM campaign_users)`
	var impressions, users int
	if err := w.Pool.QueryRow(t.Context(), kept).Scan(&impressions, &users); err != nil || impressions+users > 0 {
		t.Errorf("%d impressions and %d counts are still somebody's, %v", impressions, users, err)
	}
}

// A campaign's figures are divided by the clusters of now: those that its viewers are in, and those that it is aimed at.
func TestACampaignIsDividedByTheClustersOfNow(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{}, projections.Clusters{})
	layer, segment, campaign, run := w.Define(w.Acme, "layer"), id.Next[id.Segment](w.IDs), id.Next[id.Campaign](w.IDs), id.Next[id.Run](w.IDs)
	users := []id.User{id.Next[id.User](w.IDs), id.Next[id.User](w.IDs), id.Next[id.User](w.IDs)}
	seen := func(campaign id.Campaign, user id.User, n int) {
		for range n {
			impression := event.CampaignEngagementRecorded{Campaign: campaign, Impression: id.Next[id.Impression](w.IDs), User: user, Kind: "impression"}
			w.Record(w.Acme, "campaign-"+string(campaign), impression)
		}
	}
	seen(campaign, users[0], 1)
	seen(campaign, users[1], 2)
	seen(campaign, users[2], 3)
	seen(id.Next[id.Campaign](w.IDs), users[0], 5)
	divide := func(run id.Run, segment id.Segment, clusters map[id.Cluster][]id.User, retired ...id.Cluster) {
		of := event.RunAttempt{Run: run, Attempt: 1}
		stream := string(eventstore.RunsStream(w.Acme, event.RunScope{Layer: layer, Segment: segment}))
		w.Record(w.Acme, stream, event.ClusteringRequested{Run: run, Layer: layer, Segment: segment, TraitPaths: []string{"age"}},
			event.ClusteringStarted{Run: run, Layer: layer, Attempt: 1})
		var events []event.Event
		for cluster, users := range clusters {
			w.Record(w.Acme, string(eventstore.AssignedStream(w.Acme, of)), event.ClusteringAssigned{Run: run, Layer: layer, Segment: segment, Attempt: 1, Cluster: cluster, Users: users})
			events = append(events, event.ClusterFormed{ClusterState: event.ClusterState{Cluster: cluster, Layer: layer, Run: run, Distinctions: []event.Distinction{}}})
		}
		for _, cluster := range retired {
			events = append(events, event.ClusterRetired{Cluster: cluster, Layer: layer, Run: run})
		}
		w.Record(w.Acme, stream, append(events, event.ClusteringCompleted{Run: run, Layer: layer, Segment: segment, Attempt: 1})...)
	}
	divide(id.Next[id.Run](w.IDs), "", map[id.Cluster][]id.User{"before": users})
	divide(run, "", map[id.Cluster][]id.User{"one": users[:1], "two": users[1:], "nobody saw": {id.Next[id.User](w.IDs)}, "aimed at": {id.Next[id.User](w.IDs)}}, "before")
	divide(id.Next[id.Run](w.IDs), segment, map[id.Cluster][]id.User{"of a segment": users[:1], "aimed at, of a segment": users[1:2]})

	model := projections.Campaigns{Reader: w.Reader}
	testkit.Must(model.List(t.Context(), w.Acme, false, nil, everything()))(t) // it has caught up
	var got []string
	aimed := projections.Campaign{ID: campaign, CampaignTerms: event.CampaignTerms{Clusters: []id.Cluster{"aimed at", "aimed at, of a segment", "before"}}}
	for _, s := range testkit.Must(model.Shares(t.Context(), w.Acme, false, aimed))(t) {
		got = append(got, fmt.Sprint(s.Cluster, ": ", s.Reach, " of ", s.Size, ", ", s.Impressions))
	}
	want := []string{"two: 2 of 2, 5", "aimed at, of a segment: 1 of 1, 2", "one: 1 of 1, 1", "aimed at: 0 of 1, 0"}
	if !slices.Equal(got, want) {
		t.Errorf("it is divided into %q, want %q", got, want)
	}
}
