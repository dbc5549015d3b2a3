package projections_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

// whatever bounds no list here.
const whatever = 100

func TestARevocationThatIsNotedLateIsFound(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	client := w.Acme
	w.Follow(projections.Revocations{})
	model, long := projections.Revocations{Reader: w.Reader}, time.Now().Add(-time.Hour)

	key := id.Next[id.Key](w.IDs)
	if err := model.Note(t.Context(), client, string(key), long); err != nil {
		t.Fatal(err)
	}
	member := id.Next[id.Member](w.IDs)
	late := eventstore.Recorded{Event: event.MemberRemoved{Member: member}}
	late.RecordedAt = long
	old := eventstore.Recorded{Event: event.MemberRemoved{Member: id.Next[id.Member](w.IDs)}}
	old.RecordedAt = time.Now().Add(-26 * time.Hour) // no token is left
	if err := pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL search_path TO revocations_2, public`); err != nil {
			return err
		}
		return model.Apply(t.Context(), tx, []eventstore.Recorded{late, old})
	}); err != nil {
		t.Fatal(err)
	}
	found := testkit.Must(model.Since(t.Context(), time.Minute, whatever))(t)
	if want := []string{string(key), string(member)}; !slices.Equal(slices.Sorted(slices.Values(found)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%v are found; want %v", found, want)
	}
	// Who says it again, because no answer came, is told when it is known anew.
	if _, err := w.Pool.Exec(t.Context(), `UPDATE revocation_notes SET noted_at = noted_at - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	if err := model.Note(t.Context(), client, string(member), long); err != nil {
		t.Fatal(err)
	}
	if again := testkit.Must(model.Since(t.Context(), time.Minute, whatever))(t); len(again) != 1 || again[0] != string(member) {
		t.Errorf("%v; want what was noted again", again)
	}
}

func TestWhatEndsTokensIsRevokedWithIt(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Revocations{})
	model := projections.Revocations{Reader: w.Reader}
	member := id.Next[id.Member](w.IDs)
	ses := []id.Session{id.Next[id.Session](w.IDs), id.Next[id.Session](w.IDs), id.Next[id.Session](w.IDs)}
	stream := "access-" + string(w.Acme) + "-" + string(member)
	w.SignUp(w.Acme, "acme")
	w.Record(w.Acme, "client-"+string(w.Acme), projectionstest.AddedMember(member, "viewer"))
	w.Record(w.Acme, stream, event.SessionOpened{Member: member, Session: ses[2], Ended: ses[:1]}, event.SessionEnded{Member: member, Session: ses[1]},
		event.MemberPasswordSet{Member: member, PasswordHash: event.Private([]byte("$argon2id$")), Standing: event.AccessStanding{Changes: 3}})
	for subject, want := range map[string]bool{
		string(ses[0]): true, string(ses[1]): true, string(ses[2]): false, string(member): false,
		id.Logins(member, 1): false, id.Logins(member, 2): true, id.Logins(member, 3): false,
	} {
		if got, err := model.Revoked(t.Context(), w.Acme, "key_else", subject); err != nil || got != want {
			t.Errorf("%s is revoked: %v, %v; want %v", subject, got, err, want)
		}
	}
}

func TestNotesThatNoTokenNeedsAreForgotten(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	client := w.Acme
	w.Follow(projections.Revocations{})
	const notes = `
INSERT INTO revocation_notes (client, subject, revoked_at, noted_at)
SELECT 'cli_else', 'key_' || h || '_' || n, now() - h * interval '1 hour', now() - h * interval '1 hour'
FROM unnest(ARRAY[24, 26]) AS h, generate_series(1, 150) AS n`
	if _, err := w.Pool.Exec(t.Context(), notes); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{151 + 50, 152, 153} { // some at a time
		if err := (projections.Revocations{Reader: w.Reader}).Note(t.Context(), client, string(id.Next[id.Key](w.IDs)), time.Now()); err != nil {
			t.Fatal(err)
		}
		var left int
		if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM revocation_notes`).Scan(&left); err != nil || left != want {
			t.Errorf("%d notes are left, %v; want %d", left, err, want)
		}
	}
}

func TestAClientThatRevokesWithoutEndIsNotedAsAWhole(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	client := w.Acme
	w.Follow(projections.Revocations{})
	model := projections.Revocations{Reader: w.Reader}
	other := id.Next[id.Client](w.IDs)
	var last, theirs id.Key
	for range 300 {
		last, theirs = id.Next[id.Key](w.IDs), id.Next[id.Key](w.IDs)
		if err := model.Note(t.Context(), client, string(last), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if err := model.Note(t.Context(), other, string(theirs), time.Now()); err != nil {
		t.Fatal(err)
	}
	noted := map[string]bool{}
	for _, subject := range testkit.Must(model.Since(t.Context(), time.Minute, 1_000))(t) {
		noted[subject] = true
	}
	if len(noted) != 256+2 || !noted[string(client)] || !noted[string(theirs)] || noted[string(other)] {
		t.Errorf("%d are noted; want 256, the client as a whole, and the other's", len(noted))
	}
	for subject, want := range map[id.Key]bool{last: true, id.Next[id.Key](w.IDs): false} {
		if got, err := model.Revoked(t.Context(), client, string(subject)); err != nil || got != want {
			t.Errorf("%s is revoked: %v, %v; want %v", subject, got, err, want)
		}
	}
}

// The projection and a request note revocations of a client that is noted as a whole at the
// same time, and none of them fails.
func TestRevocationsThatAreNotedAtOnceWaitForNoneThatWaitsForThem(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Revocations{})
	model, now := projections.Revocations{Reader: w.Reader}, time.Now()
	const notes = `
INSERT INTO revocation_notes (client, subject, revoked_at)
SELECT $1::text, 'key_' || n, now() FROM generate_series(1, 300) AS n UNION ALL SELECT $1, $1, now()`
	if _, err := w.Pool.Exec(t.Context(), notes, w.Acme); err != nil {
		t.Fatal(err)
	}
	holding := testkit.Must(w.Pool.Begin(t.Context()))(t)
	if _, err := holding.Exec(t.Context(), `SELECT FROM revocation_notes WHERE client = $1 AND subject = $1 FOR UPDATE`, w.Acme); err != nil {
		t.Fatal(err)
	}

	var batch []eventstore.Recorded
	for range 2 {
		r := eventstore.Recorded{Event: event.APIKeyRevoked{Key: id.Next[id.Key](w.IDs)}}
		r.Client, r.RecordedAt = w.Acme, now
		batch = append(batch, r)
	}
	waiting := func(n int) {
		t.Helper()
		testkit.Eventually(t, "they wait", func() (all bool) {
			err := w.Pool.QueryRow(t.Context(), `
SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n).Scan(&all)
			return err == nil && all
		})
	}
	ended := make(chan error, 2)
	go func() {
		ended <- pgx.BeginFunc(t.Context(), w.Pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL search_path TO revocations_2, public`); err != nil {
				return err
			}
			return model.Apply(t.Context(), tx, batch)
		})
	}()
	waiting(1)
	go func() {
		ended <- model.Note(t.Context(), w.Acme, string(batch[1].Event.(event.APIKeyRevoked).Key), now)
	}()
	waiting(2)
	if err := holding.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
