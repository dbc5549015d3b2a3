package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/testkit"
)

// pulled is a page of events, each as the bytes that were answered.
type pulled struct {
	Data    []json.RawMessage `json:"data"`
	HasMore bool              `json:"has_more"`
	LastID  *string           `json:"last_id"`
}

func (a account) pull(query string) pulled {
	a.Helper()
	return want[pulled](a, http.StatusOK, a.get("/api/v1/events"+query))
}

// asPulled is a delivery as a pull shows it.
func asPulled(d delivery) string {
	return `{"id":"` + d.Header.Get("Webhook-Id") + `",` + string(d.Body[1:])
}

func idOf(t testing.TB, event []byte) string {
	t.Helper()
	var e struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(event, &e); err != nil {
		t.Fatal(err)
	}
	return e.ID
}

func TestPullTellsWhatWebhooksTold(t *testing.T) {
	t.Parallel()
	s := keepContract(t)
	p := newPairs(s)
	r := receive(t, 200)
	hook := p.subscribe(r.URL, "whsec_Zmlyc3Qtc3RlcHMtd2l0aC1raW5kcmVkLQ==")

	if got := p.pull(""); len(got.Data) != 0 || got.HasMore || got.LastID != nil {
		t.Errorf("before the first event: %+v", got)
	}
	var told []string
	for _, other := range []string{"bob", "cat", "dan"} {
		p.match("ann", other)
		told = append(told, asPulled(r.next(t)))
	}
	texts := func(p pulled) (all []string) {
		for _, e := range p.Data {
			all = append(all, string(e))
		}
		return all
	}

	t.Run("byte for byte, under one id, in pages", func(t *testing.T) {
		all := p.pull("")
		if diff := cmp.Diff(told, texts(all)); diff != "" || all.HasMore || *all.LastID != idOf(t, all.Data[2]) {
			t.Errorf("told by webhooks and pulled (-+): %s %+v", diff, all)
		}
		first := p.pull("?limit=2")
		rest := p.pull("?limit=2&after=" + *first.LastID)
		if !first.HasMore || rest.HasMore || !slices.Equal(told, append(texts(first), texts(rest)...)) {
			t.Errorf("%+v, then %+v", first, rest)
		}
		if end := p.pull("?after=" + *rest.LastID); len(end.Data) != 0 || *end.LastID != *rest.LastID {
			t.Errorf("an empty page: %+v", end)
		}
	})
	t.Run("of some types, and from a time on", func(t *testing.T) {
		if got := p.pull("?types=match.computed,clustering.failed&limit=1000"); !slices.Equal(texts(got), told) {
			t.Errorf("%+v", got)
		}
		if got := p.pull("?types=clustering.failed"); len(got.Data) != 0 {
			t.Errorf("%+v", got)
		}
		var second struct {
			At time.Time `json:"timestamp"`
		}
		if err := json.Unmarshal([]byte(told[1]), &second); err != nil {
			t.Fatal(err)
		}
		if got := p.pull("?types=match.computed&since=" + second.At.Format(time.RFC3339Nano)); !slices.Equal(texts(got), told[1:]) {
			t.Errorf("%+v", got)
		}
		if got := p.pull("?since=" + second.At.Add(time.Hour).Format(time.RFC3339Nano)); len(got.Data) != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the newest first", func(t *testing.T) {
		backwards := slices.Clone(told)
		slices.Reverse(backwards)
		for _, types := range []string{"", "&types=match.computed,clustering.failed"} {
			first := p.pull("?order=desc&limit=2" + types)
			rest := p.pull("?order=desc&limit=2&after=" + *first.LastID + types)
			if !first.HasMore || rest.HasMore || !slices.Equal(backwards, append(texts(first), texts(rest)...)) {
				t.Errorf("%+v, then %+v", first, rest)
			}
		}
		got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", p.get("/api/v1/events?order=desc&wait=1"))
		if len(got.Errors) != 1 || got.Errors[0].Pointer != "wait" {
			t.Errorf("%+v", got.Errors)
		}
	})
	t.Run("the history shows the newest first, too", func(t *testing.T) {
		var all, backwards []int64
		for _, e := range want[httpapi.HistoryPage](t, http.StatusOK, p.get(p.under("/history?limit=200"))).Data {
			all = append(all, e.Ordinal)
		}
		for query := "/history?order=desc&limit=3"; ; {
			page := want[httpapi.HistoryPage](t, http.StatusOK, p.get(p.under(query)))
			for _, e := range page.Data {
				backwards = append(backwards, e.Ordinal)
			}
			if page.NextCursor == nil {
				break
			}
			query = "/history?order=desc&limit=3&cursor=" + *page.NextCursor
		}
		slices.Reverse(backwards)
		// What was appended behind the first read is at the end alone.
		if len(all) < 4 || len(backwards) < len(all) || !slices.Equal(all, backwards[:len(all)]) {
			t.Errorf("in order %v, the newest first %v", all, backwards)
		}
		cursor := want[httpapi.HistoryPage](t, http.StatusOK, p.get(p.under("/history?order=desc&limit=3"))).NextCursor
		wantProblem(t, http.StatusBadRequest, "bad_cursor", p.get(p.under("/history?limit=3&cursor="+*cursor)))
	})
	t.Run("the history knows the event by the same id", func(t *testing.T) {
		history := want[httpapi.HistoryPage](t, http.StatusOK, p.get(p.under("/history?type=match.computed")))
		for i, e := range history.Data {
			if *e.ID != idOf(t, []byte(told[i])) {
				t.Errorf("%s is %s in the history", idOf(t, []byte(told[i])), *e.ID)
			}
		}
	})
	t.Run("a pause hides nothing", func(t *testing.T) {
		want[httpapi.Webhook](t, http.StatusOK, p.sendTo("PATCH", "/webhooks/"+string(hook.ID), `{"status":"paused"}`))
		p.match("bob", "cat")
		if got := p.pull("?after=" + idOf(t, []byte(told[2]))); len(got.Data) != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("nothing of another client", func(t *testing.T) {
		other := newPairs(s)
		if got := other.pull(""); len(got.Data) != 0 {
			t.Errorf("%+v", got)
		}
		for _, after := range []string{idOf(t, []byte(told[0])), "evt_00000000000000000000000000", "nonsense", "usr_00000000000000000000000000"} {
			got := wantProblem(t, http.StatusUnprocessableEntity, "invalid", other.get("/api/v1/events?after="+after))
			if len(got.Errors) != 1 || got.Errors[0].Pointer != "after" {
				t.Errorf("%s: %+v", after, got.Errors)
			}
			wantProblem(t, http.StatusUnprocessableEntity, "invalid", other.get("/api/v1/events/stream?after="+after))
		}
		wantProblem(t, http.StatusForbidden, "missing_scope", p.with(p.exchange(p.createAPIKey("write").RawKey)).get("/api/v1/events"))
	})
}

func TestPullNamesUsersAsTheClientDidUntilTheyAreErased(t *testing.T) {
	t.Parallel()
	p := newPairs(keepContract(t))
	r := receive(t, 200)
	p.subscribe(r.URL, "")
	p.match("ann", "bob")
	want[httpapi.ClientDetails](t, http.StatusOK, p.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"external_id"}}`))
	p.match("ann", "cat")
	want[httpapi.ClientDetails](t, http.StatusOK, p.sendTo("PATCH", "", `{"settings":{"webhook_user_ids":"user_id"}}`))
	p.match("ann", "dan")
	told := []string{asPulled(r.next(t)), asPulled(r.next(t)), asPulled(r.next(t))}
	slices.Sort(told)
	compare := func(want []string) {
		t.Helper()
		var got []string
		for _, e := range p.pull("").Data {
			got = append(got, string(e))
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got: %s", diff)
		}
	}
	compare(told)
	if !strings.Contains(strings.Join(told, ""), `"matched_user_id":"cat"`) {
		t.Fatalf("%v", told)
	}

	wantDone(t, p.send("DELETE", "/api/v1/users/ext:cat", nil))
	for i, e := range told {
		if strings.Contains(e, `"cat"`) {
			told[i] = strings.TrimSuffix(strings.Replace(e, `"cat"`, `"`+string(p.users["cat"].ID)+`"`, 1), "}") + `,"erased":true}`
		}
	}
	compare(told)
	if got := p.get("/api/v1/events?wait=1"); bytes.Contains(got.Body, []byte(`"cat"`)) {
		t.Errorf("%s", got.Body)
	}
	f := openApp(t, p.Config)
	var left int
	if err := f.Pool.QueryRow(t.Context(), `SELECT count(*) FROM public_events WHERE body LIKE '%"cat"%' OR body LIKE '%"ann"%'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows hold the names of users: %v", left, err)
	}
}

func TestALongPollAnswersAsSoonAsThereIsSomething(t *testing.T) {
	t.Parallel()
	p := newPairs(keepContract(t))
	p.match("ann", "bob")
	last := *p.pull("").LastID
	waiting := make(chan pulled, 1)
	go func() { waiting <- p.pull("?wait=30&after=" + last) }()
	began := time.Now()
	testkit.Eventually(t, "the request waits", func() bool { return follows(p.service) == 1 })
	p.match("ann", "cat")
	got := <-waiting
	if took := time.Since(began); len(got.Data) != 1 || took > 20*time.Second {
		t.Errorf("%+v after %s", got, took)
	}
	if empty := p.pull("?wait=1&types=clustering.failed&after=" + last); len(empty.Data) != 0 || *empty.LastID != last {
		t.Errorf("%+v", empty)
	}
	if there := p.pull("?wait=30&limit=1"); len(there.Data) != 1 || !there.HasMore {
		t.Errorf("%+v", there)
	}
	wantProblem(t, http.StatusUnprocessableEntity, "invalid", p.get("/api/v1/events?wait=31"))
}

// follows is how many streams and waiting requests a service has.
func follows(s *service) int {
	for line := range strings.Lines(string(s.send("GET", "/metrics", nil).Body)) {
		if strings.HasPrefix(line, "kindred_http_event_streams ") {
			return int(line[len("kindred_http_event_streams ")] - '0')
		}
	}
	return 0
}

// frame is what came over a stream: an event, or a comment where it has no id.
type frame struct{ id, data string }

// stream is an open stream of events.
type stream struct {
	testing.TB
	Response *http.Response
	came     chan frame // closed when the stream ends
}

func (a account) stream(query string, options ...option) *stream {
	a.Helper()
	s, err := a.tryStream(query, options...)
	if err != nil {
		a.Fatal(err)
	}
	return s
}

// tryStream is stream for a service that may be gone, and for any goroutine.
func (a account) tryStream(query string, options ...option) (*stream, error) {
	r, err := http.NewRequestWithContext(a.Context(), http.MethodGet, a.URL+"/api/v1/events/stream"+query, nil)
	if err != nil {
		return nil, err
	}
	bearer(a.Token)(r)
	for _, o := range options {
		o(r)
	}
	answer, err := a.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	a.Cleanup(func() { _ = answer.Body.Close() })
	s := &stream{TB: a.TB, Response: answer, came: make(chan frame, 10_000)}
	if answer.StatusCode != http.StatusOK {
		close(s.came)
		return s, nil
	}
	go s.read()
	return s, nil
}

func (s *stream) read() {
	defer close(s.came)
	var one frame
	for lines := bufio.NewScanner(s.Response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			one.id = value
		case "data":
			one.data = value
		case "":
			if one.id != "" {
				s.came <- one
			}
			one = frame{}
		}
	}
}

// next is the next event; ok is false where the stream has ended.
func (s *stream) next() (one frame, ok bool) {
	s.Helper()
	select {
	case one, ok = <-s.came:
		return one, ok
	case <-time.After(patience):
		s.Fatal("nothing came")
	}
	return one, ok
}

func (s *stream) wantEnd() {
	s.Helper()
	if one, ok := s.next(); ok {
		s.Errorf("it goes on with %+v", one)
	}
}

// wantEnded is for what ends with something that ended at a time: within a second, and
// what a loaded machine takes.
func (s *stream) wantEnded(at time.Time) {
	s.Helper()
	s.wantEnd()
	if took := time.Since(at); took > 3*time.Second {
		s.Errorf("it ended after %s", took)
	}
}

func TestAStreamTellsEachEventOnceAndGoesOnBehindTheLastId(t *testing.T) {
	t.Parallel()
	p := newPairs(keepContract(t))
	r := receive(t, 200)
	p.subscribe(r.URL, "")
	p.match("ann", "bob")
	first := r.next(t)
	open := p.stream("")
	if h := open.Response.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", h)
	}
	if one, _ := open.next(); one.id != first.Header.Get("Webhook-Id") || one.data != string(first.Body) {
		t.Errorf("%+v, not %s", one, first.Body)
	}
	p.match("ann", "cat")
	second := r.next(t)
	if one, _ := open.next(); one.id != second.Header.Get("Webhook-Id") || one.data != string(second.Body) {
		t.Errorf("%+v, not %s", one, second.Body)
	}
	again := p.stream("?after=nonsense", header("Last-Event-ID", first.Header.Get("Webhook-Id")))
	if one, _ := again.next(); one.data != string(second.Body) {
		t.Errorf("%+v, not %s", one, second.Body)
	}
	for _, last := range []string{"nonsense", "evt_00000000000000000000000000"} {
		for pointer, got := range map[string]answer{
			"Last-Event-ID": p.get("/api/v1/events/stream", header("Last-Event-ID", last)), "after": p.get("/api/v1/events/stream?after=" + last),
		} {
			if fields := wantProblem(t, http.StatusUnprocessableEntity, "invalid", got).Errors; len(fields) != 1 || fields[0].Pointer != pointer {
				t.Errorf("%s in %s: %+v", last, pointer, fields)
			}
		}
	}
	of := p.stream("?types=clustering.failed")
	p.match("ann", "dan")
	third := r.next(t)
	for _, s := range []*stream{open, again} {
		if one, _ := s.next(); one.data != string(third.Body) {
			t.Errorf("%+v, not %s", one, third.Body)
		}
	}
	if len(of.came) != 0 {
		t.Error("a stream of one type tells of another")
	}
	wantProblem(t, http.StatusMethodNotAllowed, "method_not_allowed", p.send("DELETE", "/api/v1/events/stream", nil))
	if got := p.send("HEAD", "/api/v1/events/stream", nil); got.Status != http.StatusMethodNotAllowed {
		t.Errorf("HEAD: %d", got.Status)
	}
	p.stop()
	for _, s := range []*stream{open, again, of} {
		s.wantEnd()
	}
}

func TestStreamsEndWithTheirTokens(t *testing.T) {
	t.Parallel()
	p := newPairs(keepContract(t))
	key := p.createAPIKey("read")
	reader := p.with(p.exchange(key.RawKey))
	kept, ended := p.stream(""), reader.stream("")
	waiting := make(chan answer, 1)
	go func() { waiting <- reader.get("/api/v1/events?wait=30") }()
	testkit.Eventually(t, "all of them wait", func() bool { return follows(p.service) == 3 })
	began := time.Now()
	wantDone(t, p.sendTo("DELETE", "/api_keys/"+string(key.Record.ID), nil))
	ended.wantEnded(began)
	wantProblem(t, http.StatusUnauthorized, "invalid_token", <-waiting)
	p.match("ann", "bob")
	if _, ok := kept.next(); !ok {
		t.Error("the stream of another token has ended")
	}
}

func TestStreamsAreBoundedByClientAndTakeNoPlaceFromOthers(t *testing.T) {
	t.Parallel()
	p := newPairs(keepContract(t))
	streams := make([]*stream, 100)
	for i := range streams {
		streams[i] = p.stream("")
	}
	refused := p.stream("")
	var problem httpapi.Problem
	if err := json.NewDecoder(refused.Response.Body).Decode(&problem); err != nil || problem.Code != "too_many_streams" ||
		refused.Response.StatusCode != http.StatusTooManyRequests || refused.Response.Header.Get("Retry-After") == "" {
		t.Errorf("%v %+v", err, problem)
	}
	wantProblem(t, http.StatusTooManyRequests, "too_many_streams", p.get("/api/v1/events?wait=1"))
	p.pull("")
	other := newPairs(p.service)
	theirs := other.stream("")
	other.match("ann", "bob")
	theirs.next()
	p.match("ann", "bob")
	first, _ := streams[0].next()
	for _, s := range streams[1:] {
		if one, _ := s.next(); one != first {
			t.Errorf("%+v, not %+v", one, first)
		}
	}
	_ = streams[0].Response.Body.Close()
	testkit.Eventually(t, "a place is free again", func() bool { return p.get("/api/v1/events?wait=1").Status == http.StatusOK })
	if _, err := id.Parse[id.Event](first.id); err != nil {
		t.Error(err)
	}
}
