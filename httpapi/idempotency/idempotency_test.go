package idempotency_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/httpapi/idempotency"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func repeat(key, body string) httpapi.Repeat {
	return httpapi.Repeat{Client: id.Client("cli_a"), Route: "POST /x", Key: []byte(key), Body: []byte(body)}
}

func reserve(t *testing.T, s *idempotency.Store, r httpapi.Repeat) httpapi.Complete {
	t.Helper()
	return testkit.Must(s.Reserve(t.Context(), r))(t)
}

func completed(t *testing.T, complete httpapi.Complete, succeeded bool) {
	t.Helper()
	if err := complete(t.Context(), succeeded); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, s *idempotency.Store, r httpapi.Repeat, code string) {
	t.Helper()
	if _, err := s.Reserve(t.Context(), r); !fault.Is(err, code) {
		t.Fatalf("got %v, want %s", err, code)
	}
}

func TestReserve(t *testing.T) {
	pool := pgtest.New(t)
	s := &idempotency.Store{Pool: pool, Lease: time.Hour}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("a key that took effect belongs to its body, which may run again", func(t *testing.T) {
		complete := reserve(t, s, repeat("a", "1"))
		refused(t, s, repeat("a", "1"), "in_flight")
		refused(t, s, repeat("a", "2"), "idempotency_key_reused")
		completed(t, complete, true)
		again := reserve(t, s, repeat("a", "1"))
		completed(t, again, false) // a repeated request that is refused frees nothing
		refused(t, s, repeat("a", "2"), "idempotency_key_reused")
	})
	t.Run("a key that was refused is free again", func(t *testing.T) {
		completed(t, reserve(t, s, repeat("b", "1")), false)
		completed(t, reserve(t, s, repeat("b", "2")), true)
	})
	t.Run("keys of other clients and routes are other keys", func(t *testing.T) {
		mine, others, elsewhere := repeat("c", "1"), repeat("c", "2"), repeat("c", "3")
		others.Client, elsewhere.Route = "cli_b", "POST /y"
		for _, r := range []httpapi.Repeat{mine, others, elsewhere} {
			reserve(t, s, r)
		}
		for _, r := range []httpapi.Repeat{mine, others, elsewhere} {
			refused(t, s, r, "in_flight")
		}
	})
	t.Run("a dead holder's key goes to the same body, and the dead completes nothing", func(t *testing.T) {
		dead := reserve(t, s, repeat("d", "1"))
		exec(`UPDATE idempotency SET lease_until = now() - interval '1 second'`)
		refused(t, s, repeat("d", "2"), "idempotency_key_reused")
		next := reserve(t, s, repeat("d", "1"))
		for _, succeeded := range []bool{false, true} {
			completed(t, dead, succeeded)
			refused(t, s, repeat("d", "1"), "in_flight")
		}
		completed(t, next, true)
		reserve(t, s, repeat("d", "1"))
	})
	t.Run("a dead holder's key waits for no clock that was ahead", func(t *testing.T) {
		reserve(t, s, repeat("f", "1"))
		exec(`UPDATE idempotency SET lease_until = lease_until + interval '9 hours'`)
		completed(t, reserve(t, s, repeat("f", "1")), true)
	})
	t.Run("a dead holder's key is as old as its last request", func(t *testing.T) {
		reserve(t, s, repeat("g", "1"))
		exec(`UPDATE idempotency SET lease_until = now() - interval '1 second', created_at = now() - interval '49 hours'`)
		completed(t, reserve(t, s, repeat("g", "1")), true)
		if _, err := s.Prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		refused(t, s, repeat("g", "2"), "idempotency_key_reused")
	})
	t.Run("old keys are forgotten, in batches", func(t *testing.T) {
		exec(`DELETE FROM idempotency`)
		exec(`INSERT INTO idempotency (client, route, key, body, lease_until, created_at)
			SELECT 'cli_a', 'POST /x', int4send(n), '', now(), now() - interval '49 hours' FROM generate_series(1, 2500) n`)
		reserve(t, s, repeat("e", "1"))
		if n, err := s.Prune(t.Context()); err != nil || n != 2500 {
			t.Fatalf("pruned %d, %v; want 2500", n, err)
		}
		refused(t, s, repeat("e", "1"), "in_flight")
	})
}

func TestAKeyIsKeptWhileItsProcessLivesAndSoonFreeAfter(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	first := &idempotency.Store{Pool: pool, Lease: 1500 * time.Millisecond}
	second := &idempotency.Store{Pool: pool, Lease: time.Hour}
	ctx, die := context.WithCancel(t.Context())
	defer die()
	var living sync.WaitGroup
	living.Go(func() { first.Run(ctx, slog.New(slog.DiscardHandler)) })

	reserve(t, first, repeat("a", "1"))
	reserve(t, first, repeat("b", "1")) // another request is under way
	reserve(t, second, repeat("c", "1"))
	until := func(key string) (at time.Time) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT lease_until FROM idempotency WHERE key = $1`, []byte(key)).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	reserved, anothers := until("a"), until("c")
	testkit.Eventually(t, "the lease is prolonged", func() bool { return until("a").After(reserved) })
	if at := until("c"); !at.Equal(anothers) {
		t.Errorf("the lease of another process ends at %s, not at %s", at, anothers)
	}
	refused(t, second, repeat("a", "1"), "in_flight")

	die()
	living.Wait()
	var complete httpapi.Complete
	testkit.Eventually(t, "the key is free", func() (free bool) {
		var err error
		complete, err = second.Reserve(t.Context(), repeat("a", "1"))
		if err != nil && !fault.Is(err, "in_flight") {
			t.Fatal(err)
		}
		return err == nil
	})
	completed(t, complete, true)
}

func TestNothingIsKeptInMemoryOfWhatIsOver(t *testing.T) {
	t.Parallel()
	s := &idempotency.Store{Pool: pgtest.New(t)}
	took, refused := reserve(t, s, repeat("a", "1")), reserve(t, s, repeat("b", "1"))
	if n := s.Held(); n != 2 {
		t.Errorf("%d requests are under way", n)
	}
	completed(t, took, true)
	completed(t, refused, false)
	completed(t, reserve(t, s, repeat("a", "1")), true)
	if n := s.Held(); n != 0 {
		t.Errorf("%d requests are kept", n)
	}
}

func TestRunForgetsOldKeys(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	s := &idempotency.Store{Pool: pool}
	completed(t, reserve(t, s, repeat("a", "1")), true)
	if _, err := pool.Exec(t.Context(), `UPDATE idempotency SET created_at = now() - interval '49 hours'`); err != nil {
		t.Fatal(err)
	}
	completed(t, reserve(t, s, repeat("b", "1")), true)
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { s.Run(ctx, slog.New(slog.DiscardHandler)) })
	testkit.Eventually(t, "one of two keys is forgotten", func() bool {
		var left []byte
		if err := pool.QueryRow(t.Context(), `SELECT string_agg(key, ',') FROM idempotency`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return string(left) == "b"
	})
}

// Twenty requests with one key at once: they never run side by side, and when
// the first success is in, no refusal undoes it.
func TestOneAtATime(t *testing.T) {
	s := &idempotency.Store{Pool: pgtest.New(t), Lease: time.Hour}
	var round atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		outcomes := rapid.SliceOfN(rapid.Bool(), 20, 20).Draw(rt, "outcomes")
		key := fmt.Sprint(round.Add(1))
		var (
			running, ran atomic.Int32
			succeeded    atomic.Bool
			wg           sync.WaitGroup
		)
		for _, success := range outcomes {
			wg.Go(func() {
				complete, err := s.Reserve(context.Background(), repeat(key, "1"))
				if fault.Is(err, "in_flight") {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				ran.Add(1)
				if running.Add(1) > 1 && !succeeded.Load() {
					t.Error("two run at once")
				}
				if success {
					succeeded.Store(true)
				}
				running.Add(-1)
				if err := complete(context.Background(), success); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if ran.Load() == 0 {
			t.Error("none ran")
		}
		_, err := s.Reserve(context.Background(), repeat(key, "2"))
		if got := fault.Is(err, "idempotency_key_reused"); got != succeeded.Load() {
			t.Errorf("after success %t: another body got %v", succeeded.Load(), err)
		}
	})
}

// A client may send 2,000 a second; what a process takes in of all clients is a few thousand.
func TestKeysAreForgottenFasterThanTheyCome(t *testing.T) {
	t.Parallel()
	if most := idempotency.PrunedASecond; most < 5*2_000 {
		t.Errorf("%d keys are forgotten in a second", most)
	}
}
