package pgkeys_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/eventstore/seal/pgkeys"
	"kindred/panics"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestConformance(t *testing.T) {
	keystest.Run(t, func(t *testing.T) seal.Keys {
		t.Helper()
		return pgkeys.Keys{Pool: pgtest.New(t)}
	})
}

func TestNoProcessOpensWhatAnotherErased(t *testing.T) {
	const client, subject = id.Client("cli_acme"), "usr_1"
	place := seal.Place{Client: client, Stream: "user-1", Event: "evt_1", Field: "traits"}
	pool, master := pgtest.New(t), keystest.NewMaster(t)
	here := seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader)
	there := seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader)
	if err := here.Prepare(t.Context(), client, subject); err != nil {
		t.Fatal(err)
	}
	box := testkit.Must(here.Seal(t.Context(), subject, place, []byte("hello")))(t)
	if err := there.Destroy(t.Context(), client, subject); err != nil {
		t.Fatal(err)
	}
	fresh := seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader)
	if _, err := fresh.Open(t.Context(), subject, place, box); !errors.Is(err, seal.ErrErased) {
		t.Fatalf("got %v", err)
	}
	if err := fresh.Prepare(t.Context(), client, subject); !errors.Is(err, seal.ErrErased) {
		t.Fatalf("prepare: got %v", err)
	}
	var row seal.WrappedKey
	if err := pool.QueryRow(t.Context(),
		`SELECT id, client_key, wrapped FROM subject_keys WHERE client = $1 AND subject = $2`,
		client, subject).Scan(&row.ID, &row.Under, &row.Wrapped); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.With(t.Context(), row, client, subject); !errors.Is(err, seal.ErrErased) {
		t.Fatalf("with the row: got %v", err)
	}
}

// The server vacuums a table once more rows are dead than a threshold.
func TestOneErasureIsEnoughForAVacuum(t *testing.T) {
	var vacuumed bool
	if err := pgtest.New(t).QueryRow(t.Context(), `
SELECT 1 > (SELECT option_value::int FROM pg_options_to_table(reloptions) WHERE option_name = 'autovacuum_vacuum_threshold')
FROM pg_class WHERE relname = 'subject_keys'`).Scan(&vacuumed); err != nil || !vacuumed {
		t.Errorf("a vacuum: %t, %v", vacuumed, err)
	}
}

func TestNoKeyStandsInTheDatabase(t *testing.T) {
	pool := pgtest.New(t)
	drawn := &recorder{}
	vault := seal.New(pgkeys.Keys{Pool: pool}, keystest.NewMaster(t), drawn)
	for c := range 3 {
		client := id.Client(fmt.Sprint("cli_", c))
		if err := vault.Prepare(t.Context(), client, "usr_1", "usr_2"); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.Index(t.Context(), client, "email", "a@example.com"); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := pool.Query(t.Context(), `
		SELECT wrapped FROM client_keys UNION ALL SELECT wrapped FROM peppers UNION ALL SELECT wrapped FROM subject_keys`)
	if err != nil {
		t.Fatal(err)
	}
	stored := testkit.Must(pgx.CollectRows(rows, pgx.RowTo[[]byte]))(t)
	if len(stored) != 3+3+6 || len(drawn.keys) != len(stored) {
		t.Fatalf("%d keys drawn, %d stored", len(drawn.keys), len(stored))
	}
	for _, wrapped := range stored {
		for _, key := range drawn.keys {
			if bytes.Contains(wrapped, key) {
				t.Fatal("a key is stored unwrapped")
			}
		}
	}
}

// recorder remembers every key that was drawn: an id of 8 bytes, then 32.
type recorder struct{ keys [][]byte }

func (r *recorder) Read(p []byte) (int, error) {
	n, err := rand.Read(p)
	if len(p) == 40 {
		r.keys = append(r.keys, bytes.Clone(p[8:]))
	}
	return n, err
}

func TestNoKeyIsMadeOrDestroyedThatTheStandbyDoesNotKnowOf(t *testing.T) {
	primary := pgtest.Durable(t)
	standby := primary.Standby()
	pool := testkit.Must(postgres.Open(t.Context(), primary.URL(), postgres.Options{}))(t)
	t.Cleanup(pool.Close)
	standby.Await(primary)
	keys := pgkeys.Keys{Pool: pool}
	root := seal.RootKey{Kind: seal.Pepper, Client: "cli_acme", WrappedKey: seal.WrappedKey{ID: "key", Under: "master", Wrapped: []byte("wrapped")}}
	for _, work := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := keys.MakeRoot(ctx, root); return err },
		func(ctx context.Context) error { return keys.Destroy(ctx, "cli_acme", "usr_1") },
	} {
		standby.Needed(primary, work)
	}
}

func TestAKeyThatWasLostWithItsServerIsUsedNoMore(t *testing.T) {
	const acme, bolt = id.Client("cli_acme"), id.Client("cli_bolt")
	pool, master := pgtest.New(t), keystest.NewMaster(t)
	now := time.Now()
	vault := seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader)
	vault.Now = func() time.Time { return now }
	derive := func(v *seal.Vault, client id.Client) [32]byte {
		t.Helper()
		return testkit.Must(v.Index(t.Context(), client, "user", "x"))(t)
	}
	lost, kept := derive(vault, acme), derive(vault, bolt)
	if _, err := pool.Exec(t.Context(), `DELETE FROM peppers WHERE client = $1`, acme); err != nil {
		t.Fatal(err)
	}
	vault.Invalidate()
	for client, want := range map[id.Client]error{acme: seal.ErrLost, bolt: nil} {
		if err := vault.Verify(t.Context(), client); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", client, err, want)
		}
	}
	if got := derive(vault, bolt); got != kept {
		t.Error("another's lookups are others")
	}
	if got := derive(vault, acme); got == lost || got != derive(seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader), acme) {
		t.Error("a lookup is derived under a key that no database holds")
	}
	if err := vault.Verify(t.Context(), acme); !errors.Is(err, seal.ErrLost) {
		t.Errorf("what was derived before may be appended: %v", err)
	}
	now = now.Add(time.Minute)
	if err := vault.Verify(t.Context(), acme); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// A key is on its way as two processes destroy those of its client.
func TestNoKeyOutlivesItsClient(t *testing.T) {
	const acme, bolt = id.Client("cli_acme"), id.Client("cli_bolt")
	keys := pgkeys.Keys{Pool: pgtest.New(t)}
	under := func(id, root string) seal.WrappedKey {
		return seal.WrappedKey{ID: id, Under: root, Wrapped: []byte("wrapped")}
	}
	for client, root := range map[id.Client]string{acme: "a", bolt: "b"} {
		if _, err := keys.MakeRoot(t.Context(), seal.RootKey{Kind: seal.ClientKey, Client: client, WrappedKey: under(root, "master")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := keys.MakeSubjects(t.Context(), []seal.SubjectKey{{Client: acme, Subject: "usr_1", WrappedKey: under("1", "a")}}); err != nil {
		t.Fatal(err)
	}
	late := testkit.Must(keys.Pool.Begin(t.Context()))(t)
	if _, err := late.Exec(t.Context(), `INSERT INTO subject_keys (client, subject, id, client_key, wrapped) VALUES ($1, 'usr_2', '2', 'a', 'wrapped')`, acme); err != nil {
		t.Fatal(err)
	}
	destroying := panics.New()
	for range 2 {
		destroying.Go(func() error {
			_, err := keys.DestroyClient(t.Context(), acme)
			return err
		})
	}
	testkit.Eventually(t, "both wait for the key", func() (both bool) {
		err := keys.Pool.QueryRow(t.Context(), `SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&both)
		return err == nil && both
	})
	if err := errors.Join(late.Commit(t.Context()), destroying.Wait()); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := keys.Pool.QueryRow(t.Context(), `SELECT count(*) FROM subject_keys WHERE client = $1 AND wrapped IS NOT NULL`, acme).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d keys are left, %v", left, err)
	}
	if _, err := keys.MakeSubjects(t.Context(), []seal.SubjectKey{{Client: bolt, Subject: "usr_1", WrappedKey: under("1", "b")}}); err != nil {
		t.Errorf("another client: %v", err)
	}
}
