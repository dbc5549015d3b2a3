package projector_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

// A client of 12,000 rows is deleted in slices, of which none holds up the others, and a
// leader goes on with what another one left.
func TestADeletedClientsRowsGoInSlices(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	runner := w.runner("a")
	stop := background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	w.passed(t, projector.ID(names{}), w.rename(t, bolt, "stays"))
	for _, sql := range []string{
		`INSERT INTO renamings SELECT '-' || n, 'cli_acme', 'a name' FROM generate_series(1, 12000) n`,
		`CREATE TABLE public.deleted (n bigint)`,
		`CREATE FUNCTION public.note_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.deleted SELECT count(*) FROM gone; RETURN NULL; END $$`,
		`CREATE TRIGGER noted AFTER DELETE ON names_2.renamings REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.note_deleted()`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt})
	if err != nil {
		t.Fatal(err)
	}
	w.append(t, acme, "client.deleted", 1, data)
	gone := func() bool {
		return w.one(t, `SELECT count(*) FROM renamings WHERE client = $1`, acme) == 0 && w.one(t, `SELECT count(*) FROM deletions`) == 0
	}
	testkit.Eventually(t, "the client's rows are deleted", gone)
	if most, slices := w.one(t, `SELECT max(n) FROM deleted`), w.one(t, `SELECT count(*) FROM deleted WHERE n > 0`); most > 5_000 || slices != 3 {
		t.Errorf("%d slices, of up to %d rows", slices, most)
	}
	w.complete(t)

	stop()
	for _, sql := range []string{
		`INSERT INTO renamings VALUES ('-', 'cli_acme', 'left by a leader that ended')`,
		`INSERT INTO deletions VALUES ('cli_acme', 'names_2')`,
	} {
		if _, err := w.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	background(t, func(ctx context.Context) error { return w.runner("b").Run(ctx, names{}) })
	testkit.Eventually(t, "the next leader deletes them", gone)
	w.complete(t)
}

// What still writes of a client that is deleted locks the client's row first, and then
// others: the deletion takes them in that order too.
func TestADeletionWaitsForAWriterAtTheRowThatBothLockFirst(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var logged syncBuffer
	runner := w.runner("a")
	runner.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
	stop := background(t, func(ctx context.Context) error { return runner.Run(ctx, names{}) })
	w.passed(t, projector.ID(names{}), w.rename(t, bolt, "stays"))
	for _, sql := range []string{
		`CREATE TABLE names_2.owners (client text)`, `CREATE TABLE names_2.details (client text)`,
		`INSERT INTO names_2.owners VALUES ('cli_acme')`, `INSERT INTO names_2.details VALUES ('cli_acme')`,
	} {
		testkit.Must(w.pool.Exec(t.Context(), sql))(t)
	}
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM names_2.owners FOR UPDATE`); err != nil {
			return err
		}
		w.append(t, acme, "client.deleted", 1, testkit.Must(json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt}))(t))
		testkit.Eventually(t, "the deletion waits", func() bool {
			return w.one(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
		})
		_, err := tx.Exec(t.Context(), `UPDATE names_2.details SET client = client`)
		return err
	})
	if err != nil {
		t.Errorf("the writer: %v", err)
	}
	testkit.Eventually(t, "the rows are deleted", func() bool {
		return w.one(t, `SELECT count(*) FROM names_2.owners`) == 0 && w.one(t, `SELECT count(*) FROM names_2.details`) == 0
	})
	stop()
	if text := logged.String(); text != "" {
		t.Errorf("the deletion: %s", text)
	}
}

// Where the schema of a model was dropped, the log is what the search path finds next.
func TestTheLogStaysWhereTheTablesOfADeletedClientAreNotThere(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "A")
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path TO names_2, public`); err != nil {
			return err
		}
		_, err := projector.ForgetSome(t.Context(), tx, acme)
		return err
	})
	if n := w.one(t, `SELECT count(*) FROM public.events WHERE client = $1`, acme); err == nil || n != 1 {
		t.Errorf("%d events are left: %v", n, err)
	}
}

// What stopped a client goes with it: its rows are deleted though its part stands still.
func TestTheRowsOfAClientThatStoppedAreDeletedWithIt(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	broken := faithful{names{before: always("bad", func() error { return errTest })}}
	background(t, func(ctx context.Context) error { return w.lenient("live", 0).Run(ctx, broken) })
	w.rename(t, acme, "good", "bad", "not reached")
	w.rename(t, bolt, "good", "bad", "not reached")
	data, err := json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt})
	if err != nil {
		t.Fatal(err)
	}
	w.append(t, acme, "client.deleted", 1, data)
	w.passed(t, "names_2", w.rename(t, bolt, "not reached either"))
	testkit.Eventually(t, "nothing of the client is left", func() bool {
		return w.one(t, `SELECT (SELECT count(*) FROM renamings WHERE client = $1) + (SELECT count(*) FROM quarantine WHERE client = $1) +
			(SELECT count(*) FROM left_out WHERE client = $1) + (SELECT count(*) FROM deletions)`, acme) == 0
	})
	if n := w.one(t, `SELECT count(*) FROM renamings WHERE client = $1 AND EXISTS (SELECT FROM quarantine WHERE client = $1)`, bolt); n != 1 {
		t.Errorf("of the other client, which has stopped, too, %d rows are left", n)
	}
}

// The rows of a deleted client that are yet to go are no difference: they are waited for, and nobody compares them.
func TestWhatIsBeingDeletedIsNotCompared(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.rename(t, acme, "goes")
	data, err := json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt})
	if err != nil {
		t.Fatal(err)
	}
	w.append(t, acme, "client.deleted", 1, data)
	w.passed(t, projector.ID(names{}), w.rename(t, bolt, "stays"))
	testkit.Eventually(t, "the client's rows are deleted", func() bool { return w.one(t, `SELECT count(*) FROM deletions`) == 0 })
	stop()
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO deletions VALUES ('cli_acme', 'names_2')`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pool.Exec(t.Context(), `INSERT INTO renamings VALUES ('-', 'cli_acme', 'yet to go')`); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginTxFunc(t.Context(), w.pool, projector.Snapshot, func(tx pgx.Tx) error {
		if _, same, err := projector.Places(t.Context(), tx, []projector.ReadModel{names{}}); same || err != nil {
			t.Errorf("it can be compared with another kindred's: %t, %v", same, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checked, err := w.builder().Verify(t.Context(), names{}, nil, func(d projector.Difference) { t.Errorf("%+v", d) })
	if err != nil || checked.Rows != 1 {
		t.Errorf("%+v, %v", checked, err)
	}
}

// An append may be on its way as its client is deleted, and come to stand behind the client's last event.
func TestWhatIsRecordedOfADeletedClientIsInNoReadModel(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	data, err := json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt})
	if err != nil {
		t.Fatal(err)
	}
	w.rename(t, acme, "goes")
	w.append(t, acme, "client.deleted", 1, data)
	w.passed(t, projector.ID(names{}), w.rename(t, acme, "late"))
	testkit.Eventually(t, "the client's rows are deleted", func() bool { return w.one(t, `SELECT count(*) FROM deletions`) == 0 })
	w.passed(t, projector.ID(names{}), w.rename(t, acme, "later"))
	w.passed(t, projector.ID(names{}), w.rename(t, bolt, "stays"))
	checked, err := w.builder().Verify(t.Context(), names{}, nil, func(d projector.Difference) { t.Errorf("%+v", d) })
	if err != nil || checked.Rows != 1 {
		t.Errorf("%+v, %v", checked, err)
	}
	if err := w.builder().Rebuild(t.Context(), names{}, nil); err != nil {
		t.Fatal(err)
	}
	if n := w.one(t, `SELECT count(*) FROM names_2.renamings WHERE client = $1`, acme); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	w.complete(t, acme)
}

// What was on its way may be recorded once another process leads, and has deleted the rows.
func TestTheNextLeaderRecordsNothingOfADeletedClientEither(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	data, err := json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt})
	if err != nil {
		t.Fatal(err)
	}
	w.rename(t, acme, "goes")
	w.passed(t, projector.ID(names{}), w.append(t, acme, "client.deleted", 1, data))
	stop()
	background(t, func(ctx context.Context) error { return w.runner("b").Run(ctx, names{}) })
	testkit.Eventually(t, "the client's rows are deleted", func() bool { return w.one(t, `SELECT count(*) FROM deletions`) == 0 })
	w.passed(t, projector.ID(names{}), w.rename(t, acme, "late"))
	if n := w.one(t, `SELECT count(*) FROM names_2.renamings WHERE client = $1`, acme); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// What is on its way of a client is told by its note, also where that came while others' rows were being deleted.
func TestAClientIsNotedForAsLongAsSomethingIsOnItsWay(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, names{}) })
	w.rename(t, acme, "goes")
	w.passed(t, projector.ID(names{}), w.rename(t, bolt, "goes"))
	ends := func(client id.Client) eventstore.Position {
		return w.append(t, client, "client.deleted", 1, testkit.Must(json.Marshal(map[string]any{"client_id": client, "parent_id": client}))(t))
	}
	var noted time.Time
	err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM names_2.renamings WHERE client = $1 FOR UPDATE`, acme); err != nil {
			return err
		}
		ends(acme)
		testkit.Eventually(t, "the deletion waits", func() bool {
			return w.one(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
		})
		noted = time.Now()
		w.passed(t, projector.ID(names{}), ends(bolt))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the rows of both are deleted", func() bool { return w.one(t, `SELECT count(*) FROM deletions`) == 0 })
	if took := time.Since(noted); took < projector.LastWrites {
		t.Errorf("it was noted for %s", took)
	}
}

// A leader may be behind what was recorded of a client as it was deleted, for longer than something is on its way, and end.
func TestAClientIsNotedUntilItsLeaderHasPassedWhatWasOnItsWay(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var goesOn atomic.Bool
	held := names{before: always("hold", func() error {
		if goesOn.Load() {
			return nil
		}
		return projector.Transient(errTest)
	})}
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, held) })
	w.rename(t, acme, "goes")
	data := testkit.Must(json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt}))(t)
	w.passed(t, projector.ID(names{}), w.append(t, acme, "client.deleted", 1, data))
	noted := time.Now()
	w.rename(t, bolt, "hold")
	late := w.rename(t, acme, "late")
	deleted := func() bool { return w.one(t, `SELECT count(*) FROM deletions`) == 0 }
	testkit.Eventually(t, "nothing is on its way any more", func() bool { return deleted() || time.Since(noted) > projector.LastWrites+time.Second })
	stop()
	goesOn.Store(true)
	background(t, func(ctx context.Context) error { return w.runner("b").Run(ctx, held) })
	w.passed(t, projector.ID(names{}), late)
	testkit.Eventually(t, "the client's rows are deleted", deleted)
	if n := w.one(t, `SELECT count(*) FROM names_2.renamings WHERE client = $1`, acme); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A model that is built anew may take the place of one that has not come to a client's end yet.
func TestARebuildThatOvertakesTheLeaderNotesWhoWasDeleted(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	testkit.Must(w.pool.Exec(t.Context(), `CREATE TABLE public.beside (client text)`))(t)
	testkit.Must(w.pool.Exec(t.Context(), `INSERT INTO public.beside VALUES ('cli_acme')`))(t)
	m := besides{names{}}
	stop := background(t, func(ctx context.Context) error { return w.runner("a").Run(ctx, m) })
	w.passed(t, projector.ID(m), w.rename(t, acme, "goes"))
	stop()
	w.append(t, acme, "client.deleted", 1, testkit.Must(json.Marshal(map[string]any{"client_id": acme, "parent_id": bolt}))(t))
	if err := w.builder().Rebuild(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	late := w.rename(t, acme, "late")
	background(t, func(ctx context.Context) error { return w.runner("b").Run(ctx, m) })
	w.passed(t, projector.ID(m), late)
	testkit.Eventually(t, "the client's rows are deleted", func() bool { return w.one(t, `SELECT count(*) FROM deletions`) == 0 })
	if n := w.one(t, `SELECT count(*) FROM names_2.renamings WHERE client = $1`, acme); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if n := w.one(t, `SELECT count(*) FROM beside WHERE client = $1`, acme); n != 0 {
		t.Errorf("%d rows are left in a table beside", n)
	}
}

// besides is names, with a table beside.
type besides struct{ names }

func (besides) Options() projector.Options {
	return projector.Options{AlsoForgets: []string{"public.beside"}}
}
