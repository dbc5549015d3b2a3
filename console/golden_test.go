package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	kindred "kindred/sdk/go"
)

// hashes are parts of addresses that change with what they lead to.
var hashes = regexp.MustCompile(`/static/[0-9a-f]{12}/`)

var update = flag.Bool("update", false, "write the golden pages anew")

// now is when the golden pages are looked at.
var now = time.Date(2026, 11, 25, 9, 30, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// made is a public API that gives the answers that it has, by path, and to whatever else
// is a list an empty one. Where an answer is an error, it refuses with that.
type made map[string]any

func (m made) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, ok := m[r.URL.Path+"?"+r.URL.RawQuery]
	if !ok {
		answer, ok = m[r.URL.Path]
	}
	if !ok {
		answer = map[string]any{"data": []any{}, "next_cursor": nil}
	}
	status := http.StatusOK
	w.Header().Set("Content-Type", "application/json")
	if refused, is := answer.(refusal); is {
		w.Header().Set("Content-Type", "application/problem+json")
		status = refused.Status
	}
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// refusal is a problem that the API answers.
type refusal struct {
	Status    int                  `json:"status"`
	Code      string               `json:"code"`
	Detail    string               `json:"detail"`
	RequestID string               `json:"request_id"`
	Errors    []kindred.FieldError `json:"errors,omitempty"`
}

// plus is a world with some answers more, or others.
func (m made) plus(more made) made {
	all := maps.Clone(m)
	maps.Copy(all, more)
	return all
}

// pagesOf serves the console of the world that a request is in.
func pagesOf(t *testing.T) http.Handler {
	t.Helper()
	pages, err := New(Config{
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(madeKey{}).(http.Handler).ServeHTTP(w, r) //nolint:forcetypeassert // rendered puts it there
		}),
		ProxyHeaders: []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"},
		Forms: func(_ http.ResponseWriter, r *http.Request, serve func()) error {
			if r.Context().Value(tooManyKey{}) != nil {
				return errors.New("too many")
			}
			serve()
			return nil
		},
		PublicURL: "https://kindred.example", Now: func() time.Time { return now }, NewKey: func() string { return "KEY" },
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

type (
	madeKey    struct{}
	tooManyKey struct{}
)

// rendered is a page of a world, as who looks at it gets it.
func rendered(t *testing.T, pages, world http.Handler, method, path, form string) string {
	t.Helper()
	r := httptest.NewRequest(method, Path+path, strings.NewReader(form))
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
	if raw, err := json.Marshal(note{Kind: "key", Member: "mem_1", Name: longName, Secret: "kin_live_abc"}); err == nil {
		r.AddCookie(&http.Cookie{Name: "__Secure-kindred-note", Value: base64.RawURLEncoding.EncodeToString(raw)})
	}
	r = r.WithContext(context.WithValue(r.Context(), madeKey{}, world))
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	head := fmt.Sprintf("%d %s\n", w.Code, w.Header().Get("Location"))
	return head + hashes.ReplaceAllString(strings.ReplaceAll(w.Body.String(), "><", ">\n<"), "/static/HASH/") // so that a difference is a line
}

// A page looks as it did, in every state: full, empty, refused, with names that are long.
// go test ./console -run Golden -update writes what has changed on purpose.
func TestGoldenPages(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	for name, page := range goldenPages() {
		method := http.MethodGet
		if page.form != "" {
			method = http.MethodPost
		}
		got, file := rendered(t, pages, page.world, method, page.path, page.form), filepath.Join("testdata", "pages", name+".html")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s, at %s (-golden +now):\n%s", name, page.path, diff)
		}
		if name != "sign-in" && strings.Contains(got, "cannot be drawn") {
			t.Errorf("%s is not drawn", name)
		}
	}
	files, err := filepath.Glob("testdata/pages/*.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, known := goldenPages()[strings.TrimSuffix(filepath.Base(file), ".html")]; !known {
			t.Errorf("%s is of no page", file)
		}
	}
}

// Every page that can be asked for has a golden one.
func TestEachPageIsGolden(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, page := range goldenPages() {
		seen[page.template] = true
	}
	for name := range templates(t) {
		name = strings.TrimSuffix(filepath.Base(name), ".tmpl")
		if name != "layout" && name != "parts" && !seen[name] {
			t.Errorf("the page %s has no golden one", name)
		}
	}
}

const longName = "A name that somebody gave to see what it does: it goes on without an end, and then ThereIsAWordThatNobodyCanBreakBecauseItHasNoSpaceInItAtAll <b>&"

// base is what every page asks for.
func base(role kindred.Role, company string, scopes ...string) made {
	return made{
		"/auth/sessions/token": kindred.LoggedIn{
			Client: kindred.ClientName{ID: "cli_1", Name: company, Slug: "acme"}, ExpiresIn: 900, Scopes: scopes, Token: "e30.eyJhdWQiOiJjbGlfMSJ9.x", // for cli_1
			User: kindred.ClientUser{ID: "mem_1", Email: "ada@example.com", Role: role},
		},
		"/api/v1/traits":                      kindred.TraitSchema{Version: 1},
		"/api/v1/attention":                   kindred.AttentionList{Data: []kindred.AttentionItem{}},
		"/api/v1/statistics":                  kindred.Statistics{},
		"/api/v1/clients/cli_1":               client(company),
		"/api/v1/clients/cli_1/requests":      kindred.RequestList{Data: []kindred.LoggedRequest{}},
		"/api/v1/users/usr_1/segments":        kindred.UserSegments{UserID: "usr_1"},
		"/api/v1/users/usr_1/memberships":     kindred.Memberships{UserID: "usr_1"},
		"/api/v1/users/usr_1/matches":         kindred.ComputedMatches{Data: []kindred.ComputedMatch{}},
		"/.well-known/audit-jwks.json":        kindred.JWKS{Keys: []kindred.JWK{{Kid: "k1", Kty: "OKP", Crv: "Ed25519", Alg: "EdDSA", Use: "sig", X: "AAAA"}}},
		"/api/v1/clustering_runs/run_2/map":   refusal{Status: 409, Code: "run_not_current", Detail: "Only the map of a run that counts is drawn."},
		"/api/v1/clustering_runs/run_2/flow":  kindred.ClusteringFlow{ClusteringRunID: "run_2"},
		"/api/v1/clustering_runs/run_2":       run("run_2", 2),
		"/api/v1/clients/cli_1/history/proof": kindred.HistoryProof{Head: "a.b.c", Root: "00ff", Size: 12, Hash: new("00ff"), Ordinal: new(int64(3)), Inclusion: []string{"01"}},
	}
}

func client(name string) kindred.ClientDetails {
	return kindred.ClientDetails{
		ID: "cli_1", Name: name, Slug: "acme", CreatedAt: ago(40 * 24 * time.Hour),
		Settings: kindred.ClientSettings{AutomaticMatching: kindred.AutomaticMatching{On: true, K: 10, MinScore: .5}, WebhookUserIDs: "internal"},
	}
}

func run(id string, days int) kindred.ClusteringRun {
	ended := ago(time.Duration(days) * 24 * time.Hour)
	started := ended.Add(-4 * time.Second)
	return kindred.ClusteringRun{
		ID: id, ConsentLayerID: "lay_1", Status: kindred.RunStatusCompleted, CreatedAt: started, StartedAt: &started, EndedAt: &ended, Seed: 7,
		TraitPaths: []string{"age", "plan"}, Users: new(int64(20412)), Quality: &kindred.RunQuality{Silhouette: .61},
		Verdict:  &kindred.RunVerdict{Kind: "groups", Explanation: "The groups are further apart than those of shuffled traits."},
		Clusters: []kindred.ClusterSummary{{ID: "clu_1", Label: "plan pro", Size: 12000}, {ID: "clu_2", Label: "plan free", Size: 8412}},
	}
}

func list(data any) map[string]any { return map[string]any{"data": data, "next_cursor": nil} }

// full is a company with something on each page, whose things have a name.
func full(name string) made {
	user := kindred.User{ID: "usr_1", ExternalID: name, CreatedAt: ago(30 * 24 * time.Hour), UpdatedAt: ago(2 * time.Hour), Traits: map[string]any{
		"plan": "pro", "age": 31, "city": name, "home": map[string]any{"lat": 38.7, "lon": -9.1}, "likes": []any{"jazz", "go"}, "address": map[string]any{"zip": "1100"},
	}}
	layer := kindred.ConsentLayer{ID: "lay_1", Name: name, TraitPaths: []string{"age", "plan"}, CreatedAt: ago(20 * 24 * time.Hour)}
	cluster := func(id, label string, size int64) kindred.Cluster {
		return kindred.Cluster{
			ID: id, Label: label, ClusterSize: size, ConsentLayerID: "lay_1", ClusteringRunID: "run_2", FirstRunID: "run_1", Status: kindred.ClusterStatusActive, CreatedAt: ago(9 * 24 * time.Hour),
			Quality: kindred.ClusterQuality{Silhouette: .61, Stability: new(.94)},
			Traits:  []kindred.ClusterTrait{{Path: "plan", Type: "category", Level: new("pro"), ClusterValue: .97, OverallValue: .4, Effect: 1.4}, {Path: "age", Type: "number", ClusterValue: 44.5, OverallValue: 37.1, Effect: .8}, {Path: "joined", Type: "date", ClusterValue: 12, OverallValue: 300, Effect: -.5}},
		}
	}
	campaign := kindred.Campaign{
		ID: "cam_1", Name: name, Audience: kindred.AudienceClusters, ClusterIDs: []string{"clu_1"}, BudgetMinor: 500050, SpentMinor: 318250, RemainingMinor: 181800, Currency: "EUR",
		Status: kindred.CampaignStatusRunning, CreatedAt: ago(10 * 24 * time.Hour), StartedAt: new(ago(6 * 24 * time.Hour)), EndsAt: new(now.Add(4 * 24 * time.Hour)), FrequencyCap: new(int64(3)), FrequencyWindowSeconds: new(int64(604800)),
	}
	layered := kindred.Segment{ID: "seg_2", Name: "of " + name, Rule: `traits.age > 30`, Members: 12, State: "ready", ConsentLayerID: new("lay_1"), CreatedAt: ago(48 * time.Hour)}
	hook := kindred.Webhook{
		ID: "whk_1", URL: "https://example.com/" + url.PathEscape(name), Status: kindred.WebhookStatusActive, EventTypes: []kindred.EventType{kindred.EventTypeMatchComputed}, HasSecret: true, CreatedAt: ago(8 * 24 * time.Hour),
		Deliveries: &kindred.WebhookHealth{Pending: 3, FailingSince: new(ago(time.Hour)), LastSuccessAt: new(ago(2 * time.Hour)), LastFailureAt: new(ago(time.Minute))}, DisableAfterSeconds: new(int64(86400)), HeaderNames: []string{"X-Tenant"},
	}
	delivery := kindred.Delivery{
		ID: "dlv_1", WebhookID: "whk_1", EventID: "evt_1", EventType: kindred.EventTypeMatchComputed, Status: kindred.DeliveryStatusDropped, CreatedAt: ago(3 * time.Hour), OccurredAt: ago(3 * time.Hour), EndedAt: new(ago(2 * time.Hour)),
		Attempts: []kindred.DeliveryAttempt{{At: ago(3 * time.Hour), Status: new(int64(500)), Answer: name, LatencyMs: 12}, {At: ago(2 * time.Hour), Error: new("connection refused"), LatencyMs: 3}},
	}
	event := kindred.PublicEvent{ID: "evt_1", EventType: kindred.EventTypeMatchComputed, Timestamp: ago(time.Minute), Data: map[string]any{"user_id": "usr_1", "matched_user_id": "usr_2", "score": .91}}
	happened := kindred.HistoryEvent{
		Ordinal: 3, ID: new("evt_1"), Type: new("end_user.created"), Stream: new("user-cli_1-usr_1"), Actor: new("key_1"), RecordedAt: new(ago(time.Hour)), Data: `{"user_id":"usr_1"}`, Meta: `{}`, Hash: "00ff",
		Version: new(int64(1)), Personal: &kindred.HistoryPersonal{ExternalID: new(name)},
	}
	trait := func(path string, kind kindred.TraitType) kindred.Trait {
		return kindred.Trait{Path: path, Type: kind, Because: kindred.TraitBecauseKind, Coverage: .97, Participates: true, Weight: 1}
	}
	excluded := trait(name, kindred.TraitTypeExcluded)
	excluded.Participates, excluded.Reason, excluded.Sensitive = false, new("free_text"), true
	day := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	counts := func(metric string, entry kindred.StatisticEntry) (path string, answer kindred.Statistics) {
		entry.Start = day
		query := url.Values{"metric": {metric}, "interval": {"day"}, "from": {time.Date(2026, 9, 27, 0, 0, 0, 0, time.UTC).Format(time.RFC3339Nano)}, "timezone": {"UTC"}}
		return "/api/v1/statistics?" + query.Encode(), kindred.Statistics{Series: []kindred.StatisticEntry{entry}, Total: kindred.StatisticCounts{Users: entry.Users}}
	}
	world := base(kindred.RoleOwner, name, "admin", "audit", "erase").plus(made{
		"/api/v1/users": kindred.UserList{Data: []kindred.User{user}, NextCursor: new("more")},
		"/api/v1/statistics?interval=hour&metric=users": kindred.Statistics{Total: kindred.StatisticCounts{Users: &kindred.UserCounts{Created: 30, There: 20412}}},
		"/api/v1/users/usr_1":                           user,
		"/api/v1/users/usr_1/matches": kindred.ComputedMatches{Data: []kindred.ComputedMatch{{
			MatchedUserID: "usr_2", ExternalID: name, Score: new(.91), Explanation: []kindred.Term{
				{Trait: "plan", Contribution: .5, Similarity: 1, Weight: 1},
				{Trait: "age", Contribution: .3, Similarity: .9, Weight: 1},
				{Trait: "city", Contribution: .05, Similarity: .1, Weight: 1},
				{Trait: "likes", Contribution: .04, Similarity: .5, Weight: 1, Missing: true},
				{Trait: "home", Contribution: .01, Similarity: .3, Weight: 1},
				{Trait: "a", Contribution: .005, Similarity: .3, Weight: 1},
				{Trait: "b", Contribution: .005, Similarity: .3, Weight: 1},
			},
		}}},
		"/api/v1/users/usr_1/feed": kindred.Feed{Data: []kindred.FeedItem{
			{Type: "user", UserID: new("usr_2"), ExternalID: new(name), Reason: "match", Score: .91}, {Type: "campaign", CampaignID: new("cam_1"), Reason: "campaign", Score: .4},
		}},
		"/api/v1/users/usr_1/memberships": kindred.Memberships{UserID: "usr_1", Clusters: []kindred.ClusterMembership{{ClusterID: "clu_1", Label: name, ConsentLayerID: "lay_1", ClusteringRunID: "run_2"}}},
		"/api/v1/users/usr_1/segments": kindred.UserSegments{UserID: "usr_1", Segments: []kindred.SegmentOfUser{{
			SegmentID: "seg_1", Name: name, Why: []kindred.JudgedComparison{{Comparison: `traits.age > 30`, Truth: "true", FlipsAt: new(now.Add(24 * time.Hour))}},
		}}},
		"/api/v1/users/usr_1/timeline": list([]kindred.TimelineEntry{
			{EventID: "evt_3", Ordinal: 9, Type: "match.computed", RecordedAt: ago(time.Hour), Actor: "key_1", MatchedUserID: new("usr_2")},
			{EventID: "evt_2", Ordinal: 5, Type: "consent.granted", RecordedAt: ago(2 * time.Hour), Actor: "mem_1", ConsentLayerID: new("lay_1")},
			{EventID: "evt_1", Ordinal: 3, Type: "end_user.created", RecordedAt: ago(3 * time.Hour), Actor: "key_1", ChangedTraits: []string{"plan", "age"}},
			{EventID: "evt_4", Ordinal: 2, Type: "impression.recorded", RecordedAt: ago(3 * time.Hour), Actor: "policy:feed", Kind: new("click"), ItemID: new("ipr_1"), CampaignID: new("cam_1")},
		}),
		"/api/v1/users/imports/imp_1": kindred.Import{
			ID: "imp_1", Status: "failed", CreatedAt: ago(time.Minute), Lines: 100, LinesDone: 40, Progress: .4, Created: 30, Updated: 9, Failed: 1, EndedAt: new(ago(time.Second)),
			Errors: []kindred.ImportError{{Line: 7, Code: "invalid", Detail: name, Errors: []kindred.FieldError{{Pointer: "/traits", Detail: "must be an object"}}}},
		},
		"/api/v1/consent_layers":       list([]kindred.ConsentLayer{layer}),
		"/api/v1/consent_layers/lay_1": layer,
		"/api/v1/consent_layers/lay_1/users/usr_1": kindred.UserConsent{
			ConsentLayerID: "lay_1", UserID: "usr_1", Status: "granted", ChangedAt: new(ago(2 * time.Hour)),
			History: []kindred.ConsentEntry{{At: ago(2 * time.Hour), Status: "granted", Actor: "mem_1", Source: new(name)}},
		},
		"/api/v1/traits": kindred.TraitSchema{Version: 4, Users: 20412, Skipped: 2, Traits: []kindred.Trait{trait("age", kindred.TraitTypeNumber), trait("plan", kindred.TraitTypeCategory), excluded}},
		"/api/v1/traits/age/distribution": kindred.TraitDistribution{Path: "age", Type: kindred.TraitTypeNumber, Coverage: .97, Bins: []kindred.TraitBin{
			{To: new(20.0), Share: .1}, {From: new(20.0), To: new(40.0), Share: .6}, {From: new(40.0), Share: .3},
		}},
		"/api/v1/traits/plan/distribution": kindred.TraitDistribution{Path: "plan", Type: kindred.TraitTypeCategory, Coverage: .97, Values: []kindred.TraitValue{{Value: "pro", Share: .6}, {Value: name, Share: .4}}},
		"/api/v1/segments":                 list([]kindred.Segment{{ID: "seg_1", Name: name, Rule: `traits.age > 30 && traits.city == "` + name + `"`, Members: 4711, State: "ready", CreatedAt: ago(72 * time.Hour)}, layered}),
		"/api/v1/segments/seg_2":           layered,
		"/api/v1/segments/seg_1":           kindred.Segment{ID: "seg_1", Name: name, Rule: `traits.age > 30`, Members: 4711, State: "rebuilding", CreatedAt: ago(72 * time.Hour)},
		"/api/v1/segments/seg_1/members":   list([]kindred.SegmentMember{{UserID: "usr_1", ExternalID: name}}),
		"/api/v1/segments/seg_1/members/ext:ann": kindred.SegmentMembership{SegmentID: "seg_1", UserID: "usr_1", Why: []kindred.JudgedComparison{
			{Comparison: `traits.age > 30`, Truth: "false"}, {Comparison: `traits.city == "` + name + `"`, Truth: "unknown"},
		}},
		"/api/v1/segments/seg_2/members/ext:ann": kindred.SegmentMembership{SegmentID: "seg_2", UserID: "usr_1", ConsentLayerID: new("lay_1"), Granted: new(false)},
		"/api/v1/segments/seg_1/sizes":           kindred.SegmentSizes{SegmentID: "seg_1", Sizes: []kindred.SegmentSize{{Day: "2026-11-22", Members: 4690}, {Day: "2026-11-23", Members: 4702}, {Day: "2026-11-24", Members: 4711}}},
		"/api/v1/segments/seg_1/changes": kindred.SegmentChangeList{Cursor: "more", HasMore: true, Changes: []kindred.SegmentChange{
			{UserID: "usr_1", ExternalID: new(name), Change: "entered", At: ago(time.Minute)}, {UserID: "usr_2", ExternalID: new("bob"), Change: "left", At: ago(time.Hour)}, {UserID: "usr_9", Change: "erased", At: ago(48 * time.Hour)},
		}},
		"/api/v1/rules/preview":          kindred.RulePreview{Apart: []kindred.RuleTrait{{Path: "plan", Type: "category", Level: new(name), Effect: 1.4, NamedValue: .97, OverallValue: .4}, {Path: "age", Type: "number", Effect: .8, NamedValue: 44.5, OverallValue: 37.1}, {Path: "joined", Type: "date", Effect: -.5, NamedValue: 12, OverallValue: 300}}, Judged: 10000, Users: 20412, Members: 4711, Share: .23, Margin: .01, Sample: []kindred.SegmentMember{{UserID: "usr_1", ExternalID: name}}, Warnings: []kindred.RuleWarning{{Line: 1, Column: 7, Detail: "No user that was looked at has traits." + name + ". Did you mean traits.plan?"}}},
		"/api/v1/clusters":               list([]kindred.Cluster{cluster("clu_1", name, 12000), cluster("clu_2", "plan free (98 %)", 8412)}),
		"/api/v1/clusters/clu_1":         cluster("clu_1", name, 12000),
		"/api/v1/clusters/clu_1/members": list([]kindred.ClusterMember{{UserID: "usr_1", ExternalID: name}}),
		"/api/v1/clusters/clu_1/drift": list([]kindred.ClusterDrift{{
			At: ago(48 * time.Hour), ClusteringRunID: "run_2", Severity: "major", Causes: []kindred.DriftCause{{Kind: "trait", Trait: new("plan"), Amount: .42, Baseline: "previous", Severity: "major"}},
			Comparisons: []kindred.DriftComparison{{Baseline: "previous", Judged: true, Turnover: &kindred.DriftTurnover{Stayed: 10, Came: 2, Left: 156, New: 4, Gone: 3, SameCut: .05}}},
		}}),
		"/api/v1/clustering_runs":       list([]kindred.ClusteringRun{run("run_2", 2), run("run_1", 9)}),
		"/api/v1/clustering_runs/run_1": run("run_1", 9),
		"/api/v1/clustering_runs/run_2/map": kindred.ClusteringMap{ClusteringRunID: "run_2", Users: 20412, Explained: []float64{.4, .2}, Points: []kindred.ClusteringPoint{
			{ClusterID: "clu_1", UserID: "usr_1", X: -1, Y: .5}, {ClusterID: "clu_2", UserID: "usr_2", X: 1, Y: -.5}, {ClusterID: "clu_2", UserID: "usr_3", X: 1.1, Y: -.4},
		}},
		"/api/v1/clustering_runs/run_2/flow": kindred.ClusteringFlow{ClusteringRunID: "run_2", PreviousRunID: new("run_1"), Data: []kindred.ClusteringMove{
			{FromClusterID: new("clu_1"), ToClusterID: new("clu_1"), Users: 11000}, {FromClusterID: new("clu_1"), ToClusterID: new("clu_2"), Users: 500}, {FromClusterID: new("clu_2"), ToClusterID: new("clu_2"), Users: 7912}, {ToClusterID: new("clu_1"), Users: 1000},
		}},
		"/api/v1/campaigns":       list([]kindred.Campaign{campaign}),
		"/api/v1/campaigns/cam_1": campaign,
		"/api/v1/campaigns/cam_1/analytics": kindred.CampaignAnalytics{
			CampaignID: "cam_1", Currency: "EUR", BudgetMinor: 500050, SpentMinor: 318250, Impressions: 900, Clicks: 90, Conversions: 9, Engaged: 95, EngagementRate: .105, Reach: 700, Interval: "day",
			Series: []kindred.AnalyticsInterval{
				{Start: day.AddDate(0, 0, -1), Impressions: 400, Clicks: 40, Conversions: 4, Engaged: 42, SpentMinor: 150000}, {Start: day, Impressions: 500, Clicks: 50, Conversions: 5, Engaged: 53, SpentMinor: 168250},
			},
			Clusters: []kindred.AnalyticsCluster{{ClusterID: "clu_1", Label: name, ClusterSize: 12000, Reach: 700, Impressions: 900, Engaged: 95, EngagementRate: .105}},
		},
		"/api/v1/clients/cli_1/webhooks":                        list([]kindred.Webhook{hook}),
		"/api/v1/clients/cli_1/webhooks/whk_1":                  hook,
		"/api/v1/clients/cli_1/webhooks/whk_1/deliveries":       map[string]any{"data": []kindred.Delivery{delivery}, "next_cursor": nil, "skipped": 0},
		"/api/v1/clients/cli_1/webhooks/whk_1/deliveries/dlv_1": delivery,
		"/api/v1/clients/cli_1/api_keys": list([]kindred.APIKey{
			{ID: "key_1", Name: name, Fingerprint: "kin_live_ab…", Scopes: []string{"read", "write"}, CreatedAt: ago(48 * time.Hour), LastUsedAt: new(ago(time.Hour))}, {ID: "key_2", Name: "old", Fingerprint: "kin_live_cd…", Revoked: true, Scopes: []string{"admin"}},
		}),
		"/api/v1/clients/cli_1/requests": kindred.RequestList{Omitted: 1204, NextCursor: new("more"), Data: []kindred.LoggedRequest{
			{RequestID: "req_00000000000000000000000001", At: ago(2 * time.Second), Method: "POST", Route: "/api/v1/users/{user_id}/matches", Status: 200, DurationMs: 4.25, KeyID: new("key_1")},
			{RequestID: longName, At: ago(time.Minute), Method: "GET", Route: "/api/v1/users/{user_id}", Status: 404, DurationMs: 1.5},
			{RequestID: "mine", At: ago(time.Hour), Method: "GET", Route: "/api/v1/users", Status: 503, DurationMs: 5000, KeyID: new("key_3")},
		}},
		"/api/v1/events": list([]kindred.PublicEvent{event}),
		"/api/v1/attention": kindred.AttentionList{HasMore: true, Data: []kindred.AttentionItem{
			{Kind: kindred.AttentionKindEndpointFailing, Severity: kindred.AttentionSeverityCritical, SubjectID: "whk_1", DeliveriesWaiting: new(int64(3)), Since: new(ago(time.Hour))},
			{Kind: kindred.AttentionKindBudgetNearlySpent, Severity: "warning", SubjectID: "cam_1", SpentMinor: new(int64(475000)), BudgetMinor: new(int64(500000))},
			{Kind: kindred.AttentionKindClusterDrifted, Severity: "warning", SubjectID: "clu_1", Since: new(ago(48 * time.Hour))},
			{Kind: kindred.AttentionKindAPIKeyExpires, Severity: "warning", SubjectID: "key_1", ExpiresAt: new(now.Add(48 * time.Hour))},
			{Kind: kindred.AttentionKindProjectionQuarantined, Severity: "critical", SubjectID: "users"},
			{Kind: kindred.AttentionKindClusteringRunFailed, Severity: "warning", SubjectID: "run_1", ErrorCode: new("not_enough_users")},
		}},
		"/api/v1/clients/cli_1/history": list([]kindred.HistoryEvent{happened, {Ordinal: 2, Missing: new(true), Hash: "aa"}}),
		"/api/v1/clients/cli_1/history/state": kindred.HistoryState{Size: 12, RecordedAt: new(ago(time.Hour)), Data: []kindred.HistoryStateItem{
			{User: &kindred.HistoryUser{ID: "usr_1", ExternalID: new(name), Traits: map[string]any{"plan": "pro"}}}, {User: &kindred.HistoryUser{ID: "usr_9", Erased: new(true)}}, {Segment: &kindred.HistorySegment{ID: "seg_1", Name: name}},
		}},
		"/api/v1/clients/cli_1/members":  list([]kindred.Member{{ID: "mem_1", Email: "ada@example.com", Role: "owner", CreatedAt: ago(240 * time.Hour)}, {ID: "mem_2", Email: "bob@example.com", Role: "viewer", CreatedAt: ago(24 * time.Hour)}}),
		"/api/v1/clients/cli_1/sessions": list([]kindred.Session{{ID: "ses_1", MemberID: "mem_1", Current: true, CreatedAt: ago(time.Hour), LastSeenAt: ago(time.Minute), ExpiresAt: now.Add(144 * time.Hour)}, {ID: "ses_2", MemberID: "mem_2", CreatedAt: ago(time.Hour), LastSeenAt: ago(time.Minute), ExpiresAt: now.Add(144 * time.Hour)}}),
		"/api/v1/projections": list([]kindred.Projection{
			{Name: "users", Led: true}, {Name: "matches", LagSeconds: 12}, {Name: "segments", Quarantined: &kindred.ProjectionQuarantine{EventID: "evt_1", Since: ago(time.Hour)}}, {Name: "clusters", Rebuild: &kindred.Rebuild{ID: "rbd_1", Phase: "building", Done: 40, Total: 100}},
		}),
	})
	for metric, entry := range map[string]kindred.StatisticEntry{
		"users": {Users: &kindred.UserCounts{Created: 412, Erased: 3, There: 20412}}, "matches": {Matches: &kindred.MatchCounts{Recorded: 9120}},
		"deliveries": {Deliveries: &kindred.DeliveryCounts{FirstTry: 900, Retried: 80, Dropped: 20}}, "spend": {Spend: []kindred.SpentAmount{{AmountMinor: 318250, Currency: "EUR"}}},
	} {
		path, answer := counts(metric, entry)
		world[path] = answer
	}
	return world
}

// golden is a page in a state.
type golden struct {
	template string
	world    made
	path     string
	form     string // that is sent; "": the page is looked at
}

func goldenPages() map[string]golden {
	judging := run("run_1", 9)
	judging.Verdict = nil
	empty, viewer := base(kindred.RoleOwner, "Acme", "admin", "audit", "erase"), full("Acme").plus(base(kindred.RoleViewer, "Acme", "read"))
	for path, answer := range full("Acme") {
		if path != "/auth/sessions/token" {
			viewer[path] = answer
		}
	}
	average := kindred.Cluster{
		ID: "clu_1", Label: "near the average", ClusterSize: 12000, ConsentLayerID: "lay_1", ClusteringRunID: "run_2", FirstRunID: "run_1", Status: kindred.ClusterStatusActive, CreatedAt: ago(9 * 24 * time.Hour),
	}
	kin := average
	kin.Ancestors, kin.Descendants = []string{"clu_oldeqanvobf9t04adakrltiauo"}, []string{"clu_goneqanvobf9t04adakrltiauo"}
	before := made{
		"/api/v1/clusters/clu_oldeqanvobf9t04adakrltiauo": kindred.Cluster{ID: "clu_oldeqanvobf9t04adakrltiauo", Label: "<plan>=pro (82 % v. 31 %), age over 52", Status: kindred.ClusterStatusRetired},
		"/api/v1/clusters/clu_goneqanvobf9t04adakrltiauo": refusal{Status: 404, Code: "cluster_unknown"},
		"/api/v1/clustering_runs/run_2/flow": kindred.ClusteringFlow{ClusteringRunID: "run_2", PreviousRunID: new("run_1"), Data: []kindred.ClusteringMove{
			{FromClusterID: new("clu_oldeqanvobf9t04adakrltiauo"), ToClusterID: new("clu_1"), Users: 11000}, {FromClusterID: new("clu_goneqanvobf9t04adakrltiauo"), ToClusterID: new("clu_2"), Users: 500},
		}},
	}
	dating := kindred.ConsentLayer{ID: "lay_1", Name: "Dating", TraitPaths: []string{"sex"}, MatchRule: new(`traits.sex in viewer.traits.seeks`), MatchRuleBlockedBy: []kindred.SegmentBlock{{Cause: "path_outside_layer", Name: "seeks"}}}
	all := map[string]golden{
		"sign-in":            {"sign-in", empty, "sign-in?to=/console/users", ""},
		"sign-in-untaken":    {"sign-in", empty, "sign-in?done=untaken&to=/console/users/import", ""},
		"sign-in-refused":    {"sign-in", empty.plus(made{"/auth/sessions": refusal{Status: 401, Code: "invalid_credentials"}}), "sign-in", "email=a%40b.c&password=x"},
		"sign-up":            {"sign-up", empty, "sign-up", ""},
		"sign-up-refused":    {"sign-up", empty.plus(made{"/auth/signup": refusal{Status: 422, Code: "invalid", Detail: "Not valid.", Errors: []kindred.FieldError{{Pointer: "/password", Detail: "is one of the commonest"}}}}), "sign-up", "company_name=Acme&email=a%40b.c&password=x"},
		"not-found":          {"problem", empty, "nowhere", ""},
		"refused":            {"problem", empty.plus(made{"/api/v1/users": refusal{Status: 503, Code: "overloaded", Detail: "Too much is asked.", RequestID: "req_1"}}), "users", ""},
		"form-refused":       {"problem", empty.plus(made{"/api/v1/users": refusal{Status: 503, Code: "overloaded", Detail: "Too much is asked.", RequestID: "req_1"}}), "users", "key=KEY&external_id=" + url.QueryEscape(longName) + "&traits=%7B%22a%22%3A1%7D"},
		"form-signed-out":    {"problem", empty.plus(made{"/auth/sessions/token": refusal{Status: 401, Code: "invalid_token", Detail: "The session has ended."}}), "users", "key=KEY&external_id=ann&traits=%7B%22a%22%3A1%7D"},
		"form-of-passwords":  {"problem", empty.plus(made{"/auth/sessions/token": refusal{Status: 401, Code: "invalid_token", Detail: "The session has ended."}}), "account/password", "current=old&new=secret"},
		"granting":           {"problem", full("Acme").plus(made{"/api/v1/consent_layers/lay_1/grants": refusal{Status: 503, Code: "not_finished", Detail: "There was no time for all users; 1204 are done. Repeat the request to go on from there."}}), "settings/layers/lay_1/grant", "key=KEYlay_1&source=form&agreed=on"},
		"users-refused":      {"users", empty.plus(made{"/api/v1/users": refusal{Status: 422, Code: "invalid", Errors: []kindred.FieldError{{Pointer: "/filter", Detail: "line 1, column 3: what is this?"}}}}), "users?filter=a+b", ""},
		"users-not-found":    {"users", empty, "users?find=" + url.QueryEscape(longName), ""},
		"users-form":         {"users", empty, "users", "external_id=ann&traits=%7B"},
		"user-erase":         {"user", full("maya"), "users/usr_1/erase", "confirm=nobody"},
		"user-too-soon":      {"user", full("maya").plus(made{"/api/v1/users/usr_1/matches": refusal{Status: 503, Code: "building", Detail: "The users are being read."}}), "users/usr_1", ""},
		"secret":             {"secret", empty, "secret", ""},
		"secret-made":        {"secret", empty.plus(made{"/api/v1/clients/cli_1/api_keys": kindred.APIKeyCreated{RawKey: "kin_live_abc", Record: kindred.APIKey{Name: longName}}}), "developers/keys", "name=x&key=KEY"},
		"traits-tried":       {"traits", full("maya").plus(made{"/api/v1/traits/preview": kindred.PreviewedTraits{Before: []kindred.ComputedMatch{{MatchedUserID: "usr_2", ExternalID: "bob", Score: new(.5)}}, After: []kindred.ComputedMatch{{MatchedUserID: "usr_3", ExternalID: "eve", Score: new(.7)}, {MatchedUserID: "usr_2", ExternalID: "bob", Score: new(.6)}}}}), "traits?path=age&weight=2&who=maya&try=1", ""},
		"traits-other-type":  {"traits", full("maya").plus(made{"/api/v1/traits/preview": kindred.PreviewedTraits{}}), "traits?path=age&weight=1&type=category&who=maya&try=1", ""},
		"traits-same-type":   {"traits", full("maya").plus(made{"/api/v1/traits/preview": kindred.PreviewedTraits{}}), "traits?path=age&weight=1&type=&who=maya&try=1", ""},
		"user-alone":         {"user", full("maya").plus(made{"/api/v1/users/usr_1/matches": kindred.ComputedMatches{Data: []kindred.ComputedMatch{}}}), "users/usr_1", ""},
		"cluster-average":    {"cluster", full("Acme").plus(made{"/api/v1/clusters/clu_1": average}), "clusters/clu_1", ""},
		"cluster-kin":        {"cluster", full("Acme").plus(before).plus(made{"/api/v1/clusters/clu_1": kin}), "clusters/clu_1", ""},
		"clusters-retired":   {"clusters", full("Acme").plus(before), "clusters", ""},
		"clusters-average":   {"clusters", full("Acme").plus(made{"/api/v1/clusters": list([]kindred.Cluster{average})}), "clusters", ""},
		"clusters-agreed":    {"clusters", empty.plus(made{"/api/v1/consent_layers": list([]kindred.ConsentLayer{{ID: "lay_1", Name: "Matching"}}), "/api/v1/consent_layers/lay_1/users": list([]kindred.ConsentingUser{{}})}), "clusters", ""},
		"import-csv":         {"import", full("Acme"), "imports/imp_1?csv=1", ""},
		"user-of-signs":      {"user", full("<maya> & co"), "users/usr_1", ""},
		"users-exists":       {"users", full("Acme").plus(made{"/api/v1/users?": refusal{Status: 409, Code: "user_exists", Detail: "There is a user with this external_id already. Change it with PATCH."}}), "users", "external_id=ann+1&traits="},
		"campaigns-refused":  {"campaigns", full("Acme").plus(made{"/api/v1/campaigns?": refusal{Status: 422, Code: "invalid", Errors: []kindred.FieldError{{Pointer: "/budget_minor", Detail: "must be at most 9"}, {Pointer: "/elsewhere", Detail: "must not be so"}}}}), "campaigns", "key=KEY&name=Spring&budget_minor=5&currency=EUR"},
		"segments-sensitive": {"segments", full("Acme").plus(made{"/api/v1/rules/preview": refusal{Status: 422, Code: "invalid", Errors: []kindred.FieldError{{Pointer: "/rule", Detail: `line 1, column 1: traits.sex is sensitive. To allow it, set "sensitive": false for it in the trait schema.`}}}}), "segments?rule=traits.sex+%3D%3D+1&preview=1", ""},
		"users-built":        {"users", full("Acme"), "users?built=1&trait=age&comparison=over&value=30&trait=plan&comparison=is&value=pro&trait=&comparison=is&value=", ""},
		"settings-refused":   {"settings", full("Acme"), "settings", "name=Other&on=on&k=25&min_score=often&webhook_user_ids=external_id"},
		"settings-sandbox":   {"settings", full("Acme"), "settings/sandboxes", "sandbox_name=Staging&days=many"},
		"settings-retire":    {"settings", full("Acme").plus(made{"/api/v1/consent_layers/lay_1": kindred.ConsentLayer{ID: "lay_1", Name: "Acme"}}), "settings/layers/lay_1/retire", "confirm=another"},
		"settings-remove":    {"settings", full("Acme"), "settings/members/mem_2/remove", "confirm=another"},
		"developers-spaces":  {"developers", full("Acme  Inc").plus(made{"/api/v1/clients/cli_1/api_keys/key_1": nil}), "developers/keys/key_1/revoke", "confirm=Acme+Inc"},
		"developers-revoke":  {"developers", full("Acme"), "developers/keys/key_1/revoke", "confirm=another"},
		"campaigns-comma":    {"campaigns", full("Acme"), "campaigns", "key=KEY&name=Spring&budget_minor=10%2C50&currency=EUR&cluster_ids=clu_1&starts_at=2026-12-01T08:00&frequency_cap=3"},
		"campaign-cancel":    {"campaign", full("Acme"), "campaigns/cam_1", "status=cancelled&confirm=another"},
		"segment-who":        {"segment", full("Acme"), "segments/seg_1?who=ann", ""},
		"segment-who-not":    {"segment", full("Acme"), "segments/seg_2?who=ann", ""},
		"segment-nobody":     {"segment", full("Acme"), "segments/seg_1?who=nobody", ""},
		"segment-retire":     {"segment", full("Acme"), "segments/seg_1/retire", "confirm=another"},
		"users-built-amiss":  {"users", full("Acme"), "users?built=1&trait=age&comparison=over&value=abc&trait=plan&comparison=is&value=pro", ""},
		"segments-built":     {"segments", full("Acme"), "segments?built=1&trait=age&comparison=over&value=30", ""},
		"segments-preview":   {"segments", full("Acme"), "segments?rule=traits.age+%3E+30&preview=1", ""},
		"segments-asked":     {"segments", full("Acme"), "segments?rule=traits.age+%3E+30", ""},
		"segment-blocked": {"segment", full("Acme").plus(made{
			"/api/v1/segments/seg_1":       kindred.Segment{ID: "seg_1", Name: "Acme", Rule: `traits.age > 30`, State: "blocked", CreatedAt: ago(72 * time.Hour), BlockedBy: []kindred.SegmentBlock{{Cause: "path_sensitive", Name: "age"}}},
			"/api/v1/segments/seg_1/sizes": kindred.SegmentSizes{}, "/api/v1/segments/seg_1/changes": kindred.SegmentChangeList{}, "/api/v1/segments/seg_1/members": list([]kindred.SegmentMember{}),
		}), "segments/seg_1", ""},
		"settings-blocked": {"settings", full("Acme").plus(made{
			"/api/v1/clients/cli_1":  kindred.ClientDetails{ID: "cli_1", Name: "Acme", CreatedAt: ago(72 * time.Hour), Settings: kindred.ClientSettings{MatchRule: new(`traits.sex in viewer.traits.seeks`), MatchRuleBlockedBy: []kindred.SegmentBlock{{Cause: "path_sensitive", Name: "sex"}}}},
			"/api/v1/consent_layers": list([]kindred.ConsentLayer{dating}), "/api/v1/consent_layers/lay_1": dating,
		}), "settings", ""},
		"traits-category": {"traits", full("Acme"), "traits?path=plan", ""},
		"run-under-way": {"run", full("Acme").plus(made{"/api/v1/clustering_runs/run_1": kindred.ClusteringRun{
			ID: "run_1", ConsentLayerID: "lay_1", Status: "running", CreatedAt: ago(time.Second), Progress: &kindred.RunProgress{Phase: "fitting", Share: .4, ETASeconds: new(int64(3))},
		}}), "runs/run_1", ""},
		"history-at-asked": {"history-at", full("Acme"), "history-at?at=2026-11-01T00:00&kind=users", ""},
		"user-asked":       {"user", full("maya"), "users/usr_1?at=2026-11-01T00:00", ""},
		"user-past":        {"user", full("maya"), "users/usr_1?at=2026-11-01T00:00&past=1", ""},
		"user-not-there":   {"user", full("maya").plus(made{"/api/v1/clients/cli_1/history/state": kindred.HistoryState{Size: 2}}), "users/usr_1?at=2026-11-01T00:00&past=1", ""},
		"user-future":      {"user", full("maya").plus(made{"/api/v1/clients/cli_1/history/state": refusal{Status: 422, Code: "invalid", Detail: "Not valid.", Errors: []kindred.FieldError{{Pointer: "at", Detail: "must not be in the future"}}}}), "users/usr_1?at=2027-11-01T00:00&past=1", ""},
		"campaign-for-everybody": {"campaign", full("Acme").plus(made{"/api/v1/campaigns/cam_1": kindred.Campaign{
			ID: "cam_1", Name: "Spring", Audience: kindred.AudienceAll, BudgetMinor: 100, RemainingMinor: 100, Currency: "EUR", Status: kindred.CampaignStatusDraft, CreatedAt: ago(time.Hour),
		}}), "campaigns/cam_1", ""},
		"campaign-over": {"campaign", full("Acme").plus(made{"/api/v1/campaigns/cam_1": kindred.Campaign{
			ID: "cam_1", Name: "Spring", Audience: kindred.AudienceAll, BudgetMinor: 100, RemainingMinor: 100, Currency: "EUR", Status: kindred.CampaignStatusDraft, CreatedAt: ago(time.Hour), EndsAt: new(ago(24 * time.Hour)),
		}}), "campaigns/cam_1", ""},
		"campaign-for-clusters-gone": {"campaign", full("Acme").plus(made{"/api/v1/campaigns/cam_1": kindred.Campaign{
			ID: "cam_1", Name: "Spring", Audience: kindred.AudienceClusters, ClusterIDs: []string{"clu_1", "clu_gone"}, BudgetMinor: 100, RemainingMinor: 100, Currency: "EUR", Status: kindred.CampaignStatusScheduled,
			CreatedAt: ago(time.Hour), StartsAt: new(now.Add(24 * time.Hour)),
		}, "/api/v1/clusters/clu_gone": refusal{Status: 404, Code: "cluster_unknown"}}), "campaigns/cam_1", ""},
		"campaign-for-segments": {"campaign", full("Acme").plus(made{"/api/v1/campaigns/cam_1": kindred.Campaign{
			ID: "cam_1", Name: "Spring", Audience: kindred.AudienceSegments, BudgetMinor: 100, RemainingMinor: 100, Currency: "EUR", Status: kindred.CampaignStatusDraft, CreatedAt: ago(time.Hour),
			Segments: &kindred.SegmentAudience{ConsentLayerID: new("lay_1"), AnyOf: []string{"seg_2"}, NoneOf: []string{"seg_3"}},
		}}), "campaigns/cam_1", ""},
		"clusters-kept": {"clusters", full("Acme"), "clusters?segment=seg_2", ""},
		"run-judging":   {"run", full("Acme").plus(made{"/api/v1/clustering_runs/run_1": judging}), "runs/run_1", ""},
		"run-unjudged":  {"run", full("Acme").plus(made{"/api/v1/clustering_runs/run_1": judging, "/api/v1/clustering_runs/run_1/verdict": nil}), "runs/run_1/verdict/cancel", "sent=1"},
		"run-judged": {"run", full("Acme").plus(made{"/api/v1/clustering_runs/run_1/verdict": refusal{
			Status: 409, Code: "run_ended", Detail: "The run has ended.",
		}}), "runs/run_1/verdict/cancel", "sent=1"},
		"run-retired":     {"run", full("Acme").plus(made{"/api/v1/consent_layers/lay_1": refusal{Status: 404, Code: "consent_layer_unknown"}}), "runs/run_1", ""},
		"segment-retired": {"segment", full("Acme").plus(made{"/api/v1/segments/seg_1": kindred.Segment{ID: "seg_1", Name: "Acme", Rule: `traits.age > 30`, State: "blocked", ConsentLayerID: new("lay_1"), CreatedAt: ago(72 * time.Hour)}, "/api/v1/consent_layers/lay_1": refusal{Status: 404, Code: "consent_layer_unknown"}}), "segments/seg_1", ""},
		"webhook-checked": {"webhook", full("Acme").plus(made{
			"/api/v1/clients/cli_1/webhooks/whk_1": kindred.Webhook{ID: "whk_1", URL: "https://example.com/", Status: kindred.WebhookStatusActive, EventTypes: []kindred.EventType{kindred.EventTypeMatchComputed}, HasSecret: true, Ed25519: new(true), CreatedAt: ago(8 * 24 * time.Hour)},
			"/api/v1/clients/cli_1/webhook_keys":   kindred.WebhookKeyList{Data: []kindred.WebhookKey{{ID: "wky_2", PublicKey: "whpk_NEW", CreatedAt: ago(time.Hour)}, {ID: "wky_1", PublicKey: "whpk_OLD", CreatedAt: ago(48 * time.Hour), SignsUntil: new(ago(-23 * time.Hour))}}},
			"/api/v1/webhooks/check":               kindred.DeliveryCheck{Steps: []kindred.DeliveryCheckStep{{Name: "headers", Status: "ok", Detail: "All are there."}, {Name: "body", Status: "failed", Detail: "It is not the one that was sent."}}},
		}), "webhooks/whk_1/check", "got_headers=webhook-id%3A+msg_1%0D%0Awebhook-timestamp%3A+1&got_body=%7B%7D"},
		"webhook-unread":   {"webhook", full("Acme"), "webhooks/whk_1/check", "got_headers=webhook-id&got_body=%7B%7D"},
		"segments-retired": {"segments", full("Acme").plus(made{"/api/v1/rules/preview": refusal{Status: 404, Code: "consent_layer_unknown", Detail: "There is no such consent layer."}}), "segments?preview=1&rule=true&layer=lay_9", ""},
		"run-kept": {"run", full("Acme").plus(made{"/api/v1/clustering_runs/run_1": kindred.ClusteringRun{
			ID: "run_1", ConsentLayerID: "lay_1", SegmentID: new("seg_2"), Status: "failed", CreatedAt: ago(time.Hour), EndedAt: new(ago(time.Minute)), ErrorCode: new("not_enough_users"), ErrorDetails: new("There are 12 users."),
		}}), "runs/run_1", ""},
		"clusters-map":          {"clusters", full("Acme"), "clusters?map=1", ""},
		"users-counted":         {"users", full("Acme"), "users?filter=traits.age+%3E+30&count=1", ""},
		"clusters-without-runs": {"clusters", empty.plus(made{"/api/v1/consent_layers": list([]kindred.ConsentLayer{{ID: "lay_1", Name: "Matching"}})}), "clusters", ""},
	}
	paths := map[string]string{
		"overview": "", "first-steps": "first-steps", "users": "users", "traits": "traits?path=age", "segments": "segments", "clusters": "clusters", "campaigns": "campaigns", "webhooks": "webhooks",
		"developers": "developers", "requests": "requests", "history": "history", "history-at": "history-at?at=2026-11-01T00:00&kind=users&past=1", "settings": "settings", "account": "account",
	}
	for name, path := range paths {
		all[name+"-empty"] = golden{name, empty, path, ""}
	}
	maps.Copy(paths, map[string]string{
		"user": "users/usr_1?feed=1", "import": "imports/imp_1", "segment": "segments/seg_1", "cluster": "clusters/clu_1", "run": "runs/run_1", "campaign": "campaigns/cam_1", "webhook": "webhooks/whk_1", "delivery": "webhooks/whk_1/deliveries/dlv_1", "history-event": "history/3",
	})
	for name, path := range paths {
		all[name] = golden{name, full("Acme & Söhne"), path, ""}
		all[name+"-long"] = golden{name, full(longName), path, ""}
		switch name {
		case "developers", "requests", "history", "history-at", "history-event", "settings", "first-steps":
		default:
			all[name+"-viewer"] = golden{name, viewer, path, ""}
		}
	}
	return all
}

var unwritten = regexp.MustCompile(`<(?:input|select|textarea) [^>]*\baria-label="([^"]*)"`)

// Who hears a form tells its fields apart by their names.
func TestNoTwoFieldsOfAFormAreCalledTheSame(t *testing.T) {
	t.Parallel()
	pages, heard := pagesOf(t), 0
	for name, page := range goldenPages() {
		if page.form != "" {
			continue
		}
		for _, form := range forms.FindAllString(rendered(t, pages, page.world, http.MethodGet, page.path, ""), -1) {
			seen := map[string]bool{}
			for _, field := range unwritten.FindAllStringSubmatch(form, -1) {
				if heard++; seen[field[1]] {
					t.Errorf("%s has two fields called %q in one form", name, field[1])
				}
				seen[field[1]] = true
			}
		}
	}
	if heard == 0 {
		t.Error("no field has a name that is only heard")
	}
}

var (
	tables = regexp.MustCompile(`(?s)<table\b.*?</table>`)
	cells  = regexp.MustCompile(`<t[hd][ >]`)
)

// Each cell of a table stands below the name of its column, or beside that of its row.
func TestTheColumnsOfTablesHaveNames(t *testing.T) {
	t.Parallel()
	pages, seen := pagesOf(t), 0
	for name, page := range goldenPages() {
		if page.form != "" {
			continue
		}
		for _, table := range tables.FindAllString(rendered(t, pages, page.world, http.MethodGet, page.path, ""), -1) {
			head, body, found := strings.Cut(table, "<tbody>")
			columns := len(cells.FindAllString(head, -1))
			for _, row := range strings.Split(body, "<tr>")[1:] {
				seen++
				if held := len(cells.FindAllString(row, -1)); found && columns > 0 && held != columns && !strings.Contains(row, "colspan=") {
					t.Errorf("%s has %d cells below %d names: %s", name, held, columns, row)
				} else if columns == 0 && !strings.Contains(row, "<th ") {
					t.Errorf("%s has a row without names: %s", name, row)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no page has a table")
	}
}
