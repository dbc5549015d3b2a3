package projector_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// Each of these stops a process at one statement or read, has another take its lease
// meanwhile, and lets it go on before it notices: as a machine that was suspended does.

// late is a runner that renews no lease, and tells of each statement before it is sent.
func (w *fixture) late(t *testing.T, sends func(sql string)) *projector.Runner {
	t.Helper()
	config := w.pool.Config()
	config.ConnConfig.Tracer = &before{sends: sends}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := w.runner("late")
	r.Pool, r.Lease = pool, time.Hour
	return r
}

type before struct {
	mu    sync.Mutex
	sends func(sql string)
}

// TraceQueryStart implements [pgx.QueryTracer].
func (b *before) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sends(strings.TrimSpace(query.SQL))
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (*before) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// nth does something once, before the nth statement that begins with a text.
func nth(n int, begins string, do func()) func(sql string) {
	return func(sql string) {
		if strings.HasPrefix(sql, begins) {
			if n--; n == 0 {
				do()
			}
		}
	}
}

// exec changes the database, as another process does.
func (w *fixture) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if tag, err := w.pool.Exec(context.WithoutCancel(t.Context()), sql, args...); err != nil || tag.RowsAffected() == 0 {
		t.Errorf("%v, %d rows: %s", err, tag.RowsAffected(), sql)
	}
}

const (
	endLease   = `UPDATE leases SET expires_at = clock_timestamp() WHERE name = $1`
	stealLease = `UPDATE leases SET holder = 'another', epoch = epoch + 1, expires_at = clock_timestamp() + interval '59 seconds' WHERE name = $1`
)

// The other leads, and has come no further than the late one.
func TestALateLeaderWritesNothingWhereTheNextHasNotBegun(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	late := w.late(t, nth(1, "UPDATE checkpoints SET position = $4", func() {
		w.exec(t, stealLease, "names_2")
		w.exec(t, `UPDATE checkpoints SET lease_epoch = lease_epoch + 1`)
	}))
	w.lose(t, late)
	if n := w.one(t, `SELECT count(*) FROM renamings`); n != 0 {
		t.Errorf("%d rows are a late leader's", n)
	}
}

// lose has a runner lead until it has lost the lease.
func (w *fixture) lose(t *testing.T, late *projector.Runner) {
	t.Helper()
	var logged syncBuffer
	late.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
	w.rename(t, acme, "x")
	stop := background(t, func(ctx context.Context) error { return late.Run(ctx, names{}) })
	testkit.Eventually(t, "it leads no more", func() bool { return strings.Contains(logged.String(), "leadership lost") })
	stop()
}

// Whoever took the lease has claimed the checkpoint before the late one does.
func TestALateLeaderClaimsNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.lose(t, w.late(t, nth(1, "INSERT INTO checkpoints", func() {
		w.exec(t, stealLease, "names_2")
		w.exec(t, `INSERT INTO checkpoints (name, epoch, position, event_id, events, lease_epoch)
			SELECT name, 'an epoch', '', '', 0, epoch FROM leases`)
	})))
	if n := w.one(t, `SELECT count(*) FROM checkpoints WHERE lease_epoch = 2`); n != 1 {
		t.Error("it has taken the checkpoint from whoever leads")
	}
}

const acmesShadow = "names_2_cli_acme"

// The other one rebuilds the same part once more.
func TestWhoRebuiltAPartLateDropsNothingOfAnother(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	var others sync.WaitGroup
	late := w.late(t, nth(2, `DROP SCHEMA IF EXISTS "`+acmesShadow+`"`, func() { // the first makes room
		w.exec(t, endLease, acmesShadow)
		begun := make(chan struct{})
		again := names{after: onceAt("acme 0", func(context.Context, pgx.Tx) error { close(begun); return nil })}
		done := int64(0)
		others.Go(func() {
			err := w.builder().RebuildClient(t.Context(), again, acme, func(r projector.Rebuilding) {
				if r.Phase == projector.Building && r.Events <= done {
					t.Errorf("after %d events the other one has %d", done, r.Events)
				}
				done = r.Events
			})
			if err != nil {
				t.Errorf("the other one: %v", err)
			}
		})
		<-begun
	}))
	_ = late.RebuildClient(t.Context(), names{}, acme, nil) // it was the last step
	others.Wait()
	if n := w.wrong(t, acme); n != 0 {
		t.Errorf("%d wrong rows", n)
	}
	w.tidy(t)
}

// The other one applies to the part what came since.
func TestWhoRebuiltAPartLateReplacesNothing(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	late := w.late(t, nth(1, "UPDATE quarantine SET paused = true", func() {
		w.exec(t, stealLease, acmesShadow)
		w.exec(t, `UPDATE checkpoints SET lease_epoch = lease_epoch + 1, position = $1 WHERE name = $2`, w.rename(t, acme, "since"), acmesShadow)
	}))
	if err := late.RebuildClient(t.Context(), names{}, acme, nil); !errors.Is(err, projector.ErrRebuilding) {
		t.Error(err)
	}
	if w.wrong(t, acme) == 0 || w.one(t, `SELECT count(*) FROM checkpoints WHERE name = $1`, acmesShadow) != 1 {
		t.Error("the late one has put rows in place that another fills")
	}
}

// The other one goes on with the part, which the late one has put in place.
func TestWhoRebuiltAPartLateStopsNobody(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	moved := 0
	goesOn := nth(1, "DELETE FROM checkpoints", func() { w.passed(t, "names_2", w.rename(t, acme, "while it is replaced")) })
	late := w.late(t, func(sql string) {
		goesOn(sql)
		if strings.HasPrefix(sql, "UPDATE quarantine SET position") {
			if moved++; moved == 1 {
				w.exec(t, stealLease, acmesShadow)
			}
			w.exec(t, `UPDATE quarantine SET position = position_text($1)`, moved)
		}
	})
	err := late.RebuildClient(t.Context(), names{}, acme, nil)
	if err == nil || moved < 2 {
		t.Fatalf("%v, %d moves", err, moved)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE paused`); n != 1 {
		t.Errorf("the late one has stopped what another brings on: %v", err)
	}
}

// The other one has the client paused to replace its part once more: a late one that ended that, having
// replaced the part or given up, would break the other one's rebuild off.
func TestWhoRebuiltAPartLateResumesNobody(t *testing.T) {
	t.Parallel()
	w, _ := spoilt(t)
	late := w.late(t, nth(1, "DELETE FROM quarantine WHERE projection = $1 AND client = $2 AND paused", func() { w.exec(t, stealLease, acmesShadow) }))
	if err := late.RebuildClient(t.Context(), names{}, acme, nil); !errors.Is(err, projector.ErrRebuilding) {
		t.Error(err)
	}
	if n := w.one(t, `SELECT count(*) FROM quarantine WHERE paused`); n != 1 {
		t.Error("the late one has resumed what another has paused")
	}
}

// The other one goes on with the tables, and applies what came since.
func TestWhoRebuiltAModelLateReplacesNothing(t *testing.T) {
	t.Parallel()
	w, stop := spoilt(t)
	stop()
	late := w.late(t, nth(1, `DROP SCHEMA IF EXISTS "names_2" CASCADE`, func() {
		w.exec(t, stealLease, "names_2_rebuild")
		w.exec(t, `UPDATE checkpoints SET lease_epoch = lease_epoch + 1, position = $1 WHERE name = 'names_2_rebuild'`, w.rename(t, acme, "since"))
	}))
	if err := late.Rebuild(t.Context(), names{}, nil); !errors.Is(err, projector.ErrRebuilding) {
		t.Error(err)
	}
	if w.wrong(t, acme) == 0 || w.one(t, `SELECT count(*) FROM checkpoints WHERE name = 'names_2_rebuild'`) != 1 {
		t.Error("the late one has put tables in place that another fills")
	}
}

func TestWhoRebuiltAModelLateMakesNoKey(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.enrol(t, 0, 3)
	m := roll{keyed: func([]string, bool) {}}
	if err := w.builder().Rebuild(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	late := w.late(t, nth(1, m.Options().Key.DDL, func() { w.exec(t, stealLease, "roll_1_rebuild") }))
	if err := late.Rebuild(t.Context(), m, nil); !errors.Is(err, projector.ErrRebuilding) {
		t.Error(err)
	}
	if n := w.one(t, `SELECT count(*) FROM pg_index WHERE indrelid = 'roll_1_rebuild.roll'::regclass`); n != 0 {
		t.Errorf("the late one has made %d indexes", n)
	}
}

// The log was restored since the rebuild began.
func TestWhoBeginsARebuildAgainLateSetsNobodyBack(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "x")
	w.exec(t, `INSERT INTO checkpoints (name, epoch, position, event_id, events, lease_epoch) VALUES ('names_2_rebuild', 'another log', position_text(1), 'evt_x', 1, 0)`)
	if _, err := w.pool.Exec(t.Context(), `CREATE SCHEMA names_2_rebuild`); err != nil {
		t.Fatal(err)
	}
	late := w.late(t, nth(1, "UPDATE checkpoints SET position = ''", func() {
		w.exec(t, stealLease, "names_2_rebuild")
		w.exec(t, `UPDATE checkpoints SET lease_epoch = lease_epoch + 1, position = position_text(2)`)
	}))
	if err := late.Rebuild(t.Context(), names{}, nil); !errors.Is(err, projector.ErrRebuilding) {
		t.Error(err)
	}
	if n := w.one(t, `SELECT count(*) FROM checkpoints WHERE position = position_text(2)`); n != 1 {
		t.Error("the other one begins again, too")
	}
}

// The other one has brought the rebuild to its end.
func TestARebuildThatHasEndedStaysEnded(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]string{"which worked": "UPDATE public.rebuilds SET phase = 'done'", "which failed": "UPDATE public.rebuilds SET phase = CASE"} {
		t.Run(name, func(t *testing.T) {
			w, _ := spoilt(t)
			ended, told := false, make(chan struct{})
			writes := nth(1, ends, func() {
				ended = true
				w.exec(t, `UPDATE rebuilds SET phase = 'done', ended_at = '2026-01-31'`)
			})
			late := w.late(t, func(sql string) {
				writes(sql)
				if ended && strings.HasPrefix(sql, "WITH over AS") { // how the job went on, after
					ended = false
					close(told)
				}
			})
			jobs := projector.Jobs{Runner: late, Models: []projector.ReadModel{names{}}}
			if _, err := jobs.Request(t.Context(), id.Next[id.Rebuild](w.ids), "names", acme, "operator"); err != nil {
				t.Fatal(err)
			}
			if name == "which failed" {
				jobs.Models = nil
			}
			stop := background(t, jobs.Run)
			<-told
			stop()
			if n := w.one(t, `SELECT count(*) FROM rebuilds WHERE phase = 'done' AND ended_at = '2026-01-31'`); n != 1 {
				t.Error("it has not ended any more")
			}
		})
	}
}

// Another has the place of the late one, for the state of another client.
func TestThrowAwayTablesAreOfOneLeaseAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	models := []projector.ReadModel{names{}}
	err := w.late(t, func(string) {}).Scratch(t.Context(), models, func(ctx context.Context, mine string) error {
		w.exec(t, endLease, "scratch_0")
		return w.runner("another").Scratch(ctx, models, func(_ context.Context, theirs string) error {
			if theirs == mine {
				t.Errorf("both have %s", mine)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	if n := w.one(t, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'scratch%'`); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestThrowAwayTablesThatAreSlowToGoFailNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	reading, err := w.pool.Begin(t.Context()) // and so in the way of who drops them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reading.Rollback(context.WithoutCancel(t.Context())) }() // it may have been
	err = w.runner("a").Scratch(t.Context(), []projector.ReadModel{names{}}, func(ctx context.Context, schema string) error {
		_, err := reading.Exec(ctx, `TABLE `+schema+`.renamings`)
		return err
	})
	if err != nil {
		t.Errorf("its work was done: %v", err)
	}
	left := func() int { return w.one(t, `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'scratch%'`) }
	if left() != 1 {
		t.Fatal("nothing was in the way")
	}
	if err := w.runner("c").Scratch(t.Context(), []projector.ReadModel{names{}}, func(context.Context, string) error { return nil }); err != nil || left() != 1 {
		t.Errorf("beside it, others are kept from theirs: %v, %d are left", err, left())
	}
	if err := reading.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.runner("b").SweepScratches(t.Context()); err != nil || left() != 0 {
		t.Errorf("%d are left: %v", left(), err)
	}
}
