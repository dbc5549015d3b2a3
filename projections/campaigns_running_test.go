package projections_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/ranking"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/feeds"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

func TestWhichCampaignsAUserMayBeShown(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{})
	user, another, now := id.Next[id.User](w.IDs), id.Next[id.User](w.IDs), time.Now()
	soon, past := now.Add(time.Hour), now.Add(-time.Minute)
	shownTo := func(user id.User, n, answered int) func(id.Campaign) []event.Event {
		return func(campaign id.Campaign) (events []event.Event) {
			for i := range n {
				e := event.CampaignEngagementRecorded{Campaign: campaign, Impression: id.Next[id.Impression](w.IDs), User: user, Kind: "impression"}
				if events = append(events, e); i+1 == answered {
					e.Kind = "click"
					events = append(events, e)
				}
			}
			return events
		}
	}
	shown := func(n, answered int) func(id.Campaign) []event.Event { return shownTo(user, n, answered) }
	for _, c := range []struct {
		what       string
		terms      event.CampaignTerms
		then       func(id.Campaign) []event.Event
		later      time.Duration // when it is asked
		may        bool
		unanswered int
	}{
		{what: "one that runs", may: true},
		{what: "one whose end is to come", terms: event.CampaignTerms{EndsAt: &soon}, may: true},
		{what: "one whose end has passed", terms: event.CampaignTerms{EndsAt: &past}},
		{what: "one that is paused", then: func(c id.Campaign) []event.Event { return []event.Event{event.CampaignPaused{Campaign: c}} }},
		{what: "one that was seen", then: shown(3, 0), may: true, unanswered: 3},
		{what: "one that was clicked, then seen", then: shown(3, 1), may: true, unanswered: 2},
		{what: "one that was seen, then clicked", then: shown(3, 3), may: true},
		{what: "one that was seen long ago", then: shown(3, 0), later: 8 * 24 * time.Hour, may: true},
		{what: "one below its cap", terms: event.CampaignTerms{FrequencyCap: 3}, then: shown(2, 0), may: true, unanswered: 2},
		{what: "one at its cap", terms: event.CampaignTerms{FrequencyCap: 3}, then: shown(3, 0)},
		{what: "one that another user has seen up to its cap", terms: event.CampaignTerms{FrequencyCap: 3}, then: shownTo(another, 3, 0), may: true},
		{
			what: "one of two, the other of which was seen", terms: event.CampaignTerms{FrequencyCap: 3}, may: true,
			then: func(id.Campaign) []event.Event { return shown(3, 0)(id.Next[id.Campaign](w.IDs)) },
		},
		{what: "one at its cap for life", terms: event.CampaignTerms{FrequencyCap: 3}, then: shown(3, 0), later: 365 * 24 * time.Hour},
		{what: "one at its cap in its window", terms: event.CampaignTerms{FrequencyCap: 3, FrequencyWindow: 3600}, then: shown(3, 0), later: 50 * time.Minute},
		{
			what: "one whose window has passed", terms: event.CampaignTerms{FrequencyCap: 3, FrequencyWindow: 3600}, then: shown(3, 0),
			later: 2 * time.Hour, may: true, unanswered: 3,
		},
		{
			what: "one that was shown by a clock that was ahead", terms: event.CampaignTerms{FrequencyCap: 3, FrequencyWindow: 3600}, then: shown(3, 0),
			later: -2 * time.Hour, may: true,
		},
	} {
		client, campaign := id.Next[id.Client](w.IDs), id.Next[id.Campaign](w.IDs)
		c.terms.Name, c.terms.BudgetMinor, c.terms.Currency, c.terms.Audience = c.what, 100, "EUR", "all"
		events := []event.Event{
			event.CampaignDrafted{Campaign: campaign, CampaignTerms: c.terms},
			event.CampaignStarted{Campaign: campaign, StartedAt: past},
		}
		if c.then != nil {
			events = append(events, c.then(campaign)...)
		}
		w.Record(client, "campaign-"+string(campaign), events...)
		at := now.Add(c.later)
		found := testkit.Must(projections.Campaigns{Reader: w.Reader}.Showable(t.Context(), client, user, at, at.Add(-7*24*time.Hour), readmodel.Page{Limit: projections.MaxShowable}))(t)
		if may := len(found) == 1; may != c.may {
			t.Errorf("%s: may be shown: %t", c.what, may)
			continue
		}
		if c.may {
			if diff := cmp.Diff(c.terms, found[0].CampaignTerms); diff != "" || found[0].Unanswered != c.unanswered || found[0].ID != campaign {
				t.Errorf("%s: %d unanswered, not %d; %s", c.what, found[0].Unanswered, c.unanswered, diff)
			}
		}
	}
}

func TestCampaignsForOthersCrowdOutNobodys(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{}, projections.Clusters{}, projections.Consent{})
	user, now := id.Next[id.User](w.IDs), time.Now()
	ours, theirs := id.Next[id.Cluster](w.IDs), id.Next[id.Cluster](w.IDs)
	run := func(audience string, clusters ...id.Cluster) id.Campaign {
		campaign := id.Next[id.Campaign](w.IDs)
		w.Record(w.Acme, "campaign-"+string(campaign), event.CampaignDrafted{Campaign: campaign, CampaignTerms: event.CampaignTerms{
			Name: "a", BudgetMinor: 100, Currency: "EUR", Audience: audience, Clusters: clusters,
		}}, event.CampaignStarted{Campaign: campaign, StartedAt: now})
		return campaign
	}
	for range 500 {
		run("clusters", theirs)
	}
	want := []id.Campaign{run("clusters", theirs, ours), run("all")}
	feed := feeds.ShownCampaigns{
		Model: projections.Campaigns{Reader: w.Reader}, Clusters: projections.Clusters{Reader: w.Reader}, Segments: segments.Model{Reader: w.Reader},
		Clock: func(context.Context, id.Client) (time.Time, error) { return now, nil },
	}
	wants := func(what string, want ...id.Campaign) {
		t.Helper()
		var got []id.Campaign
		for _, found := range testkit.Must(feed.Running(t.Context(), w.Acme, user))(t) {
			got = append(got, found.Campaign)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	wants("in no cluster", want[1:]...)
	layer := w.Define(w.Acme, "layer")
	w.Record(w.Acme, string(eventstore.ConsentStream(w.Acme, layer, user)), event.ConsentGranted{Layer: layer, User: user})
	of := event.RunAttempt{Run: id.Next[id.Run](w.IDs), Attempt: 1}
	runs, assigned := string(eventstore.RunsStream(w.Acme, event.RunScope{Layer: layer})), string(eventstore.AssignedStream(w.Acme, of))
	w.Record(w.Acme, runs, event.ClusteringRequested{Run: of.Run, Layer: layer, TraitPaths: []string{"age"}}, event.ClusteringStarted{Run: of.Run, Layer: layer, Attempt: 1})
	w.Record(w.Acme, assigned, event.ClusteringAssigned{Run: of.Run, Layer: layer, Attempt: 1, Cluster: ours, Users: []id.User{user}})
	w.Record(w.Acme, runs, event.ClusterFormed{ClusterState: event.ClusterState{Cluster: ours, Layer: layer, Run: of.Run, First: of, Size: 1, Distinctions: []event.Distinction{}}},
		event.ClusteringCompleted{Run: of.Run, Layer: layer, Attempt: 1})
	wants("in a cluster", want...)
}

// A robot that clicks one impression fifty times is one that was clicked, and who buys without a click has answered, too.
func TestACampaignIsRankedByImpressionsThatWereAnswered(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{})
	user, campaign, now := id.Next[id.User](w.IDs), id.Next[id.Campaign](w.IDs), time.Now()
	events := []event.Event{
		event.CampaignDrafted{Campaign: campaign, CampaignTerms: event.CampaignTerms{Name: "a", BudgetMinor: 100, Currency: "EUR", Audience: "all"}},
		event.CampaignStarted{Campaign: campaign, StartedAt: now},
	}
	for _, answers := range [][]string{slices.Repeat([]string{"click"}, 50), {"conversion"}, {"click", "conversion"}, nil} {
		e := event.CampaignEngagementRecorded{Campaign: campaign, Impression: id.Next[id.Impression](w.IDs), User: user}
		for _, e.Kind = range append([]string{"impression"}, answers...) {
			events = append(events, e)
		}
	}
	w.Record(w.Acme, "campaign-"+string(campaign), events...)
	feed := feeds.ShownCampaigns{
		Model: projections.Campaigns{Reader: w.Reader}, Clock: func(context.Context, id.Client) (time.Time, error) { return now, nil },
	}
	found := testkit.Must(feed.Running(t.Context(), w.Acme, user))(t)
	if want := (ranking.Response{Impressions: 4, Clicks: 3}); len(found) != 1 || found[0].Response != want {
		t.Errorf("%+v, not %+v", found, want)
	}
}

func TestAClientWithManyDueCampaignsOrWhoseCannotBeFollowedKeepsBackNobodyElse(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Campaigns{}, projections.Sandboxes{})
	soon := time.Now().Add(time.Hour)
	schedule := func(client id.Client, starts time.Time) id.Campaign {
		campaign := id.Next[id.Campaign](w.IDs)
		w.Record(client, "campaign-"+string(campaign), event.CampaignDrafted{Campaign: campaign, CampaignTerms: event.CampaignTerms{
			Name: "a", BudgetMinor: 100, Currency: "EUR", Audience: "all", StartsAt: &starts,
		}}, event.CampaignScheduled{Campaign: campaign})
		return campaign
	}
	for i := range 3 {
		schedule(w.Acme, soon.Add(time.Duration(i)*time.Second))
	}
	late := schedule(w.Bolt, soon.Add(time.Minute))
	campaigns := projections.Campaigns{Reader: w.Reader}
	for _, client := range []id.Client{w.Acme, w.Bolt} {
		testkit.Must(campaigns.List(t.Context(), client, false, nil, readmodel.Page{Limit: 10}))(t) // they are there
	}
	due := func(limit int) map[id.Campaign]id.Client {
		return testkit.Must(campaigns.Due(t.Context(), soon.Add(time.Hour), limit))(t)
	}
	if found := due(2); found[late] != w.Bolt || len(found) != 2 {
		t.Errorf("the first two are %v, and do not take turns", found)
	}
	if found := due(10); len(found) != 4 {
		t.Errorf("due are %v, not all four", found)
	}
	for tries := 1; due(1)[late] != w.Bolt; tries++ {
		if tries == 100 {
			t.Fatal("where the first cannot be advanced, the other client's is never due")
		}
	}
	if _, err := w.Pool.Exec(t.Context(), `INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ($1, $2, '', '', '')`,
		projector.ID(campaigns), string(w.Acme)); err != nil {
		t.Fatal(err)
	}
	if found := due(1); found[late] != w.Bolt || len(found) != 1 {
		t.Errorf("the first is %v, and not the other client's", found)
	}
}
