package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"html"
	"io"
	"log/slog"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	kindred "kindred/sdk/go"
)

func TestAmountsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		currency := rapid.SampledFrom([]string{"EUR", "JPY", "KWD"}).Draw(t, "currency")
		amount := rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "minor")
		written := money(amount, currency)
		if read, ok := minor(strings.TrimPrefix(written, currency+"\u00a0"), currency); !ok || read != amount {
			t.Fatalf("%d is written %s and read %d, %t", amount, written, read, ok)
		}
	})
	for text, want := range map[string]int64{
		"5": 500, "5.5": 550, " 1,000.05 ": 100005, ".5": -1, "5.005": -1, "1,234": 123400, "1,234,567.89": 123456789, "1234567.8": 123456780,
		"10,50": -1, "1,50": -1, "0,99": -1, "0,990": -1, "12,34,56": -1, "1,2345": -1, "1234,567": -1, ",500": -1, "1,234,": -1, "1.234,50": -1, "1.234.567": -1, "1 234": -1,
		"-1": -1, "1e3": -1, "": -1, "x": -1,
	} {
		read, ok := minor(text, "EUR")
		if !ok {
			read = -1
		}
		if read != want {
			t.Errorf("%q is read as %d, not %d", text, read, want)
		}
	}
}

func TestWholeNumbersAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"5": 5, "1,234": 1234, "8,784": 8784, "1,5": -1, "12,34": -1, "1.5": -1, "5.": -1, "x": -1} {
		read, err := (&page{r: &http.Request{Form: url.Values{"n": {text}}}}).whole("n")
		if err != nil {
			read = new(int64(-1))
		}
		if *read != want {
			t.Errorf("%q is read as %d, not %d", text, *read, want)
		}
	}
}

func TestNumbersAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"20,412": number(int64(20412)), "−1,000": number(-1000), "0": number(0), "999": number(int64(999)), "1,234,567": number(1234567.0), "0.25": number(.25),
		"36.86": number(36.8567), "123.5": number(123.456), "52,346": number(52345.678), "1,000": number(999.96), "−1,000,000": number(-999999.5), "1e+17": number(1e17),
		"91\u00a0%": percent(.91), "0.4\u00a0%": percent(.004), "0\u00a0%": percent(0), "EUR\u00a03,182.50": money(318250, "EUR"), "JPY\u00a0500": money(500, "JPY"), "EUR\u00a0−0.05": money(-5, "EUR"), "EUR\u00a0−3.05": money(-305, "EUR"),
		"5 s": seconds(4200 * time.Millisecond), "3 min": seconds(200 * time.Second), "47 h": seconds(47 * time.Hour), "3 days": seconds(73 * time.Hour),
	} {
		if got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestSigningInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"/console/users?find=x": "/console/users?find=x", "": Path, "/elsewhere": Path, "//evil.example/console/": Path, "https://evil.example/console/": Path,
		`/console/\evil`: Path, "javascript:alert(1)": Path, "console/users": Path, "/console/../elsewhere": Path,
	} {
		if got := within(to); got != want {
			t.Errorf("%q leads to %q, not %q", to, got, want)
		}
	}
}

// A page that fails says so, and the process goes on.
func TestAPageThatPanicsIsAnswered(t *testing.T) {
	t.Parallel()
	pages, err := New(Config{
		API:       http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the API") }),
		PublicURL: "https://kindred.example", Now: time.Now, NewKey: rand.Text, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/console/users", nil)
	r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "e30.eyJhdWQiOiJjbGlfMSJ9.x"})
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "did not answer") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// cookies are those that an answer sets.
func cookies(w *httptest.ResponseRecorder) (all []*http.Cookie) {
	for _, line := range w.Header().Values("Set-Cookie") {
		if c, err := http.ParseSetCookie(line); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// A secret is shown to who made it, once, whoever else sits down at the browser.
func TestASecretIsShownOnce(t *testing.T) {
	t.Parallel()
	pages, world := pagesOf(t), base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/clients/cli_1/api_keys": kindred.APIKeyCreated{RawKey: "kin_live_abc", Record: kindred.APIKey{Name: "backend"}},
	})
	ask := func(world made, method, path string, carried ...*http.Cookie) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader("name=backend&key=KEY"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		for _, c := range carried {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		return w
	}
	made := ask(world, "POST", "/console/developers/keys")
	if made.Code != http.StatusSeeOther || made.Header().Get("Location") != "/console/secret" || strings.Contains(made.Body.String(), "kin_live_abc") {
		t.Fatalf("%d to %s", made.Code, made.Header().Get("Location"))
	}
	carried := cookies(made)[0]
	if !carried.HttpOnly || !carried.Secure || carried.Path != "/console/secret" || carried.SameSite != http.SameSiteStrictMode || carried.MaxAge > 60 {
		t.Errorf("the note is carried by %+v", carried)
	}
	shown := ask(world, "GET", "/console/secret", carried)
	if gone := cookies(shown); len(gone) != 1 || gone[0].Name != carried.Name || gone[0].MaxAge >= 0 {
		t.Errorf("the note stays: %v", gone)
	}
	if text := shown.Body.String(); !strings.Contains(text, "kin_live_abc") || !strings.Contains(text, "backend") {
		t.Errorf("it is not shown: %s", text)
	}
	other := base(kindred.RoleOwner, "Acme", "admin")
	in := other["/auth/sessions/token"].(kindred.LoggedIn) //nolint:forcetypeassert // base makes it
	in.User.ID = "mem_2"
	for name, again := range map[string]*httptest.ResponseRecorder{
		"without the note": ask(world, "GET", "/console/secret"), "another member": ask(other.plus(map[string]any{"/auth/sessions/token": in}), "GET", "/console/secret", carried),
		"a note that is none": ask(world, "GET", "/console/secret", &http.Cookie{Name: carried.Name, Value: "e30"}),
	} {
		if again.Code != http.StatusGone || strings.Contains(again.Body.String(), "kin_live_abc") {
			t.Errorf("%s it answers %d", name, again.Code)
		}
	}
}

func TestARuleIsBuiltOfLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line
		kind kindred.TraitType
		want string
	}{
		{line{Trait: "age", Comparison: "over", Value: "30"}, kindred.TraitTypeNumber, `traits.age > 30`},
		{line{Trait: "age", Comparison: "over", Value: "thirty"}, kindred.TraitTypeNumber, `traits.age > "thirty"`},
		{line{Trait: "plan", Comparison: "", Value: `a"b`}, kindred.TraitTypeCategory, `traits.plan == "a\"b"`},
		{line{Trait: "on", Comparison: "not", Value: "true"}, kindred.TraitTypeBool, `traits.on != true`},
		{line{Trait: "odd name.x", Comparison: "there", Value: ""}, "", `has(traits["odd name"].x)`},
		{line{Trait: "likes", Comparison: "has", Value: "jazz"}, kindred.TraitTypeSet, `"jazz" in traits.likes`},
		{line{Trait: "new", Comparison: "over", Value: "30"}, "", `traits.new > 30`},
		{line{Trait: "seen", Comparison: "within", Value: "30d"}, kindred.TraitTypeDate, `within(traits.seen, "30d")`},
		{line{Trait: "seen", Comparison: "within", Value: "30"}, kindred.TraitTypeNumber, `within(traits.seen, "30")`},
		{line{Trait: "seen", Comparison: "older", Value: "30d"}, kindred.TraitTypeDate, `older(traits.seen, "30d")`},
		{line{Trait: "phone", Comparison: "missing", Value: ""}, "", `!has(traits.phone)`},
		{line{Trait: "stars", Comparison: "over", Value: "1e+21"}, kindred.TraitTypeNumber, `traits.stars > 1e+21`},
		{line{Trait: "plan", Comparison: "has", Value: "pro"}, kindred.TraitTypeCategory, `traits.plan.contains("pro")`},
		{line{Trait: "zip", Comparison: "is", Value: "1200"}, kindred.TraitTypeCategory, `traits.zip in ["1200", 1200]`},
		{line{Trait: "zip", Comparison: "not", Value: "1200"}, kindred.TraitTypeCategory, `!(traits.zip in ["1200", 1200])`},
		{line{Trait: "zip", Comparison: "is", Value: "01200"}, kindred.TraitTypeCategory, `traits.zip == "01200"`},
		{line{Trait: "zip", Comparison: "not", Value: "1,200"}, kindred.TraitTypeCategory, `traits.zip != "1,200"`},
		{line{Trait: "seats", Comparison: "has", Value: "-2.5"}, kindred.TraitTypeSet, `("-2.5" in traits.seats || -2.5 in traits.seats)`},
		{line{Trait: "spent", Comparison: "over", Value: "1,000.5"}, kindred.TraitTypeNumber, `traits.spent > 1000.5`},
		{line{Trait: "spent", Comparison: "over", Value: "1,5"}, kindred.TraitTypeNumber, `traits.spent > "1,5"`},
		{line{Trait: "city", Comparison: "is", Value: "1,000"}, kindred.TraitTypeCategory, `traits.city == "1,000"`},
		{line{Trait: "age", Comparison: "under", Value: "1) || true"}, kindred.TraitTypeNumber, `traits.age < "1) || true"`},
		{line{Trait: "odd.name", Comparison: "there", Keys: []string{"odd.name"}}, "", `has(traits["odd.name"])`},
		{line{Trait: "a.b.c", Value: "x", Keys: []string{"a", "b.c"}}, "", `traits.a["b.c"] == "x"`},
		{line{Trait: "in", Value: "x"}, "", `traits["in"] == "x"`},
		{line{Trait: "a.null", Comparison: "there"}, "", `has(traits.a["null"])`},
		{line{Trait: "age", Value: "-4.50"}, kindred.TraitTypeNumber, `traits.age == -4.50`},
		{line{Trait: "age", Value: "+45"}, kindred.TraitTypeNumber, `traits.age == "+45"`},
		{line{Trait: "age", Value: "45."}, kindred.TraitTypeNumber, `traits.age == "45."`},
		{line{Trait: "age", Value: "inf"}, kindred.TraitTypeNumber, `traits.age == "inf"`},
		{line{Trait: "age", Value: "NaN"}, kindred.TraitTypeNumber, `traits.age == "NaN"`},
		{line{Trait: "age", Value: "1_0"}, kindred.TraitTypeNumber, `traits.age == "1_0"`},
		{line{Trait: "age", Value: "0x1p2"}, kindred.TraitTypeNumber, `traits.age == "0x1p2"`},
		{line{Trait: "id", Value: "-123456789012345678"}, kindred.TraitTypeNumber, `traits.id == -123456789012345678`},
		{line{Trait: "id", Value: "12345678901234567890"}, kindred.TraitTypeNumber, `traits.id == 12345678901234567890.0`},
	} {
		if got := c.rule(kindred.Trait{Type: c.kind}); got != c.want {
			t.Errorf("%v is %s, not %s", c.line, got, c.want)
		}
	}
	spelled := line{Trait: "pays", Value: "30"}
	if got := spelled.rule(kindred.Trait{Type: kindred.TraitTypeNumber, Format: new("1,234.5")}); got != `traits.pays == "30"` {
		t.Errorf("of numbers that are written as texts, %v is %s", spelled, got)
	}
	inText := line{Trait: "speaks", Comparison: "has", Value: "fr"}
	if got := inText.rule(kindred.Trait{Type: kindred.TraitTypeSet, Format: new("a; b")}); got != `traits.speaks.contains("fr")` {
		t.Errorf("of a list that is written in a text, %v is %s", inText, got)
	}
}

func TestWhatIsTheSameForEverybodyIsCompressed(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	get := func(path, accepts string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", accepts)
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, made{})))
		return w
	}
	page := get("/console/sign-in", "gzip")
	if page.Header().Get("Content-Encoding") != "" {
		t.Error("a page is compressed")
	}
	for _, at := range regexp.MustCompile(`/console/static/[^"]+`).FindAllString(page.Body.String(), -1) {
		plain, squeezed := get(at, "identity"), get(at, "gzip, br")
		opened, err := gzip.NewReader(squeezed.Body)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		size := squeezed.Body.Len()
		if text, err := io.ReadAll(opened); err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
			t.Errorf("%s is another, compressed: %v", at, err)
		}
		if size*2 > plain.Body.Len() || plain.Header().Get("Content-Encoding") != "" || plain.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %d of %d bytes, %v", at, size, plain.Body.Len(), plain.Header())
		}
	}
}

// A trait that is false or 0 is there; one that is not there is said to be so.
func TestAValueThatIsFalseIsThere(t *testing.T) {
	t.Parallel()
	traits := map[string]any{"newsletter": false, "rides": 0.0}
	for path, want := range map[string]string{"newsletter": "false", "rides": "0", "city": ""} {
		if got := valueOf(traits, path); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
}

// What is to come is said to the nearest unit, what was to the one that is over.
func TestThreeDaysAreThreeDaysASecondLater(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Duration]string{
		72*time.Hour - time.Second: "in 3 days", 24*time.Hour - time.Second: "in 24 h", time.Hour - time.Second: "in 1 h", 90 * time.Second: "in 2 min", 20 * time.Second: "in 20 s",
		-72*time.Hour + time.Second: "2 days ago",
	} {
		if got := string(when(now.Add(at), time.UTC, now)); !strings.Contains(got, ">"+want+"<") {
			t.Errorf("%s: %s, not %s", at, got, want)
		}
	}
}

// A sandbox has neither passwords nor sessions: its account leads to that of the client beside it.
func TestTheAccountOfASandboxIsBesideIt(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	ask := func(method, path, form string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		r.AddCookie(&http.Cookie{Name: sandboxCookie, Value: "cli_2"})
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, base(kindred.RoleOwner, "Staging", "admin"))))
		return w
	}
	page := ask("GET", "/console/account", "").Body.String()
	if strings.Contains(page, `type="password"`) || strings.Contains(page, "<table") || !strings.Contains(page, "beside this sandbox") {
		t.Errorf("a sandbox has a password, or sessions: %s", page)
	}
	if left := ask("POST", "/console/leave-sandbox", "to=account"); left.Header().Get("Location") != "/console/account" || cookies(left)[0].MaxAge >= 0 {
		t.Errorf("it leads to %s, and sets %v", left.Header().Get("Location"), cookies(left))
	}
}

// What was typed for one client is not done to another, in which another tab has signed in meanwhile.
func TestAFormThatWasShownForAnotherClientIsRefused(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	send := func(path, contentType, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", contentType)
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
			"/api/v1/users": kindred.User{ID: "usr_1"}, "/api/v1/clients/cli_1": map[string]any{"id": "cli_1"}, "/api/v1/traits": map[string]any{}, "/api/v1/users/import": kindred.Import{ID: "imp_1"},
		})
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		return w
	}
	for path, form := range map[string]string{"/console/users": "external_id=ann", "/console/settings": "name=Acme&min_score=0.5", "/console/traits": "path=age"} {
		const typed = "application/x-www-form-urlencoded"
		if w := send(path, typed, form+"&key=cli_1.KEY"); w.Code != http.StatusSeeOther {
			t.Errorf("%s of this client: %d %s", path, w.Code, w.Body)
		}
		w := send(path, typed, form+"&key=cli_2.KEY")
		if text := w.Body.String(); w.Code != http.StatusConflict || !strings.Contains(text, say("problem.this_form_is_of")) || !strings.Contains(text, `name="key" value="cli_2.KEY"`) {
			t.Errorf("%s of another client: %d %s", path, w.Code, text)
		}
	}
	for key, status := range map[string]int{"cli_1.KEY": http.StatusSeeOther, "cli_2.KEY": http.StatusConflict} {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		if err := form.WriteField("key", key); err != nil {
			t.Fatal(err)
		}
		if _, err := form.CreateFormFile("file", "people.ndjson"); err != nil {
			t.Fatal(err)
		}
		if err := form.Close(); err != nil {
			t.Fatal(err)
		}
		if w := send("/console/users/import", form.FormDataContentType(), body.String()); w.Code != status {
			t.Errorf("a file, by the key %s: %d %s", key, w.Code, w.Body)
		}
	}
}

// A new password ends the tokens of a session that goes on, also that of a page which another tab loads just then.
func TestAPageWhoseTokenEndsIsMadeAgain(t *testing.T) {
	t.Parallel()
	for what, world := range map[string]struct {
		lasts  bool // the session
		status int
	}{
		"the token alone has ended":     {true, http.StatusOK},
		"the session has ended with it": {false, http.StatusSeeOther},
	} {
		ended := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/traits": refusal{Status: http.StatusUnauthorized, Code: "invalid_token"}})
		now := base(kindred.RoleOwner, "Acme", "admin")
		if !world.lasts {
			now["/auth/sessions/token"] = refusal{Status: http.StatusUnauthorized, Code: "invalid_session"}
		}
		pages, asked := pagesOf(t), 0
		ctx := context.WithValue(t.Context(), madeKey{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/auth/sessions/token" {
				asked++
			}
			if asked > 1 {
				now.ServeHTTP(w, r)
			} else {
				ended.ServeHTTP(w, r)
			}
		}))
		r := httptest.NewRequest(http.MethodGet, "/console/users", nil)
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r.WithContext(ctx))
		signedOut := len(cookies(w)) > 0
		if w.Code != world.status || signedOut == world.lasts {
			t.Errorf("%s: %d %v", what, w.Code, w.Header())
		}
	}
}

// Who sends a form to a sandbox that is deleted just then, or was before, is told so, and stays signed in to the client beside
// it, which the form does not reach.
func TestAFormOfASandboxThatWasDeletedSignsNobodyOut(t *testing.T) {
	t.Parallel()
	const gone = "The sandbox was deleted"
	for what, c := range map[string]struct {
		method, path, form string
		before             bool // it was deleted before the form was sent
		status             int
		says               string
	}{
		"a form while it is deleted":      {"POST", "users", "external_id=ann&key=cli_2.KEY", false, 410, gone},
		"a form after it was deleted":     {"POST", "users", "external_id=ann&key=cli_2.KEY", true, 410, gone},
		"a form without a key":            {"POST", "campaigns/cam_1", "status=running", true, 410, gone},
		"a form of the client beside it":  {"POST", "users", "external_id=ann&key=cli_1.KEY", true, 303, ""},
		"a page of what was in it":        {"GET", "campaigns/cam_1", "", true, 410, gone},
		"a page that the client has, too": {"GET", "campaigns", "", true, 200, "The sandbox that was open is not there any more. This is Acme."},
		"that its sender signs out":       {"POST", "sign-out", "", true, 303, ""},
	} {
		deleted, reached := c.before, false
		live := base(kindred.RoleOwner, "Acme", "admin").plus(made{
			"/api/v1/users": kindred.User{ID: "usr_1"}, "/api/v1/campaigns/cam_1": refusal{Status: http.StatusNotFound, Code: "campaign_unknown"},
		})
		world := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			switch signs, inside := r.URL.Path == "/auth/sessions/token", bytes.Contains(asked, []byte("cli_2")); {
			case signs && inside && !deleted:
				made{r.URL.Path: kindred.LoggedIn{Client: kindred.ClientName{ID: "cli_2"}, Token: "e30.eyJhdWQiOiJjbGlfMiJ9.x"}}.ServeHTTP(w, r)
			case signs && inside:
				made{r.URL.Path: refusal{Status: http.StatusForbidden, Code: "other_client"}}.ServeHTTP(w, r)
			case !deleted:
				deleted = true
				made{r.URL.Path: refusal{Status: http.StatusUnauthorized, Code: "invalid_token"}}.ServeHTTP(w, r)
			default:
				reached = reached || !signs && r.Method == http.MethodPost
				live.ServeHTTP(w, r)
			}
		})
		r := httptest.NewRequest(c.method, Path+c.path, strings.NewReader(c.form))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		r.AddCookie(&http.Cookie{Name: sandboxCookie, Value: "cli_2"})
		w := httptest.NewRecorder()
		pagesOf(t).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || reached != (c.status == http.StatusSeeOther && c.path == "users") {
			t.Errorf("%s: %d, and the client is reached: %v: %s", what, w.Code, reached, w.Body)
		}
		for _, set := range cookies(w) {
			if set.Name == "__Host-kindred" && c.path != "sign-out" {
				t.Errorf("%s signs out: %v", what, set)
			}
		}
	}
}

// An endpoint may be deleted after it was listed: the page shows the others.
func TestAnEndpointThatIsGoneMeanwhileIsNotShown(t *testing.T) {
	t.Parallel()
	there, gone := kindred.Webhook{ID: "whk_1", URL: "https://there.example"}, kindred.Webhook{ID: "whk_2", URL: "https://gone.example"}
	page := rendered(t, pagesOf(t), base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/clients/cli_1/webhooks": kindred.WebhookList{Data: []kindred.Webhook{there, gone}}, "/api/v1/clients/cli_1/webhooks/whk_1": there,
		"/api/v1/clients/cli_1/webhooks/whk_2": refusal{Status: http.StatusNotFound, Code: "not_found"},
	}), http.MethodGet, "webhooks", "")
	if !strings.Contains(page, there.URL) || strings.Contains(page, gone.URL) {
		t.Error(page)
	}
}

// What was dropped is sent again from before the endpoint began to fail, and at least of a day.
func TestWhatIsSentAgainBeginsBeforeAnEndpointFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		health *kindred.WebhookHealth
		since  time.Duration
	}{
		"one that does not tell":   {nil, 24 * time.Hour},
		"one that answers":         {&kindred.WebhookHealth{LastSuccessAt: new(ago(time.Hour))}, 24 * time.Hour},
		"one that fails for hours": {&kindred.WebhookHealth{FailingSince: new(ago(3 * time.Hour))}, 24 * time.Hour},
		"one that fails for days":  {&kindred.WebhookHealth{FailingSince: new(ago(72 * time.Hour))}, 73 * time.Hour},
	} {
		page := rendered(t, pagesOf(t), full("Acme").plus(made{
			"/api/v1/clients/cli_1/webhooks/whk_1": kindred.Webhook{ID: "whk_1", URL: "https://example.com/", Status: kindred.WebhookStatusActive, CreatedAt: ago(time.Hour), Deliveries: c.health},
		}), http.MethodGet, "webhooks/whk_1", "")
		if want := `name="since" required value="` + ago(c.since).Format(typedLayout) + `"`; !strings.Contains(page, want) {
			t.Errorf("%s lacks %s: %s", name, want, page)
		}
	}
}

// Who signs up with a password of many thousand letters reads what is wrong with it.
func TestWhatIsTooLargeIsSaidToBe(t *testing.T) {
	t.Parallel()
	page := rendered(t, pagesOf(t), made{"/auth/signup": refusal{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Detail: "The body is larger than 4096 bytes."}}, http.MethodPost, "sign-up", "company_name=Acme&email=ada%40example.com&password=long")
	if !strings.HasPrefix(page, "413 ") || !strings.Contains(page, "What was sent is too large.") {
		t.Error(page)
	}
}

// An address that is there is not said to be missing where it is asked in another way.
func TestAnAddressNamesTheMethodsThatItTakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, path, allow string
		status              int
	}{
		{http.MethodDelete, "users", "GET, POST", 405},
		{http.MethodPut, "sign-in", "GET, POST", 405},
		{http.MethodPost, "history", "GET", 405},
		{http.MethodPatch, "webhooks/whk_1/test", "GET, POST", 405},
		{http.MethodDelete, "nowhere", "", 404},
		{http.MethodGet, "nowhere", "", 404},
	} {
		w := httptest.NewRecorder()
		pagesOf(t).ServeHTTP(w, httptest.NewRequest(c.method, Path+c.path, nil))
		if allow := w.Header().Get("Allow"); w.Code != c.status || allow != c.allow || !strings.Contains(w.Body.String(), "<h1>") {
			t.Errorf("%s %s: %d, allowed %q: %s", c.method, c.path, w.Code, allow, w.Body)
		}
	}
}

// A browser saves what comes with a name as a file, whatever its status: a refusal that is saved is taken for the members.
func TestADownloadThatIsRefusedIsAPage(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	busy := refusal{Status: http.StatusServiceUnavailable, Code: "overloaded", Detail: "Too much is going on."}
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/segments/seg_1/members?": busy, "/api/v1/clients/cli_1/history?": busy, "/api/v1/users?": busy, "/api/v1/segments/seg_2/members?": kindred.SegmentMemberList{},
		"/api/v1/segments/seg_1": kindred.Segment{ID: "seg_1"}, "/api/v1/segments/seg_2": kindred.Segment{ID: "seg_2"},
	})
	for path, want := range map[string]int{"segments/seg_1/members.csv": 503, "history.ndjson": 503, "users.csv": 503, "segments/seg_2/members.csv": 200} {
		r := httptest.NewRequest(http.MethodGet, Path+path, nil)
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		file, page := w.Header().Get("Content-Disposition") != "", strings.Contains(w.Body.String(), "Too much is going on.</p>")
		if w.Code != want || file != (want == http.StatusOK) || page == file {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}

// Who compares segments has a file of each, and knows which is which, whatever they are called.
func TestTheMembersOfASegmentAreAFileOfItsName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Pros", `"Grown-up"; filename=x`, "مشتركون 🎷", "a\\b/c"} {
		world := base(kindred.RoleViewer, "Acme", "read").plus(made{"/api/v1/segments/seg_1": kindred.Segment{ID: "seg_1", Name: name}})
		r := httptest.NewRequest(http.MethodGet, Path+"segments/seg_1/members.csv", nil)
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		w := httptest.NewRecorder()
		pagesOf(t).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		kind, said, err := mime.ParseMediaType(w.Header().Get("Content-Disposition"))
		if err != nil || kind != "attachment" || said["filename"] != "members of "+name+".csv" || w.Code != http.StatusOK {
			t.Errorf("%s: %d %v %v", name, w.Code, w.Header(), err)
		}
	}
}

// What a file is says its content, whatever it is called. The header of a CSV file is a line of the API's, and nobody.
func TestTheHeaderOfAFileIsNotCounted(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	for content, to := range map[string]string{
		"external_id,age\na,1": "/console/imports/imp_1?csv=1", "": "/console/imports/imp_1?csv=1", "\ufeff\n {\"external_id\":\"a\"}": "/console/imports/imp_1",
	} {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		file, err := form.CreateFormFile("file", "people.txt")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(file, content); err != nil {
			t.Fatal(err)
		}
		if err := form.Close(); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/console/users/import", &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		w := httptest.NewRecorder()
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/users/import": kindred.Import{ID: "imp_1"}})
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		if got := w.Header().Get("Location"); got != to {
			t.Errorf("%q leads to %q, not %q", content, got, to)
		}
	}
}

// Who sends a file while a new password ends the token of the page is told so: the file cannot be read a second time.
func TestAFileWhoseTokenEndsIsChosenAgain(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	for _, path := range []string{"import", "import/preview"} {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		if _, err := form.CreateFormFile("file", "people.csv"); err != nil {
			t.Fatal(err)
		}
		if err := form.Close(); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "/console/users/"+path, &body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		w := httptest.NewRecorder()
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/users/" + path: refusal{Status: http.StatusUnauthorized, Code: "invalid_token"}})
		pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
		if w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), say("users.your_password_was")) || len(cookies(w)) > 0 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// A file that is not CSV either is refused with why it was taken for it.
func TestAFileThatIsNoCSVIsToldWhyItWasReadAsOne(t *testing.T) {
	t.Parallel()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "people.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(file, `"external_id"`+strings.Repeat(" ", 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/console/users/import", &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
	w := httptest.NewRecorder()
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/users/import": refusal{Status: http.StatusBadRequest, Code: "invalid_csv", Detail: "No header."}})
	pagesOf(t).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
	if w.Code != http.StatusUnprocessableEntity || !strings.Contains(html.UnescapeString(w.Body.String()), say("users.it_was_read_as", "No header.")) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if body.Len() > 0 {
		t.Errorf("%d bytes are left to send", body.Len())
	}
}

// What is no object is sent as CSV, where the API refuses a list or a workbook as a whole: as lines, each would be refused.
func TestAFileIsSentAsWhatItBeginsWith(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	const lines, csv = "application/x-ndjson", "text/csv"
	for content, as := range map[string]string{
		"\ufeff\n {}": lines, "{}\n[": lines, "[{\"external_id\":\"a\"}]": csv, "PK\x03\x04\x14\x00": csv, "": csv, "P": csv, "\n \n": csv,
	} {
		for _, path := range []string{"import", "import/preview"} {
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			file, err := form.CreateFormFile("file", "people.csv")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(file, content); err != nil {
				t.Fatal(err)
			}
			if err := form.Close(); err != nil {
				t.Fatal(err)
			}
			var sent, sentAs string
			world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/users/import": kindred.Import{ID: "imp_1"}, "/api/v1/users/import/preview": kindred.ImportPreview{}})
			api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/api/v1/users/import") {
					all, err := io.ReadAll(r.Body)
					if sent, sentAs = string(all), r.Header.Get("Content-Type"); err != nil {
						t.Error(err)
					}
				}
				world.ServeHTTP(w, r)
			})
			r := httptest.NewRequest(http.MethodPost, "/console/users/"+path, &body)
			r.Header.Set("Content-Type", form.FormDataContentType())
			r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, api)))
			if w.Code >= http.StatusBadRequest || sent != content || sentAs != as {
				t.Errorf("%s of %q: %d, %q is sent as %s", path, content, w.Code, sent, sentAs)
			}
		}
	}
}

func TestWhatASensitiveTraitIsAllowedByIsALink(t *testing.T) {
	t.Parallel()
	got := string(allowing(`1 < 2: traits.a&b.sex is sensitive. To allow it, set "sensitive": false for it in the trait schema.`))
	if want := `1 &lt; 2: traits.a&amp;b.sex is sensitive. <a href="/console/traits?path=a%26b.sex#change">Allow it on its page.</a>`; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

// A list begins with the oldest: what is the latest stands at its end, however long it is.
func TestTheLatestOfManyRunsIsShown(t *testing.T) {
	t.Parallel()
	world := full("Acme").plus(made{"/api/v1/clustering_runs/run_new/map": refusal{Status: http.StatusConflict, Code: "run_not_current"}, "/api/v1/clustering_runs/run_new/flow": kindred.ClusteringFlow{}})
	longAgo, lately := ago(2000*time.Hour), ago(time.Hour)
	runs, drifts := make([]kindred.ClusteringRun, allOf), make([]kindred.ClusterDrift, allOf)
	for i := range allOf {
		runs[i], drifts[i] = kindred.ClusteringRun{ID: "run_old", Status: kindred.RunStatusCompleted, CreatedAt: longAgo}, kindred.ClusterDrift{At: longAgo, Severity: "none"}
	}
	pages, more := pagesOf(t), new("more")
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := made{}
		switch first := r.URL.Query().Get("cursor") == ""; {
		case strings.HasSuffix(r.URL.Path, "/clustering_runs") && first:
			next[r.URL.Path] = kindred.ClusteringRunList{Data: runs, NextCursor: more}
		case strings.HasSuffix(r.URL.Path, "/clustering_runs"):
			next[r.URL.Path] = kindred.ClusteringRunList{Data: []kindred.ClusteringRun{{ID: "run_new", Status: kindred.RunStatusCompleted, CreatedAt: lately}}}
		case strings.HasSuffix(r.URL.Path, "/drift") && first:
			next[r.URL.Path] = kindred.ClusterDriftList{Data: drifts, NextCursor: more}
		case strings.HasSuffix(r.URL.Path, "/drift"):
			next[r.URL.Path] = kindred.ClusterDriftList{Data: []kindred.ClusterDrift{{At: lately, Severity: "major"}}}
		}
		world.plus(next).ServeHTTP(w, r)
	})
	for path, want := range map[string]string{"clusters": "/console/runs/run_new", "clusters/clu_1": stamp(lately, time.UTC)} {
		page := rendered(t, pages, api, http.MethodGet, path, "")
		if !strings.Contains(page, want) || !strings.Contains(page, say("cluster.severity_major")) {
			t.Errorf("%s: %s", path, page)
		}
	}
}

// A rule that is tried under a layer names those who grant it.
func TestARuleIsTriedUnderTheLayerThatWasChosen(t *testing.T) {
	t.Parallel()
	pages := pagesOf(t)
	var asked kindred.RuleToPreview
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/rules/preview" {
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
				t.Error(err)
			}
		}
		full("Acme").ServeHTTP(w, r)
	})
	for _, layer := range []string{"", "lay_1"} {
		page := rendered(t, pages, api, http.MethodGet, "segments?preview=1&rule=true&layer="+layer, "")
		if asked.Rule != "true" || deref(asked.ConsentLayerID) != layer {
			t.Errorf("under %q it is tried under %v: %s", layer, deref(asked.ConsentLayerID), page)
		}
	}
}

// To an admin sessions are listed of all members, and its own may stand behind hundreds.
func TestSigningOutEndsTheSessionAmongMany(t *testing.T) {
	t.Parallel()
	others, ended := make([]kindred.Session, allOf), ""
	for i := range others {
		others[i].ID = "ses_other"
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const sessions = "/api/v1/clients/cli_1/sessions"
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{sessions: kindred.SessionList{Data: others, NextCursor: new("more")}})
		if r.URL.Query().Get("cursor") != "" {
			world[sessions] = kindred.SessionList{Data: []kindred.Session{{ID: "ses_own", Current: true}}}
		}
		if r.Method == http.MethodDelete {
			ended = r.URL.Path
			w.WriteHeader(http.StatusNoContent)
			return
		}
		world.ServeHTTP(w, r)
	})
	page := rendered(t, pagesOf(t), api, http.MethodPost, "sign-out", "key=KEY")
	if !strings.HasPrefix(page, "303 /console/sign-in") || !strings.HasSuffix(ended, "/ses_own") {
		t.Errorf("it ended %q: %s", ended, page)
	}
}

func TestAFormThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	for _, sent := range []struct{ path, form string }{
		{"sign-in", "email=%zz"},
		{"sign-up", "company_name=" + strings.Repeat("a", largestEntrance)},
		{"traits", "key=" + strings.Repeat("a", largestForm)},
		// A call to the API carries no such text, and no such header.
		{"sign-up", "email=a@example.com&password=correct+horse&company_name=%ff"},
		{"users", "key=KEY&external_id=%ed%a0%80"},
		{"users", "key=%C3%BC&external_id=u1"},
		{"users", "key=a%00&external_id=u1"},
		{"segments/seg_1", "etag=%22%D9%A3%22&name=a"},
		{"segments/seg_1", "etag=%221%22%0d%0aX:+y&name=a"},
	} {
		page := rendered(t, pagesOf(t), base(kindred.RoleOwner, "Acme", "admin"), http.MethodPost, sent.path, sent.form)
		if !strings.HasPrefix(page, "400 ") || !strings.Contains(page, say("problem.this_form_cannot_be")) {
			t.Errorf("%s %.40q: %.200s", sent.path, sent.form, page)
		}
	}
}

// Where too many forms are served, one more is none that the service keeps.
func TestAFormBeyondThoseThatAreServedIsRefused(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"sign-in", "sign-up", "traits"} {
		r := httptest.NewRequest(http.MethodPost, Path+path, strings.NewReader("key=a"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		pagesOf(t).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tooManyKey{}, true)))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), say("problem.please_try_again_in")) {
			t.Errorf("%s: %d: %.200s", path, w.Code, w.Body)
		}
	}
}

// A proxy that is not trusted hides nobody: whoever comes through it may not pass for this machine itself.
func TestTheAPIHearsOfAProxy(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"} {
		heard := ""
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			heard = r.Header.Get(name)
			base(kindred.RoleOwner, "Acme", "admin").ServeHTTP(w, r)
		})
		r := httptest.NewRequest(http.MethodPost, "/console/sign-up", strings.NewReader("email=a%40b.c&password=x&company_name=Acme"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(name, "192.0.2.1")
		pagesOf(t).ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), madeKey{}, api)))
		if heard != "192.0.2.1" {
			t.Errorf("%s is kept from the API", name)
		}
	}
}

// The clock of a sandbox may be years ahead: its pages go by that, as what happens in it does.
func TestTheFiguresOfASandboxGoByItsClock(t *testing.T) {
	t.Parallel()
	ahead := now.AddDate(3, 0, 0)
	campaign := kindred.Campaign{ID: "cam_1", Currency: "EUR", BudgetMinor: 1000, Status: kindred.CampaignStatusRunning, StartedAt: new(ahead.Add(-time.Hour)), EndsAt: new(ahead.Add(3 * time.Hour))}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		world := base(kindred.RoleOwner, "Staging", "admin").plus(made{
			"/api/v1/clients/cli_1/clock": kindred.Clock{Now: ahead}, "/api/v1/campaigns/cam_1": campaign, "/api/v1/campaigns/cam_1/analytics": kindred.CampaignAnalytics{},
		})
		if from, err := time.Parse(time.RFC3339, r.URL.Query().Get("from")); err == nil && ahead.Sub(from) > 2*days*24*time.Hour {
			world["/api/v1/statistics"] = refusal{Status: http.StatusUnprocessableEntity, Code: "invalid", Errors: []kindred.FieldError{{Pointer: "from", Detail: "begins more than 1000 intervals"}}}
		}
		world.ServeHTTP(w, r)
	})
	for path, want := range map[string]string{"": "Overview", "campaigns/cam_1": "25\u00a0%"} {
		r := httptest.NewRequest(http.MethodGet, Path+path, nil)
		r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
		r.AddCookie(&http.Cookie{Name: sandboxCookie, Value: "cli_1"})
		w := httptest.NewRecorder()
		pagesOf(t).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, api)))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %d %s", path, w.Code, w.Body)
		}
	}
}

// Who was added just now was added by the sandbox's clock, not two days from now. What the service's clock dates, such as the
// use of a key, stands beside it: all is written out.
func TestTimesOfASandboxAreWrittenOut(t *testing.T) {
	t.Parallel()
	ahead := now.Add(50 * time.Hour)
	world := base(kindred.RoleOwner, "Staging", "admin").plus(made{
		"/api/v1/users":                  kindred.UserList{Data: []kindred.User{{ID: "usr_1", ExternalID: "ann", UpdatedAt: ahead}}},
		"/api/v1/clients/cli_1/api_keys": kindred.APIKeyList{Data: []kindred.APIKey{{ID: "key_1", Name: "backend", LastUsedAt: new(now)}}},
	})
	pages := pagesOf(t)
	for path, want := range map[string]string{"users": ">27 Nov 2026, 11:30<", "developers": ">25 Nov 2026, 09:30<"} {
		for _, inside := range []bool{true, false} {
			r := httptest.NewRequest(http.MethodGet, Path+path, nil)
			r.AddCookie(&http.Cookie{Name: "__Host-kindred", Value: "secret"})
			if inside {
				r.AddCookie(&http.Cookie{Name: sandboxCookie, Value: "cli_1"})
			}
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), want) != inside {
				t.Errorf("%s, in a sandbox %t: %d %s", path, inside, w.Code, w.Body)
			}
		}
	}
}

// Go finds zones among the files of its host that the API takes for none: a page that asks it for days of one would be refused.
func TestAZoneThatTheAPITakesForNoneIsUTC(t *testing.T) {
	t.Parallel()
	for named, want := range map[string]string{
		"Europe/Berlin": "Europe/Berlin", "Etc/GMT+10": "Etc/GMT+10", "UTC": "UTC",
		"posix/Europe/Berlin": "UTC", "right/Europe/Berlin": "UTC", "localtime": "UTC", "posixrules": "UTC", "Local": "UTC", "Nowhere/At/All": "UTC", "": "UTC",
	} {
		r := httptest.NewRequest(http.MethodGet, Path, nil)
		r.AddCookie(&http.Cookie{Name: zoneCookie, Value: named})
		if got := zoneOf(r).String(); got != want {
			t.Errorf("%q is %s, not %s", named, got, want)
		}
	}
}

// Of many things that need somebody eight are seen at once, the others are folded, and how many there are is said.
func TestWhatNeedsSomebodyIsCounted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failing    int
		more       bool
		says, lack []string
	}{
		{8, false, []string{`chip warn">8</span>`, "No delivery waits."}, []string{"other", "more than these"}},
		{9, false, []string{`chip warn">9</span>`, "<summary>1 other</summary>"}, []string{"more than these"}},
		{12, true, []string{`chip warn">12+</span>`, "<summary>4 others</summary>", "more than these 12"}, nil},
	} {
		world := base(kindred.RoleOwner, "Acme", "admin")
		found := kindred.AttentionList{HasMore: c.more}
		for i := range c.failing {
			id := "whk_" + strconv.Itoa(i)
			found.Data = append(found.Data, kindred.AttentionItem{Kind: kindred.AttentionKindEndpointFailing, Severity: kindred.AttentionSeverityCritical, SubjectID: id, Since: new(now)})
			world["/api/v1/clients/cli_1/webhooks/"+id] = kindred.Webhook{ID: id, URL: "https://example.com/" + id}
		}
		world["/api/v1/attention"] = found
		page := rendered(t, pagesOf(t), world, http.MethodGet, "", "")
		_, card, _ := strings.Cut(page, "Needs attention")
		card, _, _ = strings.Cut(card, "</section>")
		if strings.Count(card, "endpoint failing") != c.failing {
			t.Errorf("of %d not all are there: %s", c.failing, card)
		}
		for _, says := range c.says {
			if !strings.Contains(card, says) {
				t.Errorf("of %d it does not say %q: %s", c.failing, says, card)
			}
		}
		for _, lacks := range c.lack {
			if strings.Contains(card, lacks) {
				t.Errorf("of %d it says %q: %s", c.failing, lacks, card)
			}
		}
	}
}

// A series leaves out the days on which nobody came or went.
func TestUsersAreThereOnDaysOnWhichNobodyCame(t *testing.T) {
	t.Parallel()
	went := kindred.UserCounts{Erased: 100, There: 900}
	for name, c := range map[string]struct {
		found kindred.Statistics
		shows []string
	}{
		"at all":         {kindred.Statistics{Total: kindred.StatisticCounts{Users: &kindred.UserCounts{There: 399}}}, []string{">399<"}},
		"before some go": {kindred.Statistics{Total: kindred.StatisticCounts{Users: &went}, Series: []kindred.StatisticEntry{{Start: now.AddDate(0, 0, -5), Users: &went}}}, []string{">900<", `class="l1" d="M0.0 4.0L`}},
	} {
		world := base(kindred.RoleOwner, "Acme", "admin").plus(made{"/api/v1/statistics": c.found})
		page := rendered(t, pagesOf(t), world, http.MethodGet, "", "")
		for _, text := range c.shows {
			if !strings.Contains(page, text) {
				t.Errorf("%s: the overview lacks %s: %s", name, text, page)
			}
		}
	}
}

// In Santiago the 6th of September of 2026 begins at 1: it is a day of the overview all the same.
func TestADayWithoutMidnightIsShown(t *testing.T) {
	t.Parallel()
	world := base(kindred.RoleOwner, "Staging", "admin").plus(made{
		"/api/v1/clients/cli_1/clock": kindred.Clock{Now: time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)},
		"/api/v1/statistics": kindred.Statistics{Series: []kindred.StatisticEntry{{
			Start: time.Date(2026, 9, 6, 4, 0, 0, 0, time.UTC), Spend: []kindred.SpentAmount{{Currency: "EUR", AmountMinor: 517}}, Deliveries: &kindred.DeliveryCounts{FirstTry: 3},
		}}},
	})
	r := httptest.NewRequest(http.MethodGet, Path, nil)
	for name, value := range map[string]string{"__Host-kindred": "secret", sandboxCookie: "cli_1", zoneCookie: "America/Santiago"} {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	pagesOf(t).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, world)))
	text := w.Body.String()
	if !strings.Contains(text, "5.17") || !strings.Contains(text, `<th scope="row">6 Sep</th><td class="num">3</td>`) || strings.Count(text, `<th scope="row">5 Sep</th>`) != 1 {
		t.Errorf("%s", text)
	}
}

// A series leaves out the days on which nothing was spent, and the oldest of many: what was spent by a day holds these, and an
// even pace is what it is at the end of that day, not of the days after it.
func TestWhatWasSpentByADayStandsBesideAnEvenPaceByThatDay(t *testing.T) {
	t.Parallel()
	started := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	spent := func(day int, minor int64) kindred.AnalyticsInterval {
		return kindred.AnalyticsInterval{Start: started.AddDate(0, 0, day-1), SpentMinor: minor}
	}
	world := base(kindred.RoleOwner, "Acme", "admin").plus(made{
		"/api/v1/campaigns/cam_1": kindred.Campaign{
			ID: "cam_1", Currency: "EUR", BudgetMinor: 30_000, SpentMinor: 20_000, Status: kindred.CampaignStatusRunning,
			StartedAt: &started, EndsAt: new(started.AddDate(0, 0, 30)),
		},
		"/api/v1/campaigns/cam_1/analytics": kindred.CampaignAnalytics{
			Currency: "EUR", SpentMinor: 20_000, Series: []kindred.AnalyticsInterval{spent(3, 1_000), spent(4, 500), spent(20, 700)},
		},
		"/api/v1/campaigns/cam_2": kindred.Campaign{
			ID: "cam_2", Currency: "EUR", BudgetMinor: 30_000, SpentMinor: 30_000, Status: kindred.CampaignStatusCompleted,
			StartedAt: &started, EndsAt: new(started.AddDate(0, 0, 10)), UpdatedAt: started.AddDate(0, 0, 3),
		},
		"/api/v1/campaigns/cam_2/analytics": kindred.CampaignAnalytics{
			Currency: "EUR", SpentMinor: 30_000, Series: []kindred.AnalyticsInterval{spent(1, 1_000), spent(4, 29_000)},
		},
	})
	if early := rendered(t, pagesOf(t), world, http.MethodGet, "campaigns/cam_2", ""); !strings.Contains(early, "an even pace would be at 30\u00a0%") ||
		!strings.Contains(strings.ReplaceAll(early, "\n", ""), `<th scope="row">4 Nov</th><td class="num">300.00</td><td class="num">90.00</td>`) {
		t.Errorf("a campaign that ended early is not held beside the pace of its end: %s", early)
	}
	page := strings.ReplaceAll(rendered(t, pagesOf(t), world, http.MethodGet, "campaigns/cam_1", ""), "\n", "")
	for day, want := range map[string][]string{"3 Nov": {"188.00", "30.00"}, "4 Nov": {"193.00", "40.00"}, "20 Nov": {"200.00", "200.00"}} {
		row := `<th scope="row">` + day + "</th>"
		for _, value := range want {
			row += `<td class="num">` + value + "</td>"
		}
		if !strings.Contains(page, row) {
			t.Errorf("the page lacks %s: %s", row, page)
		}
	}
}

// Pages lead on: an event to who did it, where a page shows that, and what is done or failing to what comes next.
func TestPagesLeadOn(t *testing.T) {
	t.Parallel()
	pages, by := pagesOf(t), full("Acme")
	paused := by.plus(made{"/api/v1/clients/cli_1/webhooks/whk_1": kindred.Webhook{ID: "whk_1", URL: "https://example.com/", Status: kindred.WebhookStatusPaused, CreatedAt: ago(time.Hour), PausedBecause: new(kindred.PausedBecause("failing"))}})
	unknown := by.plus(made{"/api/v1/clients/cli_1/api_keys": list([]kindred.APIKey{{ID: "key_9", Name: "another"}})})
	busy := refusal{Status: http.StatusServiceUnavailable, Code: "overloaded", Detail: "Too much is going on."}
	noKeys, noMembers := by.plus(made{"/api/v1/clients/cli_1/api_keys": busy}), by.plus(made{"/api/v1/clients/cli_1/members": busy})
	auditor := by.plus(base(kindred.RoleAuditor, "Acme", "read", "audit"))
	viewer := by.plus(base(kindred.RoleViewer, "Acme", "read"))
	for _, c := range []struct {
		world      made
		path, link string
		leads      bool
	}{
		{by, "history", `href="/console/developers#key_1"`, true},
		{by, "history/3", `href="/console/developers#key_1"`, true},
		{by, "developers", `id="key_1"`, true},
		{by, "settings", `id="mem_1"`, true},
		{unknown, "history", `href="/console/developers#`, false},
		{auditor, "history", `href="/console/developers#`, false},
		{auditor, "history", `key_1</span>`, true},
		{noKeys, "history", `key_1</span>`, true},
		{noMembers, "history/3", `href="/console/developers#key_1"`, true},
		{by, "first-steps", `href="/console/clusters"`, true},
		{by, "webhooks/whk_1", `href="#again"`, true},
		{by, "webhooks/whk_1", `id="again"`, true},
		{paused, "webhooks/whk_1", `href="#again"`, true},
		{viewer, "webhooks/whk_1", `href="#again"`, false},
	} {
		page := rendered(t, pages, c.world, http.MethodGet, c.path, "")
		_, main, _ := strings.Cut(page, "<main")
		if strings.Contains(main, c.link) != c.leads {
			t.Errorf("%s has %s: %t, want %t", c.path, c.link, !c.leads, c.leads)
		}
	}
}
