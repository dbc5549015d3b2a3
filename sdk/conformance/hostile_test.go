package conformance

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kindred "kindred/sdk/go"
	"kindred/testkit"
)

// hostile is a server that answers as a test likes.
type hostile struct {
	*httptest.Server
	sessions  bool // are renewed, as keys are exchanged
	mu        sync.Mutex
	life      int // seconds that tokens live
	exchanges int
	arrived   []arrival
}

type arrival struct {
	Method, Path, Query, Token, Key string
	Header                          http.Header
	Body                            string
	At                              time.Time
}

type handler func(w http.ResponseWriter, r *http.Request, n int)

// play starts one. It exchanges keys itself; answer gets the rest, with the
// number of those before.
func play(t testing.TB, answer handler) *hostile {
	t.Helper()
	s := &hostile{life: 900}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if renews := s.sessions && r.URL.Path == "/auth/sessions/token"; renews || r.URL.Path == "/auth/exchange" {
			s.mu.Lock()
			s.exchanges++
			given := fmt.Sprintf(`{"token":%q,"expires_in":%d,"scopes":["read"]}`, tokenOf(s.exchanges), s.life)
			s.mu.Unlock()
			if !renews {
				given = `{"data":` + given + `}`
			}
			respond(w, 200, given)
			return
		}
		a := arrival{
			Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
			Key: r.Header.Get("Idempotency-Key"), Header: r.Header, At: time.Now(),
		}
		if r.Header.Get("Content-Type") == "application/json" {
			body, _ := io.ReadAll(r.Body) // one that is cut shows in what arrived
			a.Body = string(body)
		}
		s.mu.Lock()
		n := len(s.arrived)
		s.arrived = append(s.arrived, a)
		s.mu.Unlock()
		answer(w, r, n)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *hostile) seen() []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrival(nil), s.arrived...)
}

func (s *hostile) exchanged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanges
}

func tokenOf(n int) string {
	return "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"aud":"cli_1","n":%d}`, n)) + ".c2ln"
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", "req_1")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Request-Id", "req_1")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"about:blank","title":"x","status":%d,"detail":"d","code":%q,"request_id":"req_1","errors":[{"pointer":"/a/b","detail":"is wrong"}]}`, status, code)
}

// cut begins an answer and breaks the connection in the middle of its body.
func cut(w http.ResponseWriter, body string) {
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	fmt.Fprintf(buffered, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body)+100, body)
	_ = buffered.Flush()
	_ = conn.Close()
}

const user = `{"id":"usr_1","external_id":"u","traits":{},"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}`

func good(w http.ResponseWriter) { respond(w, 200, user) }

var (
	getUser    = command{"path": []string{"usr_1"}}
	createUser = command{"body": command{"external_id": "u"}}
	changeUser = command{"path": []string{"usr_1"}, "body": command{"traits": command{"a": 1}}}
)

func TestAHundredCallersExchangeTheKeyOnce(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		s.life = 0 // what the first wave gets has expired when the second comes
		d.client("c", s.URL)
		d.must("c", "users.get", getUser)
		s.mu.Lock()
		s.life = 900
		s.mu.Unlock()
		together(t, d, 100, "users.get", getUser)
		if got := s.exchanged(); got != 2 {
			t.Errorf("the key was exchanged %d times, want once for each wave", got)
		}
	})
}

// None waits until another has its answer, such as one that follows events: all are on their way at once.
func TestNoCallWaitsForOthers(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		const many = 240
		var arrived atomic.Int64
		all := make(chan struct{})
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if arrived.Add(1) == many {
				close(all)
			}
			select {
			case <-all:
				good(w)
			case <-r.Context().Done():
			}
		})
		d.client("c", s.URL, command{"max_retries": 0})
		together(t, d, many, "users.get", getUser)
	})
}

func TestAStormOf401IsAnsweredByOneExchange(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		var all sync.WaitGroup
		all.Add(100)
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if strings.HasSuffix(r.Header.Get("Authorization"), tokenOf(1)) && r.Method == http.MethodGet {
				all.Done()
				all.Wait() // all of them have sent the old token
				refuse(w, 401, "expired_token")
				return
			}
			good(w)
		})
		d.client("c", s.URL)
		d.must("c", "users.create", createUser)
		together(t, d, 100, "users.get", getUser)
		if got := s.exchanged(); got != 2 {
			t.Errorf("the key was exchanged %d times, want 2", got)
		}
	})
}

func TestASessionIsRenewedLikeAKey(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if strings.HasSuffix(r.Header.Get("Authorization"), tokenOf(1)) {
				refuse(w, 401, "expired_token")
				return
			}
			good(w)
		})
		s.sessions = true
		d.client("c", s.URL, command{"api_key": "", "session": "kss_secret_key"})
		together(t, d, 100, "users.get", getUser)
		if got := s.exchanged(); got != 2 {
			t.Errorf("a token was asked for %d times, want 2", got)
		}
		if ok, failed := d.try(command{"do": "print", "client": "c"}); failed != nil || strings.Contains(string(ok), "secret_key") {
			t.Errorf("a client is printed as %s (%v)", ok, failed)
		}
	})
}

func together(t *testing.T, d *driver, n int, method string, more command) {
	t.Helper()
	var replies []<-chan reply
	for range n {
		_, answer := d.begin(calling("c", method, more))
		replies = append(replies, answer)
	}
	for _, answer := range replies {
		if _, failed := d.wait(answer); failed != nil {
			t.Error(failed)
		}
	}
}

func TestAnAnswerOf401IsAskedForOnceMore(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 401, "invalid_token") })
		d.client("c", s.URL)
		f := d.fails("refused", "c", "users.get", getUser)
		if f.Code != "invalid_token" || f.Status != 401 || len(s.seen()) != 2 || s.exchanged() != 2 {
			t.Errorf("%v after %d requests and %d exchanges", f, len(s.seen()), s.exchanged())
		}
		d.client("fixed", s.URL, command{"token": tokenOf(7)})
		d.fails("refused", "fixed", "users.get", getUser)
		if len(s.seen()) != 3 || s.exchanged() != 2 {
			t.Error("a token that cannot be renewed was tried twice")
		}
	})
}

// A program that does nothing but import, from what cannot be sent again, would be refused until its token is old.
func TestATokenThatIsRefusedIsUsedNoMore(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n == 0 {
				refuse(w, 401, "invalid_token")
				return
			}
			good(w)
		})
		d.client("c", s.URL)
		if f := d.fails("refused", "c", "users.import", command{"users": 3}); f.Status != 401 || len(s.seen()) != 1 {
			t.Errorf("%v after %d requests", f, len(s.seen()))
		}
		d.must("c", "users.import", command{"users": 3})
		if got := s.seen(); len(got) != 2 || got[1].Token != tokenOf(2) {
			t.Errorf("sent was %+v", got)
		}
	})
}

// TestWhatMayBeRepeatedIsAndNothingElse says of each kind of request and each
// fault how often it arrives.
func TestWhatMayBeRepeatedIsAndNothingElse(t *testing.T) {
	ndjson := command{"lines": "{\"external_id\":\"a\"}\n{\"external_id\":\"b\"}\n"}
	requests := []struct {
		method   string
		more     command
		repeated bool // after a lost answer
	}{
		{"users.get", getUser, true},
		{"users.put", command{"path": []string{"ext:u"}, "body": command{"traits": command{}}}, true},
		{"users.erase", getUser, true},
		{"users.create", createUser, true},
		{"users.change", changeUser, false},
		{"users.import", ndjson, false},
		{"members.change_password", command{"body": command{"current": "one horse battery", "new": "another horse battery"}}, false},
	}
	faults := []struct {
		name   string
		always bool // also what must not be sent twice
		answer func(http.ResponseWriter)
	}{
		{"429", true, func(w http.ResponseWriter) { refuse(w, 429, "rate_limited") }},
		{"503", true, func(w http.ResponseWriter) { refuse(w, 503, "overloaded") }},
		{"500", false, func(w http.ResponseWriter) { refuse(w, 500, "internal") }},
		{"502 of a proxy", false, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(502)
			_, _ = io.WriteString(w, "<h1>Bad gateway</h1>")
		}},
		{"a body cut in the middle", false, func(w http.ResponseWriter) { cut(w, user[:20]) }},
		{"a connection that breaks", false, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	}
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, fault := range faults {
			for _, r := range requests {
				t.Run(fault.name+", "+r.method, func(t *testing.T) {
					s := play(t, func(w http.ResponseWriter, q *http.Request, n int) {
						_, _ = io.Copy(io.Discard, q.Body) // what is cut, the server has taken
						if n < 2 {
							fault.answer(w)
						} else if q.Method == http.MethodDelete {
							w.WriteHeader(204)
						} else {
							good(w)
						}
					})
					name := fault.name + r.method
					d.client(name, s.URL)
					_, failed := d.call(name, r.method, r.more)
					want := 3
					if !r.repeated && !fault.always {
						want = 1
					}
					if got := len(s.seen()); got != want || (failed == nil) != (want == 3) {
						t.Errorf("it arrived %d times, want %d; the call ended with %v", got, want, failed)
					}
					for _, a := range s.seen() {
						if a.Key != s.seen()[0].Key || (a.Key == "") != (r.method != "users.create") {
							t.Errorf("the keys are %q and %q", a.Key, s.seen()[0].Key)
						}
						if a.Body != s.seen()[0].Body {
							t.Errorf("the bodies are %q and %q", a.Body, s.seen()[0].Body)
						}
					}
				})
			}
		}
	})
}

// Nothing was sent to a server that does not listen, so it may be sent again whatever it is.
func TestWhatHadNoConnectionIsRepeatedAndHasNotTakenEffect(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		said := "no connection was made"
		if d.name == "go" {
			said = "connection refused"
		}
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		for client, options := range map[string]command{"token": {"token": tokenOf(1), "max_retries": 2}, "key": {"max_retries": 2}} {
			d.client(client, s.URL, options)
			for method, more := range map[string]command{"users.get": getUser, "users.change": changeUser, "users.import": {"lines": "{}\n"}} {
				f := d.fails("connection", client, method, more)
				if strings.Contains(f.Message, "taken effect") || !strings.Contains(f.Message, said) {
					t.Errorf("%s, %s: %s", client, method, f.Message)
				}
				if client == "token" && d.name != "go" && f.Attempts != 3 { // Go tells that of refusals alone
					t.Errorf("%s, %s: %d attempts", client, method, f.Attempts)
				}
			}
		}
	})
}

func TestAStreamThatWasReadIsNotSentAgain(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(w, 503, "overloaded")
		})
		d.client("c", s.URL)
		if f := d.fails("refused", "c", "users.import", command{"users": 10}); f.Status != 503 || len(s.seen()) != 1 {
			t.Errorf("%v after %d requests", f, len(s.seen()))
		}
	})
}

func TestAKeyOfTheCallersIsKept(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			if n == 0 {
				refuse(w, 409, "in_flight")
				return
			}
			good(w)
		})
		d.client("c", s.URL)
		out := d.must("c", "users.create", command{"body": command{"external_id": "u"}, "options": command{"idempotency_key": "mine"}})
		seen := s.seen()
		if out.Attempts != 2 || len(seen) != 2 || seen[0].Key != "mine" || seen[1].Key != "mine" {
			t.Errorf("%+v: %+v", out, seen)
		}
		d.must("c", "users.create", createUser)
		d.must("c", "users.create", createUser)
		if seen = s.seen(); len(seen) != 4 || seen[2].Key == seen[3].Key {
			t.Error("two calls have the same key")
		}
	})
}

func TestRetryAfterIsRespected(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			switch {
			case r.Method == http.MethodPatch:
				w.Header().Set("Retry-After", "3600")
				refuse(w, 503, "building")
			case n == 0:
				w.Header().Set("Retry-After", "1")
				refuse(w, 429, "rate_limited")
			default:
				good(w)
			}
		})
		d.client("c", s.URL)
		d.must("c", "users.get", getUser)
		seen := s.seen()
		if len(seen) != 2 || seen[1].At.Sub(seen[0].At) < time.Second {
			t.Errorf("it came again after %s", seen[1].At.Sub(seen[0].At))
		}
		if f := d.fails("refused", "c", "users.change", changeUser); f.Attempts != 1 {
			t.Errorf("a wait that does not fit into the call was waited for: %v", f)
		}
	})
}

// A date as asctime writes it names no zone, and is of none but UTC (RFC 9110, section 5.6.7).
func TestADateOfRetryAfterIsInUTC(t *testing.T) {
	t.Parallel()
	for _, name := range sdks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDriver(t, name, "TZ=America/New_York")
			for _, layout := range []string{time.ANSIC, http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT"} {
				s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) {
					if n > 0 {
						good(w)
						return
					}
					w.Header().Set("Retry-After", time.Now().UTC().Add(2*time.Second).Format(layout))
					refuse(w, 503, "overloaded")
				})
				d.client(layout, s.URL)
				d.must(layout, "users.get", getUser)
				if seen := s.seen(); len(seen) != 2 || seen[1].At.Sub(seen[0].At) < 500*time.Millisecond {
					t.Errorf("%s: %d requests, the second after %s", layout, len(seen), seen[len(seen)-1].At.Sub(seen[0].At))
				}
			}
		})
	}
}

func TestRefusalsKeepTheirPlaces(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 422, "invalid") })
		d.client("c", s.URL)
		f := d.fails("refused", "c", "users.create", createUser)
		if f.Status != 422 || f.Code != "invalid" || f.RequestID != "req_1" || len(f.Pointers) != 1 || f.Pointers[0] != "/a/b" || f.Attempts != 1 {
			t.Errorf("told %+v", f)
		}
	})
}

// What is on the way may have problems of its own, such as {"errors": {"Name": ["is required"]}}.
func TestProblemsOfAnotherFormAreRefusals(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, errors := range []string{`{"Name":["is required"]}`, `["x"]`, `[null]`, `5`, `[{"pointer":1}]`, strings.Repeat("[", 1<<17)} {
			s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if n == 1 {
					good(w)
					return
				}
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(map[string]int{http.MethodGet: 503, http.MethodPost: 400}[r.Method])
				fmt.Fprintf(w, `{"title":"x","errors":%s}`, errors)
			})
			d.client(errors, s.URL)
			d.must(errors, "users.get", getUser) // 503 is repeated whatever it says
			if f := d.fails("refused", errors, "users.create", createUser); f.Status != 400 {
				t.Errorf("%s: %+v", errors, f)
			}
		}
	})
}

func TestNothingFollowsARedirect(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		other := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		d.client("c", s.URL)
		d.fails("refused", "c", "users.get", getUser)
		d.fails("refused", "c", "users.create", createUser)
		if len(other.seen()) > 0 {
			t.Errorf("another server got %+v", other.seen())
		}
	})
}

// What an answer sets would go with every call behind it, of others too, and grow with each.
func TestNoCookieIsKept(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			http.SetCookie(w, &http.Cookie{Name: "sticky", Value: "1", Path: "/"})
			good(w)
		})
		d.client("c", s.URL)
		for range 2 {
			d.must("c", "users.get", getUser)
		}
		if seen := s.seen(); len(seen) != 2 || seen[1].Header.Get("Cookie") != "" {
			t.Errorf("sent was %+v", seen)
		}
	})
}

func TestWhatIsNoAnswerIsToldAsThat(t *testing.T) {
	for name, answer := range map[string]handler{
		"another content type": func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, user)
		},
		"no content type": func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, user)
		},
		"a number that JSON has not": func(w http.ResponseWriter, _ *http.Request, _ int) {
			respond(w, 200, `{"id":"usr_1","external_id":"u","traits":{"a":NaN},"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}`)
		},
		"two content types": func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header()["Content-Type"] = []string{"application/json; charset=utf-8", "text/html"}
			_, _ = io.WriteString(w, user)
		},
		"a byte order mark": func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, "\ufeff"+user) },
		"UTF-16":            func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, utf16Of(user)) },
		"a text that is no UTF-8": func(w http.ResponseWriter, _ *http.Request, _ int) {
			respond(w, 200, strings.Replace(user, `"u"`, "\"caf\xe9\"", 1))
		},
		"null":      func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, " null") },
		"a list":    func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, `[]`) },
		"a text":    func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, `"x"`) },
		"no JSON":   func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, `{"id":`) },
		"deep JSON": func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, strings.Repeat("[", 1<<17)) },
		"a huge body": func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "application/json")
			out := bufio.NewWriterSize(w, 1<<20)
			_, _ = out.WriteString(`{"id":"`)
			part := strings.Repeat("x", 1<<20)
			for range 80 {
				if _, err := out.WriteString(part); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachSDK(t, func(t *testing.T, d *driver) {
				t.Helper()
				s := play(t, answer)
				d.client("c", s.URL)
				f := d.fails("answer", "c", "users.get", getUser)
				if len(s.seen()) != 1 || d.name != "go" && f.Attempts != 1 { // ErrAnswer of Go has no field for it
					t.Errorf("it was asked for %d times, and tells of %d", len(s.seen()), f.Attempts)
				}
			})
		})
	}
}

// utf16Of is ASCII in two bytes a character, the lower first.
func utf16Of(text string) string {
	return strings.Join(strings.Split(text, ""), "\x00") + "\x00"
}

// Whoever erases a user is to know that it was kindred that said so.
func TestAPageOfSomethingOnTheWayIsNoSignThatAnythingIsDone(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			switch n {
			case 0:
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, "<h1>Log in to the network</h1>")
			case 1: // what is on the way may turn 204 into this
				w.WriteHeader(200)
			default:
				w.WriteHeader(204)
			}
		})
		d.client("c", s.URL)
		d.fails("answer", "c", "users.erase", getUser)
		d.must("c", "users.erase", getUser)
		d.must("c", "users.erase", getUser)
		if len(s.seen()) != 3 {
			t.Errorf("it was asked for %d times", len(s.seen()))
		}
	})
}

func TestSlowAnswersEnd(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if r.Method == http.MethodGet && n == 0 {
				<-r.Context().Done() // no answer at all
				return
			}
			if r.Method == http.MethodGet {
				good(w)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			for range 10_000 { // an answer drop by drop
				if _, err := io.WriteString(w, " "); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
		d.client("attempt", s.URL, command{"attempt_timeout_ms": 300})
		if out := d.must("attempt", "users.get", getUser); out.Attempts != 2 {
			t.Errorf("an attempt without an answer was not given up: %+v", out)
		}
		d.client("call", s.URL, command{"timeout_ms": 500})
		d.fails("timeout", "call", "users.change", changeUser)
	})
}

func TestACallCanBeCancelled(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		if d.name == "python" {
			return // a thread cannot be cancelled; its timeout ends the call
		}
		s := play(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
		d.client("c", s.URL)
		id, answer := d.begin(calling("c", "users.get", getUser))
		testkit.Eventually(t, "the request arrives", func() bool { return len(s.seen()) == 1 })
		if _, failed := d.try(command{"do": "cancel", "target": id}); failed != nil {
			t.Fatal(failed)
		}
		if _, failed := d.wait(answer); failed == nil || failed.Kind != "cancelled" {
			t.Errorf("it ended with %v", failed)
		}
	})
}

func TestListsAreReadPageByPageInFlatMemory(t *testing.T) {
	const pages, each = 2000, 50
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		page := strings.TrimSuffix(strings.Repeat(user+",", each), ",")
		var early, late int
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			at, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // the first has none
			switch at {
			case pages / 10:
				early = d.memory()
			case pages - 10:
				late = d.memory()
			}
			next := "null"
			if at+1 < pages {
				next = fmt.Sprintf("%q", strconv.Itoa(at+1))
			}
			respond(w, 200, fmt.Sprintf(`{"data":[%s],"next_cursor":%s}`, page, next))
		})
		d.client("c", s.URL)
		out := d.must("c", "users.list", command{"params": command{"limit": each}})
		if out.Count != pages*each || len(s.seen()) != pages {
			t.Errorf("read %d users on %d pages", out.Count, len(s.seen()))
		}
		if late-early > 4<<20 {
			t.Errorf("memory grew from %d to %d bytes", early, late)
		}
		if q := s.seen()[1].Query; !strings.Contains(q, "limit=50") || !strings.Contains(q, "cursor=1") {
			t.Errorf("the second page was asked for by %q", q)
		}
		if out := d.must("c", "users.list", command{"most": 60}); out.Count != 60 || len(s.seen()) != pages+2 {
			t.Errorf("%d users took %d pages", out.Count, len(s.seen())-pages)
		}
	})
}

func TestACursorThatComesTwiceEndsAList(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for round, most := range map[int]int{1: 2, 2: 4, 3: 7} {
			s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) {
				if n == 100 {
					respond(w, 200, `{"data":[],"next_cursor":null}`) // or it would be read without end
					return
				}
				respond(w, 200, fmt.Sprintf(`{"data":[],"next_cursor":"%d"}`, n%round))
			})
			d.client("c", s.URL)
			d.fails("answer", "c", "users.list", command{})
			if len(s.seen()) != most {
				t.Errorf("of a round of %d, %d pages were asked for", round, len(s.seen()))
			}
		}
	})
}

func TestImportsStreamInFlatMemory(t *testing.T) {
	const users = 50_000
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		var early, late int
		got := make(chan int, 1)
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			n := 0
			for lines := bufio.NewScanner(r.Body); lines.Scan(); n++ {
				switch n {
				case users / 10:
					early = d.memory()
				case users - 2000:
					late = d.memory()
				}
			}
			got <- n
			respond(w, 200, fmt.Sprintf(`{"created":%d,"updated":0,"failed":0,"errors":[]}`, n))
		})
		d.client("c", s.URL)
		d.must("c", "users.import", command{"users": users})
		if n := <-got; n != users {
			t.Errorf("%d lines arrived", n)
		}
		if late-early > 4<<20 {
			t.Errorf("memory grew from %d to %d bytes", early, late)
		}
		if h := s.seen()[0].Header.Get("Content-Type"); h != "application/x-ndjson" {
			t.Errorf("its type is %q", h)
		}
	})
}

func TestAnExportThatIsCutIsNotWhole(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			if n == 2 {
				_, _ = io.WriteString(w, "{\"ordinal\":0}\n\xe2\x82")
				return
			}
			_, _ = io.WriteString(w, "{\"ordinal\":0}\n{\"ordinal\":1}\n{\"head\":")
			w.(http.Flusher).Flush()
			if n == 0 {
				panic(http.ErrAbortHandler)
			}
		})
		d.client("c", s.URL)
		for range 3 { // a connection that breaks, and ends in the middle of a line and of its first character
			if ok, failed := d.try(command{"do": "export", "client": "c"}); failed == nil || failed.Kind != "connection" {
				t.Errorf("it ended with %s, %v", ok, failed)
			}
		}
		if seen := s.seen(); len(seen) != 3 || seen[0].Path != "/api/v1/clients/cli_1/history" || seen[0].Header.Get("Accept") != "application/x-ndjson" {
			t.Errorf("asked for %+v", seen)
		}
	})
}

func TestAnExportThatBreaksBeforeItsFirstLineIsAskedForAgain(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, begun := range []string{"", `{"ordinal":`} {
			s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
				w.Header().Set("Content-Type", r.Header.Get("Accept"))
				if n%2 == 1 {
					_, _ = io.WriteString(w, "{}\n{}\n")
					return
				}
				_, _ = io.WriteString(w, begun)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			})
			d.client("c", s.URL)
			if ok, failed := d.try(command{"do": "export", "client": "c"}); failed != nil || field[int](t, ok, "count") != 2 {
				t.Errorf("%q: it ended with %s, %v", begun, ok, failed)
			}
			if len(s.seen()) != 2 {
				t.Errorf("%q: %d requests", begun, len(s.seen()))
			}
			if begun != "" {
				continue // Go writes parts of lines, too
			}
			if out := d.must("c", "segments.list_members_csv", command{"path": []string{"seg_1"}}); out.Count != 2 {
				t.Errorf("%d lines of CSV", out.Count)
			}
		}
	})
}

func TestAnswersOfCSVStreamAndAreToldWhereTheyAreCut(t *testing.T) {
	members := command{"path": []string{"seg_1"}}
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			switch n {
			case 0:
				refuse(w, 503, "segment_building")
			case 2:
				_, _ = io.WriteString(w, "user_id,external_id\nusr_1,a\n")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			case 3:
				respond(w, 200, `{"data":[],"next_cursor":null}`)
			case 4: // as by a proxy of HTTP/1.0, which tells no length
				_, _ = io.WriteString(w, "user_id,external_id\nusr_1,a\nusr_2")
			default:
				_, _ = io.WriteString(w, "user_id,external_id\nusr_1,a\nusr_2,\"b\"\"ü\"\n")
			}
		})
		d.client("c", s.URL)
		out := d.must("c", "segments.list_members_csv", members)
		if last := text(t, out.Last); out.Count != 3 || last != "usr_2,\"b\"\"ü\"\n" {
			t.Errorf("%d lines, the last is %q", out.Count, last)
		}
		d.fails("connection", "c", "segments.list_members_csv", members)
		d.fails("answer", "c", "segments.list_members_csv", members)
		d.fails("connection", "c", "segments.list_members_csv", members)
		if seen := s.seen(); len(seen) != 5 || seen[0].Query != "" || seen[0].Header.Get("Accept") != "text/csv" {
			t.Errorf("asked %d times, first for %+v", len(seen), seen[0])
		}
	})
}

func TestImportsOfCSVAreNamedSo(t *testing.T) {
	const lines = "external_id,plan\na,pro\n"
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		got := make(chan string, 1)
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			body, _ := io.ReadAll(r.Body) // one that is cut differs
			got <- r.Header.Get("Content-Type") + ": " + string(body)
			respond(w, 200, `{"created":1,"updated":0,"failed":0,"errors":[]}`)
		})
		d.client("c", s.URL)
		d.must("c", "users.import", command{"lines": lines, "options": command{"csv": true}})
		if is := <-got; is != "text/csv: "+lines {
			t.Errorf("sent %q", is)
		}
	})
}

func TestKeysAreNeitherPrintedNorSentInTheClear(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		d.client("c", s.URL)
		d.must("c", "users.get", getUser)
		ok, failed := d.try(command{"do": "print", "client": "c"})
		if failed != nil || strings.Contains(string(ok), "secret_key") || strings.Contains(string(ok), tokenOf(1)) {
			t.Errorf("a client is printed as %s (%v)", ok, failed)
		}
		for _, url := range []string{"http://kindred.example.com", "http://10.0.0.1:8080", "ftp://127.0.0.1", "https://a:b@kindred.example.com", "", "127.0.0.1:8080", s.URL + "/?", s.URL + "#"} {
			_, failed := d.try(command{"do": "new", "client": "x", "options": command{"base_url": url, "api_key": "kin_secret_key"}})
			if failed == nil || failed.Kind != "usage" || strings.Contains(failed.Message, "secret_key") {
				t.Errorf("%q: %v", url, failed)
			}
		}
	})
}

// A file that a secret is mounted as ends with a line break. A proxy of the environment is for what begins with https.
func TestABaseURLIsReadHoweverItIsWritten(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		for _, url := range []string{s.URL + "\n", " " + s.URL + "/ ", "HTTP" + s.URL[4:]} {
			d.client("c", url)
			d.must("c", "users.get", getUser)
		}
		d.client("c", "HTTPS://kindred.example.com/\r\n")
		if ok, failed := d.try(command{"do": "print", "client": "c"}); failed != nil || !strings.Contains(string(ok), "https://kindred.example.com") || strings.Contains(string(ok), "HTTPS") {
			t.Errorf("a client is printed as %s (%v)", ok, failed)
		}
	})
}

// What no header takes would be told as a connection that broke, and sent again.
func TestACredentialThatNoHeaderTakesIsRefusedBefore(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, text := range []string{"secret_key\n", "secret_key\x7f", "secret_key…", "secret key"} {
			for _, of := range []string{"token", "api_key", "session"} {
				_, failed := d.try(command{"do": "new", "client": "c", "options": command{"base_url": "http://127.0.0.1:1", of: text}})
				if failed == nil || failed.Kind != "usage" || strings.Contains(failed.Message, "secret") {
					t.Errorf("%s %q: %v", of, text, failed)
				}
			}
		}
	})
}

func TestIdsStayOneSegmentOfThePath(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		d.client("c", s.URL)
		for _, id := range []string{"ext:a/b", "ext:ü?#%", "ext:a b"} {
			d.must("c", "users.get", command{"path": []string{id}})
		}
		for i, want := range []string{"ext:a%2Fb", "ext:%C3%BC%3F%23%25", "ext:a%20b"} {
			if got := s.seen()[i].Path; got != "/api/v1/users/"+want {
				t.Errorf("asked for %s, want %s", got, want)
			}
		}
		for _, id := range []string{"", ".", ".."} {
			d.fails("usage", "c", "users.get", command{"path": []string{id}})
		}
		if len(s.seen()) != 3 {
			t.Error("an id that is none was sent")
		}
	})
}

// What cannot be sent as it is would be sent as something else, or break the connection.
func TestTextsThatCannotBeSentAreRefusedBefore(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		d.client("c", s.URL)
		for _, key := range []string{"a\nb", "a\u0000", "\u00fc", "\u20ac"} {
			d.fails("usage", "c", "users.create", command{"body": command{"external_id": "u"}, "options": command{"idempotency_key": key}})
			d.fails("usage", "c", "users.put", command{"path": []string{"ext:u"}, "body": command{}, "options": command{"if_match": key}})
		}
		if d.name != "go" { // whose texts are bytes, which JSON does not bring to its driver
			half := json.RawMessage(`"a\ud800"`)
			d.fails("usage", "c", "users.get", command{"path": []json.RawMessage{half}})
			d.fails("usage", "c", "users.list", command{"params": command{"filter": half}})
			d.fails("usage", "c", "users.import", command{"lines": half})
		}
		if len(s.seen()) > 0 {
			t.Errorf("sent was %+v", s.seen())
		}
	})
	t.Run("bytes of Go", func(t *testing.T) {
		k := throughTransport(t, func(*http.Request) (*http.Response, error) { return answerOf(200, user), nil })
		if _, err := k.Users.Get(t.Context(), "ext:\xff"); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%v", err)
		}
		for _, user := range []kindred.NewUser{
			{ExternalID: "caf\xe9"}, {ExternalID: "u", Traits: map[string]any{"\\": "\\\xff"}}, {ExternalID: "u", Traits: map[string]any{"\xe9": 1}},
		} {
			if _, err := k.Users.Create(t.Context(), user); err == nil || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%q: %v", user, err)
			}
			if text, err := io.ReadAll(kindred.Lines(slices.Values([]kindred.NewUser{user}))); err == nil || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("an import sends %s (%v)", text, err)
			}
		}
		for _, good := range []string{"\ufffd", `\ufffd`, `\\ufffd`} { // the character, and texts that look like its escape
			if _, err := k.Users.Create(t.Context(), kindred.NewUser{ExternalID: good}); err != nil {
				t.Errorf("%q: %v", good, err)
			}
		}
	})
}

func TestNullAndAbsentStayApart(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { respond(w, 200, `{"id":"cam_1"}`) })
		d.client("c", s.URL)
		for _, body := range []string{`{"ends_at":null}`, `{"name":"n"}`, `{}`} {
			d.must("c", "campaigns.change", command{"path": []string{"cam_1"}, "body": json.RawMessage(body)})
		}
		for i, want := range []string{`{"ends_at":null}`, `{"name":"n"}`, `{}`} {
			if got := s.seen()[i].Body; got != want {
				t.Errorf("sent %s, want %s", got, want)
			}
		}
	})
}

func TestFaultsShowNoKeys(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 422, "invalid") })
		none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "other") }))
		t.Cleanup(none.Close)
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		for what, options := range map[string]command{
			"refused":                {"base_url": s.URL},
			"no token":               {"base_url": none.URL},
			"no token of a session":  {"base_url": none.URL, "api_key": "", "session": "kin_sess_secret_key"},
			"nobody answers":         {"base_url": gone.URL, "token": tokenOf(1)},
			"nobody gives the token": {"base_url": gone.URL},
		} {
			d.client(what, "", options, command{"max_retries": -1})
			call := calling(what, "users.create", command{"body": command{"external_id": "u"}, "show": true})
			_, failed := d.try(call)
			if failed == nil || failed.Shown == "" {
				t.Errorf("%s: %+v", what, failed)
				continue
			}
			for _, secret := range []string{"secret_key", tokenOf(1)} {
				if at := strings.Index(failed.Shown, secret); at >= 0 {
					t.Errorf("%s: %s is shown in …%s", what, secret, failed.Shown[max(0, at-200):at])
				}
			}
		}
	})
}

func TestACallEndsInItsTimeThoughNoTokenComes(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or nobody sees that the other end has gone
			<-r.Context().Done()
		}))
		t.Cleanup(func() {
			s.CloseClientConnections()
			s.Close()
		})
		d.client("c", s.URL, command{"timeout_ms": 300})
		before := time.Now()
		d.fails("timeout", "c", "users.get", getUser)
		if took := time.Since(before); took > 20*time.Second { // an attempt of the exchange takes 35 s
			t.Errorf("it took %s", took)
		}
	})
}

func TestACallWithoutTimeSendsNothing(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
		d.client("c", s.URL, command{"token": tokenOf(7)})
		for _, milliseconds := range []int{0, -1} {
			none := command{"timeout_ms": milliseconds}
			d.fails("timeout", "c", "users.get", command{"path": []string{"usr_1"}, "options": none})
			d.fails("timeout", "c", "users.list", command{"options": none})
			d.fails("timeout", "c", "users.import", command{"users": 10, "options": none})
			for _, method := range []string{"pull", "follow"} {
				if _, failed := d.events("c", method, command{"options": none}); failed == nil || failed.Kind != "timeout" {
					t.Errorf("%s ended with %v", method, failed)
				}
			}
		}
		if d.name != "go" { // where a field of a struct that is 0 is left out
			d.client("none", s.URL, command{"token": tokenOf(7), "timeout_ms": 0})
			d.fails("timeout", "none", "users.get", getUser)
		}
		if len(s.seen()) > 0 {
			t.Errorf("sent was %+v", s.seen())
		}
	})
}

func TestATimeOfYearsIsNoneThatIsOver(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		years := command{"timeout_ms": 100_000_000_000, "attempt_timeout_ms": 100_000_000_000}
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if strings.HasSuffix(r.URL.Path, "/stream") {
				begin(w)
				select { // what has no time would be over by now
				case <-r.Context().Done():
				case <-time.After(300 * time.Millisecond):
					say(w, wholeEvent(behind(r)))
				}
				return
			}
			good(w)
		})
		d.client("c", s.URL, years)
		d.must("c", "users.get", getUser)
		if out, failed := d.events("c", "follow", command{"most": 1}); failed != nil || out.Count != 1 || len(s.seen()) != 2 {
			t.Errorf("told of %+v (%v) after %d requests", out, failed, len(s.seen()))
		}
	})
}

func TestWhatIsNoTokenAndNoListIsToldAsThat(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, answer := range []string{`{}`, `null`, `[]`, `{"data":null}`, `{"data":{}}`, `{"data":{"token":"","expires_in":900}}`} {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { respond(w, 200, answer) }))
			t.Cleanup(s.Close)
			d.client("c", s.URL)
			d.fails("answer", "c", "users.get", getUser)
			d.client("c", s.URL, command{"token": tokenOf(1)})
			d.fails("answer", "c", "users.list", command{})
			if _, failed := d.events("c", "pull", nil); failed == nil || failed.Kind != "answer" {
				t.Errorf("%s as a page of events ends with %v", answer, failed)
			}
		}
	})
}

// What follows a cursor that is none is no next page, and who reads events reads their data.
func TestACursorAndAnEventOfAnotherFormAreNoAnswer(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		var page string
		s := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if q := r.URL.Query(); q.Has("cursor") || q.Has("after") {
				respond(w, 200, `{"data":[],"next_cursor":null,"has_more":false,"last_id":null}`)
				return
			}
			respond(w, 200, page)
		})
		d.client("c", s.URL)
		for _, cursor := range []string{`5`, `""`, `{}`, `[]`, `false`} {
			page = fmt.Sprintf(`{"data":[%s],"next_cursor":%s}`, user, cursor)
			d.fails("answer", "c", "users.list", command{})
		}
		page = fmt.Sprintf(`{"data":[%s]}`, user) // nothing says that it is the last
		d.fails("answer", "c", "users.list", command{})
		for _, event := range []string{
			`"id":"evt_1","event_type":"x.y"`, `"id":"evt_1","event_type":"x.y","data":null`, `"id":"evt_1","event_type":"x.y","data":[]`,
			`"id":"evt_1","event_type":5,"data":{}`, `"id":5,"event_type":"x.y","data":{}`, `"id":"","event_type":"x.y","data":{}`,
		} {
			page = fmt.Sprintf(`{"data":[{%s,"timestamp":"2026-01-31T12:00:00Z"}],"has_more":false,"last_id":null}`, event)
			if out, failed := d.events("c", "pull", nil); failed == nil || failed.Kind != "answer" {
				t.Errorf("%s: told of %q (%v)", event, out.IDs, failed)
			}
		}
	})
}

func TestTextsThatAreNotUTF8AreTold(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		if d.name == "go" {
			return // it hands bytes on
		}
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Type", "text/csv")
			_, _ = io.WriteString(w, "user_id,external_id\nusr_1,\xff\n")
		})
		d.client("c", s.URL)
		d.fails("answer", "c", "segments.list_members_csv", command{"path": []string{"seg_1"}})
	})
}

// TestAKeyGoesThroughNoProxyInTheClear has a proxy in the environment, as companies do. No call can keep the fetch of Bun,
// Deno and newer Nodes from it: there a client is refused until NO_PROXY names the host.
func TestAKeyGoesThroughNoProxyInTheClear(t *testing.T) {
	t.Parallel()
	for _, name := range sdks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
			s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { good(w) })
			environment := []string{"HTTP_PROXY=" + proxy.URL, "http_proxy=" + proxy.URL, "ALL_PROXY=" + proxy.URL, "NODE_USE_ENV_PROXY=1"}
			d := startDriver(t, name, append(environment, "NO_PROXY=", "no_proxy=")...)
			if name == "typescript" {
				_, failed := d.try(command{"do": "new", "client": "c", "options": command{"base_url": s.URL, "api_key": "kin_secret_key"}})
				if failed == nil || failed.Kind != "usage" || !strings.Contains(failed.Message, "NO_PROXY") {
					t.Errorf("a client that would send its key to the proxy: %v", failed)
				}
				d = startDriver(t, name, append(environment, "NO_PROXY=localhost, 127.0.0.1", "no_proxy=localhost, 127.0.0.1")...)
			}
			d.client("c", s.URL)
			d.must("c", "users.get", getUser)
			if proxy.exchanged() > 0 || len(proxy.seen()) > 0 || len(s.seen()) != 1 {
				t.Errorf("the proxy got %d keys and %d requests", proxy.exchanged(), len(proxy.seen()))
			}
		})
	}
}

// A header may have spaces behind it, which are no part of it (RFC 9110, section 5.5). Go's server sends none.
func TestSpacesBehindARetryAfterAreNoPartOfIt(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) {
			if n > 0 {
				good(w)
				return
			}
			conn, buffered, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			_, _ = buffered.WriteString("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 100 \t\r\nContent-Length: 0\r\n\r\n")
			_ = buffered.Flush()
			_ = conn.Close()
		})
		d.client("c", s.URL)
		if f := d.fails("refused", "c", "users.get", getUser); f.Status != 429 || len(s.seen()) != 1 {
			t.Errorf("%v after %d requests", f, len(s.seen()))
		}
	})
}

func TestARetryAfterThatIsNoneOrHugeIsNoHurryAndNoWait(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for header, attempts := range map[string]int{
			"-5": 2, "soon": 2, "1.5.5": 2, "Mon, 01 Jan 2001 00:00:00 GMT": 2, "Fri, 99 Foo 2026 99:99:99 GMT": 2,
			"Mon, 01 Jan 2001 00:00:00 +999999999999999999": 2, "\u0663\u0663\u0663": 2, "1e9": 2, "NaN": 2,
			"+4000": 2, "4000.5": 2, "4000 s": 2, "4_000": 2, "0x4000": 2, "4000, 4000": 2, "2999-01-01T00:00:00Z": 2, "2999": 1,
			"Tue, 01 Jan 2999 00:00:00 +0000": 2, "1 Jan 2999 00:00:00 GMT": 2, "Tue, 01 Jan 2999": 2, "Tue, 01 Jan 2999 00:00:00 GMT (x)": 2,
			"4000000000": 1, "99999999999999999999": 1, strings.Repeat("9", 5000): 1, strings.Repeat("0", 20) + "4000": 1, "Fri, 31 Dec 9999 23:59:59 GMT": 1,
		} {
			s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) {
				if n == 0 {
					w.Header().Set("Retry-After", header)
					refuse(w, 429, "rate_limited")
					return
				}
				good(w)
			})
			d.client("c", s.URL)
			_, failed := d.call("c", "users.get", getUser)
			if len(s.seen()) != attempts || (attempts == 1) != (failed != nil && failed.Kind == "refused") {
				t.Errorf("%.30s: %d attempts, %v", header, len(s.seen()), failed)
			}
		}
	})
}
