package dispatcher

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// queuedIDs are the deliveries that wait.
func (r *fixture) queuedIDs() map[string]bool {
	r.Helper()
	rows, err := r.pool.Query(r.Context(), `SELECT delivery FROM dispatch_queue`)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	ids := map[string]bool{}
	for rows.Next() {
		var d string
		if err := rows.Scan(&d); err != nil {
			r.Fatal(err)
		}
		ids[d] = true
	}
	if err := rows.Err(); err != nil {
		r.Fatal(err)
	}
	return ids
}

// gets waits until a receiver got each delivery at least once.
func (rx *receiver) gets(t testing.TB, want map[string]bool) {
	t.Helper()
	for seen := map[string]bool{}; len(seen) < len(want); {
		d := rx.next(t).header.Get("X-Kindred-Delivery")
		if !want[d] {
			t.Fatalf("%s was never queued", d)
		}
		seen[d] = true
	}
}

func TestAReceiverThatIsDownAndComesBackGetsAll(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{RetryDelays: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond}})
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	listener.Close() // down
	client := r.client()
	_, subscribed := r.subscribe(client, "http://"+listener.Addr().String(), "")
	r.apply(subscribed)
	r.apply(r.matches(client, 300)...)
	want := r.queuedIDs()
	r.start(r.Dispatcher)
	testkit.Eventually(r.TB, "all have failed", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue WHERE failed > 0`) == len(want) })

	back := testkit.Must(net.Listen("tcp", listener.Addr().String()))(t)
	rx := &receiver{got: make(chan request, 1000)}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		rx.got <- request{header: q.Header}
	})}
	go func() { _ = server.Serve(back) }()
	t.Cleanup(func() { server.Close() })
	rx.gets(t, want)
	r.ended("delivered", len(want))
}

// Ten thousand subscriptions to one event: it is queued for all of them in one
// transaction, each claim takes what there are slots for, and all get some.
func TestTenThousandSubscriptionsAreEachServed(t *testing.T) {
	t.Parallel()
	const n = 10_000
	r := newFixture(t, Config{})
	client := r.client()
	model, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.exec(`
INSERT INTO dispatch_endpoints (webhook, client, url, event_types, state, changed_at)
SELECT webhook || '-' || n, client, url, event_types, state, changed_at FROM dispatch_endpoints, generate_series(2, $1::int) n WHERE webhook = $2`, n, model)
	began := time.Now()
	r.apply(r.match(client))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("an event for %d subscriptions took %s to queue", n, took)
	}
	want := r.queuedIDs()
	if len(want) != n {
		t.Fatalf("queued %d times", len(want))
	}

	q, a := r.queue(time.Minute), newScheduler(Config{}.withDefaults())
	var after [attemptKinds]id.Webhook
	for claims := 0; len(want) > 0; claims++ {
		if claims > 2*n/256 {
			t.Fatalf("%d are not claimed after %d claims", len(want), claims)
		}
		found := testkit.Must(q.discover(t.Context(), after))(t)
		if len(found[firstAttempt]) > maxDiscovered {
			t.Fatalf("a look finds %d endpoints", len(found[firstAttempt]))
		}
		now := time.Now()
		for _, e := range found[firstAttempt] {
			a.expect(firstAttempt, e, now)
		}
		quotas := a.quotas(now)
		claims := testkit.Must(q.claim(t.Context(), quotas))(t)
		if most := a.budget[firstAttempt]; len(quotas) > most || len(claims) > most {
			t.Fatalf("a claim of %d for %d endpoints, over the %d slots", len(claims), len(quotas), most)
		}
		a.claimed(quotas, claims)
		for _, c := range claims {
			if !want[string(c.Delivery)] {
				t.Fatalf("%s is claimed twice", c.Delivery)
			}
			delete(want, string(c.Delivery))
			a.release(firstAttempt, c.Webhook, 1)
		}
	}
}

// A receiver that drips a byte of its answer at a time holds a slot no longer
// than the time-out; what it drips is no answer before its header is whole.
func TestAnAnswerThatDripsIsCutOffAtTheTimeOut(t *testing.T) {
	t.Parallel()
	drip := func(ctx context.Context, w io.Writer, text string) {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := w.Write([]byte{text[i%len(text)]}); err != nil {
				return
			}
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			_ = backoff.Sleep(ctx, 20*time.Millisecond) // the loop looks at ctx
		}
	}
	body := newReceiver(t, func(w http.ResponseWriter, q *http.Request) { drip(q.Context(), w, ".") })
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var dripping sync.WaitGroup
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			dripping.Go(func() {
				defer conn.Close()
				// What comes before a request is no answer, but an error of its own.
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				drip(t.Context(), conn, "HTTP/1.1 200 OK\r\nX-Endless: 1\r\nX-More: 1\r\n")
			})
		}
	}()
	t.Cleanup(func() { listener.Close(); dripping.Wait() })

	r := newFixture(t, Config{Timeout: 400 * time.Millisecond, RetryDelays: []time.Duration{time.Millisecond}})
	client := r.client()
	_, a := r.subscribe(client, body.URL, "")
	_, b := r.subscribe(client, "http://"+listener.Addr().String(), "")
	r.apply(a, b, r.match(client))
	r.start(r.Dispatcher)
	r.ended("delivered", 1) // its status had come
	r.ended("dropped", 1)
	if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE status = 200 AND length(answer) BETWEEN 2 AND 30`); n != 1 {
		t.Errorf("%d attempts kept what had dripped, not 1", n)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE status IS NULL AND error = 'no answer within the time-out'`); n != 2 {
		t.Errorf("%d attempts without a header failed by the time-out, not 2", n)
	}
	if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE latency_us > 5000000`); n != 0 {
		t.Errorf("%d attempts went on beyond the time-out", n)
	}
}

func TestASwitchOfProtocolsIsAFailureAndHoldsNothing(t *testing.T) {
	t.Parallel()
	rx := newReceiver(t, bare(t, func(conn net.Conn) {
		if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
			t.Error(err)
		}
		hangUp := context.AfterFunc(t.Context(), func() { conn.Close() })
		defer hangUp()
		_, _ = conn.Read(make([]byte, 1)) // says no more, until the other side hangs up
	}))
	r := newFixture(t, Config{RetryDelays: []time.Duration{time.Millisecond}})
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed, r.match(client))
	r.start(r.Dispatcher)
	r.ended("dropped", 1)
	if n := r.count(`SELECT count(*) FROM dispatch_attempts WHERE status = 101 AND error = 'answered 101'`); n != 2 {
		t.Errorf("%d attempts were answered with a switch, not 2", n)
	}
}

// A stopped database loses nothing: what arrived meanwhile is noted when it is back,
// and delivery goes on.
func TestADatabaseThatIsStoppedInABurstLosesNothing(t *testing.T) {
	t.Parallel()
	database := pgtest.Durable(t)
	pool := testkit.Must(postgres.Open(t.Context(), database.URL(), postgres.Options{}))(t)
	t.Cleanup(pool.Close)
	r := newFixtureOn(t, pool, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 3000)...)
	want := r.queuedIDs()

	missed := make(chan struct{})
	var once sync.Once
	r.Logger = slog.New(noticing{slog.DiscardHandler, func(message string) {
		if message == "webhook queue cannot be reached" {
			once.Do(func() { close(missed) })
		}
	}})
	r.start(r.Dispatcher)
	for range 500 {
		rx.next(t)
	}
	database.Kill()
	select {
	case <-missed:
	case <-time.After(patience):
		t.Fatal("nobody misses the database")
	}
	database.Restart()
	pool.Reset() // so that the test meets none of the connections that broke
	r.ended("delivered", len(want))
	if n := r.count(`SELECT count(DISTINCT delivery) FROM dispatch_deliveries`); n != len(want) {
		t.Errorf("%d of %d deliveries are noted", n, len(want))
	}
	for range len(rx.got) {
		delete(want, (<-rx.got).header.Get("X-Kindred-Delivery"))
	}
	if len(want) > 500 { // those that were received first
		t.Errorf("%d never arrived", len(want)-500)
	}
}

// A database that goes just as a process has come up ends nothing.
func TestADatabaseThatIsAwayAtTheStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 3)...)
	want := r.queuedIDs()
	r.exec(`ALTER TABLE dispatch_workers RENAME TO away`)
	missed := make(chan struct{}, 100)
	r.Logger = slog.New(noticing{slog.DiscardHandler, func(message string) {
		if message == "webhook queue cannot be reached" {
			missed <- struct{}{}
		}
	}})
	stop := r.start(r.Dispatcher)
	<-missed
	stop() // it need not come back for that

	r.start(r.Dispatcher)
	<-missed
	r.exec(`ALTER TABLE away RENAME TO dispatch_workers`)
	rx.gets(t, want)
	r.ended("delivered", len(want))
}

// noticing tells of messages that are logged.
type noticing struct {
	slog.Handler
	notice func(string)
}

func (noticing) Enabled(context.Context, slog.Level) bool { return true }

func (n noticing) Handle(_ context.Context, r slog.Record) error {
	n.notice(r.Message)
	return nil
}

// However the clock of a process jumps, nothing is sent early, twice, or never.
func TestAProcessWhoseClockJumpsDelivers(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	r := newFixture(t, Config{RetryDelays: []time.Duration{300 * time.Millisecond}})
	r.Now = func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load())) }
	rx := newReceiver(t, answers(500, 204))
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.start(r.Dispatcher)
	for _, jump := range []time.Duration{0, time.Hour, -2 * time.Hour, 40 * 24 * time.Hour, -80 * 24 * time.Hour} {
		r.apply(r.match(client))
		first := rx.next(t)
		offset.Add(int64(jump))
		if jump == 0 { // the only one that is refused
			if second := rx.next(t); second.at.Sub(first.at) < 300*time.Millisecond {
				t.Errorf("a retry after %s", second.at.Sub(first.at))
			}
		}
	}
	r.ended("delivered", 5)
	if n := len(rx.got); n != 0 {
		t.Errorf("%d deliveries too many", n)
	}
}

// The database's clock jumps: all leases have ended, by the look of it. They hold.
func TestLeasesHoldWhenTheDatabasesClockJumps(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	var open sync.Once
	release := make(chan struct{})
	rx := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { open.Do(func() { close(release) }) })
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 5)...)
	r.start(r.Dispatcher)
	other := r.worker()
	for range 5 {
		rx.next(t)
	}
	for range 3 {
		r.endLeases()
		if claims := r.claimBy(other.queue, 10); len(claims) != 0 {
			t.Fatalf("another process took %d of a living one", len(claims))
		}
		r.exec(notifyQueue)
		testkit.Eventually(r.TB, "its leases are renewed", func() bool {
			return r.count(`SELECT count(*) FROM dispatch_queue WHERE leased_until > now()`) == 5
		})
	}
	// What is claimed later is delivered: the process knows by now that it has renewed them.
	later, another := newReceiver(t, nil), r.client()
	_, subscribed = r.subscribe(another, later.URL, "")
	r.apply(subscribed, r.match(another))
	later.next(t)
	open.Do(func() { close(release) })
	r.ended("delivered", 6)
	if n := len(rx.got); n != 0 {
		t.Errorf("%d were sent twice", n)
	}
}

// So does the log of deliveries, which is kept by days.
func TestDeliveriesAreNotedOnADayThatNobodyExpected(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	arrived := make(chan struct{})
	rx.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-arrived })
	r.apply(r.match(client))
	r.start(r.Dispatcher)
	testkit.Eventually(r.TB, "it is under way", func() bool { return r.count(`SELECT count(*) FROM dispatch_queue WHERE token > 0`) == 1 })
	for _, table := range partitioned() { // the same as if they were of other days
		r.exec(`DROP TABLE ` + table + `_` + time.Now().UTC().Format(postgres.PartitionDay))
	}
	close(arrived)
	r.ended("delivered", 1)
}

// A database may be away for hours: the log says so now and then, however often it is tried.
func TestADatabaseThatIsAwayDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := newWorker(&Dispatcher{Logger: slog.New(noticing{slog.DiscardHandler, func(string) { told++ }})}, Config{})
		for began := time.Now(); time.Since(began) < time.Minute; {
			w.trouble(t.Context(), errors.New("away"))
		}
		if told < 2 || told > 3 {
			t.Errorf("told %d times in a minute", told)
		}
	})
}

func TestOutcomesThatCannotBeNotedDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	gone := testkit.Must(pgxpool.New(t.Context(), "postgres://127.0.0.1:1/"))(t)
	gone.Close()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		w := newWorker(&Dispatcher{Pool: gone, Control: gone, Now: time.Now, Logger: slog.New(noticing{slog.DiscardHandler, func(string) { told++ }})}, Config{})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if w.note(ctx, nil); told < 2 || told > 3 {
			t.Errorf("told %d times in a minute", told)
		}
	})
}
