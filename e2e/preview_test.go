package e2e

import (
	"net/http"
	"testing"

	"kindred/httpapi"
)

// size is how many events the history holds.
func (a account) size() int64 {
	a.Helper()
	return want[httpapi.HistoryProof](a, http.StatusOK, a.get(a.under("/history/proof"))).Size
}

func TestAPreviewOfAFeedRecordsNothing(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(60)
	c := a.run(map[string]any{"frequency_cap": 1})
	a.feed("ext:e1/feed") // the traits are learnt, and the campaign is shown once
	viewer := a.addMember("viewer")
	before := a.size()
	var place int
	for range 2 { // a cap of 1 is not used up
		page := want[httpapi.Feed](t, http.StatusOK, viewer.get("/api/v1/users/ext:e0/feed?record=false&limit=8"))
		shown := campaignsOf(page.Data)
		if len(shown) != 1 || page.NextCursor == nil {
			t.Fatalf("a preview shows %d campaigns of 1", len(shown))
		}
		for place = range shown {
		}
		for _, item := range page.Data {
			if item.ImpressionID != "preview" {
				t.Errorf("%+v", item)
			}
		}
		next := "/api/v1/users/ext:e0/feed?limit=8&cursor=" + *page.NextCursor
		want[httpapi.Feed](t, http.StatusOK, viewer.get(next+"&record=false"))
		wantProblem(t, http.StatusBadRequest, "bad_cursor", viewer.get(next))
	}
	if after := a.size(); after != before || a.analytics(c, "").Impressions != 1 {
		t.Errorf("two previews recorded %d events", after-before)
	}
	if shown := campaignsOf(a.feed("ext:e0/feed?limit=8").Data); shown[place].CampaignID == nil || shown[place].ImpressionID == "preview" {
		t.Errorf("what was previewed in place %d is not shown there: %+v", place, shown)
	}
	wantProblem(t, http.StatusNotFound, "impression_unknown", a.send("POST", "/api/v1/users/ext:e0/feed/interactions",
		map[string]any{"impression_id": "preview", "type": "click"}))
}

func TestMatchesThatAreNotRecordedTakeTheScopeRead(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(10)
	reader := a.with(a.exchange(a.createAPIKey("read").RawKey))
	path := "/api/v1/users/ext:e0/matches"
	wantProblem(t, http.StatusForbidden, "missing_scope", reader.send("POST", path, nil))
	wantProblem(t, http.StatusForbidden, "missing_scope", reader.send("POST", path, map[string]any{"record": true}))
	found := want[httpapi.ComputedMatches](t, http.StatusOK, reader.send("POST", path, map[string]any{"record": false, "limit": 3}))
	if len(found.Data) == 0 || len(found.Data[0].Explanation) == 0 {
		t.Errorf("%+v", found)
	}
	if recorded := a.recordedFor("ext:e0"); len(recorded) != 0 {
		t.Errorf("recorded %v", recorded)
	}
}
