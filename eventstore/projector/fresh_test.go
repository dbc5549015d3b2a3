package projector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

func TestReadersSeeWhatWasAcknowledgedBefore(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "warm"))

	// Each reader writes for a client of its own and reads it back, while all
	// others keep the log growing.
	const readers, rounds = 6, 60
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	for r := range readers {
		mine := newFixtureOn(w.pool, w.log.Store)
		mine.progress = w.progress
		all.Go(func() {
			client := id.Client(fmt.Sprint("cli_", r))
			for i := range rounds {
				want := fmt.Sprint(r, " writes ", i)
				mine.rename(t, client, want)
				began := time.Now()
				got, err := mine.newest(t.Context(), client, false)
				if err != nil || got != want {
					t.Errorf("reader %d got %q, %v; want %q", r, got, err, want)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) > 0 {
		t.Logf("append to fresh read: p50 %s, p99 %s", took[len(took)/2], took[len(took)*99/100])
	}
}

func TestAReadWaitsForTheHeadAsOfItsFirstTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The model is always one event behind a head that never stands still.
		tries := 0
		reader := projector.Reader{Of: names{}, Progress: projector.NewProgress(nil, slog.New(slog.DiscardHandler))}
		err := reader.Read(t.Context(), false, func(context.Context) (projector.At, error) {
			tries++
			return projector.At{Reached: position(tries), Head: position(tries + 1)}, nil
		})
		if err != nil || tries != 2 {
			t.Errorf("%d tries, %v; want 2", tries, err)
		}
	})
}

// What a read costs is not paid at each look.
func TestAReadThatWaitsReadsNothingBeforeTheModelIsThere(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	reads := 0
	read := func(ctx context.Context) error {
		reader := projector.Reader{Of: names{}, Progress: w.progress, Client: acme}
		return reader.Read(ctx, false, func(context.Context) (projector.At, error) {
			reads++
			return projector.At{Reached: position(reads), Head: position(2)}, nil
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // four looks
	defer cancel()
	if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) || reads != 1 {
		t.Errorf("%d reads of a model that stands still, %v", reads, err)
	}
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO checkpoints (name, epoch, position, event_id, events, lease_epoch) VALUES ('names_2', '', $1, '', 2, 0)`, position(2)); err != nil {
		t.Fatal(err)
	}
	if reads = 0; read(t.Context()) != nil || reads != 2 {
		t.Errorf("%d reads once it is there", reads)
	}
}

func TestAReaderThatDoesNotWaitSaysHowTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader := projector.Reader{Of: names{}, Progress: projector.NewProgress(nil, slog.New(slog.DiscardHandler)), AtOnce: true}
		looks, began := 0, time.Now()
		read := func(ctx context.Context) error {
			return reader.Read(ctx, false, func(context.Context) (projector.At, error) {
				looks++
				return projector.At{Reached: position(looks), Head: position(looks + 2)}, nil
			})
		}
		err := read(t.Context())
		f := fault.As(err)
		if !fault.Is(err, "stale") || f.Soon == nil || looks != 1 || time.Since(began) > 0 {
			t.Fatalf("%v after %d looks and %s", err, looks, time.Since(began))
		}
		if err := fault.Await(t.Context(), read); err != nil || looks != 4 {
			t.Errorf("%v after %d looks; it waits for what was there at first", err, looks)
		}
	})
}

func TestAReaderThatIsAskedAgainGivesUpAfterTwoSecondsInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader := projector.Reader{Of: names{}, Progress: projector.NewProgress(nil, slog.New(slog.DiscardHandler)), AtOnce: true}
		began := time.Now()
		err := fault.Await(t.Context(), func(ctx context.Context) error {
			return reader.Read(ctx, false, func(context.Context) (projector.At, error) { return projector.At{Reached: "1", Head: "2"}, nil })
		})
		if f := fault.As(err); !fault.Is(err, "stale") || f.Soon != nil || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func position(n int) eventstore.Position { return eventstore.Position(fmt.Sprintf("%016x", n)) }

func TestAReadGivesUpAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	missing := &pgconn.PgError{Code: "42P01"}
	for name, c := range map[string]struct {
		at       projector.At
		err      error
		eventual bool
		code     string
		took     time.Duration
	}{
		"the model stands still":         {projector.At{Reached: "1", Head: "2"}, nil, false, "stale", 2 * time.Second},
		"the caller does not mind":       {projector.At{Reached: "1", Head: "2"}, nil, true, "", 0},
		"there are no tables":            {projector.At{}, missing, false, "building", 2 * time.Second},
		"no tables, for who cannot wait": {projector.At{}, missing, true, "building", 0},
		"the client is quarantined":      {projector.At{Reached: "2", Head: "2", Quarantined: true}, nil, false, "quarantined", 0},
		"the client has no event":        {projector.At{}, nil, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				reader := projector.Reader{Of: names{}, Progress: projector.NewProgress(nil, slog.New(slog.DiscardHandler))}
				err := reader.Read(t.Context(), c.eventual, func(context.Context) (projector.At, error) { return c.at, c.err })
				f := fault.As(err)
				switch {
				case c.code == "" && err != nil:
					t.Errorf("got %v", err)
				case c.code != "" && (f == nil || f.Code != c.code || f.Kind != fault.Unavailable || f.RetryAfter <= 0):
					t.Errorf("got %#v", err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

func TestAReadersOwnErrorComesBack(t *testing.T) {
	t.Parallel()
	reader := projector.Reader{Of: names{}, Progress: projector.NewProgress(nil, slog.New(slog.DiscardHandler))}
	err := reader.Read(t.Context(), false, func(context.Context) (projector.At, error) { return projector.At{}, errTest })
	if !errors.Is(err, errTest) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = reader.Read(ctx, false, func(context.Context) (projector.At, error) {
		cancel()
		return projector.At{Head: "1"}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
}

func TestReadersOfAnotherProcessAreWoken(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	elsewhere := projector.NewProgress(w.pool, slog.New(slog.DiscardHandler))
	background(t, func(ctx context.Context) error { elsewhere.Run(ctx); return nil })
	testkit.Eventually(t, "both processes listen", func() bool {
		return w.one(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query = 'LISTEN kindred_checkpoint' AND state = 'idle'`) == 2
	})
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	at := w.rename(t, acme, "x")
	testkit.Eventually(t, "the news arrives without a look at the table", func() bool {
		known, _ := elsewhere.Look("names_2")
		return known == at
	})
	if err := elsewhere.Wait(t.Context(), names{}, "", at); err != nil {
		t.Error(err)
	}
	if err := elsewhere.Wait(t.Context(), names{}, "", at+"0"); !fault.Is(err, "stale") {
		t.Errorf("waiting for what never comes: %v", err)
	}
}

func TestProgressIsHeardAgainAfterALostConnection(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	listening := func() bool {
		return w.one(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND query = 'LISTEN kindred_checkpoint' AND state = 'idle'`) == 1
	}
	testkit.Eventually(t, "somebody listens", listening)
	w.one(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query = 'LISTEN kindred_checkpoint'`)
	testkit.Eventually(t, "somebody listens again", listening)
	if got := w.rename(t, acme, "x"); w.progress.Wait(t.Context(), names{}, acme, got) != nil {
		t.Error("not reached")
	}
}

func TestWhoIsHeldHoldsNobodyElseBack(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("live").Run(ctx, names{}) })
	w.passed(t, "names_2", w.rename(t, acme, "before"))
	const hold = `INSERT INTO quarantine (projection, client, position, event_id, reason, paused)
		SELECT name, $1, position, '', '', true FROM checkpoints`
	if _, err := w.pool.Exec(t.Context(), hold, acme); err != nil {
		t.Fatal(err)
	}
	at := w.rename(t, bolt, "after")
	if err := w.progress.Wait(t.Context(), names{}, bolt, at); err != nil {
		t.Errorf("of another client: %v", err)
	}
	for _, client := range []id.Client{acme, ""} {
		if err := w.progress.Wait(t.Context(), names{}, client, at); !fault.Is(err, "stale") {
			t.Errorf("of %q: got %v", client, err)
		}
	}
}

func TestALargeBatchThatSomebodyWaitsForTakesNoTurn(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, numbered("renaming", 200)...)
	r := w.runner("a")
	r.Large = make(chan struct{}, 1)
	r.Large <- struct{}{} // another projection's batch, which does not end
	background(t, func(ctx context.Context) error { return r.Run(ctx, names{}) })
	if got, err := w.newest(t.Context(), acme, false); err != nil || got != "renaming 199" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestALargeBatchThatSomebodyWaitsForInAnotherProcessTakesNoTurn(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	elsewhere := projector.NewProgress(w.pool, slog.New(slog.DiscardHandler))
	background(t, func(ctx context.Context) error { elsewhere.Run(ctx); return nil })
	r := w.runner("a")
	r.Batch, r.Large = time.Hour, make(chan struct{}, 1)
	r.Large <- struct{}{} // another projection's batch, which does not end
	at := w.rename(t, acme, numbered("renaming", 200)...)
	background(t, func(ctx context.Context) error { return r.Run(ctx, names{}) })
	testkit.Eventually(t, "a read elsewhere sees the batch", func() bool {
		return elsewhere.Wait(t.Context(), names{}, acme, at) == nil
	})
}

func TestFewLargeEventsTakeATurn(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	at := w.rename(t, acme, slices.Repeat([]string{strings.Repeat("x", 200<<10)}, 8)...)
	r, turn := w.runner("a"), make(chan struct{})
	r.Large = turn
	background(t, func(ctx context.Context) error { return r.Run(ctx, names{}) })
	select {
	case <-turn: // it takes one,
		turn <- struct{}{} // and gives it back
	case <-time.After(time.Minute):
		t.Fatal("1.6 MB took no turn")
	}
	w.passed(t, "names_2", at)
}

func TestNamesAreFitForSQL(t *testing.T) {
	t.Parallel()
	if got := projector.ID(names{}); got != "names_2" {
		t.Errorf("id %q", got)
	}
	if got := projector.ID(counter{}); got != "counter" {
		t.Errorf("what is no read model keeps its place under %q", got)
	}
	if got := projector.Fresh(names{}); strings.Contains(got, "SLOT") || strings.Count(got, "'names_2'") != 3 {
		t.Errorf("got %s", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a name with a quote was taken")
		}
	}()
	projector.ID(named("x'y"))
}

type named string

func (n named) Name() string { return string(n) }
func (named) Version() int   { return 1 }

func (named) Apply(context.Context, pgx.Tx, []eventstore.Recorded) error { return nil }
