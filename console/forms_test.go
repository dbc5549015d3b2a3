package console

import (
	"encoding/json"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	kindred "kindred/sdk/go"
)

var (
	forms    = regexp.MustCompile(`(?s)<form.*?</form>`)
	controls = regexp.MustCompile(`(?s)<(?:input|textarea) [^>]*\bname="([^"]*)"[^>]*>(?:([^<]*)</textarea>)?`)
	valued   = regexp.MustCompile(`\bvalue="([^"]*)"`)
)

// formWith is the form of a page that has a field, as a browser sends it where nothing is typed. Of choices it leaves out
// those that are none.
func formWith(t *testing.T, page, field string) url.Values {
	t.Helper()
	for _, form := range forms.FindAllString(page, -1) {
		if !strings.Contains(form, `name="`+field+`"`) {
			continue
		}
		values := url.Values{}
		for _, found := range controls.FindAllStringSubmatch(form, -1) {
			value := found[2]
			if strings.Contains(found[0], `type="checkbox"`) && !strings.Contains(found[0], " checked") {
				continue
			}
			if is := valued.FindStringSubmatch(found[0]); is != nil {
				value = is[1]
			}
			values.Add(found[1], html.UnescapeString(value))
		}
		return values
	}
	t.Fatalf("no form has the field %s: %s", field, page)
	return nil
}

// sentBack is the body of the change that the form of a page asks for.
func sentBack(t *testing.T, world made, path, field string, typed url.Values) map[string]any {
	t.Helper()
	return sentTo(t, world, path, path, field, typed)
}

// sentTo is sentBack where the form goes elsewhere.
func sentTo(t *testing.T, world made, path, to, field string, typed url.Values) (change map[string]any) {
	t.Helper()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				err = json.Unmarshal(body, &change)
			}
			if err != nil {
				t.Error(err)
			}
		}
		world.ServeHTTP(w, r)
	})
	pages := pagesOf(t)
	form := formWith(t, rendered(t, pages, world, http.MethodGet, path, ""), field)
	maps.Copy(form, typed)
	if saved := rendered(t, pages, api, http.MethodPost, to, form.Encode()); !strings.HasPrefix(saved, "303 ") {
		t.Fatalf("%v is refused: %s", form, saved)
	}
	return change
}

// Whoever changes the name of a campaign changes nothing else, such as what a field shows in part: the seconds of a time,
// hours of a day, a cluster that a later run has retired.
func TestTheFormOfACampaignChangesWhatIsTyped(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/campaigns/cam_1": kindred.Campaign{
			ID: "cam_1", Name: "Spring", Currency: "EUR", BudgetMinor: 1000, Status: kindred.CampaignStatusRunning, Audience: kindred.AudienceClusters, ClusterIDs: []string{"clu_1", "clu_3"},
			StartsAt: new(now.Add(13 * time.Second)), EndsAt: new(now.Add(48*time.Hour + 17*time.Second)), FrequencyCap: new(int64(3)), FrequencyWindowSeconds: new(int64(3600)),
		},
		"/api/v1/campaigns/cam_1/analytics": kindred.CampaignAnalytics{},
		"/api/v1/clusters": kindred.ClusterList{Data: []kindred.Cluster{
			{ID: "clu_1", Label: "of before", Status: kindred.ClusterStatusRetired}, {ID: "clu_2", Label: "of now", Status: kindred.ClusterStatusActive},
		}},
		"/api/v1/clusters/clu_3": refusal{Status: 404, Code: "cluster_unknown"},
	})
	change := sentBack(t, world, "campaigns/cam_1", "budget_minor", url.Values{"name": {"Summer"}})
	if change["name"] != "Summer" {
		t.Errorf("the name is not changed: %v", change)
	}
	for _, field := range []string{"starts_at", "ends_at", "frequency_window_seconds"} {
		if value, there := change[field]; there {
			t.Errorf("%s is changed to %v", field, value)
		}
	}
	if ids, _ := change["cluster_ids"].([]any); change["audience"] != "clusters" || len(ids) != 2 {
		t.Errorf("it is for %v, %v", change["audience"], ids)
	}
	change = sentBack(t, world, "campaigns/cam_1", "budget_minor", url.Values{"window_days": {""}, "ends_at": {"2026-12-01T08:00"}})
	if window, there := change["frequency_window_seconds"]; !there || window != nil {
		t.Errorf("a window that is taken away is %v", window)
	}
	if change["ends_at"] != "2026-12-01T08:00:00Z" {
		t.Errorf("it ends at %v", change["ends_at"])
	}
}

// Half an hour is no whole number of hours, and stays as it is where something else is changed.
func TestTheFormOfAnEndpointChangesWhatIsTyped(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/clients/cli_1/webhooks/whk_1": kindred.Webhook{ID: "whk_1", URL: "https://a.example", Status: "active", DisableAfterSeconds: new(int64(1800))},
	})
	change := sentBack(t, world, "webhooks/whk_1", "max_per_second", url.Values{"max_per_second": {"5"}})
	if after, there := change["disable_after_seconds"]; there || change["max_per_second"] != 5.0 {
		t.Errorf("it is paused after %v, and gets %v a second", after, change["max_per_second"])
	}
	change = sentBack(t, world, "webhooks/whk_1", "max_per_second", url.Values{"disable_after_hours": {"2"}})
	if change["disable_after_seconds"] != 7200.0 {
		t.Errorf("2 hours are %v", change["disable_after_seconds"])
	}
}

// A form of an endpoint that is refused comes back as it was typed, also what was ticked.
func TestTheFormOfAnEndpointComesBackAsTyped(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/clients/cli_1/webhooks/whk_1": kindred.Webhook{ID: "whk_1", URL: "https://a.example", EventTypes: kindred.EventTypes()[:2], HeaderNames: []string{"X-Tenant"}},
	})
	pages, refusing := pagesOf(t), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			made{r.URL.Path: refusal{Status: http.StatusUnprocessableEntity, Code: "invalid", Errors: []kindred.FieldError{{Pointer: "/event_types", Detail: "must be others"}}}}.ServeHTTP(w, r)
			return
		}
		world.ServeHTTP(w, r)
	})
	page := rendered(t, pages, refusing, http.MethodPost, "webhooks/whk_1", "url=https%3A%2F%2Fb.example&event_types=match.computed")
	if form := formWith(t, page, "url"); !slices.Equal(form["event_types"], []string{"match.computed"}) || form.Get("url") != "https://b.example" {
		t.Errorf("it comes back as %v", form)
	}
	if !strings.Contains(page, `<span class="wrong" role="alert">must be others`) {
		t.Errorf("it is not said at the field: %s", page)
	}
	if form := formWith(t, page, "controls"); form.Has("no_headers") {
		t.Errorf("what was not typed is ticked: %v", form)
	}
	page = rendered(t, pages, refusing, http.MethodPost, "webhooks/whk_1", "controls=1&no_headers=on")
	if form := formWith(t, page, "controls"); !form.Has("no_headers") {
		t.Errorf("headers stay: %v", form)
	}
	if form := formWith(t, page, "url"); len(form["event_types"]) != 2 {
		t.Errorf("the other form has lost its events: %v", form)
	}
}

func TestWhatIsNoNumberIsRefusedAtItsField(t *testing.T) {
	t.Parallel()
	pages, world := pagesOf(t), base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/traits": kindred.TraitSchema{Traits: []kindred.Trait{{Path: "age"}}}, "/api/v1/traits/age/distribution": kindred.TraitDistribution{}, "/api/v1/clients/cli_1": kindred.ClientDetails{ID: "cli_1"},
	})
	for _, typed := range []string{"NaN", "-inf", "1e400", "x"} {
		for path, form := range map[string]string{"traits": "path=age&weight=", "settings": "name=Acme&k=5&min_score="} {
			page := rendered(t, pages, world, http.MethodPost, path, form+typed)
			if !strings.HasPrefix(page, "422 ") || !strings.Contains(page, `class="wrong"`) {
				t.Errorf("%s of %s: %s", typed, path, page)
			}
		}
	}
}

// What is looked for by an address that was typed, or by a form, is refused at its field: the page stands, and says nothing
// of what was not looked for.
func TestWhatIsLookedForIsRefusedAtItsField(t *testing.T) {
	t.Parallel()
	tooLong := func(pointer string) refusal {
		return refusal{Status: http.StatusUnprocessableEntity, Code: "invalid", Errors: []kindred.FieldError{{Pointer: pointer, Detail: "must have less"}}}
	}
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/traits": kindred.TraitSchema{}, "/api/v1/users?external_id=long&limit=50": tooLong("external_id"), "/api/v1/users?external_id=usr_long&limit=50": tooLong("external_id"),
		"/api/v1/clients/cli_1/history?actor=long&data=false&limit=50&order=desc": tooLong("actor"),
	})
	for path, field := range map[string]string{
		"users?find=long": "find", "users?find=usr_long": "find", "history?from=yesterday": "from", "history?from=2026-11-25T09:30&to=x": "to", "history?actor=long": "actor", "history-at?at=yesterday": "at",
	} {
		page := rendered(t, pagesOf(t), world, http.MethodGet, path, "")
		at := regexp.MustCompile(`name="` + field + `"[^>]*>(?:\s*<button[^>]*>[^<]*</button>|\s*<span class="hint">[^<]*</span>)?\s*<span class="wrong" role="alert">`)
		if !strings.HasPrefix(page, "422 ") || !at.MatchString(page) || strings.Contains(page, say("history.nothing_on_this_page")) || strings.Contains(page, "Nobody has the id") {
			t.Errorf("%s: %s", path, page)
		}
	}
}

// Consent to a layer that no form names is refused as that to one that is not there.
func TestConsentToNoLayerIsRefused(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/users/usr_1": kindred.User{ID: "usr_1"}, "/api/v1/traits": kindred.TraitSchema{}})
	for _, form := range []string{"said=granted", "said=withdrawn&layer="} {
		if page := rendered(t, pagesOf(t), world, http.MethodPost, "users/usr_1/consent", form); !strings.HasPrefix(page, "404 ") {
			t.Errorf("%s: %s", form, page)
		}
	}
}

// A form before signing in that was cut is refused as others are: the service has answered.
func TestWhatCannotBeReadIsTheFaultOfItsSender(t *testing.T) {
	t.Parallel()
	pages, world := pagesOf(t), base(kindred.RoleOwner, "Acme", "admin")
	for _, c := range [][3]string{
		{http.MethodGet, "sign-in?to=%zz", ""}, {http.MethodPost, "sign-in", "email=%"}, {http.MethodPost, "sign-up", "email=" + strings.Repeat("a", 17<<10)}, {http.MethodPost, "users", "external_id=%"},
	} {
		if page := rendered(t, pages, world, c[0], c[1], c[2]); !strings.HasPrefix(page, "400 ") {
			t.Errorf("%s %s: %s", c[0], c[1], page)
		}
	}
}

// What is wrong is said in the words of the form, beside the field, also where it is a part of one.
func TestWhatIsWrongIsNamedAsItsFormDoes(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"/max_per_second": "Attempts a second, at most", "/settings/automatic_matching/k": "Matches of each, at most", "/k": "How many groups", "/traits/plan": "Traits, plan",
		"/traits/plan/weight": "Weight", "/headers/Host": "Headers of your own, Host", "/event_types/1": "Events", "/elsewhere/1": "/elsewhere/1",
	} {
		if got := label(kindred.FieldError{Pointer: pointer, Detail: "must be less"}); got != want {
			t.Errorf("%s is %q, not %q", pointer, got, want)
		}
	}
	p := &Problem{Fields: []kindred.FieldError{{Pointer: "/headers/Host", Detail: "is ours"}, {Pointer: "/event_types/1", Detail: "is none"}}}
	for field, want := range map[string]string{"headers": "Host is ours", "event_types": "is none", "Host": "is ours", "head": ""} {
		if got := p.Field(field); got != want {
			t.Errorf("at %s stands %q, not %q", field, got, want)
		}
	}
}

// That the service cannot answer is said once, with when to try again.
func TestThatTheServiceCannotAnswerIsSaidOnce(t *testing.T) {
	t.Parallel()
	const told = "The service cannot answer just now"
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "1")
		made{r.URL.Path: refusal{Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: told + ". Please try again."}}.ServeHTTP(w, r)
	})
	page := rendered(t, pagesOf(t), api, http.MethodGet, "segments", "")
	_, main, _ := strings.Cut(page, "<main")
	if !strings.HasPrefix(page, "503 ") || strings.Count(main, told) != 1 || strings.Count(strings.ToLower(main), "please try again") != 1 || !strings.Contains(main, "Please try again in 1 s.") {
		t.Errorf("%s", page)
	}
}

// A password that is mistyped is no lack of rights.
func TestAWrongPasswordIsWrongAtItsField(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/clients/cli_1/members/me/password": refusal{Status: http.StatusForbidden, Code: "wrong_password", Detail: "The current password is wrong."},
	})
	page := rendered(t, pagesOf(t), world, http.MethodPost, "account/password", "current=a&new=correct+horse")
	if !strings.HasPrefix(page, "403 ") || !strings.Contains(page, `<span class="wrong" role="alert">The current password is wrong.`) || strings.Contains(page, say("problem.your_role_does_not")) {
		t.Errorf("%s", page)
	}
}

// The API bounds seconds; a form that asks for days or hours says how many of these there may be.
func TestABoundIsSaidInTheUnitOfItsField(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/campaigns/cam_1": kindred.Campaign{ID: "cam_1", Currency: "EUR", Status: kindred.CampaignStatusDraft}, "/api/v1/campaigns/cam_1/analytics": kindred.CampaignAnalytics{},
		"/api/v1/clients/cli_1/webhooks/whk_1": kindred.Webhook{ID: "whk_1"}, "/api/v1/clients/cli_1": kindred.ClientDetails{ID: "cli_1"},
	})
	pages := pagesOf(t)
	for _, c := range []struct{ path, form, most string }{
		{"campaigns/cam_1", "name=a&budget_minor=5&currency=EUR&window_days=", "366"}, {"webhooks/whk_1", "controls=1&disable_after_hours=", "720"}, {"settings/sandboxes", "sandbox_name=a&days=", "365"},
	} {
		most, err := strconv.ParseInt(c.most, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for n, refused := range map[int64]bool{0: true, 1: false, most: false, most + 1: true} {
			page := rendered(t, pages, world, http.MethodPost, c.path, c.form+strconv.FormatInt(n, 10))
			if strings.Contains(page, `<span class="wrong" role="alert">This must be a whole number from 1 to `+c.most+`.`) != refused {
				t.Errorf("%s of %d: %s", c.path, n, page)
			}
		}
	}
}

// A form that has taken effect, and was filled in otherwise since, such as after a page was stopped while it loaded, is told
// so, and is another form then.
func TestAFormThatWasSentBeforeIsNamedAnew(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin")
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/api/v1/users" {
			made{r.URL.Path: refusal{Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused", Detail: "This Idempotency-Key was used for another request. Use a new one."}}.ServeHTTP(w, r)
			return
		}
		world.ServeHTTP(w, r)
	})
	page := rendered(t, pagesOf(t), api, http.MethodPost, "users", "external_id=ann&key=cli_1.SENT")
	if form := formWith(t, page, "external_id"); !strings.HasPrefix(page, "422 ") || !strings.Contains(page, say("problem.this_form_was_sent")) || form.Get("key") != "cli_1.KEY" || form.Get("external_id") != "ann" {
		t.Errorf("%v: %s", form, page)
	}
}

// A layer that may read "plan, tier" does not come to read "plan" and "tier" as its name is changed.
func TestTheFormOfALayerPartsNoPath(t *testing.T) {
	t.Parallel()
	layer := kindred.ConsentLayer{ID: "lay_1", Name: "Ads", TraitPaths: []string{"plan, tier", "age "}}
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/clients/cli_1": kindred.ClientDetails{ID: "cli_1"}, "/api/v1/consent_layers": kindred.ConsentLayerList{Data: []kindred.ConsentLayer{layer}}, "/api/v1/consent_layers/lay_1": layer,
	})
	change := sentTo(t, world, "settings", "settings/layers/lay_1", "trait_paths", url.Values{"name": {"Offers"}})
	if paths, there := change["trait_paths"]; there || change["name"] != "Offers" {
		t.Errorf("%v may read %v", change["name"], paths)
	}
	change = sentTo(t, world, "settings", "settings/layers/lay_1", "trait_paths", url.Values{"trait_paths": {"plan, age"}})
	if paths, _ := change["trait_paths"].([]any); len(paths) != 2 {
		t.Errorf("it may read %v", paths)
	}
}

// A campaign's budget is bounded in the currency that was typed, and what the API says of one field names others as the form
// does.
func TestTheFormOfACampaignIsRefusedInItsOwnWords(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/campaigns": refusal{Status: http.StatusUnprocessableEntity, Code: "invalid", Errors: []kindred.FieldError{
		{Pointer: "/ends_at", Detail: "must be after starts_at"}, {Pointer: "/frequency_window_seconds", Detail: "needs a frequency_cap, whatever some_other is"},
	}}})
	form := url.Values{"name": {"Spring"}, "currency": {"EUR"}, "budget_minor": {"99999999999999"}}
	page := rendered(t, pagesOf(t), base(kindred.RoleOwner, "Acme", "admin"), http.MethodPost, "campaigns", form.Encode())
	if !strings.Contains(page, "EUR\u00a090,071,992,547,409.91 at most") {
		t.Error(page)
	}
	form.Set("budget_minor", "10")
	form["cluster_ids"], form["segments"] = []string{"clu_1"}, []string{"any_of seg_1"}
	page = rendered(t, pagesOf(t), base(kindred.RoleOwner, "Acme", "admin"), http.MethodPost, "campaigns", form.Encode())
	if !strings.Contains(page, "Choose clusters or segments, not both.") {
		t.Error(page)
	}
	form.Del("segments")
	page = rendered(t, pagesOf(t), world, http.MethodPost, "campaigns", form.Encode()) // whose list is refused alike
	for _, want := range []string{"must be after “Starts”", "needs a “Times to one user”, whatever some_other is"} {
		if !strings.Contains(page, want) {
			t.Errorf("it lacks %q: %s", want, page)
		}
	}
}

// A form that was refused stands at its own address, of which a browser asks again by GET: as one goes there from the address
// bar, and as a part that changes by itself is read.
func TestTheAddressOfAFormLeadsToItsPage(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("routes.go")
	if err != nil {
		t.Fatal(err)
	}
	pages, leads := pagesOf(t), map[string]string{}
	for _, route := range regexp.MustCompile(`\b(?:post|get)\("([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		at := strings.ReplaceAll(route[1], "{$}", "")
		got, _, _ := strings.Cut(rendered(t, pages, base(kindred.RoleOwner, "Acme", "admin"), http.MethodGet, at+"?layer=lay_1", ""), "\n")
		if to, led := strings.CutPrefix(got, "303 "+Path); led {
			leads[at] = to
		} else if strings.HasPrefix(route[0], "post") && strings.HasPrefix(got, "405 ") {
			t.Errorf("%s answers %s", at, got)
		}
	}
	for at, want := range map[string]string{
		"users/import/preview": "users", "users/{id}/erase": "users/%7Bid%7D", "webhooks/{id}/{action}": "webhooks/%7Bid%7D", "settings/members/{id}/remove": "settings",
		"webhooks/{id}/deliveries/{delivery}/redeliver": "webhooks/%7Bid%7D/deliveries/%7Bdelivery%7D", "developers/keys": "developers", "runs": "clusters?layer=lay_1", "leave-sandbox": "",
	} {
		if got, led := leads[at]; !led || got != want {
			t.Errorf("%s leads to %q, not %q", at, got, want)
		}
	}
	if len(leads) < 25 {
		t.Errorf("only %d forms lead to a page: %v", len(leads), leads)
	}
}

// A name of blanks is told to the API, which refuses it: left out of the change, it would be "Saved." and stay as it was.
func TestANameOfBlanksIsNotLeftOut(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/segments/seg_1": kindred.Segment{ID: "seg_1", Name: "Pros", Rule: "true"}, "/api/v1/projections": kindred.ProjectionList{},
		"/api/v1/consent_layers": list([]kindred.ConsentLayer{{ID: "lay_1", Name: "Offers"}}), "/api/v1/consent_layers/lay_1": kindred.ConsentLayer{ID: "lay_1", Name: "Offers"},
	})
	for _, change := range []map[string]any{
		sentBack(t, world, "segments/seg_1", "rule", url.Values{"name": {"  "}}),
		sentTo(t, world, "settings", "settings/layers/lay_1", "trait_paths", url.Values{"name": {"  "}}),
	} {
		if name, there := change["name"]; !there || name != "" {
			t.Errorf("the change is %v", change)
		}
	}
}

// Only owners add, remove and sign out owners: others are not offered it.
func TestAnAdminIsOfferedNothingOfOwners(t *testing.T) {
	t.Parallel()
	for role, want := range map[kindred.Role]bool{kindred.RoleAdmin: false, kindred.RoleOwner: true} {
		world := base(role, "Acme", "admin").plus(made{
			"/api/v1/projections":            kindred.ProjectionList{},
			"/api/v1/clients/cli_1/members":  list([]kindred.Member{{ID: "mem_1", Email: "ada@example.com", Role: role}, {ID: "mem_2", Email: "bob@example.com", Role: kindred.RoleOwner}}),
			"/api/v1/clients/cli_1/sessions": list([]kindred.Session{{ID: "ses_1", MemberID: "mem_1", Current: true}, {ID: "ses_2", MemberID: "mem_2"}}),
		})
		settings, account := rendered(t, pagesOf(t), world, http.MethodGet, "settings", ""), rendered(t, pagesOf(t), world, http.MethodGet, "account", "")
		for what, offered := range map[string]bool{
			"the role": strings.Contains(settings, "<option>owner</option>"), "to remove": strings.Contains(settings, "members/mem_2/remove"), "to sign out": strings.Contains(account, "sessions/ses_2/end"),
		} {
			if offered != want {
				t.Errorf("%s of an owner is offered to an %s: %t", what, role, offered)
			}
		}
		if !strings.Contains(account, "bob@example.com") {
			t.Error("a session does not say whose it is")
		}
	}
}
