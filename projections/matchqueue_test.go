package projections_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// waiting is a queue that a test fills from its log by hand.
type waiting struct {
	*projectionstest.Fixture
	queue projections.MatchQueue
	after eventstore.Position
	stop  func() // following
}

func newWaiting(t *testing.T) *waiting {
	t.Helper()
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{})
	return &waiting{Fixture: w, queue: projections.MatchQueue{Reader: w.Reader}, stop: stop}
}

func (w *waiting) want(client id.Client, on bool, k int) {
	w.Helper()
	w.Record(client, "client-"+string(client), event.ClientSettingsChanged{Client: client, Settings: event.Settings{
		AutomaticMatching: event.AutomaticMatching{On: on, K: k, MinScore: 0.5},
	}})
}

// fill applies what was recorded, in batches of a size, and waits until the
// users are known.
func (w *waiting) fill(size int) {
	w.Helper()
	w.apply(size)
	w.known(w.Acme)
	w.known(w.Bolt)
}

func (w *waiting) known(client id.Client) {
	w.Helper()
	_, err := w.Users().List(w.Context(), client, false, projections.UserQuery{Page: readmodel.Page{Limit: 1}})
	w.check(err)
}

func (w *waiting) apply(size int) {
	w.Helper()
	for {
		records, err := w.EventLog.Store.ReadAll(w.Context(), w.after, size)
		if err != nil || len(records) == 0 {
			w.check(err)
			return
		}
		var batch []eventstore.Recorded
		for _, r := range records {
			recorded, err := w.EventLog.Decode(r)
			w.check(err)
			batch = append(batch, recorded)
			w.after = r.Position
		}
		tx, err := w.Pool.Begin(w.Context())
		w.check(err)
		w.check(w.queue.Apply(w.Context(), tx, batch))
		w.check(tx.Commit(w.Context()))
	}
}

func (w *waiting) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// take takes a batch in which each user has so many matches.
func (w *waiting) take(matches int) (client id.Client, users []id.User) {
	w.Helper()
	_, err := w.queue.Take(w.Context(), func(_ context.Context, c id.Client, k int, _ float64, user projections.QueuedUser) (int, error) {
		if client = c; k < 1 || user.Event == "" || user.Position == eventstore.Start {
			w.Errorf("k %d, cause %q at %q", k, user.Event, user.Position)
		}
		users = append(users, user.User)
		return matches, nil
	})
	w.check(err)
	return client, users
}

// rested lets every client's rest be over.
func (w *waiting) rested() {
	w.Helper()
	_, err := w.Pool.Exec(w.Context(), `UPDATE jobs SET due_at = '-infinity'`)
	w.check(err)
}

func (w *waiting) sweep(client id.Client) projections.Sweep {
	w.Helper()
	now, err := w.EventLog.TimeOf(w.Context(), client)
	w.check(err)
	return testkit.Must(w.queue.Sweep(w.Context(), client, true, now))(w)
}

func TestHowLongASweepTakesIsMeasuredByTheClientsClock(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	sandbox := id.NextSandbox(w.IDs, w.Acme)
	ahead := (40 * 24 * time.Hour).Microseconds()
	w.Record(sandbox, string(eventstore.SandboxStream(sandbox)), event.ClockMoved{Client: sandbox, MovedMicros: ahead, AheadMicros: ahead})
	w.want(sandbox, true, 3)
	for n := range 3 {
		w.Create(sandbox, fmt.Sprint(n), `{}`)
	}
	w.apply(1000)
	w.known(sandbox)
	w.take(100) // as many as end a batch
	if s := w.sweep(sandbox); s.Done != 1 || s.Pending != 2 || s.Left <= 0 || s.Left > time.Minute {
		t.Errorf("%+v", s)
	}
}

// Whoever is done leaves the queue in the order in which changes come into it: else a
// batch and a change of the same users would wait for each other.
func TestABatchWaitsForAChangeBeforeItTakesAnybodyOut(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	var users []id.User
	for n := range 10 {
		users = append(users, w.Create(w.Acme, fmt.Sprint(n), `{}`))
	}
	slices.Sort(users)
	for _, user := range slices.Backward(users) {
		w.Change(w.Acme, user, `{"a":1}`)
	}
	w.fill(1000)
	const lock = `SELECT count(*) FROM (SELECT FROM match_queue WHERE client = $1 AND user_id = ANY ($2) FOR UPDATE NOWAIT) locked`
	tx, err := w.Pool.Begin(t.Context())
	w.check(err)
	_, err = tx.Exec(t.Context(), lock, w.Acme, users[:1])
	w.check(err)
	taken := make(chan error, 1)
	go func() {
		_, err := w.queue.Take(t.Context(), func(context.Context, id.Client, int, float64, projections.QueuedUser) (int, error) { return 0, nil })
		taken <- err
	}()
	testkit.Eventually(t, "the batch waits", func() (waits bool) {
		w.check(w.Pool.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
		return waits
	})
	if _, err := tx.Exec(t.Context(), lock, w.Acme, users[1:]); err != nil {
		t.Errorf("somebody is taken out already: %v", err)
	}
	w.check(tx.Rollback(t.Context()))
	w.check(<-taken)
	if s := w.sweep(w.Acme); s.Pending != 0 || s.Done != 10 {
		t.Errorf("%+v", s)
	}
}

// What a client chooses is locked before its queue, by both: else a batch and a change of
// the settings would wait for each other.
func TestABatchWaitsForAChangeOfTheSettingsBeforeItTakesAnybodyOut(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	w.Create(w.Acme, "one", `{}`)
	w.fill(1000)
	_, err := w.Pool.Exec(t.Context(), `UPDATE match_sweeps SET everyone_before = NULL`) // all have been queued
	w.check(err)
	tx, err := w.Pool.Begin(t.Context())
	w.check(err)
	_, err = tx.Exec(t.Context(), `UPDATE match_sweeps SET k = 4`)
	w.check(err)
	taken := make(chan error, 1)
	go func() {
		_, err := w.queue.Take(t.Context(), func(context.Context, id.Client, int, float64, projections.QueuedUser) (int, error) { return 0, nil })
		taken <- err
	}()
	testkit.Eventually(t, "the batch waits", func() (waits bool) {
		w.check(w.Pool.QueryRow(t.Context(),
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits))
		return waits
	})
	if _, err := tx.Exec(t.Context(), `SELECT FROM match_queue FOR UPDATE NOWAIT`); err != nil {
		t.Errorf("somebody is taken out already: %v", err)
	}
	w.check(tx.Rollback(t.Context()))
	w.check(<-taken)
}

func TestWhoChangesWaitsWhileTheClientWantsIt(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 1000} {
		t.Run(fmt.Sprint("batches of ", size), func(t *testing.T) {
			t.Parallel()
			w := newWaiting(t)
			before := w.Create(w.Acme, "before", `{}`)
			w.want(w.Acme, true, 3)
			first, second, gone := w.Create(w.Acme, "first", `{}`), w.Create(w.Acme, "second", `{}`), w.Create(w.Acme, "gone", `{}`)
			w.Create(w.Bolt, "of a client that does not want it", `{}`)
			w.Change(w.Acme, first, `{"a":1}`) // waits once, as of its last change
			w.Erase(w.Acme, gone)
			w.fill(size)
			if s := w.sweep(w.Acme); s.Pending != 3 || s.BeganAt == nil {
				t.Errorf("%+v", s)
			}
			if client, users := w.take(1); client != w.Acme || !slices.Equal(users, []id.User{before, second, first}) {
				t.Errorf("%s %v", client, users)
			}
			if s := w.sweep(w.Acme); s.Pending != 0 || s.Done != 3 || s.Recorded != 3 || s.BeganAt != nil {
				t.Errorf("%+v", s)
			}
			w.Change(w.Acme, first, `{"a":2}`)
			w.want(w.Acme, false, 3)
			w.Change(w.Acme, second, `{"a":2}`)
			w.fill(size)
			w.rested()
			if _, users := w.take(1); len(users) != 0 {
				t.Errorf("%v are matched though nobody wants it", users)
			}
			w.want(w.Acme, true, 3)
			w.Change(w.Acme, first, `{"a":3}`)
			w.fill(size)
			_, users := w.take(1)
			if slices.Sort(users[:min(2, len(users))]); !slices.Equal(users, []id.User{min(before, second), max(before, second), first}) {
				t.Errorf("%v", users)
			}
		})
	}
}

// However many wait, the change of the settings takes none of them out: its transaction is
// everybody's. Here one is locked for whom it would have to wait.
func TestWhoWaitsIsTakenOutAfterTheClientWantsNoMatches(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]func(*waiting){
		"turned off": func(w *waiting) { w.want(w.Acme, false, 3) },
		"deleted": func(w *waiting) {
			w.Record(w.Acme, "client-"+string(w.Acme), event.ClientDeleted{Client: w.Acme})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWaiting(t)
			w.want(w.Acme, true, 3)
			w.want(w.Bolt, true, 3)
			w.Create(w.Acme, "one", `{}`)
			w.Create(w.Acme, "two", `{}`)
			beside := w.Create(w.Bolt, "beside", `{}`)
			w.fill(1000)
			_, err := w.Pool.Exec(t.Context(), `UPDATE match_sweeps SET everyone_before = NULL`)
			w.check(err)
			tx, err := w.Pool.Begin(t.Context())
			w.check(err)
			_, err = tx.Exec(t.Context(), `SELECT FROM match_queue FOR UPDATE`)
			w.check(err)
			over(w)
			w.apply(1000)
			w.check(tx.Rollback(t.Context()))
			if s := w.sweep(w.Acme); s.Pending != 0 || s.BeganAt != nil {
				t.Errorf("%+v", s)
			}
			w.rested()
			_, err = w.Pool.Exec(t.Context(), `UPDATE jobs SET due_at = 'infinity' WHERE client = $1`, w.Bolt) // so that the other is emptied first
			w.check(err)
			var matched []id.User
			for range 3 {
				_, users := w.take(0)
				matched = append(matched, users...)
				w.rested()
			}
			if !slices.Equal(matched, []id.User{beside}) {
				t.Errorf("%v are matched, not %s alone", matched, beside)
			}
			var left, jobs int
			w.check(w.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM match_queue), (SELECT count(*) FROM jobs)`).Scan(&left, &jobs))
			if left != 0 || jobs != 0 {
				t.Errorf("%d still wait, for %d jobs", left, jobs)
			}
		})
	}
}

func TestThoseWhoWereThereAreQueuedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	const there = 520 // more than a page
	for n := range there {
		w.Create(w.Acme, fmt.Sprint("person ", n), `{}`)
	}
	w.want(w.Acme, true, 3)
	w.fill(1000)
	seen := map[id.User]bool{}
	for len(seen) < there {
		if s := w.sweep(w.Acme); s.Pending != int64(there-len(seen)) || s.Done != int64(len(seen)) || s.BeganAt == nil {
			t.Fatalf("%d are done: %+v", len(seen), s)
		}
		_, users := w.take(0)
		if len(users) == 0 {
			t.Fatalf("only %d of %d", len(seen), there)
		}
		for _, u := range users {
			if seen[u] {
				t.Fatalf("%s twice", u)
			}
			seen[u] = true
		}
		var queued int
		w.check(w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM match_queue`).Scan(&queued))
		if queued > 500 {
			t.Fatalf("%d are queued at once", queued)
		}
	}
	w.take(0)
	if s := w.sweep(w.Acme); s.Pending != 0 || s.Done != there || s.BeganAt != nil {
		t.Errorf("%+v", s)
	}
}

const holdUsers = `
INSERT INTO quarantine (projection, client, position, event_id, reason, paused)
SELECT name, $2, position, '', '', true FROM checkpoints WHERE name = $1`

func TestThoseWhoWereThereWaitWhileTheirClientIsHeld(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	first := w.Create(w.Acme, "first", `{}`)
	w.fill(1000)
	w.stop()
	_, err := w.Pool.Exec(t.Context(), holdUsers, projector.ID(projections.Users{}), w.Acme)
	w.check(err)
	w.Follow(projections.Users{})
	second := w.Create(w.Acme, "second", `{}`)
	w.want(w.Acme, true, 3)
	w.Create(w.Bolt, "after that", `{}`)
	w.apply(1000)
	w.known(w.Bolt)
	if _, users := w.take(0); len(users) != 0 {
		t.Errorf("%v are queued while others are not known", users)
	}
	runner := &projector.Runner{Pool: w.Pool, Log: w.EventLog, Name: "rebuild", Logger: slog.New(slog.DiscardHandler), Now: time.Now}
	w.check(runner.RebuildClient(t.Context(), projections.Users{}, w.Acme, nil))
	w.known(w.Acme)
	w.rested()
	_, users := w.take(0)
	if slices.Sort(users); !slices.Equal(users, []id.User{min(first, second), max(first, second)}) {
		t.Errorf("%v are queued", users)
	}
}

func TestClientsTakeTheirTurnsAndRest(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	for _, client := range []id.Client{w.Acme, w.Bolt} {
		w.want(client, true, 3)
		for n := range 120 {
			w.Create(client, fmt.Sprint("person ", n), `{}`)
		}
	}
	w.fill(1000)
	first, users := w.take(0) // without matches there is no need to rest
	if len(users) != 50 {
		t.Errorf("a batch of %d users", len(users))
	}
	second, users := w.take(10)
	if first == second || len(users) != 10 {
		t.Errorf("%s after %s, %d users with 10 matches each", second, first, len(users))
	}
	for range 2 {
		if client, _ := w.take(0); client != first {
			t.Errorf("%s, who rests, is before %s", client, first)
		}
	}
	if client, users := w.take(0); len(users) != 0 {
		t.Errorf("%s: %d users", client, len(users))
	}
	var rest time.Duration
	w.check(w.Pool.QueryRow(t.Context(), `SELECT due_at - clock_timestamp() FROM jobs WHERE client = $1`, second).Scan(&rest))
	if rest <= 0 || rest > time.Second/2 { // 100 matches at 200 a second
		t.Errorf("it rests for %s", rest)
	}
}

func TestABatchThatFailedIsTakenAgain(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	first, odd, last := w.Create(w.Acme, "first", `{}`), w.Create(w.Acme, "odd", `{}`), w.Create(w.Acme, "last", `{}`)
	w.fill(1000)
	trouble := errors.New("trouble")
	var seen []id.User
	match := func(_ context.Context, _ id.Client, _ int, _ float64, user projections.QueuedUser) (int, error) {
		seen = append(seen, user.User)
		switch user.User {
		case odd:
			return 0, trouble
		case last: // it changes while it is matched
			w.Change(w.Acme, last, `{"a":1}`)
			w.fill(1000)
		}
		return 1, nil
	}
	for _, want := range [][]id.User{{first, odd}, {last, odd}, {last, odd}} {
		if worked, err := w.queue.Take(t.Context(), match); !worked || !errors.Is(err, trouble) {
			t.Fatal(worked, err)
		}
		if !slices.Equal(seen, want) {
			t.Errorf("%v, not %v", seen, want)
		}
		if _, users := w.take(0); len(users) != 0 {
			t.Errorf("no rest after an error: %v", users)
		}
		seen = nil
		w.rested()
	}

	// A process that died in its batch: another one has it once that is over.
	cut, stop := context.WithCancel(t.Context())
	_, _ = w.Pool.Exec(t.Context(), `UPDATE jobs SET handed = handed + 1, due_at = clock_timestamp() + interval '30 s'`)
	stop()
	if worked, err := w.queue.Take(cut, match); worked || err == nil {
		t.Error("it works without a context")
	}
	if _, users := w.take(0); len(users) != 0 {
		t.Errorf("%v while another has the batch", users)
	}
	w.rested()
	if _, users := w.take(0); len(users) != 2 {
		t.Errorf("%v after it is over", users)
	}
}

// A batch that has used its time up is no failure of the user that it was at. One that takes the whole of a batch is.
func TestABatchEndsWithItsTime(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	first, long := w.Create(w.Acme, "first", `{}`), w.Create(w.Acme, "long", `{}`)
	w.fill(1000)
	var seen []id.User
	take := func() error {
		seen = nil
		_, err := w.queue.Take(t.Context(), func(_ context.Context, _ id.Client, _ int, _ float64, user projections.QueuedUser) (int, error) {
			if seen = append(seen, user.User); user.User == long {
				return 0, fmt.Errorf("read: %w", context.DeadlineExceeded)
			}
			return 0, nil
		})
		return err
	}
	if err := take(); err != nil || !slices.Equal(seen, []id.User{first, long}) {
		t.Errorf("%v, %v", seen, err)
	}
	if err := take(); !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(seen, []id.User{long}) {
		t.Errorf("then %v, %v", seen, err)
	}
}

// Other clients wait for a batch, and each of its users may take seconds.
func TestABatchEndsAfterASecond(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.queue.EndAfter = time.Nanosecond // over once it begins
	w.want(w.Acme, true, 3)
	first, second := w.Create(w.Acme, "first", `{}`), w.Create(w.Acme, "second", `{}`)
	w.fill(1000)
	for _, user := range []id.User{first, second} {
		if _, users := w.take(0); !slices.Equal(users, []id.User{user}) {
			t.Errorf("a batch of %v, not of %s alone", users, user)
		}
	}
}

// Other clients wait for a batch, also where requests of its client hold all places in which users are judged.
func TestABatchJudgesUsersInNoPlace(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	w.Create(w.Acme, "someone", `{}`)
	w.fill(1000)
	over, end := context.WithCancel(t.Context())
	end() // who must wait for a place is refused
	judging, judged := readmodel.NewJudging(), false
	var hold func() error
	hold = func() error {
		if err := judging.Do(over, w.Acme, hold); !fault.Is(err, "overloaded") {
			return err
		}
		_, err := w.queue.Take(t.Context(), func(ctx context.Context, client id.Client, _ int, _ float64, _ projections.QueuedUser) (int, error) {
			return 0, judging.Do(ctx, client, func() error {
				judged = true
				return nil
			})
		})
		return err
	}
	if err := hold(); err != nil || !judged {
		t.Errorf("judged %v, %v", judged, err)
	}
}

// Who fails as it was waits behind nobody as it is now.
func TestAFailureIsOfWhoHasNotChangedSince(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	w.Create(w.Acme, "one", `{}`)
	w.fill(1000)
	trouble := errors.New("trouble")
	for _, changes := range []bool{true, false} {
		_, err := w.queue.Take(t.Context(), func(_ context.Context, _ id.Client, _ int, _ float64, user projections.QueuedUser) (int, error) {
			if changes {
				w.Change(w.Acme, user.User, `{"a":1}`)
				w.fill(1000)
			}
			return 0, trouble
		})
		if !errors.Is(err, trouble) {
			t.Error(err)
		}
		w.rested()
		var attempts int
		w.check(w.Pool.QueryRow(t.Context(), `SELECT attempts FROM match_queue`).Scan(&attempts))
		if (attempts == 0) != changes {
			t.Errorf("it changes: %t, and waits with %d attempts", changes, attempts)
		}
	}
}

// Another process has taken the batch again, and finished it.
func TestABatchThatWasOvertakenCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.want(w.Acme, true, 3)
	w.Create(w.Acme, "one", `{}`)
	w.Create(w.Acme, "two", `{}`)
	w.fill(1000)
	overtaken := false
	worked, err := w.queue.Take(t.Context(), func(context.Context, id.Client, int, float64, projections.QueuedUser) (int, error) {
		if !overtaken {
			overtaken = true
			w.rested()
			if _, users := w.take(1); len(users) != 2 {
				t.Errorf("the other one has %v", users)
			}
		}
		return 1, nil
	})
	if s := w.sweep(w.Acme); !worked || err != nil || s.Pending != 0 || s.Done != 2 || s.Recorded != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A client has 20,000 in the queue, and each of as many others one.
func TestSomeOfALargeQueueAmongManySmallOnesAreFoundByTheirIDs(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	tx := testkit.Must(w.Pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, sql := range []string{
		`INSERT INTO match_queue (client, user_id, position, event)
		SELECT CASE WHEN n <= 20000 THEN 'large' ELSE 'small ' || n END, 'user ' || n, n, 'event' FROM generate_series(1, 40000) n`,
		`ANALYZE match_queue`,
		`SET LOCAL plan_cache_mode = force_generic_plan`,
		`PREPARE done AS ` + projections.DoneQueued,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	rows := testkit.Must(tx.Query(t.Context(), `EXPLAIN EXECUTE done('large', '{user 1,user 2}', '{1,2}', 0)`))(t)
	plan := testkit.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	if _, err := tx.Exec(t.Context(), `DEALLOCATE done`); err != nil {
		t.Error(err)
	}
	if all := strings.Join(plan, "\n"); strings.Count(all, "Index Cond: ((client = $1) AND (user_id = ") != 2 {
		t.Errorf("all are looked through:\n%s", all)
	}
}

func TestWhatWasAnothersToMatchIsMatchedByNobody(t *testing.T) {
	t.Parallel()
	w := newWaiting(t)
	w.Create(w.Acme, "before", `{}`)
	w.want(w.Acme, true, 3)
	end, err := w.EventLog.Store.Head(t.Context())
	w.check(err)
	w.queue.SilentThrough = end
	w.fill(1000)
	if _, users := w.take(0); len(users) != 0 {
		t.Errorf("%v are matched", users)
	}
	if s := w.sweep(w.Acme); s.Pending != 0 || s.BeganAt != nil {
		t.Errorf("%+v", s)
	}
	w.Create(w.Acme, "after", `{}`)
	w.fill(1000)
	if _, users := w.take(0); len(users) != 1 {
		t.Errorf("%v are matched of one who came after", users)
	}
}
