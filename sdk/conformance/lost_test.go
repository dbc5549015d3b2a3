package conformance

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	kindred "kindred/sdk/go"
)

// losses are the ways in which an answer is lost, by the kind of fault that a call
// ends with.
var losses = map[string]struct {
	kind string
	lose func(http.ResponseWriter)
}{
	"nothing comes": {"connection", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
	"502 of a proxy": {"refused", func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(502)
	}},
	"504": {"refused", func(w http.ResponseWriter) { refuse(w, 504, "timeout") }},
}

func TestADELETEWhoseAnswerWasLostIsDoneWhereNothingIsLeft(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		gone := func(w http.ResponseWriter) { refuse(w, 404, "a_code") }
		overloaded := func(w http.ResponseWriter) { refuse(w, 503, "overloaded") }
		elsewhere := func(w http.ResponseWriter) { w.WriteHeader(404) } // something on the way
		for what, loss := range losses {
			for _, tt := range []struct {
				what    string
				answers []func(http.ResponseWriter)
				done    bool
			}{
				{"lost", []func(http.ResponseWriter){loss.lose, gone}, true},
				{"lost, then refused for a while", []func(http.ResponseWriter){loss.lose, overloaded, gone}, true},
				{"not lost", []func(http.ResponseWriter){gone}, false},
				{"refused for a while", []func(http.ResponseWriter){overloaded, gone}, false},
				{"lost, then something on the way", []func(http.ResponseWriter){loss.lose, elsewhere}, false},
			} {
				s := play(t, func(w http.ResponseWriter, _ *http.Request, n int) { tt.answers[n](w) })
				d.client("c", s.URL)
				_, failed := d.call("c", "users.erase", getUser)
				if len(s.seen()) != len(tt.answers) || tt.done != (failed == nil) || !tt.done && failed.Status != 404 {
					t.Errorf("%s, %s: it arrived %d times and ended with %v", what, tt.what, len(s.seen()), failed)
				}
			}
		}
	})
}

func TestAPUTWithAConditionIsNotRepeatedAfterALostAnswer(t *testing.T) {
	const doubt = "it may have taken effect"
	put := func(condition, value string) command {
		return command{"path": []string{"ext:u"}, "body": command{"traits": command{}}, "options": command{condition: value}}
	}
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		for _, conditional := range []command{put("if_match", `"1"`), put("if_none_match", "*")} {
			for what, loss := range losses {
				s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
					_, _ = io.Copy(io.Discard, r.Body)
					if n == 0 {
						loss.lose(w)
						return
					}
					refuse(w, 412, "precondition_failed") // the first has taken effect
				})
				d.client("c", s.URL)
				if f := d.fails(loss.kind, "c", "users.put", conditional); len(s.seen()) != 1 || !strings.Contains(f.Message, doubt) {
					t.Errorf("%s: it arrived %d times and ended with %v", what, len(s.seen()), f)
				}
			}
			s := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
				_, _ = io.Copy(io.Discard, r.Body)
				switch n {
				case 0:
					refuse(w, 503, "overloaded") // it has not taken effect
				case 1:
					good(w)
				case 2:
					refuse(w, 412, "precondition_failed")
				default:
					<-r.Context().Done()
				}
			})
			d.client("c", s.URL)
			d.must("c", "users.put", conditional)
			if f := d.fails("refused", "c", "users.put", conditional); f.Status != 412 || len(s.seen()) != 3 || strings.Contains(f.Message, doubt) {
				t.Errorf("after %d requests: %v", len(s.seen()), f)
			}
			d.client("c", s.URL, command{"timeout_ms": 500, "token": tokenOf(1)})
			if f := d.fails("timeout", "c", "users.put", conditional); !strings.Contains(f.Message, doubt) || !strings.Contains(f.Message, "took too long: ") {
				t.Errorf("a call that took too long ended with %v", f)
			}
		}
	})
}

// A context's end is the time of most calls of Go.
func TestACallOfGoWhoseContextEndsTellsThatItMayHaveTakenEffect(t *testing.T) {
	t.Parallel()
	const doubt = "it may have taken effect"
	k := throughTransport(t, func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	ending, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := k.Users.Change(ending, "ext:u", kindred.UserChange{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), doubt) {
		t.Errorf("a change ended with %v", err)
	}
	if _, err := k.Users.Change(ending, "ext:u", kindred.UserChange{}); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), doubt) {
		t.Errorf("a change that was not sent ended with %v", err)
	}
	ending, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := k.Users.Get(ending, "ext:u"); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), doubt) {
		t.Errorf("a read ended with %v", err)
	}
}

// No context ends the connection of an answer of 101, which is the caller's from then on.
func TestAnAnswerOf101EndsACall(t *testing.T) {
	eachSDK(t, func(t *testing.T, d *driver) {
		t.Helper()
		s := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		})
		d.client("c", s.URL, command{"max_retries": 1})
		d.fails("connection", "c", "users.get", getUser)
		d.fails("connection", "c", "users.change", changeUser)
		if len(s.seen()) != 3 {
			t.Errorf("it arrived %d times", len(s.seen()))
		}
	})
}

func TestAChangeThatNoConnectionTookIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"dial", "proxyconnect"} {
		attempts := 0
		k := throughTransport(t, func(r *http.Request) (*http.Response, error) {
			if attempts++; attempts == 1 {
				return nil, &net.OpError{Op: op, Err: syscall.ECONNREFUSED}
			}
			return answerOf(200, user), nil
		})
		if _, err := k.Users.Change(t.Context(), "ext:u", kindred.UserChange{}); err != nil || attempts != 2 {
			t.Errorf("%s: after %d attempts: %v", op, attempts, err)
		}
	}
}
