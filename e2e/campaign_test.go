package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/httpapi"
	"kindred/testkit"
)

// draft makes a campaign of 1,000 cents with what changes say.
func (a account) draft(changes map[string]any) httpapi.Campaign {
	a.Helper()
	body := map[string]any{"name": "Spring " + rand.Text()[:4], "budget_minor": 1_000, "currency": "EUR"}
	maps.Copy(body, changes)
	return want[httpapi.Campaign](a, http.StatusCreated, a.send("POST", "/api/v1/campaigns", body))
}

func (a account) change(c httpapi.Campaign, change map[string]any) answer {
	a.Helper()
	return a.send("PATCH", "/api/v1/campaigns/"+string(c.ID), change)
}

// run makes a campaign that runs.
func (a account) run(changes map[string]any) httpapi.Campaign {
	a.Helper()
	return want[httpapi.Campaign](a, http.StatusOK, a.change(a.draft(changes), map[string]any{"status": "running"}))
}

func (a account) spend(c httpapi.Campaign, spendID string, amount int64) answer {
	a.Helper()
	return a.send("POST", "/api/v1/campaigns/"+string(c.ID)+"/spend", map[string]any{"spend_id": spendID, "amount_minor": amount})
}

func (a account) engage(c httpapi.Campaign, body map[string]any, options ...option) answer {
	a.Helper()
	return a.send("POST", "/api/v1/campaigns/"+string(c.ID)+"/engagements", body, options...)
}

func (a account) campaign(c httpapi.Campaign) httpapi.Campaign {
	a.Helper()
	return want[httpapi.Campaign](a, http.StatusOK, a.get("/api/v1/campaigns/"+string(c.ID)))
}

func (a account) analytics(c httpapi.Campaign, query string) httpapi.CampaignAnalytics {
	a.Helper()
	return want[httpapi.CampaignAnalytics](a, http.StatusOK, a.get("/api/v1/campaigns/"+string(c.ID)+"/analytics"+query))
}

func TestACampaignRunsUntilItsBudgetIsSpentAndTellsIt(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	told := make(chan []byte, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- body
	}))
	defer receiver.Close()
	a.subscribe(receiver.URL, "budget-exhausted-secret", "campaign.budget_exhausted")

	c := a.draft(nil)
	if c.Status != "draft" || c.SpentMinor != 0 || c.RemainingMinor != 1_000 || c.Audience != "all" || c.StartsAt != nil {
		t.Errorf("drafted as %+v", c)
	}
	wantProblem(t, http.StatusConflict, "campaign_not_running", a.spend(c, "early", 1))
	c = want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"status": "running"}))
	if diff := cmp.Diff(c, a.campaign(c)); diff != "" {
		t.Errorf("read otherwise than answered: %s", diff)
	}

	first := a.spend(c, "s1", 400)
	spend := want[httpapi.Spend](t, http.StatusCreated, first)
	if spend.SpentMinor != 400 || spend.RemainingMinor != 600 || spend.Status != "running" || spend.Currency != "EUR" {
		t.Errorf("counted as %+v", spend)
	}
	wantProblem(t, http.StatusUnprocessableEntity, "spend_id_reused", a.spend(c, "s1", 401))
	want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"status": "paused"}))
	wantProblem(t, http.StatusConflict, "campaign_not_running", a.spend(c, "s2", 1))
	want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"status": "running"}))

	byKey := func() answer {
		return a.send("POST", "/api/v1/campaigns/"+string(c.ID)+"/spend", map[string]any{"amount_minor": 500}, idempotent("k1"))
	}
	keyed := byKey()
	if again := byKey(); string(again.Body) != string(keyed.Body) {
		t.Errorf("repeated with %s, first %s", again.Body, keyed.Body)
	}
	last := want[httpapi.Spend](t, http.StatusCreated, a.spend(c, "s3", 150))
	if last.SpentMinor != 1_050 || last.RemainingMinor != 0 || last.Status != "completed" {
		t.Errorf("the record that crosses the budget is counted as %+v", last)
	}
	wantProblem(t, http.StatusConflict, "campaign_not_running", a.spend(c, "s4", 1))
	wantProblem(t, http.StatusConflict, "campaign_over", a.change(c, map[string]any{"status": "running"}))
	if again := a.spend(c, "s1", 400); again.Status != http.StatusCreated || string(again.Body) != string(first.Body) {
		t.Errorf("long after, repeated with %d %s, first %s", again.Status, again.Body, first.Body)
	}

	got := a.campaign(c)
	if got.Status != "completed" || got.SpentMinor != 1_050 || got.RemainingMinor != 0 {
		t.Errorf("after its end it is %+v", got)
	}
	select {
	case body := <-told:
		var delivery struct {
			Type string         `json:"event_type"`
			Data map[string]any `json:"data"`
		}
		if err := json.Unmarshal(body, &delivery); err != nil {
			t.Fatal(err)
		}
		exactly := map[string]any{"client_id": string(a.Client.ID), "campaign_id": string(c.ID)}
		if diff := cmp.Diff(exactly, delivery.Data); delivery.Type != "campaign.budget_exhausted" || diff != "" {
			t.Errorf("told %s", body)
		}
	case <-time.After(patience):
		t.Fatal("the exhaustion was never told")
	}
	for _, status := range []string{"completed", "running"} {
		listed := each[httpapi.Campaign](t, a, "/api/v1/campaigns?status="+status, 10)
		if (len(listed) == 1) != (status == "completed") {
			t.Errorf("%d campaigns are listed as %s", len(listed), status)
		}
	}
}

// An id of an impression that was recorded twice would stop the read model.
func TestAnImpressionIsNotRepeatedForWhoComesAfterAnErasure(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	c := a.run(nil)
	a.createUser("ada", nil)
	see := func() answer {
		return a.engage(c, map[string]any{"type": "impression", "user_id": "ext:ada"}, idempotent("seen"))
	}
	shown := want[httpapi.Engagement](t, http.StatusCreated, see())
	if got := a.send("DELETE", "/api/v1/users/ext:ada", nil); got.Status/100 != 2 {
		t.Fatalf("erased with %d %s", got.Status, got.Body)
	}
	a.createUser("ada", nil)
	wantProblem(t, http.StatusNotFound, "impression_unknown", a.engage(c, map[string]any{"type": "click", "impression_id": shown.ImpressionID}))
	wantProblem(t, http.StatusUnprocessableEntity, "idempotency_key_reused", see())
	want[httpapi.Engagement](t, http.StatusCreated, a.engage(c, map[string]any{"type": "impression", "user_id": "ext:ada"}))
	if got := a.analytics(c, ""); got.Impressions != 2 {
		t.Errorf("%d impressions are counted, want 2", got.Impressions)
	}
}

// Not beside other tests: its campaign is to be scheduled before it starts.
func TestACampaignStartsAndEndsByItself(t *testing.T) {
	a := shared(t).signUp()
	soon := time.Now().Add(300 * time.Millisecond)
	c := a.draft(map[string]any{"starts_at": soon, "ends_at": soon.Add(time.Hour)})
	c = want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"status": "running"}))
	if c.Status != "scheduled" {
		t.Fatalf("before its time it is %s", c.Status)
	}
	testkit.Eventually(t, "it runs", func() bool { return a.campaign(c).Status == "running" })
	want[httpapi.Spend](t, http.StatusCreated, a.spend(c, "s", 1))
	want[httpapi.Campaign](t, http.StatusOK, a.change(c, map[string]any{"ends_at": time.Now().Add(300 * time.Millisecond)}))
	testkit.Eventually(t, "it is completed", func() bool { return a.campaign(c).Status == "completed" })
	wantProblem(t, http.StatusConflict, "campaign_not_running", a.spend(c, "late", 1))
}

func TestAChangeOfACampaignIsAllOrNothingAndConditional(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	c := a.run(map[string]any{"frequency_cap": 3, "frequency_window_seconds": 60, "ends_at": time.Now().Add(time.Hour)})
	want[httpapi.Spend](t, http.StatusCreated, a.spend(c, "s", 500))
	p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.change(c, map[string]any{
		"name": "other", "budget_minor": 500, "currency": "USD", "starts_at": nil, "ends_at": "2001-01-01T00:00:00Z",
	}))
	if len(p.Errors) != 3 {
		t.Errorf("told %+v, want budget, currency and end", p.Errors)
	}
	if got := a.campaign(c); got.Name != c.Name || got.EndsAt == nil {
		t.Errorf("a refused change changed it to %+v", got)
	}
	before := a.get("/api/v1/campaigns/" + string(c.ID)).Header.Get("ETag")
	want[httpapi.Spend](t, http.StatusCreated, a.spend(c, "t", 100))
	changed := a.send("PATCH", "/api/v1/campaigns/"+string(c.ID), map[string]any{
		"budget_minor": 700, "ends_at": nil, "frequency_cap": nil, "name": "Summer",
	}, header("If-Match", before))
	got := want[httpapi.Campaign](t, http.StatusOK, changed)
	if got.BudgetMinor != 700 || got.EndsAt != nil || got.FrequencyCap != nil || got.FrequencyWindowSeconds != nil || got.Name != "Summer" || got.RemainingMinor != 100 {
		t.Errorf("changed to %+v", got)
	}
	if read := a.get("/api/v1/campaigns/" + string(c.ID)); read.Header.Get("ETag") != changed.Header.Get("ETag") {
		t.Errorf("ETag %s, answered %s", read.Header.Get("ETag"), changed.Header.Get("ETag"))
	}
	wantProblem(t, http.StatusPreconditionFailed, "stale",
		a.send("PATCH", "/api/v1/campaigns/"+string(c.ID), map[string]any{"name": "Autumn"}, header("If-Match", before)))
}

func TestEngagementIsTheShareOfImpressionsWithAnAnswer(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	a.createUser("u1", nil)
	a.createUser("u2", nil)
	c := a.run(nil)
	if empty := a.analytics(c, ""); empty.EngagementRate != 0 || empty.Impressions != 0 || len(empty.Series) != 0 || empty.Pacing.Probability != 1 {
		t.Errorf("before anything: %+v", empty)
	}
	impression := func(user string) httpapi.Engagement {
		return want[httpapi.Engagement](t, http.StatusCreated, a.engage(c, map[string]any{"type": "impression", "user_id": "ext:" + user}))
	}
	i1, i2 := impression("u1"), impression("u1")
	impression("u2")
	impression("u2")
	for _, body := range []map[string]any{
		{"type": "click", "impression_id": i1.ImpressionID},
		{"type": "click", "impression_id": i1.ImpressionID},
		{"type": "conversion", "impression_id": i1.ImpressionID},
		{"type": "conversion", "user_id": "ext:u1"}, // belongs to i2
	} {
		want[httpapi.Engagement](t, http.StatusCreated, a.engage(c, body))
	}
	want[httpapi.Spend](t, http.StatusCreated, a.spend(c, "s", 70))
	want[httpapi.Engagement](t, http.StatusCreated, a.engage(c, map[string]any{"type": "impression", "impression_id": i2.ImpressionID}))
	got := a.analytics(c, "?interval=hour&timezone=Asia/Kathmandu")
	if got.Impressions != 4 || got.Clicks != 2 || got.Conversions != 2 || got.Engaged != 2 || got.EngagementRate != 0.5 ||
		got.Reach != 2 || got.SpentMinor != 70 || got.RemainingMinor != 930 || got.Spends != 1 || got.Timezone != "Asia/Kathmandu" {
		t.Errorf("told %+v", got)
	}
	var sum httpapi.AnalyticsInterval
	for _, i := range got.Series {
		if i.Start.Minute()%60 != 15 {
			t.Errorf("an hour in Kathmandu begins at %s", i.Start)
		}
		sum.Impressions += i.Impressions
		sum.Engaged += i.Engaged
		sum.SpentMinor += i.SpentMinor
	}
	if sum.Impressions != 4 || sum.Engaged != 2 || sum.SpentMinor != 70 {
		t.Errorf("the series adds up to %+v", sum)
	}

	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.engage(c, map[string]any{"type": "click", "user_id": "ext:u1"}))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.engage(c, map[string]any{"type": "impression"}))
	wantProblem(t, http.StatusNotFound, "user_unknown", a.engage(c, map[string]any{"type": "impression", "user_id": "ext:u3"}))
	wantProblem(t, http.StatusNotFound, "impression_unknown", a.engage(a.run(nil), map[string]any{"type": "click", "impression_id": i1.ImpressionID}))
	for _, zone := range []string{"Mars/Olympus", "localtime", "posix/UTC", "Europe//Berlin", "./UTC"} { // the last two are for Go alone
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/campaigns/"+string(c.ID)+"/analytics?timezone="+zone))
	}

	wantDone(t, a.send("DELETE", "/api/v1/users/ext:u1", nil))
	wantProblem(t, http.StatusNotFound, "impression_unknown", a.engage(c, map[string]any{"type": "click", "impression_id": i1.ImpressionID}))
	if after := a.analytics(c, ""); after.Impressions != 4 || after.EngagementRate != 0.5 {
		t.Errorf("after an erasure: %+v", after)
	}
}

func TestAFrequencyCapHoldsHoweverManyTryAtOnce(t *testing.T) {
	t.Parallel()
	s := startService(t, pooled(t))
	other := startService(t, replicaOf(s))
	a := s.signUp()
	a.createUser("u", nil)
	c := a.run(map[string]any{"frequency_cap": 5})
	statuses := together(32, func(i int) int {
		at := a
		if i%2 == 1 {
			at = a.at(other)
		}
		return at.engage(c, map[string]any{"type": "impression", "user_id": "ext:u"}, idempotent(fmt.Sprint(i))).Status
	})
	created := 0
	for _, status := range statuses {
		switch status {
		case http.StatusCreated:
			created++
		case http.StatusConflict:
		default:
			t.Errorf("answered %d", status)
		}
	}
	if got := a.analytics(c, ""); created != 5 || got.Impressions != 5 {
		t.Errorf("%d were taken, %d are counted, the cap is 5", created, got.Impressions)
	}
}

func TestConcurrentSpendsOfTwoReplicasCountOnce(t *testing.T) {
	t.Parallel()
	const workers, each, distinct, amount = 32, 100, 1_500, 7
	s := startService(t)
	other := startService(t, replicaOf(s))
	a := s.signUp()
	told := make(chan struct{}, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told <- struct{}{} }))
	defer receiver.Close()
	a.subscribe(receiver.URL, "", "campaign.budget_exhausted")
	const budget = 1_000*amount + 3 // crossed by the 1,001st
	c := a.run(map[string]any{"budget_minor": budget})

	type counted struct {
		accepted map[string]string
		refused  int
	}
	results := together(workers, func(w int) counted {
		at, got := a, counted{accepted: map[string]string{}}
		if w%2 == 1 {
			at = a.at(other)
		}
		for i := range each {
			spendID := fmt.Sprint("s", (w*37+i*11)%distinct)
			answer := at.spend(c, spendID, amount)
			switch answer.Status {
			case http.StatusCreated:
				if before, twice := got.accepted[spendID]; twice && before != string(answer.Body) {
					t.Errorf("%s answered with %s and %s", spendID, before, answer.Body)
				}
				got.accepted[spendID] = string(answer.Body)
			case http.StatusConflict:
				got.refused++
			default:
				t.Errorf("answered %d %s", answer.Status, answer.Body)
			}
		}
		return got
	})
	all, refused := map[string]string{}, 0
	for _, r := range results {
		refused += r.refused
		for spendID, body := range r.accepted {
			if before, twice := all[spendID]; twice && before != body {
				t.Errorf("%s answered with %s and %s", spendID, before, body)
			}
			all[spendID] = body
		}
	}
	got := a.campaign(c)
	if got.Status != "completed" || got.SpentMinor != int64(len(all))*amount || got.SpentMinor-budget >= amount || got.SpentMinor < budget {
		t.Errorf("%d spends of %d were accepted, the campaign says %+v", len(all), amount, got)
	}
	if refused == 0 {
		t.Error("nothing was refused: the budget was never crossed")
	}
	<-told
	wantProblem(t, http.StatusConflict, "campaign_not_running", a.spend(c, "late", amount))
	if after := a.analytics(c, ""); after.Spends != int64(len(all)) {
		t.Errorf("%d spends are counted, %d were accepted", after.Spends, len(all))
	}
	if len(told) > 0 {
		t.Error("the exhaustion was told twice")
	}
}
