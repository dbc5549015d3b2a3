package e2e

import (
	"bytes"
	"net/http"
	"testing"

	"kindred/httpapi"
)

// campaignsOf are the campaigns that a feed shows, by place.
func campaignsOf(data []httpapi.FeedItem) map[int]httpapi.FeedItem {
	found := map[int]httpapi.FeedItem{}
	for i, item := range data {
		if item.CampaignID != nil {
			found[i] = item
		}
	}
	return found
}

func TestCampaignsStandInTheirOwnSlotsAndAreShownOnRecord(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(60)
	for range 3 {
		a.run(nil)
	}
	a.draft(nil)

	first := a.feed("ext:e0/feed?limit=20")
	found := campaignsOf(first.Data)
	if len(found) != 3 || found[4].CampaignID == nil || found[9].CampaignID == nil || found[14].CampaignID == nil {
		t.Fatalf("campaigns at %v", found)
	}
	for _, item := range found {
		if item.Type != "campaign" || item.Reason != "campaign" && item.Reason != "explore" {
			t.Errorf("a campaign is %+v", item)
		}
	}
	path := "/api/v1/campaigns/" + *found[4].CampaignID
	engaged := func(impressions, engaged int64) {
		t.Helper()
		got := want[httpapi.CampaignAnalytics](a, http.StatusOK, a.get(path+"/analytics"))
		if got.Impressions != impressions || got.Engaged != engaged {
			t.Errorf("%d impressions, %d engaged, not %d and %d", got.Impressions, got.Engaged, impressions, engaged)
		}
	}
	engaged(1, 0)
	say := func(user, kind string, status int) answer {
		t.Helper()
		got := a.send("POST", "/api/v1/users/"+user+"/feed/interactions", map[string]any{"impression_id": found[4].ImpressionID, "type": kind})
		if got.Status != status {
			t.Errorf("%s of %s: %d %s", kind, user, got.Status, got.Body)
		}
		return got
	}
	say("ext:e0", "impression", http.StatusOK) // it is on record already
	say("ext:e1", "click", http.StatusNotFound)
	for _, kind := range []string{"click", "conversion"} { // each counts once, however often it is said
		first, again := say("ext:e0", kind, http.StatusOK), say("ext:e0", kind, http.StatusOK)
		if !bytes.Equal(first.Body, again.Body) {
			t.Errorf("%s was recorded again: %s after %s", kind, again.Body, first.Body)
		}
	}
	engaged(1, 1)
	if got := want[httpapi.CampaignAnalytics](a, http.StatusOK, a.get(path+"/analytics")); got.Clicks != 1 || got.Conversions != 1 {
		t.Errorf("%d clicks and %d conversions, not 1 and 1", got.Clicks, got.Conversions)
	}

	// A page that is read again is the same impression; what was dismissed is
	// left out.
	second := a.run(nil)
	again := a.feed("ext:e0/feed?limit=4")
	next := "ext:e0/feed?limit=4&cursor=" + *again.NextCursor
	one, two := campaignsOf(a.feed(next).Data), campaignsOf(a.feed(next).Data)
	if len(one) != 1 || one[0].ImpressionID != two[0].ImpressionID {
		t.Errorf("read twice: %+v, %+v", one, two)
	}
	want[httpapi.Interaction](a, http.StatusOK, a.send("POST", "/api/v1/users/ext:e0/feed/interactions",
		map[string]any{"impression_id": one[0].ImpressionID, "type": "dismiss"}))
	want[httpapi.Campaign](a, http.StatusOK, a.send("PATCH", "/api/v1/campaigns/"+string(second.ID), map[string]any{"status": "paused"}))
	for _, feed := range []httpapi.Feed{a.feed(next), a.feed("ext:e0/feed")} {
		for at, item := range campaignsOf(feed.Data) {
			if *item.CampaignID == *one[0].CampaignID || *item.CampaignID == string(second.ID) {
				t.Errorf("place %d shows what was dismissed or paused: %+v", at, item)
			}
		}
	}
}

func TestAFrequencyCapHoldsAgainst32AtOnce(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(40)
	const limit = 3
	campaign := a.run(map[string]any{"frequency_cap": limit})
	seen := together(32, func(int) map[int]httpapi.FeedItem {
		got := a.send("GET", "/api/v1/users/ext:e0/feed?limit=10", nil)
		if got.Status == http.StatusServiceUnavailable {
			return nil // too much at once, and nothing shown
		}
		return campaignsOf(want[httpapi.Feed](a, http.StatusOK, got).Data)
	})
	impressions := map[string]bool{}
	for _, found := range seen {
		for _, item := range found {
			if impressions[item.ImpressionID] {
				t.Errorf("two feeds show one impression: %s", item.ImpressionID)
			}
			impressions[item.ImpressionID] = true
		}
	}
	if len(impressions) != limit {
		t.Errorf("shown %d times, not %d", len(impressions), limit)
	}
	got := want[httpapi.CampaignAnalytics](a, http.StatusOK, a.get("/api/v1/campaigns/"+string(campaign.ID)+"/analytics"))
	if got.Impressions != limit {
		t.Errorf("%d impressions are on record, not %d", got.Impressions, limit)
	}
	if found := campaignsOf(a.feed("ext:e0/feed").Data); len(found) > 0 {
		t.Errorf("and it is still shown: %v", found)
	}
	if found := campaignsOf(a.feed("ext:e1/feed").Data); len(found) != 1 {
		t.Errorf("somebody else sees %v", found)
	}
}

func TestAFrozenFeedShowsNoCampaignOfAClusterThatItsUserHasLeft(t *testing.T) {
	t.Parallel()
	a, layer := startService(t).crowded(90, groups)
	found := a.ended(a.cluster(layer, "k", 3)).Clusters[0]
	campaign := a.run(map[string]any{"audience": "clusters", "cluster_ids": []any{found.ID}})
	members := a.members(found.ID)
	next := func(user string) string {
		t.Helper()
		return "ext:" + user + "/feed?limit=4&cursor=" + *a.feed("ext:" + user + "/feed?limit=4").NextCursor
	}
	stays, leaves, returns := next(members[0]), next(members[1]), next(members[2])
	for _, page := range []string{stays, returns} {
		if found := campaignsOf(a.feed(page).Data); len(found) != 1 {
			t.Fatalf("a member is shown %v", found)
		}
	}
	for _, user := range members[1:3] {
		wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID)+"/users/ext:"+user, nil))
	}
	for page, shown := range map[string]int{stays: 1, leaves: 0, returns: 0} {
		if found := campaignsOf(a.feed(page).Data); len(found) != shown {
			t.Errorf("%s shows %v", page, found)
		}
	}
	if got := a.analytics(campaign, "").Impressions; got != 2 {
		t.Errorf("%d impressions are on record, not 2", got)
	}
}
