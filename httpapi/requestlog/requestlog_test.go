package requestlog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/httpapi/requestlog"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const acme, other = id.Client("cli_a"), id.Client("cli_b")

func open(t *testing.T) (*requestlog.Log, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t)
	return &requestlog.Log{Pool: pool, Reads: pool, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}, pool
}

// run runs the log until the function that it returns is called.
func run(t *testing.T, l *requestlog.Log) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	end = sync.OnceFunc(func() { stop(); running.Wait() })
	t.Cleanup(end)
	return end
}

func get(client id.Client, n int, at time.Time, status int) httpapi.Answered {
	return httpapi.Answered{
		Client: client, Key: "key_1", ID: id.Request(fmt.Sprintf("req-%d", n)), Method: "GET", Route: "/api/v1/users/{user_id}", Status: status, At: at, Duration: 1500 * time.Microsecond,
	}
}

// all are the requests of a client by pages, and how many pages there are.
func all(t *testing.T, l *requestlog.Log, client id.Client, f requestlog.Filter, limit int) (found []httpapi.Answered, pages int) {
	t.Helper()
	for below := new(requestlog.Place); below != nil && pages < 10_000; pages++ {
		some, more, err := l.List(t.Context(), client, f, *below, limit)
		if err != nil {
			t.Fatal(err)
		}
		found, below = append(found, some...), more
	}
	return found, pages
}

func TestTheFirstRequestsOfASecondAreListedAndAllThatFailed(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	end := run(t, l)
	for second := range 2 {
		for n := range 25 {
			status := 200
			if n >= 20 {
				status = 503
			}
			l.Note(get(acme, n, at.Add(time.Duration(second)*time.Second+time.Duration(n)*time.Millisecond), status))
		}
	}
	l.Note(get(other, 1, at.Add(time.Second), 200))
	testkit.Eventually(t, "they are written", func() bool { alone, _ := all(t, l, other, requestlog.Filter{}, 7); return len(alone) == 1 })
	end()
	found, _ := all(t, l, acme, requestlog.Filter{}, 7)
	failed := 0
	for i, one := range found {
		if one.Status == 503 {
			failed++
		}
		if i > 0 && !one.At.Before(found[i-1].At) {
			t.Errorf("%v comes after %v", one.At, found[i-1].At)
		}
	}
	if len(found) != 30 || failed != 10 {
		t.Fatalf("%d are listed, %d of them failed; not 30 and 10", len(found), failed)
	}
	if last, want := found[29], get(acme, 0, at, 200); last.ID != want.ID || !last.At.Equal(at) || last.Duration != want.Duration || last.Key != want.Key || last.Route != want.Route {
		t.Errorf("the oldest is %+v", last)
	}
	if n, err := l.Omitted(t.Context(), acme); err != nil || n != 20 {
		t.Errorf("%d are omitted, %v", n, err)
	}
}

func TestOneClientsFailuresFillTheListForNobodyElse(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	for n := range 5000 {
		l.Note(get(acme, n, at.Add(time.Duration(n)*time.Microsecond), 503))
	}
	l.Note(get(other, 1, at.Add(time.Millisecond), 200))
	l.Note(get(other, 2, at.Add(time.Millisecond), 503))
	l.Note(get(other, 3, at.Add(-2*time.Hour), 200)) // the clock has gone back
	l.Note(get(other, 4, at.Add(-2*time.Hour+time.Second), 200))
	run(t, l)
	testkit.Eventually(t, "they are written", func() bool { mine, _ := all(t, l, acme, requestlog.Filter{}, 50); return len(mine) > 0 })
	if mine, _ := all(t, l, acme, requestlog.Filter{}, 50); len(mine) != 50 {
		t.Errorf("%d of 5,000 failures of a second are listed", len(mine))
	}
	if n, err := l.Omitted(t.Context(), acme); err != nil || n != 4950 {
		t.Errorf("%d are omitted, %v", n, err)
	}
	if others, _ := all(t, l, other, requestlog.Filter{}, 50); len(others) != 4 {
		t.Errorf("of another client %d of 4 are listed", len(others))
	}
}

func TestRequestsAreFilteredAndAPageLooksAtSoMany(t *testing.T) {
	t.Parallel()
	l, pool := open(t)
	end := run(t, l)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	rare := httpapi.Answered{Client: acme, ID: "rare", Method: "POST", Route: "/api/v1/users", Status: 422, At: at}
	l.Note(rare)
	testkit.Eventually(t, "it is listed", func() bool { found, _ := all(t, l, acme, requestlog.Filter{}, 5); return len(found) == 1 })
	end()
	if _, err := pool.Exec(t.Context(), `INSERT INTO request_log (client, at, request, method, route, status, duration_us, key)
		SELECT $1, $2::timestamptz + n * interval '1 ms', 'r' || n, 'GET', '/api/v1/users/{user_id}', 200, 5, 'key_1' FROM generate_series(1, 25000) n`, string(acme), at); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]requestlog.Filter{
		"status": {Least: 422, Most: 422}, "class": {Least: 400, Most: 499}, "method": {Method: "POST"}, "route": {Route: "/api/v1/users"},
	} {
		found, pages := all(t, l, acme, f, 50)
		if len(found) != 1 || found[0].ID != rare.ID || pages != 3 {
			t.Errorf("%s: %d on %d pages", name, len(found), pages)
		}
	}
	if found, _ := all(t, l, acme, requestlog.Filter{Key: "key_1"}, 1000); len(found) != 25000 {
		t.Errorf("%d of the key", len(found))
	}
	if found, _ := all(t, l, acme, requestlog.Filter{Key: "key_2"}, 1000); len(found) != 0 {
		t.Errorf("%d of no key", len(found))
	}
}

func TestDaysThatArePastAreDropped(t *testing.T) {
	t.Parallel()
	l, pool := open(t)
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format("2006-01-02") }
	for _, ago := range []int{6, 9} {
		name := "request_log_" + time.Now().UTC().AddDate(0, 0, -ago).Format("20060102")
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(`CREATE TABLE %s PARTITION OF request_log FOR VALUES FROM ('%sZ') TO ('%sZ');
			INSERT INTO request_omissions VALUES ('cli_a', '%[2]s', 5)`, name, day(ago), day(ago-1))); err != nil {
			t.Fatal(err)
		}
	}
	count := func(sql string) (n int) {
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	run(t, l)
	testkit.Eventually(t, "one of two days is gone", func() bool {
		return count(`SELECT count(*) FROM request_omissions`) == 1 &&
			count(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'request_log'::regclass`) == 1+5 // from yesterday to three days ahead
	})
}

// What is too much for a second is counted, in whatever order it comes.
func TestNothingIsLostUncounted(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	var noting sync.WaitGroup
	at := time.Now().Truncate(time.Second)
	const clients, each = 600, 20
	for c := range clients {
		noting.Go(func() {
			for n := range each {
				l.Note(get(id.Client(fmt.Sprintf("cli_%03d", c)), n, at, 200+300*(n%2)))
			}
		})
	}
	noting.Wait()
	run(t, l)
	testkit.Eventually(t, "all are listed or counted", func() bool {
		sum := 0
		for c := range clients {
			client := id.Client(fmt.Sprintf("cli_%03d", c))
			found, _, err := l.List(t.Context(), client, requestlog.Filter{}, requestlog.Place{}, 50)
			if err != nil {
				t.Fatal(err)
			}
			omitted := testkit.Must(l.Omitted(t.Context(), client))(t)
			sum += len(found) + int(omitted)
		}
		return sum == clients*each
	})
}

func TestWhatCannotBeWrittenIsCounted(t *testing.T) {
	t.Parallel()
	l, pool := open(t)
	if err := l.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	rename := func(from, to string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE %s RENAME TO %s`, from, to)); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Now().Truncate(time.Second)
	for n := range 15 { // 5 of which are too many
		l.Note(get(acme, n, at, 200))
	}
	rename("request_log", "away")
	if err := l.Write(t.Context()); err == nil {
		t.Fatal("it was written")
	}
	rename("away", "request_log")
	l.Note(get(acme, 20, at.Add(time.Second), 200))
	if err := l.Write(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, _ := all(t, l, acme, requestlog.Filter{}, 50)
	if n, err := l.Omitted(t.Context(), acme); err != nil || n != 15 || len(found) != 1 {
		t.Errorf("%d are omitted, %d are listed, %v; want 15 and 1", n, len(found), err)
	}
}

// A database may be away for hours: the log says so now and then.
func TestADatabaseThatIsAwayDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	gone := testkit.Must(pgxpool.New(t.Context(), "postgres://127.0.0.1:1/"))(t)
	gone.Close()
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		l := &requestlog.Log{Pool: gone, Now: time.Now, Logger: slog.New(slog.NewTextHandler(&told, nil))}
		ctx, stop := context.WithCancel(t.Context())
		go l.Run(ctx)
		time.Sleep(time.Minute + time.Second/2) // of the bubble
		synctest.Wait()
		stop()
		synctest.Wait()
		if n := strings.Count(told.String(), "\n"); n < 2 || n > 4 {
			t.Errorf("%d lines in a minute:\n%s", n, told.String())
		}
	})
}

// What it takes a request to be noted.
func BenchmarkNote(b *testing.B) {
	l, at := new(requestlog.Log), time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			l.Note(get(acme, 1, at.Add(time.Duration(n)*time.Microsecond), 200))
		}
	})
}

// What it takes to list as many requests as a process lists of a second.
func BenchmarkWrite(b *testing.B) {
	pool := pgtest.New(b)
	l := &requestlog.Log{Pool: pool, Reads: pool, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
	if err := l.Maintain(b.Context()); err != nil {
		b.Fatal(err)
	}
	at := time.Now()
	for second := 0; b.Loop(); second++ {
		for n := range 1000 {
			l.Note(get(id.Client(fmt.Sprintf("cli_%03d", n%500)), n, at.Add(time.Duration(second)*time.Second/10), 200))
		}
		if err := l.Write(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/row")
}
