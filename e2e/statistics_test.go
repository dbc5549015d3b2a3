package e2e

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"kindred/httpapi"
	"kindred/testkit"
)

func (a account) statistics(query string) httpapi.Statistics {
	a.Helper()
	return want[httpapi.Statistics](a, http.StatusOK, a.get("/api/v1/statistics?"+query))
}

func TestStatisticsOfAClientAreItsOwnAndOutliveErasure(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := s.signUp(), s.signUp()
	for _, query := range []string{"metric=users", "metric=matches", "metric=deliveries", "metric=spend&interval=hour"} {
		if got := a.statistics(query); len(got.Series) != 0 {
			t.Errorf("of nothing, %s says %+v", query, got)
		}
	}
	r := receive(t, 200)
	a.subscribe(r.URL, "a-secret-of-the-webhook", "match.computed")
	for _, user := range []string{"ann", "bob", "cat"} {
		a.createUser(user, map[string]any{"age": 30, "plan": "pro"})
	}
	a.send("POST", "/api/v1/users/ext:ann/matches", map[string]any{"limit": 2})
	c := a.run(nil)
	a.spend(c, "s1", 400)
	a.spend(c, "s2", 50)
	wantDone(t, a.send("DELETE", "/api/v1/users/ext:cat", nil))
	for range 2 {
		r.next(t)
	}

	users := a.statistics("metric=users").Total.Users
	if users == nil || *users != (httpapi.UserCounts{There: 2, Created: 3, Erased: 1}) {
		t.Errorf("users: %+v", users)
	}
	if got := a.statistics("metric=matches&interval=hour"); got.Total.Matches == nil || got.Total.Matches.Recorded != 2 || got.Total.Users != nil {
		t.Errorf("matches: %+v", got)
	}
	spent := a.statistics("metric=spend").Total.Spend
	if spent == nil || len(*spent) != 1 || (*spent)[0] != (httpapi.SpentAmount{Currency: "EUR", AmountMinor: 450}) {
		t.Errorf("spend: %+v", spent)
	}
	testkit.Eventually(t, "both deliveries are counted", func() bool {
		got := a.statistics("metric=deliveries").Total.Deliveries
		return got != nil && *got == httpapi.DeliveryCounts{FirstTry: 2}
	})
	if got := other.statistics("metric=users"); got.Total.Users.Created != 0 || len(got.Series) != 0 {
		t.Errorf("another client sees %+v", got)
	}
	later := time.Now().Add(49 * time.Hour).UTC().Format(time.RFC3339)
	if got := a.statistics("metric=users&interval=hour&to=" + later); got.Total.Users.There != 2 || len(got.Series) != 0 {
		t.Errorf("who came before the first interval is not there: %+v", got)
	}
}

func TestStatisticsTakeAThousandIntervalsAtMost(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	at := func(hours int) string {
		return url.QueryEscape(time.Date(2026, 1, 1, 0, 59, 0, 0, time.UTC).Add(time.Duration(hours) * time.Hour).Format(time.RFC3339))
	}
	got := a.statistics("metric=users&interval=hour&from=" + at(0) + "&to=" + at(999))
	if n := got.To.Sub(got.From.Time); n != 1000*time.Hour {
		t.Errorf("the widest series lasts %s", n)
	}
	days := a.statistics("metric=users&timezone=America/New_York&from=" + at(0) + "&to=" + at(24*999))
	if begin, end := days.From.UTC().Hour(), days.To.UTC().Hour(); begin != 5 || end != 4 {
		t.Errorf("from %s to %s", days.From, days.To)
	}
	for query, pointer := range map[string]string{
		"metric=users&interval=hour&from=" + at(0) + "&to=" + at(1000):                             "from",
		"metric=users&from=" + at(0) + "&to=" + at(24*1000):                                        "from",
		"metric=users&from=" + at(2) + "&to=" + at(1):                                              "from",
		"metric=users&to=9999-12-31T00:00:00Z":                                                     "to", // the interval ends after the last year that there is
		"metric=users&to=0000-01-15T00:00:00Z":                                                     "to",
		"metric=users&from=0000-01-01T00:00:00Z&to=0000-01-15T00:00:00Z&timezone=Asia/Tokyo":       "from",
		"metric=users&from=0001-01-01T00:00:00Z&to=0001-01-15T00:00:00Z&timezone=America/New_York": "from", // that day begins in the year 0 (UTC)
		"metric=users&timezone=Europe/Atlantis":                                                    "timezone",
		"metric=users&timezone=Local":                                                              "timezone",
	} {
		p := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/statistics?"+query))
		if len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v", query, p)
		}
	}
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/statistics"))
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get("/api/v1/statistics?metric=money"))
}
