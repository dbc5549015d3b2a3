package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/httpapi"
)

// populate imports users with mixed traits: e0, e1, …
func (a account) populate(n int) {
	a.Helper()
	for from := 0; from < n; from += 5_000 {
		var lines strings.Builder
		most := min(n, from+5_000)
		for i := from; i < most; i++ {
			fmt.Fprintf(&lines, `{"external_id":"e%d","traits":{"age":%d,"visits":%d,"plan":"p%d","city":"c%d","likes":["l%d","l%d"]}}`+"\n",
				i, 18+i*7%60, i*13%300, i%4, i*3%11, i%9, i%7)
		}
		result := want[httpapi.ImportResult](a, http.StatusOK,
			a.send("POST", "/api/v1/users/import", lines.String(), header("Content-Type", "application/x-ndjson")))
		if result.Created != int64(most-from) {
			a.Fatalf("imported %d of %d: %+v", result.Created, most-from, result.Errors)
		}
	}
}

func (a account) feed(query string) httpapi.Feed {
	a.Helper()
	return want[httpapi.Feed](a, http.StatusOK, a.get("/api/v1/users/"+query))
}

// shown is whom or what an item shows.
func shown(i httpapi.FeedItem) string {
	if i.UserID != nil {
		return string(*i.UserID)
	}
	return *i.CampaignID
}

func TestTenPagesOfAFeedUnderConcurrentWrites(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(400)

	var writers sync.WaitGroup
	stop := make(chan struct{})
	defer writers.Wait()
	defer close(stop)
	erased := map[string]bool{}
	var mu sync.Mutex
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				switch w {
				case 0:
					a.createUser(fmt.Sprintf("new-%d", i), map[string]any{"age": 30 + i%9, "plan": "p0"})
				case 1:
					a.send("PATCH", fmt.Sprintf("/api/v1/users/ext:e%d", 1+i%399), map[string]any{"traits": map[string]any{"visits": i}})
				case 2:
					a.send("POST", "/api/v1/users/ext:e0/feed/interactions", map[string]any{"item_id": fmt.Sprintf("ext:e%d", 1+i%399), "type": "impression"})
				case 3:
					if i == 5 {
						return
					}
					path := fmt.Sprintf("/api/v1/users/ext:e%d", 390+i)
					user := want[httpapi.User](a, http.StatusOK, a.get(path))
					wantDone(a, a.send("DELETE", path, nil))
					mu.Lock()
					erased[string(user.ID)] = true
					mu.Unlock()
				}
			}
		})
	}
	for range 5 {
		seen, path := map[string]bool{}, "ext:e0/feed?limit=20"
		for page := range 10 {
			mu.Lock()
			gone := len(erased)
			was := make(map[string]bool, gone)
			for u := range erased {
				was[u] = true
			}
			mu.Unlock()
			got := a.feed(path)
			if len(got.Data) != 20 && page < 9 {
				t.Errorf("page %d has %d items", page, len(got.Data))
			}
			for _, i := range got.Data {
				if seen[shown(i)] {
					t.Errorf("%s comes twice", shown(i))
				}
				if was[shown(i)] {
					t.Errorf("%s is shown after it was erased", shown(i))
				}
				seen[shown(i)] = true
			}
			if got.NextCursor == nil {
				if page < 9 {
					t.Fatalf("the feed ends after %d pages", page+1)
				}
				break
			}
			path = "ext:e0/feed?limit=20&cursor=" + *got.NextCursor
		}
		// Nothing is missing but whoever is gone: the feed is 200 deep.
		if len(seen) < 195 {
			t.Errorf("ten pages show %d", len(seen))
		}
	}
}

func TestWhatIsHiddenErasedOrNotConsentedLeavesTheFrozenPages(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(60)
	layer := want[httpapi.ConsentLayer](a, http.StatusCreated, a.send("POST", "/api/v1/consent_layers",
		map[string]any{"name": "feeds", "trait_paths": []string{"age", "plan", "city"}}))
	consents := "/api/v1/consent_layers/" + string(layer.ID)
	path := "ext:e0/feed?limit=10&consent_layer_id=" + string(layer.ID)
	wantProblem(t, http.StatusConflict, "consent_missing", a.get("/api/v1/users/"+path))
	want[json.RawMessage](a, http.StatusOK, a.send("POST", consents+"/grants", map[string]any{"all": true}))

	first := a.feed(path)
	whole := a.feed(path + "&cursor=" + *first.NextCursor)
	gone := map[string]bool{}
	for i, item := range whole.Data[:4] {
		gone[shown(item)] = true
		switch i {
		case 0:
			want[httpapi.Interaction](a, http.StatusOK, a.send("POST", "/api/v1/users/ext:e0/feed/interactions",
				map[string]any{"impression_id": item.ImpressionID, "type": "dismiss"}))
		case 1:
			wantDone(a, a.send("DELETE", "/api/v1/users/"+shown(item), nil))
		case 2:
			wantDone(a, a.send("DELETE", consents+"/users/"+shown(item), nil))
		case 3:
			want[httpapi.Interaction](a, http.StatusOK, a.send("POST", "/api/v1/users/ext:e0/feed/interactions",
				map[string]any{"item_id": shown(item), "type": "conversion"}))
		}
	}
	again := a.feed(path + "&cursor=" + *first.NextCursor)
	if len(again.Data) != 10 || shown(again.Data[0]) != shown(whole.Data[4]) {
		t.Errorf("the page does not go on with what is left: %d items", len(again.Data))
	}
	for _, feed := range []httpapi.Feed{again, a.feed(path), a.feed("ext:e0/feed?limit=200&consent_layer_id=" + string(layer.ID))} {
		for _, item := range feed.Data {
			if gone[shown(item)] {
				t.Errorf("%s is still shown", shown(item))
			}
		}
	}
	wantDone(a, a.send("DELETE", consents+"/users/ext:e0", nil))
	wantProblem(t, http.StatusConflict, "consent_missing", a.get("/api/v1/users/"+path+"&cursor="+*first.NextCursor))
}

func TestAFeedTiresOfWhatIsSeenWithoutAClick(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.populate(50)
	best := a.feed("ext:e0/feed").Data[0]
	say := func(kind string, item httpapi.FeedItem, options ...option) httpapi.Interaction {
		return want[httpapi.Interaction](a, http.StatusOK, a.send("POST", "/api/v1/users/ext:e0/feed/interactions",
			map[string]any{"impression_id": item.ImpressionID, "type": kind}, options...))
	}
	for range 3 {
		page := a.feed("ext:e0/feed")
		for _, i := range page.Data {
			if shown(i) == shown(best) {
				say("impression", i)
				if repeated, again := say("impression", i), say("impression", i, idempotent("k"+i.ImpressionID[:20])); repeated.RecordedAt != again.RecordedAt {
					t.Errorf("an impression was recorded twice: %v, %v", repeated, again)
				}
			}
		}
	}
	after := a.feed("ext:e0/feed")
	if shown(after.Data[0]) == shown(best) {
		t.Error("what was seen three times without a click still comes first")
	}
	for _, i := range after.Data {
		if ratio := i.Score / best.Score; shown(i) == shown(best) && (ratio < 0.511 || ratio > 0.513) {
			t.Errorf("its score is %v of what it was, want 0.8³", ratio)
		}
	}
	say("click", best)
	for _, i := range a.feed("ext:e0/feed").Data {
		if shown(i) == shown(best) && i.Score < 0.99*best.Score {
			t.Errorf("after a click its score is %v, not %v", i.Score, best.Score)
		}
	}
}

func TestNobodyIsKnownYet(t *testing.T) {
	t.Parallel()
	a := startService(t).signUp()
	a.populate(30)
	for i := range 3 {
		want[httpapi.Interaction](a, http.StatusOK, a.send("POST", fmt.Sprintf("/api/v1/users/ext:e%d/feed/interactions", i),
			map[string]any{"item_id": "ext:e7", "type": "click"}))
	}
	stranger := a.createUser("stranger", nil)
	got := a.feed(string(stranger.ID) + "/feed?limit=200")
	if len(got.Data) != 30 {
		t.Fatalf("%d items", len(got.Data))
	}
	var byAge []string // the newest first
	for _, u := range each[httpapi.User](t, a, "/api/v1/users", 200) {
		if u.ID != stranger.ID && u.ExternalID != "e7" {
			byAge = slices.Insert(byAge, 0, u.ExternalID)
		}
	}
	var shownFirst []string
	for i, item := range got.Data {
		if item.Reason != "new_user" || (item.Type == "popular") != (i == 0) || i > 0 && item.Type != "newest" {
			t.Errorf("item %d is %+v", i, item)
		}
		shownFirst = append(shownFirst, *item.ExternalID)
	}
	if shownFirst[0] != "e7" {
		t.Errorf("%s comes first", shownFirst[0])
	}
	// Two slots of thirty explore: without those two all are in order.
	moved := 0
	for i, user := range shownFirst[2:] {
		if slices.Index(byAge, user) < slices.Index(byAge, shownFirst[i+1]) {
			moved++
		}
	}
	if moved > 2 {
		t.Errorf("%d stand before somebody newer: %v, newest first %v", moved, shownFirst, byAge)
	}
	alone := startService(t).signUp()
	only := alone.createUser("only", map[string]any{"age": 3})
	if got := alone.feed(string(only.ID) + "/feed"); len(got.Data) != 0 || got.NextCursor != nil {
		t.Errorf("somebody is shown to the only user: %+v", got)
	}
}

func TestWhatAFeedRefuses(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	a.populate(60)
	first := a.feed("ext:e0/feed?limit=10")
	next := "&cursor=" + *first.NextCursor
	other := s.signUp()
	other.populate(1)
	conn := s.database()

	for path, problem := range map[string]struct {
		status int
		code   string
	}{
		"/api/v1/users/ext:nobody/feed":                          {http.StatusNotFound, "user_unknown"},
		"/api/v1/users/ext:e1/feed?limit=10" + next:              {http.StatusBadRequest, "bad_cursor"},
		"/api/v1/users/ext:e0/feed?cursor=Zm9v":                  {http.StatusBadRequest, "bad_cursor"},
		"/api/v1/users/ext:e0/feed?consent_layer_id=lay_unknown": {http.StatusNotFound, "consent_layer_unknown"},
		"/api/v1/users/ext:e0/feed?limit=201":                    {http.StatusUnprocessableEntity, "invalid"},
	} {
		wantProblem(t, problem.status, problem.code, a.get(path))
	}
	for _, c := range []struct {
		user   string
		body   map[string]any
		status int
		code   string
	}{
		{"ext:e0", map[string]any{"type": "click"}, http.StatusUnprocessableEntity, "invalid"},
		{"ext:e0", map[string]any{"type": "click", "item_id": "ext:e1", "impression_id": first.Data[0].ImpressionID}, http.StatusUnprocessableEntity, "invalid"},
		{"ext:e0", map[string]any{"type": "stare", "item_id": "ext:e1"}, http.StatusUnprocessableEntity, "invalid"},
		{"ext:e0", map[string]any{"type": "click", "item_id": "ext:e0"}, http.StatusUnprocessableEntity, "invalid"},
		{"ext:e0", map[string]any{"type": "click", "item_id": "ext:nobody"}, http.StatusNotFound, "item_unknown"},
		{"ext:e0", map[string]any{"type": "dismiss", "item_id": "cam_0000000000000000000000000g"}, http.StatusNotFound, "item_unknown"},
		{"ext:nobody", map[string]any{"type": "click", "item_id": "ext:e1"}, http.StatusNotFound, "user_unknown"},
		{"ext:e1", map[string]any{"type": "click", "impression_id": first.Data[0].ImpressionID}, http.StatusNotFound, "impression_unknown"},
	} {
		wantProblem(t, c.status, c.code, a.send("POST", "/api/v1/users/"+c.user+"/feed/interactions", c.body))
	}
	wantProblem(t, http.StatusNotFound, "user_unknown", other.get("/api/v1/users/"+shown(first.Data[0])+"/feed"))

	if _, err := conn.Exec(t.Context(), `UPDATE feed_snapshots SET expires_at = $1`, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, http.StatusGone, "feed_expired", a.get("/api/v1/users/ext:e0/feed?limit=10"+next))
	wantDone(t, a.send("DELETE", "/api/v1/users/ext:e0", nil))
	wantProblem(t, http.StatusNotFound, "user_unknown", a.get("/api/v1/users/ext:e0/feed"))
}
