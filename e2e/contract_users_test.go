package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/httpapi"
)

func TestUsers(t *testing.T) {
	t.Parallel()
	s := sharedContract(t)

	t.Run("a created user is answered, got and listed alike", func(t *testing.T) {
		a := s.signUp()
		traits := `{"age":42,"big":12345678901234567890,"exact":1.10,"list":["b","a"],"nested":{"deep":{"er":null}},"text":"naïve 🙂"}`
		got := a.send("POST", "/api/v1/users", `{"external_id":"first","traits":`+traits+`}`)
		created := want[httpapi.User](t, http.StatusCreated, got)
		wantTimestamps(t, got.Body)
		if !strings.Contains(string(got.Body), traits) {
			t.Errorf("traits are %s", created.Traits)
		}
		if at := got.Header.Get("X-Kindred-Position"); at == "" || got.Header.Get("Location") != "/api/v1/users/"+string(created.ID) {
			t.Errorf("headers %v", got.Header)
		}
		bare := a.send("POST", "/api/v1/users", `{"external_id":"second"}`)
		wantShape(t, bare.Body, "id string", "external_id string", "traits object", "created_at string", "updated_at string")
		for _, ref := range []string{string(created.ID), "ext:first"} {
			read := a.get("/api/v1/users/" + ref)
			if diff := cmp.Diff(string(got.Body), string(read.Body)); diff != "" || read.Status != http.StatusOK {
				t.Errorf("%s: %d %s", ref, read.Status, diff)
			}
			if read.Header.Get("ETag") != got.Header.Get("ETag") {
				t.Errorf("ETag %s, then %s", got.Header.Get("ETag"), read.Header.Get("ETag"))
			}
		}
		wantUsers(t, a, "", "first", "second")
	})

	t.Run("of many creations of one external id, one succeeds", func(t *testing.T) {
		a := s.signUp()
		answers := together(20, func(i int) answer {
			return a.send("POST", "/api/v1/users", map[string]any{"external_id": "contended", "traits": map[string]int{"i": i}})
		})
		var statuses []int
		for _, got := range answers {
			statuses = append(statuses, got.Status)
			if got.Status != http.StatusCreated {
				wantProblem(t, http.StatusConflict, "user_exists", got)
			}
		}
		if count(statuses, http.StatusCreated) != 1 {
			t.Errorf("%v", statuses)
		}
		wantUsers(t, a, "", "contended")
	})

	t.Run("many users at once are all created and all listed, and pages hold each once", func(t *testing.T) {
		a := s.signUp()
		writing := make(chan []answer, 1)
		go func() {
			writing <- together(120, func(i int) answer {
				return a.send("POST", "/api/v1/users", map[string]string{"external_id": fmt.Sprint("user-", i)})
			})
		}()
		var answers []answer
		for answers == nil { // read all the while
			select {
			case answers = <-writing:
			default:
				if twice := duplicates(each[httpapi.User](t, a, "/api/v1/users", 7)); len(twice) > 0 {
					t.Errorf("listed twice: %v", twice)
				}
			}
		}
		positions := map[string]string{} // of the writes, by external id
		for _, got := range answers {
			positions[want[httpapi.User](t, http.StatusCreated, got).ExternalID] = got.Header.Get("X-Kindred-Position")
		}
		listed := each[httpapi.User](t, a, "/api/v1/users", 7)
		if len(listed) != 120 || len(duplicates(listed)) > 0 {
			t.Fatalf("%d users are listed", len(listed))
		}
		if !slices.IsSortedFunc(listed, func(x, y httpapi.User) int {
			return strings.Compare(positions[x.ExternalID], positions[y.ExternalID])
		}) {
			t.Error("the list is not in the order of creation")
		}
	})

	t.Run("a rule filters the list", func(t *testing.T) {
		a := s.signUp()
		lines := ""
		for i := range 500 {
			traits := fmt.Sprintf(`{"n":%d,"plan":%q}`, i, []string{"free", "pro"}[i%2])
			if i%5 == 0 {
				traits = `{"n":null}`
			}
			lines += fmt.Sprintf("{\"external_id\":\"u%d\",\"traits\":%s}\n", i, traits)
		}
		if got := a.send("POST", "/api/v1/users/import", lines, ndjson); got.Status != http.StatusOK {
			t.Fatal(got)
		}
		named := func(rule string, limit int) (found []string) {
			for _, u := range each[httpapi.User](t, a, "/api/v1/users?filter="+url.QueryEscape(rule), limit) {
				found = append(found, u.ExternalID)
			}
			return found
		}
		rare := named(`traits.plan == "pro" && traits.n > 490`, 7)
		if want := []string{"u491", "u493", "u497", "u499"}; !slices.Equal(rare, want) {
			t.Errorf("%v, not %v", rare, want)
		}
		some := named(`traits.plan == "pro"`, 7)
		if len(some) != 200 || len(slices.Compact(slices.Sorted(slices.Values(some)))) != 200 || slices.Contains(some, "u5") || !slices.Contains(some, "u7") {
			t.Errorf("%d users: %v", len(some), some)
		}
		if none := named(`traits.n > 1000`, 7); len(none) != 0 {
			t.Errorf("%v", none)
		}
		if one := named(`user.external_id == "u3" && within(user.created_at, "1h")`, 7); !slices.Equal(one, []string{"u3"}) {
			t.Errorf("%v", one)
		}
		a.send("DELETE", "/api/v1/users/ext:u491", nil)
		if rare := named(`traits.plan == "pro" && traits.n > 490`, 2); !slices.Equal(rare, []string{"u493", "u497", "u499"}) {
			t.Errorf("after an erasure %v", rare)
		}
		stranger := s.signUp()
		if got := each[httpapi.User](t, stranger, "/api/v1/users?filter=true", 7); len(got) != 0 {
			t.Errorf("another client lists %v", got)
		}

		page := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users?limit=1&filter="+url.QueryEscape(`traits.n > 3`)))
		wantProblem(t, http.StatusBadRequest, "bad_cursor", a.get("/api/v1/users?limit=1&cursor="+*page.NextCursor+"&filter="+url.QueryEscape(`traits.n > 4`)))
		wrong := a.get("/api/v1/users?filter=" + url.QueryEscape("traits.plan == nothing(1)"))
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", wrong)
		if !strings.Contains(string(wrong.Body), `"filter"`) || !strings.Contains(string(wrong.Body), "line 1, column 23") {
			t.Errorf("%s", wrong.Body)
		}
	})

	t.Run("a patch merges, and null removes", func(t *testing.T) {
		a := s.signUp()
		user := a.createUser("patched", json.RawMessage(`{"a":1,"b":{"c":2,"d":[1,2]},"e":"x"}`))
		for _, step := range []struct{ patch, after string }{
			{`{}`, `{"a":1,"b":{"c":2,"d":[1,2]},"e":"x"}`},
			{`{"a":2}`, `{"a":2,"b":{"c":2,"d":[1,2]},"e":"x"}`},
			{`{"b":{"c":null,"n":{"x":null,"y":1}}}`, `{"a":2,"b":{"d":[1,2],"n":{"y":1}},"e":"x"}`},
			{`{"b":{"d":[null,3]},"e":null,"absent":null}`, `{"a":2,"b":{"d":[null,3],"n":{"y":1}}}`},
			{`{"b":7}`, `{"a":2,"b":7}`},
			{`{"a":null,"b":null}`, `{}`},
			{`{"new":{"deep":{"gone":null}}}`, `{"new":{"deep":{}}}`},
		} {
			got := a.send("PATCH", "/api/v1/users/"+string(user.ID), `{"traits":`+step.patch+`}`)
			changed := want[httpapi.User](t, http.StatusOK, got)
			wantJSON(t, step.after, changed.Traits)
			wantJSON(t, step.after, want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:patched")).Traits)
			if changed.ID != user.ID || !changed.CreatedAt.Equal(user.CreatedAt.Time) || changed.UpdatedAt.Before(user.UpdatedAt.Time) {
				t.Errorf("%+v", changed)
			}
		}
		wantProblem(t, http.StatusNotFound, "user_unknown", a.send("PATCH", "/api/v1/users/ext:nobody", `{"traits":{}}`))
		for _, wrong := range []string{`{}`, `{"traits":null}`, `{"traits":[]}`, `{"traits":{},"external_id":"other"}`} {
			wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("PATCH", "/api/v1/users/ext:patched", wrong))
		}
	})

	t.Run("no patch is lost, and a stale one is refused", func(t *testing.T) {
		a := s.signUp()
		user := a.createUser("busy", nil)
		statuses := together(20, func(i int) int {
			return a.send("PATCH", "/api/v1/users/ext:busy", fmt.Sprintf(`{"traits":{"t%d":%d}}`, i, i)).Status
		})
		if count(statuses, http.StatusOK) != 20 {
			t.Errorf("%v", statuses)
		}
		read := a.get("/api/v1/users/" + string(user.ID))
		var traits map[string]int
		if err := json.Unmarshal(want[httpapi.User](t, http.StatusOK, read).Traits, &traits); err != nil || len(traits) != 20 {
			t.Errorf("%d traits, %v", len(traits), err)
		}
		tag := header("If-Match", read.Header.Get("ETag"))
		won := together(5, func(i int) int {
			return a.send("PATCH", "/api/v1/users/ext:busy", fmt.Sprintf(`{"traits":{"winner":%d}}`, i), tag).Status
		})
		if count(won, http.StatusOK) != 1 || count(won, http.StatusPreconditionFailed) != 4 {
			t.Errorf("with one ETag: %v", won)
		}
		wantProblem(t, http.StatusPreconditionFailed, "stale", a.send("DELETE", "/api/v1/users/ext:busy", nil, tag))
	})

	t.Run("external ids are any text, percent-encoded in paths", func(t *testing.T) {
		a := s.signUp()
		ids := []string{
			"a/b", "a b", "100%", "%2F", "a+b", "?x=1&y", "#", "ext:x", "ü/ß", "🙂", ".", "..", "../..", "a//b", `"quoted"`, `back\slash`,
			"import", ";a", "usr_00000000000000000000000000", strings.Repeat("ö", 256), " padded ", "a\u0301", "\u00e1", "A", "a",
		}
		for i, external := range ids {
			created := a.createUser(external, map[string]int{"i": i})
			path := "/api/v1/users/ext:" + url.PathEscape(external)
			if external == "." || external == ".." {
				path = "/api/v1/users/ext%3A" + strings.ReplaceAll(external, ".", "%2E")
			}
			for _, read := range []answer{a.get(path), a.send("PATCH", path, `{"traits":{"patched":true}}`), a.get(path + "/matches"), a.get("/api/v1/users?external_id=" + url.QueryEscape(external))} {
				if read.Status != http.StatusOK {
					t.Errorf("%q: %d %s", external, read.Status, read.Body)
				}
			}
			if found := want[httpapi.User](t, http.StatusOK, a.get(path)); found.ID != created.ID || found.ExternalID != external {
				t.Errorf("%q is %+v", external, found)
			}
		}
		wantUsers(t, a, "", ids...)
		wantDone(t, a.send("DELETE", "/api/v1/users/ext:"+url.PathEscape("a/b"), nil))
		wantProblem(t, http.StatusNotFound, "user_unknown", a.get("/api/v1/users/ext:a%2Fb"))
	})

	t.Run("who leaves out ext: is told how a user is named", func(t *testing.T) {
		a := s.signUp()
		a.createUser("u1", nil)
		for _, got := range []answer{a.get("/api/v1/users/u1"), a.send("PATCH", "/api/v1/users/u1", `{"traits":{}}`)} {
			if p := wantProblem(t, http.StatusNotFound, "user_unknown", got); !strings.Contains(p.Detail, "as in ext:u1") {
				t.Errorf("%q", p.Detail)
			}
		}
	})

	t.Run("lists are filtered", func(t *testing.T) {
		a := s.signUp()
		one, two := a.createUser("one", nil), a.createUser("two", nil)
		a.createUser("three", nil)
		wantUsers(t, a, "?external_id=two", "two")
		wantUsers(t, a, "?external_id=absent")
		wantUsers(t, a, "?ids="+string(two.ID)+","+string(one.ID)+",usr_unknown", "one", "two")
		wantUsers(t, a, "?ids="+string(one.ID)+"&external_id=two")
		changed := want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:one", `{"traits":{"x":1}}`))
		since := func(at httpapi.Time) string {
			return "?updated_since=" + url.QueryEscape(at.UTC().Format("2006-01-02T15:04:05.000000Z"))
		}
		wantUsers(t, a, since(changed.UpdatedAt), "one")
		wantUsers(t, a, since(httpapi.Time{Time: changed.UpdatedAt.Add(time.Microsecond)}))
		wantUsers(t, a, since(two.CreatedAt), "two", "three", "one") // in the order of the last change
		wantUsers(t, s.signUp(), "")                                 // another client's are another's
	})

	t.Run("cursors are for one list of one client", func(t *testing.T) {
		a, b := s.signUp(), s.signUp()
		for i := range 3 {
			a.createUser(fmt.Sprint(i), nil)
		}
		page := want[httpapi.UserList](t, http.StatusOK, a.get("/api/v1/users?limit=1"))
		if page.NextCursor == nil || len(page.Data) != 1 {
			t.Fatalf("%+v", page)
		}
		cursor := *page.NextCursor
		for who, paths := range map[*account][]string{
			&a: {"/api/v1/users?updated_since=2020-01-01T00:00:00Z&cursor=" + cursor, a.under("/webhooks?cursor=" + cursor), "/api/v1/users?cursor=" + cursor[1:], "/api/v1/users?cursor=x"},
			&b: {"/api/v1/users?cursor=" + cursor},
		} {
			for _, path := range paths {
				wantProblem(t, http.StatusBadRequest, "bad_cursor", who.get(path))
			}
		}
		if got := a.get("/api/v1/users?limit=200&cursor=" + cursor); len(want[httpapi.UserList](t, http.StatusOK, got).Data) != 2 {
			t.Errorf("another limit: %s", got.Body)
		}
	})

	t.Run("an erased user is gone everywhere, and the external id can be used again", func(t *testing.T) {
		a := s.signUp()
		other := a.createUser("other", map[string]string{"plan": "pro"})
		for generation := range 10 { // past what one look-up takes
			user := a.createUser("forget me", map[string]string{"plan": "pro", "diary": fmt.Sprint("secret-", generation)})
			want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:other/matches", `{}`))
			wantDone(t, a.send("DELETE", "/api/v1/users/"+string(user.ID), nil))
			for _, gone := range []answer{
				a.get("/api/v1/users/" + string(user.ID)), a.get("/api/v1/users/ext:forget%20me"),
				a.get("/api/v1/users/" + string(user.ID) + "/matches"),
				a.get("/api/v1/users/"+string(user.ID), eventual()),
				a.send("PATCH", "/api/v1/users/"+string(user.ID), `{"traits":{}}`),
				a.send("DELETE", "/api/v1/users/"+string(user.ID), nil),
				a.send("POST", "/api/v1/users/"+string(user.ID)+"/matches", `{}`),
				a.send("POST", "/api/v1/users/ext:other/matches", map[string]string{"matched_user_id": string(user.ID)}),
			} {
				wantProblem(t, http.StatusNotFound, "user_unknown", gone)
			}
			wantUsers(t, a, "", "other")
			for _, list := range []answer{a.get("/api/v1/users/ext:other/matches"), a.send("POST", "/api/v1/users/ext:other/matches", `{"record":false}`)} {
				wantJSON(t, `[]`, want[map[string]json.RawMessage](t, http.StatusOK, list)["data"])
			}
		}
		anew := a.createUser("forget me", map[string]string{"plan": "free"})
		wantJSON(t, `{"plan":"free"}`, want[httpapi.User](t, http.StatusOK, a.get("/api/v1/users/ext:forget%20me")).Traits)
		wantUsers(t, a, "", "other", "forget me")
		if anew.ID == other.ID {
			t.Error("two users have one id")
		}
	})

	t.Run("matches are answered, recorded and listed", func(t *testing.T) {
		a := s.signUp()
		for external, traits := range map[string]string{
			"ann": `{"plan":"pro","age":30,"likes":["jazz","climbing"]}`, "bob": `{"plan":"pro","age":31,"likes":["jazz"]}`,
			"cat": `{"plan":"pro","age":60,"likes":["chess"]}`, "dan": `{}`,
		} {
			a.createUser(external, json.RawMessage(traits))
		}
		got := a.send("POST", "/api/v1/users/ext:ann/matches", nil)
		computed := want[httpapi.ComputedMatches](t, http.StatusOK, got).Data
		wantShape(t, got.Body, "data[].matched_user_id string", "data[].external_id string", "data[].score number", "data[].percentile number",
			"data[].explanation[].trait string", "data[].explanation[].missing bool", "data[].explanation[].weight number", "data[].explanation[].similarity number", "data[].explanation[].contribution number")
		if len(computed) < 2 || computed[0].ExternalID != "bob" || *computed[0].Score <= *computed[1].Score {
			t.Fatalf("%s", got.Body)
		}
		listed := want[httpapi.MatchList](t, http.StatusOK, a.get("/api/v1/users/ext:ann/matches")).Data
		for i, m := range listed {
			if m.MatchedUserID != computed[i].MatchedUserID || m.Score != *computed[i].Score || m.ExternalID != computed[i].ExternalID {
				t.Errorf("listed %+v, computed %+v", m, computed[i])
			}
		}
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.send("POST", "/api/v1/users/ext:ann/matches", `{"matched_user_id":"ext:ann"}`))
		pair := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:cat/matches", `{"matched_user_id":"ext:bob","record":false}`)).Data
		if len(pair) != 1 || pair[0].ExternalID != "bob" {
			t.Errorf("%+v", pair)
		}
		if found := want[httpapi.MatchList](t, http.StatusOK, a.get("/api/v1/users/ext:cat/matches")).Data; len(found) != 0 {
			t.Errorf("recorded although told not to: %+v", found)
		}
		one := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:bob/matches", `{"limit":1}`)).Data
		if len(one) != 1 || one[0].ExternalID != "ann" {
			t.Errorf("%+v", one)
		}
	})
}

// wantUsers checks which users a list holds, in its order, over pages of two.
func wantUsers(t *testing.T, a account, filter string, externals ...string) {
	t.Helper()
	var got []string
	for _, u := range each[httpapi.User](t, a, "/api/v1/users"+filter, 2) {
		got = append(got, u.ExternalID)
	}
	if diff := cmp.Diff(externals, got); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

func wantJSON(t *testing.T, text string, got json.RawMessage) {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &y); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	if diff := cmp.Diff(x, y); diff != "" {
		t.Error(diff)
	}
}

func duplicates(users []httpapi.User) (twice []string) {
	seen := map[id.User]bool{}
	for _, u := range users {
		if seen[u.ID] {
			twice = append(twice, u.ExternalID)
		}
		seen[u.ID] = true
	}
	return twice
}

func TestAListReadRightAfterAWriteShowsIt(t *testing.T) {
	t.Parallel()
	first := keepContract(t, pooled(t))
	second := keepContract(t, replicaOf(first))
	a := first.signUp()
	const tries, readers = 1000, 8
	stale := together(readers, func(reader int) (missed []string) {
		for i := range tries / readers {
			external := fmt.Sprintf("%d-%d", reader, i)
			created := insist(t, func() answer { return a.send("POST", "/api/v1/users", map[string]string{"external_id": external}) })
			for _, s := range []*service{first, second} {
				got := insist(t, func() answer { return a.at(s).get("/api/v1/users?external_id=" + external) })
				if created.Status != http.StatusCreated || got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"`+external+`"`) {
					missed = append(missed, fmt.Sprintf("%s: %d, %d %s", external, created.Status, got.Status, got.Body))
				}
			}
		}
		return missed
	})
	if missed := slices.Concat(stale...); len(missed) > 0 {
		t.Errorf("%d of %d reads missed the write before: %.2000v", len(missed), 2*tries, missed)
	}
	if listed := each[httpapi.User](t, a.at(second), "/api/v1/users", 200); len(listed) != tries || len(duplicates(listed)) > 0 {
		t.Errorf("%d of %d users are listed", len(listed), tries)
	}
	// So does every other list, and every change.
	hook := a.subscribe("http://127.0.0.1:1/", "")
	key := a.createAPIKey()
	for _, s := range []*service{second, first} {
		b := a.at(s)
		if hooks := each[httpapi.Webhook](t, b, a.under("/webhooks"), 50); len(hooks) != 1 || hooks[0].ID != hook.ID {
			t.Errorf("webhooks %+v", hooks)
		}
		if keys := each[httpapi.APIKey](t, b, a.under("/api_keys"), 50); len(keys) != 1 || keys[0].ID != key.Record.ID {
			t.Errorf("keys %+v", keys)
		}
		s.exchange(key.RawKey)
	}
	for i := range 100 {
		want[httpapi.User](t, http.StatusOK, a.send("PATCH", "/api/v1/users/ext:0-0", fmt.Sprintf(`{"traits":{"i":%d}}`, i)))
		wantJSON(t, fmt.Sprintf(`{"i":%d}`, i), want[httpapi.User](t, http.StatusOK, a.at(second).get("/api/v1/users/ext:0-0")).Traits)
	}
}

var nextCursor = regexp.MustCompile(`"next_cursor":"([^"]+)"`)

func TestPagesOfLargeThingsEndEarlyAndMissNothing(t *testing.T) {
	t.Parallel()
	a := shared(t).signUp()
	const users = 34 // 8.7 MB
	large := map[string]any{"text": strings.Repeat("x", 255<<10)}
	for n := range users {
		a.createUser(fmt.Sprint("person ", n), large)
	}
	end := url.QueryEscape(time.Now().UTC().Format(time.RFC3339Nano))
	for _, path := range []string{
		"/api/v1/users?", a.under("/history?personal=open&type=end_user.created"), a.under("/history/state?kind=users&at=" + end),
	} {
		found, pages := 0, 0
		for cursor := ""; cursor != "" || pages == 0; pages++ {
			page := a.get(path + "&limit=200" + cursor)
			if page.Status != http.StatusOK || len(page.Body) > 9<<20 {
				t.Fatalf("%s: %d, %d bytes", path, page.Status, len(page.Body))
			}
			found += bytes.Count(page.Body, []byte(`text":"xxx`)) // decoding takes long
			cursor = ""
			if next := nextCursor.FindSubmatch(page.Body[max(0, len(page.Body)-1000):]); next != nil {
				cursor = "&cursor=" + string(next[1])
			}
		}
		if found != users || pages < 2 {
			t.Errorf("%s: %d in %d pages", path, found, pages)
		}
	}
}
