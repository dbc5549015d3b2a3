package projector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// roll is a read model of clients, which each batch of events tells keyed of:
// whether the table has its key.
type roll struct {
	keyed func(types []string, keyed bool)
}

func (roll) Name() string   { return "roll" }
func (roll) Version() int   { return 1 }
func (roll) Schema() string { return `CREATE TABLE roll (client text NOT NULL, names int NOT NULL);` }

func (roll) Options() projector.Options {
	return projector.Options{
		Verbatim: true,
		Key: projector.LateKey{
			DDL:     `ALTER TABLE roll ADD PRIMARY KEY (client);`,
			LooksUp: func(event string) bool { return event == "client.renamed" },
		},
		Indexes: []string{`CREATE INDEX IF NOT EXISTS roll_names ON roll (names);`, `CREATE INDEX IF NOT EXISTS roll_both ON roll (names, client);`},
	}
}

func (m roll) Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error {
	var keyed bool
	if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = 'roll'::regclass AND contype = 'p')`).Scan(&keyed); err != nil {
		return err
	}
	var types []string
	for _, r := range batch {
		types = append(types, r.Type)
		statement := `INSERT INTO roll VALUES ($1, 1)`
		if r.Type == "client.renamed" {
			statement = `UPDATE roll SET names = names + 1 WHERE client = $1`
		}
		if _, err := tx.Exec(ctx, statement, r.Client); err != nil {
			return err
		}
	}
	m.keyed(types, keyed)
	return nil
}

func (w *fixture) enrol(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		w.append(t, id.Client(fmt.Sprint("cli_", i)), "client.signed_up", 1, []byte(`{}`))
	}
}

const withKeys = `SELECT count(*) FROM pg_index WHERE indrelid = to_regclass('roll_1.roll') AND indisvalid`

func TestAKeyIsMadeOnceItIsLookedInto(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.enrol(t, 0, 350)
	w.rename(t, "cli_7", "x", "y")
	w.enrol(t, 350, 700)
	var batches []string
	m := roll{keyed: func(types []string, keyed bool) {
		batches = append(batches, fmt.Sprint(slices.Contains(types, "client.renamed"), keyed))
	}}
	ctx, crash := context.WithCancel(t.Context())
	if err := w.builder().Rebuild(ctx, m, func(projector.Rebuilding) { crash() }); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	ctx, crash = context.WithCancel(t.Context())
	if err := w.builder().Rebuild(ctx, m, func(r projector.Rebuilding) {
		if r.Events > 350 {
			crash()
		}
	}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if err := w.builder().Rebuild(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"false false", "true true", "false true"}; !slices.Equal(slices.Compact(batches), want) {
		t.Errorf("batches with a renaming, with a key: %q, want %q", batches, want)
	}
	if n := w.one(t, withKeys); n != 3 {
		t.Errorf("%d indexes, want the key and two", n)
	}
	if n := w.one(t, `SELECT names FROM roll_1.roll WHERE client = 'cli_7'`); n != 3 {
		t.Errorf("%d names, want 3", n)
	}
	if n := w.one(t, `SELECT reltuples FROM pg_class WHERE oid = 'roll_1.roll'::regclass AND reloptions IS NULL`); n != 700 {
		t.Errorf("queries are planned for %d rows, want 700", n)
	}
}

func TestAKeyThatNothingLooksIntoIsMadeLast(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.enrol(t, 0, 350)
	early := false
	m := roll{keyed: func(_ []string, keyed bool) { early = early || keyed }}
	if err := w.builder().Rebuild(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	if n := w.one(t, withKeys); early || n != 3 {
		t.Errorf("early: %t; %d indexes, want the key and two", early, n)
	}
}

// longRoll has a key that takes so long that its rebuild looks for others anew before each index.
type longRoll struct{ roll }

func (m longRoll) Options() projector.Options {
	options := m.roll.Options()
	options.Key.DDL = `DO $$ BEGIN PERFORM pg_sleep(0.05); ` + options.Key.DDL + ` END $$`
	return options
}

// TestIndexesAreMadeOverAsManyConnectionsAsThereAre has as many indexes made at once.
func TestIndexesAreMadeOverAsManyConnectionsAsThereAre(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.enrol(t, 0, 3)
	config := w.pool.Config()
	config.MaxConns = int32(len(roll{}.Options().Indexes))
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	r := w.builder()
	r.Leases, r.Pool = w.pool, pool
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience())
	defer cancel()
	if err := r.Rebuild(ctx, longRoll{roll{func([]string, bool) {}}}, nil); err != nil {
		t.Fatal(err)
	}
}

func TestAVacuumThatDoesNotGiveWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.enrol(t, 0, 10)
	m := roll{keyed: func([]string, bool) {}}
	if err := w.builder().Rebuild(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	endVacuum := pgtest.Lock(t, w.pool, `roll_1.roll IN SHARE UPDATE EXCLUSIVE MODE`)
	before := w.one(t, selectRoll)
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- w.builder().Rebuild(t.Context(), m, nil) }()
	testkit.Eventually(t, "the rebuild wants to drop the old tables", func() bool {
		return w.one(t, `
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'DROP SCHEMA%'`) == 1
	})
	if w.one(t, selectRoll) != before {
		t.Error("the table was replaced under the vacuum")
	}
	endVacuum()
	if err := <-rebuilt; err != nil {
		t.Fatal(err)
	}
	if w.one(t, selectRoll) == before {
		t.Error("the table was not replaced")
	}
}

const selectRoll = `SELECT 'roll_1.roll'::regclass::oid::bigint`

func TestAnIndexThatIsNewIsMadeForTablesThatStand(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.enrol(t, 0, 3)
	m := roll{keyed: func([]string, bool) {}}
	if err := w.builder().Rebuild(t.Context(), m, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pool.Exec(t.Context(), `DROP INDEX roll_1.roll_both`); err != nil { // as an older program left it
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.runner("later").Run(ctx, m) }()
	w.enrol(t, 3, 4)
	w.passed(t, projector.ID(m), w.append(t, "cli_last", "client.signed_up", 1, []byte(`{}`)))
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := w.one(t, withKeys); n != 3 {
		t.Errorf("%d indexes, want the key and two", n)
	}
}

// things is a read model of which each client has as many as it likes.
type things struct{}

func (things) Name() string { return "things" }
func (things) Version() int { return 1 }
func (things) Schema() string {
	return `CREATE TABLE things (client text NOT NULL, id text NOT NULL, changed int NOT NULL, PRIMARY KEY (client, id));
		CREATE INDEX ON things (client, changed);`
}
func (things) Apply(context.Context, pgx.Tx, []eventstore.Recorded) error { return nil }

// A client has 20,000, and each of as many others one.
func TestSomeOfALargeClientAmongManySmallOnesAreFoundByTheirIDs(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "Acme")
	for _, before := range []string{``, `ALTER TABLE things_1.things ALTER COLUMN client RESET (n_distinct)`} { // of a release before
		if _, err := w.pool.Exec(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		if err := w.builder().CatchUp(t.Context(), things{}, nil); err != nil {
			t.Fatal(err)
		}
		var plan []string
		err := pgx.BeginFunc(t.Context(), w.pool, func(tx pgx.Tx) error {
			for _, sql := range []string{
				`TRUNCATE things_1.things`,
				`INSERT INTO things_1.things SELECT CASE WHEN n <= 20000 THEN 'large' ELSE 'small ' || n END, 'id ' || n, n FROM generate_series(1, 40000) n`,
				`ANALYZE things_1.things`,
				`SET LOCAL plan_cache_mode = force_generic_plan`,
				`PREPARE named AS SELECT changed FROM things_1.things WHERE client = $1 AND id = ANY($2)`,
			} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					return err
				}
			}
			rows, err := tx.Query(t.Context(), `EXPLAIN EXECUTE named('large', '{id 1,id 2}')`)
			if err != nil {
				return err
			}
			if plan, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
				return err
			}
			_, err = tx.Exec(t.Context(), `DEALLOCATE named`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(plan, func(line string) bool {
			return strings.Contains(line, "Index Cond") && strings.Contains(line, "id = ANY")
		}) {
			t.Errorf("%s: all are looked through:\n%s", before, strings.Join(plan, "\n"))
		}
	}
}
