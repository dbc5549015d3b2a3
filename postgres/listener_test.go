package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

var patience = testkit.Patience()

// hearing follows a channel and keeps what it is told.
type hearing struct {
	told  chan string // "begin", "lost" or what was heard
	leave func()
}

func hear(t *testing.T, l *postgres.Listener, channel string) hearing {
	t.Helper()
	h := hearing{told: make(chan string, 100)}
	ctx, stop := context.WithCancel(t.Context())
	var left sync.WaitGroup
	left.Go(func() {
		l.Follow(ctx, postgres.Follow{
			Channel: channel,
			Begin:   func(int64) { h.told <- "begin" },
			Heard:   func(payload string) { h.told <- payload },
			Lost:    func() { h.told <- "lost" },
		})
	})
	h.leave = func() { stop(); left.Wait() }
	t.Cleanup(h.leave)
	return h
}

func (h hearing) want(t *testing.T, all ...string) {
	t.Helper()
	for _, want := range all {
		select {
		case got := <-h.told:
			if got != want {
				t.Fatalf("told %q; want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("never told %q", want)
		}
	}
}

func say(t *testing.T, pool *pgxpool.Pool, channel, what string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `SELECT pg_notify($1, $2)`, channel, what); err != nil {
		t.Fatal(err)
	}
}

func listeners(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	const count = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`
	if err := pool.QueryRow(t.Context(), count).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAllThatListenShareOneConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	l := postgres.NewListener(pool.Config().ConnConfig, nil)
	one := hear(t, l, "one")
	one.want(t, "begin")
	two, again := hear(t, l, "two"), hear(t, l, "one") // while it waits on the connection
	two.want(t, "begin")
	again.want(t, "begin")
	say(t, pool, "one", "1")
	say(t, pool, "two", "2")
	one.want(t, "1")
	again.want(t, "1")
	two.want(t, "2")
	if n := listeners(t, pool); n != 1 {
		t.Errorf("%d connections listen", n)
	}
	again.leave()
	say(t, pool, "one", "3")
	one.want(t, "3")
	if len(again.told) > 0 {
		t.Errorf("told after it left: %q", <-again.told)
	}
	one.leave()
	two.leave()
	testkit.Eventually(t, "no connection listens to nothing", func() bool { return listeners(t, pool) == 0 })
	anew := hear(t, l, "one")
	anew.want(t, "begin")
	say(t, pool, "one", "4")
	anew.want(t, "4")
}

func TestAConnectionThatIsLostIsMadeAnewAndTold(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	h := hear(t, postgres.NewListener(pool.Config().ConnConfig, nil), "one")
	for range 3 {
		h.want(t, "begin")
		const kill = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`
		if _, err := pool.Exec(t.Context(), kill); err != nil {
			t.Fatal(err)
		}
		h.want(t, "lost")
	}
	h.want(t, "begin")
	say(t, pool, "one", "heard")
	h.want(t, "heard")
}

func TestThatNothingIsHeardIsLoggedOnce(t *testing.T) {
	t.Parallel()
	config := pgtest.New(t).Config().ConnConfig.Copy()
	var away atomic.Bool
	tries := make(chan struct{}, 100)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			tries <- struct{}{}
			return nil, errors.New("the server is away")
		}
		return dial(ctx, network, address)
	}
	away.Store(true)
	var logged bytes.Buffer // which is read once nobody listens any more
	h := hear(t, postgres.NewListener(config, slog.New(slog.NewTextHandler(&logged, nil))), "one")
	for range 8 {
		select {
		case <-tries:
		case <-time.After(patience):
			t.Fatal("it is not tried again")
		}
	}
	away.Store(false)
	h.want(t, "begin")
	h.leave()
	if n := bytes.Count(logged.Bytes(), []byte("level=WARN")); n != 1 {
		t.Errorf("%d lines of the log, want 1:\n%s", n, logged.String())
	}
}

// deaf is a connection to a server that vanishes without a word.
type deaf struct {
	net.Conn
	vanished *atomic.Bool
}

func (d deaf) Write(p []byte) (int, error) {
	if d.vanished.Load() {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

func TestAServerThatVanishesWithoutAWordIsNoticed(t *testing.T) {
	t.Parallel()
	config := pgtest.New(t).Config().ConnConfig.Copy()
	var vanished atomic.Bool
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return deaf{conn, &vanished}, err
	}
	h := hear(t, postgres.NewListener(config, nil), "one")
	h.want(t, "begin")
	vanished.Store(true)
	h.want(t, "lost")
	vanished.Store(false)
	h.want(t, "begin")
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	once *sync.Once
	open *atomic.Int64
}

func (c counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// What is under way to a pooler when a process ends would be cut off: who has left has hung up.
func TestWhoLeavesHasHungUp(t *testing.T) {
	config := pgtest.New(t).Config().ConnConfig
	var open atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return counted{conn, new(sync.Once), &open}, nil
	}
	l := postgres.NewListener(config, nil)
	for range 20 {
		h := hear(t, l, "one")
		h.want(t, "begin")
		h.leave()
		if n := open.Load(); n != 0 {
			t.Fatalf("%d connections are open", n)
		}
	}
}
