package dispatcher

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

var shortDelays = []time.Duration{40 * time.Millisecond, 80 * time.Millisecond, 160 * time.Millisecond, 320 * time.Millisecond, 640 * time.Millisecond}

func TestRetriesAreNeverEarlyAndBarelyLate(t *testing.T) {
	t.Parallel()
	delays := Config{}.withDefaults().RetryDelays
	want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute}
	if diff := cmp.Diff(want, delays); diff != "" {
		t.Fatal(diff)
	}
	spread := map[time.Duration]bool{}
	for i := range 1000 {
		delivery := deliveryOf(id.Event(fmt.Sprint(i)), "w")
		for n, delay := range delays {
			got, again := retryIn(delays, delivery, n+1)
			if !again || got < delay || got > delay+min(delay/100, 300*time.Millisecond) {
				t.Fatalf("retry %d after %s (%v)", n+1, got, again)
			}
			spread[got] = true
		}
		if _, again := retryIn(delays, delivery, len(delays)+1); again {
			t.Fatal("a sixth retry")
		}
	}
	if len(spread) < 4000 {
		t.Errorf("only %d different delays", len(spread))
	}
}

func TestARefusedDeliveryIsSentSixTimesWithTheSameBytesAndDropped(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: shortDelays})
	status := answers(500, 301, 404, 503, 410, 599)
	rx := newReceiver(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Location", "/elsewhere")
		status(w, q)
	})
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "secret")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)

	first := rx.next(t)
	last := first
	for i, delay := range shortDelays {
		got := rx.next(t)
		if gap := got.at.Sub(last.at); gap < delay {
			t.Errorf("retry %d came after %s, which is before %s", i+1, gap, delay)
		}
		if got.body != first.body || got.header.Get("X-Service-Signature") != first.header.Get("X-Service-Signature") ||
			got.header.Get("Webhook-Id") != first.header.Get("Webhook-Id") {
			t.Errorf("retry %d differs from the first attempt", i+1)
		}
		last = got
	}
	r.ended("dropped", 1)
	if n := len(rx.got); n != 0 {
		t.Errorf("%d attempts too many", n)
	}
	rows := testkit.Must(r.pool.Query(t.Context(), `SELECT status FROM dispatch_attempts ORDER BY attempt`))(t)
	statuses := testkit.Must(pgx.CollectRows(rows, pgx.RowTo[int]))(t)
	if diff := cmp.Diff([]int{500, 301, 404, 503, 410, 599}, statuses); diff != "" {
		t.Error(diff)
	}
	if n := r.count(`SELECT attempts FROM dispatch_deliveries`); n != 6 {
		t.Errorf("%d attempts noted, not 6", n)
	}
}

func TestTheFirstRetryIsDueThirtySecondsAfterTheFailure(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, answers(500, 204))
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)
	rx.next(t)
	testkit.Eventually(r.TB, "the failure is noted", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue WHERE failed = 1`) == 1 })
	if n := r.count(`
SELECT count(*) FROM dispatch_queue q JOIN dispatch_attempts a USING (delivery)
WHERE due_at - a.at - a.latency_us * interval '1 us' BETWEEN interval '30 s' AND interval '30.9 s' AND leased_until IS NULL`); n != 1 {
		t.Error("the retry is not due 30 s after the failure")
	}
	r.exec(`UPDATE dispatch_queue SET due_at = due_at - interval '30 s 300 ms'`)
	r.exec(notifyQueue)
	rx.next(t)
	r.ended("delivered", 1)
}

func TestWhateverFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer untrusted.Close()
	_, secured, _ := net.SplitHostPort(untrusted.Listener.Addr().String())
	cutting := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cutting.Close()

	resetting := httptest.NewServer(bare(t, func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }))
	defer resetting.Close()

	ancient := httptest.NewUnstartedServer(http.NotFoundHandler())
	ancient.TLS = &tls.Config{MaxVersion: tls.VersionTLS11}
	ancient.Config.ErrorLog = untrusted.Config.ErrorLog
	ancient.StartTLS()
	defer ancient.Close()

	const patient = 10 * time.Second
	for name, tt := range map[string]struct {
		url, error string
		timeout    time.Duration
	}{
		"a time-out":             {"http://" + silent.Addr().String(), "no answer within the time-out", 200 * time.Millisecond},
		"a refused connection":   {"http://" + closed.Addr().String(), "connection refused", patient},
		"a bad certificate":      {untrusted.URL, "certificate cannot be trusted", patient},
		"another's certificate":  {"https://localhost:" + secured, "certificate is for another host", patient},
		"a cut connection":       {cutting.URL, "the receiver closed the connection without an answer", patient},
		"a name without address": {"http://nowhere.invalid", "the host leads to no public address, nor to one that KINDRED_WEBHOOK_ALLOW_NETWORKS allows", patient},
		"a reset connection":     {resetting.URL, "the receiver broke the connection off before it answered", patient},
		"no TLS":                 {"https://" + cutting.Listener.Addr().String(), "the receiver does not speak TLS", patient},
		"TLS of another time":    {"https://" + ancient.Listener.Addr().String(), "no TLS that both speak", patient},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, Config{RetryDelays: []time.Duration{20 * time.Millisecond}, Timeout: tt.timeout})
			client := r.client()
			_, subscribed := r.subscribe(client, tt.url+"/x?token=hunter2", "")
			r.apply(subscribed, r.match(client))
			r.start(r.Dispatcher)
			r.ended("dropped", 1)
			if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE status IS NULL AND error LIKE '%' || $1 || '%' AND error NOT LIKE '%hunter2%' AND error NOT LIKE '%127.0.0.1%' AND error NOT LIKE '%localhost%' AND error NOT LIKE '%:53%'`, tt.error); n != 2 {
				var got string
				_ = r.pool.QueryRow(t.Context(), `SELECT string_agg(error, '; ') FROM dispatch_attempts`).Scan(&got)
				t.Errorf("%d attempts failed with %q, not 2: %s", n, tt.error, got)
			}
		})
	}
}

// A receiver is told the client's own ids, and may repeat them in any part of
// an answer, whatever that is good for.
func TestNoErrorQuotesWhatIsNamedAsItsClientDoes(t *testing.T) {
	t.Parallel()
	const name = "ada@lovelace.example"
	answering := func(text string) string {
		return newReceiver(t, bare(t, func(conn net.Conn) { _, _ = io.WriteString(conn, text) })).URL
	}
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(untrusted.Close)

	w := newWorker(newFixture(t, Config{}).Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	w.ExternalIDs = func(_ context.Context, _ id.Client, users []id.User) (map[id.User]string, error) {
		return map[id.User]string{users[0]: name}, nil
	}
	body := fmt.Appendf(nil, `{"user_id":%q}`, id.Next[id.User](id.Random(rand.Reader)))
	const unread = "the receiver's answer is not valid HTTP"
	for what, tt := range map[string]struct{ url, error string }{
		"another protocol":   {answering(name + "\r\n\r\n"), unread},
		"a malformed status": {answering("HTTP/1.1 2OO " + name + "\r\n\r\n"), unread},
		"a malformed header": {answering("HTTP/1.1 400 Bad Request\r\nunknown: 1\r\n" + name + "\r\n\r\n"), unread},
		"a malformed length": {answering("HTTP/1.1 400 Bad Request\r\nContent-Length: " + name + "\r\n\r\n"), unread},
		"a cut connection":   {answering(""), "without an answer"},
		"a status":           {answering("HTTP/1.1 400 " + name + "\r\nContent-Length: 0\r\n\r\n"), "answered 400"},
		"nobody there":       {"http://127.0.0.1:1", "connection refused"}, // a port that was just closed may be another's by now
		"a bad certificate":  {untrusted.URL, "certificate"},
		"a bad name":         {"http://nowhere.invalid", "the host leads to no public address, nor to one that KINDRED_WEBHOOK_ALLOW_NETWORKS allows"},
		"no public address":  {"http://10.0.0.1", "the host leads to no public address, nor to one that KINDRED_WEBHOOK_ALLOW_NETWORKS allows"},
		"no TLS":             {strings.Replace(answering(name), "http:", "https:", 1), "does not speak TLS"},
	} {
		o := w.attempt(t.Context(), claim{Address: address{Clear: tt.url}, Body: body, External: true, read: w.Now().Add(time.Hour)}) // that holds good, however slow this is
		if o.verdict != failed || !strings.Contains(o.err, tt.error) || strings.Contains(o.err, name) {
			t.Errorf("%s: %s with %q", what, o.verdict, o.err)
		}
	}
}

// Go's words for such answers quote them, and name its own packages.
func TestAnAnswerThatIsNoHTTPIsToldInPlainWords(t *testing.T) {
	t.Parallel()
	w := newWorker(newFixture(t, Config{}).Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, answer := range []string{
		"SSH-2.0-server\r\n\r\n", "\x00\x01" + strings.Repeat("é", 1000) + "\r\n\r\n", "HTTP/1.1 1000 X\r\n\r\n",
		ok + "no colon\r\n\r\n", ok + "Content-Length: -2\r\n\r\n", ok + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		ok + "Transfer-Encoding: other\r\n\r\n", ok + strings.Repeat("X-Long: "+strings.Repeat("x", 1000)+"\r\n", 100) + "\r\n",
	} {
		to := newReceiver(t, bare(t, func(conn net.Conn) { _, _ = io.WriteString(conn, answer) }))
		o := w.attempt(t.Context(), claim{Address: address{Clear: to.URL}, Body: []byte("{}"), read: w.Now().Add(time.Hour)})
		if o.verdict != failed || o.err != "the receiver's answer is not valid HTTP" {
			t.Errorf("%.40q: %s with %q", answer, o.verdict, o.err)
		}
	}
}

// closedConn tells when it is closed on this side.
type closedConn struct {
	net.Conn
	closed *atomic.Bool
}

func (c closedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// A receiver may close a connection that is kept just when the next delivery takes it. Go's words for it are those of
// no answer that was read.
func TestAKeptConnectionThatIsClosedAsItIsTakenIsToldInPlainWords(t *testing.T) {
	t.Parallel()
	w := newWorker(newFixture(t, Config{}).Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	var closed atomic.Bool
	dial := w.transport.DialContext
	w.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return closedConn{conn, &closed}, err
	}
	to := newReceiver(t, nil)
	reused := false
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if reused = i.Reused; reused {
			to.CloseClientConnections()
			testkit.Eventually(t, "the connection is closed", closed.Load)
		}
	}})
	for _, want := range []string{"", "the receiver closed the connection without an answer"} {
		o := w.attempt(ctx, claim{Address: address{Clear: to.URL}, Body: []byte("{}"), read: w.Now().Add(time.Hour)})
		if o.err != want {
			t.Errorf("told %q, not %q", o.err, want)
		}
	}
	if !reused {
		t.Error("no connection was kept")
	}
}

// By such a header net/http takes a request for one that may be repeated.
func TestAnEndpointsIdempotencyKeyRepeatsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorker(newFixture(t, Config{}).Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		var requests atomic.Int32
		to := newReceiver(t, func(http.ResponseWriter, *http.Request) {
			if requests.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
		})
		c := claim{URL: to.URL, Own: map[string]string{name: "x"}, Body: []byte("{}")}
		if _, _, _, err := w.post(t.Context(), c, w.Now(), nil); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := w.post(t.Context(), c, w.Now(), nil); err == nil || requests.Load() != 2 {
			t.Errorf("%s: two attempts made %d requests: %v", name, requests.Load(), err)
		}
	}
}

func TestAnswersAreKeptUpToABound(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Timeout: 300 * time.Millisecond})
	endless := newReceiver(t, func(w http.ResponseWriter, q *http.Request) {
		for chunk := bytes.Repeat([]byte("x\x00"), 4096); q.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	dripping := newReceiver(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, "d")
		w.(http.Flusher).Flush()
		<-q.Context().Done()
	})
	client := r.client()
	_, a := r.subscribe(client, endless.URL, "")
	_, b := r.subscribe(client, dripping.URL, "")
	r.apply(a, b, r.match(client))
	r.start(r.Dispatcher)
	r.ended("delivered", 2)
	if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE status = 200 AND length(answer) IN (1, 4096) AND latency_us < 2000000`); n != 2 {
		t.Errorf("%d attempts as they should be, not 2", n)
	}
}

func TestAPauseCancelsWhatWaitsForItsRetry(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, answers(500))
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 20)...)
	r.start(r.Dispatcher)
	testkit.Eventually(r.TB, "20 wait for their retry", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue WHERE failed = 1`) == 20 })
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	r.ended("cancelled", 20)
	if n := r.count(`SELECT count(*) FROM dispatch_queue`); n != 0 {
		t.Errorf("%d are still queued", n)
	}
	if n := len(rx.got); n != 20 {
		t.Errorf("%d attempts, not 20", n)
	}
}

func TestATypeThatIsNotSubscribedAnyMoreIsCancelledEvenIfItComesBack(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, answers(500))
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 20)...)
	r.start(r.Dispatcher)
	testkit.Eventually(r.TB, "20 wait for their retry", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue WHERE failed = 1`) == 20 })
	choose := func(eventType string) eventstore.Recorded {
		return r.recorded(client, event.WebhookChanged{Webhook: webhook, WebhookAddress: event.At(rx.URL), EventTypes: []string{eventType}})
	}
	r.apply(choose("clustering.failed"), choose(matchType), r.match(client))
	r.ended("cancelled", 20)
	testkit.Eventually(r.TB, "what follows is attempted", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue WHERE failed = 1`) == 1 })
	if n := len(rx.got); n != 21 {
		t.Errorf("%d attempts, not 21", n)
	}
}

func TestNoAttemptGoesByASubscriptionThatWasReadTooLongAgo(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	old, now := newReceiver(t, nil), newReceiver(t, nil)
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	client := r.client()
	webhook, subscribed := r.subscribe(client, old.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 2)...)
	claims := r.claim(2)
	for i := range claims {
		claims[i].read = w.Now().Add(-freshFor)
	}
	r.apply(r.recorded(client, event.WebhookChanged{Webhook: webhook, WebhookAddress: event.At(now.URL), EventTypes: []string{matchType}}))
	if o := w.attempt(t.Context(), claims[0]); o.verdict != delivered || len(old.got) != 0 || len(now.got) != 1 {
		t.Errorf("%s: %d to the old address, %d to the new one", o.verdict, len(old.got), len(now.got))
	}
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	if o := w.attempt(t.Context(), claims[1]); o.verdict != cancelled || len(old.got)+len(now.got) != 1 {
		t.Errorf("%s after a pause, %d requests", o.verdict, len(old.got)+len(now.got))
	}
}

// Where the database is slow each attempt finds its subscription read too long ago: a statement for
// each would make it slower.
func TestSubscriptionsThatWereReadTooLongAgoAreReadTogether(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 20)...)
	var rounds []int
	read := w.rereads.Answer
	w.rereads.Answer = func(ctx context.Context, claims []claim) ([]claim, error) {
		if rounds = append(rounds, len(claims)); len(rounds) == 1 {
			testkit.Eventually(r.TB, "the others wait", func() bool { return w.rereads.Waits() == 19 })
		}
		return read(ctx, claims)
	}
	var all sync.WaitGroup
	for _, c := range r.claim(20) {
		c.read = w.Now().Add(-freshFor)
		all.Go(func() {
			if o := w.attempt(t.Context(), c); o.verdict != delivered {
				t.Errorf("%s: %s", o.verdict, o.err)
			}
		})
	}
	all.Wait()
	if !slices.Equal(rounds[:2], []int{1, 19}) {
		t.Errorf("read in rounds of %d", rounds)
	}
}

// A statement that takes longer than what it reads holds good
// keeps nothing back, or nothing would ever be sent; what it tells counts.
func TestASlowDatabaseKeepsNoDeliveryBack(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 2)...)
	var reads int
	read := w.rereads.Answer
	w.rereads.Answer = func(ctx context.Context, claims []claim) ([]claim, error) {
		again, err := read(ctx, claims)
		reads++
		for i := range again { // that much later
			again[i].read = again[i].read.Add(-freshFor)
		}
		return again, err
	}
	claims := r.claim(2)
	for i := range claims {
		claims[i].read = w.Now().Add(-freshFor)
	}
	if o := w.attempt(t.Context(), claims[0]); o.verdict != delivered || len(rx.got) != 1 || reads != maxRereads {
		t.Errorf("%s, %d requests, its subscription was read again %d times", o.verdict, len(rx.got), reads)
	}
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}))
	if o := w.attempt(t.Context(), claims[1]); o.verdict != cancelled || len(rx.got) != 1 {
		t.Errorf("%s after a pause, %d requests", o.verdict, len(rx.got))
	}
}

// Each of a round has what is its own: rows are read one after the other into the same place.
func TestSubscriptionsThatAreReadTogetherKeepTheirOwnSecretsAndAddresses(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	var want []string
	client := r.client()
	for _, name := range []string{"a", "b", "c"} {
		url := "http://" + name + ".example"
		webhook, subscribed := r.subscribe(client, url, "secret of "+name)
		headers := event.Private([]byte(`{"X-Of":"` + name + `"}`))
		r.apply(subscribed, r.recorded(client, event.WebhookHeadersSet{Webhook: webhook, Names: []string{"X-Of"}, Headers: headers}))
		want = append(want, url+" by secret of "+name+", X-Of "+name)
	}
	r.apply(r.match(client))
	claims := r.claim(1)
	if err := r.queue(time.Minute).reread(t.Context(), claims, time.Now()); err != nil {
		t.Fatal(err)
	}
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	var got []string
	for _, c := range claims {
		c, secrets, err := w.current(t.Context(), c, w.Now())
		if err != nil || len(secrets) != 1 {
			t.Fatalf("%d secrets, %v", len(secrets), err)
		}
		got = append(got, fmt.Sprintf("%s by %s, X-Of %s", c.URL, secrets[0], c.Own["X-Of"]))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestADeliveryThatAnotherHasTakenOverIsNotSent(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	t.Cleanup(w.transport.CloseIdleConnections)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.match(client))
	late := r.claim(1)[0]
	r.endLeases()
	r.claim(1)
	late.read = w.Now().Add(-freshFor)
	if o := w.attempt(t.Context(), late); o.verdict != returned || len(rx.got) != 0 {
		t.Errorf("%s, %d requests", o.verdict, len(rx.got))
	}
}

func TestWhatCouldNotBeSentIsNoFailureOfItsReceiver(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	w := newWorker(r.Dispatcher, Config{}.withDefaults())
	w.ExternalIDs = func(context.Context, id.Client, []id.User) (map[id.User]string, error) { return nil, errCrashed }
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	w.scheduler.expect(firstAttempt, waiting{Webhook: webhook, Client: client}, w.Now())
	c := r.claim(1)[0]
	c.External = true
	if o := w.deliver(t.Context(), c); o.verdict != returned || o.retryIn != pauseAfterTrouble {
		t.Errorf("it is %s for %s", o.verdict, o.retryIn)
	}
	if w.scheduler.endpoints[webhook].failing || len(w.health.take()) != 0 {
		t.Error("its receiver is said to fail")
	}
}

func TestWantOfDescriptorsIsNoFailureOfTheReceiver(t *testing.T) {
	t.Parallel()
	lacks := func(lack syscall.Errno) error {
		return &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", lack)}
	}
	for name, err := range map[string]error{
		"of the process": lacks(syscall.EMFILE), "of the machine": lacks(syscall.ENFILE),
		"of a lookup": &net.OpError{Op: "dial", Err: &net.DNSError{Err: lacks(syscall.EMFILE).Error(), Name: "a.example", IsTemporary: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			w := newWorker(&Dispatcher{Guard: NewGuard(), Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))}, Config{}.withDefaults())
			w.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, err }
			w.scheduler.expect(firstAttempt, waiting{Webhook: "w", Client: "c"}, time.Now())
			w.scheduler.claimed(w.scheduler.quotas(time.Now()), []claim{{Webhook: "w"}})
			c := claim{Webhook: "w", Client: "c", Address: address{Clear: "http://a.example"}, read: time.Now()}
			defer w.free(c)
			for range 3 {
				if o := w.deliver(t.Context(), c); o.verdict != returned || o.retryIn != pauseAfterTrouble {
					t.Errorf("it is %s for %s: %s", o.verdict, o.retryIn, o.err)
				}
			}
			if w.scheduler.endpoints["w"].failing || len(w.health.take()) != 0 {
				t.Error("its receiver is said to fail")
			}
			if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "no file descriptor left") {
				t.Errorf("%d lines: %s", lines, log.String())
			}
		})
	}
}

func TestAFailureUnderWayWhenThePauseComesIsNotRetried(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	arrived, release := make(chan struct{}), make(chan struct{})
	rx := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		w.WriteHeader(http.StatusInternalServerError)
	})
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)
	<-arrived
	r.apply(r.recorded(client, event.WebhookPaused{Webhook: webhook}), r.recorded(client, event.WebhookResumed{Webhook: webhook}))
	close(release)
	r.ended("cancelled", 1)
}

func TestAStopLetsAttemptsEndAndNotesThem(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	rx := newReceiver(t, func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(arrived) })
		<-release
	})
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 5)...)
	stop := r.start(r.Dispatcher)
	<-arrived
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(release)
	<-stopped
	if n := r.count(`SELECT count(*) FROM dispatch_queue WHERE leased_until IS NOT NULL`); n != 0 {
		t.Errorf("%d leases were left behind", n)
	}
	if delivered := r.count(`SELECT count(*) FROM dispatch_deliveries`); delivered != len(rx.got) {
		t.Errorf("%d sent, %d noted", len(rx.got), delivered)
	}
}

// A success that is not written down would leave its endpoint failing, to be disabled too early.
func TestAStopWritesDownHowItsLastAttemptsWereAnswered(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	quick, release := newReceiver(t, answers(204)), make(chan struct{})
	slow := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	client := r.client()
	for _, rx := range []*receiver{quick, slow} {
		_, subscribed := r.subscribe(client, rx.URL, "")
		r.apply(subscribed)
	}
	r.apply(r.match(client))
	stop := r.start(r.Dispatcher)
	quick.next(t)
	slow.next(t)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	answered := func() int { return r.count(`SELECT count(*) FROM dispatch_health WHERE last_success_at IS NOT NULL`) }
	testkit.Eventually(t, "the first answer is written down", func() bool { return answered() == 1 })
	close(release)
	<-stopped
	if n := answered(); n != 2 {
		t.Errorf("of 2 receivers that accepted, %d are known", n)
	}
}

func TestOneHangingEndpointDoesNotSlowTheOthers(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Timeout: time.Hour, RetryDelays: []time.Duration{50 * time.Millisecond}})
	over := make(chan struct{})
	defer close(over) // or the dispatcher, which ends after this, waits for its attempts
	hanging := newReceiver(t, func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-q.Context().Done():
		case <-over:
		}
	})
	client := r.client()
	_, h := r.subscribe(client, hanging.URL, "")
	r.apply(h)
	var healthy []*receiver
	for range 5 {
		rx := newReceiver(t, nil)
		_, s := r.subscribe(client, rx.URL, "")
		r.apply(s)
		healthy = append(healthy, rx)
	}
	r.apply(r.matches(client, 300)...)
	r.start(r.Dispatcher)
	hanging.next(t)
	for _, rx := range healthy { // none waits for one that hangs: that is longer than a receiver waits
		for range 300 {
			rx.next(t)
		}
	}
	if n := len(hanging.got) + 1; n > 64 {
		t.Errorf("%d attempts in flight to one endpoint", n)
	}
}

func TestReplicasShareTheWorkAndSendOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.start(r.Dispatcher)
	r.start(r.replica(Config{}))
	r.start(r.replica(Config{}))
	const total = 2000
	for range 4 {
		r.apply(r.matches(client, total/4)...)
	}
	seen := map[string]int{}
	for range total {
		seen[rx.next(t).header.Get("X-Kindred-Delivery")]++
	}
	r.ended("delivered", total)
	if len(seen) != total || len(rx.got) != 0 {
		t.Errorf("%d different deliveries of %d, and %d more", len(seen), total, len(rx.got))
	}
}

func TestANotificationWakesTheWorkers(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Poll: time.Hour})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)
	rx.next(t)
	r.apply(r.match(client))
	rx.next(t)
}

// Claims begin there: what is before would wait for the next look.
func TestANotificationTellsTheFirstOfWhatIsNew(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	client := r.client()
	webhook, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed, r.match(client))
	acquired := testkit.Must(r.pool.Acquire(t.Context()))(t)
	conn := acquired.Hijack()
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `LISTEN `+channel); err != nil {
		t.Fatal(err)
	}
	r.apply(r.matches(client, 3)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	told := testkit.Must(conn.WaitForNotification(ctx))(t)
	first := r.count(`SELECT min(made) FROM dispatch_queue WHERE made > (SELECT min(made) FROM dispatch_queue)`)
	if want := fmt.Sprint(client, " ", webhook, " ", first); told.Payload != want {
		t.Errorf("told %q, not %q", told.Payload, want)
	}
}

func TestWhatIsAskedForByHandIsSentAtOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Poll: time.Hour, RetryDelays: []time.Duration{time.Millisecond}})
	rx := newReceiver(t, answers(500, 500, 200))
	client := r.client()
	webhook, subscribed := r.subscribe(client, rx.URL, "")
	match := r.match(client)
	r.apply(subscribed, match)
	r.start(r.Dispatcher)
	r.ended("dropped", 1)
	m := r.manual()
	for _, ask := range []func() error{
		func() error {
			_, err := m.recover(t.Context(), client, webhook, state{}, time.Time{}, nil)
			return err
		},
		func() error {
			_, err := m.Redeliver(t.Context(), client, webhook, deliveryOf(match.ID, webhook), nil)
			return err
		},
	} {
		for len(rx.got) > 0 {
			<-rx.got
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		rx.next(t)
	}
	r.ended("delivered", 2)
}

func TestPollingServesWhereNotificationsAreLost(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Poll: 20 * time.Millisecond})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)
	rx.next(t)
	r.ended("delivered", 1)
	match := r.match(client)
	r.exec(`INSERT INTO dispatch_queue (delivery, client, webhook, event, position, event_type, body, occurred_at)
SELECT $1, client, webhook, $2, $3, $4, '{}', now() FROM dispatch_endpoints`, string(deliveryOf(match.ID, "x")), string(match.ID), string(match.Position), matchType)
	rx.next(t)
}

func TestAnAttemptThatFailsIsToldOfWithoutItsURL(t *testing.T) {
	t.Parallel()
	rx := newReceiver(t, bare(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "ada@lovelace.example\r\n\r\n") }))
	var text strings.Builder
	w := newWorker(&Dispatcher{
		Guard: NewGuard(netip.MustParsePrefix("127.0.0.0/8")), Metrics: NewMetrics(prometheus.NewRegistry()), Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, Config{}.withDefaults())
	w.scheduler.expect(firstAttempt, waiting{Webhook: "w", Client: "c"}, time.Now())
	w.scheduler.claimed(w.scheduler.quotas(time.Now()), []claim{{Webhook: "w"}})
	c := claim{Webhook: "w", Client: "c", Address: address{Clear: strings.Replace(rx.URL, "//", "//user:hunter2@", 1) + "/hunter2?hunter2"}, Body: []byte("hunter2"), read: time.Now()}
	defer w.free(c)
	if o := w.deliver(t.Context(), c); o.verdict != failed || o.err != "the receiver's answer is not valid HTTP" || text.Len() != 0 {
		t.Errorf("%s: %s\n%s", o.verdict, o.err, &text)
	}
}

// While the database is slow, a line for each would be a load of its own.
func TestManyDeliveriesThatArePutBackAreALineInTheLog(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	w := newWorker(&Dispatcher{Logger: slog.New(slog.NewTextHandler(&text, nil))}, Config{}.withDefaults())
	for range 1000 {
		if o := w.putBack(t.Context(), outcome{claim: claim{Webhook: "w"}}, "of the test", errors.New("slow")); o.verdict != returned {
			t.Fatal(o.verdict)
		}
	}
	if lines := strings.Count(text.String(), "\n"); lines == 0 || lines > 100 {
		t.Errorf("%d lines", lines)
	}
}

func TestCutConnectionsToTheDatabaseLoseNothing(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	const total = 3000
	for range 3 {
		r.apply(r.matches(client, total/3)...)
	}
	r.start(r.Dispatcher)
	for range 3 {
		for range 300 {
			rx.next(t)
		}
		cutConnections(t, r.pool)
	}
	testkit.Eventually(r.TB, "everything is delivered", func() bool {
		var left int
		err := r.pool.QueryRow(t.Context(), `SELECT count(*) FROM dispatch_queue`).Scan(&left)
		if err == nil && left > 0 { // leases of claims whose answer was lost
			_, err = r.pool.Exec(t.Context(), `UPDATE dispatch_queue SET leased_until = now() WHERE leased_until < now() + interval '29 s'`)
		}
		return err == nil && left == 0
	})
	r.pool.Reset() // of connections that were cut while nobody used them
	if n := r.count(`SELECT count(DISTINCT delivery) FROM dispatch_deliveries WHERE state = 'delivered'`); n != total {
		t.Errorf("%d of %d delivered", n, total)
	}
}

// cutConnections ends all to the database, by one of its own: those of the pool
// may have been cut before.
func cutConnections(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	conn := testkit.Must(pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig))(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	const others = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	if _, err := conn.Exec(t.Context(), others); err != nil {
		t.Fatal(err)
	}
}
