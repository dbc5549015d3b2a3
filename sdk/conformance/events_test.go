package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kindred/testkit"
)

func eventID(i int) string { return fmt.Sprintf("evt_%06d", i) }

func eventOf(i int) string {
	return fmt.Sprintf(`{"event_type":"match.computed","data":{"client_id":"cli_1","user_id":"usr_%d","matched_user_id":"usr_ü","score":0.5},"timestamp":"2026-01-31T12:00:00.123456Z"}`, i)
}

func wholeEvent(i int) string { return fmt.Sprintf("id: %s\ndata: %s\n\n", eventID(i), eventOf(i)) }

// behind is the number of the first event that a request asks for.
func behind(r *http.Request) int {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("after")
	}
	n, err := strconv.Atoi(strings.TrimPrefix(id, "evt_"))
	if err != nil {
		return 0
	}
	return n + 1
}

func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
}

func say(w http.ResponseWriter, texts ...string) {
	for _, text := range texts {
		_, _ = io.WriteString(w, text) // whoever has gone asks again
	}
	w.(http.Flusher).Flush()
}

func pageOf(first, events int, more bool) string {
	var list []string
	for i := first; i < first+events; i++ {
		list = append(list, fmt.Sprintf(`{"id":%q,%s`, eventID(i), eventOf(i)[1:]))
	}
	last := "null"
	if first+events > 0 {
		last = strconv.Quote(eventID(first + events - 1))
	}
	return fmt.Sprintf(`{"data":[%s],"has_more":%t,"last_id":%s}`, strings.Join(list, ","), more, last)
}

func idsUntil(n int) (list []string) {
	for i := range n {
		list = append(list, eventID(i))
	}
	return list
}

type followed struct {
	IDs   []string        `json:"ids"`
	Count int             `json:"count"`
	Last  json.RawMessage `json:"last"`
}

func (d *driver) events(client, method string, more command) (followed, *failure) {
	d.Helper()
	c := command{"do": "events", "client": client, "method": method}
	maps.Copy(c, more)
	var out followed
	ok, failed := d.try(c)
	if failed == nil {
		if err := json.Unmarshal(ok, &out); err != nil {
			d.Errorf("%s replied %s", d.name, ok)
		}
	}
	return out, failed
}

// breaks are the ways in which a stream goes on and ends; each gets the number of
// the first event that is asked for, and says three or none.
var breaks = []func(w http.ResponseWriter, r *http.Request, first int){
	func(w http.ResponseWriter, _ *http.Request, first int) { // in the middle of an event
		begin(w)
		say(w, wholeEvent(first), wholeEvent(first+1), wholeEvent(first+2), "id: evt_000999\ndata: "+eventOf(0)[:30])
		panic(http.ErrAbortHandler)
	},
	func(w http.ResponseWriter, _ *http.Request, first int) { // before an event's empty line, and without an error
		begin(w)
		say(w, wholeEvent(first), wholeEvent(first+1), wholeEvent(first+2), strings.TrimSuffix(wholeEvent(999), "\n"))
	},
	func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 401, "expired_token") },
	func(w http.ResponseWriter, _ *http.Request, _ int) { begin(w) }, // nothing at all
	func(w http.ResponseWriter, _ *http.Request, first int) { // ids that come twice
		begin(w)
		for i := max(0, first-5); i < first+3; i++ {
			say(w, wholeEvent(i), wholeEvent(i))
		}
	},
	func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 503, "not_ready") },
	func(w http.ResponseWriter, _ *http.Request, first int) { // drop by drop, with comments, other ends of lines and data on several
		begin(w)
		text := ": hello\n\n" + strings.ReplaceAll(wholeEvent(first), "\n", "\r\n") + "retry: 5\nevent: x\nid:" + eventID(first+1) + "\n: in the middle\n" +
			"data:" + strings.Replace(eventOf(first+1), `,"data"`, "\ndata: ,\"data\"", 1) + "\n\n" + wholeEvent(first+2)
		for i := range len(text) {
			say(w, text[i:i+1])
		}
	},
	func(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) },
	func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
	},
	func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 429, "too_many_streams") },
}

func TestAFollowerTellsOfEachEventOnceWhateverBreaks(t *testing.T) {
	const events = 45
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) { breaks[n%len(breaks)](w, r, behind(r)) })
		d.client("c", s.URL)
		out, failed := d.events("c", "follow", command{"most": events, "params": command{"types": []string{"match.computed"}}})
		if failed != nil || !slices.Equal(out.IDs, idsUntil(events)) {
			t.Fatalf("told of %q (%v)", out.IDs, failed)
		}
		if user := field[string](t, out.Last, "data", "matched_user_id"); user != "usr_ü" {
			t.Errorf("the last is %s", out.Last)
		}
		refused := 0
		for i, a := range s.seen() {
			if i%len(breaks) == 2 {
				refused++
			}
			if a.Path != "/api/v1/events/stream" || a.Header.Get("Accept") != "text/event-stream" || a.Query != "types=match.computed" {
				t.Errorf("asked for %s?%s as %q", a.Path, a.Query, a.Header.Get("Accept"))
			}
		}
		if got := s.exchanged(); got != 1+refused {
			t.Errorf("the key was exchanged %d times, refused %d times", got, refused)
		}
	})
}

func TestPullingTellsOfEachEventOnceWhateverBreaks(t *testing.T) {
	const events = 60
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			first := behind(r)
			left := events - first
			switch {
			case n%6 == 1:
				cut(w, pageOf(first, 2, true))
			case n%6 == 2:
				refuse(w, 401, "expired_token")
			case n%6 == 3:
				refuse(w, 503, "not_ready")
			case n%6 == 4 && first > 3:
				respond(w, 200, pageOf(first-3, min(left, 7)+3, left > 7)) // from before what was asked for
			default:
				respond(w, 200, pageOf(first, min(left, 7), left > 7))
			}
		})
		d.client("c", s.URL)
		out, failed := d.events("c", "pull", command{"params": command{"since": "2026-01-01T00:00:00Z", "limit": 7}})
		if failed != nil || !slices.Equal(out.IDs, idsUntil(events)) {
			t.Fatalf("told of %q (%v)", out.IDs, failed)
		}
		for _, a := range s.seen() {
			if !strings.Contains(a.Query, "since=2026") || !strings.Contains(a.Query, "limit=7") {
				t.Errorf("asked for %s", a.Query)
			}
		}
	})
}

func TestPullingWaitsWithoutHurry(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 3 {
				respond(w, 200, pageOf(8, 1, false))
				return
			}
			respond(w, 200, `{"data":[],"has_more":false,"last_id":"evt_000007"}`) // at once, though it was to wait
		})
		d.client("c", s.URL)
		before := time.Now()
		out, failed := d.events("c", "pull", command{"most": 1, "params": command{"after": "evt_000007", "wait": 30}})
		if failed != nil || !slices.Equal(out.IDs, []string{"evt_000008"}) {
			t.Fatalf("told of %q (%v) after %s", out.IDs, failed, time.Since(before))
		}
		for _, a := range s.seen() {
			if !strings.Contains(a.Query, "wait=30") || !strings.Contains(a.Query, "after=evt_000007") {
				t.Errorf("asked for %s", a.Query)
			}
		}
		again := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, pageOf(0, 3, true)) })
		d.client("again", again.URL)
		if _, failed := d.events("again", "pull", nil); failed == nil || failed.Kind != "answer" {
			t.Errorf("a page that comes twice ends with %v", failed)
		}
	})
}

func TestAFollowerEndsWhereItIsRefusedOrNobodyAnswers(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for what, one := range map[string]struct {
			answer handler
			kind   string
			most   int // requests
		}{
			"a refusal":      {func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 403, "missing_scope") }, "refused", 1},
			"another answer": {func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, "{}") }, "answer", 1},
			"no event": {func(w http.ResponseWriter, _ *http.Request, _ int) {
				begin(w)
				say(w, "data: {}\n\n")
			}, "answer", 1},
			"an event of nothing": {func(w http.ResponseWriter, _ *http.Request, _ int) {
				begin(w)
				say(w, "data\n\n")
			}, "answer", 1},
			"an end at once": {func(w http.ResponseWriter, _ *http.Request, _ int) { begin(w) }, "timeout", 40},
			"503":            {func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 503, "not_ready") }, "timeout", 40},
			"silence": {func(w http.ResponseWriter, r *http.Request, _ int) {
				begin(w)
				<-r.Context().Done()
			}, "timeout", 40},
			"no answer": {func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }, "timeout", 40},
		} {
			s := play(t, one.answer)
			d.client(what, s.URL)
			_, failed := d.events(what, "follow", command{"options": command{"timeout_ms": 1000}})
			if failed != nil && what == "503" && failed.Kind == "refused" {
				failed.Kind = "timeout" // it is told at once where the next pause does not fit
			}
			if failed == nil || failed.Kind != one.kind || len(s.seen()) > one.most {
				t.Errorf("%s: it ended with %v after %d requests, want %s", what, failed, len(s.seen()), one.kind)
			}
		}
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 401, "expired_token") })
		d.client("fixed", s.URL, command{"token": tokenOf(7)})
		if _, failed := d.events("fixed", "follow", nil); failed == nil || failed.Code != "expired_token" || len(s.seen()) != 1 {
			t.Errorf("a token that cannot be renewed ends it with %v", failed)
		}
	})
}

func TestFollowingTakesNoMoreMemoryTheLongerItLasts(t *testing.T) {
	const events = 60_000
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		var early, late int
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			begin(w)
			out := bufio.NewWriterSize(w, 64<<10)
			for i := behind(r); i < events; i++ {
				switch i {
				case events / 10:
					early = d.memory()
				case events - 2000:
					late = d.memory()
				}
				if _, err := out.WriteString(wholeEvent(i)); err != nil {
					return
				}
			}
			_ = out.Flush()
			say(w)
			<-r.Context().Done()
		})
		d.client("c", s.URL)
		if out, failed := d.events("c", "follow", command{"most": events}); failed != nil || out.Count != events {
			t.Errorf("told of %d events (%v)", out.Count, failed)
		}
		if late-early > 4<<20 {
			t.Errorf("memory grew from %d to %d bytes", early, late)
		}
	})
}

func TestAFollowerCanBeCancelled(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		if d.name == "python" {
			return // a thread cannot be cancelled
		}
		var gone sync.WaitGroup
		gone.Add(1)
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			defer gone.Done()
			begin(w)
			say(w, wholeEvent(0))
			<-r.Context().Done()
		})
		d.client("c", s.URL)
		id, answer := d.begin(command{"do": "events", "client": "c", "method": "follow"})
		testkit.Eventually(t, "the request arrives", func() bool { return len(s.seen()) == 1 })
		if _, failed := d.try(command{"do": "cancel", "target": id}); failed != nil {
			t.Fatal(failed)
		}
		if _, failed := d.wait(answer); failed == nil || failed.Kind != "cancelled" {
			t.Errorf("it ended with %v", failed)
		}
		gone.Wait()
	})
}
