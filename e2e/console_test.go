package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kindred/console"
	"kindred/httpapi"
	"kindred/testkit"
)

// browser is somebody who looks at the console, without JavaScript.
type browser struct {
	testing.TB
	s      *service
	client *http.Client
}

func (s *service) browser() browser {
	s.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	return browser{s.TB, s, &http.Client{Transport: s.base, Jar: jar, Timeout: patience}}
}

// webPage is a page as it came, after it was led there.
type webPage struct {
	Status int
	Path   string
	Header http.Header
	HTML   string
}

func (b browser) do(method, path, contentType string, body io.Reader, header ...string) webPage {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.s.URL+path, body)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	return webPage{resp.StatusCode, resp.Request.URL.RequestURI(), resp.Header, string(page)}
}

func (b browser) open(path string) webPage {
	b.Helper()
	return b.do("GET", "/console/"+path, "", nil)
}

// send sends a form, as pairs of names and values.
func (b browser) send(path string, fields ...string) webPage {
	b.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return b.do("POST", "/console/"+path, "application/x-www-form-urlencoded", strings.NewReader(form.Encode()))
}

// upload chooses a file to import.
func (b browser) upload(name, content string) webPage {
	return b.uploadTo("users/import", name, content)
}

func (b browser) uploadTo(path, name, content string) webPage {
	b.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", name)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.WriteString(part, content); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return b.do("POST", "/console/"+path, w.FormDataContentType(), &form)
}

// wantPage fails unless a page came, and holds all of these texts.
func (b browser) wantPage(p webPage, path string, texts ...string) webPage {
	b.Helper()
	if p.Status != http.StatusOK || !strings.HasPrefix(p.Path, "/console/"+path) {
		b.Fatalf("%d of %s, not of %s:\n%s", p.Status, p.Path, path, said(p))
	}
	for _, text := range texts {
		if !strings.Contains(p.HTML, html.EscapeString(text)) {
			b.Errorf("%s lacks %q", p.Path, text)
		}
	}
	return p
}

var tags = regexp.MustCompile(`(?s)<[^>]*>|\s+`)

// said is the text of the main part of a page.
func said(p webPage) string {
	_, main, _ := strings.Cut(p.HTML, "<main")
	return tags.ReplaceAllString(main, " ")
}

// signIn looks at the console as the owner of an account.
func (a account) signIn() browser {
	a.Helper()
	b := a.browser()
	b.wantPage(b.send("sign-in", "email", a.Email, "password", a.Password), "", "Overview")
	return b
}

var formKey = regexp.MustCompile(`name="key" value="([^"]+)"`)

func (b browser) key(p webPage) string {
	b.Helper()
	found := formKey.FindStringSubmatch(p.HTML)
	if found == nil {
		b.Fatalf("%s has no form with a key", p.Path)
	}
	return found[1]
}

var formETag = regexp.MustCompile(`^[^>]*>(?:<input type="hidden"[^>]*>)*<input type="hidden" name="etag" value="([^"]+)"`)

// etagOf says in which state a page has shown what its form for an address changes.
func (b browser) etagOf(p webPage, action string) string {
	b.Helper()
	for _, form := range strings.Split(p.HTML, `action="/console/`+action)[1:] {
		if found := formETag.FindStringSubmatch(form); found != nil {
			return html.UnescapeString(found[1])
		}
	}
	b.Fatalf("%s has no form with an ETag for %s", p.Path, action)
	return ""
}

// From nothing to a cluster, a campaign and a verified delivery, by forms alone.
func TestTheConsoleTellsTheStoryByHand(t *testing.T) {
	t.Parallel()
	s := shared(t)
	b, a := s.browser(), account{service: s, Email: "ada-" + strings.ToLower(rand.Text()) + "@example.com", Password: "pw-" + rand.Text()}
	b.wantPage(b.send("sign-up", "company_name", "Juniper Rides", "email", a.Email, "password", a.Password), "first-steps", "First steps", "Juniper Rides")
	in := want[httpapi.LoggedIn](t, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": a.Email, "password": a.Password}))
	a.Token, a.Client.ID = in.Token, in.Client.ID

	b.wantPage(b.open("users"), "users", "Your end users stand here")
	made := b.wantPage(b.send("users", "external_id", "maya <1>", "traits", `{"age": 31, "plan": "pro"}`), "users/usr_", "maya <1>", "age", "31")
	user, _, _ := strings.Cut(strings.TrimPrefix(made.Path, "/console/users/"), "?")
	refused := b.send("users", "external_id", "ann", "traits", `{"age": `)
	if refused.Status != http.StatusUnprocessableEntity || !strings.Contains(refused.HTML, "must be a JSON object") || !strings.Contains(refused.HTML, `value="ann"`) {
		t.Errorf("%d, and what was typed is lost: %s", refused.Status, said(refused))
	}

	var lines strings.Builder
	for i := range 60 {
		fmt.Fprintf(&lines, `{"external_id":"p%d","traits":{"age":%d,"plan":%q}}`+"\n", i, 20+i%2*30+i%5, []string{"free", "pro"}[i%2])
	}
	b.wantPage(b.uploadTo("users/import/preview", "people.ndjson", lines.String()+"nonsense\n"), "users/import/preview", "Users: 60. Lines: 61, all of the file.", "1 line would be refused", "line 61", "category")
	if b.uploadTo("users/import/preview", "people.csv", "plan\npro\n").Status != http.StatusUnprocessableEntity {
		t.Error("a file without ids is looked into")
	}
	imported := b.wantPage(b.upload("people.ndjson", lines.String()), "imports/")
	testkit.Eventually(t, "the import is done", func() bool {
		return strings.Contains(b.open(strings.TrimPrefix(imported.Path, "/console/")).HTML, "60 of 60 lines")
	})
	b.wantPage(b.open("users?find=p7"), "users", "p7")
	table := b.wantPage(b.upload("people.csv", "external_id,plan,age\ncsv1,pro,31\ncsv2,free,\n"), "imports/")
	testkit.Eventually(t, "the CSV file is imported", func() bool {
		return strings.Contains(b.open(strings.TrimPrefix(table.Path, "/console/")).HTML, ">completed<")
	})
	b.wantPage(b.open("users?find=csv1"), "users", "csv1", "31")
	b.wantPage(b.open("users?find=nobody"), "users", "Nobody has the id")
	if named := b.wantPage(b.open("users?filter="+url.QueryEscape(`user.external_id == "csv1"`)), "users", "csv1"); strings.Contains(named.HTML, ">p7<") {
		b.Error("the rule names one, and p7 is listed")
	}
	b.wantPage(b.open("users?filter=false"), "users", "The rule names nobody")
	if wrong := b.open("users?filter=nothing"); wrong.Status != http.StatusUnprocessableEntity || !strings.Contains(wrong.HTML, "line 1, column 1") {
		b.Errorf("a wrong rule: %d\n%s", wrong.Status, said(wrong))
	}
	testkit.Eventually(t, "who is alike is shown", func() bool { return strings.Contains(b.open("users/"+user).HTML, "What each trait adds") })
	b.wantPage(b.send("users/"+user, "traits", `{"age": 32, "city": "Lisbon"}`), "users/"+user, "Saved.", "Lisbon")
	if now := b.open("users/" + user); strings.Contains(now.HTML, ">pro<") {
		t.Error("a trait that was taken away is still there")
	}
	testkit.Eventually(t, "it is told what happened", func() bool {
		now := said(b.open("users/" + user))
		return strings.Contains(now, "Traits changed: age, city, plan") && strings.Contains(now, "Added with age, plan")
	})

	b.wantPage(b.send("settings/layers", "name", "Segments", "trait_paths", "age, plan", "key", b.key(b.open("settings"))), "settings", "Segments")
	layer := want[httpapi.ConsentLayerList](t, http.StatusOK, a.get("/api/v1/consent_layers")).Data[0]
	b.wantPage(b.send("users/"+user+"/consent", "layer", string(layer.ID), "said", "granted"), "users/"+user, "granted")
	a.grantAll(layer)
	run := b.wantPage(b.send("runs", "layer", string(layer.ID), "k", "2", "key", b.key(b.open("clusters?map=1"))), "runs/run_", "Clustering run")
	testkit.Eventually(t, "the run has ended", func() bool {
		return strings.Contains(b.open(strings.TrimPrefix(run.Path, "/console/")).HTML, "To the clusters")
	})
	b.wantPage(b.open("clusters?map=1"), "clusters", "2 clusters, silhouette", "a sample of 63", "There is nothing to compare with")
	again := b.wantPage(b.send("runs", "layer", string(layer.ID), "k", "2", "key", b.key(b.open("clusters?map=1"))), "runs/run_", "Clustering run")
	testkit.Eventually(t, "the second run has ended", func() bool {
		return strings.Contains(b.open(strings.TrimPrefix(again.Path, "/console/")).HTML, "To the clusters")
	})
	if moved := b.open("clusters?map=1").HTML; strings.Count(moved, `<path class="p`) != 2 || !strings.Contains(moved, "Where people went between") {
		t.Error("the map has not two groups, or it is not shown where people went")
	}

	b.wantPage(b.open("segments?preview=1&rule="+url.QueryEscape(`has(traits.age)`)), "segments", "Whom it names", " users", "Some of them")
	if p := b.open("segments?preview=1&rule=" + url.QueryEscape(`traits.age >`)); p.Status != http.StatusUnprocessableEntity || !strings.Contains(said(p), "line 1, column 13") {
		t.Errorf("a rule that is wrong: %d %s", p.Status, said(p))
	}
	segment := b.wantPage(b.send("segments", "name", "Everybody", "rule", `has(traits.age)`, "key", b.key(b.open("segments"))), "segments/seg_", "Everybody").Path
	segment, _, _ = strings.Cut(strings.TrimPrefix(segment, "/console/"), "?")
	testkit.Eventually(t, "its members are listed", func() bool { return strings.Contains(b.open(segment).HTML, `/console/users/usr_`) })
	b.wantPage(b.send(segment, "name", "All", "rule", `has(traits.age) && true`), segment, "Saved", "All")
	b.wantPage(b.open("users/"+user), "users/"+user, "has(traits.age)")
	if file := b.open(segment + "/members.csv"); file.Status != http.StatusOK || !strings.HasPrefix(file.HTML, "user_id,external_id\n") ||
		!strings.Contains(file.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("downloaded %d %v %s", file.Status, file.Header, file.HTML)
	}
	if refused := b.send(segment+"/retire", "confirm", "another"); refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("retired by another name: %d %s", refused.Status, said(refused))
	}
	b.wantPage(b.send(segment+"/retire", "confirm", "All"), "segments", "Retired")

	b.wantPage(b.open("traits?path=age"), "traits", "Weight", "Values of age")
	testkit.Eventually(t, "values that many share are shown", func() bool {
		plan := b.open("traits?path=plan").HTML
		return strings.Contains(plan, ">free<") && strings.Contains(plan, "As a bar")
	})
	b.wantPage(b.open("traits?path=plan&weight=9&who=p7&try=1"), "traits", "Matches of p7", "As it would be")
	for query, says := range map[string]string{"&weight=9&who=nobody": "no user with this id", "&weight=9": "Whose matches?", "&who=p7&weight=11": "10", "&who=p7&weight=x": "must be a number"} {
		if p := b.open("traits?path=plan&try=1" + query); p.Status != http.StatusUnprocessableEntity || !strings.Contains(said(p), says) {
			t.Errorf("%s: %d %s", query, p.Status, said(p))
		}
	}
	b.wantPage(b.send("traits", "path", "age", "weight", "3"), "traits", "Saved.")
	campaigns := b.open("campaigns")
	campaign := b.wantPage(b.send("campaigns", "name", "Spring", "budget_minor", "5,000.50", "currency", "EUR", "key", b.key(campaigns)), "campaigns/cam_", "EUR\u00a05,000.50")
	b.wantPage(b.send(strings.Split(strings.TrimPrefix(campaign.Path, "/console/"), "?")[0], "status", "running"), "campaigns/cam_", "Running.")

	receiver := receive(t, 200)
	hook := b.send("webhooks", "url", receiver.URL, "event_types", "match.computed", "secret", "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==", "key", b.key(b.open("webhooks")))
	at := regexp.MustCompile(`/console/(webhooks/whk_[0-9a-v]+)`).FindStringSubmatch(b.wantPage(hook, "secret", "It is shown this once").HTML)[1]
	b.wantPage(b.send(at, "controls", "1", "max_per_second", "50", "ordered", "on", "disable_after_hours", "24", "headers", "X-Tenant: forty-two\nX-Zone: eu"), at, "Saved.")
	set := b.wantPage(b.open(at), at, "It has X-Tenant, X-Zone").HTML
	for _, field := range []string{`value="50"`, `value="24"`, `name="ordered" checked`} {
		if !strings.Contains(set, field) {
			t.Errorf("the form lacks %s", field)
		}
	}
	if strings.Contains(set, "forty-two") {
		t.Error("the value of a header is shown")
	}
	for _, refused := range [][]string{{"max_per_second", "0"}, {"disable_after_hours", "0"}, {"headers", "nonsense"}, {"headers", "Host: x"}} {
		if p := b.send(at, append(refused, "controls", "1")...); p.Status != http.StatusUnprocessableEntity || !strings.Contains(p.HTML, `class="wrong"`) && !strings.Contains(p.HTML, "/headers/Host") {
			t.Errorf("%v: %d %s", refused, p.Status, said(p))
		}
	}
	b.wantPage(b.send(at, "controls", "1", "no_headers", "on", "ed25519", "on"), at, "Saved.", "Values are sealed")
	b.wantPage(b.send(at+"/keys", "key", b.key(b.open(at))), at, "A new key pair signs", "replaced; it signs until")
	b.wantPage(b.send(at+"/test", "event_type", "match.computed", "key", b.key(b.open(at))), at, "test delivery")
	got := receiver.next(t)
	var headers strings.Builder
	if err := got.Header.Write(&headers); err != nil {
		t.Fatal(err)
	}
	b.wantPage(b.send(at+"/check", "got_headers", headers.String(), "got_body", string(got.Body)), at, "It is verified.", "It is by the newest key")
	b.wantPage(b.send(at+"/check", "got_headers", headers.String(), "got_body", string(got.Body)+"}"), at, "It is not verified.")
	b.wantPage(b.send(at+"/recover", "since", "2026-01-01T00:00", "key", b.key(b.open(at))), at, "What was dropped is sent again.")
	if p := b.send(at+"/recover", "since", "yesterday", "key", b.key(b.open(at))); p.Status != http.StatusUnprocessableEntity {
		t.Errorf("a time that is none answers %d", p.Status)
	}
	testkit.Eventually(t, "the delivery is shown", func() bool { return strings.Contains(b.open(at).HTML, "/deliveries/dlv_") })

	key := b.send("developers/keys", "name", "backend", "scopes", "read", "key", b.key(b.open("developers")))
	if key.Status != http.StatusOK || !strings.Contains(key.HTML, "kin_live_") {
		t.Errorf("the key is not shown: %s", said(key))
	}
	b.wantPage(b.open("developers"), "developers", "backend")
	if again := b.open("secret"); again.Status != http.StatusGone {
		t.Errorf("a page that showed a secret is loaded again: %d %s", again.Status, said(again))
	}
	if strings.Contains(b.open("developers").HTML, regexp.MustCompile(`kin_live_[A-Za-z0-9_-]+`).FindString(key.HTML)) {
		t.Error("the key is shown twice")
	}
	b.wantPage(b.open("history/0"), "history/0", "Verified in this browser")
	if file := b.open("history.ndjson"); file.Status != http.StatusOK || !strings.HasPrefix(file.HTML, "{") || !strings.Contains(file.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("downloaded %d %v", file.Status, file.Header)
	}
	b.wantPage(b.open("segments?built=1&trait=age&comparison=over&value=30"), "segments", "traits.age > 30", "See whom it names")
	b.wantPage(b.open("segments?preview=1&rule="+url.QueryEscape("traits.age > 30")), "segments", " users", "Some of them")
	b.wantPage(b.open("users?built=1&trait=age&comparison=over&value=30"), "users", "traits.age > 30", "Count them")
	b.wantPage(b.open("users?filter="+url.QueryEscape("traits.age > 30")+"&count=1"), "users", " users, ")
	b.wantPage(b.send("users/"+user+"/erase", "confirm", "maya <1>"), "users", "Erased for good.")
	if gone := b.open("users/" + user); gone.Status != http.StatusNotFound {
		t.Errorf("%d of who was erased", gone.Status)
	}
	b.wantPage(b.send("sign-out"), "sign-in", "You are signed out.")
	b.wantPage(b.open("users"), "sign-in?to=%2Fconsole%2Fusers", "Sign in")
}

// Traits are saved as they were typed, unless somebody has changed them since the page was
// opened: then who typed is told, and may send them once more.
func TestTraitsAreSavedAsTheyWereTyped(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	b := a.signIn()
	const large = `{"id":12345678901234567890,"at":{"city":"Faro"}}`
	made := b.wantPage(b.send("users", "external_id", "ann", "traits", `{"id":12345678901234567890,"at":{"city":"Faro","zip":"8000"}}`, "key", rand.Text()), "users/usr_", "12345678901234567890")
	user := strings.TrimPrefix(strings.Split(made.Path, "?")[0], "/console/")
	traits := func() string {
		t.Helper()
		return string(want[struct{ Traits json.RawMessage }](t, http.StatusOK, a.get("/api/v1/"+user)).Traits)
	}
	b.wantPage(b.send(user, "traits", large, "etag", b.etagOf(made, user)), user, "Saved.")
	if got := traits(); got != `{"at":{"city":"Faro"},"id":12345678901234567890}` {
		t.Errorf("saved as %s", got)
	}
	opened := b.open(user)
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/"+user, map[string]any{"traits": map[string]any{"seen": 1}}))
	refused := b.send(user, "traits", `{"plan":"pro"}`, "etag", b.etagOf(opened, user))
	if refused.Status != http.StatusUnprocessableEntity || !strings.Contains(said(refused), "changed since you opened") || !strings.Contains(refused.HTML, html.EscapeString(`{"plan":"pro"}`)) {
		t.Errorf("it is told %d: %s", refused.Status, said(refused))
	}
	if got := traits(); !strings.Contains(got, `"seen":1`) {
		t.Errorf("what was changed meanwhile is gone: %s", got)
	}
	b.wantPage(b.send(user, "traits", `{"plan":"pro"}`, "etag", b.etagOf(refused, user)), user, "Saved.")
	if got := traits(); got != `{"plan":"pro"}` {
		t.Errorf("saved as %s", got)
	}
}

// What is chosen and typed becomes a rule that is understood, and names whom it says.
func TestARuleIsBuiltOfWhatUsersHave(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	b := a.signIn()
	for _, external := range []string{"ann", "bob"} {
		a.createUser(external, map[string]any{"dotted.name": "x", "at": map[string]any{"city": "Faro", "post.code.old": "8000"}, "miles.run": map[string]any{"total": "far"}, "v.w.x.y.z": "deep", "miles": json.Number("12345678901234567890")})
	}
	for _, test := range [][3]string{
		{"dotted.name", "x", `traits["dotted.name"] == "x"`},
		{"at.city", "Faro", `traits.at.city == "Faro"`},
		{"at.post.code.old", "8000", `traits.at["post.code.old"] in ["8000", 8000]`},
		{"v.w.x.y.z", "deep", `traits["v.w.x.y.z"] == "deep"`},
		{"miles.run.total", "far", `traits["miles.run"].total == "far"`},
		{"miles", "12345678901234567890", "traits.miles == 12345678901234567890.0"},
		{"miles", "45.", ""},
		{"miles", "+45", ""},
		{"miles", "inf", ""},
		{"miles", "nan", ""},
		{"miles", "1_0", ""},
		{"miles", strings.Repeat("9", 400), ""},
	} {
		page := b.open("users?" + url.Values{"built": {"1"}, "trait": {test[0]}, "comparison": {"is"}, "value": {test[1]}}.Encode())
		named := strings.Contains(page.HTML, ">ann</a>")
		if test[2] == "" { // no number, which the trait is
			if named || page.Status != http.StatusUnprocessableEntity || !strings.Contains(said(page), "The trait miles is a number") {
				t.Errorf("miles is %.20s: %d, it names her: %t\n%s", test[1], page.Status, named, said(page))
			}
			continue
		}
		if b.wantPage(page, "users", test[2]); !named {
			t.Errorf("%s is %.20s: it does not name her\n%s", test[0], test[1], said(page))
		}
	}
}

// Who changes what somebody else has changed since the page was opened is told, keeps what
// was typed, and may send it once more.
func TestNoFormOverwritesWhatItHasNotShown(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := populated(t, s)
	b := a.signIn()
	hook := string(want[httpapi.WebhookList](t, http.StatusOK, a.get(a.under("/webhooks"))).Data[0].ID)
	campaign := string(want[httpapi.CampaignList](t, http.StatusOK, a.get("/api/v1/campaigns")).Data[0].ID)
	segment := string(want[httpapi.SegmentList](t, http.StatusOK, a.get("/api/v1/segments")).Data[0].ID)
	layer := string(want[httpapi.ConsentLayerList](t, http.StatusOK, a.get("/api/v1/consent_layers")).Data[0].ID)
	budget := []string{"budget_minor", "9.00", "currency", "EUR"}
	for _, test := range []struct {
		name, page, action, api string
		typed, other            []string // of two who opened the page
		kept                    string   // of what was typed, as the form says it
		there, then             string   // what the API says once the other has saved, and then the first
	}{
		{
			"a segment", "segments/" + segment, "segments/" + segment, "/api/v1/segments/" + segment,
			[]string{"name", "mine", "rule", "traits.age > 61"},
			[]string{"name", "theirs", "rule", "traits.age > 62"},
			"traits.age > 61", `"name":"theirs"`, `"name":"mine"`,
		},
		{
			"a campaign", "campaigns/" + campaign, "campaigns/" + campaign, "/api/v1/campaigns/" + campaign,
			append([]string{"name", "mine"}, budget...), append([]string{"name", "theirs"}, budget...), `value="mine"`, `"name":"theirs"`, `"name":"mine"`,
		},
		{
			"an endpoint", "webhooks/" + hook, "webhooks/" + hook, a.under("/webhooks/" + hook),
			[]string{"url", "https://mine.example/", "event_types", "match.computed"},
			[]string{"url", "https://theirs.example/", "event_types", "match.computed"},
			"https://mine.example/", "https://theirs.example/", "https://mine.example/",
		},
		{
			"how it is delivered", "webhooks/" + hook, "webhooks/" + hook, a.under("/webhooks/" + hook),
			[]string{"controls", "1", "max_per_second", "7"},
			[]string{"controls", "1", "max_per_second", "8"},
			`value="7"`, `"max_per_second":8`, `"max_per_second":7`,
		},
		{
			"a client", "settings", "settings", "/api/v1/clients/" + string(a.Client.ID),
			[]string{"name", "mine", "k", "5", "min_score", "0.5", "webhook_user_ids", "user_id"},
			[]string{"name", "theirs", "k", "5", "min_score", "0.5", "webhook_user_ids", "user_id"},
			`value="mine"`, `"name":"theirs"`, `"name":"mine"`,
		},
		{
			"a layer", "settings", "settings/layers/" + layer, "/api/v1/consent_layers/" + layer,
			[]string{"name", "mine", "trait_paths", "age"},
			[]string{"name", "theirs", "trait_paths", "age"},
			`value="mine"`, `"name":"theirs"`, `"name":"mine"`,
		},
		{
			"a trait", "traits?path=age", "traits", "/api/v1/traits",
			[]string{"path", "age", "weight", "3"},
			[]string{"path", "age", "weight", "4"},
			`value="3"`, `"weight":4`, `"weight":3`,
		},
	} {
		opened := b.etagOf(b.open(test.page), test.action)
		b.wantPage(b.send(test.action, append(test.other, "etag", opened)...), "", "Saved.")
		refused := b.send(test.action, append(test.typed, "etag", opened)...)
		if refused.Status != http.StatusUnprocessableEntity || !strings.Contains(said(refused), "changed since you opened") || !strings.Contains(html.UnescapeString(refused.HTML), test.kept) {
			t.Errorf("%s: it is told %d: %s", test.name, refused.Status, said(refused))
		}
		if got := string(a.get(test.api).Body); !strings.Contains(got, test.there) {
			t.Errorf("%s: what was changed meanwhile is gone: %s", test.name, got)
		}
		b.wantPage(b.send(test.action, append(test.typed, "etag", b.etagOf(refused, test.action))...), "", "Saved.")
		if got := string(a.get(test.api).Body); !strings.Contains(got, test.then) {
			t.Errorf("%s: saved as %s", test.name, got)
		}
	}
}

// What was typed is there still after its session has ended; what was typed in a sandbox is
// not sent to what is live.
func TestAFormThatIsSentTooLateIsKept(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	b := a.signIn()
	form := []string{"external_id", "ann", "traits", `{"plan":"<pro>"}`, "key", rand.Text()}
	b.send("sign-out")
	late := b.send("users", form...)
	if late.Status != http.StatusUnauthorized || !strings.Contains(late.HTML, html.EscapeString(form[3])) || !strings.Contains(late.HTML, form[5]) {
		t.Fatalf("it is told %d: %s", late.Status, said(late))
	}
	b.client.Jar.SetCookies(b.root(), []*http.Cookie{{Name: "kindred-sandbox", Value: "cli_of_a_sandbox", Path: "/console/"}})
	b.wantPage(b.send("users", form...), "sign-in", "Sign in")
	b.send("sign-in", "email", a.Email, "password", a.Password)
	for range 2 {
		b.wantPage(b.send("users", form...), "users/", "ann", "<pro>")
	}
	if users := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users")).Data; len(users) != 1 {
		t.Errorf("%d users were made", len(users))
	}
}

var links = regexp.MustCompile(`href="/console/([^"#]*)`)

// walk opens each page that a link leads to, at most once.
func (b browser) walk(open func(at string)) (seen []string) {
	b.Helper()
	queue := []string{""}
	for len(queue) > 0 && len(seen) < 120 {
		at := queue[0]
		queue = queue[1:]
		if slices.Contains(seen, at) || strings.HasPrefix(at, "static/") {
			continue
		}
		seen = append(seen, at)
		open(at)
		for _, link := range links.FindAllStringSubmatch(b.open(at).HTML, -1) {
			queue = append(queue, html.UnescapeString(link[1]))
		}
	}
	return seen
}

// populated is an account with something on each page, in names that try to be markup.
func populated(t *testing.T, s *service) account {
	t.Helper()
	a := s.signUp()
	for _, external := range []string{"ann", hostile, "dan"} {
		a.createUser(external, map[string]any{"plan": hostile, "age": 31, hostile: hostile})
	}
	layer := want[httpapi.ConsentLayer](t, http.StatusCreated, a.send("POST", "/api/v1/consent_layers", map[string]any{"name": hostile, "trait_paths": []string{"age"}}))
	a.grantAll(layer)
	wantDone(t, a.send("PUT", "/api/v1/consent_layers/"+string(layer.ID)+"/users/ext:ann", map[string]string{"source": hostile}))
	a.draft(map[string]any{"name": hostile})
	rule := fmt.Sprintf("traits.plan == %q", hostile)
	a.segment(hostile, rule)
	want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:dan", map[string]any{"traits": map[string]any{"plan": "pro"}})) // leaves the segment
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, hostile, http.StatusInternalServerError) }))
	t.Cleanup(answers.Close)
	want[httpapi.Webhook](t, http.StatusCreated, a.sendTo("POST", "/webhooks", map[string]any{
		"url": answers.URL + "/" + url.PathEscape(hostile), "event_types": []string{"match.computed"}, "filter": fmt.Sprintf("event_type != %q", hostile),
	}))
	r := receive(t, 500)
	a.subscribe(r.URL, "")
	want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:ann/matches", map[string]int{"limit": 2}))
	r.next(t)
	want[httpapi.APIKeyCreated](t, http.StatusCreated, a.sendTo("POST", "/api_keys", map[string]string{"name": hostile}))
	want[httpapi.Sandbox](t, http.StatusCreated, a.sendTo("POST", "/sandboxes", map[string]string{"name": hostile}))
	a.send("GET", "/api/v1/users/ext:ann", nil, header("X-Request-ID", hostile))
	return a
}

// markup is what a page never holds.
var markup = []string{"<script>alert", "<img src=x", "onerror='alert", " style=", "<no value>", "%!", "ZgotmplZ"}

const hostile = `"><script>alert(1)</script><img src=x onerror='alert(2)'>{{.}}`

// What anybody may look at changes nothing, and holds no markup of theirs.
func TestLookingAtTheConsoleRecordsNothing(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := populated(t, s)
	b := a.signIn()
	var newest []string
	recorded := func() (n int) {
		newest = nil
		for path := a.under("/history?limit=200"); path != ""; {
			found := want[httpapi.HistoryPage](t, http.StatusOK, a.get(path))
			n += len(found.Data)
			for _, e := range found.Data {
				newest = append(newest, *e.Type)
			}
			if path = ""; found.NextCursor != nil {
				path = a.under("/history?limit=200&cursor=" + url.QueryEscape(*found.NextCursor))
			}
		}
		return n
	}
	before := recorded()
	seen := b.walk(func(at string) {
		p := b.open(at)
		if p.Status != http.StatusOK {
			t.Errorf("%d of %q", p.Status, at)
		}
		for name, value := range map[string]string{
			"Content-Security-Policy": console.Policy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
			"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if p.Header.Get(name) != value {
				t.Errorf("%q: %s is %q", at, name, p.Header.Get(name))
			}
		}
		if !strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			if !strings.HasPrefix(p.Header.Get("Content-Disposition"), "attachment") {
				t.Errorf("%q is no page, and no download", at)
			}
			return
		}
		for _, bad := range markup {
			if strings.Contains(p.HTML, bad) {
				t.Errorf("%q holds %s", at, bad)
			}
		}
	})
	// What somebody else's link asks for is shown as it is, too.
	for _, at := range []string{"users?find=", "users?filter=", "segments?rule=", "traits?path=", "history?type=", "history?stream=", "history?from=", "requests?route=", "requests?status=", "clusters?layer=", "campaigns?cursor=", "users?done=", "sign-in?to=", "history-at?past=1&at=", "history-at?at=2026-01-01T00:00&kind=", "segments?preview=1&rule=", "segments?layer=", "users?built=1&comparison=is&trait=", "segments?built=1&trait=plan&value="} {
		p := b.open(at + url.QueryEscape(hostile))
		for _, bad := range markup {
			if strings.Contains(p.HTML, bad) || p.Status >= http.StatusInternalServerError {
				t.Errorf("%s: %d, %s", at, p.Status, bad)
			}
		}
	}
	for _, one := range seen {
		for prefix, parameter := range map[string]string{"users/usr_": "?past=1&at=", "segments/seg_": "?after="} {
			if !strings.HasPrefix(one, prefix) || strings.ContainsAny(one, "?.") {
				continue
			}
			p := b.open(one + parameter + url.QueryEscape(hostile))
			for _, bad := range markup {
				if strings.Contains(p.HTML, bad) || p.Status >= http.StatusInternalServerError {
					t.Errorf("%s%s: %d, %s", one, parameter, p.Status, bad)
				}
			}
		}
	}
	shown := b.open("webhooks").HTML
	for _, hook := range regexp.MustCompile(`/console/(webhooks/whk_[0-9a-v]+)"`).FindAllStringSubmatch(shown, -1) {
		if attempt := regexp.MustCompile(`/console/(webhooks/[^"]+/deliveries/dlv_[0-9a-v]+)"`).FindStringSubmatch(b.open(hook[1]).HTML); attempt != nil && !slices.Contains(seen, attempt[1]) {
			t.Errorf("the walk has not seen what %s answered", hook[1])
		}
	}
	// A link holds what it is about, whatever characters that has.
	for at, holds := range map[string]string{"traits?path=": hostile, "segments?rule=": fmt.Sprintf("traits.plan == %q", hostile)} {
		if !slices.ContainsFunc(seen, func(link string) bool {
			asked, err := url.ParseQuery(strings.TrimPrefix(link, strings.Split(at, "?")[0]+"?"))
			return err == nil && strings.HasPrefix(link, at) && asked.Get(strings.TrimSuffix(strings.Split(at, "?")[1], "=")) == holds
		}) {
			t.Errorf("no link leads to %s%s", at, holds)
		}
	}
	for _, section := range []string{"users", "traits", "segments", "clusters", "campaigns", "webhooks", "developers", "history", "settings", "account"} {
		if !slices.Contains(seen, section) {
			t.Errorf("no link leads to %s", section)
		}
	}
	if after := recorded(); after != before {
		t.Errorf("looking at %d pages recorded %v", len(seen), newest[before:])
	}
}

func TestTheConsoleShowsEachRoleWhatItMay(t *testing.T) {
	t.Parallel()
	changing := regexp.MustCompile(`method="post" action="/console/([^"]*)"`)
	s := shared(t)
	a := populated(t, s)
	hook := want[httpapi.WebhookList](t, http.StatusOK, a.get(a.under("/webhooks"))).Data[0]
	for role, sees := range map[string]map[string]bool{
		"viewer":  {"developers": false, "history": false, "settings": false, "users": true},
		"auditor": {"developers": false, "history": true, "settings": false, "users": true},
		"admin":   {"developers": true, "history": true, "settings": true, "users": true},
	} {
		member := a
		member.Email, member.Password = role+"-"+strings.ToLower(rand.Text())+"@example.com", "pw-"+rand.Text()
		added := want[httpapi.Member](t, http.StatusCreated, a.sendTo("POST", "/members", map[string]string{"email": member.Email, "password": member.Password, "role": role}))
		b := member.signIn()
		overview := b.open("")
		for section, may := range sees {
			if there := strings.Contains(overview.HTML, `href="/console/`+section+`"`); there != may {
				t.Errorf("%s: the rail leads to %s: %t", role, section, there)
			}
			if status := b.open(section).Status; (status == http.StatusOK) != may || !may && status != http.StatusForbidden {
				t.Errorf("%s: %s answers %d", role, section, status)
			}
		}
		if role != "admin" {
			b.walk(func(at string) {
				p := b.open(at)
				if p.Status != http.StatusOK {
					t.Errorf("%s: %d of %q, to which a link leads", role, p.Status, at)
				}
				for _, form := range changing.FindAllStringSubmatch(p.HTML, -1) {
					if to := form[1]; to != "sign-out" && !strings.HasSuffix(to, "/check#check") && at != "account" {
						t.Errorf("%s: %q has a form that would be refused: %s", role, at, to)
					}
				}
			})
			for path, fields := range map[string][]string{
				"users": {"external_id", "x"}, "webhooks/" + string(hook.ID): {"status", "paused"}, "webhooks/" + string(hook.ID) + "/keys": nil, "developers/keys": {"name", "x"}, "settings": {"name", "x", "min_score", "0"},
			} {
				if p := b.send(path, append(fields, "key", rand.Text())...); p.Status != http.StatusForbidden {
					t.Errorf("%s: a forged form to %s answers %d", role, path, p.Status)
				}
			}
		}
		wantDone(t, a.sendTo("DELETE", "/members/"+string(added.ID), nil))
		testkit.Eventually(t, "who was removed is out", func() bool { return strings.HasPrefix(b.open("users").Path, "/console/sign-in") })
	}
}

// A session is ended from another browser, and by a change of the password.
func TestTheConsoleStandsOnSessions(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	here, there := a.signIn(), a.signIn()
	at := regexp.MustCompile(`/console/(account/sessions/ses_[0-9a-v]+/end)`)
	ends := at.FindAllStringSubmatch(here.wantPage(here.open("account"), "account", "this one", a.Email).HTML, -1)
	if len(ends) != 1 {
		t.Fatalf("%d sessions can be ended, not the other one alone", len(ends))
	}
	here.wantPage(here.send(ends[0][1]), "account", "The session has ended.")
	testkit.Eventually(t, "the other browser is out", func() bool { return strings.HasPrefix(there.open("users").Path, "/console/sign-in") })

	third := a.signIn()
	if p := here.send("account/password", "current", "wrong", "new", a.Password+"2"); p.Status != http.StatusForbidden || !strings.HasPrefix(p.Path, "/console/account") {
		t.Errorf("a wrong password answers %d at %s", p.Status, p.Path)
	}
	here.wantPage(here.send("account/password", "current", a.Password, "new", a.Password+"2"), "account", "Your password is changed.")
	testkit.Eventually(t, "the third browser is out", func() bool { return strings.HasPrefix(third.open("users").Path, "/console/sign-in") })
	here.wantPage(here.open("users"), "users", "Users")
	kept := here.jar()
	here.wantPage(here.send("sign-out"), "sign-in", "You are signed out.")
	stolen := a.browser()
	stolen.client.Jar.SetCookies(stolen.root(), kept)
	testkit.Eventually(t, "a cookie that was stolen is worth nothing after signing out", func() bool { return strings.HasPrefix(stolen.open("users").Path, "/console/sign-in") })
}

func (b browser) root() *url.URL {
	b.Helper()
	at, err := url.Parse(b.s.URL + "/console/")
	if err != nil {
		b.Fatal(err)
	}
	return at
}

func (b browser) jar() []*http.Cookie { return b.client.Jar.Cookies(b.root()) }

func TestTheConsoleKeepsStrangersOut(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := populated(t, s), populated(t, s)
	b := other.signIn()
	hook := want[httpapi.WebhookList](t, http.StatusOK, a.get(a.under("/webhooks"))).Data[0]
	user := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users")).Data[0]
	campaign := want[httpapi.CampaignList](t, http.StatusOK, a.get("/api/v1/campaigns")).Data[0]
	segment := want[httpapi.SegmentList](t, http.StatusOK, a.get("/api/v1/segments")).Data[0]
	layer := want[httpapi.ConsentLayerList](t, http.StatusOK, a.get("/api/v1/consent_layers")).Data[0]
	key := want[httpapi.APIKeyList](t, http.StatusOK, a.get(a.under("/api_keys"))).Data[0]
	member := want[httpapi.MemberList](t, http.StatusOK, a.get(a.under("/members"))).Data[0]
	delivery := want[httpapi.DeliveryList](t, http.StatusOK, a.get(a.under("/webhooks/"+string(hook.ID)+"/deliveries"))).Data[0]
	sandbox := a.sandboxes()[0]
	sent := "webhooks/" + string(hook.ID) + "/deliveries/" + string(delivery.ID)
	for _, path := range []string{"users/" + string(user.ID), "webhooks/" + string(hook.ID), "campaigns/" + string(campaign.ID), "segments/" + string(segment.ID), "segments/" + string(segment.ID) + "/members.csv", "users/" + string(user.ID) + "?at=2026-01-01T00:00&past=1", sent} {
		if p := b.open(path); p.Status != http.StatusNotFound {
			t.Errorf("another's %s answers %d", path, p.Status)
		}
	}
	for path, fields := range map[string][]string{
		"users/" + string(user.ID): {"traits", "{}"}, "users/" + string(user.ID) + "/erase": {"confirm", user.ExternalID}, "users/" + string(user.ID) + "/consent": {"layer", string(layer.ID), "said", "granted"},
		"segments/" + string(segment.ID): {"name", "x", "rule", "true"}, "segments/" + string(segment.ID) + "/retire": {"confirm", segment.Name}, "campaigns/" + string(campaign.ID): {"status", "running"},
		"webhooks/" + string(hook.ID): {"status", "paused"}, "webhooks/" + string(hook.ID) + "/rotate": nil, "webhooks/" + string(hook.ID) + "/remove": {"confirm", "remove"}, sent + "/redeliver": nil,
		"developers/keys/" + string(key.ID) + "/revoke": {"confirm", key.Name}, "settings/members/" + string(member.ID) + "/remove": {"confirm", member.Email}, "settings/layers/" + string(layer.ID) + "/retire": {"confirm", layer.Name},
		"settings/layers/" + string(layer.ID): {"name", "x", "trait_paths", "age"}, "settings/layers/" + string(layer.ID) + "/grant": {"source", "x", "agreed", "on"}, "settings/sandboxes/" + sandbox + "/delete": {"confirm", hostile}, "runs?layer=" + string(layer.ID): {"layer", string(layer.ID)},
	} {
		if p := b.send(path, append(fields, "key", rand.Text())...); p.Status != http.StatusNotFound {
			t.Errorf("a form for another's %s answers %d: %s", path, p.Status, said(p))
		}
	}
	if p := b.send("settings/sandboxes/" + sandbox + "/open"); p.Status != http.StatusOK || strings.Contains(p.HTML, "nothing here is live") {
		t.Errorf("another's sandbox is opened: %d %s", p.Status, said(p))
	}
	for _, id := range []string{string(a.Client.ID), sandbox, "cli_none", hostile} {
		b.client.Jar.SetCookies(b.root(), []*http.Cookie{{Name: "kindred-sandbox", Value: url.QueryEscape(id), Path: "/console/"}})
		if p := b.open("settings"); p.Status != http.StatusOK || strings.Contains(p.HTML, "nothing here is live") || !strings.Contains(p.HTML, string(other.Client.ID)) {
			t.Errorf("a cookie that names %s: %d %s", id, p.Status, said(p))
		}
	}
	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		form := url.Values{"external_id": {"forged"}}.Encode()
		p := b.do("POST", "/console/users", "application/x-www-form-urlencoded", strings.NewReader(form), from...)
		if p.Status != http.StatusForbidden || !strings.Contains(p.HTML, "from another site") {
			t.Errorf("%s: %d", from, p.Status)
		}
	}
	if found := want[httpapi.UserList](t, http.StatusOK, other.get("/api/v1/users?external_id=forged")).Data; len(found) > 0 {
		t.Error("a forged form was taken")
	}
	for _, to := range []string{"https://evil.example/", "//evil.example/console/", `/console/\evil.example`, "/elsewhere"} {
		visitor := a.browser()
		if p := visitor.send("sign-in", "email", a.Email, "password", a.Password, "to", to); !strings.HasPrefix(p.Path, "/console/") || p.Status != http.StatusOK {
			t.Errorf("signing in leads to %s: %s", to, p.Path)
		}
	}
	visitor := a.browser()
	if p := visitor.send("sign-in", "email", a.Email, "password", "wrong"); p.Status != http.StatusUnauthorized || !strings.Contains(p.HTML, "is wrong") {
		t.Errorf("%d: %s", p.Status, said(p))
	}
	if answered := s.send("GET", "/api/v1/users", nil, func(r *http.Request) {
		for _, c := range b.jar() {
			r.AddCookie(c)
		}
	}); answered.Status != http.StatusUnauthorized {
		t.Errorf("the API takes cookies: %d", answered.Status)
	}
	root := visitor.do("GET", "/", "", nil)
	visitor.wantPage(root, "sign-in", "Sign in")
	if plain := s.send("GET", "/", nil); bytes.Contains(plain.Body, []byte("Sign in")) {
		t.Errorf("the root leads programs to the console: %s", plain.Body)
	}
}

func TestTheConsoleWorksInASandbox(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	b := a.signIn()
	settings := b.wantPage(b.open("settings"), "settings", "Sandboxes", "Make a sandbox")
	b.wantPage(b.send("settings/sandboxes", "key", b.key(settings), "sandbox_name", "Try <1>", "days", "2"), "settings", "Created.", "Try <1>", "deletes itself")
	sandbox := a.sandboxes()[0]
	b.wantPage(b.send("settings/sandboxes/"+sandbox+"/open"), "", "Sandbox", "nothing here is live", "Leave it")
	b.wantPage(b.open("users"), "users", "nothing here is live")
	inside := b.wantPage(b.open("settings"), "settings", "The clock", "nothing here is live")
	b.wantPage(b.send("settings/clock", "key", b.key(inside), "hours", "48"), "settings", "Saved.")
	if refused := b.send("settings/clock", "hours", "-1"); refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("back: %d %s", refused.Status, said(refused))
	}
	if left := b.wantPage(b.send("leave-sandbox"), "settings", "Make a sandbox"); strings.Contains(left.HTML, "nothing here is live") {
		t.Error("it is still in the sandbox")
	}
	if refused := b.send("settings/sandboxes/"+sandbox+"/delete", "confirm", "Try"); refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("without its name: %d %s", refused.Status, said(refused))
	}
	b.wantPage(b.send("settings/sandboxes/"+sandbox+"/open"), "", "nothing here is live")
	a.sendTo("DELETE", "/sandboxes/"+sandbox, nil)
	testkit.Eventually(t, "the console is out of a sandbox that is over", func() bool {
		p := b.open("settings")
		return p.Status == http.StatusOK && strings.Contains(p.HTML, "Make a sandbox")
	})
	second := a.createSandbox("second")
	b.send("settings/sandboxes/" + string(second.ID) + "/open")
	b.send("sign-out")
	if left := a.listedSessions(); len(left) != 0 {
		t.Errorf("signed out from a sandbox, and %v are left", left)
	}
	c := a.signIn()
	c.wantPage(c.send("settings/sandboxes/"+string(second.ID)+"/delete", "confirm", "second"), "settings", "Removed.")
}

// What cannot be had back is retired by who types its name alone.
func TestTheConsoleRetiresALayerByItsName(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	layer, b := a.createLayer("age"), a.signIn()
	retire := "settings/layers/" + string(layer.ID) + "/retire"
	for _, confirm := range []string{"", "another"} {
		if refused := b.send(retire, "confirm", confirm); refused.Status != http.StatusUnprocessableEntity {
			t.Errorf("with %q: %d %s", confirm, refused.Status, said(refused))
		}
	}
	want[httpapi.ConsentLayer](t, http.StatusOK, a.get(layersPath+"/"+string(layer.ID)))
	b.wantPage(b.send(retire, "confirm", layer.Name), "settings", "Retired")
}

// A viewer's forged forms change nothing, whichever form of the console they are.
func TestNoFormDoesMoreThanARoleMay(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := populated(t, s)
	segment := want[httpapi.SegmentList](t, http.StatusOK, a.get("/api/v1/segments")).Data[0]
	ids := map[string]string{
		"users": string(want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users")).Data[0].ID), "segments": string(segment.ID),
		"campaigns": string(want[httpapi.CampaignList](t, http.StatusOK, a.get("/api/v1/campaigns")).Data[0].ID), "webhooks": string(want[httpapi.WebhookList](t, http.StatusOK, a.get(a.under("/webhooks"))).Data[0].ID),
		"keys": string(want[httpapi.APIKeyList](t, http.StatusOK, a.get(a.under("/api_keys"))).Data[0].ID), "members": string(want[httpapi.MemberList](t, http.StatusOK, a.get(a.under("/members"))).Data[0].ID),
		"layers": string(want[httpapi.ConsentLayerList](t, http.StatusOK, a.get("/api/v1/consent_layers")).Data[0].ID), "sandboxes": a.sandboxes()[0], "runs": "run_0123456789abcdefghijklmnoo",
	}
	delivery := string(want[httpapi.DeliveryList](t, http.StatusOK, a.get(a.under("/webhooks/"+ids["webhooks"]+"/deliveries"))).Data[0].ID)
	fields := []string{
		"name", "x", "rule", "true", "traits", "{}", "external_id", "forged", "said", "granted", "layer", ids["layers"], "path", "age", "weight", "2", "min_score", "0.5", "k", "3",
		"status", "paused", "url", "https://example.com", "event_types", "match.computed", "scopes", "read", "email", "x@example.com", "password", "pw-" + rand.Text(), "role", "owner", "trait_paths", "age",
		"source", "x", "agreed", "on", "sandbox_name", "x", "hours", "1", "budget_minor", "1", "currency", "EUR", "since", "2026-01-01T00:00", "event_type", "match.computed",
	}
	source, err := os.ReadFile("../console/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	routes := regexp.MustCompile(`post\("([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(routes) < 35 {
		t.Fatalf("%d forms are not all", len(routes))
	}
	own := map[string]bool{ // of whoever is signed in
		"sign-out": true, "leave-sandbox": true, "account/password": true, "account/sessions/{id}/end": true, "settings/sandboxes/{id}/open": true, "users/import/preview": true,
	}
	size := func() int64 {
		return want[httpapi.HistoryProof](t, http.StatusOK, a.get(a.under("/history/proof"))).Size
	}
	for _, role := range []string{"viewer", "auditor"} {
		member := a
		member.Email, member.Password = role+"-"+strings.ToLower(rand.Text())+"@example.com", "pw-"+rand.Text()
		want[httpapi.Member](t, http.StatusCreated, a.sendTo("POST", "/members", map[string]string{"email": member.Email, "password": member.Password, "role": role}))
		b := member.signIn()
		before := size()
		for _, route := range routes {
			if own[route[1]] {
				continue
			}
			parts := strings.Split(route[1], "/")
			for i := range parts {
				switch parts[i] {
				case "{id}":
					parts[i] = ids[parts[i-1]]
				case "{delivery}":
					parts[i] = delivery
				case "{action}":
					parts[i] = "rotate"
				case "{name}":
					parts[i] = "users"
				}
			}
			at := strings.Join(parts, "/")
			confirm := "ann"
			if parts[0] == "segments" {
				confirm = segment.Name
			}
			p := b.send(at, append([]string{"key", rand.Text(), "confirm", confirm}, fields...)...)
			if at == "users/import" {
				p = b.upload("x.ndjson", `{"external_id": "forged"}`)
			}
			if p.Status != http.StatusForbidden && (parts[0] != "runs" || p.Status != http.StatusNotFound) { // there is no run
				t.Errorf("%s: a forged form to %s answers %d: %s", role, at, p.Status, said(p))
			}
		}
		b.send("settings/sandboxes/" + ids["sandboxes"] + "/open")
		if p := b.send("settings/clock", "hours", "1", "key", rand.Text()); p.Status != http.StatusForbidden {
			t.Errorf("%s: the clock of a sandbox answers %d: %s", role, p.Status, said(p))
		}
		if after := size(); after != before {
			t.Errorf("%s: forged forms recorded %d events: %s", role, after-before, a.get(a.under(fmt.Sprintf("/history?after=%d", before-1))).Body)
		}
	}
}
