package dispatcher

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

var (
	patience  = testkit.Patience()
	allEvents = event.All()
)

// fixture is a dispatcher on a database of its own, and a log to apply.
type fixture struct {
	testing.TB
	*Dispatcher
	pool  *pgxpool.Pool
	vault *seal.Vault
	ids   *id.Source

	position int
	at       time.Time
}

func newFixture(t testing.TB, config Config) *fixture {
	t.Helper()
	return newFixtureOn(t, pgtest.New(t), config)
}

// newFixtureOn is newFixture on a database of the test's choice.
func newFixtureOn(t testing.TB, pool *pgxpool.Pool, config Config) *fixture {
	t.Helper()
	keys := keystest.NewMemory()
	vault := seal.New(keys, keystest.NewMaster(t), rand.Reader)
	r := &fixture{
		TB: t, pool: pool, vault: vault, ids: id.Random(rand.Reader),
		at: time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
	}
	r.Dispatcher = r.replica(config)
	if err := r.makePartitions(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// replica is another process on the same database.
func (r *fixture) replica(config Config) *Dispatcher {
	return &Dispatcher{
		Pool: r.pool, Secrets: r.vault, Config: config, Now: time.Now,
		Guard:   NewGuard(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")),
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Logger:  slog.New(slog.DiscardHandler),
	}
}

// start runs a dispatcher until the test ends, or stop is called.
func (r *fixture) start(d *Dispatcher) (stop func()) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			r.Errorf("run: %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	r.Cleanup(stop)
	return stop
}

// recorded is the next event of the log.
func (r *fixture) recorded(client id.Client, e event.Event) eventstore.Recorded {
	r.Helper()
	name, version, err := allEvents.Name(e)
	if err != nil {
		r.Fatal(err)
	}
	r.position++
	r.at = r.at.Add(time.Millisecond)
	rec := eventstore.Recorded{Event: e, Record: eventstore.Record{
		Position: eventstore.Position(fmt.Sprintf("%016x", r.position)),
		Stream:   eventstore.Stream("webhook-" + client),
		Proposed: eventstore.Proposed{ID: id.Next[id.Event](r.ids), Type: name, Version: version, Client: client, RecordedAt: r.at},
	}}
	if bearer, ok := e.(event.PersonalData); ok {
		for _, field := range bearer.Personal() {
			if field.Value == nil {
				continue
			}
			if err := r.vault.Prepare(r.Context(), client, bearer.Subject()); err != nil {
				r.Fatal(err)
			}
			place := seal.Place{Client: client, Stream: string(rec.Stream), Event: rec.ID, Field: field.Name}
			if field.Value.Box, err = r.vault.Seal(r.Context(), bearer.Subject(), place, field.Value.Plain); err != nil {
				r.Fatal(err)
			}
			field.Value.Plain = nil
		}
	}
	return rec
}

// apply puts events through the projection, all in one batch.
func (r *fixture) apply(batch ...eventstore.Recorded) {
	r.Helper()
	err := pgx.BeginFunc(r.Context(), r.pool, func(tx pgx.Tx) error {
		return r.Apply(r.Context(), tx, batch)
	})
	if err != nil {
		r.Fatal(err)
	}
}

const matchType = "match.computed"

func (r *fixture) client() id.Client { return id.Next[id.Client](r.ids) }

// subscribe is the fact of a subscription to matches; no secret means none.
func (r *fixture) subscribe(client id.Client, url, secret string) (id.Webhook, eventstore.Recorded) {
	webhook := id.Next[id.Webhook](r.ids)
	e := event.WebhookSubscribed{Webhook: webhook, WebhookAddress: event.At(url), EventTypes: []string{matchType}}
	if secret != "" {
		e.Secret = event.Private([]byte(secret))
	}
	return webhook, r.recorded(client, e)
}

func (r *fixture) match(client id.Client) eventstore.Recorded {
	return r.recorded(client, event.MatchComputed{
		User: id.Next[id.User](r.ids), MatchedUser: id.Next[id.User](r.ids), Score: 0.75,
	})
}

func (r *fixture) matches(client id.Client, n int) []eventstore.Recorded {
	all := make([]eventstore.Recorded, n)
	for i := range all {
		all[i] = r.match(client)
	}
	return all
}

// count runs a query that returns one number.
func (r *fixture) count(sql string, args ...any) (n int) {
	r.Helper()
	if err := r.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

func (r *fixture) exec(sql string, args ...any) {
	r.Helper()
	if _, err := r.pool.Exec(context.Background(), sql, args...); err != nil {
		r.Fatal(err)
	}
}

// ended waits until n deliveries have ended in a state.
func (r *fixture) ended(state string, n int) {
	r.Helper()
	testkit.Eventually(r.TB, fmt.Sprintf("%d deliveries end as %s", n, state), func() bool {
		return r.count(`SELECT count(*) FROM dispatch_deliveries WHERE state = $1`, state) >= n
	})
}

// request is what a receiver got.
type request struct {
	at     time.Time
	header http.Header
	body   string
}

// receiver answers deliveries and remembers them.
type receiver struct {
	*httptest.Server
	got chan request
}

func newReceiver(t testing.TB, answer http.HandlerFunc) *receiver {
	t.Helper()
	rx := &receiver{got: make(chan request, 100_000)}
	rx.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := time.Now()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		rx.got <- request{at, r.Header, string(body)}
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(func() { rx.CloseClientConnections(); rx.Close() })
	return rx
}

// next is the next request, which must come.
func (rx *receiver) next(t testing.TB) request {
	t.Helper()
	select {
	case got := <-rx.got:
		return got
	case <-time.After(patience):
		t.Fatal("no delivery")
		return request{}
	}
}

// answers gives each request the next status, and repeats the last.
func answers(statuses ...int) http.HandlerFunc {
	var (
		mu   sync.Mutex
		next int
	)
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		status := statuses[min(next, len(statuses)-1)]
		next++
		mu.Unlock()
		w.WriteHeader(status)
	}
}

// bare answers by what is written to the connection, which it closes then.
func bare(t testing.TB, write func(net.Conn)) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		write(conn)
	}
}
