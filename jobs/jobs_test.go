package jobs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/jobs"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

const kind = "tests"

type fixture struct {
	*testing.T
	jobs.Queue
	pool *pgxpool.Pool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(t)
	return &fixture{t, jobs.Queue{Pool: pool, Kind: kind, Lease: time.Minute}, pool}
}

func (f *fixture) ask(clients ...id.Client) {
	f.Helper()
	for _, client := range clients {
		f.exec(jobs.Ask, client, kind)
	}
}

func (f *fixture) exec(sql string, args ...any) {
	f.Helper()
	if _, err := f.pool.Exec(f.Context(), sql, args...); err != nil {
		f.Fatal(err)
	}
}

// rested lets every rest and every lease be over.
func (f *fixture) rested() { f.Helper(); f.exec(`UPDATE jobs SET due_at = '-infinity'`) }

// turn has one job go on in a way, and returns it; it has no client where none was due.
func (f *fixture) turn(next jobs.Outcome, err error) (job jobs.Job) {
	f.Helper()
	worked, got := f.Turn(f.Context(), func(_ context.Context, j jobs.Job) (jobs.Outcome, error) {
		job = j
		return next, err
	})
	if worked != (job.Client != "") || !errors.Is(got, err) {
		f.Fatal(worked, got)
	}
	return job
}

func TestClientsTakeTurnsUntilNothingWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a", "b", "a", "c")
	f.exec(jobs.Ask, "d", "another kind")
	var got []id.Client
	for _, next := range []jobs.Outcome{{}, {}, {Done: true}, {}, {Done: true}, {Done: true}, {}} {
		got = append(got, f.turn(next, nil).Client)
	}
	if want := []id.Client{"a", "b", "c", "a", "b", "a", ""}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A job rests, or its turn was cut short, as the server's clock is set back by hours.
func TestNoJobWaitsForAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a")
	f.turn(jobs.Outcome{Failed: true}, errors.New("trouble"))
	if got := f.turn(jobs.Outcome{}, nil); got.Client != "" {
		t.Fatal("it does not rest")
	}
	f.exec(`UPDATE jobs SET due_at = due_at + interval '3 hours'`)
	if got := f.turn(jobs.Outcome{}, nil); got.Client != "a" {
		t.Error("it waits for hours")
	}
}

func TestWhatIsAskedForDuringATurnIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a")
	turns := 0
	for range 3 {
		_, err := f.Turn(t.Context(), func(context.Context, jobs.Job) (jobs.Outcome, error) {
			if turns++; turns == 1 {
				f.ask("a")
			}
			return jobs.Outcome{Done: true}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if turns != 2 {
		t.Errorf("%d turns", turns)
	}
}

func TestWhoFailsRestsForLongerEachTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a")
	broken := errors.New("broken")
	rest := func() (left time.Duration) {
		if err := f.pool.QueryRow(t.Context(), `SELECT due_at - now() FROM jobs`).Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left
	}
	for n, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if job := f.turn(jobs.Outcome{Failed: true}, broken); job.Attempts != n+1 {
			t.Errorf("%+v is attempt %d", job, n+1)
		}
		if left := rest(); left > want || left < want/2 {
			t.Errorf("it rests for %s after %d failures", left, n+1)
		}
		if job := f.turn(jobs.Outcome{}, nil); job.Client != "" {
			t.Error("it does not rest")
		}
		f.rested()
	}
	if job := f.turn(jobs.Outcome{Passing: true, Rest: time.Hour}, broken); job.Attempts != 4 || rest() < time.Minute {
		t.Errorf("%+v rests for %s", job, rest())
	}
	f.rested()
	ended, stop := context.WithCancel(t.Context()) // a process that is told to end
	_, err := f.Turn(ended, func(context.Context, jobs.Job) (jobs.Outcome, error) {
		stop()
		return jobs.Outcome{Failed: true}, broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if job := f.turn(jobs.Outcome{}, nil); job.Attempts != 4 {
		t.Errorf("what passes counts: %+v", job)
	}
	if job := f.turn(jobs.Outcome{Done: true}, nil); job.Attempts != 1 {
		t.Errorf("after something went well: %+v", job)
	}
}

// A job that panics has failed: it rests, and others have their turns. The log is told whose it is.
func TestAPanicIsAFailedAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a", "b")
	var panicked id.Client
	worked, err := f.Turn(t.Context(), func(_ context.Context, j jobs.Job) (jobs.Outcome, error) {
		panicked = j.Client
		panic("seven")
	})
	if !worked || err == nil || !strings.Contains(err.Error(), "for "+string(panicked)) || !strings.Contains(err.Error(), "seven") {
		t.Fatal(worked, err)
	}
	if job := f.turn(jobs.Outcome{Done: true}, nil); job.Client == panicked || job.Client == "" {
		t.Errorf("after %q it is the turn of %q", panicked, job.Client)
	}
	f.rested()
	if job := f.turn(jobs.Outcome{Done: true}, nil); job.Client != panicked || job.Attempts != 2 {
		t.Errorf("%+v is handed out again", job)
	}
}

func TestAJobThatACrashCutShortIsHandedOutAgainAndCountsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a")
	_, err := f.Turn(t.Context(), func(context.Context, jobs.Job) (jobs.Outcome, error) {
		if job := f.turn(jobs.Outcome{}, nil); job.Client != "" {
			t.Error("two have it at once")
		}
		f.rested() // its lease is over
		if job := f.turn(jobs.Outcome{Failed: true}, nil); job.Client != "a" || job.Attempts != 2 {
			t.Errorf("%+v", job)
		}
		return jobs.Outcome{Done: true}, nil // too late: it says nothing any more
	})
	if err != nil {
		t.Fatal(err)
	}
	f.rested()
	if job := f.turn(jobs.Outcome{}, nil); job.Client != "a" || job.Attempts != 3 {
		t.Errorf("%+v", job)
	}
}

// Whatever many processes do, no client has two turns at once, and all that was asked
// for is done.
func TestManyTakeTurnsAndNothingIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const clients, asks = 5, 40
	var mu sync.Mutex
	waiting, busy := map[id.Client]int{}, map[id.Client]bool{}
	f.exec(`CREATE TABLE work (client text, n int)`)
	work := func(ctx context.Context, job jobs.Job) (jobs.Outcome, error) {
		mu.Lock()
		if busy[job.Client] {
			t.Errorf("two turns of %s at once", job.Client)
		}
		busy[job.Client] = true
		mu.Unlock()
		tag, err := f.pool.Exec(ctx, `DELETE FROM work WHERE client = $1`, job.Client)
		mu.Lock()
		defer mu.Unlock()
		waiting[job.Client] -= int(tag.RowsAffected())
		busy[job.Client] = false
		return jobs.Outcome{Done: true}, err
	}
	asked, over := make(chan struct{}), context.WithoutCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for last := false; ; {
				worked, err := f.Turn(over, work)
				if err != nil {
					t.Error(err)
					return
				}
				if !worked && last {
					return
				}
				select {
				case <-asked:
					last = !worked
				default:
				}
			}
		})
	}
	for n := range asks {
		client := id.Client(rune('a' + n%clients))
		tx, err := f.pool.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), `INSERT INTO work VALUES ($1, $2)`, client, n)
		}
		if err == nil {
			_, err = tx.Exec(t.Context(), jobs.Ask, client, kind)
		}
		mu.Lock()
		waiting[client]++
		mu.Unlock()
		if err == nil {
			err = tx.Commit(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	close(asked)
	group.Wait()
	for client, n := range maps.All(waiting) {
		if n != 0 {
			t.Errorf("%d of %s wait for ever", n, client)
		}
	}
}

func TestRunCarriesOutWhatIsDueAndPrunes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.ask("a", "b")
	ctx, end := context.WithCancel(t.Context())
	var turns, pruned atomic.Int32
	var running sync.WaitGroup
	running.Go(func() {
		f.Queue.Run(ctx, slog.New(slog.DiscardHandler), time.Millisecond, func(context.Context, jobs.Job) (jobs.Outcome, error) {
			if turns.Add(1) == 1 {
				return jobs.Outcome{}, errors.New("trouble")
			}
			return jobs.Outcome{Done: true}, nil
		}, func(context.Context) error {
			pruned.Add(1)
			return errors.New("trouble")
		})
	})
	waiting := func() (n int) {
		if err := f.pool.QueryRow(t.Context(), `SELECT count(*) FROM jobs`).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	testkit.Eventually(t, "all is done", func() bool { return waiting() == 0 })
	f.ask("c")
	testkit.Eventually(t, "what is asked for later is done", func() bool { return waiting() == 0 })
	end()
	running.Wait()
	if turns.Load() != 4 || pruned.Load() != 1 {
		t.Errorf("%d turns, pruned %d times", turns.Load(), pruned.Load())
	}
}

// However many of its sandboxes have something to do, a client has the turn of one.
func TestAClientAndItsSandboxesHaveOneTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	source := id.Random(rand.Reader)
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	f.ask(owner, id.NextSandbox(source, owner), id.NextSandbox(source, owner), other)
	turns := map[id.Client]int{}
	for range 12 {
		turns[f.turn(jobs.Outcome{}, nil).Client]++
	}
	if turns[other] < 5 || len(turns) != 4 || slices.Min(slices.Collect(maps.Values(turns))) < 2 {
		t.Errorf("%v", turns)
	}
}

// Whatever becomes of a turn, work of another kind is neither put off nor forgotten, of the
// same client and of its sandbox.
func TestATurnLeavesOtherKindsAlone(t *testing.T) {
	t.Parallel()
	f, source := newFixture(t), id.Random(rand.Reader)
	for _, next := range []jobs.Outcome{{}, {Done: true}, {Failed: true}} {
		f.exec(`TRUNCATE jobs`)
		owner := id.Next[id.Client](source)
		for n, client := range []id.Client{owner, id.NextSandbox(source, owner), id.NextSandbox(source, owner)} {
			f.ask(client)
			f.exec(`INSERT INTO jobs (client, kind, handed, due_at) VALUES ($1, 'another kind', 1, now() + ($2 - 1) * interval '1 minute')`, client, n)
		}
		others := func() (rows string) {
			if err := f.pool.QueryRow(t.Context(), `SELECT string_agg(jobs::text, ' ' ORDER BY client) FROM jobs WHERE kind <> $1`, kind).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			return rows
		}
		before := others()
		if job := f.turn(next, nil); job.Client != owner {
			t.Fatalf("it is the turn of %q", job.Client)
		}
		if after := others(); after != before {
			t.Errorf("%+v makes\n%s of\n%s", next, after, before)
		}
	}
}
